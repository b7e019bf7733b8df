"""The strategy of custom resources: what a CRD version says about pruning, defaults, generation, scale and selectable
fields; validation by the schema and by its rules.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.crds.instance_scale import scale_causes
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.objectmeta.metadata_checks import CUSTOM
from kubectl_runtime.apiserver.strategy import Strategy, StrategyContext
from kubectl_runtime.schema.cel import MISSING_EXTRA, CelError
from kubectl_runtime.schema.defaulting import apply_defaults
from kubectl_runtime.schema.pruning import prune
from kubectl_runtime.schema.rules import Rules, checked_after, rules_of
from kubectl_runtime.schema.validation import NOTHING, schema_causes

Object = dict[str, Any]
_OWN_KEYS = ("apiVersion", "kind", "metadata", "status")


class CustomStrategy(Strategy):
    """Rules of one version of a custom resource."""

    allow_unconditional_update = False
    has_generation = True
    metadata_checks = CUSTOM

    def __init__(self, kind: str, version: Object, storage_schema: Object | None, *, changed: bool = False) -> None:
        """`version` is an entry of the CRD's spec.versions, `storage_schema` the openAPIV3Schema of the storage
        version.

        `changed` tells that the CRD was different before: then stored objects may lack defaults, which reads fill in.
        """
        self.kind = kind
        self.node: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
        self._storage_node = storage_schema
        self._defaults_on_read = changed and b'"default":' in msgspec.json.encode(self.node)
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

    def to_storage(self, obj: Object, version: str) -> Object:
        """The storage version keeps only what its own schema has."""
        if self._storage_node is not self.node:
            prune(obj, self._storage_node)
        return obj

    @property
    def converts(self) -> bool:
        """Whether a read may show more than what is stored."""
        return self._defaults_on_read or self._storage_node is not self.node

    def from_storage(self, obj: Object, version: str) -> Object:
        """What this version has of the stored one, with defaults that came into its schema after it was stored."""
        if self._defaults_on_read:
            apply_defaults(obj, self._storage_node)
        if self._storage_node is not self.node:
            prune(obj, self.node)
        return obj

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
        found = schema_causes(new["status"], status, old.get("status"), "status") if "status" in new else []
        return self._rule_causes(found, new, old) + scale

    def _rule_causes(self, found: list[Cause], new: Object, old: Any) -> list[Cause]:
        """`found`, and what the rules find. Rules that cannot be evaluated any more refuse every object."""
        try:
            return checked_after(found, self._rules, new, old)
        except (ImportError, CelError) as error:
            told = MISSING_EXTRA if isinstance(error, ImportError) else str(error)
            return [*found, errors.invalid_value("<nil>", None, told)]

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
