"""How values of Python classes look on the wire.

The one rule of names: attributes are snake_case, keys are camelCase (`ready_replicas` is `readyReplicas`). A
`msgspec.Struct` that renames any of its fields itself (`rename="camel"`, `field(name="podIP")`) is taken as it says,
and decodes fastest; in a dataclass, `field(metadata={"name": "podIP"})` names one key.

`with_field_names` translates the keys of plain values for the classes that msgspec would not rename; the other way,
from values to the wire, is `core.base.plain`.
"""
from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Union

import msgspec
import msgspec.structs


class MapKeys:
    """Marks a list whose items are told apart by some of their keys: `Annotated[list[Port], MapKeys("name")]`.

    Then a new item is written back to the one with its keys, and a custom resource's schema says
    `x-kubernetes-list-type: map`.

    >>> class Port(Struct):
    ...     name: str
    ...     port: int
    >>> class PortsSpec(Struct):
    ...     ports: Annotated[list[Port], MapKeys("name")]
    """

    __slots__ = ("keys",)

    def __init__(self, *keys: str) -> None:
        """`keys` are wire keys; together they identify an item."""
        self.keys = keys

    def __repr__(self) -> str:
        return f"MapKeys{self.keys!r}"


def camel(name: str) -> str:
    """`ready_replicas` -> `readyReplicas`."""
    if "_" not in name:
        return name
    first, *rest = name.strip("_").split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def is_record_type(cls: Any) -> bool:
    """Whether `cls` is a class with named fields: a Struct or a dataclass."""
    return isinstance(cls, type) and (issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls))


@cache
def wire_names(cls: Any) -> dict[str, str]:
    """Attribute name -> wire key, for a Struct or dataclass."""
    if issubclass(cls, msgspec.Struct):
        declared = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        if any(name != key for name, key in declared.items()):
            return declared
        return {name: camel(name) for name in declared}
    return {field.name: field.metadata.get("name") or camel(field.name) for field in dataclasses.fields(cls)}


@cache
def field_types(cls: Any) -> dict[str, Any]:
    """Wire key -> type, for a Struct or dataclass. Raises TypeError when an annotation cannot be resolved."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise TypeError(f"{cls.__name__}: {error}; its field types must be visible at module level") from None
    return {key: hints[name] for name, key in wire_names(cls).items()}


def needs_renaming(hint: Any) -> bool:
    """Whether somewhere in the type `hint` there is a class whose keys msgspec alone would not find."""
    return _needs_renaming(hint, set())


def _needs_renaming(hint: Any, seen: set[Any]) -> bool:
    hint = plain_type(hint)
    if not is_record_type(hint):
        return any(_needs_renaming(part, seen) for part in typing.get_args(hint) if _is_type(part))
    if hint in seen:
        return False
    seen.add(hint)
    return _is_renamed_here(hint) or any(_needs_renaming(part, seen) for part in field_types(hint).values())


def _is_renamed_here(cls: Any) -> bool:
    """Whether the wire keys of `cls` are other than those that msgspec itself uses."""
    if issubclass(cls, msgspec.Struct):
        return list(wire_names(cls).values()) != list(cls.__struct_encode_fields__)
    return any(name != key for name, key in wire_names(cls).items())


def _is_type(part: Any) -> bool:
    return isinstance(part, type) or typing.get_origin(part) is not None


def with_field_names(plain: Any, hint: Any) -> Any:
    """`plain` with its wire keys replaced by those that `msgspec.convert(…, hint)` expects."""
    if isinstance(plain, dict):
        cls = record_in(hint) or _tagged_record(hint, plain)
        if cls is None:
            item = _item_type(hint, dict, Mapping)
            return {key: with_field_names(value, item) for key, value in plain.items()}
        expected = _expected_names(cls)
        hints = field_types(cls)
        return {expected.get(key, key): with_field_names(value, hints.get(key, Any)) for key, value in plain.items()}
    if isinstance(plain, list):
        item = _item_type(hint, list, tuple, set, frozenset)
        return [with_field_names(value, item) for value in plain]
    return plain


@cache
def _expected_names(cls: Any) -> dict[str, str]:
    """Wire key -> the key that msgspec takes for the field."""
    if issubclass(cls, msgspec.Struct):
        return dict(zip(wire_names(cls).values(), cls.__struct_encode_fields__, strict=True))
    return {key: name for name, key in wire_names(cls).items()}


def plain_type(hint: Any) -> Any:
    """`hint` without `Annotated`, `NewType` and type aliases."""
    while not isinstance(hint, type):
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12's `type X = …`
            hint = hint.__value__
        else:
            break
    return hint


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or `hint` alone."""
    hint = plain_type(hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        return tuple(plain_type(part) for part in typing.get_args(hint))
    return (hint,)


def record_in(hint: Any) -> Any:
    """The only record class among the alternatives."""
    found = [part for part in alternatives(hint) if is_record_type(part)]
    return found[0] if len(found) == 1 else None


def _tagged_record(hint: Any, plain: dict[str, Any]) -> Any:
    """Of several the Struct whose tag the value has; None where none is told apart so."""
    for part in alternatives(hint):
        config = getattr(part, "__struct_config__", None)
        if config is not None and config.tag is not None and plain.get(config.tag_field) == config.tag:
            return part
    return None


def _item_type(hint: Any, *containers: type) -> Any:
    for part in alternatives(hint):
        origin = typing.get_origin(part)
        if isinstance(origin, type) and issubclass(origin, containers):
            return next((arg for arg in reversed(typing.get_args(part)) if arg is not Ellipsis), Any)
    return Any


def member_type(hint: Any, key: str | None) -> Any:
    """The type of `hint[key]` for a map or record, of its items (`key` None) for a list; `Any` when it says nothing."""
    if key is None:
        return _item_type(hint, list, tuple, set, frozenset)
    cls = record_in(hint)
    return _item_type(hint, dict, Mapping) if cls is None else field_types(cls).get(key, Any)


def map_keys(hint: Any) -> tuple[str, ...]:
    """The keys that a `MapKeys` on the type `hint` names; none when there is no such mark."""
    return next((mark.keys for mark in marks_of(hint) if isinstance(mark, MapKeys)), ())


def marks_of(hint: Any) -> Iterator[Any]:
    """What `Annotated` says of `hint`, or of a member of the union that it is."""
    yield from getattr(hint, "__metadata__", ())
    inner = plain_type(hint)
    if typing.get_origin(inner) in (Union, types.UnionType):
        for part in typing.get_args(inner):
            yield from marks_of(part)
