"""Failures of keys: how often each has failed in a row, how long it waits then, and which writes it made while failing.

    failure of the first run, or of a retry   count + 1; waits `KeyBackoff.delay(count)`
    failure of a run that a trigger made      count kept: much that changes does not make a key worse
    failure of another generation or uid      count 1: what failed before was something else
    success, gone                             state dropped: the next failure is the first
    trigger                                   count kept: a key does not become healthy by being looked at
    its own event                             recognised by `is_own_event`, so that it does not bring the retry forward

Pure; the owner serialises calls. Numbers: client-go's per-item limiter (5 ms doubling up to 1000 s), jittered here.

`RetryRateLimit`: how many retries of one controller may begin, all its failing keys together. Pure: no clock, no lock.

A dependency that is down makes every key fail. Each key backs off by itself, but thousands of keys that each wait
their turn are still a flood, and those that were put off for minutes would be late once the dependency is back. So:

    tokens   one for each retry that begins; at most `BURST` are saved up, `rate` come back a second
    rate     begins at the lowest; a retry that succeeds doubles it as long as retries are held back, one that fails
             halves it, never below the lowest; from `OPEN` on nothing is held back

No time is reserved for a key that waits, so that a new rate holds for all of them at once. (client-go's bucket reserves
times in advance: the last of 10,000 failing keys waits a quarter of an hour, even if the first ones succeed meanwhile.)
Triggers are not held back.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.queue.own_writes import Version

K = TypeVar("K", bound=Hashable)

MAX_REMEMBERED_WRITES = 10_000
"""Per failing key; older ones are forgotten, and the event of such a write counts as a change by somebody else."""

MAX_REMEMBERED_IN_ALL = 200_000
"""By one controller (about 50 MB); beyond that, the keys that have failed longest forget theirs."""


@dataclass(frozen=True, slots=True)
class KeyBackoff(Backoff):
    """How long a failing key waits: `initial` times `factor` per further failure, at most `maximum`.

    Each delay is drawn from ((1 - jitter) d, d], so that keys which failed together do not come back together.
    Durations are seconds or `timedelta`. Raises RequestError when a number makes no sense.

    >>> backoff = KeyBackoff(initial=1, maximum=timedelta(minutes=5))
    >>> controller = Controller(Api.all(client, ConfigMap), backoff=backoff)
    """

    initial: Duration = 0.005
    maximum: Duration = 1000.0
    jitter: float = 0.5


DEFAULT_KEY_BACKOFF = KeyBackoff()


class Subject(msgspec.Struct, frozen=True, gc=False):
    """What a run reconciled: an object, and the generation of its spec where its kind counts them."""

    uid: str
    generation: int | None = None

    @classmethod
    def of(cls, record: Record) -> Subject:
        """Of one whose head did not decode only the uid counts."""
        return cls(record.uid, None if record.problem is not None else record.head.generation)

    def differs_from(self, other: Subject) -> bool:
        """Whether it is another object, or its spec was changed: kinds without generation never say the latter."""
        counted = self.generation is not None and other.generation is not None
        return self.uid != other.uid or (counted and self.generation != other.generation)


@dataclass(slots=True)
class FailureState:
    """A key that failed the last time it ran."""

    count: int = 0
    writes: dict[Version, None] = field(default_factory=dict)
    waits_beyond: frozenset[str] = frozenset()
    """The resourceVersions that a terminal error is about; see `Run.has_nothing_new`."""
    subject: Subject | None = None
    foreign: int = 0
    """How many of the last failing runs in a row had writes that changed nothing and were answered with a new version.
    """
    told: object = None
    """What the log was told."""


class Failures(Generic[K]):
    """The failing keys of one controller; a key that does not fail costs nothing."""

    def __init__(self) -> None:
        self.states: dict[K, FailureState] = {}
        """Not to be changed by others."""
        self._remembered = 0

    def __len__(self) -> int:
        """How many keys are failing."""
        return len(self.states)

    def keys(self) -> Iterable[K]:
        """The keys that failed the last time they ran."""
        return self.states

    def first(self, most: int) -> list[tuple[K, FailureState]]:
        """Up to `most` of them, those that have failed longest."""
        return list(islice(self.states.items(), most))

    def get(self, key: K) -> FailureState | None:
        """How `key` fails; None when it does not."""
        return self.states.get(key)

    def failed(self, key: K, count: int, writes: dict[Version, None]) -> FailureState:
        """`key` failed, the `count`-th time in a row, and its run made these versions."""
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = FailureState()
        state.count = count
        self._remember(state, writes)
        return state

    def forget(self, key: K) -> None:
        """`key` succeeded, or its object is gone."""
        state = self.states.pop(key, None)
        if state is not None:
            self._remembered -= len(state.writes)

    def is_own_event(self, key: K, cause: Version | None) -> bool:
        """Whether a change to this version is one that `key` itself made while it was failing."""
        state = self.states.get(key)
        return state is not None and cause is not None and is_own(cause, state.writes)

    def _remember(self, state: FailureState, writes: dict[Version, None]) -> None:
        before = len(state.writes)
        state.writes.update(writes)
        for version in list(state.writes)[:-MAX_REMEMBERED_WRITES] if len(state.writes) > MAX_REMEMBERED_WRITES else ():
            del state.writes[version]
        self._remembered += len(state.writes) - before
        if self._remembered > MAX_REMEMBERED_IN_ALL:
            for other in self.states.values():
                if other is not state and self._remembered > MAX_REMEMBERED_IN_ALL:
                    self._remembered -= len(other.writes)
                    other.writes.clear()

    def clear(self) -> None:
        """Forget all."""
        self.states.clear()
        self._remembered = 0


def is_own(cause: Version, writes: Mapping[Version, None]) -> bool:
    """Whether the change to version `cause` is among `writes`, or is the end of an object that they deleted."""
    return cause in writes or (cause[0], "") in writes


RETRY_RATE = 10.0
"""Retries a second while runs fail, as client-go's default bucket has them."""

BURST = 100
"""Retries that may begin at once after a time without any; client-go's as well."""

OPEN = 100_000.0
"""Retries a second: more than any queue hands out."""

_ROUNDING = 1e-6
"""A token that is so nearly there counts: the time at which it is due was computed from its missing share."""


class RetryRateLimit:
    """Limits how many retries begin in a second while runs fail. Times are seconds of one monotonic clock; its owner
    serialises the calls."""

    def __init__(self, rate: float = RETRY_RATE) -> None:
        """`rate`: the lowest, in retries a second. Raises RequestError when it is not a positive number."""
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise RequestError(f"retry_rate is the retries a second while runs fail, or None for no limit; "
                               f"not {rate!r}")
        self._lowest = float(rate)
        self._rate = self._lowest
        self._tokens = float(BURST)
        self._as_of: float | None = None

    def take(self, now: float) -> bool:
        """Whether a retry may begin now; then it counts."""
        if self._rate >= OPEN:
            return True
        self._refill(now)
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def next_at(self) -> float:
        """When `take` says yes again if nothing changes."""
        as_of = self._as_of or 0.0
        return as_of if self._rate >= OPEN else as_of + max(0.0, 1 - self._tokens) / self._rate

    def succeeded(self, now: float, *, holding: bool) -> None:
        """A retry succeeded; `holding`: others are held back."""
        if holding:
            self._refill(now)
            self._rate = min(OPEN, 2 * self._rate)

    def failed(self, now: float) -> None:
        """A retry failed."""
        self._refill(now)
        self._rate = max(self._lowest, self._rate / 2)

    def _refill(self, now: float) -> None:
        if self._as_of is not None and now > self._as_of:
            self._tokens = min(float(BURST), self._tokens + (now - self._as_of) * self._rate)
        self._as_of = now if self._as_of is None else max(now, self._as_of)
