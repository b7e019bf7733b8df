"""`Scheduler`: which key is to run when. Pure: no clock, lock or thread; its owner passes the time, serialises calls.

One entry per key, in one of three places:

    waiting   in the heap until `at`
    ready     due, in a queue, oldest due time first
    held      due, but its key runs: set aside so that it blocks nobody, put at the head of `ready` by `release`

    input            no entry      waiting                                     ready, held
    add(at)          -> waiting    earlier: moved, message replaced; else      dropped: it runs now anyway
                     or ready      dropped
    add(debounced)   -> waiting    moved to now + debounce, later or earlier,  dropped
                                   but never past the entry's limit
    pop_due          nothing       -> ready when due                           -> gone, or ready -> held if its key runs
    remove           nothing       -> gone                                     -> gone

The *limit* is what makes debouncing safe: it is the earliest of first trigger + maximum wait and of every exact time
asked for, only ever decreases, and `at` never exceeds it. A key that is triggered for ever still runs.
"""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")

MAX_DELAY = 180 * 24 * 3600.0
"""Seconds; what is asked for later is clamped to this (timers of decades overflow what waits for them)."""

MAX_WAIT_FACTOR = 10
"""The default maximum wait of a debounced key, in debounces."""


class Entry(Generic[K, M]):
    """A key that is to run: its message (the request that decided the time) and when.

    Private to the scheduler until popped.
    """

    __slots__ = ("at", "key", "limit", "message", "place")

    def __init__(self, key: K, message: M, at: float, limit: float) -> None:
        self.key = key
        self.message = message
        self.at = at
        self.limit = limit
        self.place = WAITING


WAITING, READY, HELD, GONE = range(4)


class Scheduler(Generic[K, M]):
    """A delay queue with one entry per key. Times are seconds of one monotonic clock."""

    def __init__(self, *, debounce: float = 0.0, max_wait: float | None = None) -> None:
        """`debounce`: seconds of quiet before a triggered key runs, but at most `max_wait` (default: 10 debounces)."""
        if debounce < 0 or (max_wait is not None and max_wait < debounce):
            raise ValueError(f"debounce must be at least 0 and at most max_wait, not {debounce} and {max_wait}")
        self._debounce = debounce
        self._max_wait = max_wait if max_wait is not None else MAX_WAIT_FACTOR * debounce
        self._entries: dict[K, Entry[K, M]] = {}
        self._heap: list[tuple[float, int, Entry[K, M]]] = []
        self._ready: deque[Entry[K, M]] = deque()
        self._removed_ready = 0
        self._order = count()

    def __len__(self) -> int:
        """How many keys have an entry."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def due_at(self, key: K) -> float | None:
        """When `key` is to run, or None when nothing is scheduled for it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.at

    def trigger(self, key: K, message: M, now: float) -> None:
        """Something changed: run `key` now, or after the debounce."""
        entry = self._entries.get(key)
        if entry is None:
            self._insert(Entry(key, message, now + self._debounce, now + self._max_wait), now)
        elif entry.at > now:  # one that is due is never put off
            entry.limit = min(entry.limit, now + self._max_wait)
            self._move(entry, min(now + self._debounce, entry.limit), message, now)

    def add(self, key: K, message: M, at: float, now: float) -> None:
        """Run `key` at the time `at` (a time in the past is now; one too far away is clamped), and not later."""
        at = min(max(at, now), now + MAX_DELAY)
        entry = self._entries.get(key)
        if entry is None:
            self._insert(Entry(key, message, at, at), now)
        elif entry.at > now:
            entry.limit = min(entry.limit, at)
            if at < entry.at:
                self._move(entry, at, message, now)

    def pop_due(self, now: float, running: Container[K]) -> Entry[K, M] | None:
        """Take out the entry that has been due longest and whose key is not `running`; None when there is none."""
        self._promote(now)
        ready = self._ready
        while ready:
            entry = ready.popleft()
            if entry.place == GONE:
                self._removed_ready -= 1
            elif entry.key in running:
                entry.place = HELD
            else:
                entry.place = GONE
                del self._entries[entry.key]
                return entry
        return None

    def release(self, key: K) -> None:
        """`key` does not run any more: if an entry was held for it, that one is next."""
        entry = self._entries.get(key)
        if entry is not None and entry.place == HELD:
            entry.place = READY
            self._ready.appendleft(entry)

    def remove(self, key: K) -> bool:
        """Forget `key`'s entry; whether there was one."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        if entry.place == READY:
            self._removed_ready += 1
        entry.place = GONE
        self._compact()
        return True

    def clear(self) -> int:
        """Forget everything; how many entries there were."""
        dropped = len(self._entries)
        self._entries.clear()
        self._heap.clear()
        self._ready.clear()
        self._removed_ready = 0
        return dropped

    def ready_count(self, now: float) -> int:
        """How many entries are due and not held (their key may have begun to run since; `pop_due` looks)."""
        self._promote(now)
        return len(self._ready) - self._removed_ready

    def next_due(self) -> float | None:
        """When the next waiting entry becomes due; None when none waits. What is ready or held is not counted."""
        heap = self._heap
        while heap:
            at, _, entry = heap[0]
            if entry.place == WAITING and entry.at == at:
                return at
            heapq.heappop(heap)
        return None

    def _insert(self, entry: Entry[K, M], now: float) -> None:
        self._entries[entry.key] = entry
        self._place(entry, now)

    def _move(self, entry: Entry[K, M], at: float, message: M, now: float) -> None:
        entry.message = message
        if at != entry.at:
            entry.at = at
            self._place(entry, now)
            self._compact()

    def _place(self, entry: Entry[K, M], now: float) -> None:
        if entry.at <= now:
            self._promote(now)  # those that were due before this one go first
            entry.place = READY
            self._ready.append(entry)
        else:
            heapq.heappush(self._heap, (entry.at, next(self._order), entry))

    def _promote(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, entry = heapq.heappop(heap)
            if entry.place == WAITING and entry.at == at:
                entry.place = READY
                self._ready.append(entry)

    def _compact(self) -> None:
        """Moves and removals leave stale items behind; drop them before they outnumber the live ones."""
        if self._removed_ready > 64 and 2 * self._removed_ready > len(self._ready):
            self._ready = deque(entry for entry in self._ready if entry.place == READY)
            self._removed_ready = 0
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._entries):
            self._heap = [(at, order, entry) for at, order, entry in self._heap
                          if entry.place == WAITING and entry.at == at]
            heapq.heapify(self._heap)
