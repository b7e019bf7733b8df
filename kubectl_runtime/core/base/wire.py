"""How values of Python classes look on the wire: names, text values, decoders, declared types.

- Attributes are snake_case, keys are camelCase (`ready_replicas` is `readyReplicas`). A `msgspec.Struct` that renames
  fields itself (`rename="camel"`, `field(name="podIP")`) is used as it is, and decodes fastest; in a dataclass
  `field(metadata={"name": "podIP"})` sets the key of one field. `with_field_names` translates the keys of plain values
  for classes that msgspec would not rename; `core.base.plain` converts in the other direction.
- A `TextValue` is text in JSON and a richer type in Python: a quantity, a duration in Go's notation. Such a class can
  be the type of a field in any view: the text is parsed when the view is decoded (bad text is a DecodeError with its
  path), and `str()` of the value is sent.
- Types are passed to msgspec only through four functions. `decoder_of` and `converter_of` are called at the top of a
  module, or by an object that stores the result. `decoded` and `converted` are for rare uses; they cache one decoder or
  converter per type. Only one thread at a time builds decoders and converters. The reason: msgspec (0.20 to 0.22)
  stores its findings about a Struct on the class while it still evaluates annotations, and the evaluation may import a
  module and so let other threads run. A second thread that makes a decoder of the same class finds these data
  incomplete, and the process crashes. Workers that read the `spec` of a kind for the first time do exactly this.
  Annotations are user code that runs under this lock, so the lock is reentrant, and no thread waits for it longer than
  `LONGEST`.
- `DeclaredType` says which JSON shapes (text, number, map, …) values of a declared type may have. It is computed once
  per type.
"""
from __future__ import annotations

import dataclasses
import inspect
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, NoReturn, Self, TypeAlias, TypeVar, Union

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import renewed_in_children

_FORMAT: dict[str, Any] = {}
_SIGNATURE_FORMAT: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _FORMAT = {"format": Format.FORWARDREF}
    _SIGNATURE_FORMAT = {"annotation_format": Format.FORWARDREF}


class MapKeys:
    """Marks a list whose items are identified by some of their keys: `Annotated[list[Port], MapKeys("name")]`.

    Write-back then merges an item into the received item with the same keys, and the schema of a custom resource has
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

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}


class NumberAsText:
    """Marks a text field for which the API also accepts a number: a quantity, such as a CPU limit of `1`. A number is
    converted to text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NumberAsText()"


class AlwaysSent:
    """Marks a field that a new object sends even if it equals its default: the API requires an `exitCode`, even 0."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AlwaysSent()"


_Value = TypeVar("_Value")
Sent: TypeAlias = Annotated[_Value, AlwaysSent()]
"""`lun: Sent[int] = 0`: the default is 0, and a new object always has the field. An apply leaves out every field that
equals its default."""


def camel(name: str) -> str:
    """`ready_replicas` -> `readyReplicas`."""
    if "_" not in name:
        return name
    first, *rest = name.strip("_").split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def annotations_of(cls: type) -> dict[str, Any]:
    """The annotations of the class itself, without its bases, as a new dict. Each is a type, text, or a `ForwardRef`.

    A name in an annotation need not exist yet. Until Python 3.13 an annotation is a value, or text under `from
    __future__ import annotations`. From 3.14 on annotations are evaluated on access, which raises NameError for a name
    that comes later in the module or exists only for type checkers: here such an annotation becomes a `ForwardRef`,
    which `typing.get_type_hints` resolves later.
    """
    return inspect.get_annotations(cls, **_FORMAT)


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a callable, even if an annotation refers to a name that is not defined yet. Raises TypeError if
    `function` is not callable, and ValueError if Python does not know the parameters (some built-in functions)."""
    return inspect.signature(function, **_SIGNATURE_FORMAT)


def is_record_type(cls: Any) -> bool:
    """Whether `cls` is a class with named fields: a Struct, a dataclass or an attrs class, possibly with type arguments
    (`Box[int]`)."""
    if not isinstance(cls, type):
        cls = typing.get_origin(cls)
    return isinstance(cls, type) and not is_model(cls) and (
        issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__"))


def is_model(cls: Any) -> bool:
    """Whether `cls` is a pydantic class (`BaseModel`, `RootModel`), which reads and writes its values itself. Such a
    class is recognized by its methods, since this library does not import pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate")


def record_class(cls: Any) -> Any:
    """The class of a record type's values: `Box` for `Box[int]`."""
    return cls if isinstance(cls, type) else typing.get_origin(cls)


@cache
def wire_names(cls: Any) -> dict[str, str]:
    """Attribute name -> wire key, for a record type."""
    cls = record_class(cls)
    if issubclass(cls, msgspec.Struct):
        declared = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        if any(name != key for name, key in declared.items()):
            return declared
        return {name: camel(name) for name in declared}
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else cls.__attrs_attrs__
    return {field.name: field.metadata.get("name") or camel(field.name) for field in fields}


@cache
def field_types(cls: Any) -> dict[str, Any]:
    """Wire key -> type, for a record type. Raises TypeError when an annotation cannot be resolved."""
    made = record_class(cls)
    try:
        hints = typing.get_type_hints(made, include_extras=True)
    except NameError as error:
        raise TypeError(f"{made.__name__}: {error}; its field types must be visible at module level") from None
    given = dict(zip(getattr(made, "__parameters__", ()), typing.get_args(cls), strict=False))
    return {key: _filled(hints[name], given) for name, key in wire_names(cls).items()}


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A type in which the parameters of a generic class are replaced by its arguments."""
    if not given:
        return hint
    if hint in given:
        return given[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(parameter, parameter) for parameter in parameters)] if parameters and not isinstance(
        hint, type) else hint


def needs_renaming(hint: Any) -> bool:
    """Whether the type `hint` contains a class whose wire keys msgspec cannot derive by itself."""
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
    """Whether the wire keys of `cls` differ from those that msgspec uses."""
    cls = record_class(cls)
    if issubclass(cls, msgspec.Struct):
        return list(wire_names(cls).values()) != list(cls.__struct_encode_fields__)
    return any(name != key for name, key in wire_names(cls).items())


def _is_type(part: Any) -> bool:
    return isinstance(part, type) or typing.get_origin(part) is not None


def with_field_names(plain: Any, hint: Any) -> Any:
    """`plain` with its wire keys replaced by the keys that `msgspec.convert(…, hint)` expects."""
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


def numbers_as_text(plain: Any, hint: Any) -> Any:
    """`plain`, whose keys are wire keys, with numbers converted to text where `hint` is marked `NumberAsText`."""
    if isinstance(plain, dict):
        cls = record_in(hint) or _tagged_record(hint, plain)
        if cls is None:
            item = _item_type(hint, dict, Mapping)
            return plain if item is Any else {key: numbers_as_text(value, item) for key, value in plain.items()}
        hints = field_types(cls)
        return {key: numbers_as_text(value, hints.get(key, Any)) for key, value in plain.items()}
    if isinstance(plain, list):
        item = _item_type(hint, list, tuple, set, frozenset)
        return plain if item is Any else [numbers_as_text(value, item) for value in plain]
    if type(plain) in (int, float) and any(isinstance(mark, NumberAsText) for mark in marks_of(hint)):
        return str(int(plain) if float(plain).is_integer() else plain)
    return plain


@cache
def _expected_names(cls: Any) -> dict[str, str]:
    """Wire key -> the key that msgspec expects for the field."""
    cls = record_class(cls)
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
    """The record class among the alternatives of `hint`; None if there is not exactly one."""
    found = [part for part in alternatives(hint) if is_record_type(part)]
    return found[0] if len(found) == 1 else None


def _tagged_record(hint: Any, plain: dict[str, Any]) -> Any:
    """The member of a union whose tag is the tag of the value `plain`; None if there is no such member."""
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
    """The type of the value under `key` in a map or record of type `hint`. If `key` is None, `hint` is the type of a
    list, and the result is the type of its items. `Any` if the type is unknown."""
    if key is None:
        return _item_type(hint, list, tuple, set, frozenset)
    cls = record_in(hint)
    if cls is None and (model := next((part for part in alternatives(hint) if is_model(part)), None)) is not None:
        return _model_types(model).get(key, Any)
    return _item_type(hint, dict, Mapping) if cls is None else field_types(cls).get(key, Any)


@cache
def _model_types(cls: Any) -> dict[str, Any]:
    """Wire key -> type, including `Annotated`, for a pydantic class."""
    return {field.serialization_alias or field.alias or name: typing.Annotated[(field.annotation, *field.metadata)]
            if field.metadata else field.annotation for name, field in cls.model_fields.items()}


def map_keys(hint: Any) -> tuple[str, ...]:
    """The keys of a `MapKeys` on the type `hint`; empty when there is no such mark."""
    return next((mark.keys for mark in marks_of(hint) if isinstance(mark, MapKeys)), ())


def marks_of(hint: Any) -> Iterator[Any]:
    """The metadata of `Annotated` on `hint`; if `hint` is a union, also the metadata on its members."""
    yield from getattr(hint, "__metadata__", ())
    inner = plain_type(hint)
    if typing.get_origin(inner) in (Union, types.UnionType):
        for part in typing.get_args(inner):
            yield from marks_of(part)


class TextValue:
    """A value, such as a Quantity, that is text in JSON; a number is accepted in place of text. `str()` returns the
    text."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Parse `text`. Raises RequestError, which describes the expected form."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return pydantic_schema(cls, str)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return {"x-kubernetes-python-type": cls}


def pydantic_schema(cls: Any, write: Callable[[Any], Any]) -> Any:
    """The pydantic schema for a library class that is the type of a model's field; `write` serializes the values. Only
    pydantic calls this, so pydantic can be imported here."""
    from pydantic_core import core_schema

    def read(value: Any) -> Any:
        try:
            return value if isinstance(value, cls) else converted(value, cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None

    return core_schema.no_info_plain_validator_function(
        read, serialization=core_schema.plain_serializer_function_ser_schema(write))


def from_text(kind: Any, value: Any) -> Any:
    """The `dec_hook` of msgspec: the value of type `kind` for the JSON value `value`. Raises ValueError."""
    if kind is object:  # some programs declare object instead of Any, for strict type checkers
        return value
    if is_model(kind):
        return _of_model(kind, value)
    if not (isinstance(kind, type) and issubclass(kind, TextValue)):
        raise NotImplementedError(f"{kind} cannot be read from JSON")
    try:
        return kind.parse(value)
    except RequestError as error:
        raise ValueError(str(error)) from None


def _of_model(kind: Any, value: Any) -> Any:
    """A pydantic model of `value`. Raises ValueError with the problem and its place, without the value."""
    try:
        return kind.model_validate(value)
    except ValueError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False) if hasattr(
            error, "errors") else []
        if not faults:
            raise
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in faults[0]["loc"])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ValueError(f"{faults[0]['msg']}{more} - at `${path}`") from None


def to_text(value: Any) -> str:
    """The `enc_hook` of msgspec: the text of a TextValue. Raises TypeError for anything else."""
    if isinstance(value, TextValue):
        return str(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


T = TypeVar("T")
Encoded: TypeAlias = bytes | bytearray | memoryview | str | msgspec.Raw
"""JSON text."""

LONGEST = 10.0
"""Seconds to wait for the lock; building all the types of a Pod takes 0.1 s."""


class _Building:
    """The lock of the code that builds decoders and codecs, so that no two threads build the same type at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renewed_in_children(self)

    def renew(self) -> None:
        """Free the lock, whichever thread holds it. Only for a forked child process."""
        self._lock = threading.RLock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        lock = self._lock
        held = lock.acquire(timeout=LONGEST)
        try:
            yield
        finally:
            if held:
                lock.release()


building = _Building()


def decoder_of(kind: type[T], *, strict: bool = True) -> Callable[[Encoded], T]:
    """The `decode` method of a new JSON decoder for this type. Safe from any thread; blocks while another thread builds
    a decoder.

    Raises TypeError for a type that msgspec does not support, and whatever the type's annotations raise.
    """
    with building.alone():
        return msgspec.json.Decoder(kind, dec_hook=from_text, strict=strict).decode


def converter_of(kind: type[T]) -> Callable[[Any], T]:
    """Like `decoder_of`, for plain values."""
    decoder_of(kind)
    return partial(msgspec.convert, type=kind, dec_hook=from_text)


_decoders: dict[type, Callable[[Encoded], Any]] = {}
_converters: dict[type, Callable[[Any], Any]] = {}


def decoded(body: Encoded, kind: type[T]) -> T:
    """Like `msgspec.json.decode(body, type=kind)`, for types of this library. Safe from any thread."""
    decode = _decoders.get(kind) or _decoders.setdefault(kind, decoder_of(kind))
    found: T = decode(body)
    return found


def converted(value: Any, kind: type[T]) -> T:
    """Like `msgspec.convert(value, kind)`, for types of this library. Safe from any thread."""
    convert = _converters.get(kind) or _converters.setdefault(kind, converter_of(kind))
    found: T = convert(value)
    return found


_STRING_DATA = ", or use string_data for text"
NAIVE = "is a time without a time zone: give an aware datetime, such as datetime.now(UTC)"
"""The problem of a naive time, worded to follow the path of the value."""
_BYTES = (bytes, bytearray, memoryview)
_SHAPES: dict[type, str] = {
    str: "text", **dict.fromkeys(_BYTES, "bytes"), int: "number", float: "number", bool: "truth", dict: "map",
    Mapping: "map", list: "list", tuple: "list", set: "list", frozenset: "list", NoneType: "nothing"}
"""The shapes of types whose values have only one shape. Other types (enums, times, quantities) are not listed."""

UNKNOWN: Any = object()
"""Stands for a declared type that is not known: values of any shape fit."""


class DeclaredType:
    """The JSON shapes (text, number, map, …) that values of one declared type may have. Safe to use from any thread."""

    __slots__ = ("_items", "_values", "bytes", "hint", "list", "map", "number", "text", "truth")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        shapes = {_shape_of(part) for part in alternatives(hint)}
        everything = "any" in shapes
        self.text = everything or "text" in shapes
        """Whether text fits the type; `number`, `truth` (True and False), `map` and `list` likewise."""
        self.bytes = "bytes" in shapes
        self.number = everything or "number" in shapes
        self.truth = self.number or "truth" in shapes  # in Python a boolean is a number
        self.map = everything or "map" in shapes
        self.list = everything or "list" in shapes
        self._items: DeclaredType | None = None
        self._values: DeclaredType | None = None

    @property
    def items(self) -> DeclaredType:
        """The declared type of a list's items."""
        if self._items is None:
            self._items = self._member(None)
        return self._items

    @property
    def values(self) -> DeclaredType:
        """The declared type of a map's values."""
        if self._values is None:
            self._values = self._member("")
        return self._values

    def _member(self, key: str | None) -> DeclaredType:
        return self if self.hint is UNKNOWN else declared_type(hashable(member_type(self.hint, key)))


def _shape_of(part: Any) -> str:
    if is_record_type(part):
        return "map"
    return _SHAPES.get(typing.get_origin(part) or part, "any")


@cache
def declared_type(hint: Any) -> DeclaredType:
    """The DeclaredType for a hashable type; cached."""
    return DeclaredType(hint)


def hashable(hint: Any) -> Any:
    """`hint`, or UNKNOWN if it is not hashable, for example because it is annotated with a dict."""
    try:
        hash(hint)
    except TypeError:
        return UNKNOWN
    return hint


def misfit(given: str, declared: DeclaredType, path: str) -> NoReturn:
    """Raise RequestError, without quoting the value, for a value whose shape is not declared."""
    if given == "text" and not (declared.number or declared.truth or declared.map or declared.list):
        raise RequestError(f"{path} is text where bytes are declared, which the wire carries as base64: give bytes "
                           f"(b'…' or text.encode()){_STRING_DATA if path.startswith('$.data') else ''}")
    raise RequestError(f"{path} is {given} where {type_name(declared.hint)} is declared")


def type_name(hint: Any) -> str:
    """A declared type in words, for messages."""
    names = [getattr(part, "__name__", str(part)) for part in alternatives(hint) if part is not type(None)]
    return " or ".join(_WORDS.get(name, name) for name in names)


_WORDS = {"str": "text", "int": "a number", "float": "a number", "bool": "True or False", "dict": "a map",
          "Mapping": "a map", "list": "a list"}


def check_undeclared(value: Any, path: str) -> None:
    """Raise RequestError for a value that has several forms in JSON when no declared type selects one."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise RequestError(f"{path} is bytes, which JSON does not have: decode text (value.decode()); a Secret "
                           "takes base64 text in data, or plain text in stringData")
    if isinstance(value, timedelta):
        raise RequestError(f"{path} is a timedelta: write a duration as the kind expects it, such as '5s' or a "
                           "number")
    if isinstance(value, datetime | time) and value.tzinfo is None:
        raise RequestError(f"{path} {NAIVE}")
    if isinstance(value, Decimal) and not value.is_finite():
        raise RequestError(f"{path} is {value}, which JSON cannot carry")
