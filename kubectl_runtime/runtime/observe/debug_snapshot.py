"""`snapshot`: a `DebugState` of controllers that run, taken without holding them up.

Each controller's queue is looked at under its lock, which is held in proportion to the rows, not to the keys; see
`QueueLook`. Everything else is read without a lock. A watch that several controllers use is one row.

    rows    of each kind a controller, `WATCHES` and `CONTROLLERS` at most; the rest is counted
    error   class and code; with `details` its text as well, cut after `MOST_TEXT` characters
    names   as they are; other texts (a reason, what a watch met) are cut alike, why it is not ready after twice as many
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.version import VERSION as LIBRARY
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.observe.debug_state import (
    VERSION,
    ControllerState,
    Counts,
    DebugState,
    KeyRow,
    LoopRow,
    ManagerState,
    RunRow,
    WatchRow,
)
from kubectl_runtime.runtime.observe.health_checks import Watched
from kubectl_runtime.runtime.queue.queue_look import FailingRow, KeyState, RunningRow, ScheduledRow
from kubectl_runtime.runtime.queue.run_history import EndedRun
from kubectl_runtime.runtime.reconcile.run_log import Told
from kubectl_runtime.runtime.triggers.watches import Watch

CONTROLLERS, WATCHES = 50, 100
MOST_TEXT = 200


class Inspected(Watched, Protocol):
    """A controller that was started: `Running`."""

    @property
    def assembly(self) -> Assembly[Any]:
        """The parts of the running controller."""


class Debugged(Protocol):
    """What a page is about. Safe to ask from any thread, and does not block."""

    def controllers(self) -> Sequence[Inspected]:
        """The controllers that were started."""

    def manager(self) -> ManagerState | None:
        """The state of the manager that runs them; None without one."""


def snapshot(debugged: Debugged, clock: Clock, since: float, rows: int, *, details: bool) -> DebugState:
    """How things are now, with up to `rows` rows of each kind; `since`: when the page was made, on `clock`."""
    running = debugged.controllers()
    shown = running[:CONTROLLERS]
    watches = _watches(running)
    return DebugState(
        version=VERSION, library=LIBRARY, time=clock.now().isoformat(timespec="seconds").replace("+00:00", "Z"),
        process=os.getpid(), uptime=_rounded(clock.monotonic() - since), details=details, manager=debugged.manager(),
        controllers=[_controller(one, rows, _Errors(details)) for one in shown], watches=watches[:WATCHES],
        controllers_left_out=len(running) - len(shown), watches_left_out=max(0, len(watches) - WATCHES))


class _Errors:
    """What is shown of a failure that the log was told of."""

    def __init__(self, details: bool) -> None:
        self._details = details

    def __call__(self, told: object) -> str:
        if not isinstance(told, Told):
            return ""
        if self._details:
            return _cut(told.text)
        kind, code = told.alike
        return _cut(f"{kind} {code}" if code else kind)


def _controller(running: Inspected, rows: int, error: _Errors) -> ControllerState:
    assembly = running.assembly
    look = assembly.runner.look(rows)
    now, kind = look.now, assembly.plan.resource
    return ControllerState(
        name=_cut(running.name), kind=kind.full_name, concurrency=assembly.plan.concurrency,
        not_ready=_cut(running.why_not_ready, 2 * MOST_TEXT), not_alive=_cut(running.why_not_alive, 2 * MOST_TEXT),
        counts=Counts(**look.counts),
        runs=look.runs, failed=look.failed,
        running=[_running(row, now, error) for row in look.running],
        due=[_scheduled(row, now, error) for row in look.due],
        delayed=[_scheduled(row, now, error) for row in look.delayed],
        failing=[_failing(row, now, error) for row in look.failing],
        recent=[_ended(row, now, error) for row in look.recent],
        slowest=[_ended(row, now, error) for row in look.slowest],
        loops=[LoopRow(name=_name((loop.ref.namespace, loop.ref.name)), what=_cut(loop.what),
                       ago=_rounded(now - loop.at), fields=[_cut(path) for path in loop.paths])
               for loop in assembly.loops.found()[:rows]])


def _running(row: RunningRow, now: float, error: _Errors) -> KeyRow:
    return KeyRow(name=_name(row.key), state=KeyState.RUNNING, reason=_cut(row.reason),
                  age=_rounded(now - row.started), waited=_rounded(row.waited), attempt=row.attempt,
                  error=error(row.told))


def _scheduled(row: ScheduledRow, now: float, error: _Errors) -> KeyRow:
    late = now - row.at
    return KeyRow(name=_name(row.key), state=row.state, reason=_cut(row.reason), age=_rounded(max(0.0, late)),
                  due_in=_rounded(-late), bulk=row.bulk, error=error(row.told))


def _failing(row: FailingRow, now: float, error: _Errors) -> KeyRow:
    told = row.told
    return KeyRow(name=_name(row.key), state=row.state, due_in=None if row.at is None else _rounded(row.at - now),
                  failures=row.failures, failing_for=_rounded(now - told.since) if isinstance(told, Told) else 0.0,
                  error=error(told))


def _ended(row: EndedRun, now: float, error: _Errors) -> RunRow:
    return RunRow(name=_name(row.key), result=row.result, took=_rounded(row.took), ago=_rounded(now - row.ended),
                  waited=_rounded(row.waited), reason=_cut(str(row.reason)), error=error(row.told))


def _watches(controllers: Iterable[Inspected]) -> list[WatchRow]:
    """Those in trouble first."""
    found: dict[int, tuple[str, Watch[Any], list[str], float]] = {}
    for running in controllers:
        now = running.assembly.plan.clock.monotonic()
        for name, watch in running.assembly.watches.items():
            found.setdefault(id(watch), (name, watch, [], now))[2].append(running.name)
    rows = [_watch(name, watch, users, now) for name, watch, users, now in found.values()]
    return sorted(rows, key=lambda row: (not row.error, row.complete))


def _watch(name: str, watch: Watch[Any], users: list[str], now: float) -> WatchRow:
    state, stored = watch.state, watch.stored
    return WatchRow(name=_cut(name), controllers=[_cut(user) for user in users[:CONTROLLERS]], phase=state.phase,
                    since=_rounded(now - state.since), complete=stored.ready, objects=len(stored.records),
                    bytes=stored.bytes, relists=state.relists, failures=state.consecutive_failures,
                    last_event=None if state.last_event is None else _rounded(now - state.last_event),
                    error=_cut(state.last_error))


def _name(key: Key) -> str:
    namespace, name = key
    return _sendable(f"{namespace}/{name}" if namespace else name)


def _cut(text: str, most: int = MOST_TEXT) -> str:
    return _sendable(text if len(text) <= most else f"{text[:most]}…")


def _sendable(text: str) -> str:
    """`text` as UTF-8 can carry it: an exception's may be made of anything."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _rounded(seconds: float) -> float:
    """To the millisecond: more is noise, and most of the bytes. A clock that was read a little later makes no negative
    age."""
    return round(seconds, 3) + 0.0
