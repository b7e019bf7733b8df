"""Create and update, from a decoded body to the stored version; POST, PUT, PATCH and subresources share this code.

The functions run under the cluster's lock. The lock is released during a webhook call; a function raises `Overtaken` if
the object changed during that call. `ctx` collects warnings. `Strategy` documents the order of the hooks. An unknown or
repeated field is accepted with fieldValidation Ignore, causes a warning with Warn, and is refused with Strict.
"""

from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.apiserver import errors, managedfields, objectmeta
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.crds.controller import STORAGE, is_terminating
from kubectl_runtime.apiserver.encoding import Keys, warning_texts
from kubectl_runtime.apiserver.names import generated_name
from kubectl_runtime.apiserver.objectmeta import restore, without_times
from kubectl_runtime.apiserver.output.negotiation import shown_object
from kubectl_runtime.apiserver.policies import admission
from kubectl_runtime.apiserver.policies.admission import charge, secure
from kubectl_runtime.apiserver.query import parse_uint
from kubectl_runtime.apiserver.schemas import ANY, Schema
from kubectl_runtime.apiserver.storage import ObjectTooLarge, ServedResource, Version, make_version
from kubectl_runtime.apiserver.webhooks.calls import still
from kubectl_runtime.apiserver.webhooks.chain import NOT_ON_CREATE, admitted, approved, shown
from kubectl_runtime.apiserver.webhooks.review import CREATE, UPDATE
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy, same_json
from kubectl_runtime.core.meta.metav1 import format_time

_RECREATED = "unable to create new content in namespace {} because it is being terminated"


def admit_create(ctx: RequestContext, meta: Object) -> None:
    """Check that the namespace accepts new objects and the CRD accepts new instances. Raises the 403 or 404."""
    crd = ctx.cluster.storage.get(STORAGE, "", ctx.type.qualified) if ctx.type.is_custom else None
    if crd is not None and is_terminating(crd):
        raise errors.forbidden(ctx.type.group, ctx.type.plural, meta.get("name") or "",
                               "create not allowed while custom resource definition is terminating")
    namespace = meta.get("namespace", "")
    if not namespace or not ctx.type.strategy.checks_namespace:
        return
    found = ctx.cluster.storage.get("/namespaces", "", namespace)
    if found is None:
        raise errors.not_found("", "namespaces", namespace)
    if found.deleting:
        name = meta.get("name") or ""
        raise errors.forbidden(ctx.type.group, ctx.type.plural, name, _RECREATED.format(namespace), [
            errors.Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")])


def admit_write(ctx: RequestContext, new: Object, old: Object | None) -> None:
    """Check that a Role or binding grants only permissions that its writer has; `old` is None for a create."""
    ctx.access.check_write(ctx.user_info, ctx.type.group, ctx.type.plural, new, old)


MAX_BYTES = 3 << 19  # etcd's limit; the real server stores built-in kinds as protobuf, about as large as their JSON
_GENERATE_ATTEMPTS = 8


def check_namespace(ctx: RequestContext, obj: Object) -> None:
    """Set the object's namespace to the namespace in the path. A cluster-scoped object loses its namespace.

    Raises a 400 if the object names another namespace.
    """
    meta = obj["metadata"]
    if not ctx.type.namespaced:
        meta.pop("namespace", None)  # the real server also drops it silently
        return
    if meta.get("namespace") and meta["namespace"] != ctx.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request")
    meta["namespace"] = ctx.namespace


def check_name(ctx: RequestContext, obj: Object) -> None:
    name = obj["metadata"].get("name") or ""
    if not name:
        raise errors.bad_request(f"the name of the object ({ctx.info.name} based on URL) was undeterminable: name must "
                                 "be provided")
    if name != ctx.info.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({ctx.info.name})")


def schema_of(resource_type: ServedResource) -> Schema:
    """The schema for patches and ownership; for a type without a schema, a schema that allows any value."""
    return resource_type.schema or ANY


def version_schemas(ctx: RequestContext) -> dict[str, Schema] | None:
    """The schemas of all served versions by apiVersion; None if there is only one version."""
    served = ctx.cluster.registry.of_storage(ctx.type.storage)
    return {other.api_version: schema_of(other) for other in served} if len(served) > 1 else None


def _put(ctx: RequestContext, obj: Object, fields: dict[str, str], current: Version | None) -> Version:
    """Store an object over its current version (None for a new object).

    Raises `Overtaken` if another request changed the object during a webhook call.
    """
    stored_as = ""
    if ctx.type.is_custom:
        obj, stored_as = ctx.type.strategy.stored_form(obj)
    if ctx.type.strategy.asks_webhook and current is not None:
        still(ctx, current)
    elif ctx.type.strategy.asks_webhook:
        _refuse_existing(ctx, obj["metadata"])
    try:
        return ctx.cluster.storage.put(ctx.type.storage, obj, fields, stored_as=stored_as, max_bytes=MAX_BYTES)
    except ObjectTooLarge:
        raise errors.bare_500("etcdserver: request is too large") from None


def request_form(ctx: RequestContext, version: Version) -> Object:
    """A stored object in the request's API version."""
    return shown_object(ctx.type, version)


def create(ctx: RequestContext, obj: Object, *, applied: bool = False) -> Version:
    """Store a new, decoded object. With `applied` the object already has its managedFields."""
    strategy, meta = ctx.type.strategy, obj["metadata"]
    check_namespace(ctx, obj)
    for key in NOT_ON_CREATE:
        meta.pop(key, None)
    posted = ctx.request.method == "POST"
    if not posted:
        parse_version(meta.get("resourceVersion") or "")
    ctx.warnings += objectmeta.tidy_owners(meta, patched=ctx.request.method == "PATCH")
    if not applied:
        obj = with_managers(ctx, None, obj, "")
        meta = obj["metadata"]
    admit_create(ctx, meta)
    if ctx.asks:
        strategy.admit(obj, ctx)
        obj = admitted(ctx, CREATE, obj, None)
        check_namespace(ctx, obj)
    admit_write(ctx, obj, None)
    obj = strategy.to_storage(obj, ctx.type.version)
    meta = obj["metadata"]
    _stamp(ctx, meta)
    strategy.prepare_create(obj, ctx)
    if strategy.has_generation:
        meta["generation"] = 1
    causes = objectmeta.validate_create(meta, strategy) + strategy.validate_create(obj, ctx)
    if causes:
        raise errors.invalid(ctx.type.storage_group, ctx.type.kind, meta.get("name") or "", causes)
    ctx.warnings += objectmeta.warnings(meta, None, ctx.type) + strategy.warnings(obj, None)
    partial = strategy.canonicalize(obj, ctx)
    secure(ctx, obj, None)
    if ctx.asks:
        approved(ctx, CREATE, shown(ctx, obj), None, lambda: strategy.validate_create(obj, ctx))
    charge(ctx, obj, None)
    sent = _sent_version(meta.pop("resourceVersion", ""))
    if sent and posted and not ctx.dry_run:
        raise errors.bare_500("resourceVersion should not be set on objects to be created")
    _refuse_existing(ctx, meta)
    fields = strategy.selectable_fields(obj)
    if ctx.dry_run:
        return make_version(obj, sent, fields, _unstored(ctx))
    version = _put(ctx, obj, fields, None)
    version.partial = partial
    if not ctx.type.is_custom and ctx.cluster.warns and (
            told := admission.warning(ctx.type.group, ctx.type.kind, ctx.cluster.controllers)):
        ctx.warnings.append(told)
    return version


def _unstored(ctx: RequestContext) -> str:
    """`Version.stored_as` for an object that is only returned and not stored: the request's API version."""
    return ctx.type.version if ctx.type.is_custom else ""


def _stamp(ctx: RequestContext, meta: Object) -> None:
    """Set the server's metadata fields of a new object, whatever the client sent."""
    prefix = meta.get("generateName") or ""
    if prefix and not meta.get("name"):
        for _ in range(_GENERATE_ATTEMPTS):
            meta["name"] = generated_name(prefix, ctx.cluster.random)
            if ctx.cluster.storage.get(ctx.type.storage, meta.get("namespace", ""), meta["name"]) is None:
                break
    meta["uid"] = ctx.cluster.new_uid()
    meta["creationTimestamp"] = format_time(ctx.now)


def _refuse_existing(ctx: RequestContext, meta: Object) -> None:
    existing = ctx.cluster.storage.get(ctx.type.storage, meta.get("namespace", ""), meta["name"])
    if existing is None:
        return
    error = errors.already_exists(ctx.type.group, ctx.type.plural, meta["name"],
                                  generated=bool(meta.get("generateName")))
    if existing.deleting:
        error.message = f"object is being deleted: {error.message}"
    raise error


def with_managers(ctx: RequestContext, old: Object | None, new: Object, subresource: str) -> Object:
    """The new state with updated managedFields for the changes since the old state (None for a create)."""
    assert ctx.options is not None
    return managedfields.update(
        old, new, manager=ctx.options.manager, api_version=ctx.type.api_version, schema=schema_of(ctx.type),
        now=ctx.now,
        subresource=subresource, blank=ctx.type.strategy.blank(), reset=ctx.type.strategy.reset(subresource),
        versions=version_schemas(ctx))


def update(ctx: RequestContext, current: Version, old: Object, new: Object, subresource: str = "", *,
           applied: bool = False, view: Callable[[Object], Object] | None = None) -> Version:
    """Store a new state of an object. `old` is `current` in the request's API version; `new` is decoded.

    If the subresource has a kind of its own, `view` returns the object that validating webhooks see; mutating webhooks
    must have been called before. Returns the stored version, which is `current` if nothing changed. If the change
    removed the last finalizer of a deleted object, the object is removed; the result is then the object as the client
    sent it, with its last resourceVersion.
    """
    strategy = ctx.type.strategy
    ctx.warnings += objectmeta.tidy_owners(new["metadata"], patched=ctx.request.method == "PATCH")
    if not applied:
        new = with_managers(ctx, old, new, subresource)
    asked = json_copy(old) if ctx.asks else old
    if ctx.asks and view is None:
        new = admitted(ctx, UPDATE, new, asked)
    _check_version(ctx, current, new["metadata"])
    check_namespace(ctx, new)
    before = strategy.to_storage(old, ctx.type.version)
    before = {key: value for key, value in before.items() if key not in ("kind", "apiVersion")}
    new = strategy.to_storage(new, ctx.type.version)
    strategy.prepare_update(new, before, subresource, ctx)
    meta = new["metadata"]
    restore(meta, before["metadata"])
    admit_write(ctx, new, before)
    _raise_generation(ctx, new, before, subresource)
    _validate(ctx, new, before, subresource)
    strategy.canonicalize(new, ctx)
    fields = strategy.selectable_fields(new)
    meta["resourceVersion"] = str(current.rv)
    new.pop("kind", None)
    new.pop("apiVersion", None)
    secure(ctx, new, before, subresource)
    if ctx.asks:
        seen = view or (lambda obj: obj)
        approved(ctx, UPDATE, seen(shown(ctx, new)), seen(asked),
                 lambda: strategy.validate_update(new, before, subresource, ctx))
    charge(ctx, new, before, subresource)
    if ctx.may_wait:
        still(ctx, current)
    if "deletionTimestamp" in meta and is_finished(ctx.type, new):
        answer = make_version(new, current.rv, fields, _unstored(ctx))
        if not ctx.dry_run:
            ctx.cluster.storage.delete(ctx.type.storage, current)
        return answer
    is_old = current.partial or (current.stored_as and not strategy.is_up_to_date(current.decode, current.stored_as))
    if not is_old and same_json(without_times(new), without_times(before)):
        return current  # the new state equals the stored object, apart from times in managedFields
    if ctx.dry_run:
        return make_version(new, current.rv, fields, _unstored(ctx))
    return _put(ctx, new, fields, current)


def is_finished(resource_type: ServedResource, obj: Object) -> bool:
    """Whether a deleted object can be removed: no finalizer, grace period or strategy delays the deletion."""
    meta = obj["metadata"]
    return (not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
            and not resource_type.strategy.holds_deletion(obj))


def _check_version(ctx: RequestContext, current: Version, meta: Object) -> None:
    sent = parse_version(meta.get("resourceVersion") or "")
    if sent and sent != current.rv:
        raise errors.conflict(ctx.type.group, ctx.type.plural, current.name)
    if not sent and not ctx.type.strategy.allow_unconditional_update:
        # the real server also uses the plural instead of the kind here
        raise errors.invalid(ctx.type.group, ctx.type.plural, current.name, [
            errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")])


def parse_version(text: str) -> int:
    """An object's resourceVersion as a number, 0 if it has none. Raises a 500 if it is not a number."""
    try:
        return parse_uint(text or "0")
    except ValueError as error:
        raise errors.bare_500(str(error)) from None


def _sent_version(text: str) -> int:
    """The resourceVersion that the client sent in a new object; 0 if there is none or it is not a number."""
    try:
        return parse_uint(text) if text else 0
    except ValueError:
        return 0


def _raise_generation(ctx: RequestContext, new: Object, before: Object, subresource: str) -> None:
    meta, generation = new["metadata"], before["metadata"].get("generation", 0)
    if ctx.type.strategy.has_generation and subresource != "status":
        part = ctx.type.strategy.generation_part
        if not same_json(part(new), part(before)):
            generation += 1
    if generation:
        meta["generation"] = generation
    else:
        meta.pop("generation", None)


def _validate(ctx: RequestContext, new: Object, before: Object, subresource: str) -> None:
    strategy, meta = ctx.type.strategy, new["metadata"]
    causes = objectmeta.validate_update(meta, before["metadata"], strategy, subresource)
    causes += strategy.validate_update(new, before, subresource, ctx)
    if causes:
        raise errors.invalid(ctx.type.storage_group, ctx.type.kind, meta.get("name") or "", causes)
    ctx.warnings += objectmeta.warnings(meta, before["metadata"], ctx.type)
    if subresource in ("", "scale"):
        ctx.warnings += strategy.warnings(new, before)


def refusing(ctx: RequestContext, problems: list[str]) -> str:
    """The error text for unknown or repeated fields (`problems`) if fieldValidation is Strict; otherwise "".

    If fieldValidation is Warn, this function adds the problems to the request's warnings.
    """
    validation = ctx.options.field_validation if ctx.options else "Warn"
    if validation == "Strict" and problems:
        return "strict decoding error: " + ", ".join(problems)
    if validation != "Ignore":
        ctx.warnings += warning_texts(problems)
    return ""


def refuse_fields(ctx: RequestContext, type_name: str, problems: list[str]) -> None:
    """Raise a 400 for unknown or repeated fields (`problems`), unless these only cause warnings or are ignored.

    `type_name` ends in version and kind, as in ``autoscaling.v1.Scale``.
    """
    version, kind = type_name.split(".")[-2:]
    if why := refusing(ctx, problems):
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def decode(ctx: RequestContext, obj: Object, keys: Keys) -> None:
    """Give a received object its typed shape and defaults. Raises a 400 if the object does not fit the type."""
    kind, version = ctx.type.kind, ctx.type.version
    try:
        unknown = ctx.type.strategy.decode(obj)
    except errors.BodyDecodeError as error:
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    refuse_fields(ctx, f"{version}.{kind}", keys.problems(unknown, mixed=not ctx.type.is_custom))
    obj["metadata"] = obj.get("metadata") or {}
    ctx.type.strategy.default(obj)
