"""Labels and annotations to look at, and not to change.

    ReadOnlyMap      those of an object, as its reader shows them
    ReadOnlyDict     what is held where all readers of an object, or several objects, share them
    ReadOnlyList     likewise

A `MappingProxyType` would do the same and say of a change only that "'mappingproxy' object does not support item
assignment", which tells nobody what to do instead.
"""
from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn


class ReadOnlyMap(Mapping[str, str]):
    """A view of `content`, equal to a dict of the same items. Everything that would change it raises TypeError, with
    what to do instead. `dict(view)` is a copy. As safe between threads as the dict below it."""

    __slots__ = ("_content",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: Mapping[str, str]) -> None:
        """`content` is not copied."""
        self._content = content

    def __getitem__(self, key: str) -> str:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __eq__(self, other: object) -> bool:
        return self._content == (other._content if isinstance(other, ReadOnlyMap) else other)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self._content, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self._content} if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._content)

    def copy(self) -> dict[str, str]:
        """A dict of one's own."""
        return dict(self._content)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, str]:
        return self.copy()

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("the labels and annotations of an object are read-only here: change obj.metadata.labels or "
                        "obj.metadata.annotations and write the object, or change a copy, such as dict(obj.labels)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class ReadOnlyDict(dict[Any, Any]):
    """A dict that raises TypeError for every change, with what to do instead. Its copies and pickles are plain dicts.
    Safe between threads."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)

    __copy__ = dict.copy

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        return dict, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("what is held of an object is shared and read-only: change a copy, such as dict(obj.labels), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class ReadOnlyList(list[Any]):
    """A list that raises TypeError for every change, with what to do instead. Its copies and pickles are plain lists.
    Safe between threads."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)

    __copy__ = list.copy

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("what is held of an object is shared and read-only: change a copy, such as list(view.items), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse
        reverse = sort = _refuse
