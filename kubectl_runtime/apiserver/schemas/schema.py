"""`Schema`: what the server knows of the shape of a value, built-in or custom, in the terms that patches and
ownership need.

========  ==========================================  ==================================================================
kind      value                                        children
========  ==========================================  ==================================================================
scalar    string, number, boolean                     none; `scalar` tells which ("untyped" takes any scalar)
struct    object with declared `fields`               `field(name)`; undeclared names go to `element` if there is one
map       object with any keys                        `element`
list      array                                       `element`; `list_type` atomic, set or map (with `map_keys`)
any       whatever it is                              maps are merged by key, lists and scalars are one value
opaque    whatever it is                              none: one value as a whole
========  ==========================================  ==================================================================

`leaf` is true where a value is owned and replaced as a whole: scalars, atomic lists and atomic maps, opaque values. A
Schema is immutable once built; children are built on first use, since the definitions of the built-in kinds are
recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Node = Mapping[str, Any]


class Schema:
    """The shape of a value; see the module's table. Made by `builtin()` and `from_openapi()`, not by hand."""

    __slots__ = ("atomic_map", "default", "element", "embedded", "fields", "format", "int_or_string", "kind", "leaf",
                 "list_type", "loader", "map_keys", "name", "node", "nullable", "patch_merge_key", "patch_strategy",
                 "preserve_unknown", "required", "scalar", "type")

    fields: Mapping[str, Schema]
    element: Schema | None

    def __init__(self, kind: str, *, node: Node | None = None, name: str = "", list_type: str = "",
                 map_keys: tuple[str, ...] = (), scalar: str = "",
                 loader: Callable[[], tuple[Mapping[str, Schema], Schema | None]] | None = None) -> None:
        node = node or {}
        self.node = node  # the OpenAPI node itself, for what this class does not name
        self.kind = kind
        self.name = name  # the definition's name, "" for custom and inline schemas
        self.type: str = node.get("type", "")
        self.format: str = node.get("format", "")
        self.scalar = scalar
        self.list_type = list_type
        self.map_keys = map_keys
        self.atomic_map: bool = node.get("x-kubernetes-map-type") == "atomic"
        self.patch_strategy: str = node.get("x-kubernetes-patch-strategy", "")
        self.patch_merge_key: str = node.get("x-kubernetes-patch-merge-key", "")
        self.preserve_unknown: bool = bool(node.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded: bool = bool(node.get("x-kubernetes-embedded-resource"))
        self.int_or_string: bool = bool(node.get("x-kubernetes-int-or-string")) or self.format == "int-or-string"
        self.default: Any = node.get("default")
        self.nullable: bool = bool(node.get("nullable"))
        self.required: frozenset[str] = frozenset(node.get("required", ()))
        self.leaf = kind in ("scalar", "opaque") or self.atomic_map or (kind == "list" and list_type == "atomic")
        self.loader = loader
        if loader is None:
            self.fields, self.element = {}, None

    def __getattr__(self, name: str) -> Any:
        # Reached only for slots that are still empty: `fields` and `element` before their first use.
        if name in ("fields", "element") and self.loader is not None:
            self.fields, self.element = self.loader()
            return object.__getattribute__(self, name)
        raise AttributeError(name)

    def field(self, name: str) -> Schema | None:
        """The schema under a key: the declared field's, else that of undeclared keys, else None (nothing may be
        there)."""
        return self.fields.get(name) or self.element

    def replaced(self, **changes: Any) -> Schema:
        """A copy with some attributes changed."""
        copy = Schema(self.kind, node=self.node, name=self.name, list_type=self.list_type, map_keys=self.map_keys,
                      scalar=self.scalar, loader=lambda: (self.fields, self.element))
        for key, value in changes.items():
            setattr(copy, key, value)
        return copy

    def __repr__(self) -> str:
        return f"Schema({self.kind}{' ' + self.name if self.name else ''})"


OPAQUE = Schema("opaque")


def _any_below() -> tuple[Mapping[str, Schema], Schema | None]:
    return {}, ANY


ANY: Schema = Schema("any", loader=_any_below)


def scalar_of(node: Node) -> str:
    """Which scalars a node takes: string, numeric, boolean or untyped. Formatted strings take any scalar, as in the
    server."""
    kind = node.get("type", "")
    if kind in ("integer", "number"):
        return "numeric"
    if kind == "boolean":
        return "boolean"
    return "string" if kind == "string" and node.get("format", "") in ("", "byte") else "untyped"


def list_relationship(node: Node) -> tuple[str, tuple[str, ...]]:
    """(list type, keys) of an array node: by its list type, else by its patch strategy, else atomic."""
    declared = node.get("x-kubernetes-list-type")
    if declared is not None:
        return declared, tuple(node.get("x-kubernetes-list-map-keys", ())) if declared == "map" else ()
    if str(node.get("x-kubernetes-patch-strategy", "")).split(",")[0] == "merge":
        key = node.get("x-kubernetes-patch-merge-key")
        return ("map", (key,)) if key else ("set", ())
    return "atomic", ()
