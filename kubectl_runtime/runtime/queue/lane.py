"""`Lane`: a queue of a scheduler's entries from which one in the middle can leave without a search.

What leaves stays where it stood and is passed over later; before such items outnumber the live ones they are swept out.
Nothing moves in a lane, so order is the order of arrival.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

E = TypeVar("E")

FEW = 64
"""Items that have left and are not worth sweeping out."""


class Lane(Generic[E]):
    """One class of the queue: entries that are ready, in the order they came. Pure; its owner serialises the calls."""

    __slots__ = ("_belongs", "_left", "items")

    def __init__(self, belongs: Callable[[E], bool]) -> None:
        """`belongs(entry)`: whether an entry that came in once still waits here."""
        self._belongs = belongs
        self.items: deque[E] = deque()
        """Those who wait, and some who have left; none: nobody waits."""
        self._left = 0

    def __len__(self) -> int:
        """How many wait here."""
        return len(self.items) - self._left

    def append(self, entry: E) -> None:
        """Put an entry at the end."""
        self.items.append(entry)

    def put_first(self, entry: E) -> None:
        """Put an entry at the front."""
        self.items.appendleft(entry)

    def pop(self) -> E | None:
        """Take out the one that has waited longest; None when none waits."""
        items = self.items
        while items:
            entry = items.popleft()
            if self._belongs(entry):
                return entry
            self._left -= 1
        return None

    def first(self, most: int) -> list[E]:
        """Up to `most` of those who wait, longest first; fewer where many have left before them. Looks at four times
        as many."""
        return [entry for entry in islice(self.items, 4 * most) if self._belongs(entry)][:most]

    def leave(self) -> None:
        """One that waited here does not belong here from now on."""
        self._left += 1
        if self._left > FEW and 2 * self._left > len(self.items):
            self.items = deque(entry for entry in self.items if self._belongs(entry))
            self._left = 0

    def clear(self) -> None:
        """Forget all entries."""
        self.items.clear()
        self._left = 0
