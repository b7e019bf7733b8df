"""`Lane`: a queue of a scheduler's entries from which one in the middle can leave without a search.

What leaves stays where it stood and is passed over later; before such items outnumber the live ones they are swept out.
Nothing moves in a lane, so order is the order of arrival.
"""
from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic

from kubectl_runtime.runtime.queue.scheduled_entry import Entry, K, M

FEW = 64
"""Items that have left and are not worth sweeping out."""


class Lane(Generic[K, M]):
    """One class of the queue: entries that are ready, in the order they came. Pure; its owner serialises the calls."""

    __slots__ = ("_bulk", "_place", "items", "left")

    def __init__(self, place: int, bulk: bool | None = None) -> None:
        """Who came in once and is at this `place` still waits here; of this class, if one is given."""
        self._place = place
        self._bulk = bulk
        self.items: deque[Entry[K, M]] = deque()
        """Those who wait, and some who have left; none: nobody waits."""
        self.left = 0
        """How many of the items have left."""

    def __len__(self) -> int:
        """How many wait here."""
        return len(self.items) - self.left

    def pop(self) -> Entry[K, M] | None:
        """Take out the one that has waited longest; None when none waits."""
        items, place, bulk = self.items, self._place, self._bulk
        while items:
            entry = items.popleft()
            if entry.place == place and (bulk is None or entry.bulk is bulk):
                return entry
            self.left -= 1
        return None

    def first(self, most: int) -> list[Entry[K, M]]:
        """Up to `most` of those who wait, longest first; fewer where many have left before them. Looks at four times
        as many."""
        return [entry for entry in islice(self.items, 4 * most) if self._belongs(entry)][:most]

    def leave(self) -> None:
        """One that waited here does not belong here from now on."""
        self.left += 1
        if self.left > FEW and 2 * self.left > len(self.items):
            self.items = deque(entry for entry in self.items if self._belongs(entry))
            self.left = 0

    def clear(self) -> None:
        """Forget all entries."""
        self.items.clear()
        self.left = 0

    def _belongs(self, entry: Entry[K, M]) -> bool:
        return entry.place == self._place and self._bulk in (None, entry.bulk)
