"""Values: the part of an object that a reader depends on, as a path such as `data.tls.crt` or a function of the object.

When such an object changes, `Values` first compares the value: `step` reads the new content if no watch has it, and
triggers only the readers whose value differs.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.base.guard import GuardedLogger, check_callback, guarded, name_of, not_awaitable
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.views import Record, plain_object
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.reads.dependencies import Moved, Node, Seen, Wanted, identity_of
from kubectl_runtime.runtime.reads.sources import Source, Sources, Target
from kubectl_runtime.runtime.triggers.predicates import same

Value = str | Callable[[Any], object]



class Absent:
    """The value if the object does not exist, or if the path does not exist in the object."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


def value_at(obj: Any, path: str) -> Any:
    """The value at a path such as `data.tls.crt` or `spec.ports.0.name` in plain JSON; `ABSENT` if there is none.

    Keys may contain dots: the longest existing key is taken.
    """
    parts = path.removeprefix(".").split(".")
    return _value_at(obj, parts)


def _value_at(obj: Any, parts: list[str]) -> Any:
    if not parts:
        return obj
    if isinstance(obj, list):
        index = parts[0]
        return _value_at(obj[int(index)], parts[1:]) if index.isdecimal() and int(index) < len(obj) else ABSENT
    if isinstance(obj, dict):
        for length in range(len(parts), 0, -1):
            key = ".".join(parts[:length])
            if key in obj and (found := _value_at(obj[key], parts[length:])) is not ABSENT:
                return found
    return ABSENT


def check_value(value: object) -> None:
    """Raise RequestError for an invalid `value=` of a read."""
    if isinstance(value, str):
        if not value.strip("."):
            raise RequestError("read: value must be a path such as 'data.tls.crt', or a function of the object")
        return
    check_callback("read: value must be a path such as 'data.tls.crt', or a function, which", value, "obj")


RETRY, LONGEST_RETRY = 1.0, 60.0
"""The first and the longest wait, in seconds, between attempts to read an object whose value must be compared."""


class _Wait(NamedTuple):
    """The time and the number of the next attempt to read an object's content."""

    due: float
    attempt: int


class Values:
    """The values that the runs of one controller have read. Safe to use from any thread."""

    def __init__(self, sources: Sources, memory: Callable[[Source, Key], tuple[bool, Record | None]],
                 trigger: Callable[[Target, list[Moved]], None], *, lock: threading.Lock, clock: Clock,
                 draining: StopToken, logger: GuardedLogger) -> None:
        """`memory(source, key)` returns whether the object is known without a request, and the object's record. It is
        called while `lock`, which guards the dependencies, is held. `trigger(target, moved)` triggers readers; it is
        called without the lock."""
        self._sources = sources
        self._memory = memory
        self._trigger = trigger
        self._clock = clock
        self._draining = draining
        self._logger = logger
        self._unsure: dict[tuple[Source, Key], _Wait] = {}
        self.spawn: Callable[[str, Callable[[], object]], None] = _not_spawned
        """Starts a thread. If this is not set, the caller must call `step`."""
        self._spawned = False
        self.renew(lock)

    def renew(self, lock: threading.Lock) -> None:
        """Use another lock. Only for a forked child process."""
        self._lock = lock
        self._changed = threading.Condition(lock)

    def of(self, node: Node, target: Target, record: Record | None, value: Value) -> Any:
        """The value in `record`. A path is looked up once for all readers."""
        if record is None or not isinstance(value, str):
            return self._valued(target, record, value)
        identity = record.head.uid, record.head.resource_version
        kept = node.evaluated.get(value)
        if kept is not None and kept[0] == identity:
            return kept[1]
        found = self._valued(target, record, value)
        if kept is not None and same(kept[1], found):
            found = kept[1]
        with self._lock:
            node.evaluated[value] = identity, found
        return found

    def note(self, source: Source) -> None:
        """Note the objects of `source` whose values must be compared. The lock must be held."""
        if not source.shelf.unsure:
            return
        now = self._clock.monotonic()
        for key in source.shelf.unsure:
            self._unsure[(source, key)] = _Wait(now, 0)
        source.shelf.unsure.clear()
        self._changed.notify_all()
        if not self._spawned and self.spawn is not _not_spawned:
            self._spawned = True
            guarded(None, "starting the thread of reads", self.spawn, "reads", self.serve)

    def due(self) -> float | None:
        """Seconds until `step` has something to do; None if there is nothing to do."""
        with self._lock:
            if not self._unsure:
                return None
            return max(0.0, min(wait.due for wait in self._unsure.values()) - self._clock.monotonic())

    def serve(self) -> None:
        """Call `step` until the controller stops. Blocks."""
        forget = self._draining.on_set(self._wake)
        try:
            while not self._draining.is_set():
                if self.step():
                    continue
                left = self.due()
                with self._changed:
                    if left != 0.0 and not self._draining.is_set() and (left is not None or not self._unsure):
                        self._clock.wait(self._changed, left)
        finally:
            forget()

    def step(self) -> bool:
        """Compare the values of one changed object, reading its content if needed. Returns False if none is due."""
        now = self._clock.monotonic()
        with self._lock:
            found = next((item for item in self._unsure.items() if item[1].due <= now), None)
            if found is None:
                return False
            (source, key), wait = found
            del self._unsure[(source, key)]
            node = source.shelf.singles.get(key)
            readers = source.shelf.to_compare(key)
            if node is None or not readers:
                return True
            before = node.revision
            known, record = self._memory(source, key)
        if not known:
            try:
                record = self._sources.get(source.target, key)
            except (KubeError, OSError) as error:
                self._again(source, key, wait, error)
                return True
        self._compare(source, node, before, record, readers)
        return True

    def _again(self, source: Source, key: Key, wait: _Wait, error: BaseException) -> None:
        """Schedule another attempt to read the content. If reading is forbidden, trigger the readers instead."""
        target = source.target
        if isinstance(error, ApiError) and error.code in (401, 403):
            with self._lock:
                node = source.shelf.singles.get(key)
                readers = [] if node is None else [reader for reader, _ in source.shelf.to_compare(key)]
                moved = [Moved(node, key, "changed", None, readers)] if node is not None and readers else []
            self._trigger(target, moved)
            return
        delay = min(LONGEST_RETRY, RETRY * 2 ** min(wait.attempt, 10))
        self._logger.debug("cannot read %s to compare a value; trying again in %g s: %s", target.name_of(key),
                           delay, error)
        with self._lock:
            self._unsure.setdefault((source, key), _Wait(self._clock.monotonic() + delay, wait.attempt + 1))

    def _compare(self, source: Source, node: Node, before: int, record: Record | None,
                 readers: list[tuple[Key, Wanted]]) -> None:
        """Compare values with `record`, which was read when the node's revision was `before`."""
        target, shelf, key, results = source.target, source.shelf, node.key, []
        assert key is not None
        for reader, wanted in readers:
            differs = any(guarded(True, name_of(seen.of) if callable(seen.of) else "a value", self._differs, node,
                                  target, record, seen) for seen in (*wanted.good, *wanted.added))
            results.append((reader, wanted, differs))
        with self._lock:
            identity = identity_of(record)
            found = {} if identity is None else {key: identity}
            moved, current = shelf.answered(node, before, found, source.shown, progress=source.progress)
            if current and record is not None and identity is not None:
                shelf.unsure.pop(key, None)  # compared here
                shelf.hold(key, record)
                if (one := shelf.compared(key, identity, results)) is not None:
                    moved.append(one)
            self.note(source)
        self._trigger(target, moved)

    def _differs(self, node: Node, target: Target, record: Record | None, seen: Seen) -> bool:
        return not same(self.of(node, target, record, seen.of), seen.value)

    def _valued(self, target: Target, record: Record | None, value: Value) -> Any:
        if record is None:
            return ABSENT
        if isinstance(value, str):
            return value_at(plain_object(record.raw, record.enveloped, record.ref), value)
        return not_awaitable(value(object_of(target, record)), value)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def object_of(target: Target, record: Record) -> Any:
    """The object that a read of `record` returns."""
    if record.problem is not None:
        return InvalidObject(record)  # like `Api.get`: reading its content raises the error
    return target.kind.from_record(record)


def _not_spawned(_what: str, _body: Callable[[], object]) -> None:
    return None
