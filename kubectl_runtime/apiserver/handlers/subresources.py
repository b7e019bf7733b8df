"""Subresources whose bodies have a kind of their own: /scale (``autoscaling/v1`` Scale) and a service account's /token.

A token is an opaque string, not a JWT: only this server knows its user. It expires on the server's clock. The object
that a token is bound to (a Pod, Secret or Node) must exist when the token is issued, and may be deleted later.
"""
from __future__ import annotations

from datetime import timedelta
from typing import Any

from kubectl_runtime.apiserver import encoding, errors, managedfields, query, writes
from kubectl_runtime.apiserver.access.reviews import AUDIENCE
from kubectl_runtime.apiserver.context import RequestContext, answer_object, stored
from kubectl_runtime.apiserver.handlers.change import check_uid, patch_type, patched, refuse_repeated
from kubectl_runtime.apiserver.patching import json_patch
from kubectl_runtime.apiserver.query import write_options
from kubectl_runtime.apiserver.schemas import Schema, builtin
from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.apiserver.webhooks.calls import attempt
from kubectl_runtime.apiserver.webhooks.chain import admit, admit_unstored
from kubectl_runtime.apiserver.webhooks.review import UPDATE
from kubectl_runtime.apiserver.wire import HttpResponse, Object
from kubectl_runtime.apiserver.writes import refuse_fields
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.metav1 import format_time

_SCALE = "autoscaling.v1.Scale"


def get_scale(ctx: RequestContext) -> HttpResponse:
    with ctx.cluster.locked():
        version = _stored(ctx)
    path = _paths(ctx)[0].removeprefix(".")
    obj = writes.request_form(ctx, version)
    if ctx.type.is_custom and _dig(obj, path) is None:
        raise errors.internal(f'the spec replicas field ".{path}" does not exist')
    return answer_object(ctx, _scale_of(ctx, obj))


def update_scale(ctx: RequestContext) -> HttpResponse:
    """Replace the Scale; missing replicas count as 0."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    scale, unknown, keys = encoding.read_shape(ctx.request, _SCALE)
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
    media = patch_type(ctx)
    ctx.options = write_options(ctx.request, "PatchOptions", apply=media == json_patch.APPLY_YAML)

    def write() -> Version:
        current = _stored(ctx)
        scale = _owned(ctx, current)
        if media == json_patch.APPLY_YAML:
            new = _applied(ctx, scale)
        else:
            result = patched(media, ctx.request.body, scale, _schema())
            changed, unknown = encoding.shape(result.value, _SCALE)
            result.refuse_fields(ctx, unknown)
            new = _updated(ctx, scale, changed)
        return _store(ctx, current, scale, new)

    return answer_object(ctx, _scale(ctx, attempt(ctx, write)))


def _check_kind(scale: Object) -> None:
    """Check kind and apiVersion of a body, if they are present."""
    kind, api_version = scale.get("kind") or "Scale", scale.get("apiVersion") or "autoscaling/v1"
    if (kind, api_version) != ("Scale", "autoscaling/v1"):
        raise errors.bad_request(f'{kind} in version "{api_version.rpartition("/")[2]}" cannot be handled as a Scale: '
                                 f'no kind "{kind}" is registered for version "{api_version}" in scheme '
                                 '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"')


def _schema() -> Schema:
    return builtin("autoscaling", "v1", "Scale")


def _updated(ctx: RequestContext, old: Object, new: Object) -> Object:
    """The new Scale with its managedFields after an update."""
    assert ctx.options is not None
    return managedfields.update(old, new, manager=ctx.options.manager, api_version="autoscaling/v1", schema=_schema(),
                                now=ctx.now, subresource="scale")


def _applied(ctx: RequestContext, old: Object) -> Object:
    """The Scale after a server-side apply."""
    assert ctx.options is not None
    configuration, keys = json_patch.read_configuration(ctx.request.body, "autoscaling/v1", "Scale")
    result = managedfields.apply(old, configuration, manager=ctx.options.manager, force=ctx.options.force,
                                 api_version="autoscaling/v1", schema=_schema(), now=ctx.now, subresource="scale")
    refuse_repeated(ctx, keys)
    if ctx.type.is_custom and result.get("spec") != old["spec"]:
        # Surprising: an apply to the scale of a custom resource fails unless it changes nothing.
        raise errors.bare_500(f"failed to convert new object ({managedfields.title(configuration)}) to proper version: "
                              "request to convert CR to an invalid group/version: autoscaling/v1")
    return encoding.shape(json_copy(result), _SCALE)[0]


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
    """The path of the replicas in each served version, as path elements of managedFields."""
    served = ctx.cluster.registry.of_storage(ctx.type.storage)
    paths = {other.api_version: other.strategy.scale_paths() for other in served}
    return {version: tuple("f:" + name for name in found[0].strip(".").split("."))
            for version, found in paths.items() if found}


def _owned(ctx: RequestContext, current: Version) -> Object:
    """The Scale of an object, with the managedFields entries that own the replicas."""
    scale = _scale(ctx, current)
    managers = managedfields.to_scale(current.decode()["metadata"].get("managedFields"), _replicas(ctx))
    return {**scale, "metadata": {**scale["metadata"], "managedFields": managers}} if managers else scale


def _store(ctx: RequestContext, current: Version, before: Object, scale: Object) -> Version:
    if ctx.asks:
        scale = encoding.shape(admit(ctx, UPDATE, {"kind": "Scale", "apiVersion": "autoscaling/v1", **scale}, before),
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
        if not isinstance(target, dict):  # a custom resource may have any value here
            raise errors.bare_500(f"failed to set replicas: .{parent} is not an object")
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


GROUP = "authentication.k8s.io"
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 3600, 600, 1 << 32

_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_UNRECOGNIZED = "the object provided is unrecognized (must be of type TokenRequest)"
_NO_NUMBER = ('TokenRequest in version "v1" cannot be handled as a TokenRequest: json: cannot unmarshal the value of '
              "spec into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64")


def create_token(ctx: RequestContext) -> HttpResponse:
    """Issue a token: 201 with the token in the status."""
    ctx.options = query.write_options(ctx.request, "CreateOptions")
    asked = admit_unstored(ctx, {"kind": "TokenRequest", "apiVersion": f"{GROUP}/v1", **_read(ctx)})
    spec = _spec(asked)
    with ctx.cluster.locked():
        account = stored(ctx)
        if account is None:
            raise errors.not_found("", "serviceaccounts", ctx.info.name)
        _check_metadata(ctx, asked.get("metadata") or {})
        _check_bound(ctx, spec.get("boundObjectRef"))
    lifetime = spec.setdefault("expirationSeconds", DEFAULT_SECONDS)
    owned = {"kind": "TokenRequest", "apiVersion": f"{GROUP}/v1", "metadata": {}, "spec": spec}
    metadata = managedfields.update(None, owned, manager=ctx.options.manager, api_version=f"{GROUP}/v1", now=ctx.now,
                                    schema=builtin(GROUP, "v1", "TokenRequest"), subresource="token",
                                    blank={"spec": {}})["metadata"]
    token = ctx.access.issue_account_token(account.namespace, account.name, account.uid, lifetime)
    return answer_object(ctx, {
        "kind": "TokenRequest", "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": account.name, "namespace": account.namespace, "uid": account.uid,
                     "creationTimestamp": format_time(ctx.now), **metadata},
        "spec": {"audiences": spec.get("audiences") or [AUDIENCE], "expirationSeconds": lifetime,
                 "boundObjectRef": spec.get("boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": format_time(ctx.now + timedelta(seconds=lifetime))}}, 201)


def _check_metadata(ctx: RequestContext, metadata: Object) -> None:
    """Check that name and namespace are missing or equal to the path's."""
    for key, wanted, what in (("name", ctx.info.name, "name"), ("namespace", ctx.namespace, "namespace")):
        if metadata.get(key) not in (None, "", wanted):
            why = f"must match the service account {what} if specified"
            raise errors.invalid(GROUP, "TokenRequest", ctx.info.name, [
                errors.invalid_value(f"metadata.{key}", metadata[key], why)])


def _check_bound(ctx: RequestContext, reference: Object | None) -> None:
    """Check that the object that a token is bound to exists. The caller must hold the cluster's lock."""
    if not reference:
        return
    api_version, kind, name = (reference.get(key) or "" for key in ("apiVersion", "kind", "name"))
    group, _, version = api_version.rpartition("/")
    if group or kind not in _BINDABLE:
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    plural, namespace = _BINDABLE[kind], "" if kind == "Node" else ctx.namespace
    found = ctx.cluster.storage.get(f"/{plural}", namespace, name)
    if found is None:
        raise errors.not_found("", plural, name)
    if kind == "Pod" and found.fields.get("spec.serviceAccountName") != ctx.info.name:
        account = errors.go_value(ctx.info.name)
        raise errors.bad_request(f"cannot bind token for serviceaccount {account} to pod running with different "
                                 "serviceaccount name.")
    if reference.get("uid") not in (None, "", found.uid):
        raise errors.conflict("", kind, name, f"the UID in the bound object reference ({reference['uid']}) does not "
                              "match the UID in record. The object might have been deleted and then recreated")


def _read(ctx: RequestContext) -> Object:
    try:
        value, _ = encoding.parse(ctx.request)
    except ValueError as error:
        raise errors.bad_request(f"{_UNRECOGNIZED}: {error} "
                                 f"({encoding.summary(ctx.request.body)})") from None
    if not isinstance(value, dict) or value.get("kind") not in (None, "", "TokenRequest"):
        raise errors.bad_request(_UNRECOGNIZED)
    return value


def _spec(asked: Object) -> Object:
    """The request's spec, checked."""
    spec = asked.get("spec") or {}
    lifetime = spec.get("expirationSeconds") if isinstance(spec, dict) else ""
    if lifetime is not None and (not isinstance(lifetime, int) or isinstance(lifetime, bool)):
        raise errors.bad_request(_NO_NUMBER)
    if lifetime is not None and not MIN_SECONDS <= lifetime <= MAX_SECONDS:
        wrong = "less than 10 minutes" if lifetime < MIN_SECONDS else "larger than 2^32 seconds"
        raise errors.invalid(GROUP, "TokenRequest", "", [errors.invalid_value(
            "spec.expirationSeconds", lifetime, f"may not specify a duration {wrong}")])
    return dict(spec)
