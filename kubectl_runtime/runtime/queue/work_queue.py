"""`WorkQueue`: selects the key that runs next, and schedules keys by the outcomes of their runs. Pure: no clock, no
lock, no thread.

It combines the scheduler (when a key runs), the running keys (no key runs twice at once) and the failures (how long a
key waits):

    state of a key       trigger                    take             finish
    idle                 -> scheduled               -                -
    scheduled            merged by the scheduler    -> running,      -
                                                    entry taken
    backing off          own event: absorbed by     as scheduled     -
                         the retry; else runs
                         now, count kept
    running              -> running + scheduled     skipped          success  -> scheduled (requeue) or idle; count 0
                                                                     failure  -> backing off; count + 1 if this run was
                                                                                 the first or a retry
                                                                     conflict -> scheduled, soon; count kept
                                                                     terminal -> idle; count as after a failure
                                                                     gone     -> idle; count 0
                                                                     skipped  -> idle; count kept
    running + scheduled  merged                     skipped          -> scheduled, at the earlier of both; after a
                                                                     failure the retry absorbs the triggers if all of
                                                                     them are own events of the run

A trigger for a deleted object acts as `forget`: it drops the count and the scheduled entry, and a run in progress
leaves no state behind. A new object of the same name triggers a run as usual. Keys that move to another replica are
forgotten as well.

With a `KeyRate`, a key that has used up its runs waits for the next allowed time: `finish` moves the scheduled entry to
that time, and triggers join the entry. Runs are counted by name, so a deletion does not reset the count.

A requeue stays in the class of the run that requested it. Events of a successful run's own writes go to the background
class, so that after a start each object runs once before any object runs twice. The library itself may write on top of
the version that the run was given, for example a finalizer or a condition of the controller. Events of these writes
request no run.

`close` drops everything pending and refuses later requests; runs in progress may still finish.

`QueueLook` is a snapshot of a queue for display: the number of keys in each state, and some rows for each state. Taking
it costs time in proportion to the rows and the runs in progress, not to the number of keys.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from math import inf
from typing import NamedTuple

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Duration, period_of, seconds
from kubectl_runtime.runtime.queue.own_writes import OwnEvents, Version
from kubectl_runtime.runtime.queue.runs import (
    LEAST,
    MOST_FOREIGN,
    NO_WRITES,
    RETRIED,
    SUCCEEDED,
    EndedRun,
    Failures,
    FailureState,
    Outcome,
    Repeated,
    RetryRateLimit,
    Run,
    causes_of,
    is_own,
    requeued_after,
)
from kubectl_runtime.runtime.queue.scheduler import HELD, LIMITED, READY, WAITING, Entry, Scheduler
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest


class KeyState(StrEnum):
    """The state of a key. `WAITS_FOR_CHANGE`: the key failed, and nothing is scheduled for it."""

    RUNNING = "running"
    DUE = "due"
    DELAYED = "delayed"
    BACKING_OFF = "backing_off"
    HELD_BACK = "held_back"
    WAITS_FOR_CHANGE = "waits_for_change"


class RunningRow(NamedTuple):
    """A key that is running. Times, here and below, are readings of the controller's clock."""

    key: Key
    reason: str
    started: float
    waited: float
    attempt: int
    last_failure: object
    """The failure before this run, as it was logged (`LastFailure`); None if there was no failure."""


class ScheduledRow(NamedTuple):
    """A key that is scheduled to run, now or later."""

    key: Key
    reason: str
    at: float
    """When the key became due or will become due."""
    background: bool
    state: KeyState
    last_failure: object


class FailingRow(NamedTuple):
    """A key that failed the last time it ran."""

    key: Key
    state: KeyState
    at: float | None
    """When the key's next run is due; None if no run is scheduled."""
    failures: int
    last_failure: object


class QueueLook(msgspec.Struct):
    """A snapshot of a queue. `runs` counts the runs that have ended since the start; `failed` counts the failed ones.
    """

    now: float
    counts: dict[str, int]
    """How many keys are running, due, delayed, backing_off, held_back and failing."""
    running: list[RunningRow]
    due: list[ScheduledRow]
    delayed: list[ScheduledRow]
    failing: list[FailingRow]
    runs: int = 0
    failed: int = 0
    recent: list[EndedRun] = msgspec.field(default_factory=list)
    slowest: list[EndedRun] = msgspec.field(default_factory=list)


def looked_at(now: float, most: int, scheduler: Scheduler[Key, ReconcileRequest], running: dict[Key, Run],
              failures: Failures[Key]) -> QueueLook:
    """Take a snapshot of a queue that has these parts, with up to `most` rows of each kind."""
    ready = scheduler.ready_count(now)
    held = [entry for key in running if (entry := scheduler.entry(key)) is not None and entry.place == HELD]
    delayed = len(scheduler) - ready - len(held) - scheduler.held_back - scheduler.waiting_retries
    counts = {"running": len(running), "due": ready + len(held), "delayed": delayed,
              "backing_off": scheduler.waiting_retries, "held_back": scheduler.held_back, "failing": len(failures)}
    runs = sorted(running.values(), key=lambda run: run.started)[:most]
    due, waiting = scheduler.first(most)
    return QueueLook(now, counts, [_running(run) for run in runs],
                     [_scheduled(entry, failures) for entry in (due + held)[:most]],
                     [_scheduled(entry, failures) for entry in waiting],
                     [_failing(key, state, scheduler.entry(key), key in running)
                      for key, state in failures.first(most)])


def _running(run: Run) -> RunningRow:
    return RunningRow(run.key, str(run.request.reason), run.started, run.waited, run.failures + 1, run.last_failure)


def _scheduled(entry: Entry[Key, ReconcileRequest], failures: Failures[Key]) -> ScheduledRow:
    state = failures.get(entry.key)
    return ScheduledRow(entry.key, str(entry.message.reason), entry.at, entry.background, _state_of(entry),
                        None if state is None else state.last_failure)


def _failing(key: Key, state: FailureState, entry: Entry[Key, ReconcileRequest] | None, runs: bool) -> FailingRow:
    doing = KeyState.RUNNING if runs else KeyState.WAITS_FOR_CHANGE if entry is None else _state_of(entry)
    return FailingRow(key, doing, None if entry is None else entry.at, state.count, state.last_failure)


def _state_of(entry: Entry[Key, ReconcileRequest]) -> KeyState:
    if entry.place == WAITING:
        return KeyState.BACKING_OFF if entry.retry else KeyState.DELAYED
    return KeyState.HELD_BACK if entry.place == LIMITED else KeyState.DUE


MAX_CAUSES = 10_000
"""The limit of remembered changes per scheduled key. If more arrive, the newest counts as a foreign change."""

# Python 3.11 takes a third of a microsecond to look up a member of an enum.
_DELETED = Reason.OBJECT_DELETED

class KeyRate(msgspec.Struct, frozen=True):
    """A limit on the runs of one object: at most `runs` in each period of `per`, whatever requests them.

    A further run waits until `per` has passed since the first of the last `runs` runs began; all requests until then
    become one run.

    `per` is seconds or a `timedelta`. Raises RequestError for fewer than one run, and for a period that is not finite
    or not above 0.

    >>> controller = Controller(Api.all(client, ConfigMap)).key_rate(KeyRate(runs=10, per=60))
    """

    runs: int
    per: Duration

    def __post_init__(self) -> None:
        runs: object = self.runs  # not every caller uses a type checker
        if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
            raise RequestError(f"a KeyRate's runs must be a whole number of at least 1, not {runs!r}")
        if period_of("per", self.per) == inf:
            raise RequestError("a KeyRate's per must be finite: otherwise a key would never run again")


class KeyRates:
    """Applies a KeyRate: stores the start times of each key's last runs. Pure; the owner passes the time."""

    def __init__(self, rate: KeyRate) -> None:
        self._runs, self._per = rate.runs, seconds(rate.per)
        self._began: dict[Key, deque[float]] = {}
        """The start times of each key's last runs. The keys are in the order of their last run."""

    def __len__(self) -> int:
        """How many keys have any state."""
        return len(self._began)

    def began(self, key: Key, now: float) -> list[Key]:
        """Record that a run of `key` begins. Drops some keys whose last run is older than `per`, and returns them."""
        times = self._began.pop(key, None) or deque(maxlen=self._runs)
        times.append(now)
        self._began[key] = times
        free: list[Key] = []
        for other, began in self._began.items():
            if began[-1] + self._per > now or len(free) == _FREED:
                break
            free.append(other)
        for other in free:
            del self._began[other]
        return free

    def next_at(self, key: Key) -> float:
        """When the next run of `key` may begin; a time in the past if it may begin at once."""
        times = self._began.get(key)
        return times[0] + self._per if times is not None and len(times) == self._runs else 0.0


_FREED = 10
"""The most keys that are forgotten when a run begins, so that the cost for this run stays small."""

_STRANGE: tuple[None] = (None,)
"""The causes of an entry that a trigger joined before any run had written anything. No own write can be among these
causes, so one unknown cause stands for all of them."""


class WorkQueue:
    """The decisions of one controller's queue.

    The owner serialises calls and passes the time of one monotonic clock.
    """

    def __init__(self, scheduler: Scheduler[Key, ReconcileRequest], rate_limit: RetryRateLimit | None = None,
                 key_rate: KeyRate | None = None) -> None:
        """`rate_limit`: the scheduler's rate limit, if it has one."""
        self._rates = None if key_rate is None else KeyRates(key_rate)
        self._scheduler = scheduler
        self.due = scheduler.ready_count
        """`due(now)`: how many keys could run now with enough workers, including running keys that are due again."""
        self.next_due = scheduler.next_due
        """`next_due()`: when the next waiting key becomes due; None if no key waits."""
        self._rate_limit = rate_limit
        self._failures: Failures[Key] = Failures()
        self._failing = self._failures.states
        self._running: dict[Key, Run] = {}
        self._wrote = False
        """Whether any run that wrote something has ended. Before that, a change can be a key's own event only if it
        arrives while the key is running."""
        self._repeated: dict[Key, tuple[Repeated, int]] = {}
        self._own_events = OwnEvents()
        self._requeue_delays: dict[Key, float] = {}
        """The keys that are in a loop or at the limit of a KeyRate, and the time when each may run next."""
        self.on_forget: Callable[[Key], object] = lambda _: None
        """Called with each forgotten key; must be quick."""
        self._closed = False

    @property
    def running(self) -> Iterable[Run]:
        """The runs in progress."""
        return self._running.values()

    @property
    def closed(self) -> bool:
        """Whether shutdown has begun."""
        return self._closed

    @property
    def failing(self) -> int:
        """How many keys failed the last time they ran."""
        return len(self._failures)

    @property
    def held_back(self) -> int:
        """How many retries are due and wait for the rate limit."""
        return self._scheduler.held_back

    def __len__(self) -> int:
        """How many keys are scheduled, due or not."""
        return len(self._scheduler)

    def keys(self) -> set[Key]:
        """All keys with any state: scheduled, running, failing or repeating an outcome."""
        return {*self._scheduler.keys(), *self._running, *self._failures.keys(), *self._repeated}

    def due_at(self, key: Key) -> float | None:
        """When `key` is scheduled to run; None if nothing is scheduled for it."""
        return self._scheduler.due_at(key)

    def trigger(self, request: ReconcileRequest, now: float, *, background: bool = False) -> None:
        """Like `trigger_all`, with one request."""
        self.trigger_all((request,), now, background=background)

    def trigger_all(self, requests: Iterable[ReconcileRequest], now: float, *, background: bool = False) -> None:
        """Schedule the key of each request, in the background class if `background` is true.

        The refs must already have the controller's own kind and scope.
        """
        if self._closed:
            return
        entry_of, trigger, own_events = self._scheduler.entry, self._scheduler.trigger, self._own_events.expected
        for request in requests:
            ref, cause = request.ref, request.cause
            key = ref.namespace or None, ref.name  # `ref.key`, inlined because this runs for each event
            if request.reason is _DELETED:
                self.forget(key)
                continue
            if own_events and cause is not None and self._own_events.met_quiet(key, cause):
                continue
            entry = entry_of(key)
            if entry is not None:
                if self._failing and cause is not None and key not in self._running and (
                        self._failures.is_own_event(key, cause)):
                    continue
                self._join(entry, cause)
            own_event = bool(own_events) and cause is not None and self._own_events.met(key, cause)
            in_background = background or own_event or request.bulk
            if self._requeue_delays and self._requeue_delays.get(key, now) > now:
                self._scheduler.add(key, request, self._requeue_delays[key], now, background=in_background)
            elif entry is None or entry.place < READY or entry.retry or (entry.background and not in_background):
                trigger(key, request, now, background=in_background)

    def take(self, now: float) -> Run | None:
        """Start the next due key that is not running; None if there is no such key."""
        entry = None if self._closed else self._scheduler.pop_due(now, self._running)
        if entry is None:
            return None
        key = entry.key
        # Positional arguments, since Python makes a dict for keyword arguments.
        self._running[key] = run = Run(key, entry.message, self._failing.get(key), now, now - entry.at, entry.further,
                                       entry.retry, entry.background, self._repeated.get(key))
        if self._rates is not None:
            for free in self._rates.began(key, now):
                self._requeue_delays.pop(free, None)
        return run

    def finish(self, run: Run, outcome: Outcome, now: float) -> bool:
        """Record that `run` ended with `outcome`: free the key and schedule it again if needed. Returns whether the key
        will be retried; True also for the retry after a conflict, although such a conflict is not counted as a
        failure."""
        key = run.key
        del self._running[key]
        if self._closed:
            return False
        if outcome is SUCCEEDED and run.writes is NO_WRITES and not run.retry and run.in_a_row is None and (
                key not in self._failing) and self._rates is None:  # the common case
            self._scheduler.release(key)
            return False
        self._tell_rate_limit(run, outcome, now)
        self._count_repeated(run, outcome)
        if run.quiet and not run.forgotten:
            self._pass_over(run)
        failed, retried, no_news = outcome.failed, False, False
        if run.forgotten:
            self._failures.forget(key)
        elif outcome.keeps_failures:
            pass
        elif failed:
            self._fail(run, outcome)
        else:
            self._failures.forget(key)
            no_news = len(run.writes) > 0 and self._expect_own_events(run) and outcome.repeated is None
        self._wrote = self._wrote or len(run.writes) > 0
        if outcome.delay is not None and not run.forgotten:
            retried = failed
            reason = RETRIED if failed else requeued_after(outcome.delay)
            self._scheduler.add(key, ReconcileRequest(run.request.ref, reason),
                                now + outcome.delay, now, background=run.background,
                                retry=failed and outcome.repeated is None)
        if no_news:
            self._scheduler.to_background(key)
        self._scheduler.release(key)
        again = 0.0 if self._rates is None else self._rates.next_at(key)
        if outcome.delays_requeue and not run.forgotten:
            again = max(again, now + LEAST)
        if again > now:
            self._delay_requeue(key, again, now)
        elif self._requeue_delays:
            self._requeue_delays.pop(key, None)
        return retried

    def _delay_requeue(self, key: Key, at: float, now: float) -> None:
        """Keep `key` from running before `at`."""
        self._requeue_delays[key] = at
        entry = self._scheduler.entry(key)
        if entry is not None and entry.at < at:
            self._scheduler.remove(key)
            self._scheduler.add(key, entry.message, at, now, background=entry.background, retry=entry.retry)
            moved = self._scheduler.entry(key)
            assert moved is not None
            moved.further = entry.further

    def abandon(self, run: Run) -> None:
        """Free the key of `run`, which an internal error ended without an outcome."""
        if self._running.get(run.key, run) is run:  # otherwise another run of the key is in progress
            self._running.pop(run.key, None)
            self._scheduler.release(run.key)

    def forget(self, key: Key) -> None:
        """Drop the state of `key`: its object was deleted, or belongs to another replica now."""
        self._failures.forget(key)
        self._scheduler.remove(key)
        self._repeated.pop(key, None)
        self._requeue_delays.pop(key, None)
        if self._rates is not None and (again := self._rates.next_at(key)):  # a new object of this name is limited, too
            self._requeue_delays[key] = again
        self.on_forget(key)
        run = self._running.get(key)
        if run is not None:
            run.forgotten = True

    def look(self, now: float, most: int) -> QueueLook:
        """A snapshot of the queue, with up to `most` keys of each state."""
        return looked_at(now, most, self._scheduler, self._running, self._failures)

    def close(self) -> int:
        """Start no more runs and drop all pending keys. Returns the number of dropped keys."""
        self._closed = True
        self._failures.clear()
        self._repeated.clear()
        self._own_events.clear()
        self._requeue_delays.clear()
        return self._scheduler.clear()

    def _join(self, entry: Entry[Key, ReconcileRequest], cause: Version | None) -> None:
        """Record `cause` as a further cause of `entry`, into which another trigger is merged."""
        causes = entry.further
        if not self._wrote and entry.key not in self._running:
            entry.further = causes or _STRANGE
        elif not isinstance(causes, list):
            entry.further = [*causes_of(entry.message, causes), cause]
        elif len(causes) < MAX_CAUSES:
            causes.append(cause)
        else:
            causes[-1] = None

    def _fail(self, run: Run, outcome: Outcome) -> None:
        key, writes = run.key, run.writes.versions() if outcome.own is None else outcome.own
        state = self._failures.failed(key, run.failures_if_it_fails, writes)
        state.waits_beyond, state.subject, state.last_failure = outcome.waits_beyond, run.subject, outcome.last_failure
        met = len(writes) < len(run.writes)
        state.foreign = run.foreign + 1 if met else run.foreign if run.foreign >= MOST_FOREIGN else 0
        entry = self._scheduler.entry(key)
        if outcome.delay is None or entry is None:
            return
        if all(cause is not None and is_own(cause, state.writes) for cause in causes_of(entry.message, entry.further)):
            self._scheduler.remove(key)

    def _pass_over(self, run: Run) -> None:
        """Keep the library's own writes for `run` from requesting a run, whether or not their events have arrived."""
        key, entry = run.key, self._scheduler.entry(run.key)
        arrived = () if entry is None else causes_of(entry.message, entry.further)
        self._own_events.expect(key, run.quiet.keys() - arrived, quiet=True)
        if entry is not None and arrived and all(cause in run.quiet for cause in arrived):
            self._scheduler.remove(key)

    def _expect_own_events(self, run: Run) -> bool:
        """After the success of `run`, expect the events of its writes. Returns whether no other events have requested
        the key again."""
        key, writes = run.key, {version: None for version in run.writes.versions() if version not in run.quiet}
        entry = self._scheduler.entry(key)
        arrived = () if entry is None else causes_of(entry.message, entry.further)
        self._own_events.expect(key, writes.keys() - arrived)
        return bool(arrived) and all(cause is not None and is_own(cause, writes) for cause in arrived)

    def _tell_rate_limit(self, run: Run, outcome: Outcome, now: float) -> None:
        if self._rate_limit is None or not run.retry or outcome.keeps_failures:
            return
        if outcome.failed:
            self._rate_limit.failed(now)
        else:
            self._rate_limit.succeeded(now, holding=self._scheduler.held_back > 0)

    def _count_repeated(self, run: Run, outcome: Outcome) -> None:
        repeated = outcome.repeated
        if repeated is not None and not run.forgotten:
            self._repeated[run.key] = (repeated, run.times_in_a_row(repeated) + 1)
        elif run.in_a_row is not None and (run.forgotten or not outcome.keeps_failures):
            self._repeated.pop(run.key, None)
