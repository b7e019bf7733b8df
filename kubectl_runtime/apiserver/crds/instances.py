"""The strategy of custom resources: what a CRD version says about pruning, defaults, generation, scale and selectable
fields; validation by the schema and by its rules; conversion from and to the version that is stored.

An object is written as the storage version of the moment, and stays in that when another version becomes it.

Custom resources with /scale have numbers of replicas and a text at the paths of their scale.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.crds.webhook_converter import WebhookConverter
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.strategy import CUSTOM, Strategy, StrategyContext
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.defaulting import apply_defaults, prune
from kubectl_runtime.schema.rules import Rules, checked_after, rules_of
from kubectl_runtime.schema.validation import NOTHING, below, schema_causes

Object = dict[str, Any]

_MOST = (1 << 31) - 1
_GO_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}",
             dict: "map[string]interface {}", type(None): "<nil>"}


def scale_causes(obj: Object, paths: tuple[str, str, str] | None, *, with_spec: bool) -> list[Cause]:
    """The causes at the paths (spec replicas, status replicas, selector); `with_spec` leaves the first one out if
    false."""
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
    """(the value at a path or None, why it cannot be one)."""
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
    """Rules of one version of a custom resource."""

    allow_unconditional_update = False
    has_generation = True
    metadata_checks = CUSTOM

    def __init__(self, group: str, kind: str, version: Object, schemas: Mapping[str, Object | None],
                 storage_version: str, *, changed: bool = False, converter: WebhookConverter | None = None) -> None:
        """`version` is an entry of the CRD's spec.versions, `schemas` are the openAPIV3Schemas of all versions.

        `changed` tells that the CRD was different before: then stored objects may lack defaults, which reads fill in,
        and have fields that are gone, which reads leave out.
        `converter` makes other versions of an object; without it they differ by their schemas only.
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
        """Shape metadata as the real server does, prune the rest by the schema."""
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
        """The defaults of the schema."""
        apply_defaults(obj, self.node)

    def default_applied(self, obj: Object) -> None:
        """The defaults of the schema; nulls stay, and are refused where they are not allowed."""
        apply_defaults(obj, self.node, keep_nulls=True)

    @property
    def converts(self) -> bool:
        """Whether a read may show more or less than what is stored."""
        return self._changed

    def all_from_storage(self, stored: list[tuple[Object, str]], version: str) -> list[Object]:
        """What this version has of the stored ones, as the schema they are stored by is now: fields may have left it,
        and defaults come into it, since they were stored."""
        known = [(obj, was or self._storage_version) for obj, was in stored]
        for obj, was in known if self._changed else ():
            self._renew(obj, was)
        return self.converted(known)

    def converted(self, objects: list[tuple[Object, str]]) -> list[Object]:
        """Objects, each with its version, in this version; changed in place where no webhook is asked."""
        missing = next((was for _, was in objects if was not in self._schemas), None)
        if missing is not None:
            raise errors.bare_500(f"request to convert CR from an invalid group/version: {self._group}/{missing}")
        found = self._converter.convert(objects, self.version) if self._converter else [obj for obj, _ in objects]
        for obj, (_, was) in zip(found, objects, strict=True):
            if was != self.version:
                prune(obj, self.node)
        return found

    def is_up_to_date(self, stored: Callable[[], Object], stored_as: str) -> bool:
        """Whether it is in the storage version of now, and as the schema of now has it."""
        return stored_as == self._storage_version and not (self._changed and self._renew(stored(), stored_as))

    def _renew(self, obj: Object, version: str) -> bool:
        """Drop what the schema of a version does not declare any more, and fill in its defaults, in place; whether
        that changed anything."""
        before = msgspec.json.encode(obj)
        prune(obj, self._schemas.get(version))
        apply_defaults(obj, self._schemas.get(version))
        return before != msgspec.json.encode(obj)

    def stored_form(self, obj: Object) -> tuple[Object, str]:
        """The storage version keeps only what its own schema has."""
        if self.version == self._storage_version:
            return obj, self.version
        if self._converter:
            (obj,) = self._converter.convert([(obj, self.version)], self._storage_version)
        prune(obj, self._schemas[self._storage_version])
        return obj, self._storage_version

    def generation_part(self, obj: Object) -> Any:
        """Everything but metadata counts, and but status if that is a subresource."""
        skipped = _OWN_KEYS if self.has_status else _OWN_KEYS[:3]
        return {key: value for key, value in obj.items() if key not in skipped}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """What the schema and its rules say of the values."""
        found = schema_causes(obj, self.node)
        return self._rule_causes(found, obj, NOTHING) + scale_causes(obj, self.scale_paths(), with_spec=True)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As for a create, but what is unchanged is not looked at again; on /status only status counts."""
        scale = scale_causes(new, self.scale_paths(), with_spec=subresource != "status")
        if subresource != "status" or not self.node:
            return self._rule_causes(schema_causes(new, self.node, old), new, old) + scale
        status = (self.node.get("properties") or {}).get("status")
        found = below("status", schema_causes(new["status"], status, old.get("status"))) if "status" in new else []
        return self._rule_causes(found, new, old) + scale

    def _rule_causes(self, found: list[Cause], new: Object, old: Any) -> list[Cause]:
        """`found`, and what the rules find. Rules that cannot be evaluated any more refuse every object."""
        try:
            return checked_after(found, self._rules, new, old)
        except (MissingExtra, CelError) as error:
            return [*found, errors.invalid_value("<nil>", None, str(error))]

    @functools.cached_property
    def _rules(self) -> Rules | None:
        return rules_of(self.node)

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """The CRD's selectableFields."""
        return {path: _text_at(obj, path) for path in self._fields}

    def selectable_field_names(self) -> frozenset[str]:
        """The CRD's selectableFields."""
        return frozenset(self._fields)

    def scale_paths(self) -> tuple[str, str, str] | None:
        """The CRD's scale subresource."""
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
