"""Structural OpenAPI schemas for CustomResourceDefinitions, from Python types.

    str int bool float bytes datetime date UUID     string, integer, number, boolean, and string formats
    Struct, dataclass, attrs class                  object; its docstring is the description; inlined, never a $ref
    Box[int] of a generic class                     the same, with int for the type variable
    a model of pydantic                             see `kubectl_runtime.crd.models`
    timedelta                                       string with the pattern of ISO durations, as msgspec writes them
    Condition                                       the schema of Kubernetes' API conventions
    Quantity; GoDuration                            int-or-string with a pattern; string with a pattern
    PodTemplateSpec, any part of `resources`        upstream's own schema (`kubectl_runtime.crd.parts`)
    list[T] tuple[T, ...] set[T]                    array; a set is `x-kubernetes-list-type: set`, only for scalars
    tuple[T, T]                                     array of a fixed length
    Annotated[list[T], MapKeys("name")]             array with `x-kubernetes-list-type: map`
    dict[str, T]; dict[str, Any], Any               additionalProperties; unknown fields preserved
    T | None                                        nullable
    Literal[…], Enum                                enum of the values; an Enum's docstring is the description
    int | str                                       `x-kubernetes-int-or-string`
    Struct with a tag, unions of tagged Structs     object with all fields, one `oneOf` branch per tag
    Annotated[T, msgspec.Meta(ge=…, pattern=…)]     the matching limits and description; `extra_json_schema` as given
    Annotated[T, Rule(…)] and the rest of marks     see `kubectl_runtime.crd.marks`

A field without a default is required. Any other type raises TypeError, which names class and field.

The schema of a union of tagged Structs has no defaults for their fields, because the server would fill one member's
defaults into objects of other members. These defaults apply only when an object is read.

The schema of a Condition requires only `type` and `status`. A server-side apply leaves out an empty reason or message,
so the server must accept a condition without them.
"""
from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Omit, defaults_of, to_plain
from kubectl_runtime.core.base.wire import (
    NumberAsText,
    alternatives,
    annotations_of,
    field_types,
    hashable,
    is_model,
    is_record_type,
    map_keys,
    marks_of,
    plain_type,
    record_class,
    wire_names,
)
from kubectl_runtime.core.codec.views import MISSING
from kubectl_runtime.core.meta.metav1 import (
    CONDITION_LIMITS,
    CONDITION_REASON,
    CONDITION_TYPE,
    STATUSES,
    Condition,
    GoDuration,
)
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.crd.marks import (
    EmbeddedResource,
    FieldSchema,
    ListType,
    MapType,
    OneOf,
    PreserveUnknownFields,
    Rule,
    rules_on,
)
from kubectl_runtime.crd.models import BASE64, enum_schema, model_schema, nullable
from kubectl_runtime.crd.parts import PLAIN, Style, part_name, part_schema

Schema = dict[str, Any]

LIST_TYPE, RULES = "x-kubernetes-list-type", "x-kubernetes-validations"
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"),
            "object": ("minProperties", "maxProperties")}


def marked(schema: Schema, mark: Any, where: str) -> Schema:
    """Return the schema with what `mark` adds to it. An object that is no mark adds nothing. Raises
    TypeError if a `OneOf` names a key that the schema lacks."""
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
    """Return the schema of a list whose items are identified by `keys`. Raises TypeError for unusable keys."""
    items = schema.get("items", {})
    for key in keys:
        described = items.get("properties", {}).get(key)
        if described is None:
            raise TypeError(f"{where}: MapKeys names {key!r}, which is no field of the list's items")
        if key not in items.get("required", ()) and "default" not in described:
            raise TypeError(f"{where}: MapKeys names {key!r}, so this field must be required or have a default")
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


CONDITION: dict[str, Any] = {
    "type": "object",
    "description": "What a controller found out about the object.",
    "properties": {
        "type": {"type": "string", "maxLength": CONDITION_LIMITS["type"], "pattern": f"^{CONDITION_TYPE}$",
                 "description": "What it is about, such as Ready, or example.com/Synced."},
        "status": {"type": "string", "enum": [*STATUSES]},
        "reason": {"type": "string", "maxLength": CONDITION_LIMITS["reason"], "pattern": f"^{CONDITION_REASON}$",
                   "description": "Why, in one word, for programs."},
        "message": {"type": "string", "maxLength": CONDITION_LIMITS["message"], "description": "Why, for people."},
        "lastTransitionTime": {"type": "string", "format": "date-time", "nullable": True,
                               "description": "When status changed last."},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0, "nullable": True,
                               "description": "The metadata.generation that it is about."},
    },
    "required": ["type", "status"],
}


def is_tagged(cls: Any) -> bool:
    """Whether a class is a Struct with a tag."""
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__struct_config__.tag is not None


def tagged_union(members: Sequence[tuple[Any, Schema]], where: str) -> Schema:
    """Return the schema of a union of tagged Structs, each given with its own schema (without the tag).

    Raises TypeError if two members declare one key differently, or have their tags in different fields.
    """
    tag_fields = {cls.__struct_config__.tag_field for cls, _ in members}
    if len(tag_fields) > 1:
        raise TypeError(f"{where}: the members of a union must have their tag in one field, not in "
                        f"{', '.join(sorted(tag_fields))}: give them the same tag_field=")
    [tag_field] = tag_fields
    tags = [cls.__struct_config__.tag for cls, _ in members]
    kind = "string" if isinstance(tags[0], str) else "integer"
    properties: dict[str, Any] = {tag_field: {"type": kind, "enum": tags}}
    branches = []
    for cls, schema in members:
        for key, node in schema.get("properties", {}).items():
            shared = {name: value for name, value in node.items() if name != "default"}
            if properties.setdefault(key, shared) != shared:
                raise TypeError(f"{where}: {key} is declared differently by {cls.__name__} and another member of the "
                                "union, which a structural schema cannot express: rename one of the two fields")
        branches.append({"properties": {tag_field: {"enum": [cls.__struct_config__.tag]}},
                         "required": [tag_field, *schema.get("required", ())]})
    description = "\n\n".join(f"{tag}: {schema['description']}" for tag, (_, schema) in zip(tags, members, strict=True)
                              if schema.get("description"))
    return {"type": "object", **({"description": description} if description else {}), "properties": properties,
            "required": [tag_field], **({"oneOf": branches} if len(branches) > 1 else
                                        {"required": branches[0]["required"]})}


class Within(msgspec.Struct, frozen=True):
    """The context of a type: the Structs and similar classes that contain it, and how schemas of the API's own types,
    such as a PodSpec, are written."""

    classes: tuple[type, ...] = ()
    style: Style = PLAIN

    def inside(self, cls: type) -> Within:
        """The context of the fields of `cls`."""
        return Within((*self.classes, cls), self.style)


_OUTERMOST = Within()


Field = tuple[str, Any, Any]
"""Wire key, type, default (`MISSING` for none)."""

_ISO_DURATION = r"^[-+]?P(\d+(\.\d+)?W|(\d+(\.\d+)?D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)$"
_QUANTITY = (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
             r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$")  # controller-gen also allows fractions as exponents
_GO_DURATION = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|" + "\u00b5s|\u03bcs" + r"|ms|s|m|h))+)$"
_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    bool: {"type": "boolean"},
    float: {"type": "number", "format": "double"},
    bytes: BASE64,
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    UUID: {"type": "string", "format": "uuid"},
    timedelta: {"type": "string", "pattern": _ISO_DURATION},
    Condition: CONDITION,
    Quantity: {"x-kubernetes-int-or-string": True, "pattern": _QUANTITY},
    GoDuration: {"type": "string", "pattern": _GO_DURATION},
}
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def object_schema(cls: Any, fields: Iterable[Field], within: Within = _OUTERMOST) -> Schema:
    """Return the schema of an object with these fields; `cls` provides the description, and the name in errors."""
    found, cls = cls, record_class(cls)
    if found in within.classes:
        ring = (*within.classes[within.classes.index(found):], found)
        way = " -> ".join(record_class(part).__name__ for part in ring)
        raise TypeError(f"{cls.__name__} contains itself ({way}): structural schemas cannot be recursive; mark the "
                        "field Annotated[..., PreserveUnknownFields()], or use dict[str, Any]")
    schema: Schema = {"type": "object"}
    if text := _description(cls):
        schema["description"] = text
    properties, required = {}, []
    for key, hint, default in fields:
        where = f"{cls.__name__}.{key}"
        properties[key] = _with_default(_schema(hint, where, within.inside(found)), hint, default, where)
        if default is MISSING:
            required.append(key)
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    if rules := rules_on(cls):
        schema[RULES] = [rule.to_dict() for rule in rules]
    return schema


def _record_schema(cls: type, within: Within) -> Schema:
    return object_schema(cls, _fields_of(cls), within)


def _fields_of(cls: type) -> list[Field]:
    hints, defaults = field_types(cls), defaults_of(record_class(cls))
    return [(key, hints[key], defaults.get(name, MISSING)) for name, key in wire_names(cls).items()]


def _part_schema(cls: type, within: Within) -> Schema | None:
    """The schema of an API part or of its subclass, with the fields that the subclass adds. None for other classes."""
    for base in cls.__mro__:
        if (name := part_name(base)) is None:
            continue
        schema = part_schema(name, within.style)
        if base is cls:
            return schema
        inherited, keys = field_types(base), set(wire_names(base).values())
        added = object_schema(cls, [field for field in _fields_of(cls) if field[0] not in keys
                                    or field[1] != inherited[field[0]]], within)
        return {**schema, **added, "properties": {**schema.get("properties", {}), **added.get("properties", {})},
                "required": [*schema.get("required", ()), *added.get("required", ())]}
    return None


def _with_default(schema: Schema, hint: Any, default: Any, where: str) -> Schema:
    """The schema with a default. Empty lists and maps are not written as defaults, but an empty record is, so that the
    server fills in the defaults of its fields."""
    if default is None or default is MISSING:
        return schema
    try:
        plain = to_plain(default, hashable(hint), omit=Omit.DECLARED, path="its default")
    except RequestError as error:
        raise TypeError(f"{where}: {error}") from None
    if plain in ([], {}) and not any(is_record_type(part) or is_model(part) for part in alternatives(hint)):
        return schema
    return {**schema, "default": plain}


def _schema(hint: Any, where: str, within: Within) -> Schema:
    options = alternatives(hint)
    inner = tuple(option for option in options if option is not type(None))
    marks = list(marks_of(hint))
    if any(isinstance(mark, NumberAsText) for mark in marks):
        inner = (Quantity,)
    by_hand = next((mark.schema for mark in marks if isinstance(mark, FieldSchema)), None)
    if by_hand is not None:
        schema = dict(by_hand)
    elif any(isinstance(mark, PreserveUnknownFields) for mark in marks):
        schema = _open(inner)
    else:
        schema = _int_or_string(inner) or _tagged(inner, where, within) or _only_schema(inner, hint, where, within)
    for mark in marks:
        schema = marked(schema, mark, where)
    if keys := map_keys(hint):
        schema = keyed(schema, keys, where)
    return nullable(schema) if type(None) in options else schema


def _open(options: tuple[Any, ...]) -> Schema:
    """The schema of an undescribed value. It says at most whether the value is a list or an object."""
    origin = (typing.get_origin(options[0]) or options[0]) if len(options) == 1 else Any
    if isinstance(origin, type) and issubclass(origin, list | tuple | set | frozenset):
        return {"type": "array", "items": {_PRESERVE: True}}
    if is_record_type(origin) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", _PRESERVE: True}
    return {_PRESERVE: True}


def _tagged(options: tuple[Any, ...], where: str, within: Within) -> Schema | None:
    if not options or not all(is_tagged(option) for option in options):
        return None
    return tagged_union([(option, _record_schema(option, within)) for option in options], where)


def _int_or_string(options: tuple[Any, ...]) -> Schema | None:
    return {"x-kubernetes-int-or-string": True} if set(options) == {int, str} else None


def _only_schema(options: tuple[Any, ...], hint: Any, where: str, within: Within) -> Schema:
    if len(options) != 1:
        raise TypeError(f"{where}: {hint} has no structural schema; only the unions T | None, int | str "
                        "and unions of tagged Structs have one; use dict[str, Any] or Any")
    only = plain_type(options[0])
    if only is Any:
        return {_PRESERVE: True}
    if isinstance(only, type) and only in _SCALARS:
        return dict(_SCALARS[only])
    if is_model(only):
        return model_schema(only, where, schema_of)
    if is_record_type(only):
        return _part_schema(record_class(only), within) or _record_schema(only, within)
    if values := _enum_values(only):
        text = _description(only) if isinstance(only, type) else ""
        return {**enum_schema(values, where), **({"description": text} if text else {})}
    schema = _container_schema(only, where, within)
    if schema is None:
        raise TypeError(f"{where}: {getattr(only, '__name__', only)} has no structural schema; "
                        "see kubectl_runtime.crd.schema for the types that do")
    return schema


def _container_schema(hint: Any, where: str, within: Within) -> Schema | None:
    origin = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if not isinstance(origin, type):
        return None
    if issubclass(origin, Mapping):
        if own := annotations_of(origin):
            raise TypeError(f"{where}: {origin.__name__} is a map that declares fields ({', '.join(own)}); a schema "
                            "has either fields or free keys: use a Struct or dataclass, with a dict as a field")
        value = plain_type(arguments[1]) if arguments else Any
        if value is Any:
            return {"type": "object", _PRESERVE: True}
        return {"type": "object", "additionalProperties": _schema(arguments[1], f"{where}[…]", within)}
    if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
        return _fixed_tuple(arguments, where, within)
    if not issubclass(origin, list | tuple | set | frozenset):
        return None
    items = _schema(arguments[0], f"{where}[]", within) if arguments else {_PRESERVE: True}
    schema: Schema = {"type": "array", "items": items}
    if issubclass(origin, set | frozenset):
        if items.get("nullable") or items.get("type") not in ("string", "integer", "number", "boolean"):
            raise TypeError(f"{where}: a set must hold scalars that cannot be null; use list, with MapKeys if its "
                            "items have keys")
        schema[LIST_TYPE] = "set"
    return schema


def _fixed_tuple(arguments: tuple[Any, ...], where: str, within: Within) -> Schema:
    schemas = [_schema(argument, f"{where}[{index}]", within) for index, argument in enumerate(arguments)]
    if any(schema != schemas[0] for schema in schemas):
        raise TypeError(f"{where}: a tuple of different types has no structural schema; use a Struct with named fields")
    return {"type": "array", "items": schemas[0], "minItems": len(schemas), "maxItems": len(schemas)}


def _enum_values(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [member.value for member in hint]
    return []


def schema_of(hint: Any, where: str) -> Schema:
    """Return the schema of a type. Raises TypeError, which names `where`, for a type without a schema."""
    return _schema(hint, where, _OUTERMOST)


def _description(cls: type) -> str:
    """The class's own docstring, but not the signature that dataclasses use as a default docstring."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)
