"""PUT on an object or its status."""

from __future__ import annotations

from kubectl_runtime.testing.apiserver import errors, writes
from kubectl_runtime.testing.apiserver.body import read_object
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.handlers.answers import answer_one, stored
from kubectl_runtime.testing.apiserver.options import write_options
from kubectl_runtime.testing.apiserver.registry import ResourceType
from kubectl_runtime.testing.apiserver.wire import HttpResponse


def update(ctx: RequestContext) -> HttpResponse:
    """Replace an object: 200; 201 where the kind allows a PUT to create."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    obj, keys = read_object(ctx.request, ctx.type)
    writes.decode(ctx, obj, keys)
    writes.check_name(ctx, obj)
    writes.check_namespace(ctx, obj)
    with ctx.core.locked():
        current = stored(ctx)
        if current is None:
            if not ctx.type.strategy.allow_create_on_update or ctx.info.subresource:
                raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
            if uid := obj["metadata"].get("uid"):
                raise _other_uid(ctx.type, "/".join(filter(None, (ctx.namespace, ctx.info.name))), ctx.info.name,
                                 wanted=uid, found="")
            # Surprising but true: a PUT of a missing Lease creates it, even with a resourceVersion in the body.
            ctx.core.authorize_create(ctx)
            return answer_one(ctx, writes.create(ctx, obj), 201)
        uid = obj["metadata"].get("uid") or ""
        if uid and uid != current.uid:
            raise _other_uid(ctx.type, current.key, current.name, wanted=uid, found=current.uid)
        version = writes.update(ctx, current, writes.request_form(ctx, current), obj, ctx.info.subresource)
    return answer_one(ctx, version)


def _other_uid(resource_type: ResourceType, key: str, name: str, *, wanted: str, found: str) -> errors.StatusError:
    folder = f"{resource_type.group}/{resource_type.plural}" if resource_type.is_custom else resource_type.plural
    return errors.conflict(resource_type.group, resource_type.plural, name, (
        f"StorageError: invalid object, Code: 4, Key: /registry/{folder}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"))
