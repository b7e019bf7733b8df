"""Equality of records and of JSON values.

`same_content` compares two records of one object and version, for cases where an equal version proves nothing. Bytes
are compared from `"metadata"` on, since a list's items lack kind and apiVersion and a watch line has an envelope; if
the bytes differ, or other keys come first, they are compared decoded, without kind and apiVersion. Views are compared
as JSON.

Python's ``==`` is wrong for JSON (1 == True). Copies and equality use the encoded text: encoding and decoding by
msgspec is several times faster than a walk in Python.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.base.wire import to_text
from kubectl_runtime.core.codec.views import Record, plain_object
from kubectl_runtime.core.meta.problems import DecodeError

P = ParamSpec("P")
T = TypeVar("T")

MOST_REMEMBERED = 1000  # values for each check

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def json_copy(value: T) -> T:
    """A copy that shares no dict and no list with the value."""
    if not isinstance(value, dict | list):
        return value
    copied: T = _decode(_encode(value))
    return copied


def same_json(first: Any, second: Any) -> bool:
    """Whether two values are the same JSON, ignoring the order of keys: 1 is neither true nor 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _encode_sorted(first) == _encode_sorted(second)


def equal_json(first: Any, second: Any) -> bool:
    """Whether two values are equal by the rules of field ownership: 1 is not true, but it is 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _same_booleans(first, second)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
"""Stands for the absent value when only one of two values has a key or item."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes, outermost first."""


def differences(one: Any, other: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Where two JSON values differ: each path, with both values there (`MISSING` for none). 1 is neither true nor 1.0.
    Lists of equal length are compared item by item, others differ as a whole. The keys of `one` come first, in its
    order, then the keys that only `other` has."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from differences(one.get(key, MISSING), other.get(key, MISSING), (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, (*path, index))
    elif type(one) is not type(other) or one != other:
        yield path, one, other


def remembers_good(check: Callable[Concatenate[Any, P], list[T]]) -> Callable[Concatenate[Any, P], list[T]]:
    """Makes a check skip JSON values in which it recently found nothing: objects from one template are equal except for
    their names, and some checks are slow.

    The check must depend on its arguments alone, change none of them, and its further arguments must be hashable.
    """
    good: set[Any] = set()

    @wraps(check)
    def answer(value: Any, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        key = (blake2b(_encode(value), digest_size=16).digest(), args, *kwargs.items())
        if key in good:
            return []
        found = check(value, *args, **kwargs)
        if not found:
            if len(good) >= MOST_REMEMBERED:
                good.clear()
            good.add(key)
        return found

    return answer


def _same_booleans(first: Any, second: Any) -> bool:
    """Whether two values that are equal in Python have their booleans in the same places."""
    if isinstance(first, dict):
        return all(_same_booleans(child, second[key]) for key, child in first.items())
    if isinstance(first, list):
        return all(map(_same_booleans, first, second))
    return isinstance(first, bool) == isinstance(second, bool)


_S = rb"\s*"
_TYPE = rb'(?:"(?:kind|apiVersion)"%b:%b"[^"\\]*"%b,%b)*' % (_S, _S, _S, _S)
_BARE = re.compile(rb'%b\{%b%b(?="metadata")' % (_S, _S, _TYPE))
_ENVELOPED = re.compile(rb'%b\{%b"type"%b:%b"[A-Z]+"%b,%b"object"%b:%b\{%b%b(?="metadata")' % (*(_S,) * 9, _TYPE))


def same_content(old: Record, new: Record) -> bool:
    """Whether both have the same content. If one of the records cannot be read, only equal bytes count as the same."""
    if old.view is not None or new.view is not None:
        return _view_json(old) == _view_json(new)
    before, after = _from_metadata(old), _from_metadata(new)
    if before is not None and before == after:
        return True
    try:
        return same_json(_plain(old), _plain(new))
    except DecodeError:
        return old.raw == new.raw


def _view_json(record: Record) -> bytes | None:
    return None if record.view is None else msgspec.json.encode(record.view, enc_hook=to_text)


def _from_metadata(record: Record) -> bytes | None:
    """The object's bytes from `"metadata"` on; None when it does not begin with that."""
    raw = record.raw
    found = (_ENVELOPED if record.enveloped else _BARE).match(raw)
    if found is None:
        return None
    rest = raw[found.end():].rstrip()
    return rest[:-1].rstrip() if record.enveloped else rest


def _plain(record: Record) -> dict[str, Any]:
    plain = plain_object(record.raw, record.enveloped, record.ref)
    return {key: value for key, value in plain.items() if key not in ("kind", "apiVersion")}
