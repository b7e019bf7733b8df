"""POST on a collection, PUT and PATCH on an object or a subresource (JSON, merge and strategic merge patch, apply)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubectl_runtime.apiserver import errors, managedfields, patching, writes
from kubectl_runtime.apiserver.access.reviews import REVIEWS
from kubectl_runtime.apiserver.context import RequestContext, answer_object, answer_one, stored
from kubectl_runtime.apiserver.encoding import Keys, read_object, type_meta_problem
from kubectl_runtime.apiserver.managedfields.typed_merge import go_plain
from kubectl_runtime.apiserver.patching import json_patch
from kubectl_runtime.apiserver.query import write_options
from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.apiserver.webhooks.calls import attempt
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse, Object
from kubectl_runtime.apiserver.writes import decode, refusing
from kubectl_runtime.core.codec.jsonbytes import json_copy


def create(ctx: RequestContext) -> HttpResponse:
    """Create an object: 201."""
    if ctx.type.namespaced and not ctx.info.namespace:
        raise errors.method_not_allowed()
    ctx.options = write_options(ctx.request, "CreateOptions")
    obj, keys = read_object(ctx.request, ctx.type)
    decode(ctx, obj, keys)
    review = REVIEWS.get((ctx.type.group, ctx.type.plural))
    if review is not None:
        writes.check_namespace(ctx, obj)
        asked = writes.with_managers(ctx, None, obj, "")
        return answer_object(ctx, review(ctx, admit_unstored(ctx, asked)), 201)
    return answer_one(ctx, attempt(ctx, lambda: writes.create(ctx, json_copy(obj) if ctx.may_wait else obj)), 201)


def update(ctx: RequestContext) -> HttpResponse:
    """Answer a PUT: 200 if it replaced the object, 201 if it created the object (which few kinds allow)."""
    ctx.options = write_options(ctx.request, "UpdateOptions")
    obj, keys = read_object(ctx.request, ctx.type)
    decode(ctx, obj, keys)
    writes.check_name(ctx, obj)
    writes.check_namespace(ctx, obj)
    version, status = attempt(ctx, lambda: _stored(ctx, json_copy(obj) if ctx.may_wait else obj))
    return answer_one(ctx, version, status)


def _stored(ctx: RequestContext, obj: Object) -> tuple[Version, int]:
    """The object's new version, and the HTTP status of the answer."""
    current = stored(ctx)
    if current is not None:
        check_uid(ctx, obj, current.uid)
        return writes.update(ctx, current, writes.request_form(ctx, current), obj, ctx.info.subresource), 200
    if not ctx.type.strategy.allow_create_on_update or ctx.info.subresource:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    check_uid(ctx, obj, "")
    # Surprising: a PUT of a missing Lease creates it, even with a resourceVersion in the body.
    ctx.access.require_create(ctx.user_info, ctx.info)
    return writes.create(ctx, obj), 201


def check_uid(ctx: RequestContext, obj: Object, found: str) -> None:
    """Raise a 409 if the client's object has a uid other than `found`, the stored object's uid ("" if none)."""
    wanted = obj["metadata"].get("uid") or ""
    if wanted in ("", found):
        return
    folder = f"{ctx.type.group}/{ctx.type.plural}" if ctx.type.is_custom else ctx.type.plural
    key = "/".join(filter(None, (folder, ctx.namespace, ctx.info.name)))
    raise errors.conflict(ctx.type.group, ctx.type.plural, ctx.info.name, (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"))


_CUSTOM_TYPES = (json_patch.JSON_PATCH, json_patch.MERGE_PATCH, json_patch.APPLY_YAML)


def patch_type(ctx: RequestContext) -> str:
    """The patch format that the Content-Type names. Raises a 415 if the server does not support the format."""
    media = ctx.request.header("content-type").partition(";")[0].strip()  # case-sensitive
    if ctx.type.is_custom and media not in _CUSTOM_TYPES:
        raise errors.unsupported_media_type(_CUSTOM_TYPES)
    if media not in (*_CUSTOM_TYPES, json_patch.STRATEGIC_MERGE_PATCH, json_patch.APPLY_CBOR):
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if media == json_patch.APPLY_CBOR:
        raise errors.unsupported_media_type(_CUSTOM_TYPES)
    return media


_GO_KINDS = {str: "string", int: "int64", float: "float64", bool: "bool", list: "slice", dict: "map"}


@dataclass(slots=True)
class Patched:
    """The object after a patch, the JSON keys in the patch, and the text that a 422 quotes."""

    value: Object
    keys: Keys
    text: str
    is_map: bool = False

    def refuse_fields(self, ctx: RequestContext, unknown: list[str]) -> None:
        """Raise a 422 for unknown or repeated fields, unless they only cause warnings or are ignored."""
        if why := refusing(ctx, self.keys.problems(unknown)):
            raise self.invalid(why)

    def misfit(self, error: errors.BodyDecodeError) -> str:
        """The error message if the patched object does not fit its kind's schema.

        The real server converts the result of a strategic merge patch from a map instead of decoding text, so its
        messages for that patch format differ.
        """
        if not self.is_map or error.misfit is None:
            return str(error)
        value, wanted, base = error.misfit
        found = _GO_KINDS[type(value)]
        if base:  # Go first converts between number types, and integers to strings
            converts = found in ("int64", "float64") and base != "bool" and (base != "string" or found == "int64")
            return f"cannot convert {found} to {wanted}" if converts else f"unrecognized type: {base}"
        if wanted.startswith(("map[", "[]")):
            return f"cannot restore {'map' if wanted.startswith('map[') else 'slice'} from {found}"
        return f"cannot restore struct from: {found}"

    def invalid(self, why: str) -> errors.StatusError:
        """The 422 for a patch whose result is invalid. The message names no object."""
        message = f' "" is invalid: patch: Invalid value: {errors.go_value(self.text)}: {why}'
        return errors.StatusError(422, "Invalid", message, causes=[errors.invalid_value("patch", self.text, why)])


def patched(media: str, data: bytes, current: Object, schema: Schema) -> Patched:
    """The object after a patch in the format `media`."""
    if media == json_patch.STRATEGIC_MERGE_PATCH:
        strategic, keys = json_patch.read_strategic_merge_patch(data)
        new = patching.apply_strategic_merge_patch(current, strategic, schema)
        return Patched({**new, "kind": current["kind"], "apiVersion": current["apiVersion"]}, keys, go_plain(strategic),
                       is_map=True)
    if media == json_patch.MERGE_PATCH:
        merge, keys = json_patch.read_merge_patch(data)
        new = patching.apply_merge_patch(current, merge)
    else:
        operations, keys = json_patch.read_json_patch(data)
        new = patching.apply_json_patch(current, operations)
    return Patched(new, keys, msgspec.json.encode(new, order="sorted").decode())


def patch(ctx: RequestContext) -> HttpResponse:
    """Answer a PATCH: 200 if it changed an object, 201 if an apply created the object."""
    media = patch_type(ctx)
    applies = media == json_patch.APPLY_YAML
    ctx.options = write_options(ctx.request, "PatchOptions", apply=applies)
    if applies:
        configuration, keys = json_patch.read_configuration(ctx.request.body, ctx.type.api_version, ctx.type.kind)
        version, status = attempt(ctx, lambda: _apply(ctx, configuration, keys))
        return answer_one(ctx, version, status)
    return answer_one(ctx, attempt(ctx, lambda: _patch(ctx, media)))


def _patch(ctx: RequestContext, media: str) -> Version:
    current = stored(ctx)
    if current is None:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    old = writes.request_form(ctx, current)
    new = _decode_result(ctx, patched(media, ctx.request.body, old, writes.schema_of(ctx.type)), old)
    writes.check_name(ctx, new)
    return writes.update(ctx, current, old, new, ctx.info.subresource)


def _decode_result(ctx: RequestContext, result: Patched, old: Object) -> Object:
    """Decode the result of a patch into the kind's shape, with defaults."""
    new = result.value
    _check_type(ctx, result, old)
    strategy = ctx.type.strategy
    try:
        unknown = strategy.decode(new)
    except errors.BodyDecodeError as error:
        raise result.invalid(result.misfit(error)) from None
    result.refuse_fields(ctx, unknown)
    new["metadata"] = new.get("metadata") or {}
    strategy.default(new)
    return new


def _check_type(ctx: RequestContext, result: Patched, old: Object) -> None:
    """Refuse a patch that changes an object's kind or apiVersion. Built-in kinds may remove them; they are restored."""
    new, kind, api_version = result.value, old["kind"], old["apiVersion"]
    if ctx.type.is_custom:
        _check_custom_type(ctx, result, kind, api_version)
        return
    new["kind"], new["apiVersion"] = new.get("kind") or kind, new.get("apiVersion") or api_version
    if (new["kind"], new["apiVersion"]) != (kind, api_version):
        raise result.invalid(f"unable to decode: no kind \"{new['kind']}\" is registered for version "
                             f"\"{new['apiVersion']}\"")


def _check_custom_type(ctx: RequestContext, result: Patched, kind: str, api_version: str) -> None:
    new = result.value
    if problem := type_meta_problem(new):
        raise result.invalid(f"couldn't get version/kind; json parse error: {problem}")
    if not new.get("kind"):
        raise result.invalid(f"Object 'Kind' is missing in '{result.text}'")
    if not new.get("apiVersion"):
        raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    if new["apiVersion"].count("/") > 1:
        raise result.invalid(f"unexpected GroupVersion string: {new['apiVersion']}")
    causes = [errors.invalid_value(key, new[key], f"must be {wanted}")
              for key, wanted in (("kind", kind), ("apiVersion", api_version)) if new[key] != wanted]
    if causes and ctx.info.subresource != "status":
        raise errors.invalid(new["apiVersion"].rpartition("/")[0], new["kind"], ctx.info.name, causes)
    new["kind"], new["apiVersion"] = kind, api_version  # a patch of the status cannot change them


def _apply(ctx: RequestContext, configuration: Object, keys: Keys) -> tuple[Version, int]:
    """Server-side apply. Returns the object's new version and the HTTP status of the answer."""
    assert ctx.options is not None
    current = stored(ctx)
    if current is None and ctx.info.subresource:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    old = writes.request_form(ctx, current) if current else None
    subresource = ctx.info.subresource
    result = managedfields.apply(
        old, configuration, manager=ctx.options.manager, force=ctx.options.force, api_version=ctx.type.api_version,
        schema=writes.schema_of(ctx.type), now=ctx.now, subresource=subresource, blank=ctx.type.strategy.blank(),
        reset=ctx.type.strategy.reset(subresource), versions=writes.version_schemas(ctx))
    refuse_repeated(ctx, keys)
    result = json_copy(result)  # the result shares parts with the arguments
    _decode_applied(ctx, result)
    # Check the result's name, since the configuration may omit the name for an existing object.
    writes.check_name(ctx, result)
    writes.check_namespace(ctx, result)
    if current is None or old is None:
        ctx.access.require_create(ctx.user_info, ctx.info)
        _refuse_uid(ctx, configuration)
        return writes.create(ctx, result, applied=True), 201
    return writes.update(ctx, current, old, result, subresource, applied=True), 200


def refuse_repeated(ctx: RequestContext, keys: Keys) -> None:
    """Raise a 400 if an apply configuration has repeated keys."""
    if why := refusing(ctx, keys.problems([])):
        why = why.removeprefix("strict decoding error: ")
        raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {why}")


def _refuse_uid(ctx: RequestContext, configuration: Object) -> None:
    """Refuse an apply with a uid if the object does not exist: the client means an object that is gone."""
    if uid := configuration["metadata"].get("uid"):
        raise errors.conflict(ctx.type.group, ctx.type.plural, ctx.info.name, (
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"))


def _decode_applied(ctx: RequestContext, result: Object) -> None:
    try:
        ctx.type.strategy.decode(result)
    except errors.BodyDecodeError as error:
        raise errors.bare_500(f"failed to convert merged object: {error}") from None
    result["metadata"] = result.get("metadata") or {}
    ctx.type.strategy.default_applied(result)
