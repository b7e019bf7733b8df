"""`Run`: one execution of the reconciler for one key, and `Outcome`: how it ended.

A run also collects what its own thread writes through the client meanwhile, which `record_write` is told. It is made by
the thread that works for it, and keeps that thread's id. The thread is how a write finds its run, so a write made by
another thread that a reconciler started is nobody's.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.queue.key_backoff import FailureState, Subject
from kubectl_runtime.runtime.queue.own_writes import RunWrites, Version
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

if TYPE_CHECKING:
    from kubectl_runtime.client.api.writes import Write

Known = Callable[[ObjectRef], Record | None]
"""How an object is stored at this moment by the controller; None when it is not."""


class Streak(Enum):
    """What a key may do many times in a row without failing; see `queue.pace`."""

    SOON = "it asks to run again at once"
    CONFLICT = "somebody else was faster"


# Python 3.11 takes a third of a microsecond to look up a member of an enum.
SOON, CONFLICT = Streak.SOON, Streak.CONFLICT
_ERROR, _TERMINAL_ERROR, _SKIPPED = RunResult.ERROR, RunResult.TERMINAL_ERROR, RunResult.SKIPPED


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
    """After a terminal error: the resourceVersions of the object that need not be looked at again."""
    streak: Streak | None = None
    told: object = None
    """After a failure: what the log was told of it, for the next run of this key."""

    @property
    def failed(self) -> bool:
        """Whether it counts as a failure."""
        return self.result is _ERROR or self.result is _TERMINAL_ERROR

    @property
    def keeps_failures(self) -> bool:
        """Whether the count of failures stays as it is: it says neither that the key works nor that it does not."""
        return self.result is _SKIPPED or self.streak is CONFLICT


SUCCEEDED = Outcome()
GONE = Outcome(result=RunResult.GONE)
"""There was no such object: nothing was reconciled, and as after a success nothing about the key is kept."""

SKIPPED = Outcome(result=RunResult.SKIPPED)
"""Nothing ran; what is known of the key's failures stays."""

MOST_STRANGERS = 3
"""Failures in a row with writes that seem to have met somebody else's change; from then on all answers are taken for
own changes: an admission webhook that puts the time into each write looks the same, and must not defeat the backoff."""

_HEALTHY = FailureState()
_NO_WRITES = RunWrites()


class Run:
    """A key that runs now. The queue makes it; while it runs, it belongs to the running thread."""

    __slots__ = ("_begun", "bulk", "causes", "depth", "failures", "forgotten", "in_a_row", "key", "known", "request",
                 "restarted", "retry", "started", "stop", "strangers", "subject", "thread_id", "told", "waited",
                 "waits_beyond", "writes")

    def __init__(self, key: Key, request: ReconcileRequest, state: FailureState | None, started: float, *,
                 waited: float = 0.0, causes: Sequence[Version | None] = (), retry: bool = False, bulk: bool = False,
                 streak: tuple[Streak, int] | None = None) -> None:
        before = state or _HEALTHY
        self.key = key
        self.request = request
        self.failures = before.count
        """Failures in a row before this run."""
        self.subject = before.subject
        self.waits_beyond = before.waits_beyond
        self.told = before.told
        self.strangers = before.strangers
        self.started = started
        self.waited = waited
        """Seconds since the key was due."""
        self.depth = 0
        """How many keys were due when this one had been taken out."""
        self.causes = causes
        """The changes that led to it, None for an unknown one; empty when only time has passed."""
        self.retry = retry
        """Nothing but the last failure asked for it."""
        self.bulk = bulk
        self.in_a_row = streak
        self.thread_id = threading.get_ident()
        self.stop: StopToken | None = None
        """Where it has a time of its own: set when that is up, or with the shutdown."""
        self.writes = _NO_WRITES
        self._begun: tuple[Key | None, Record | None] | None = None
        self.known: Known = _nothing
        self.restarted = False
        """The object is not what failed: the count began anew."""
        self.forgotten = False
        """The object was deleted meanwhile: the outcome says nothing about its successor."""

    def looks_at(self, subject: Subject) -> None:
        """The object is this one now. Another generation or uid than what failed starts the count anew."""
        before, self.subject = self.subject, subject
        if self.failures and before is not None and subject.differs_from(before):
            self.failures, self.restarted, self.told = 0, True, None

    @property
    def failures_if_it_fails(self) -> int:
        """Failures in a row if this run fails as well: a trigger's run does not raise the count."""
        asked = self.retry or not self.failures or self.times_in_a_row(CONFLICT)
        return self.failures + 1 if asked else self.failures

    def own_changes(self) -> dict[Version, None]:
        """The versions that the run made itself; see `MOST_STRANGERS`."""
        return self.writes.versions() if self.strangers >= MOST_STRANGERS else self.writes.changes()

    def times_in_a_row(self, streak: Streak) -> int:
        """How often the runs just before this one ended like that."""
        return self.in_a_row[1] if self.in_a_row is not None and self.in_a_row[0] is streak else 0

    def begins_write(self, ref: ObjectRef | None) -> None:
        """A write of the object `ref` (None: of a new one) is going to be sent: what is stored now is what it changes.
        When it is answered, the watch may have stored its outcome already."""
        self._begun = (None, None) if ref is None else (ref.key, self.known(ref))

    def wrote(self, write: Write) -> None:
        """The server answered a write of this run."""
        if self.writes is _NO_WRITES:  # most runs write nothing, so that costs them nothing
            self.writes = RunWrites()
        begun, self._begun = self._begun, None
        known = begun is not None and begun[0] in (None, write.ref.key)
        self.writes.add(write, begun[1] if known and begun is not None else self.known(write.ref))
        record, subject = write.record, self.subject
        if record is not None and subject is not None and record.uid == subject.uid:
            self.subject = Subject(record.uid, record.head.generation)


def _nothing(_ref: ObjectRef) -> None:
    return None


class _ThisThread(threading.local):
    run: Run | None = None


_this_thread = _ThisThread()


def enter_run(run: Run | None, known: Known = _nothing) -> None:
    """From now on this thread works for `run` (None: for nobody), whose writes are compared with what is `known`."""
    if run is not None:
        run.known = known
    _this_thread.run = run


def is_in_run() -> bool:
    """Whether this thread works for a run."""
    return _this_thread.run is not None


def begin_write(ref: ObjectRef | None) -> None:
    """For `WriteObservers.begun`: this thread is going to write."""
    run = _this_thread.run
    if run is not None:
        run.begins_write(ref)


def record_write(write: Write) -> None:
    """For `Client.on_write`: this thread wrote an object and was answered this version, whose echo will come on a
    watch."""
    run = _this_thread.run
    if run is not None:
        run.wrote(write)
