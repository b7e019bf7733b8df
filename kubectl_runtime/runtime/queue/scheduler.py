"""`Scheduler`: when each key runs. Pure: no clock, lock or thread; its owner passes the time and serialises the calls.

There is at most one entry per key, in one of four places:

    waiting   in the heap until `at`
    limited   due, but a retry that waits for the rate limit: oldest first
    ready     due, in the lane of its class, oldest due time first
    held      due, but its key is running, so it must not block other keys; `release` puts it first in its lane

    input            no entry      waiting                            limited                ready, held
    add(at)          -> waiting    earlier: moved, message replaced;  not a retry: -> ready  dropped: it runs now anyway
                     or ready      else dropped                       else dropped
    add(retry)       the same, -> limited instead of ready; an entry with a trigger or a timer is no retry
    trigger          -> waiting    moved to now + debounce, later or  -> ready               dropped
                     or ready      earlier, but never past the limit
    pop_due          nothing       when due -> ready, limited         the limit allows it:   -> gone, or ready -> held
                                                                      -> ready               if its key runs
    remove           nothing       -> gone                            -> gone                -> gone

There are two classes. *Background* entries (the initial list, a resync, requests that are `bulk`) run when no *urgent*
entry is due, and at every `BACKGROUND_TURN`-th turn, so that neither class starves. If an urgent request joins a
background entry, the entry becomes urgent; a ready entry then moves to the end of the urgent lane. If an entry's
requests carry nothing new, `to_background` moves the entry to the background class.

The *limit* makes debouncing safe. It is the earliest of these times: the first trigger's time plus the maximum wait,
and each exact time that was requested. The limit only decreases and `at` never exceeds it, so a key that is triggered
without end still runs.

An entry that leaves its lane or the heap is not removed at once: its item remains as a stale item. Stale items are
skipped, and are removed before they outnumber the live items.
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
"""The places of an entry, as in the module's table; a GONE entry has left the scheduler."""

NO_ITEM = -1


class Entry(Generic[K, M]):
    """A scheduled key: its message (the request that decided the time), the time at which it runs, and its class.

    Only the scheduler changes an entry until it pops the entry.
    """

    __slots__ = ("at", "background", "further", "item", "key", "limit", "message", "place", "retry")

    def __init__(self, key: K, message: M, at: float, limit: float, background: bool, retry: bool,
                 place: int = WAITING) -> None:
        self.key = key
        self.message = message
        self.at = at
        self.limit = limit
        self.background = background
        self.retry = retry
        """Whether only a failure requested this run."""
        self.place = place
        self.item = NO_ITEM
        """The number of the entry's current item in the heap, which may also have stale items of the entry; NO_ITEM if
        the entry does not wait."""
        self.further: Sequence[Any] | None = None
        """The owner's notes about messages that joined the entry. The scheduler does not use them."""


FEW = 64
"""Up to this number, stale items are not worth sweeping out."""


class Lane(Generic[K, M]):
    """The entries in one place, in the order of their arrival; for example, the ready entries of one class."""

    __slots__ = ("_is_background", "_place", "items", "left")

    def __init__(self, place: int, background: bool | None = None) -> None:
        """An entry belongs to this lane while it is at `place` and, if `background` is not None, of that class."""
        self._place = place
        self._is_background = background
        self.items: deque[Entry[K, M]] = deque()
        """The waiting entries, among stale items. If the deque is empty, no entry waits."""
        self.left = 0
        """How many of the items are stale."""

    def __len__(self) -> int:
        """How many entries wait here."""
        return len(self.items) - self.left

    def pop(self) -> Entry[K, M] | None:
        """Remove and return the entry that has waited longest; None if no entry waits."""
        items, place, background = self.items, self._place, self._is_background
        while items:
            entry = items.popleft()
            if entry.place == place and (background is None or entry.background is background):
                return entry
            self.left -= 1
        return None

    def first(self, most: int) -> list[Entry[K, M]]:
        """Up to `most` entries of this lane, the longest wait first. Examines at most `4 * most` items, so the result
        may have fewer entries if many items are stale."""
        return [entry for entry in islice(self.items, 4 * most) if self._belongs(entry)][:most]

    def leave(self) -> None:
        """Record that an entry has left this lane, so that its item is stale."""
        self.left += 1
        if self.left > FEW and 2 * self.left > len(self.items):
            self.items = deque(entry for entry in self.items if self._belongs(entry))
            self.left = 0

    def clear(self) -> None:
        """Forget all entries."""
        self.items.clear()
        self.left = 0

    def _belongs(self, entry: Entry[K, M]) -> bool:
        return entry.place == self._place and self._is_background in (None, entry.background)


T = TypeVar("T")

VISITS = 8
"""How many items are looked at for each requested item."""


def soonest(heap: Sequence[tuple[float, int, T]], most: int, wanted: Callable[[int, T], bool]) -> list[T]:
    """Up to `most` items of a heap of (time, order, item) for which `wanted(order, item)` is true, soonest first.

    Returns fewer if too many other items come before them. The time taken depends on `most`, not on the heap's size.
    """
    found: list[T] = []
    ahead = [(heap[0][:2], 0)] if heap else []
    for _ in range(VISITS * most):  # a heap's smallest item is its root; the next items lie just below
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
"""In seconds. Longer delays are clamped to this value, since waits of decades overflow."""

MAX_WAIT_FACTOR = 10
"""The default maximum wait of a debounced key, as a multiple of the debounce."""

BACKGROUND_TURN = 8
"""One in this many runs is of the background class, however many urgent keys are due."""


class Scheduler(Generic[K, M]):
    """A delay queue with one entry per key. Times are seconds of one monotonic clock."""

    def __init__(self, *, debounce: float = 0.0, max_wait: float | None = None,
                 rate_limit: RetryRateLimit | None = None) -> None:
        """`debounce`: a triggered key runs after this many seconds without a trigger, but waits at most `max_wait`
        (default: 10 debounces). `rate_limit` holds back retries; None holds back nothing."""
        if debounce < 0 or (max_wait is not None and max_wait < debounce):
            raise ValueError(f"debounce must be at least 0 and at most max_wait, not {debounce} and {max_wait}")
        self._debounce = debounce
        self._max_wait = max_wait if max_wait is not None else MAX_WAIT_FACTOR * debounce
        self._rate_limit = rate_limit
        self._entries: dict[K, Entry[K, M]] = {}
        self.entry = self._entries.get
        """`entry(key)`: the entry of `key`, read-only; None if nothing is scheduled for `key`."""
        self._heap: list[tuple[float, int, Entry[K, M]]] = []
        self._urgent: Lane[K, M] = Lane(READY, background=False)
        self._background: Lane[K, M] = Lane(READY, background=True)
        self._limited: Lane[K, M] = Lane(LIMITED)
        self._urgent_in_a_row = 0
        self._items = count()
        self.waiting_retries = 0
        """How many waiting entries are retries."""

    def __len__(self) -> int:
        """How many keys have an entry."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def keys(self) -> list[K]:
        """All keys that have an entry."""
        return list(self._entries)

    def due_at(self, key: K) -> float | None:
        """The time at which `key` is scheduled to run; None if nothing is scheduled for it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.at

    @property
    def held_back(self) -> int:
        """How many retries are due and wait for the rate limit."""
        return len(self._limited)

    def first(self, most: int) -> tuple[list[Entry[K, M]], list[Entry[K, M]]]:
        """Up to `most` ready entries, urgent first, and up to `most` waiting entries that are not retries."""
        urgent = self._urgent.first(most)
        waiting = soonest(self._heap, most,
                          lambda item, entry: entry.item == item and not entry.retry)
        return urgent + self._background.first(most - len(urgent)), waiting

    def trigger(self, key: K, message: M, now: float, *, background: bool = False) -> None:
        """Something changed: run `key` now, or after the debounce."""
        entry = self._entries.get(key)
        if entry is None:
            if self._debounce:
                self._insert(Entry(key, message, now + self._debounce, now + self._max_wait, background, False), now)
                return
            if self._heap or self._limited.items:
                self._promote(now)  # entries that were due before this one go first
            self._entries[key] = entry = Entry(key, message, now, now, background, False, READY)
            (self._background if background else self._urgent).items.append(entry)
            return
        self._join(entry, message, background)
        if entry.at > now:  # only an entry that is not due yet is postponed
            entry.limit = min(entry.limit, now + self._max_wait)
            self._move(entry, min(now + self._debounce, entry.limit), message, now)

    def add(self, key: K, message: M, at: float, now: float, *, background: bool = False, retry: bool = False) -> None:
        """Run `key` no later than `at`. A time in the past means now; a time too far in the future is clamped.

        When a `retry` is due, it must also pass the rate limit.
        """
        at = min(max(at, now), now + MAX_DELAY)
        entry = self._entries.get(key)
        if entry is None:
            self._insert(Entry(key, message, at, at, background, retry), now)
            return
        if not retry:
            self._join(entry, message, background)
        if entry.at > now:
            entry.limit = min(entry.limit, at)
            if at < entry.at:
                self._move(entry, at, message, now)

    def pop_due(self, now: float, running: Container[K]) -> Entry[K, M] | None:
        """Take out the next due entry whose key is not `running`; None if there is no such entry."""
        if self._heap or self._limited.items:
            self._promote(now)
        background = self._background
        while True:
            turn = self._urgent_in_a_row >= BACKGROUND_TURN - 1 and background.items and len(background)
            entry = (background if turn else self._urgent).pop() or background.pop()
            if entry is None:
                return None
            if entry.key in running:
                entry.place = HELD
                continue
            self._urgent_in_a_row = 0 if entry.background else self._urgent_in_a_row + 1
            entry.place = GONE
            del self._entries[entry.key]
            return entry

    def release(self, key: K) -> None:
        """Record that the run of `key` has ended. A held entry of `key` becomes the first in its lane."""
        entry = self._entries.get(key)
        if entry is not None and entry.place == HELD:
            entry.place = READY
            self._lane_of(entry).items.appendleft(entry)

    def to_background(self, key: K) -> None:
        """The pending requests turned out to carry nothing new: if the entry is due, move it to the end of the
        background lane. To be called before `release`, for a key whose run has ended.
        """
        entry = self._entries.get(key)
        if entry is None or entry.place not in (READY, HELD):
            return
        place, entry.place = entry.place, GONE  # set before `leave`, which may remove the stale items
        if place == READY:
            self._lane_of(entry).leave()
        # Replace the entry by a new one, because both lanes may have stale items of the old entry.
        moved = self._entries[key] = Entry(key, entry.message, entry.at, entry.limit, True, entry.retry)
        moved.further = entry.further
        self._make_ready(moved)

    def remove(self, key: K) -> bool:
        """Forget the entry of `key`; returns whether there was an entry."""
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
        """Forget all entries; returns how many there were."""
        dropped = len(self._entries)
        self._entries.clear()
        self._heap.clear()
        self.waiting_retries = 0
        for lane in (self._urgent, self._background, self._limited):
            lane.clear()
        return dropped

    def ready_count(self, now: float) -> int:
        """How many entries are ready, including entries whose key is running now (only `pop_due` sets these aside)."""
        if self._heap or self._limited.items:
            self._promote(now)
        urgent, background = self._urgent, self._background
        return len(urgent.items) - urgent.left + len(background.items) - background.left

    def next_due(self) -> float | None:
        """When the next waiting or limited entry becomes ready; None if there is no such entry. Entries that are ready,
        or held because their key is running, do not count."""
        heap, limited = self._heap, None
        if self._limited.items and self._rate_limit is not None and len(self._limited):
            limited = self._rate_limit.next_at()
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

    def _join(self, entry: Entry[K, M], message: M, background: bool) -> None:
        """Merge a request that is not a retry into `entry`."""
        self.waiting_retries -= entry.retry and entry.place == WAITING
        entry.retry = False
        if entry.background and not background:
            if entry.place == READY:
                entry.background = False
                self._background.leave()
                self._urgent.items.append(entry)
            entry.background = False
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
        """Put an entry that is new, or has a new time, into the heap or a lane."""
        entry.item = NO_ITEM  # set first, so that `_promote` ignores the entry's old item in the heap
        if entry.at <= now:
            if self._heap or self._limited.items:
                self._promote(now)  # entries that were due before this one go first
            self._due(entry)
            if entry.place == LIMITED:
                self._admit(now)
        else:
            entry.item = next(self._items)
            heapq.heappush(self._heap, (entry.at, entry.item, entry))

    def _promote(self, now: float) -> None:
        """Move due entries to their lanes. Called several times for each key, mostly with nothing to do."""
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
        """Make as many retries ready as the rate limit allows."""
        limited = self._limited
        while self._rate_limit is not None and len(limited) and self._rate_limit.take(now):
            entry = limited.pop()
            if entry is not None:
                self._make_ready(entry)

    def _make_ready(self, entry: Entry[K, M]) -> None:
        entry.place = READY
        self._lane_of(entry).items.append(entry)

    def _lane_of(self, entry: Entry[K, M]) -> Lane[K, M]:
        return self._background if entry.background else self._urgent

    def _compact(self) -> None:
        """Drop the stale items that moves and removals leave behind, before they outnumber the live items."""
        if len(self._heap) > FEW and len(self._heap) > 2 * len(self._entries):
            self._heap = [(at, item, entry) for at, item, entry in self._heap if entry.item == item]
            heapq.heapify(self._heap)
