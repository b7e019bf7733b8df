"""`FlightRecorder`: what one controller sees, asks and does, on its way to a `RingFile`.

    watches      a subscription of each of its watches, which gets every stored change before the others do
    triggers     what is given to its queue
    runs         their beginnings and ends
    calls        what its runs ask of the server and are answered, in the thread of the run

Each costs the thread that does it an entry in a queue, without a copy, an encoding, or the disk (measured: 1.7 µs for a
change or a call, 5.4 for a run); a thread of its own makes lines of them and writes (9 µs for a Pod of 4.7 KB). A queue
that is full, because the disk is slow, takes no more: how many entries were lost is said in the file, at the place
where they are missing. A disk that fails ends the recording, which is logged, and nothing else. In a simulation there
is no thread: `pump` does its work.

The lines of a recording: JSON, one object a line, each with `k`, what it is, and `t`, seconds on a clock.

====================  =================================================================================================
begin                 the first line of a file: `format`, `controller`, `session` (a process's life of it), `part` (its
                      files, counted), `at` (the date), `watches` (by name: `path`, `labels`, `fields`, `metadata`: only
                      that), `partial` (what was stored when it began does not follow: it was too much), `note`
watch                 there is one more watch: `w`, its name, and its `place`, as in `watches`
held                  an object that was stored when the file began: `w` the watch, `key`, and `o`, the object
ready                 the watch `w` had a complete list
apply, delete         an object came or changed, or is gone; `o` is the object, or `line` the watch line that brought it
trigger               `refs` to reconcile: [namespace, name, reason] each
run                   a run begins: `id`, `ns`, `name`, `reason`, `failures` before it
call                  an answer inside the run `id`: method `m`, `path`, `query`, body `b`, status `s`, answer `a`
                      (`text`, if it is not JSON), or the error `e` where there was none
end                   the run `id` ended: `result`, and if it failed `type`, `error` and `trace`
lost                  `count` lines that could not be kept: the disk was slower than the controller
stop                  the controller ended: `reason`
====================  =================================================================================================

Lines are in the order in which things happened in each thread, those of several threads as they came. The last line of
a process that was killed may be torn. What is withheld is said in `note`.
"""
from __future__ import annotations

import itertools
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from kubectl_runtime.client.api.writes import Exchanged
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard, guarded_logger
from kubectl_runtime.core.base.interpreter import Thread, renewed_in_children
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import encoded_query
from kubectl_runtime.core.scope import RunScope, current_run
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.ring_file import RingFile, is_withheld, without_secrets
from kubectl_runtime.runtime.triggers.triggers import OfHeads, ReconcileRequest, Sink
from kubectl_runtime.runtime.usercode import described, guarded
from kubectl_runtime.runtime.watch.event import CARRIERS, Delete, Event

FORMAT = 1
NOTE = ("the data of Secrets, tokens of service accounts and reviews, headers, and the bodies of streams are withheld; "
        "everything else that the controller read or wrote is here as it was")

encode = msgspec.json.encode


class WatchPlace(msgspec.Struct, frozen=True):
    """What a watch asks for."""

    path: str
    labels: str = ""
    fields: str = ""
    metadata: bool = False


def document(body: bytes | None) -> msgspec.Raw | str | None:
    """A body as part of a line: the JSON that it is, or text."""
    if not body:
        return None
    try:
        if b"\n" in body:
            body = msgspec.json.format(body, indent=-1)
        return msgspec.json.decode(body, type=msgspec.Raw)
    except DECODE_FAILURES:
        return body.decode("utf-8", "replace")


def object_line(kind: str, now: float, watch: str, record: Record) -> bytes:
    """The line of a recording for an object that a watch brought: `held`, `apply` or `delete`."""
    key = f"{record.head.namespace or ''}/{record.head.name}"
    raw, name = record.raw, "line" if record.enveloped else "o"
    if record.view is not None:
        view = msgspec.to_builtins(record.view)
        raw, name = encode({**(view if isinstance(view, dict) else {}), "metadata": record.head}), "o"
    raw = without_secrets(raw, withheld=is_withheld(record.resource.full_name))
    start = encode({"k": kind, "t": now, "w": watch, "key": key})
    if record.problem is None and (record.enveloped or b"\n" not in raw):  # a line of JSON, as the client found it
        return b'%b,"%b":%b}' % (start[:-1], name.encode(), raw)
    return encode({"k": kind, "t": now, "w": watch, "key": key, name: document(raw)})


def call_line(now: float, run: int, exchanged: Exchanged) -> bytes:
    """The line of a recording for a call that a run made, without what is to be withheld."""
    request, answer = exchanged.request, exchanged.body
    body = request.body
    withheld = is_withheld(request.resource_name, request.subresource)
    body = None if body is None else without_secrets(body, withheld=withheld)
    answer = without_secrets(answer, withheld=withheld) if answer else answer
    line: dict[str, Any] = {"k": "call", "t": now, "id": run, "m": request.method, "path": request.path,
                            "query": encoded_query(request.query), "b": document(body)}
    if exchanged.error is not None:
        line["e"] = f"{type(exchanged.error).__name__}: {exchanged.error}"
    else:
        told = document(answer)
        line |= {"s": exchanged.status, "text" if isinstance(told, str) else "a": told}
    return encode(line)


log = guarded_logger(__name__)

LIMIT = 64 << 20
"""Bytes that the recording of one process takes at most on the disk."""
MOST_ENTRIES, MOST_BYTES = 20_000, 64 << 20
"""What the queue holds at most; above that entries are lost."""
GATHER = 0.02
"""Seconds, real ones, for which the thread lets entries come together."""
IDLE = 1.0
"""Seconds, real ones, after which a thread that waits looks around."""

Entry = tuple[Callable[[], bytes], int]
"""What makes the line, and how many bytes it holds on to."""


class FlightRecorder:
    """Records what a controller sees, asks and does, into a file of bounded size. Safe to use from any thread but for
    `open`, `pump` and `close`."""

    def __init__(self, path: Path, controller: str, clock: Clock, *, limit: int = LIMIT) -> None:
        """Nothing is opened yet. `limit`: bytes on the disk."""
        self._path, self._controller, self._clock, self._limit = path, controller, clock, limit
        self._session = uuid4().hex
        self._watches: dict[str, WatchPlace] = {}
        self._numbers = itertools.count(1)
        self._playing: dict[object, int] = {}
        """The runs in progress, and their numbers."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries: deque[Entry] = deque()
        self._bytes = self._lost = 0
        self._closing = self._dead = False
        self._file: RingFile | None = None
        self._guard = Guard("a line of a recording", clock=clock)
        self._thread: threading.Thread | None = None
        self.unhook: Callable[[], None] = lambda: None
        """Called at the end, to hear of no more calls."""
        self.lost = 0
        """How many entries were not kept, so far."""
        renewed_in_children(self)

    def renew(self) -> None:
        """In the child of a fork nothing is recorded, and the file is the parent's. For that child alone."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries, self._thread = deque(), None
        self.abandon()

    def abandon(self) -> None:
        """Record nothing more, and let go of the file as it is: as when the process is killed."""
        self._dead = True
        if self._file is not None:
            self._file.close()

    # --- what is heard ---------------------------------------------------------------------------------------------

    def watching(self, name: str, place: WatchPlace) -> OfHeads:
        """There is one more watch; the subscription that hears of it."""
        self._watches = {**self._watches, name: place}
        began = self._clock.monotonic()
        self._put(lambda: encode({"k": "watch", "t": began, "w": name, "place": place}))

        def hear(event: Event[Any]) -> tuple[()]:
            if isinstance(event, CARRIERS):
                kind, record = "delete" if isinstance(event, Delete) else "apply", event.obj
                now = self._clock.monotonic()
                self._put(lambda: object_line(kind, now, name, record), _size(record))
            return ()

        return OfHeads(hear)

    def ready(self, name: str) -> None:
        """The list of this watch is complete."""
        now = self._clock.monotonic()
        self._put(lambda: encode({"k": "ready", "t": now, "w": name}))

    def triggering(self, schedule: Sink) -> Sink:
        """`schedule`, of whose requests it hears."""
        def heard(requests: list[ReconcileRequest]) -> None:
            now = self._clock.monotonic()
            self._put(lambda: _trigger_line(now, requests), 100 * len(requests))
            schedule(requests)

        return heard

    def begin(self, run: Run, scope: RunScope) -> bool:  # noqa: ARG002
        """A run begins; as `RunPart.begin`."""
        number = self._playing[run] = next(self._numbers)
        ref, now, failures = run.request.ref, self._clock.monotonic(), run.failures
        self._put(lambda: encode({"k": "run", "t": now, "id": number, "ns": ref.namespace or "", "name": ref.name,
                                  "reason": run.request.reason, "failures": failures}))
        return True

    def end(self, run: Run, outcome: Outcome) -> None:
        """It has ended; as `RunPart.end`."""
        number, now = self._playing.pop(run, 0), self._clock.monotonic()
        self._put(lambda: _end_line(now, number, outcome))

    def answered(self, exchanged: Exchanged) -> None:
        """Record a call that a run made. For `Client.on_answer`; calls outside of runs are not recorded."""
        if number := self._playing.get(current_run()):
            now = self._clock.monotonic()
            size = len(exchanged.body) + len(exchanged.request.body or b"")
            self._put(lambda: call_line(now, number, exchanged), size)

    def _put(self, line: Callable[[], bytes], size: int = 0) -> None:
        with self._lock:
            if self._closing or self._dead or len(self._entries) >= MOST_ENTRIES or self._bytes + size > MOST_BYTES:
                self._lost += 1
                return
            self._entries.append((line, size))
            self._bytes += size
            if len(self._entries) == 1:
                self._changed.notify()

    # --- what is written -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin the file. Raises RequestError where it cannot be written, or is by somebody else."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RingFile(self._path, self._limit, self._head)
        except BlockingIOError:
            raise RequestError(f"record={self._path}: another controller records there at this moment; give each its "
                               "own file") from None
        except OSError as error:
            raise RequestError(f"record={self._path}: the file cannot be written: {error}") from None

    def start(self) -> None:
        """`open`, and write in a thread from now on."""
        self.open()
        self._thread = Thread(target=self._run, name=f"{self._controller} flight recorder", daemon=True)
        self._thread.start()

    def pump(self) -> None:
        """Write what there is. Raises nothing."""
        with self._lock:
            entries, self._entries, self._bytes = self._entries, deque(), 0
            lost, self._lost = self._lost, 0
        if not entries and not lost:
            return
        now = self._clock.monotonic()
        lines = [line for make, _ in entries if (line := self._guard.call(b"", "", make))]
        self.lost += lost
        if lost:
            lines.append(encode({"k": "lost", "t": now, "count": lost}))
        file = self._file
        if file is None or self._dead:
            return
        try:
            if too_long := file.write(lines, now):
                file.write([encode({"k": "lost", "t": now, "count": too_long})], now)
                self.lost += too_long
        except OSError as error:
            self._dead = True
            log.error("the recording of controller %s ends: %s cannot be written: %s", self._controller, self._path,
                      error)

    def close(self, reason: str, timeout: float) -> None:
        """Write what is left, at most for `timeout` seconds, and end. Blocks."""
        self.unhook()
        now = self._clock.monotonic()
        self._put(lambda: encode({"k": "stop", "t": now, "reason": reason}))
        with self._lock:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(max(0.1, timeout))
            if self._thread.is_alive():
                log.warning("the recording of controller %s is not complete: %s is too slow", self._controller,
                            self._path)
                return
        self.pump()
        if self._file is not None:
            self._file.close()
        if self.lost:
            log.warning("the recording of controller %s lacks %d lines; %s shows where", self._controller, self.lost,
                        self._path)

    def _run(self) -> None:
        while not self._closing:
            with self._lock:
                if not self._entries:
                    self._changed.wait(IDLE)
                elif not self._closing:
                    self._changed.wait(GATHER)
            self.pump()

    def _head(self, part: int, partial: bool) -> bytes:
        return encode({"k": "begin", "t": self._clock.monotonic(), "format": FORMAT, "controller": self._controller,
                       "session": self._session, "part": part, "at": format_time(self._clock.now()),
                       "watches": self._watches, "partial": partial, "note": NOTE})


def _size(record: Record) -> int:
    return len(record.raw)


def _trigger_line(now: float, requests: Collection[ReconcileRequest]) -> bytes:
    refs = [(request.ref.namespace or "", request.ref.name, request.reason) for request in requests]
    return encode({"k": "trigger", "t": now, "refs": refs})


def _end_line(now: float, number: int, outcome: Outcome) -> bytes:
    line: dict[str, Any] = {"k": "end", "t": now, "id": number, "result": str(outcome.result)}
    error = outcome.error
    if error is not None:
        kind = type(error)
        line |= {"type": f"{kind.__module__}.{kind.__qualname__}", "error": described(error),
                 "trace": guarded("", "a traceback", lambda: "".join(traceback.format_exception(error)))}
    return encode(line)
