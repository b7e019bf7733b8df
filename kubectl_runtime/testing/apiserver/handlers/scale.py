"""/scale: a view of an object's replicas as ``autoscaling/v1`` Scale."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.testing.apiserver import body, errors, writes
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.handlers.answers import answer_object, stored
from kubectl_runtime.testing.apiserver.handlers.patch import patch_type, patched
from kubectl_runtime.testing.apiserver.options import write_options
from kubectl_runtime.testing.apiserver.patching import documents
from kubectl_runtime.testing.apiserver.schemas import builtin
from kubectl_runtime.testing.apiserver.storage import Version
from kubectl_runtime.testing.apiserver.wire import HttpResponse

Object = dict[str, Any]
_SCALE = "autoscaling.v1.Scale"


def get_scale(ctx: RequestContext) -> HttpResponse:
    """The Scale of an object."""
    with ctx.core.locked():
        version = _stored(ctx)
    return answer_object(ctx, _scale(ctx, version))


def update_scale(ctx: RequestContext) -> HttpResponse:
    """Replace the Scale: replicas that are left out are 0."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    scale, unknown, keys = body.read_shape(ctx.request, _SCALE)
    writes.refuse_fields(ctx, _SCALE, keys.problems(unknown, mixed=True))
    with ctx.core.locked():
        version = _store(ctx, _stored(ctx), scale)
    return answer_object(ctx, _scale(ctx, version))


def patch_scale(ctx: RequestContext) -> HttpResponse:
    """Patch the Scale."""
    media = patch_type(ctx)
    ctx.options = write_options(ctx.request, "PatchOptions", apply=media == documents.APPLY_YAML)
    with ctx.core.locked():
        current = _stored(ctx)
        scale = _scale(ctx, current)
        if media == documents.APPLY_YAML:
            applied, _ = documents.read_configuration(ctx.request.body, "autoscaling/v1", "Scale")
            new, _ = body.shape({**scale, "spec": applied.get("spec")}, _SCALE)
        else:
            result = patched(media, ctx.request.body, scale, builtin("autoscaling", "v1", "Scale"))
            new, unknown = body.shape(result.value, _SCALE)
            result.refuse_fields(ctx, unknown)
        version = _store(ctx, current, new)
    return answer_object(ctx, _scale(ctx, version))


def _stored(ctx: RequestContext) -> Version:
    version = stored(ctx)
    if version is None:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    return version


def _paths(ctx: RequestContext) -> tuple[str, str, str]:
    paths = ctx.type.strategy.scale_paths()
    assert paths is not None, f"{ctx.type.qualified} declares /scale without paths"
    return paths


def _scale(ctx: RequestContext, version: Version) -> Object:
    spec_path, status_path, selector_path = _paths(ctx)
    obj = version.decode()
    meta = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in obj["metadata"]}
    status: Object = {"replicas": _dig(obj, status_path) or 0}
    selector = ctx.type.strategy.scale_selector(obj, selector_path)
    if selector:
        status["selector"] = selector
    replicas = _dig(obj, spec_path)
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
            "spec": {"replicas": replicas} if replicas else {}, "status": status}


def _store(ctx: RequestContext, current: Version, scale: Object) -> Version:
    """Write the replicas of a Scale into the object."""
    meta = scale["metadata"]
    writes.check_name(ctx, scale)
    replicas = scale["spec"].get("replicas") or 0
    if replicas < 0 and ctx.type.is_custom:
        raise errors.invalid(ctx.type.group, ctx.type.kind, ctx.info.name, [
            errors.invalid_value(_paths(ctx)[0], replicas, "should be a non-negative integer")])
    if replicas < 0:
        raise errors.invalid("autoscaling", "Scale", ctx.info.name, [
            errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")])
    old, new = writes.request_form(ctx, current), writes.request_form(ctx, current)
    if meta.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = meta["resourceVersion"]
    *parents, last = _paths(ctx)[0].strip(".").split(".")
    target = new
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):  # a custom resource may have anything there
            raise errors.bare_500(f"failed to set replicas: .{parent} is no object")
    target[last] = replicas
    return writes.update(ctx, current, old, new, "scale")


def _dig(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj
