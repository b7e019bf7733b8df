"""/scale: a view of an object's replicas as ``autoscaling/v1`` Scale."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors, managedfields, writes
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding import body
from kubectl_runtime.apiserver.handlers.answers import answer_object, stored
from kubectl_runtime.apiserver.handlers.change import check_uid, patch_type, patched, refuse_repeated
from kubectl_runtime.apiserver.patching import patch_documents
from kubectl_runtime.apiserver.query.options import write_options
from kubectl_runtime.apiserver.schemas import Schema, builtin
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.apiserver.webhooks.calls import attempt
from kubectl_runtime.apiserver.webhooks.chain import admit
from kubectl_runtime.apiserver.webhooks.review import UPDATE
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.apiserver.writes import refuse_fields
from kubectl_runtime.core.codec.sameness import json_copy

Object = dict[str, Any]
_SCALE = "autoscaling.v1.Scale"


def get_scale(ctx: RequestContext) -> HttpResponse:
    """The Scale of an object."""
    with ctx.cluster.locked():
        version = _stored(ctx)
    path = _paths(ctx)[0].removeprefix(".")
    obj = writes.request_form(ctx, version)
    if ctx.type.is_custom and _dig(obj, path) is None:
        raise errors.internal(f'the spec replicas field ".{path}" does not exist')
    return answer_object(ctx, _scale_of(ctx, obj))


def update_scale(ctx: RequestContext) -> HttpResponse:
    """Replace the Scale: replicas that are left out are 0."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    scale, unknown, keys = body.read_shape(ctx.request, _SCALE)
    _check_kind(scale)
    refuse_fields(ctx, _SCALE, keys.problems(unknown, mixed=True))

    def write() -> Version:
        current = _stored(ctx)
        writes.check_name(ctx, scale)
        check_uid(ctx, scale, current.uid)
        owned = _owned(ctx, current)
        return _store(ctx, current, owned, _updated(ctx, owned, scale))

    return answer_object(ctx, _scale(ctx, attempt(ctx, write)))


def patch_scale(ctx: RequestContext) -> HttpResponse:
    """Patch the Scale."""
    media = patch_type(ctx)
    ctx.options = write_options(ctx.request, "PatchOptions", apply=media == patch_documents.APPLY_YAML)

    def write() -> Version:
        current = _stored(ctx)
        scale = _owned(ctx, current)
        if media == patch_documents.APPLY_YAML:
            new = _applied(ctx, scale)
        else:
            result = patched(media, ctx.request.body, scale, _schema())
            changed, unknown = body.shape(result.value, _SCALE)
            result.refuse_fields(ctx, unknown)
            new = _updated(ctx, scale, changed)
        return _store(ctx, current, scale, new)

    return answer_object(ctx, _scale(ctx, attempt(ctx, write)))


def _check_kind(scale: Object) -> None:
    """A body may leave kind and version out, but not name others."""
    kind, api_version = scale.get("kind") or "Scale", scale.get("apiVersion") or "autoscaling/v1"
    if (kind, api_version) != ("Scale", "autoscaling/v1"):
        raise errors.bad_request(f'{kind} in version "{api_version.rpartition("/")[2]}" cannot be handled as a Scale: '
                                 f'no kind "{kind}" is registered for version "{api_version}" in scheme '
                                 '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"')


def _schema() -> Schema:
    return builtin("autoscaling", "v1", "Scale")


def _updated(ctx: RequestContext, old: Object, new: Object) -> Object:
    """A new Scale with the managers that it has after an update."""
    assert ctx.options is not None
    return managedfields.update(old, new, manager=ctx.options.manager, api_version="autoscaling/v1", schema=_schema(),
                                now=ctx.now, subresource="scale")


def _applied(ctx: RequestContext, old: Object) -> Object:
    """The Scale after a server-side apply."""
    assert ctx.options is not None
    configuration, keys = patch_documents.read_configuration(ctx.request.body, "autoscaling/v1", "Scale")
    result = managedfields.apply(old, configuration, manager=ctx.options.manager, force=ctx.options.force,
                                 api_version="autoscaling/v1", schema=_schema(), now=ctx.now, subresource="scale")
    refuse_repeated(ctx, keys)
    if ctx.type.is_custom and result.get("spec") != old["spec"]:
        # Surprising but true: nobody can apply to the scale of a custom resource, unless nothing changes.
        raise errors.bare_500(f"failed to convert new object ({managedfields.title(configuration)}) to proper version: "
                              "request to convert CR to an invalid group/version: autoscaling/v1")
    return body.shape(json_copy(result), _SCALE)[0]


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
    return _scale_of(ctx, writes.request_form(ctx, version))


def _scale_of(ctx: RequestContext, obj: Object) -> Object:
    spec_path, status_path, selector_path = _paths(ctx)
    meta = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in obj["metadata"]}
    status: Object = {"replicas": _dig(obj, status_path) or 0}
    selector = ctx.type.strategy.scale_selector(obj, selector_path)
    if selector:
        status["selector"] = selector
    replicas = _dig(obj, spec_path)
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
            "spec": {"replicas": replicas} if replicas else {}, "status": status}


def _replicas(ctx: RequestContext) -> dict[str, tuple[str, ...]]:
    """Where each served version of the kind has its replicas, as path elements of managedFields."""
    served = ctx.cluster.registry.of_storage(ctx.type.storage)
    paths = {other.api_version: other.strategy.scale_paths() for other in served}
    return {version: tuple("f:" + name for name in found[0].strip(".").split("."))
            for version, found in paths.items() if found}


def _owned(ctx: RequestContext, current: Version) -> Object:
    """The Scale of an object with the managers of its replicas."""
    scale = _scale(ctx, current)
    managers = managedfields.to_scale(current.decode()["metadata"].get("managedFields"), _replicas(ctx))
    return {**scale, "metadata": {**scale["metadata"], "managedFields": managers}} if managers else scale


def _store(ctx: RequestContext, current: Version, before: Object, scale: Object) -> Version:
    """Write the replicas of a Scale into the object."""
    if ctx.asks:
        scale = body.shape(admit(ctx, UPDATE, {"kind": "Scale", "apiVersion": "autoscaling/v1", **scale}, before),
                           _SCALE)[0]
    meta = scale["metadata"]
    writes.check_name(ctx, scale)
    replicas = scale["spec"].get("replicas") or 0
    if replicas < 0 and ctx.type.is_custom:
        raise errors.invalid(ctx.type.group, ctx.type.kind, ctx.info.name, [
            errors.invalid_value(_paths(ctx)[0], replicas, "should be a non-negative integer")])
    if replicas < 0:
        raise errors.invalid("autoscaling", "Scale", ctx.info.name, [
            errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")])
    old = writes.request_form(ctx, current)
    new = json_copy(old)
    if meta.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = meta["resourceVersion"]
    *parents, last = _paths(ctx)[0].strip(".").split(".")
    target = new
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):  # a custom resource may have anything there
            raise errors.bare_500(f"failed to set replicas: .{parent} is no object")
    target[last] = replicas
    _give_back(ctx, new["metadata"], meta.get("managedFields"))
    return writes.update(ctx, current, old, new, "scale", applied=True, view=lambda obj: _scale_of(ctx, obj))


def _give_back(ctx: RequestContext, metadata: Object, of_scale: Any) -> None:
    managers = managedfields.to_object(metadata.pop("managedFields", None), of_scale, ctx.type.api_version,
                                       _replicas(ctx))
    if managers:
        metadata["managedFields"] = managers


def _dig(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj
