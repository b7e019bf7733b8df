"""PUT on an object or its status."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors, writes
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding.body import read_object
from kubectl_runtime.apiserver.encoding.typed_shape import decode
from kubectl_runtime.apiserver.handlers.answers import answer_one, stored
from kubectl_runtime.apiserver.query.options import write_options
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.apiserver.webhooks.attempts import attempt
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.codec.jsonvalues import json_copy

Object = dict[str, Any]


def update(ctx: RequestContext) -> HttpResponse:
    """Replace an object: 200; 201 where the kind allows a PUT to create."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    obj, keys = read_object(ctx.request, ctx.type)
    decode(ctx, obj, keys)
    writes.check_name(ctx, obj)
    writes.check_namespace(ctx, obj)
    version, status = attempt(ctx, lambda: _stored(ctx, json_copy(obj) if ctx.may_wait else obj))
    return answer_one(ctx, version, status)


def _stored(ctx: RequestContext, obj: Object) -> tuple[Version, int]:
    """The object's new version, and the status that tells it."""
    current = stored(ctx)
    if current is not None:
        check_uid(ctx, obj, current.uid)
        return writes.update(ctx, current, writes.request_form(ctx, current), obj, ctx.info.subresource), 200
    if not ctx.type.strategy.allow_create_on_update or ctx.info.subresource:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    check_uid(ctx, obj, "")
    # Surprising but true: a PUT of a missing Lease creates it, even with a resourceVersion in the body.
    ctx.access.require_create(ctx.user_info, ctx.info)
    return writes.create(ctx, obj), 201


def check_uid(ctx: RequestContext, obj: Object, found: str) -> None:
    """Raises the 409 of an object that names another uid than the one that was found ("": there is no object)."""
    wanted = obj["metadata"].get("uid") or ""
    if wanted in ("", found):
        return
    folder = f"{ctx.type.group}/{ctx.type.plural}" if ctx.type.is_custom else ctx.type.plural
    key = "/".join(filter(None, (folder, ctx.namespace, ctx.info.name)))
    raise errors.conflict(ctx.type.group, ctx.type.plural, ctx.info.name, (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"))
