"""How a value under a structural schema looks to a CEL rule: its declared type, and the value itself.

As in apiextensions-apiserver (`SchemaDeclType`, `UnstructuredToVal`): an object with properties is a message,
additionalProperties make a map, `date` and `date-time` are timestamps, `duration` is a duration, `byte` is bytes, and
`number` is a double. Rules cannot name values without a type (preserved unknown fields). Names that are not CEL
identifiers are escaped: ``a-b`` is ``a__dash__b``, ``in`` is ``__in__``. Other reserved words, such as ``if``, can be
written in two ways: ``if`` or ``__if__``. One difference from the server: a list of type set or map is an ordinary list
here, also for ``==`` and ``+``.

The types are passed to the engine as protobuf messages. Only cel.py and this module import protobuf, on first use.
"""
from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from kubectl_runtime.schema.cellibrary import OPAQUE
from kubectl_runtime.schema.formats import parse_duration

Node = Mapping[str, Any]
Converter = Callable[[Any], Any]
Scalar = Literal["string", "int", "double", "bool", "bytes", "timestamp", "duration", "dyn"]

_RESERVED = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace",
    "package", "return", "var", "void", "while"})
_KEYWORDS = frozenset({"false", "in", "null", "true"})
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_FORMATS: dict[str, Scalar] = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
_SCALARS: dict[str, Scalar] = {"boolean": "bool", "integer": "int", "number": "double"}
_RESOURCE: dict[str, Node] = {
    "apiVersion": {"type": "string"}, "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list type."""

    element: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map type with text keys."""

    element: Type


@dataclass(frozen=True, slots=True)
class Message:
    """An object type: escaped name -> type."""

    fields: Mapping[str, Type]


Type = Scalar | ListOf | MapOf | Message


def escape(name: str) -> str | None:
    """The identifier of a property in rules; None if rules cannot name the property."""
    if name in _RESERVED or name in _KEYWORDS:
        return f"__{name}__"
    escaped = re.sub(r"__|[.\-/]", lambda found: _ESCAPES[found[0]], name)
    return escaped if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", escaped) else None


def identifiers(name: str) -> tuple[str, ...]:
    """All identifiers of a property in rules. Since Kubernetes 1.32 a reserved word that is not a keyword of the
    grammar can also be used unescaped, as in `self.namespace`."""
    escaped = escape(name)
    return () if escaped is None else (escaped, name) if name in _RESERVED else (escaped,)


def properties_of(node: Node, *, root: bool = False) -> dict[str, Node]:
    """The properties of an object; for a resource, including the properties that every resource has."""
    own = node.get("properties") or {}
    if not (root or node.get("x-kubernetes-embedded-resource")) or _declares(own, _RESOURCE):
        return dict(own)
    return {**own, **_RESOURCE}


def _declares(own: Mapping[str, Node], wanted: Mapping[str, Node]) -> bool:
    """Whether `own` declares all wanted properties with their types, so that it can replace `wanted`."""
    return all((found := own.get(name) or {}).get("type") == node["type"]
               and _declares(found.get("properties") or {}, node.get("properties") or {})
               for name, node in wanted.items())


def declared_type(node: Node, *, root: bool = False) -> Type | None:
    """The type that rules see for a schema; None if rules cannot see its values."""
    if node.get("x-kubernetes-int-or-string"):
        return "dyn"
    kind = "object" if root or node.get("x-kubernetes-embedded-resource") else node.get("type")
    if kind == "array":
        element = declared_type(node.get("items") or {})
        return None if element is None else ListOf(element)
    if kind == "object":
        if isinstance(extra := node.get("additionalProperties"), Mapping):
            element = declared_type(extra)
            return None if element is None else MapOf(element)
        found = [(name, declared_type(child)) for key, child in properties_of(node, root=root).items()
                 for name in identifiers(key)]
        return Message({name: child for name, child in found if child is not None})
    if kind == "string":
        return _FORMATS.get(node.get("format") or "", "string")
    return _SCALARS.get(kind or "")


_SELF = re.compile(r"\b(?:self|oldSelf)\b(?:\s*\.\s*\??\s*([A-Za-z_]\w*+)(?!\s*\())?")


def fields_named(expressions: Iterable[str], node: Node, *, root: bool = False) -> frozenset[str] | None:
    """The properties of `self` and `oldSelf` that expressions name, including names in string literals and comments.
    None if `self` is used as a whole, or is not an object with properties."""
    declared = {shown: name for name in properties_of(node, root=root) for shown in identifiers(name)}
    named = {found[1] or "" for expression in expressions for found in _SELF.finditer(expression)}
    return frozenset(declared[name] for name in named) if declared and named <= declared.keys() else None


def converter(node: Node, make_time: Callable[[datetime], Any], make_duration: Callable[[timedelta], Any], *,
              root: bool = False, only: frozenset[str] | None = None) -> Converter | None:
    """A function that converts a JSON value of the schema to the value that rules see; None if both are the same.

    `only`: convert only these properties of an object, since the engine copies everything that is passed to it. The
    function raises ValueError for a value that its type does not allow.
    """
    declared = declared_type(node, root=root)
    if declared == "double":
        return float
    if declared == "int":
        return _whole
    if declared == "dyn":
        return _whole_or_text
    if declared == "bytes":
        return _of_text(base64.b64decode)
    if declared == "timestamp":
        return _of_text(lambda text: make_time(_moment(text)))
    if declared == "duration":
        return _of_text(lambda text: make_duration(parse_duration(text, anywhere=True)))
    if isinstance(declared, ListOf | MapOf):
        key = "items" if isinstance(declared, ListOf) else "additionalProperties"
        return _collection(converter(node[key], make_time, make_duration), declared)
    if not isinstance(declared, Message):
        return None
    parts = {name: (identifiers(name), converter(child, make_time, make_duration))
             for name, child in properties_of(node, root=root).items()
             if declared_type(child) is not None and (only is None or name in only)}
    if not root and only is None and all(shown == (name,) and part is None for name, (shown, part) in parts.items()):
        return None
    return lambda value: {shown: item if part is None or item is None else part(item)
                          for name, (all_shown, part) in parts.items() if name in value
                          for shown in all_shown if (item := value[name], True)}


def _whole(value: Any) -> Any:
    """Return `value`. Raises ValueError for a number written as a float, such as 1.0, though type integer allows it."""
    if isinstance(value, float):
        raise ValueError("invalid data, expected int, got float64")
    return value


def _whole_or_text(value: Any) -> Any:
    """Like `_whole`, for an int-or-string."""
    if isinstance(value, float):
        raise ValueError("invalid data, expected XIntOrString value to be either a string or integer")
    return value


def _of_text(make: Converter) -> Converter:
    """Make `make` raise ValueError for a list, which a schema accepts in place of text with a format."""
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("invalid data, expected string, got []interface {}")
        return make(value)
    return convert


def _collection(part: Converter | None, declared: ListOf | MapOf) -> Converter | None:
    if part is None:
        return None
    convert = part
    if isinstance(declared, ListOf):
        return lambda items: [None if item is None else convert(item) for item in items]
    return lambda items: {key: None if item is None else convert(item) for key, item in items.items()}


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(re.sub(r"\.(\d{6})\d+", r".\1", text.upper()))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


_MESSAGES = {"timestamp": ".google.protobuf.Timestamp", "duration": ".google.protobuf.Duration",
             "dyn": ".google.protobuf.Value"}
_NUMBERS = {"double": 1, "int": 3, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3


def pool_of(types: Iterable[tuple[str, Message]]) -> Any:
    """A descriptor pool of `types` and the opaque types. It uses proto2, because proto3 refuses two fields whose names
    differ only by an underscore."""
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    pool = descriptor_pool.DescriptorPool()
    for known in (struct_pb2, timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package="kubernetes", syntax="proto2")
    file.dependency.extend(["google/protobuf/struct.proto", "google/protobuf/timestamp.proto",
                            "google/protobuf/duration.proto"])
    spaces = {outer: file.message_type.add(name=outer)
              for outer in sorted({name.rpartition(".")[0] for name in OPAQUE} - {""})}
    for name in OPAQUE:
        outer, _, inner = name.rpartition(".")
        added = spaces[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=name)
        added.field.add(name="value", number=1, type=9, label=_OPTIONAL)
    for name, message in types:
        _fill(file.message_type.add(name=name), message, f".kubernetes.{name}")
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _fill(target: Any, message: Message, path: str) -> None:
    for number, (name, declared) in enumerate(message.fields.items(), 1):
        field = target.field.add(name=name, number=number + (1000 if number >= 19000 else 0), label=_OPTIONAL)
        if isinstance(declared, ListOf):
            field.label = _REPEATED
            _set_type(field, declared.element, target, path, f"Item{number}")
        elif isinstance(declared, MapOf):
            _set_map(field, declared, target, path)
        else:
            _set_type(field, declared, target, path, f"Object{number}")


def _set_type(field: Any, declared: Type, target: Any, path: str, name: str) -> None:
    """Set the type of a field. Messages have no fields for nested lists and maps, so these are not typed."""
    if isinstance(declared, Message):
        _fill(target.nested_type.add(name=name), declared, f"{path}.{name}")
        field.type, field.type_name = _MESSAGE, f"{path}.{name}"
    elif isinstance(declared, str) and declared in _NUMBERS:
        field.type = _NUMBERS[declared]
    else:
        field.type, field.type_name = _MESSAGE, _MESSAGES.get(str(declared), _MESSAGES["dyn"])


def _set_map(field: Any, declared: MapOf, target: Any, path: str) -> None:
    name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
    if any(known.name == name for known in target.nested_type):
        field.type, field.type_name = _MESSAGE, ".google.protobuf.Struct"
        return
    entry = target.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=_OPTIONAL)
    _set_type(entry.field.add(name="value", number=2, label=_OPTIONAL), declared.element, target, path,
              f"Value{field.number}")
    field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f"{path}.{name}"


def opaque_classes(pool: Any) -> dict[str, Any]:
    """Map the name of each of Kubernetes' opaque types to its message class."""
    from google.protobuf import message_factory
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}")) for name in OPAQUE}


def timestamp(moment: datetime) -> Any:
    """The protobuf `Timestamp` that represents `moment` in CEL rules."""
    from google.protobuf.timestamp_pb2 import Timestamp
    found = Timestamp()
    found.FromDatetime(moment)
    return found


def duration(amount: timedelta) -> Any:
    """The protobuf `Duration` that represents `amount` in CEL rules."""
    from google.protobuf.duration_pb2 import Duration
    found = Duration()
    found.FromTimedelta(amount)
    return found
