"""JSON values as Python has them: copies, and equality, which Python's own ``==`` gets wrong (it says 1 == True).

All go by way of the encoded text: encoding and decoding by msgspec is several times faster than a walk in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

MOST_REMEMBERED = 1000  # values of one check

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
    """Whether two values are the same JSON but for the order of keys: 1 is neither true nor 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _encode_sorted(first) == _encode_sorted(second)


def equal_json(first: Any, second: Any) -> bool:
    """Whether two values are equal as field ownership sees it: 1 is not true, but it is 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _same_booleans(first, second)


def remembers_good(check: Callable[Concatenate[Any, P], list[T]]) -> Callable[Concatenate[Any, P], list[T]]:
    """A check that does not look again at a JSON value in which it lately found nothing: objects that are made from one
    template are alike but for their names, and some checks are slow.

    The check must depend on its arguments alone, of which the further ones are hashable, and change none of them.
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
    """Whether of two values that are equal to Python the same ones are booleans."""
    if isinstance(first, dict):
        return all(_same_booleans(child, second[key]) for key, child in first.items())
    if isinstance(first, list):
        return all(map(_same_booleans, first, second))
    return isinstance(first, bool) == isinstance(second, bool)
