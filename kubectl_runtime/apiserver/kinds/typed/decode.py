"""Gives JSON the shape of the real server's typed objects: what decoding into a Go struct and encoding it again leaves.

Per field (types.json.gz tells which is which; tests/tools/generate.py writes it): an optional value that is empty goes;
a pointer only if it is null; a struct and a required field are written even when empty (``resources: {}``,
``machineID: ""``, ``lastProbeTime: null``). Unknown fields are dropped and their paths collected in the order of the
text; times, quantities and durations get their canonical form; fields are put in the order of the Go struct, which is
that of the real server's answers. A value of the wrong JSON type raises `BodyDecodeError` in the words of Go's decoder.

Types are compiled at first use. Thread safe: two threads may at worst compile the same type twice.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import msgspec

from kubectl_runtime.apiserver.errors import BodyDecodeError
from kubectl_runtime.apiserver.kinds.typed.leaves import Decoder, Place, leaf_decoder, mismatch, strict_path

Object = dict[str, Any]

_ZEROS = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0, "Quantity": "0", "IntOrString": 0,
          "Duration": "0s"}  # lists, maps, bytes and times are null
_PLAIN = {"string": str, "bool": bool}


def decode(type_name: str, obj: Object) -> list[str]:
    """Shape an object of a type (``core.v1.Pod``) in place; returns the paths of its unknown fields.

    Raises BodyDecodeError.
    """
    unknown: list[str] = []
    try:
        shaped = struct(type_name).decode(obj, None, unknown)
    except RecursionError:
        raise BodyDecodeError("exceeded max depth") from None
    obj.clear()
    obj.update(shaped)
    return unknown


def blank(type_name: str) -> Object:
    """The shape of an object of the type without any content; a fresh copy."""
    return struct(type_name).zero()


@cache
def written_lists(type_name: str) -> tuple[tuple[str, ...], ...]:
    """The paths of lists and maps that are written even when empty, but for those inside of other lists."""
    found: list[tuple[str, ...]] = []
    for name, spec in types()[type_name].items():
        typed = spec.rpartition("@")[0]
        bare = typed.lstrip("*!")
        if bare.startswith(".") and bare[1:] != type_name:
            found += [(name, *rest) for rest in written_lists(bare[1:])]
        elif "!" in typed[:len(typed) - len(bare)] and bare.lstrip("#").startswith(("[]", "{")):
            found.append((name,))
    return tuple(found)


def known(type_name: str) -> bool:
    """Whether there is such a type."""
    return type_name in types()


@cache
def types() -> dict[str, dict[str, str]]:
    """The declarations of types.json.gz (generated; tests/tools/generators/gotypes.py has the format). Read-only."""
    data = resources.files(__package__).joinpath("types.json.gz").read_bytes()
    declared: dict[str, dict[str, str]] = msgspec.json.decode(gzip.decompress(data))
    return declared


@dataclass(slots=True)
class _Field:
    """One field: how to decode it, whether it is written though empty, and what an empty one is."""

    index: int
    decode: Decoder
    plain: type | None  # values of this Python type are taken as they are
    pointer: bool
    always: bool
    zero: Callable[[], Any]


class _Struct:
    """A struct type; its fields are compiled at their first use, since types contain themselves."""

    def __init__(self, type_name: str) -> None:
        self.go_name = type_name.rpartition(".")[2]
        self.go_type = _go_name(f".{type_name}")
        self._declared = types()[type_name]

    @cached_property
    def fields(self) -> dict[str, _Field]:
        """The fields by name, in Go's order."""
        return {name: _field(index, spec) for index, (name, spec) in enumerate(self._declared.items())}

    @cached_property
    def _always(self) -> list[str]:
        return [name for name, field in self.fields.items() if field.always]

    def zero(self) -> Object:
        """What is written of an empty struct."""
        return {name: self.fields[name].zero() for name in self._always}

    def decode(self, value: Any, place: Place, unknown: list[str]) -> Object:
        """Shape one struct."""
        if type(value) is not dict:
            raise mismatch(value, place, self.go_type)
        fields, shaped = self.fields, {}
        in_order, last = True, -1
        for name, given in value.items():
            field = fields.get(name)
            if field is None:
                unknown.append(strict_path((place, name, "")))
                continue
            if type(given) is field.plain:
                result = given
            elif given is None:
                result = None if field.pointer else field.zero()
            else:
                result = field.decode(given, (place, name, self.go_name), unknown)
            if not result and not field.always and (result is None or not field.pointer):
                continue
            shaped[name] = result
            if field.index < last:
                in_order = False
            last = field.index
        for name in self._always:
            if name not in shaped:
                shaped[name] = fields[name].zero()
                in_order = False
        if in_order:
            return shaped
        return {name: shaped[name] for name in sorted(shaped, key=lambda name: fields[name].index)}


@cache
def struct(type_name: str) -> _Struct:
    """The type of that name; raises KeyError for an unknown one."""
    return _Struct(type_name)


def _field(index: int, spec: str) -> _Field:
    """Compile a field from its declaration: ``*!string:v1.PodPhase@2``."""
    typed = spec.rpartition("@")[0]
    bare = typed.lstrip("*!")
    flags = typed[:len(typed) - len(bare)]
    pointer = "*" in flags or bare == "any"  # any JSON stays as the text that it is, even {}
    return _Field(index, _decoder(bare), _PLAIN.get(bare.partition(":")[0]), pointer, "!" in flags,
                  _null if pointer else _zero(bare))


def _zero(spec: str) -> Callable[[], Any]:
    if spec.startswith("."):
        return struct(spec[1:]).zero
    constant = _ZEROS.get(spec.partition(":")[0])
    return lambda: constant


def _null() -> None:
    return None


def _empty() -> str:
    return ""


def _decoder(spec: str) -> Decoder:
    spec = spec.removeprefix("#")
    if spec.startswith("."):
        return struct(spec[1:]).decode
    if spec.startswith("[]"):
        return _list_decoder(spec)
    if spec.startswith("{"):
        return _map_decoder(spec)
    base, _, alias = spec.partition(":")
    return leaf_decoder(base, alias or base) or _schema_or


def _list_decoder(spec: str) -> Decoder:
    element, zero = _decoder(spec[2:]), _zero(spec[2:])
    go_name = _go_name(spec)

    def decode_list(value: Any, place: Place, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise mismatch(value, place, go_name)
        return [zero() if item is None else element(item, (place, index, ""), unknown)
                for index, item in enumerate(value)]

    return decode_list


def _map_decoder(spec: str) -> Decoder:
    element_spec = spec.partition("}")[2]
    element = _decoder(element_spec)
    zero = _empty if element_spec == "bytes" else _zero(element_spec)  # the stored form knows no null in a map
    go_name = _go_name(spec)

    def decode_map(value: Any, place: Place, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise mismatch(value, place, go_name)
        return {key: zero() if item is None else element(item, (place, key, ""), unknown)
                for key, item in value.items()}

    return decode_map


def _schema_or(value: Any, place: Place, unknown: list[str]) -> Any:
    """A JSON schema, or what may stand in its place: a list of schemas, a boolean, a list of names."""
    schema = struct("apiextensions.v1.JSONSchemaProps")
    if type(value) is dict:
        return schema.decode(value, place, unknown)
    if type(value) is list:
        return [schema.decode(item, (place, index, ""), unknown) if type(item) is dict else item
                for index, item in enumerate(value)]
    return value


def _go_name(spec: str) -> str:
    """A type as Go prints it: ``[]v1.Container``, ``map[string]string``."""
    spec = spec.lstrip("*!#")
    if spec.startswith("[]"):
        return "[]" + _go_name(spec[2:])
    if spec.startswith("{"):
        key, _, element = spec[1:].partition("}")
        return f"map[{key}]{_go_name(element)}"
    if spec.startswith("."):
        return ".".join(spec.rsplit(".", 2)[1:])
    base, _, alias = spec.partition(":")
    return alias or {"bytes": "[]uint8", "Quantity": "resource.Quantity", "any": "interface {}"}.get(base, base)


