"""`Entry`: what a `Scheduler` keeps of one key that is to run, and the places where it can be."""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")

WAITING, BRAKED, READY, HELD, GONE = range(5)
"""See the scheduler's table; what is gone has left it."""

NO_ITEM = -1


class Entry(Generic[K, M]):
    """A key that is to run: its message (the request that decided the time), when, and of which class.

    Changed by the scheduler alone until it is popped.
    """

    __slots__ = ("at", "bulk", "further", "item", "key", "limit", "message", "place", "retry")

    def __init__(self, key: K, message: M, at: float, limit: float, bulk: bool, retry: bool,
                 place: int = WAITING) -> None:
        self.key = key
        self.message = message
        self.at = at
        self.limit = limit
        self.bulk = bulk
        self.retry = retry
        """Nothing but a failure asked for this run."""
        self.place = place
        self.item = NO_ITEM
        """The number of its item in the heap, where items of its earlier times stay behind; NO_ITEM when it does not
        wait."""
        self.further: Sequence[Any] | None = None
        """The owner's: what it keeps of messages that joined the entry; the scheduler does not look at it."""
