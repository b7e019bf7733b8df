"""`Run`: one execution of the reconciler for one key. `Outcome`: how it ended.

A run collects the writes that the library makes in its scope (see `core.scope` and `record_write`). A write by a thread
that the reconciler started belongs to no run, unless the thread has a copy of the run's context.

Two outcomes may repeat many times in a row for a key without counting as failures (`Repeated`):

    in a row                     1      2      3      4      5      6 and more
    requeue after less than 0.1 s  5 ms   10     20     40     80     100 ms, or the requested delay if it is longer
    a conflict                   5 ms   10     20     40     80     an ordinary failure

A requeue delay of 0.1 s or more is used as requested, and ends the series. A conflict is not a failure: the object has
changed since it was read, and the next run gets the newer version. The delays after conflicts are jittered, so that two
writers do not collide again.

`Failures` keeps the failing keys, each with its count of failures in a row and the writes that it made while failing.

    failure of the first run, or of a retry   count + 1; waits `KeyBackoff.next(count)`
    failure of a triggered run                count kept: frequent changes do not lengthen the wait
    failure with another generation or uid    count 1: the earlier failures concerned another spec or object
    success, gone                             state dropped: the next failure counts as the first
    trigger                                   count kept: a trigger is no sign that the key works
    event of the key's own write              recognised by `is_own_event`, so that the event does not bring the retry
                                              forward

`RetryRateLimit` limits the retries of all failing keys of one controller together: when a dependency is down, thousands
of keys fail at once. Each retry takes a token. A successful retry doubles the rate if other retries are held back; a
failed retry halves the rate, down to the configured rate. At a rate of `OPEN` no retry is held back. Unlike client-go's
bucket, `RetryRateLimit` reserves no start times for waiting keys, so a new rate applies to all waiting keys at once.
Runs that a trigger requested are not held back.

`RunHistory` keeps the last runs of one controller and its slowest keys.

Everything here is pure: the owner passes the time and serialises the calls.
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
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Duration
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import StopToken, current_run
from kubectl_runtime.runtime.queue.own_writes import RunWrites, Version
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

K = TypeVar("K", bound=Hashable)

MAX_REMEMBERED_WRITES = 10_000
"""The limit per failing key. Older writes are forgotten; the event of a forgotten write counts as a foreign change."""

MAX_REMEMBERED_IN_ALL = 200_000
"""The limit per controller (about 50 MB). Beyond it, the writes of the keys that have failed longest are forgotten."""


@dataclass(frozen=True, slots=True)
class KeyBackoff(Backoff):
    """The wait of a failing key: `initial`, multiplied by `factor` for each further failure, at most `maximum`.

    Each delay is drawn from ((1 - jitter) d, d], where d is this wait, so that keys that failed together do not come
    back together. With `attempts`, a key that failed that many times in a row waits for a change: each change allows
    one more attempt, and a change of the spec allows `attempts` again. Durations are seconds or `timedelta`. Raises
    RequestError for a number out of range.

    >>> backoff = KeyBackoff(initial=1, maximum=timedelta(minutes=5))
    >>> controller = Controller(Api.all(client, ConfigMap), backoff=backoff)
    """

    initial: Duration = 0.005
    maximum: Duration = 1000.0
    jitter: float = 0.5


DEFAULT_KEY_BACKOFF = KeyBackoff()


class Subject(msgspec.Struct, frozen=True, gc=False):
    """The subject of a run: the object's uid, and the generation of its spec if its kind has one."""

    uid: str
    generation: int | None = None

    @classmethod
    def of(cls, record: Record) -> Subject:
        """The subject of `record`. If the record's metadata cannot be decoded, the subject has only the uid."""
        return cls(record.uid, None if record.problem is not None else record.head.generation)

    def differs_from(self, other: Subject) -> bool:
        """Whether the object was replaced by another one or its spec was changed. Kinds without a generation never show
        a changed spec."""
        counted = self.generation is not None and other.generation is not None
        return self.uid != other.uid or (counted and self.generation != other.generation)


class FailureState(msgspec.Struct):
    """A key that failed the last time it ran."""

    count: int = 0
    writes: dict[Version, None] = msgspec.field(default_factory=dict)
    waits_beyond: frozenset[str] = frozenset()
    """After a failure without a retry: the resourceVersions that need no new run; see `Run.has_nothing_new`."""
    subject: Subject | None = None
    foreign: int = 0
    """The number of consecutive failed runs whose writes seem to have met another client's change. A failed run that
    met no such change sets the number back to 0, unless the number has reached `MOST_FOREIGN`."""
    last_failure: object = None
    """The last failure as it was logged (`LastFailure`)."""


class Failures(Generic[K]):
    """The failing keys of one controller."""

    def __init__(self) -> None:
        self.states: dict[K, FailureState] = {}
        """Each failing key's state. Only this class may change the mapping."""
        self._remembered = 0

    def __len__(self) -> int:
        """How many keys are failing."""
        return len(self.states)

    def keys(self) -> Iterable[K]:
        """The keys that failed the last time they ran."""
        return self.states

    def first(self, most: int) -> list[tuple[K, FailureState]]:
        """Up to `most` failing keys; keys that have failed longer come first."""
        return list(islice(self.states.items(), most))

    def get(self, key: K) -> FailureState | None:
        """The failure state of `key`; None if it is not failing."""
        return self.states.get(key)

    def failed(self, key: K, count: int, writes: dict[Version, None]) -> FailureState:
        """Record that `key` failed for the `count`-th time in a row, and that its run made the versions `writes`."""
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = FailureState()
        state.count = count
        self._remember(state, writes)
        return state

    def forget(self, key: K) -> None:
        """Drop the failure state of `key`, which succeeded or whose object is gone."""
        state = self.states.pop(key, None)
        if state is not None:
            self._remembered -= len(state.writes)

    def is_own_event(self, key: K, cause: Version | None) -> bool:
        """Whether `cause` is a version that a run of `key` wrote while `key` was failing."""
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
        """Forget all failures."""
        self.states.clear()
        self._remembered = 0


def is_own(cause: Version, writes: Mapping[Version, None]) -> bool:
    """Whether `writes` contain the version `cause`, or the deletion of the object of that version."""
    return cause in writes or (cause[0], "") in writes


RETRY_RATE = 10.0
"""Retries per second while runs fail: client-go's default."""

BURST = 100
"""Retries that may begin at once after a quiet time: client-go's default."""

OPEN = 100_000.0
"""A rate in retries per second: more than any queue can start."""

_ROUNDING = 1e-6
"""The tolerance for a token that is almost complete, since its due time was computed with rounding."""


class RetryRateLimit:
    """Limits how many retries begin per second. Times are seconds of one monotonic clock."""

    def __init__(self, rate: float = RETRY_RATE) -> None:
        """`rate`: the lowest rate, in retries per second. Raises RequestError if `rate` is not a positive number."""
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < float("inf"):
            raise RequestError(f"retry_rate must be a number of retries per second above 0, or None for no limit, not "
                               f"{rate!r}")
        self._lowest = float(rate)
        self._rate = self._lowest
        self._tokens = float(BURST)
        self._as_of: float | None = None

    def take(self, now: float) -> bool:
        """Take a token for a retry that begins now. Returns whether there was a token."""
        if self._rate >= OPEN:
            return True
        self._refill(now)
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def next_at(self) -> float:
        """When `take` will return True again if nothing changes."""
        as_of = self._as_of or 0.0
        return as_of if self._rate >= OPEN else as_of + max(0.0, 1 - self._tokens) / self._rate

    def succeeded(self, now: float, *, holding: bool) -> None:
        """Record that a retry succeeded. `holding`: whether other retries are held back."""
        if holding:
            self._refill(now)
            self._rate = min(OPEN, 2 * self._rate)

    def failed(self, now: float) -> None:
        """Record that a retry failed."""
        self._refill(now)
        self._rate = max(self._lowest, self._rate / 2)

    def _refill(self, now: float) -> None:
        if self._as_of is not None and now > self._as_of:
            self._tokens = min(float(BURST), self._tokens + (now - self._as_of) * self._rate)
        self._as_of = now if self._as_of is None else max(now, self._as_of)


Known = Callable[[ObjectRef], Record | None]
"""Returns an object from the controller's store; None if the store does not have it."""


class Requeued(str):
    """The reason of a request that an earlier run made: a requeue or a retry."""

    __slots__ = ()


RETRIED = Requeued("tried again after a failure")


@lru_cache(maxsize=512)  # most programs use few different delays, and each delay needs only one text
def requeued_after(delay: float) -> Requeued:
    """The reason of a run that the previous run requested, to begin after `delay` seconds."""
    return Requeued(f"asked to run again after {delay:.4g} s")


class Repeated(Enum):
    """An outcome that a key may repeat many times in a row without a failure."""

    SOON = "it asks to run again at once"
    CONFLICT = "another client was faster"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `delay`: seconds until the key runs again; None waits for a change."""

    delay: float | None = None
    result: RunResult = RunResult.SUCCESS
    error: BaseException | None = field(default=None, compare=False)
    """The error that made the run fail."""
    own: dict[Version, None] | None = None
    """After a failure: the versions that the run made itself. None means every version that its writes returned."""
    waits_beyond: frozenset[str] = frozenset()
    """After a failure without a delay: the resourceVersions of the object that the failed run read or wrote. Events of
    these versions alone lead to no new attempt."""
    repeated: Repeated | None = None
    delays_requeue: bool = False
    """Whether the next run must wait, whatever requests it, because the key's runs trigger each other in a loop."""
    last_failure: object = None
    """After a failure: the failure as it was logged (`LastFailure`), for the next run of this key."""

    @property
    def failed(self) -> bool:
        """Whether the run ended with an error; True also after a conflict."""
        return self.result in (RunResult.ERROR, RunResult.TERMINAL_ERROR)

    @property
    def keeps_failures(self) -> bool:
        """Whether the failure count is left unchanged because the outcome is inconclusive."""
        return self.result is RunResult.SKIPPED or self.repeated is Repeated.CONFLICT


SUCCEEDED = Outcome()
GONE = Outcome(result=RunResult.GONE)
"""The object did not exist. As after a success, no state of the key is kept."""

SKIPPED = Outcome(result=RunResult.SKIPPED)
"""No run took place; the failure state of the key is kept."""

MOST_FOREIGN = 3
"""After this many failures in a row whose writes seem to have met a foreign change, every returned version counts as an
own change. Otherwise an admission webhook that adds the time to each write could make every own change seem foreign,
and so defeat the backoff."""

NO_WRITES = RunWrites()
"""The writes of a run that has written nothing."""


class Run:
    """One run of a key. The queue makes it; during the run, it belongs to the running thread.

    Rarely used fields are class attributes, so that most instances stay small.
    """

    failures = 0
    """Failures in a row before this run."""
    waits_beyond: frozenset[str] = frozenset()
    _written: Mapping[Version, None] = {}
    """The versions that the runs of this key made while it was failing."""
    foreign = 0
    last_failure: object = None
    depth = 0
    """The number of due keys that were left when this key was taken."""
    retry = False
    """Whether the run is a retry: nothing but the last failure requested it."""
    background = False
    in_a_row: tuple[Repeated, int] | None = None
    stop: StopToken | None = None
    """The stop token of a run with a timeout. The token is set when the time is up, or at shutdown."""
    writes = NO_WRITES
    triggered_itself = False
    """Whether the reconciler has triggered its own key during this run."""
    forgotten = False
    """Whether the object was deleted or moved to another replica during the run, so that the outcome is not stored."""
    record: Record | None = None
    """The object that the run reconciles."""
    latest: Record | None = None
    """The object as the server returned it after the last write of this run."""
    reads: dict[Any, Any] | None = None
    """The dependencies that the run has read: each node, with the values that the run needs (see `runtime.reads`)."""
    reads_over = False
    """Whether the run has ended, so that later reads in its context are not dependencies."""
    ends_reads = False
    """Whether the object has been cleaned up, so that it has no dependencies any more."""
    _subject: Subject | None = None
    quiet: Mapping[Version, None] = {}
    """The object's versions that the library itself wrote, each on top of the version that the run knew."""
    waiting_for: tuple[str, ...] = ()
    """The children that are not ready, as text, in the order of the `waits_for` calls."""

    def __init__(self, key: Key, request: ReconcileRequest, state: FailureState | None, started: float,
                 waited: float = 0.0, causes: Sequence[Version | None] | None = None, retry: bool = False,
                 background: bool = False, repeated: tuple[Repeated, int] | None = None) -> None:
        """`causes`: the changes that led to the run, if there are more than the cause of `request`."""
        self.key = key
        self.request = request
        self.started = started
        self.waited = waited
        """Seconds between the due time and the start."""
        self._causes = causes
        self.thread_id = threading.get_ident()
        self.known: Known = _nothing
        if state is not None:
            self.failures, self._subject, self.waits_beyond = state.count, state.subject, state.waits_beyond
            self.last_failure, self.foreign = state.last_failure, state.foreign
            if state.waits_beyond:
                self._written = state.writes
        if retry:
            self.retry = True
        if background:
            self.background = True
        if repeated is not None:
            self.in_a_row = repeated

    @property
    def causes(self) -> Sequence[Version | None]:
        """The changes that led to the run (None for an unknown change); empty if a timer alone led to the run."""
        return causes_of(self.request, self._causes)

    @property
    def subject(self) -> Subject | None:
        """The uid and generation of this run's object. Until the object is known, the subject of the last failed run.
        """
        record = self.record
        if record is not None and self._subject is None:
            self._subject = Subject.of(record)
        return self._subject

    def has_nothing_new(self, record: Record) -> bool:
        """Whether this run would only repeat the last failure, after which the key waits for a change.

        True if `waits_beyond` contains the version of `record`, and if nothing requested this run except changes of the
        object itself and the failed runs' own writes.
        """
        return record.head.resource_version in self.waits_beyond and all(
            cause is not None and (cause[0] == record.head.uid or is_own(cause, self._written))
            for cause in self.causes)

    def looks_at(self, record: Record) -> None:
        """Set the object of this run. If its uid or generation differs from that of the last failure, the failure count
        is reset to 0."""
        before, self.record, self._subject = self._subject, record, None
        if self.failures and before is not None and Subject.of(record).differs_from(before):
            self.failures, self.last_failure = 0, None

    @property
    def failures_if_it_fails(self) -> int:
        """Failures in a row if this run fails as well. A run that a trigger requested does not raise the count."""
        asked = self.retry or not self.failures or self.times_in_a_row(Repeated.CONFLICT)
        return self.failures + 1 if asked else self.failures

    def own_changes(self) -> dict[Version, None]:
        """The versions that the run made itself; see `MOST_FOREIGN`."""
        return self.writes.versions() if self.foreign >= MOST_FOREIGN else self.writes.changes()

    def times_in_a_row(self, repeated: Repeated) -> int:
        """The number of consecutive runs, right before this one, that had the outcome `repeated`."""
        return self.in_a_row[1] if self.in_a_row is not None and self.in_a_row[0] is repeated else 0

    def begins_write(self, ref: ObjectRef | None) -> None:
        """Record that this thread is about to write the object `ref` (None: a new object). Also records the
        object's stored state, since the watch may have replaced this state by the time the answer arrives."""
        begun = (None, None) if ref is None else (ref.key, self.known(ref))
        self._own_writes().begun[threading.get_ident()] = begun

    def wrote(self, write: Write) -> None:
        """Record that the server answered a write of this run."""
        writes = self._own_writes()
        begun = writes.begun.pop(threading.get_ident(), None)
        known = begun is not None and begun[0] in (None, write.ref.key)
        writes.add(write, begun[1] if known and begun is not None else self.known(write.ref))
        record, subject = write.record, self.subject
        if record is not None and subject is not None and record.uid == subject.uid:
            self._subject = Subject.of(record)
            self.latest = record

    def is_given(self, uid: str, version: str) -> bool:
        """Whether the run was given this version of its object, or the library made this version for the run."""
        record = self.record
        return record is not None and record.uid == uid and (
            record.resource_version == version or (uid, version) in self.quiet)

    def wrote_quietly(self, uid: str, before: str, after: str) -> None:
        """Record that the library itself replaced version `before` of the object with `after` for this run. If the run
        knew `before`, the change requests no further run."""
        if after != before and self.is_given(uid, before):
            self.quiet = {**self.quiet, (uid, after): None}

    def waits_for(self, *children: str) -> None:
        """Note that these children, such as `Deployment web`, are not ready. Each run starts with an empty list."""
        self.waiting_for = (*self.waiting_for, *(child for child in children if child not in self.waiting_for))

    def _own_writes(self) -> RunWrites:
        """The run's `RunWrites`, made on first use because most runs write nothing. Several threads with a copy of the
        context may call this at the same time."""
        writes: RunWrites | None = vars(self).get("writes")
        return vars(self).setdefault("writes", RunWrites()) if writes is None else writes


Execute = Callable[[Run], Outcome]
"""Runs user code for one key. Never raises."""


def causes_of(request: ReconcileRequest, further: Sequence[Version | None] | None) -> Sequence[Version | None]:
    """The changes that led to `request` (None for an unknown change); empty if only an earlier run led to it.

    If other requests were merged into `request`, `further` has all of these changes; otherwise `further` is None.
    """
    if further is not None:
        return further
    return () if isinstance(request.reason, Requeued) else (request.cause,)


def _nothing(_ref: ObjectRef) -> None:
    return None


def begin_write(ref: ObjectRef | None) -> None:
    """For `WriteObservers.begun`: record that this thread is about to write `ref`."""
    run = current_run()
    if run is not None:
        run.begins_write(ref)


def is_triggered(key: Key) -> None:
    """Record that the program triggers `key` from this thread."""
    run = current_run()
    if run is not None and run.key == key:
        run.triggered_itself = True


def record_write(write: Write) -> None:
    """For `Client.on_write`: record that this thread wrote an object, whose new version the watch will deliver."""
    run = current_run()
    if run is not None:
        run.wrote(write)


RECENT = 50
SLOWEST = 20
LATELY = 3600.0
"""How far the slowest runs reach back, in seconds."""


class EndedRun(NamedTuple):
    """A run that has ended. Times are seconds of the controller's clock."""

    key: Key
    reason: str
    waited: float
    took: float
    ended: float
    result: RunResult
    last_failure: object
    """After a failure: the failure as it was logged (`LastFailure`)."""


class RunHistory:
    """The last `RECENT` ended runs of a controller, and the `SLOWEST` keys with the longest runs of the last hour.

    The history keeps plain values, so that no object or error stays alive.
    """

    __slots__ = ("_floor", "_next_look", "_recent", "_slow", "failed", "runs")

    def __init__(self) -> None:
        self.runs = 0
        """How many runs have ended since the start."""
        self.failed = 0
        self._recent: deque[tuple[Key, str, float, float, float, RunResult, object]] = deque(maxlen=RECENT)
        self._slow: dict[Key, EndedRun] = {}
        self._floor = 0.0
        """A run must be longer than this to be among the slowest."""
        self._next_look = inf
        """When the oldest of the slowest runs becomes older than `LATELY`."""

    def ended(self, run: Run, outcome: Outcome, now: float) -> None:
        """Add `run`, which has ended at `now`."""
        took = now - run.started
        row = (run.key, run.request.reason, run.waited, took, now, outcome.result, outcome.last_failure)
        self.runs += 1
        if outcome.error is not None:
            self.failed += 1
        self._recent.append(row)
        if took > self._floor or now >= self._next_look:
            self._add_slow(EndedRun._make(row))

    def recent(self, most: int) -> list[EndedRun]:
        """Up to `most` of the last runs, the latest first."""
        return [EndedRun._make(row) for row in [*reversed(self._recent)][:most]]

    def slowest(self, most: int, now: float) -> list[EndedRun]:
        """Up to `most` of the slowest runs of the last hour, the longest first."""
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
"""If a key requests shorter delays again and again, its delay grows to this many seconds."""

CONFLICTS = 5
"""How many conflicts in a row are retried without counting as a failure."""

_STEPS = Backoff(0.005, 2.0, LEAST)
_CONFLICTS = Backoff(0.005, 2.0, LEAST, jitter=0.5, attempts=CONFLICTS + 1)


def requeued(run: Run, after: float) -> Outcome:
    """The outcome of a `run` that succeeded and requested another run `after` this many seconds."""
    if after >= LEAST:
        return Outcome(after, RunResult.REQUEUE_AFTER)
    times = run.times_in_a_row(Repeated.SOON) + 1
    least = _STEPS.delay(times)
    return Outcome(max(after, least), RunResult.REQUEUE_AFTER, repeated=Repeated.SOON)


def conflicted(run: Run, error: BaseException, rng: random.Random) -> Outcome | None:
    """The outcome of a `run` that failed because a newer version caused a conflict; None if the conflict counts as an
    ordinary failure."""
    delay = _CONFLICTS.next(run.times_in_a_row(Repeated.CONFLICT) + 1, rng)
    return None if delay is None else Outcome(delay, RunResult.ERROR, error, repeated=Repeated.CONFLICT)
