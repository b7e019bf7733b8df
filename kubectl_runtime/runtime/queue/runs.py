"""`Run`: one execution of the reconciler for one key, and `Outcome`: how it ended.

A run also collects what is written through the client in its scope (see `core.scope`), which `record_write` reports.
It is made by the thread that works for it, and keeps that thread's id. A write by a thread that a reconciler started
belongs to no run, unless the thread has a copy of the run's context.

`RunHistory`: the last runs of one controller, and its slowest keys. Pure; its owner serialises the calls.

    recent    the last `RECENT` runs that have ended
    slowest   the `SLOWEST` keys with the longest runs of the last hour, each with its longest one

What is kept of a run is a row of plain values: neither its object, nor its error, nor anything that these refer to. A
run costs about 0.25 µs here, whether anybody looks or not.

What a key may ask for in a row: to run again at once, and to have lost against somebody else. Pure functions.

    in a row                    1      2      3      4      5      6 and more
    asks for less than 0.1 s    5 ms   10     20     40     80     100 ms, or what it asks if that is more
    a conflict                  5 ms   10     20     40     80     an ordinary failure

The first is for a reconciler that polls something: ten times a second is often enough, and one that always asks for 0
would otherwise keep a processor busy. 0.1 s or more are kept as asked, and end the row. A conflict is not a failure:
the object has changed since it was read, the watch is about to say so, and the next run works on the newer one. Five
conflicts in a row count as a failure. The delays of conflicts are jittered, so that two writers which disturb each
other do not retry at the same moments.

A key in a loop (see `LoopDetector`) waits 0.1 s after each run, whatever asks for the next one: what loops keeps
neither a processor nor the API server busy. Changes in this time are seen by the run that follows.

Failures of keys: how often each has failed in a row, how long it waits then, and which writes it made while failing.

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

import random
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import current_run
from kubectl_runtime.runtime.queue.own_writes import RunWrites, Version
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

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
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < float("inf"):
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


Known = Callable[[ObjectRef], Record | None]
"""How an object is stored at this moment by the controller; None when it is not."""


class Requeued(str):
    """A reason of a request that comes from nothing but time: a run asked for it."""

    __slots__ = ()


RETRIED = Requeued("tried again after a failure")


@lru_cache(maxsize=512)  # most programs have a few delays; one text serves all keys
def requeued_after(delay: float) -> Requeued:
    """The reason of a run that the one before asked for, `delay` seconds before."""
    return Requeued(f"asked to run again after {delay:.4g} s")


class Streak(Enum):
    """What a key may do many times in a row without failing."""

    SOON = "it asks to run again at once"
    CONFLICT = "somebody else was faster"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and when the key is to run again (seconds from now; None: when something changes)."""

    delay: float | None = None
    result: RunResult = RunResult.SUCCESS
    error: BaseException | None = field(default=None, compare=False)
    """What made it fail."""
    own: dict[Version, None] | None = None
    """After a failure: the versions that the run made itself. None: all that its writes were answered."""
    waits_beyond: frozenset[str] = frozenset()
    """After a terminal error: the resourceVersions of the object that are no news."""
    streak: Streak | None = None
    delays_requeue: bool = False
    """Its key is in a loop: the next run has to wait, whatever asks for it."""
    told: object = None
    """After a failure: what the log was told of it, for the next run of this key."""

    @property
    def failed(self) -> bool:
        """Whether it counts as a failure."""
        return self.result in (RunResult.ERROR, RunResult.TERMINAL_ERROR)

    @property
    def keeps_failures(self) -> bool:
        """Whether the count of failures stays as it is: it says neither that the key works nor that it does not."""
        return self.result is RunResult.SKIPPED or self.streak is Streak.CONFLICT


SUCCEEDED = Outcome()
GONE = Outcome(result=RunResult.GONE)
"""There was no such object: nothing was reconciled, and as after a success nothing about the key is kept."""

SKIPPED = Outcome(result=RunResult.SKIPPED)
"""Nothing ran; what is known of the key's failures stays."""

MOST_FOREIGN = 3
"""Failures in a row with writes that seem to have met somebody else's change; from then on all answers are taken for
own changes: an admission webhook that puts the time into each write looks the same, and must not defeat the backoff."""

NO_WRITES = RunWrites()
"""Of a run that has written nothing."""


class Run:
    """A key that runs now. The queue makes it; while it runs, it belongs to the running thread.

    What most runs do not need is not an attribute of theirs but of the class.
    """

    failures = 0
    """Failures in a row before this run."""
    waits_beyond: frozenset[str] = frozenset()
    _written: Mapping[Version, None] = {}
    """What the runs of this key made while it was failing."""
    foreign = 0
    told: object = None
    depth = 0
    """How many keys were due when this one had been taken out."""
    retry = False
    """Nothing but the last failure asked for it."""
    bulk = False
    in_a_row: tuple[Streak, int] | None = None
    stop: StopToken | None = None
    """Where it has a time of its own: set when that is up, or with the shutdown."""
    writes = NO_WRITES
    triggered_itself = False
    """The reconciler has triggered its own key."""
    forgotten = False
    """The object was deleted meanwhile: the outcome says nothing about its successor."""
    record: Record | None = None
    """The object that it looks at."""
    latest: Record | None = None
    """The object as the server answered the last write of it in this run."""
    reads: dict[Any, Any] | None = None
    """What it has read, as far as that is a dependency, and of what only values matter (see `runtime.reads`)."""
    reads_over = False
    """It has ended: what is read by its context now is no dependency."""
    ends_reads = False
    """The object is cleaned up, so that it depends on nothing any more."""
    _subject: Subject | None = None
    quiet: Mapping[Version, None] = {}
    """The versions of its object that the library made on top of the one that the run was given."""
    waiting_for: tuple[str, ...] = ()
    """The children that are not ready, in words, in the order in which they were named."""

    def __init__(self, key: Key, request: ReconcileRequest, state: FailureState | None, started: float,
                 waited: float = 0.0, causes: Sequence[Version | None] | None = None, retry: bool = False,
                 bulk: bool = False, streak: tuple[Streak, int] | None = None) -> None:
        """`causes`: where there are others than the request's."""
        self.key = key
        self.request = request
        self.started = started
        self.waited = waited
        """Seconds since the key was due."""
        self._causes = causes
        self.thread_id = threading.get_ident()
        self.known: Known = _nothing
        if state is not None:
            self.failures, self._subject, self.waits_beyond = state.count, state.subject, state.waits_beyond
            self.told, self.foreign = state.told, state.foreign
            if state.waits_beyond:
                self._written = state.writes
        if retry:
            self.retry = True
        if bulk:
            self.bulk = True
        if streak is not None:
            self.in_a_row = streak

    @property
    def causes(self) -> Sequence[Version | None]:
        """The changes that led to it, None for an unknown one; empty when only time has passed."""
        return causes_of(self.request, self._causes)

    @property
    def subject(self) -> Subject | None:
        """What it looks at, or what failed before."""
        record = self.record
        if record is not None and self._subject is None:
            self._subject = Subject.of(record)
        return self._subject

    def has_nothing_new(self, record: Record) -> bool:
        """Whether a terminal error has said all there is to say: `record` is the version that it was about, and nothing
        asked for this run but changes of that object and of what the failed runs wrote."""
        return record.head.resource_version in self.waits_beyond and all(
            cause is not None and (cause[0] == record.head.uid or is_own(cause, self._written))
            for cause in self.causes)

    def looks_at(self, record: Record) -> None:
        """The object is this one now. Another generation or uid than what failed starts the count over."""
        before, self.record, self._subject = self._subject, record, None
        if self.failures and before is not None and Subject.of(record).differs_from(before):
            self.failures, self.told = 0, None

    @property
    def failures_if_it_fails(self) -> int:
        """Failures in a row if this run fails as well: a trigger's run does not raise the count."""
        asked = self.retry or not self.failures or self.times_in_a_row(Streak.CONFLICT)
        return self.failures + 1 if asked else self.failures

    def own_changes(self) -> dict[Version, None]:
        """The versions that the run made itself; see `MOST_FOREIGN`."""
        return self.writes.versions() if self.foreign >= MOST_FOREIGN else self.writes.changes()

    def times_in_a_row(self, streak: Streak) -> int:
        """How often the runs just before this one ended like that."""
        return self.in_a_row[1] if self.in_a_row is not None and self.in_a_row[0] is streak else 0

    def begins_write(self, ref: ObjectRef | None) -> None:
        """A write of the object `ref` (None: of a new one) is going to be sent: what is stored now is what it changes.
        When it is answered, the watch may have stored its outcome already."""
        begun = (None, None) if ref is None else (ref.key, self.known(ref))
        self._own_writes().begun[threading.get_ident()] = begun

    def wrote(self, write: Write) -> None:
        """The server answered a write of this run."""
        writes = self._own_writes()
        begun = writes.begun.pop(threading.get_ident(), None)
        known = begun is not None and begun[0] in (None, write.ref.key)
        writes.add(write, begun[1] if known and begun is not None else self.known(write.ref))
        record, subject = write.record, self.subject
        if record is not None and subject is not None and record.uid == subject.uid:
            self._subject = Subject.of(record)
            self.latest = record

    def is_given(self, uid: str, version: str) -> bool:
        """Whether the run knows this version of its object: it was given it, or the library made it for this run."""
        record = self.record
        return record is not None and record.uid == uid and (
            record.resource_version == version or (uid, version) in self.quiet)

    def wrote_quietly(self, uid: str, before: str, after: str) -> None:
        """The library itself has made version `after` of the object of this uid in place of `before`, for this run: if
        the run was given that version, the change leads to no other run."""
        if after != before and self.is_given(uid, before):
            self.quiet = {**self.quiet, (uid, after): None}

    def waits_for(self, *children: str) -> None:
        """These children, such as `Deployment web`, are not ready. The next run begins without any."""
        self.waiting_for = (*self.waiting_for, *(child for child in children if child not in self.waiting_for))

    def _own_writes(self) -> RunWrites:
        """Most runs write nothing, so that costs them nothing. Threads with a copy of the context may come at once."""
        writes: RunWrites = vars(self).setdefault("writes", RunWrites())
        return writes


Execute = Callable[[Run], Outcome]
"""Runs user code for one key. Never raises."""


def causes_of(request: ReconcileRequest, further: Sequence[Version | None] | None) -> Sequence[Version | None]:
    """All changes that led to `request`, where others joined it; without those it came from its own, or from time."""
    if further is not None:
        return further
    return () if isinstance(request.reason, Requeued) else (request.cause,)


def _nothing(_ref: ObjectRef) -> None:
    return None


def begin_write(ref: ObjectRef | None) -> None:
    """For `WriteObservers.begun`: this thread is going to write."""
    run = current_run()
    if run is not None:
        run.begins_write(ref)


def is_triggered(key: Key) -> None:
    """The program triggers `key` from this thread."""
    run = current_run()
    if run is not None and run.key == key:
        run.triggered_itself = True


def record_write(write: Write) -> None:
    """For `Client.on_write`: this thread wrote an object and was answered this version, whose event will come on a
    watch."""
    run = current_run()
    if run is not None:
        run.wrote(write)


RECENT = 50
SLOWEST = 20
LATELY = 3600.0
"""Seconds."""


class EndedRun(NamedTuple):
    """A run that has ended. Times are seconds of the controller's clock."""

    key: Key
    reason: str
    waited: float
    took: float
    ended: float
    result: RunResult
    told: object
    """After a failure: what the log knows of it."""


class RunHistory:
    """The last runs of a controller, and its slowest ones. Pure; its owner serialises the calls."""

    __slots__ = ("_floor", "_next_look", "_recent", "_slow", "failed", "runs")

    def __init__(self) -> None:
        self.runs = 0
        """How many have ended since the start."""
        self.failed = 0
        self._recent: deque[tuple[Key, str, float, float, float, RunResult, object]] = deque(maxlen=RECENT)
        self._slow: dict[Key, EndedRun] = {}
        self._floor = 0.0
        """A run that took no longer is not among the slowest."""
        self._next_look = inf
        """When the first of the slowest is no longer of late."""

    def ended(self, run: Run, outcome: Outcome, now: float) -> None:
        """`run` has ended at `now`."""
        took = now - run.started
        row = (run.key, run.request.reason, run.waited, took, now, outcome.result, outcome.told)
        self.runs += 1
        if outcome.error is not None:
            self.failed += 1
        self._recent.append(row)
        if took > self._floor or now >= self._next_look:
            self._add_slow(EndedRun._make(row))

    def recent(self, most: int) -> list[EndedRun]:
        """The last runs, up to `most`, the latest first."""
        return [EndedRun._make(row) for row in [*reversed(self._recent)][:most]]

    def slowest(self, most: int, now: float) -> list[EndedRun]:
        """The slowest runs of the last while, up to `most`, the longest first."""
        found = (row for row in self._slow.values() if now - row.ended < LATELY)
        return sorted(found, key=lambda row: row.took, reverse=True)[:most]

    def _add_slow(self, row: EndedRun) -> None:
        slow = self._slow
        known = slow.get(row.key)
        if known is not None and known.took >= row.took and row.ended < self._next_look:
            return
        if row.ended >= self._next_look:
            self._slow = slow = {key: old for key, old in slow.items() if row.ended - old.ended < LATELY}
            known = slow.get(row.key)
        if known is None or row.took > known.took:
            slow[row.key] = row
        if len(slow) > SLOWEST:
            del slow[min(slow, key=lambda key: slow[key].took)]
        self._floor = min(one.took for one in slow.values()) if len(slow) == SLOWEST else 0.0
        self._next_look = min(one.ended for one in slow.values()) + LATELY


LEAST = 0.1
"""Seconds; who asks to run again sooner is slowed down."""

CONFLICTS = 5
"""How many in a row are retried quietly."""

_STEPS = Backoff(0.005, 2.0, LEAST)
_JITTERED = Backoff(0.005, 2.0, LEAST, jitter=0.5)


def requeued(run: Run, after: float) -> Outcome:
    """The outcome of a `run` that succeeded and wants another one `after` so many seconds."""
    if after >= LEAST:
        return Outcome(after, RunResult.REQUEUE_AFTER)
    times = run.times_in_a_row(Streak.SOON) + 1
    least = _STEPS.delay(times)
    return Outcome(max(after, least), RunResult.REQUEUE_AFTER, streak=Streak.SOON)


def conflicted(run: Run, error: BaseException, rng: random.Random) -> Outcome | None:
    """The outcome of a `run` that met a newer version; None when that is to be handled as any other failure."""
    times = run.times_in_a_row(Streak.CONFLICT) + 1
    if times > CONFLICTS:
        return None
    return Outcome(_JITTERED.delay(times, rng), RunResult.ERROR, error, streak=Streak.CONFLICT)
