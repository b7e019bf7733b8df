"""What a mark on a type adds to its schema: limits, rules, how lists and objects are merged, exactly-one-of."""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.crd.marks import EmbeddedResource, ListType, MapType, OneOf, Rule

Schema = dict[str, Any]

LIST_TYPE, RULES = "x-kubernetes-list-type", "x-kubernetes-validations"
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"),
            "object": ("minProperties", "maxProperties")}


def marked(schema: Schema, mark: Any, where: str) -> Schema:
    """The schema with what one mark adds; the same for a mark that adds nothing. Raises TypeError."""
    match mark:
        case msgspec.Meta():
            return _limited(schema, mark)
        case Rule():
            return {**schema, RULES: [*schema.get(RULES, ()), mark.to_dict()]}
        case ListType():
            return {**schema, LIST_TYPE: mark.type}
        case MapType():
            return {**schema, "x-kubernetes-map-type": mark.type}
        case EmbeddedResource():
            return {**schema, "x-kubernetes-embedded-resource": True}
        case OneOf():
            if unknown := set(mark.keys) - set(schema.get("properties", ())):
                raise TypeError(f"{where}: OneOf names {', '.join(sorted(unknown))}, which the type does not have")
            return {**schema, "oneOf": [{"required": [key]} for key in mark.keys]}
    return schema


def keyed(schema: Schema, keys: tuple[str, ...], where: str) -> Schema:
    """The schema of a list whose items these keys tell apart. Raises TypeError for keys that cannot."""
    items = schema.get("items", {})
    for key in keys:
        described = items.get("properties", {}).get(key)
        if described is None:
            raise TypeError(f"{where}: MapKeys names {key!r}, which its items do not have")
        if key not in items.get("required", ()) and "default" not in described:
            raise TypeError(f"{where}: MapKeys names {key!r}, which must then be required or have a default")
    return {**schema, LIST_TYPE: "map", "x-kubernetes-list-map-keys": list(keys)}


def _limited(schema: Schema, meta: msgspec.Meta) -> Schema:
    limits: Schema = {"minimum": meta.ge, "maximum": meta.le, "multipleOf": meta.multiple_of, "pattern": meta.pattern,
                      "description": meta.description}
    if meta.gt is not None:
        limits |= {"minimum": meta.gt, "exclusiveMinimum": True}
    if meta.lt is not None:
        limits |= {"maximum": meta.lt, "exclusiveMaximum": True}
    shortest, longest = _LENGTHS.get(schema.get("type", ""), ("minLength", "maxLength"))
    limits |= {shortest: meta.min_length, longest: meta.max_length, **(meta.extra_json_schema or {})}
    return schema | {key: value for key, value in limits.items() if value is not None}
