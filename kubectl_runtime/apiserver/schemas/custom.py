"""Schemas of custom resources: `from_openapi` reads a CRD version's ``openAPIV3Schema``.

Every object has apiVersion, kind and metadata besides what the schema declares, and so has each embedded resource.
``x-kubernetes-preserve-unknown-fields`` opens a node and, for patches and ownership, all that is below it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubectl_runtime.apiserver.schemas.builtin import OBJECT_META, definition
from kubectl_runtime.apiserver.schemas.schema import ANY, Node, Schema, list_relationship, scalar_of

STRING = Schema("scalar", node={"type": "string"}, scalar="string")


def from_openapi(json_schema: Node | None) -> Schema:
    """The schema of a custom resource; None (a version without schema) takes anything below the top level.

    In: the value of ``schema.openAPIV3Schema``, kept by reference and never changed. A schema that the API server
    would refuse as not structural does not raise here: what is not understood takes any value.
    """
    root = dict(json_schema or {"x-kubernetes-preserve-unknown-fields": True})
    root.setdefault("type", "object")
    return _object(root, resource=True, open_below=False)


def _build(node: Node, open_below: bool) -> Schema:
    if node.get("x-kubernetes-int-or-string"):
        return ANY.replaced(node=node)  # so it is to ownership; the validation of values says more
    kind = node.get("type", "")
    if kind == "object":
        return _object(node, resource=bool(node.get("x-kubernetes-embedded-resource")), open_below=open_below)
    if kind == "array":
        list_type, keys = list_relationship(node)
        items = node.get("items") or {}
        return Schema("list", node=node, list_type=list_type, map_keys=keys,
                      loader=lambda: ({}, _build(items, open_below)))
    if kind in ("string", "integer", "number", "boolean"):
        return Schema("scalar", node=node, scalar=scalar_of(node))
    return Schema("any", node=node, loader=lambda: (_fields(node, False, True), ANY))


def _object(node: Node, *, resource: bool, open_below: bool) -> Schema:
    open_below = open_below or bool(node.get("x-kubernetes-preserve-unknown-fields"))
    extra = node.get("additionalProperties")
    declared = bool(node.get("properties")) or resource

    def children() -> tuple[Mapping[str, Schema], Schema | None]:
        if isinstance(extra, Mapping):
            element: Schema | None = _build(extra, open_below)
        else:
            element = ANY if extra or (extra is None and (open_below or not node.get("properties"))) else None
        return _fields(node, resource, open_below), element

    return Schema("struct" if declared else "map", node=node, loader=children)


def _fields(node: Node, resource: bool, open_below: bool) -> Mapping[str, Schema]:
    fields = {name: _build(child, open_below) for name, child in (node.get("properties") or {}).items()}
    if resource:
        fields.update(apiVersion=STRING, kind=STRING, metadata=definition(OBJECT_META))
    return fields
