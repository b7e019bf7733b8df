"""What the type that is declared for a value says of how it becomes plain, found out once for each type."""
from __future__ import annotations

from functools import cache
from typing import Any

from kubectl_runtime.core.base.wire import alternatives, member_type

_BYTES = (bytes, bytearray, memoryview)

UNKNOWN: Any = object()
"""The type of a value of which cannot be said what is declared, `Any` included."""


class DeclaredType:
    """One type. Safe to use from any thread."""

    __slots__ = ("_items", "_values", "hint", "text")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self.text = hint is Any or not all(part in _BYTES or part is type(None) for part in alternatives(hint))
        """Whether anything but bytes and None fits it."""
        self._items: DeclaredType | None = None
        self._values: DeclaredType | None = None

    @property
    def items(self) -> DeclaredType:
        """Of the items of a list."""
        if self._items is None:
            self._items = self._member(None)
        return self._items

    @property
    def values(self) -> DeclaredType:
        """Of the values of a map."""
        if self._values is None:
            self._values = self._member("")
        return self._values

    def _member(self, key: str | None) -> DeclaredType:
        return self if self.hint is UNKNOWN else declared_type(hashable(member_type(self.hint, key)))


@cache
def declared_type(hint: Any) -> DeclaredType:
    """For a hashable type: the same one for the same type."""
    return DeclaredType(hint)


def hashable(hint: Any) -> Any:
    """`hint`, or UNKNOWN for one that cannot be remembered: it is annotated with a dict, say."""
    try:
        hash(hint)
    except TypeError:
        return UNKNOWN
    return hint
