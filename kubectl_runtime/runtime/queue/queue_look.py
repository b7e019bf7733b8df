"""`QueueLook`: what a queue holds at one moment, for people: how many keys are in each state, and some of each.

    state         its keys                                                     the first rows are
    running       run now                                                      the longest runs
    due           are ready; or due again, and wait for their run to end       the next to run
    delayed       wait for a time: a requeue, a debounce, a quiet retry        the next to become due
    backing_off   failed, and wait for their retry                             among the failing ones
    held_back     failed, their retry is due, and the brake holds it back      among the failing ones
    failing       failed the last time they ran, whatever state they are in    those that have failed longest

A look takes time in proportion to the rows that are asked for and to the runs in progress, not to the number of keys.
It is taken under the queue's lock and holds nothing that the queue goes on to change.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.runtime.queue.key_backoff import Failures, FailureState
from kubectl_runtime.runtime.queue.run_history import EndedRun
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.queue.scheduled_entry import BRAKED, HELD, WAITING, Entry
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest


class KeyState(StrEnum):
    """What a key does; the last one is of keys that failed and for which nothing is scheduled."""

    RUNNING = "running"
    DUE = "due"
    DELAYED = "delayed"
    BACKING_OFF = "backing_off"
    HELD_BACK = "held_back"
    WAITS_FOR_CHANGE = "waits_for_change"


class RunningRow(NamedTuple):
    """A key that runs now. Times are of the controller's clock, here and below."""

    key: Key
    reason: str
    started: float
    waited: float
    attempt: int
    told: object
    """What the log knows of the failure before; None when there was none."""


class ScheduledRow(NamedTuple):
    """A key that is to run, now or later."""

    key: Key
    reason: str
    at: float
    """When it became due, or will."""
    bulk: bool
    state: KeyState
    told: object


class FailingRow(NamedTuple):
    """A key that failed the last time it ran."""

    key: Key
    state: KeyState
    at: float | None
    """When its next run is due; None when none is scheduled."""
    failures: int
    told: object


@dataclass(slots=True)
class QueueLook:
    """What a queue holds at one moment, and how much of it. `runs` and `failed` count the runs that have ended since
    the start."""

    now: float
    counts: dict[str, int]
    """By the names of the table."""
    running: list[RunningRow]
    due: list[ScheduledRow]
    delayed: list[ScheduledRow]
    failing: list[FailingRow]
    runs: int = 0
    failed: int = 0
    recent: list[EndedRun] = field(default_factory=list)
    slowest: list[EndedRun] = field(default_factory=list)


def looked_at(now: float, most: int, scheduler: Scheduler[Key, ReconcileRequest], running: dict[Key, Run],
              failures: Failures[Key]) -> QueueLook:
    """A look at a queue of these parts, with up to `most` rows of each kind."""
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
    return RunningRow(run.key, str(run.request.reason), run.started, run.waited, run.failures + 1, run.told)


def _scheduled(entry: Entry[Key, ReconcileRequest], failures: Failures[Key]) -> ScheduledRow:
    state = failures.get(entry.key)
    return ScheduledRow(entry.key, str(entry.message.reason), entry.at, entry.bulk, _state_of(entry),
                        None if state is None else state.told)


def _failing(key: Key, state: FailureState, entry: Entry[Key, ReconcileRequest] | None, runs: bool) -> FailingRow:
    doing = KeyState.RUNNING if runs else KeyState.WAITS_FOR_CHANGE if entry is None else _state_of(entry)
    return FailingRow(key, doing, None if entry is None else entry.at, state.count, state.told)


def _state_of(entry: Entry[Key, ReconcileRequest]) -> KeyState:
    if entry.place == WAITING:
        return KeyState.BACKING_OFF if entry.retry else KeyState.DELAYED
    return KeyState.HELD_BACK if entry.place == BRAKED else KeyState.DUE
