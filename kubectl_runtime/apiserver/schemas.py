"""`Schema`: the shape of a built-in or custom value, as patches and field ownership need it.

Kinds of schema:

- scalar: a string, number or boolean; `scalar` says which ("untyped" takes any).
- struct: an object with declared `fields`; if there is an `element`, it is the shape of undeclared fields.
- map: an object with any keys; `element` is the shape of each value.
- list: an array of `element`; `list_type` is atomic, set or map (with `map_keys`).
- any: any value; maps are merged by key, lists and scalars are single values.
- opaque: any value, treated as one whole.

`leaf` is true if a value is owned and replaced as a whole: scalars, atomic lists, atomic maps and opaque values. A
Schema is immutable once built. Its children are built on first use, since built-in definitions are recursive. Schemas
are thread-safe; at worst two threads compute the same schema twice.

`builtin` and `definition` read the schemas of built-in kinds (schema/definitions.py); `from_openapi` reads the
``openAPIV3Schema`` of a CRD version. Every object and embedded resource has apiVersion, kind and metadata besides the
declared fields. ``x-kubernetes-preserve-unknown-fields`` allows unknown fields in a node; for patches and ownership it
allows them in all nodes below too.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kubectl_runtime.schema.definitions import OBJECT_META, QUANTITY, RAW_EXTENSION, definitions

Node = Mapping[str, Any]


class Schema:
    """The shape of a value. Made by `builtin()`, `definition()` and `from_openapi()`."""

    __slots__ = ("atomic_map", "default", "element", "embedded", "fields", "format", "int_or_string", "kind", "leaf",
                 "list_type", "loader", "map_keys", "name", "node", "nullable", "patch_merge_key", "patch_strategy",
                 "preserve_unknown", "required", "scalar", "type")

    fields: Mapping[str, Schema]
    element: Schema | None

    def __init__(self, kind: str, *, node: Node | None = None, name: str = "", list_type: str = "",
                 map_keys: tuple[str, ...] = (), scalar: str = "",
                 loader: Callable[[], tuple[Mapping[str, Schema], Schema | None]] | None = None) -> None:
        node = node or {}
        self.node = node  # the OpenAPI node, for keywords that have no attribute here
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
        # Called only for slots that are still empty: `fields` and `element` before their first use.
        if name in ("fields", "element") and self.loader is not None:
            self.fields, self.element = self.loader()
            return object.__getattribute__(self, name)
        raise AttributeError(name)

    def field(self, name: str) -> Schema | None:
        """The schema of a key: its declared field, else the schema of undeclared keys, else None (not allowed)."""
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
    """The scalar type of a node: string, numeric, boolean or untyped. Strings with a format (not byte) are untyped."""
    kind = node.get("type", "")
    if kind in ("integer", "number"):
        return "numeric"
    if kind == "boolean":
        return "boolean"
    return "string" if kind == "string" and node.get("format", "") in ("", "byte") else "untyped"


def list_relationship(node: Node) -> tuple[str, tuple[str, ...]]:
    """An array node's (list type, keys): as declared, or else derived from the patch strategy, or else atomic."""
    declared = node.get("x-kubernetes-list-type")
    if declared is not None:
        return declared, tuple(node.get("x-kubernetes-list-map-keys", ())) if declared == "map" else ()
    if str(node.get("x-kubernetes-patch-strategy", "")).split(",")[0] == "merge":
        key = node.get("x-kubernetes-patch-merge-key")
        return ("map", (key,)) if key else ("set", ())
    return "atomic", ()


ZERO = {"string": "", "integer": 0, "number": 0, "boolean": False}


@cache
def definition_names() -> Mapping[tuple[str, str, str], str]:
    """The definition name of every (group, version, kind) that the definitions contain."""
    names: dict[tuple[str, str, str], str] = {}
    for name, node in definitions().items():
        for kind in node.get("x-kubernetes-group-version-kind", ()):
            names[kind["group"], kind["version"], kind["kind"]] = name
    return names


def builtin(group: str, version: str, kind: str) -> Schema:
    """The schema of a built-in kind; each call returns the same object. Raises KeyError for an unknown kind."""
    return definition(definition_names()[group, version, kind])


@cache
def definition(name: str) -> Schema:
    """The schema of a definition by its full name (``io.k8s.api.core.v1.PodSpec``). Raises KeyError if it is unknown.
    """
    return _build(definitions()[name], name)


def _build(node: Node, name: str = "") -> Schema:
    if reference := node.get("$ref"):
        return _referenced(node, reference)
    kind = node.get("type", "")
    if name == RAW_EXTENSION:  # an object of any kind, owned as a whole
        node = {**node, "x-kubernetes-map-type": "atomic"}
    if kind == "object":
        shape = "map" if not node.get("properties") else "struct"
        return Schema(shape, node=node, name=name, loader=lambda: (_fields(name) if name else {}, _element(node)))
    if kind == "array":
        list_type, keys = list_relationship(node)
        return Schema("list", node=node, name=name, list_type=list_type, map_keys=keys,
                      loader=lambda: ({}, _build(node.get("items", {}))))
    if not kind:  # any JSON, owned as a whole
        return OPAQUE.replaced(node=node, name=name)
    return Schema("scalar", node=node, name=name, scalar="untyped" if name == QUANTITY else scalar_of(node))


def _referenced(node: Node, reference: str) -> Schema:
    """The schema of a field that refers to a definition: the definition's shape with the field's own extensions."""
    merged = {**definitions()[reference], **{key: value for key, value in node.items() if key != "$ref"}}
    return _build(merged, reference)


@cache
def _fields(name: str) -> Mapping[str, Schema]:
    node = definitions()[name]
    required = node.get("required", ())
    fields = {field: _build(child) for field, child in node.get("properties", {}).items()}
    for field, schema in fields.items():
        # A required scalar defaults to its zero value, so that list items without a key field can be identified.
        if field in required and schema.default is None and schema.kind == "scalar":
            schema.default = ZERO.get(schema.type)
    return fields


def _element(node: Node) -> Schema | None:
    extra = node.get("additionalProperties")
    if isinstance(extra, Mapping) and extra:
        return _build(extra)
    return None if node.get("properties") else ANY


STRING = Schema("scalar", node={"type": "string"}, scalar="string")


def from_openapi(json_schema: Node | None) -> Schema:
    """The schema of a custom resource. If `json_schema` is None, because the CRD version has no schema, every field
    except apiVersion, kind and metadata may have any value.

    `json_schema` is the value of ``schema.openAPIV3Schema``; it is kept by reference and never changed. A schema that
    the API server would refuse as not structural does not raise here: its unknown parts allow any value.
    """
    root = dict(json_schema or {"x-kubernetes-preserve-unknown-fields": True})
    root.setdefault("type", "object")
    return _object(root, resource=True, open_below=False)


def _build_custom(node: Node, open_below: bool) -> Schema:
    if node.get("x-kubernetes-int-or-string"):
        return ANY.replaced(node=node)  # ownership and patches accept any value here; validation checks the type
    kind = node.get("type", "")
    if kind == "object":
        return _object(node, resource=bool(node.get("x-kubernetes-embedded-resource")), open_below=open_below)
    if kind == "array":
        list_type, keys = list_relationship(node)
        items = node.get("items") or {}
        return Schema("list", node=node, list_type=list_type, map_keys=keys,
                      loader=lambda: ({}, _build_custom(items, open_below)))
    if kind in ("string", "integer", "number", "boolean"):
        return Schema("scalar", node=node, scalar=scalar_of(node))
    return Schema("any", node=node, loader=lambda: (_custom_fields(node, False, True), ANY))


def _object(node: Node, *, resource: bool, open_below: bool) -> Schema:
    open_below = open_below or bool(node.get("x-kubernetes-preserve-unknown-fields"))
    extra = node.get("additionalProperties")
    declared = bool(node.get("properties")) or resource

    def children() -> tuple[Mapping[str, Schema], Schema | None]:
        if isinstance(extra, Mapping):
            element: Schema | None = _build_custom(extra, open_below)
        else:
            element = ANY if extra or (extra is None and (open_below or not node.get("properties"))) else None
        return _custom_fields(node, resource, open_below), element

    return Schema("struct" if declared else "map", node=node, loader=children)


def _custom_fields(node: Node, resource: bool, open_below: bool) -> Mapping[str, Schema]:
    fields = {name: _build_custom(child, open_below) for name, child in (node.get("properties") or {}).items()}
    if resource:
        fields.update(apiVersion=STRING, kind=STRING, metadata=definition(OBJECT_META))
    return fields
