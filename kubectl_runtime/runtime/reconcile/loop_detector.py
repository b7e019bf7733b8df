"""`LoopDetector`: notices controllers that keep themselves or each other busy, logs why, and slows them down.

    own loop   the last `RUNS` runs of a key ended within `WITHIN`, and each was caused only by the run before. That
               is, the run before made all changes that led to the run, requested it at once, or triggered the key.
               `FEW` runs suffice if they write the same content again and again, or if two applies of a run have
               the same field manager, so that each apply drops the fields of the other
    quarrel    runs of a key took a field from the same other manager `TURNS` times in a row within `WITHIN`; between
               two of these runs, that manager took the field back
    ping-pong  the last `ANSWERS` runs of a key ended within `BUSY`, and each wrote something, whatever caused the run

Each loop is logged as a WARNING with the JSON paths that differ between the last two versions, at most once for a key
within `SILENCE`. The last loops are kept for the status page. Step-by-step progress (fifteen children, one per run;
fourteen phases) is not logged. While an own loop or a ping-pong continues, `ended` returns True, and the key gets a
requeue delay.

A key whose runs write nothing and do not requeue at once costs one lookup. From the second write within `WITHIN`, the
object's last content is kept until the object is deleted, with a hash in place of each value, for at most `MOST_KEYS`
keys and `MOST_BYTES`. Safe to use from any thread; no lock is held while an object is decoded or a line is logged.
"""
from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from itertools import islice
from typing import Any

import msgspec

from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.jsonbytes import Path
from kubectl_runtime.core.codec.jsonbytes import differences as json_differences
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.own_writes import Version
from kubectl_runtime.runtime.queue.runs import NO_WRITES, RETRIED, Outcome, Repeated, Requeued, Run, is_own

RUNS, WITHIN = 50, 60.0
FEW, COMES_BACK = 10, 3
ANSWERS, BUSY = 100, 30.0
TURNS = 3
"""Three of our writes, with two of the other manager between them."""
SILENCE = 3600.0
MOST_KEYS = 10_000
MOST_BYTES = 8 << 20
MOST_VERSIONS = 1000
"""The maximum number of remembered versions per run; for a run that writes more, none are remembered."""
MOST_PATHS = 10
KEPT = 20

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
Owners = dict[str, frozenset[str]]


class Loop(msgspec.Struct, frozen=True):
    """A loop that was noticed: the object, the description, the paths that differed, and the time on the controller's
    clock."""

    ref: ObjectRef
    what: str
    paths: tuple[str, ...]
    at: float


class _Trail:
    """The recent runs and writes of a key."""

    __slots__ = ("answers", "before", "contents", "last", "runs", "soon", "turns", "versions", "warned", "written")

    def __init__(self) -> None:
        self.versions: dict[Version, None] = {}
        """The versions that the last run made."""
        self.before: dict[Version, None] = {}
        """The versions that the second-to-last run made; their events may be late."""
        self.soon = False
        """Whether the last run requested another one at once."""
        self.runs: deque[float] = deque(maxlen=RUNS)
        """The end times of the last runs, as far back as each was caused by the run before it."""
        self.contents: deque[int] = deque(maxlen=RUNS)
        """Hashes of the last content that each of these runs wrote."""
        self.answers: deque[float] = deque(maxlen=ANSWERS)
        """The end times of the last runs, as far back as each wrote something."""
        self.last: Sketch | None = None
        """The object that was written last."""
        self.written = float("-inf")
        self.turns: dict[tuple[ObjectRef, str, str], list[float]] = {}
        self.warned = float("-inf")


class LoopDetector:
    """Notices when a controller keeps itself busy, or two controllers keep each other busy. Each controller has its own
    detector."""

    def __init__(self, logger: GuardedLogger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self.trails: OrderedDict[Key, _Trail] = OrderedDict()
        """The recent runs of keys that wrote something or asked to run again at once. Changed only in this class."""
        self._bytes = 0
        self._found: deque[Loop] = deque(maxlen=KEPT)

    def found(self) -> list[Loop]:
        """The last `KEPT` loops that were logged, the latest first."""
        with self._lock:
            return [*reversed(self._found)]

    def forget(self, key: Key) -> None:
        """Drop the state of `key`: its object was deleted."""
        if key in self.trails:  # false for most keys
            with self._lock:
                self._drop(key)

    def ended(self, run: Run, outcome: Outcome, now: float) -> bool:
        """A run has ended. Returns whether the run's key is in a loop and needs a requeue delay. Runs of one key do not
        overlap, so no other thread uses the key's trail during this call."""
        soon = (outcome.repeated is not None and outcome.repeated is Repeated.SOON) or run.triggered_itself
        written = run.writes
        if not soon and (written is NO_WRITES or not written) and run.key not in self.trails:
            return False  # most runs end here, without waiting for the lock
        if run.forgotten:
            self.forget(run.key)
            return False
        writes = written.versions()
        with self._lock:
            trail = self.trails.get(run.key)
            if trail is None:
                trail = self.trails[run.key] = _Trail()
                if len(self.trails) > MOST_KEYS:
                    self._drop(next(iter(self.trails)))
            elif writes or soon:
                self.trails.move_to_end(run.key)
        often = now - trail.written <= WITHIN
        last = Sketch.of(run.writes.last[-1][1]) if writes and often and run.writes.last else None
        in_a_loop = self._follow(trail, run, writes, soon, now, last)
        if writes:
            self._compare(trail, run, now)
            in_a_loop |= self._answers(trail, run, now, last)
        else:
            trail.answers.clear()
        if last is not None:
            self._keep(run.key, trail, last)
        return in_a_loop

    def _follow(self, trail: _Trail, run: Run, writes: dict[Version, None], soon: bool, now: float,
                last: Sketch | None) -> bool:
        if self._is_due_to_itself(trail, run):
            trail.runs.append(now)
        else:
            trail.runs.clear()
            trail.contents.clear()
        if last is not None:
            trail.contents.append(hash(last.content))
        if writes:
            trail.before, trail.versions = trail.versions, writes if len(writes) <= MOST_VERSIONS else {}
        trail.soon = soon
        if len(trail.runs) < FEW or now - trail.runs[0] > WITHIN or not (writes or soon):
            return False
        twice = None
        if run.writes.last and last is not None:
            twice = at_odds_with_itself(trail.last, Sketch.of(run.writes.last[0][1]), last)
        comes_back = max(Counter(trail.contents).values(), default=0) >= COMES_BACK
        if len(trail.runs) < RUNS and twice is None and not comes_back:
            return False
        if now - trail.warned >= SILENCE:
            paths = self._paths(trail, run, last)
            asked = "it asks to run again at once each time" if soon and not writes else \
                "each run is triggered by the writes of the run before"
            if twice is not None:
                asked += f"; two calls under the field manager {twice!r} take each other's fields: give each call " \
                    "its own field manager"
            self._warn(trail, run.request.ref, now, f"runs in a loop: {len(trail.runs)} runs within "
                       f"{now - trail.runs[0]:.1f} s, {asked}", paths)
        return True

    def _answers(self, trail: _Trail, run: Run, now: float, last: Sketch | None) -> bool:
        trail.answers.append(now)
        if len(trail.answers) < ANSWERS or now - trail.answers[0] > BUSY:
            return False
        self._warn(trail, run.request.ref, now, f"writes in each run, and something always changes: {ANSWERS} runs "
                   f"within {now - trail.answers[0]:.1f} s; another controller may answer each write",
                   self._paths(trail, run, last))
        return True

    @staticmethod
    def _paths(trail: _Trail, run: Run, last: Sketch | None) -> list[str]:
        if last is None or not run.writes.last:
            return []
        before = run.writes.last[-1][0]
        return differences(Sketch.of(before) if before is not None and _whole(before) else trail.last, last)

    def _keep(self, key: Key, trail: _Trail, last: Sketch) -> None:
        with self._lock:
            if self.trails.get(key) is not trail:
                return
            self._bytes += len(last) - len(trail.last or b"")
            trail.last = last
            while self._bytes > MOST_BYTES:
                self._drop(next(iter(self.trails)))

    def _drop(self, key: Key) -> None:
        trail = self.trails.pop(key, None)
        if trail is not None:
            self._bytes -= len(trail.last or b"")

    @staticmethod
    def _is_due_to_itself(trail: _Trail, run: Run) -> bool:
        causes = run.causes
        if not causes:
            return trail.soon and isinstance(run.request.reason, Requeued) and run.request.reason is not RETRIED
        # A cause of None means that the program triggered the key. If `soon` is set, the last run most likely did this.
        return all(trail.soon if cause is None else is_own(cause, trail.versions) or is_own(cause, trail.before)
                   for cause in causes)

    def _compare(self, trail: _Trail, run: Run, now: float) -> None:
        often = now - trail.written <= WITHIN
        trail.written = now
        for before, after in run.writes.last:
            if often and before is not None:
                for path, manager in taken(before, after):
                    self._count_turn(trail, run, (after.ref, path, manager), now, before, after)

    def _count_turn(self, trail: _Trail, run: Run, turn: tuple[ObjectRef, str, str], now: float, before: Record,
                    after: Record) -> None:
        if len(trail.turns) > MOST_PATHS * MOST_PATHS:
            trail.turns.clear()
        times = [at for at in trail.turns.get(turn, []) if now - at <= WITHIN] + [now]
        trail.turns[turn] = times[-TURNS:]
        if len(times) >= TURNS:
            ref, path, manager = turn
            differ = differences(Sketch.of(before), Sketch.of(after))
            paths = [path, *(other for other in differ if other != path)]
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


class Sketch:
    """The parts of an object that are compared: the paths of its content with a hash in place of each value, and the
    fields that each manager has applied. It contains no value of the object."""

    __slots__ = ("applied", "content", "ref")

    def __init__(self, ref: ObjectRef, content: bytes, applied: bytes) -> None:
        self.ref = ref
        self.content = content
        self.applied = applied

    def __len__(self) -> int:
        return len(self.content) + len(self.applied)

    @classmethod
    def of(cls, record: Record) -> Sketch:
        """The sketch of one version."""
        applied = {manager: sorted(paths) for manager, paths in _applied(record).items()}
        return cls(record.ref, _encode(_hashed(_content(record))), _encode(applied))

    def has_applied(self, manager: str) -> set[str]:
        """The paths that this manager has applied."""
        return set(_decode(self.applied).get(manager, ()))


def _hashed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hashed(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_hashed(below) for below in value]
    return hash((type(value).__name__, value))  # comparable only in this process: Python salts the hash of text


def differences(before: Sketch | None, after: Sketch) -> list[str]:
    """The JSON paths at which two versions of an object differ, without values: at most `MOST_PATHS`. Fields that the
    server maintains, such as resourceVersion, are ignored."""
    if before is None or before.ref != after.ref:
        return []
    found = json_differences(_decode(before.content), _decode(after.content))
    return [_shown(path) for path, _, _ in islice(found, MOST_PATHS)]


def _shown(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def taken(before: Record, after: Record) -> list[tuple[str, str]]:
    """The fields that a single manager owned in `before` and only other managers own in `after`: each path with the
    manager that lost the field."""
    had, has = _owners(before), _owners(after)
    return [(path, next(iter(managers))) for path, managers in had.items()
            if len(managers) == 1 and path in has and not managers & has[path]]


def at_odds_with_itself(first: Sketch | None, second: Sketch, third: Sketch) -> str | None:
    """The field manager that takes fields from itself in three consecutive versions of one object; None if there is
    none. The manager's apply made `second` and dropped fields that the manager has in `first` and `third`. Its next
    apply made `third` and dropped fields of `second`."""
    if first is None or not first.ref == second.ref == third.ref:
        return None
    for manager, paths in _decode(third.applied).items():
        between, has = second.has_applied(manager), set(paths)
        if (first.has_applied(manager) & has) - between and between - has:
            return str(manager)
    return None


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
    except DECODE_FAILURES:  # no JSON is kept: the record has only declared fields
        return {}
    if record.enveloped and isinstance(content, dict):
        content = content.get("object")
    return content if isinstance(content, dict) else {}
