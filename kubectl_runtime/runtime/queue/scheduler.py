"""`Scheduler`: which key is to run when. Pure: no clock, lock or thread; its owner passes the time, serialises calls.

One entry per key, in one of four places:

    waiting   in the heap until `at`
    limited   due, but a retry, of which the rate limit lets only some begin: oldest first
    ready     due, in the lane of its class, oldest due time first
    held      due, but its key runs: set aside so that it blocks nobody, put at the head of its lane by `release`

    input            no entry      waiting                            limited                ready, held
    add(at)          -> waiting    earlier: moved, message replaced;  not a retry: -> ready  dropped: it runs now anyway
                     or ready      else dropped                       else dropped
    add(retry)       the same, -> limited instead of ready; with a trigger or timer in one entry it is a retry no longer
    trigger          -> waiting    moved to now + debounce, later or  -> ready               dropped
                     or ready      earlier, but never past the limit
    pop_due          nothing       when due -> ready, limited         the limit lets it:     -> gone, or ready -> held
                                                                      -> ready               if its key runs
    remove           nothing       -> gone                            -> gone                -> gone

There are two classes. Keys of the *bulk* class (the initial list, a resync) run when no *fresh* one is due, and every
`BULK_TURN`-th time all the same, so that neither starves. An entry that a fresh request joins is fresh from then on, at
the end of the fresh lane if it was ready; the other way round nothing changes, unless its owner finds that nothing new
was among the requests (`to_bulk`): it goes to the end of the bulk lane.

The *limit* is what makes debouncing safe: it is the earliest of first trigger + maximum wait and of every exact time
asked for, only ever decreases, and `at` never exceeds it. A key that is triggered for ever still runs.

`Lane`: a queue of a scheduler's entries from which one in the middle can leave without a search.

What leaves stays where it stood and is passed over later; before such items outnumber the live ones they are swept out.
Nothing moves in a lane, so order is the order of arrival.

`soonest`: the first items of a heap, without taking them out or sorting it.

`Entry`: what a `Scheduler` keeps of one key that is to run, and the places where it can be.
"""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container, Hashable, Sequence
from itertools import count, islice
from typing import Any, Generic, TypeVar

from kubectl_runtime.runtime.queue.runs import RetryRateLimit

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")

WAITING, LIMITED, READY, HELD, GONE = range(5)
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


T = TypeVar("T")

VISITS = 8
"""Items that are looked at for each one that is asked for."""


def soonest(heap: Sequence[tuple[float, int, T]], most: int, wanted: Callable[[int, T], bool]) -> list[T]:
    """Up to `most` of a heap of (time, order, item) for which `wanted(order, item)`, soonest first; fewer where too
    many others come before them. Takes time in proportion to `most`, however large the heap is."""
    found: list[T] = []
    ahead = [(heap[0][:2], 0)] if heap else []
    for _ in range(VISITS * most):  # the smallest of a heap is its root; what follows an item lies just below it
        if not ahead or len(found) == most:
            break
        (_at, order), place = heapq.heappop(ahead)
        if wanted(order, heap[place][2]):
            found.append(heap[place][2])
        for below in (2 * place + 1, 2 * place + 2):
            if below < len(heap):
                heapq.heappush(ahead, (heap[below][:2], below))
    return found


MAX_DELAY = 180 * 24 * 3600.0
"""Seconds; what is asked for later is clamped to this (timers of decades overflow what waits for them)."""

MAX_WAIT_FACTOR = 10
"""The default maximum wait of a debounced key, in debounces."""

BULK_TURN = 8
"""Of so many runs one is of the bulk class, however many fresh keys are due."""


class Scheduler(Generic[K, M]):
    """A delay queue with one entry per key. Times are seconds of one monotonic clock."""

    def __init__(self, *, debounce: float = 0.0, max_wait: float | None = None,
                 rate_limit: RetryRateLimit | None = None) -> None:
        """`debounce`: seconds of quiet before a triggered key runs, but at most `max_wait` (default: 10 debounces).
        `rate_limit`: holds retries back; None: nothing does."""
        if debounce < 0 or (max_wait is not None and max_wait < debounce):
            raise ValueError(f"debounce must be at least 0 and at most max_wait, not {debounce} and {max_wait}")
        self._debounce = debounce
        self._max_wait = max_wait if max_wait is not None else MAX_WAIT_FACTOR * debounce
        self._rate_limit = rate_limit
        self._entries: dict[K, Entry[K, M]] = {}
        self.entry = self._entries.get
        """`entry(key)`: its entry, to look at; None when nothing is scheduled for it."""
        self._heap: list[tuple[float, int, Entry[K, M]]] = []
        self._fresh: Lane[K, M] = Lane(READY, bulk=False)
        self._bulk: Lane[K, M] = Lane(READY, bulk=True)
        self._limited: Lane[K, M] = Lane(LIMITED)
        self._fresh_in_a_row = 0
        self._items = count()
        self.waiting_retries = 0
        """How many of those that wait for their time are retries."""

    def __len__(self) -> int:
        """How many keys have an entry."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def keys(self) -> list[K]:
        """All keys that have an entry."""
        return list(self._entries)

    def due_at(self, key: K) -> float | None:
        """When `key` is to run, or None when nothing is scheduled for it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.at

    @property
    def held_back(self) -> int:
        """How many retries are due and wait for the rate limit."""
        return len(self._limited)

    def first(self, most: int) -> tuple[list[Entry[K, M]], list[Entry[K, M]]]:
        """Up to `most` that are ready, fresh ones first; up to `most` that wait and are not retries (see `soonest`)."""
        fresh = self._fresh.first(most)
        waiting = soonest(self._heap, most,
                          lambda item, entry: entry.item == item and not entry.retry)
        return fresh + self._bulk.first(most - len(fresh)), waiting

    def trigger(self, key: K, message: M, now: float, *, bulk: bool = False) -> None:
        """Something changed: run `key` now, or after the debounce."""
        entry = self._entries.get(key)
        if entry is None:
            if self._debounce:
                self._insert(Entry(key, message, now + self._debounce, now + self._max_wait, bulk, retry=False), now)
                return
            if self._heap or self._limited.items:
                self._promote(now)  # those that were due before this one go first
            self._entries[key] = entry = Entry(key, message, now, now, bulk, False, READY)
            (self._bulk if bulk else self._fresh).items.append(entry)
            return
        self._join(entry, message, bulk)
        if entry.at > now:  # one that is due is never put off
            entry.limit = min(entry.limit, now + self._max_wait)
            self._move(entry, min(now + self._debounce, entry.limit), message, now)

    def add(self, key: K, message: M, at: float, now: float, *, bulk: bool = False, retry: bool = False) -> None:
        """Run `key` at the time `at` (a time in the past is now; one too far away is clamped), and not later.

        A `retry` passes the rate limit when its time has come.
        """
        at = min(max(at, now), now + MAX_DELAY)
        entry = self._entries.get(key)
        if entry is None:
            self._insert(Entry(key, message, at, at, bulk, retry), now)
            return
        if not retry:
            self._join(entry, message, bulk)
        if entry.at > now:
            entry.limit = min(entry.limit, at)
            if at < entry.at:
                self._move(entry, at, message, now)

    def pop_due(self, now: float, running: Container[K]) -> Entry[K, M] | None:
        """Take out the entry whose turn it is and whose key is not `running`; None when there is none."""
        if self._heap or self._limited.items:
            self._promote(now)
        bulk = self._bulk
        while True:
            turn = self._fresh_in_a_row >= BULK_TURN - 1 and bulk.items and len(bulk)
            entry = (bulk if turn else self._fresh).pop() or bulk.pop()
            if entry is None:
                return None
            if entry.key in running:
                entry.place = HELD
                continue
            self._fresh_in_a_row = 0 if entry.bulk else self._fresh_in_a_row + 1
            entry.place = GONE
            del self._entries[entry.key]
            return entry

    def release(self, key: K) -> None:
        """`key` does not run any more: if an entry was held for it, that one is next of its class."""
        entry = self._entries.get(key)
        if entry is not None and entry.place == HELD:
            entry.place = READY
            self._lane_of(entry).items.appendleft(entry)

    def to_bulk(self, key: K) -> None:
        """What asked for `key`'s entry is no news after all: if it is due, it goes to the end of the bulk class.

        For a key that does not run any more, instead of `release`.
        """
        entry = self._entries.get(key)
        if entry is None or entry.place not in (READY, HELD):
            return
        place, entry.place = entry.place, GONE  # first: `leave` may sweep out who does not belong to the lane
        if place == READY:
            self._lane_of(entry).leave()
        # A new entry, since the old one may have left traces in both lanes.
        moved = self._entries[key] = Entry(key, entry.message, entry.at, entry.limit, True, entry.retry)
        moved.further = entry.further
        self._make_ready(moved)

    def remove(self, key: K) -> bool:
        """Forget `key`'s entry; whether there was one."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        place, entry.place, entry.item = entry.place, GONE, NO_ITEM
        if place == WAITING:
            self.waiting_retries -= entry.retry
        elif place == READY:
            self._lane_of(entry).leave()
        elif place == LIMITED:
            self._limited.leave()
        self._compact()
        return True

    def clear(self) -> int:
        """Forget everything; how many entries there were."""
        dropped = len(self._entries)
        self._entries.clear()
        self._heap.clear()
        self.waiting_retries = 0
        for lane in (self._fresh, self._bulk, self._limited):
            lane.clear()
        return dropped

    def ready_count(self, now: float) -> int:
        """How many entries are ready (their key may have begun to run since; `pop_due` looks)."""
        if self._heap or self._limited.items:
            self._promote(now)
        fresh, bulk = self._fresh, self._bulk
        return len(fresh.items) - fresh.left + len(bulk.items) - bulk.left

    def next_due(self) -> float | None:
        """When the next entry becomes ready by itself; None when none does. What is ready or held is not counted."""
        heap = self._heap
        limited = self._rate_limit.next_at() if self._rate_limit is not None and len(self._limited) else None
        while heap:
            at, item, entry = heap[0]
            if entry.item == item:
                return at if limited is None else min(at, limited)
            heapq.heappop(heap)
        return limited

    def _insert(self, entry: Entry[K, M], now: float) -> None:
        self._entries[entry.key] = entry
        self.waiting_retries += entry.retry and entry.at > now
        self._place(entry, now)

    def _join(self, entry: Entry[K, M], message: M, bulk: bool) -> None:
        """A request that is not a retry came to an entry."""
        self.waiting_retries -= entry.retry and entry.place == WAITING
        entry.retry = False
        if entry.bulk and not bulk:
            if entry.place == READY:
                entry.bulk = False
                self._bulk.leave()
                self._fresh.items.append(entry)
            entry.bulk = False
        if entry.place == LIMITED:
            entry.message = message
            self._make_ready(entry)
            self._limited.leave()

    def _move(self, entry: Entry[K, M], at: float, message: M, now: float) -> None:
        entry.message = message
        if at != entry.at:
            entry.at = at
            self.waiting_retries -= entry.retry and at <= now
            self._place(entry, now)
            self._compact()

    def _place(self, entry: Entry[K, M], now: float) -> None:
        """Bring an entry that is new, or has another time than before, to where it belongs."""
        entry.item = NO_ITEM  # first: what it had in the heap must not bring it to a lane as well
        if entry.at <= now:
            if self._heap or self._limited.items:
                self._promote(now)  # those that were due before this one go first
            self._due(entry)
            if entry.place == LIMITED:
                self._admit(now)
        else:
            entry.item = next(self._items)
            heapq.heappush(self._heap, (entry.at, entry.item, entry))

    def _promote(self, now: float) -> None:
        """Bring what is due to its lane. Called for each key several times, mostly with nothing to do."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, item, entry = heapq.heappop(heap)
            if entry.item == item:
                entry.item = NO_ITEM
                self.waiting_retries -= entry.retry
                self._due(entry)
        if self._limited.items:
            self._admit(now)

    def _due(self, entry: Entry[K, M]) -> None:
        if entry.retry and self._rate_limit is not None:
            entry.place = LIMITED
            self._limited.items.append(entry)
        else:
            self._make_ready(entry)

    def _admit(self, now: float) -> None:
        """Let as many retries begin as the rate limit does."""
        limited = self._limited
        while self._rate_limit is not None and len(limited) and self._rate_limit.take(now):
            entry = limited.pop()
            if entry is not None:
                self._make_ready(entry)

    def _make_ready(self, entry: Entry[K, M]) -> None:
        entry.place = READY
        self._lane_of(entry).items.append(entry)

    def _lane_of(self, entry: Entry[K, M]) -> Lane[K, M]:
        return self._bulk if entry.bulk else self._fresh

    def _compact(self) -> None:
        """Moves and removals leave stale items behind; drop them before they outnumber the live ones."""
        if len(self._heap) > FEW and len(self._heap) > 2 * len(self._entries):
            self._heap = [(at, item, entry) for at, item, entry in self._heap if entry.item == item]
            heapq.heapify(self._heap)
