"""What the tests of managedFields share: a small world of one object that clients update and apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_runtime.apiserver import managedfields
from kubectl_runtime.apiserver.managedfields import NO_RESET, ResetFields
from kubectl_runtime.apiserver.schemas import Schema, builtin, from_openapi

CONFIG_MAP = builtin("", "v1", "ConfigMap")
STRING = {"type": "string"}
WIDGET_NODE: dict[str, Any] = {"type": "object", "properties": {
    "spec": {"type": "object", "properties": {
        "plain": {"type": "array", "items": STRING},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": STRING, "v": STRING, "w": STRING}}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": STRING, "b": STRING}},
        "o": {"type": "object", "properties": {"a": STRING, "b": STRING}},
        "m": {"type": "object", "additionalProperties": STRING},
        "n": {"type": "integer"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}},
    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
WIDGET = from_openapi(WIDGET_NODE)
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """One object and its writers; each write is one second after the one before."""

    schema: Schema = WIDGET
    api_version: str = "example.com/v1"
    kind: str = "Widget"
    versions: Mapping[str, Schema] | None = None
    blank: dict[str, Any] = field(default_factory=dict)
    obj: dict[str, Any] | None = None
    now: datetime = START

    def update(self, manager: str, content: dict[str, Any], *, subresource: str = "", reset: ResetFields = NO_RESET,
               managed: Any = None) -> dict[str, Any]:
        """Replace the content; managedFields are those that the server keeps, or `managed` if the client sends them."""
        new = self._with_type(content)
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        return self._take(managedfields.update(
            self.obj, new, manager=manager, api_version=self.api_version, schema=self.schema, now=self._tick(),
            subresource=subresource, blank=self.blank, reset=reset, versions=self.versions))

    def apply(self, manager: str, content: dict[str, Any], *, force: bool = False, subresource: str = "",
              reset: ResetFields = NO_RESET) -> dict[str, Any]:
        """Apply a configuration."""
        return self._take(managedfields.apply(
            self.obj, self._with_type(content), manager=manager, force=force, api_version=self.api_version,
            schema=self.schema, now=self._tick(), subresource=subresource, blank=self.blank, reset=reset,
            versions=self.versions))

    def owned(self) -> dict[str, Any]:
        """``"manager Operation"`` -> fieldsV1 of each entry."""
        return {" ".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))):
                entry["fieldsV1"] for entry in self.entries()}

    def entries(self) -> list[dict[str, Any]]:
        """The managedFields list."""
        found: list[dict[str, Any]] = (self.obj or {})["metadata"].get("managedFields", [])
        return found

    def times(self) -> dict[str, int | None]:
        """Manager -> seconds since the start, None without time."""
        return {entry["manager"]: int((datetime.fromisoformat(entry["time"]) - START).total_seconds())
                if "time" in entry else None for entry in self.entries()}

    def content(self) -> dict[str, Any]:
        """The object without type and metadata."""
        return {key: value for key, value in (self.obj or {}).items() if key not in ("apiVersion", "kind", "metadata")}

    def _with_type(self, content: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": "a", **content.get("metadata", {})}
        return {"apiVersion": self.api_version, "kind": self.kind, **content, "metadata": metadata}

    def _tick(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def _take(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.obj = _without_nulls(obj)
        return self.obj


def _without_nulls(obj: dict[str, Any]) -> dict[str, Any]:
    """What decoding makes of nulls (at the top and in spec, where a removal of everything below leaves them)."""
    kept = {key: value for key, value in obj.items() if value is not None}
    if "spec" in kept:
        kept["spec"] = {key: value for key, value in kept["spec"].items() if value is not None}
    return kept


def config_map() -> World:
    """A world with a ConfigMap."""
    return World(CONFIG_MAP, "v1", "ConfigMap", blank={"metadata": {}})


def widget(**spec: Any) -> dict[str, Any]:
    """A Widget's content."""
    return {"spec": spec}
