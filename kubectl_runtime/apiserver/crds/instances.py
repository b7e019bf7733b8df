"""The strategy of custom resources: pruning, defaults, generation, scale, selectable fields, validation, conversion.

An object is stored in the storage version at the time of its write. If the CRD's storage version changes, the stored
object keeps its version until the next write.

`WebhookConverter` calls a conversion webhook to convert objects. All objects of a list page go in one review. The
webhook must return the same number of objects, in the same order, in the requested version, with the same kind, name,
namespace and uid. Only labels and annotations are taken from the returned metadata. A wrong answer becomes the real
server's 500, ``conversion webhook for …``. A conversion blocks for at most `TIMEOUT`, without the cluster's lock.

Each read calls the webhook. If the call fails, a list or watch returns objects that were converted earlier, like the
real server's cache (`output.negotiation`). Earlier conversions come from a previous read, or from
`crds.controller.ConversionCache` after the write.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding import write_numbers
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.managedfields.typed_merge import go_type
from kubectl_runtime.apiserver.objectmeta import annotation_causes, label_causes
from kubectl_runtime.apiserver.storage import Cluster
from kubectl_runtime.apiserver.strategy import CUSTOM, Strategy, StrategyContext
from kubectl_runtime.apiserver.webhooks.hooks import REVIEW_VERSIONS, PostError, Target, WebhookCaller, send
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.objects import conversion
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.rules import Rules, checked_after, rules_of
from kubectl_runtime.schema.structural import apply_defaults, prune
from kubectl_runtime.schema.validation import NOTHING, below, schema_causes

TIMEOUT = 30.0  # seconds


class _Wrong(Exception):
    """A conversion webhook's answer or one of its objects is invalid.

    `what` is the wrong part (object, metadata). `placed` means that the real server names the index even for a single
    object.
    """

    def __init__(self, why: str, *, what: str = "object", placed: bool = False) -> None:
        super().__init__(why)
        self.what, self.placed = what, placed

    def told(self, index: int, *, alone: bool) -> str:
        """The message, with the object's index in the review."""
        if alone:
            return f"returned invalid {self.what}{' at index 0' if self.placed else ''}: {self}"
        where = "metadata in object" if self.what == "metadata" else "converted object"
        return f"returned invalid {where} at index {index}: {self}"


class WebhookConverter:
    """Converts custom resources by calling a conversion webhook. Safe to use from any thread."""

    def __init__(self, group: str, kind: str, target: Target, review_versions: tuple[str, ...], caller: WebhookCaller,
                 cluster: Cluster) -> None:
        self._group, self._kind, self._target = group, kind, target
        self._review_version = next((version for version in review_versions if version in REVIEW_VERSIONS), "")
        self._caller, self._cluster = caller, cluster

    def convert(self, objects: list[tuple[Object, str]], version: str) -> list[Object]:
        """Convert objects, each given with its own version, to `version`.

        Neither the given nor the returned objects have kind and apiVersion. The given objects are not changed. Raises
        StatusError.
        """
        sent = [(obj, before) for obj, before in objects if before != version]
        if not sent:
            return [obj for obj, _ in objects]
        converted = iter(self._ask(sent, version))
        return [obj if before == version else next(converted) for obj, before in objects]

    def _ask(self, sent: list[tuple[Object, str]], version: str) -> list[Object]:
        if not self._review_version:
            raise errors.bare_500("no supported conversion review versions")
        title = f"conversion webhook for {self._title(sent[0][1])}"
        with self._cluster.locked():
            uid = self._cluster.new_uid()
        review = self._review(uid, sent, version)
        try:
            with self._cluster.released():
                content = send(self._caller, self._target, review, "apiextensions.v1.ConversionReview",
                               timeout=TIMEOUT)
            received = self._received(uid, content)
        except (PostError, _Wrong) as error:
            raise failed(f"{title} failed: {error}") from None
        if len(received) != len(sent):
            raise failed(f"{title} returned {len(received)} objects, expected {len(sent)}")
        found = []
        for index, ((before, was), after) in enumerate(zip(sent, received, strict=True)):
            try:
                found.append(self._checked(before, after, version))
            except _Wrong as error:
                told = error.told(index, alone=len(sent) == 1)
                raise failed(f"conversion webhook for {self._title(was)} {told}") from None
        return found

    def _title(self, version: str) -> str:
        return f"{self._group}/{version}, Kind={self._kind}"

    def _review(self, uid: str, sent: list[tuple[Object, str]], version: str) -> Object:
        objects = []
        for obj, before in sent:
            meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
            objects.append({"apiVersion": f"{self._group}/{before}", "kind": self._kind, **obj, "metadata": meta})
        return {"kind": conversion.KIND, "apiVersion": f"{conversion.GROUP}/{self._review_version}",
                "request": {"uid": uid, "desiredAPIVersion": f"{self._group}/{version}", "objects": objects},
                "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}}

    def _received(self, uid: str, content: Object) -> list[Any]:
        response, is_v1 = content.get("response"), self._review_version == "v1"
        if is_v1 and (content["apiVersion"], content["kind"]) != (conversion.API_VERSION, conversion.KIND):
            group, _, found = content["apiVersion"].rpartition("/")
            raise _Wrong(f"expected webhook response of {conversion.API_VERSION}, Kind={conversion.KIND}, got "
                         f"{group}/{found}, Kind={content['kind']}")
        if response is None:
            raise _Wrong("no response provided")
        if is_v1 and response.get("uid") != uid:
            told = errors.go_quoted(response.get("uid") or "")
            raise _Wrong(f"expected response.uid={errors.go_quoted(uid)}, got {told}")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise _Wrong(result.get("message")
                         or f"response.result.status was '{result.get('status') or ''}', not 'Success'")
        return list(response.get("convertedObjects") or ())

    def _checked(self, before: Object, after: Any, version: str) -> Object:
        """The returned object with the original metadata. Raises `_Wrong` if it is not the object that was sent."""
        if not isinstance(after, dict) or not isinstance(after.get("kind"), str) or not after["kind"]:
            raise _Wrong("Object 'Kind' is missing", placed=True)
        wanted, found = f"{self._group}/{version}", after.get("apiVersion")
        if found != wanted:
            raise _Wrong(f"invalid groupVersion (expected {wanted}, received {found or ''})", placed=True)
        if after["kind"] != self._kind:
            raise _Wrong(f"invalid kind (expected {self._kind}, received {after['kind']})", placed=True)
        meta, own = after.get("metadata"), before["metadata"]
        for key, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
            shown = (meta.get(key) or "") if isinstance(meta, dict) else ""
            if shown != (own.get(key) or ""):
                raise _Wrong(f"must have the same {name}: {own.get(key) or ''} != {shown}")
        assert isinstance(meta, dict)  # the loop refuses an object whose metadata has no name
        content = {key: value for key, value in after.items() if key not in ("kind", "apiVersion", "metadata")}
        return {"metadata": _restored(own, meta), **content}


def failed(message: str) -> errors.StatusError:
    """The 500 for a failed conversion. (A retry may succeed although nothing in the cluster changes.)"""
    error = errors.bare_500(message)
    error.from_webhook = True
    return error


def _restored(own: Object, received: Object) -> Object:
    """The original metadata with the received labels and annotations."""
    restored: Object = json_copy(own)
    for key, causes in (("labels", label_causes), ("annotations", annotation_causes)):
        values = received.get(key)
        restored.pop(key, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise _Wrong(f"invalid metadata.{key} of type {go_type(values)} in converted object", what="metadata")
        for name, value in values.items():
            if not isinstance(value, str):
                told = "<nil>" if value is None else go_type(value)
                raise _Wrong(f"metadata.{key}[{name}] must be a string, but is {told} in converted object",
                             what="metadata")
        if values != own.get(key) and (found := [cause.text() for cause in causes(values)]):
            raise _Wrong(found[0] if len(found) == 1 else f"[{', '.join(found)}]", what="metadata")
        restored[key] = values
    return restored


_MOST = (1 << 31) - 1
_GO_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}",
             dict: "map[string]interface {}", type(None): "<nil>"}


def scale_causes(obj: Object, paths: tuple[str, str, str] | None, *, with_spec: bool) -> list[Cause]:
    """The causes that report invalid values at the /scale paths (spec replicas, status replicas, selector). The first
    path is not checked if `with_spec` is false."""
    if paths is None:
        return []
    spec, status, selector = paths
    causes = _replicas(obj, spec) if with_spec else []
    causes += _replicas(obj, status)
    if selector:
        _, problem = _look_up(obj, selector, str)
        causes += [errors.invalid_value(selector, "", problem)] if problem else []
    return causes


def _replicas(obj: Object, path: str) -> list[Cause]:
    number, problem = _look_up(obj, path, int)
    if not problem and number is not None and number < 0:
        problem = "should be a non-negative integer"
    elif not problem and number is not None and number > _MOST:
        problem = f"should be less than or equal to {_MOST}"
    return [errors.invalid_value(path, number or 0, problem)] if problem else []


def _look_up(obj: Object, path: str, wanted: type) -> tuple[Any, str]:
    """(the value at a path, or None; a text why the value is invalid, or "")."""
    found: Any = obj
    parts = path.removeprefix(".").split(".")
    for index, part in enumerate(parts):
        if not isinstance(found, dict):
            return None, _problem(parts[:index], found, "map[string]interface{}")
        if part not in found:
            return None, ""
        found = found[part]
    return (found, "") if type(found) is wanted else (None, _problem(parts, found, _GO_TYPES[wanted]))


def _problem(parts: list[str], value: Any, wanted: str) -> str:
    return (f".{'.'.join(parts)} accessor error: {_printed(value)} is of the type {_GO_TYPES[type(value)]}, "
            f"expected {wanted}")


def _printed(value: Any) -> str:
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


_OWN_KEYS = ("apiVersion", "kind", "metadata", "status")


class CustomStrategy(Strategy):
    """The rules of one version of a custom resource."""

    allow_unconditional_update = False
    has_generation = True
    metadata_checks = CUSTOM

    def __init__(self, group: str, kind: str, version: Object, schemas: Mapping[str, Object | None],
                 storage_version: str, *, changed: bool = False, converter: WebhookConverter | None = None) -> None:
        """`version` is an entry of the CRD's spec.versions, `schemas` are the openAPIV3Schemas of all versions.

        If `changed`, the CRD may have changed since objects were stored, and reads fill in missing defaults and leave
        out fields that the schema no longer has. `converter` converts between versions; without a converter versions
        differ only in their schemas.
        """
        self._group, self.kind = group, kind
        self.version: str = version["name"]
        self.node: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
        self._schemas, self._storage_version, self._converter = schemas, storage_version, converter
        self.asks_webhook = converter is not None
        self._changed = changed
        subresources = version.get("subresources") or {}
        self.has_status = "status" in subresources
        self._scale: Object | None = subresources.get("scale")
        self._fields = [entry["jsonPath"].removeprefix(".") for entry in version.get("selectableFields") or ()]

    def decode(self, obj: Object) -> list[str]:
        """Decode metadata as the real server does, and prune the rest by the schema."""
        unknown: list[str] = []
        metadata = obj.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise errors.BodyDecodeError("metadata: expected an object")
        if metadata:
            partial: Object = {"metadata": metadata}
            unknown = sorted(typed.decode("meta.v1.PartialObjectMetadata", partial))
            obj["metadata"] = partial.get("metadata", {})
        return unknown + prune(obj, self.node)

    def default(self, obj: Object) -> None:
        apply_defaults(obj, self.node)

    def default_applied(self, obj: Object) -> None:
        """Fill in the schema's defaults. Nulls stay; validation refuses nulls where they are not allowed."""
        apply_defaults(obj, self.node, keep_nulls=True)

    @property
    def converts(self) -> bool:
        """Whether a read may return something other than the stored object."""
        return self._changed

    def all_from_storage(self, stored: list[tuple[Object, str]], version: str) -> list[Object]:
        """The stored objects in this version. Before the conversion, each object drops fields that its stored version's
        schema no longer has, and gets that schema's new defaults."""
        known = [(obj, was or self._storage_version) for obj, was in stored]
        for obj, was in known if self._changed else ():
            self._renew(obj, was)
        return self.converted(known)

    def converted(self, objects: list[tuple[Object, str]]) -> list[Object]:
        """Convert objects, each given with its version, to this version; in place if no webhook is called."""
        missing = next((was for _, was in objects if was not in self._schemas), None)
        if missing is not None:
            raise errors.bare_500(f"request to convert CR from an invalid group/version: {self._group}/{missing}")
        found = self._converter.convert(objects, self.version) if self._converter else [obj for obj, _ in objects]
        for obj, (_, was) in zip(found, objects, strict=True):
            if was != self.version:
                prune(obj, self.node)
        return found

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Rewrite numbers in the form in which the server stores them as JSON."""
        write_numbers(obj)
        return False

    def is_up_to_date(self, stored: Callable[[], Object], stored_as: str) -> bool:
        """Whether the object is stored in the current storage version and matches that version's current schema."""
        return stored_as == self._storage_version and not (self._changed and self._renew(stored(), stored_as))

    def _renew(self, obj: Object, version: str) -> bool:
        """Drop fields that a version's schema no longer declares, and fill in the schema's defaults, in place. Returns
        whether the object changed."""
        before = msgspec.json.encode(obj)
        prune(obj, self._schemas.get(version))
        apply_defaults(obj, self._schemas.get(version))
        return before != msgspec.json.encode(obj)

    def stored_form(self, obj: Object) -> tuple[Object, str]:
        """The object in the storage version, with only the fields of that version's schema."""
        if self.version == self._storage_version:
            return obj, self.version
        if self._converter:
            (obj,) = self._converter.convert([(obj, self.version)], self._storage_version)
        prune(obj, self._schemas[self._storage_version])
        return obj, self._storage_version

    def generation_part(self, obj: Object) -> Any:
        """Everything except metadata (and except status, if status is a subresource)."""
        skipped = _OWN_KEYS if self.has_status else _OWN_KEYS[:3]
        return {key: value for key, value in obj.items() if key not in skipped}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The causes from the schema, its rules and the /scale paths."""
        found = schema_causes(obj, self.node)
        return self._rule_causes(found, obj, NOTHING) + scale_causes(obj, self.scale_paths(), with_spec=True)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The causes as on create, but none for unchanged values. On /status, the schema checks only the status."""
        scale = scale_causes(new, self.scale_paths(), with_spec=subresource != "status")
        if subresource != "status" or not self.node:
            return self._rule_causes(schema_causes(new, self.node, old), new, old) + scale
        status = (self.node.get("properties") or {}).get("status")
        found = below("status", schema_causes(new["status"], status, old.get("status"))) if "status" in new else []
        return self._rule_causes(found, new, old) + scale

    def _rule_causes(self, found: list[Cause], new: Object, old: Any) -> list[Cause]:
        """`found` plus the causes from the schema's rules. Rules that cannot be evaluated refuse every object."""
        try:
            return checked_after(found, self._rules, new, old)
        except (MissingExtra, CelError) as error:
            return [*found, errors.invalid_value("<nil>", None, str(error))]

    @functools.cached_property
    def _rules(self) -> Rules | None:
        return rules_of(self.node)

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        return {path: _text_at(obj, path) for path in self._fields}

    def selectable_field_names(self) -> frozenset[str]:
        return frozenset(self._fields)

    def scale_paths(self) -> tuple[str, str, str] | None:
        if self._scale is None:
            return None
        return (self._scale.get("specReplicasPath", ""), self._scale.get("statusReplicasPath", ""),
                self._scale.get("labelSelectorPath", ""))


def _text_at(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return "" if obj is None else str(obj)
