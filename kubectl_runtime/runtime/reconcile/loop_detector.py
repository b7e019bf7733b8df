"""`LoopDetector`: notices controllers that keep themselves or each other busy, and says what it is about.

    own loop   the last `RUNS` runs of a key within `WITHIN` were each there only because of the run before: every
               change that led to it was a write of that one, or it had asked to run again at once
    quarrel    `TURNS` times in a row within `WITHIN` a write of a key's runs took a field from the same other manager,
               which had taken it back in between

Where two applies of a run have one field manager, each drops what the other one applied: an own loop is told with that.

Each is one WARNING for a key within `SILENCE`, with the JSON paths that differed between the last two versions; the
last ones are kept for whoever looks.

A key whose runs write nothing and do not ask to run at once costs a lookup. Of the others the last versions are kept,
for `MOST_KEYS` keys. Managed fields are read from the second write within `WITHIN` on. Safe to use from any thread; no
lock is held while anything is decoded or logged.
"""
from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import msgspec

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import GuardedLogger
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.key_backoff import is_own
from kubectl_runtime.runtime.queue.own_writes import Version
from kubectl_runtime.runtime.queue.runs import NO_WRITES, REQUEUED, SOON, Outcome, Run

RUNS, WITHIN = 10, 60.0
TURNS = 3
"""Five turns of two managers: three of ours, and two of the other's between them."""
SILENCE = 3600.0
MOST_KEYS = 10_000
MOST_PATHS = 10
KEPT = 20

_decode = msgspec.json.Decoder().decode
Owners = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Loop:
    """One that was noticed: the key it is about, what it is in words, the paths that differed, and when, on the
    controller's clock."""

    ref: ObjectRef
    what: str
    paths: tuple[str, ...]
    at: float


class _Trail:
    """What a key did lately."""

    __slots__ = ("before", "last", "runs", "soon", "turns", "versions", "warned", "written")

    def __init__(self) -> None:
        self.versions: dict[Version, None] = {}
        """Made by the last run."""
        self.before: dict[Version, None] = {}
        """Made by the one before it, whose echo may be late."""
        self.soon = False
        """The last run asked to run again at once."""
        self.runs: deque[float] = deque(maxlen=RUNS)
        """When the last runs ended that were due to the one before them, without a gap."""
        self.last: Record | None = None
        """The object that was written last."""
        self.written = float("-inf")
        self.turns: dict[tuple[ObjectRef, str, str], list[float]] = {}
        self.warned = float("-inf")


class LoopDetector:
    """Notices when one controller keeps itself, or two each other, busy. One for each controller."""

    def __init__(self, logger: GuardedLogger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._trails: OrderedDict[Key, _Trail] = OrderedDict()
        self._found: deque[Loop] = deque(maxlen=KEPT)

    def found(self) -> list[Loop]:
        """The last `KEPT` that were warned of, the latest first."""
        with self._lock:
            return [*reversed(self._found)]

    def ended(self, run: Run, outcome: Outcome, now: float) -> None:
        """A run ended. Runs of one key end one after the other, so its trail is this thread's meanwhile."""
        soon, written = outcome.streak is SOON, run.writes
        if not soon and (written is NO_WRITES or not written) and run.key not in self._trails:
            return  # as most runs, which need not wait for the lock
        writes = written.versions()
        with self._lock:
            trail = self._trails.get(run.key)
            if trail is None:
                trail = self._trails[run.key] = _Trail()
                if len(self._trails) > MOST_KEYS:
                    self._trails.popitem(last=False)
            elif writes or soon:
                self._trails.move_to_end(run.key)
        self._follow(trail, run, writes, soon, now)
        if writes:
            self._compare(trail, run, now)

    def _follow(self, trail: _Trail, run: Run, writes: dict[Version, None], soon: bool, now: float) -> None:
        if self._is_due_to_itself(trail, run):
            trail.runs.append(now)
        else:
            trail.runs.clear()
        if writes:
            trail.before, trail.versions = trail.versions, dict(writes)
        trail.soon = soon
        if len(trail.runs) == RUNS and now - trail.runs[0] <= WITHIN and (writes or soon):
            paths, twice = [], None
            if run.writes.last:
                before, after = run.writes.last[-1]
                paths = differences(before if _whole(before) else trail.last, after)
                twice = at_odds_with_itself(trail.last, run.writes.last[0][1], after)
            asked = "it asks to run again at once each time" if soon and not writes else \
                "each run is triggered by what the one before wrote"
            if twice is not None:
                asked += f"; two calls under the field manager {twice!r} take each other's fields: give each one of " \
                    "its own"
            self._warn(trail, run.request.ref, now, f"runs in a loop: {RUNS} runs within "
                       f"{now - trail.runs[0]:.1f} s, {asked}", paths)

    @staticmethod
    def _is_due_to_itself(trail: _Trail, run: Run) -> bool:
        if not run.causes:
            return trail.soon and run.request.reason is REQUEUED
        return all(cause is not None and (is_own(cause, trail.versions) or is_own(cause, trail.before))
                   for cause in run.causes)

    def _compare(self, trail: _Trail, run: Run, now: float) -> None:
        often = now - trail.written <= WITHIN
        trail.written = now
        for before, after in run.writes.last:
            if often and before is not None:
                for path, manager in taken(before, after):
                    self._count_turn(trail, run, (after.ref, path, manager), now, before, after)
        if run.writes.last:
            trail.last = run.writes.last[-1][1]

    def _count_turn(self, trail: _Trail, run: Run, turn: tuple[ObjectRef, str, str], now: float, before: Record,
                    after: Record) -> None:
        if len(trail.turns) > MOST_PATHS * MOST_PATHS:
            trail.turns.clear()
        times = [at for at in trail.turns.get(turn, []) if now - at <= WITHIN] + [now]
        trail.turns[turn] = times[-TURNS:]
        if len(times) >= TURNS:
            ref, path, manager = turn
            paths = [path, *(other for other in differences(before, after) if other != path)]
            self._warn(trail, run.request.ref, now, f"competes with field manager {manager!r} for {said(ref)}: both "
                       f"set the same field in turns, {2 * TURNS - 1} times within {now - times[0]:.1f} s", paths)

    def _warn(self, trail: _Trail, ref: ObjectRef, now: float, what: str, paths: list[str]) -> None:
        if now - trail.warned < SILENCE:
            return
        trail.warned = now
        with self._lock:
            self._found.append(Loop(ref, what, tuple(paths[:MOST_PATHS]), now))
        self._logger.warning("%s %s; what differed between the last two versions: %s", said(ref), what,
                             ", ".join(paths[:MOST_PATHS]) or "nothing that was written")


def differences(before: Record | None, after: Record) -> list[str]:
    """The JSON paths at which two versions of an object differ, but for what the server counts; `MOST_PATHS` at most.
    Paths, never values."""
    found: list[str] = []
    if before is not None and before.ref == after.ref:
        _differ(_content(before), _content(after), "", found)
    return found


def _differ(before: Any, after: Any, path: str, found: list[str]) -> None:
    if len(found) >= MOST_PATHS or (type(before) is type(after) and before == after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            _differ(before.get(key), after.get(key), f"{path}.{key}" if path else key, found)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            _differ(one, other, f"{path}[{index}]", found)
    else:
        found.append(path)


def taken(before: Record, after: Record) -> list[tuple[str, str]]:
    """Fields that one manager had to itself in `before` and does not have in `after`, where another one has: each path
    with the manager that lost it."""
    had, has = _owners(before), _owners(after)
    return [(path, next(iter(managers))) for path, managers in had.items()
            if len(managers) == 1 and path in has and not managers & has[path]]


def at_odds_with_itself(first: Record | None, second: Record, third: Record) -> str | None:
    """The field manager whose apply gave `second`, and dropped by it fields that it has in `first` and `third`, and
    whose next apply gave `third` and dropped some of `second`; None when there is none. Three versions in a row of one
    object."""
    if first is None or not first.ref == second.ref == third.ref:
        return None
    before, between, after = _applied(first), _applied(second), _applied(third)
    return next((manager for manager, has in after.items()
                 if (before.get(manager, set()) & has) - between.get(manager, set())
                 and between.get(manager, set()) - has), None)


def _applied(record: Record) -> dict[str, set[str]]:
    """The paths that each manager has applied."""
    found: dict[str, set[str]] = {}
    for path, managers in _owners(record, "Apply").items():
        for manager in managers:
            found.setdefault(manager, set()).add(path)
    return found


def _owners(record: Record, operation: str | None = None) -> Owners:
    owners: dict[str, set[str]] = {}
    for entry in _metadata(record).get("managedFields") or ():
        if operation in (None, entry.get("operation")):
            _collect(entry.get("fieldsV1") or {}, "", entry.get("manager") or "", owners)
    return {path: frozenset(managers) for path, managers in owners.items()}


def _collect(fields: Any, path: str, manager: str, owners: dict[str, set[str]]) -> None:
    for key, below in fields.items():
        if key == ".":
            continue
        kind, _, name = key.partition(":")
        place = (f"{path}.{name}" if path else name) if kind == "f" else f"{path}[{name}]"
        if below:
            _collect(below, place, manager, owners)
        else:
            owners.setdefault(place, set()).add(manager)


def _whole(record: Record | None) -> bool:
    return record is not None and bool(record.raw) and not record.partial


def _content(record: Record) -> Any:
    content = _plain(record)
    metadata = content.get("metadata")
    if isinstance(metadata, dict):
        for counted in ("resourceVersion", "managedFields", "generation"):
            metadata.pop(counted, None)
    return content


def _metadata(record: Record) -> Any:
    metadata = _plain(record).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _plain(record: Record) -> dict[str, Any]:
    try:
        content = _decode(record.raw)
    except DECODE_FAILURES:  # declared fields only
        return {}
    if record.enveloped and isinstance(content, dict):
        content = content.get("object")
    return content if isinstance(content, dict) else {}
