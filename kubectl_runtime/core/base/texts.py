"""Values that are a text in JSON and more than that in Python: quantities, durations in Go's notation.

    class Size(TextValue): parse(text) -> Size, str(size) -> text

Such a class is the type of a field in any view, Struct or dataclass: it is parsed when the view is decoded (a text that
cannot be is a DecodeError with its path) and is its `str()` again when it is sent. msgspec asks for both by the two
hooks below; classes that it knows by itself (Structs, dataclasses) it never asks for.
"""
from __future__ import annotations

from typing import Any, Self

from kubectl_runtime.core.base.errors import RequestError


class TextValue:
    """A value that JSON carries as a text, or as a number that stands for one, such as a Quantity. Its `str()` is that
    text."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: Any) -> Self:
        """The value that `text` stands for. Raises RequestError, which says what the text should look like."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"


def from_text(kind: Any, value: Any) -> Any:
    """The `dec_hook` of msgspec: the value of the type `kind` that JSON's `value` stands for. Raises ValueError."""
    if kind is object:  # what is written for Any where type checkers are strict
        return value
    if not (isinstance(kind, type) and issubclass(kind, TextValue)):
        raise NotImplementedError(f"{kind} cannot be read from JSON")
    try:
        return kind.parse(value)
    except RequestError as error:
        raise ValueError(str(error)) from None


def to_text(value: Any) -> str:
    """The `enc_hook` of msgspec: the text of such a value. Raises TypeError for another one."""
    if isinstance(value, TextValue):
        return str(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
