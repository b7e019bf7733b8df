"""Typed views: a top-level key of an object, decoded to the type that a resource class declares for it.

What an absent or null key gives: None if the type allows it, else the class's default, else an empty map, list or
record (which belongs to the reader, so filling it writes it), else DecodeError. Nulls deeper down, where the type has
no None, count as absent. A number where a quantity is declared as text is read as its text.
"""
from __future__ import annotations

import copy
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from kubectl_runtime.core.base.wire import (
    alternatives,
    converter_of,
    decoder_of,
    hashable,
    is_model,
    is_record_type,
    needs_renaming,
    numbers_as_text,
    with_field_names,
)
from kubectl_runtime.core.codec.lineage import RecordLists
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.meta.refs import ObjectRef

MISSING: Any = msgspec.UNSET
"""No default, or no value."""


class ViewCodec:
    """Decodes one top-level key of an object, such as `spec`, into its declared type. Immutable once built and safe to
    use from any thread; building takes some µs."""

    def __init__(self, key: str, hint: Any, default: Any = MISSING) -> None:
        """`hint` is the declared type, resolved; `default` what the class gives for it."""
        self.key = key
        self.hint = hint
        self.plain_hint = hashable(hint)
        """The same for `to_plain`."""
        self.lists = RecordLists.of(hint)
        """The view's lists of records, whose items write-back has to recognise; None when there are none."""
        self._default = default
        self.renames = needs_renaming(hint)
        """Whether the type has other keys for msgspec than on the wire."""
        decoded = Any if self.renames else hint
        field = ("value", decoded | msgspec.UnsetType | None, msgspec.field(default=msgspec.UNSET, name=key))
        body: Any = msgspec.defstruct("_Body", [field])
        event: Any = msgspec.defstruct("_Event", [("object", body)])
        self._decode_body = decoder_of(body)
        self._decode_event = decoder_of(event)
        self._converted = converter_of(hint)

    def view_of(self, record: Record) -> Any:
        """The view of a received object, new each time. Raises DecodeError."""
        try:
            body = self._decode_event(record.raw).object if record.enveloped else self._decode_body(record.raw)
        except msgspec.ValidationError:
            plain = plain_object(record.raw, record.enveloped, record.ref)
            return self.from_plain(plain.get(self.key, MISSING), record.ref)
        except DECODE_FAILURES as error:
            raise DecodeError(record.ref, *problem_of(error, enveloped=record.enveloped)) from None
        value = body.value
        if value is None or value is MISSING:
            return self.absent(record.ref)
        return self.from_plain(value, record.ref) if self.renames else value

    def is_default(self, view: Any) -> bool:
        """Whether `view` equals what the class gives when nothing is said."""
        return type(view) is type(self._default) and bool(view == self._default)

    def from_plain(self, value: Any, ref: ObjectRef | None) -> Any:
        """The view of a plain JSON value. Raises DecodeError."""
        if value is None or value is MISSING:
            return self.absent(ref)
        try:
            return self._convert(value)
        except DECODE_FAILURES:
            return self._convert_without_nulls(value, ref)

    def absent(self, ref: ObjectRef | None) -> Any:
        """What a reader gets for a key that is absent or null: the default of its type. Raises DecodeError when it must
        be there."""
        if self._default is not MISSING:
            return copy.deepcopy(self._default)
        options = alternatives(self.hint)
        if type(None) in options or Any in options or object in options:
            return None
        empty = _empty_value(options[0])
        if empty is MISSING:
            raise DecodeError(ref, f"$.{self.key}", f"$.{self.key} is missing")
        return self._convert_without_nulls(empty, ref)

    def _convert(self, value: Any) -> Any:
        plain = with_field_names(value, self.hint) if self.renames else value
        return self._converted(plain)

    def _convert_without_nulls(self, value: Any, ref: ObjectRef | None) -> Any:
        try:
            return self._convert(numbers_as_text(without_nulls(value), self.hint))
        except DECODE_FAILURES as error:
            raise DecodeError(ref, *problem_of(error, at=f"$.{self.key}")) from None


class _AnyBody(msgspec.Struct):
    object: dict[str, Any]


_decode_any = decoder_of(dict[str, Any])
_decode_any_event = decoder_of(_AnyBody)


def plain_object(raw: bytes, enveloped: bool, ref: ObjectRef | None) -> dict[str, Any]:
    """The whole object as plain JSON values, new each time. Raises DecodeError."""
    try:
        return _decode_any_event(raw).object if enveloped else _decode_any(raw)
    except DECODE_FAILURES as error:
        raise DecodeError(ref, *problem_of(error, enveloped=enveloped)) from None


def without_nulls(value: Any) -> Any:
    """A copy without the null entries of its maps, at every depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _empty_value(hint: Any) -> Any:
    origin = typing.get_origin(hint) or hint
    if is_record_type(hint) or is_model(hint):
        return {}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {}
    if isinstance(origin, type) and issubclass(origin, list | tuple | set | frozenset):
        return []
    return MISSING
