"""`RunRecorder`: records the inputs and actions of one controller into a `RingFile`.

    watches      every change of a stored object; the recorder is the first subscriber of each watch
    triggers     the requests to the controller's queue
    runs         the begin and end of each run
    calls        the requests of runs and the answers, in the thread of the run

The observed thread only adds an entry to a queue, without a copy, an encoding, or disk access (measured: 1.7 µs for a
change or a call, 5.4 µs for a run). Another thread converts the entries to lines and writes them (9 µs for a Pod of 4.7
KB). When the queue is full because the disk is slow, entries are lost, and a `lost` line in their place records how
many. A disk error ends the recording, but not the controller, and is logged. A simulation calls `pump` instead of using
a thread.

A recording has one JSON object per line. Each has `k`, the type of the line, and `t`, seconds on a clock.

====================  =================================================================================================
begin                 the first line of a file: `format`, `controller`, `session` (one per process), `part` (the file's
                      number), `at` (the date), `watches` (by name: `path`, `labels`, `fields`, and `metadata`: whether
                      only metadata is watched), `partial` (whether the lines of stored objects are left out, because
                      they are too many), `note`
watch                 another watch: `w` is its name, `place` has the same members as an entry of `watches`
held                  an object that was stored when the file began: `w` is the watch, `key` its key, `o` the object
ready                 the watch `w` had a complete list
apply, delete         an object appeared, changed or was deleted: `o` is the object, or `line` is its watch line
trigger               `refs` to reconcile: [namespace, name, reason] each
run                   a run began: `id`, `ns`, `name`, `reason`, and `failures`, the number of failures before it
call                  an answer inside the run `id`: method `m`, `path`, `query`, body `b`, status `s`, answer `a`
                      (`text`, if it is not JSON), or the error `e` if there was no answer
end                   the run `id` ended: `result`, and if it failed `type`, `error` and `trace`
lost                  `count` lines were lost, because the disk was slower than the controller
stop                  the controller ended: `reason`
====================  =================================================================================================

The lines of one thread are in the order of its events; lines of several threads are in the order of arrival. If the
process is killed, its last line may be torn. `note` lists the withheld content.

`RingFile`: writes lines into at most two files. Each file can be read alone.

    FILE                          the current file
    FILE.1                        the file before it, of the same process
    FILE.before, FILE.before.1    the same files of the previous process, which may have crashed

No file exceeds half of the limit. When FILE is full, it becomes FILE.1. The new FILE begins with the objects that were
stored at that moment, which are computed from the old file (`Folded`). A process may be killed at any time: a new file
gets its name only when its beginning is complete, and its last line may be torn. The files are readable only by their
owner. While they are written they are locked, if the system supports that. Links are not followed; if one of the names
is not a regular file, nothing is opened.

A recording never contains the data of Secrets, the tokens of reviews and requests, or a server's messages about them:

    by resource    secrets, tokenreviews, the token of a service account: all content of requests and answers,
                   including patches, a Status, and text that is not JSON
    by content     an object of such a kind anywhere in a document: in a list, in a watch line, in another object

The names of data entries stay, so that a replayed program finds them. Each value is replaced by "withheld", in base64
where values are in base64. kubectl's last-applied annotation is withheld as well.
"""
from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from kubectl_runtime.certificates.bundles import create_private, refuse_special
from kubectl_runtime.client.api.client import Exchanged
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard, described, guarded, guarded_logger
from kubectl_runtime.core.base.threads import Clock, Thread, renewed_in_children
from kubectl_runtime.core.base.wire import decoded, decoder_of
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import encoded_query
from kubectl_runtime.core.scope import RunScope, current_run
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.triggers.triggers import OfHeads, ReconcileRequest, Sink
from kubectl_runtime.runtime.watch.event import CARRIERS, Delete, Event

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class _Line(msgspec.Struct):
    """The fields of a line that affect what is stored."""

    k: str = ""
    w: str = ""
    key: str = ""
    o: msgspec.Raw = msgspec.Raw()
    line: msgspec.Raw = msgspec.Raw()


_decode = decoder_of(_Line)


class _Enveloped(msgspec.Struct):
    object: msgspec.Raw


class Folded:
    """Computes which objects are stored after the last added line."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], bytes] = {}
        self.ready: dict[str, None] = {}

    def add(self, text: bytes) -> None:
        """Add a line; a torn line changes nothing."""
        try:
            line = _decode(text)
            if line.k in ("apply", "held"):
                self.held[line.w, line.key] = object_of(line.o, line.line)
        except DECODE_FAILURES:
            return
        if line.k == "delete":
            self.held.pop((line.w, line.key), None)
        elif line.k == "ready":
            self.ready[line.w] = None

    def lines(self, now: float) -> list[bytes]:
        """Lines that recreate the state to which the added lines have led: one line for each stored object and for each
        ready watch, dated `now`."""
        held = [msgspec.json.encode({"k": "held", "t": now, "w": watch, "key": key, "o": msgspec.Raw(obj)})
                for (watch, key), obj in self.held.items()]
        return [*held, *(msgspec.json.encode({"k": "ready", "t": now, "w": watch}) for watch in self.ready)]


def object_of(plain: bytes | msgspec.Raw, line: bytes | msgspec.Raw) -> bytes:
    """The object of an `apply` line: `plain`, or the object inside the watch line `line`."""
    return bytes(plain) if plain else bytes(decoded(line, _Enveloped).object)


class RingFile:
    """Writes lines to the file PATH. When it reaches half of the limit, it is renamed to PATH.1, and a new file begins.
    For one thread."""

    def __init__(self, path: Path, limit: int, head: Callable[[int, bool], bytes]) -> None:
        """Opens the file. `head(part, partial)` makes its first line. Raises OSError; BlockingIOError when another
        process writes the file."""
        self._path, self._half, self._head = path, limit // 2, head
        self._part, self._size = 1, 0
        self._descriptor = -1
        moves = [(Path(f"{path}{suffix}"), Path(f"{path}.before{suffix}")) for suffix in ("", ".1")]
        for file in (*moves[0], *moves[1]):
            refuse_special(file)
        _refuse_if_locked(path)
        for old, kept in moves:
            kept.unlink(missing_ok=True)
            if old.exists():
                old.replace(kept)
        self._begin([head(1, False)])

    def write(self, lines: Sequence[bytes], now: float) -> int:
        """Append these lines. Returns the number of lines that were dropped because they were too long. Raises
        OSError."""
        lost, batch, size = 0, list[bytes](), 0
        for line in lines:
            if len(line) >= self._half // 2:
                lost += 1
                continue
            if self._size + size + len(line) + 1 > self._half and self._size + size:
                self._append(batch, size)
                self._turn(now)
                batch, size = [], 0
            batch.append(line)
            size += len(line) + 1
        self._append(batch, size)
        return lost

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, lines: list[bytes], size: int) -> None:
        if not lines:
            return
        data = memoryview(b"\n".join([*lines, b""]))
        while data:
            data = data[os.write(self._descriptor, data):]
        self._size += size

    def _turn(self, now: float) -> None:
        folded = Folded()
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            for line in file:
                folded.add(line)
        held = folded.lines(now)
        self._part += 1
        if sum(map(len, held)) + len(held) > self._half // 2:
            held, head = [], self._head(self._part, True)
        else:
            head = self._head(self._part, False)
        before = self._descriptor
        self._begin([head, *held], keep=Path(f"{self._path}.1"))
        os.close(before)

    def _begin(self, lines: list[bytes], keep: Path | None = None) -> None:
        """Replace the current file with a new file of these lines. The old file gets the name `keep`."""
        made = Path(f"{self._path}.new")
        self._descriptor = _created(made)
        self._size = 0
        self._append(lines, sum(map(len, lines)) + len(lines))
        if keep is not None:
            self._path.replace(keep)
        made.replace(self._path)
        if not os.path.samestat(os.fstat(self._descriptor), self._path.lstat()):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has replaced the file", str(self._path))


def _created(path: Path) -> int:
    """Create a locked file. A leftover file of that name, for example of a killed process, is removed."""
    try:
        descriptor = create_private(path)
    except FileExistsError:
        if stat.S_ISREG(path.lstat().st_mode):
            _refuse_if_locked(path)
        path.unlink()
        descriptor = create_private(path)
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _refuse_if_locked(path: Path) -> None:
    if fcntl is None or not path.exists():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


TEXT = "withheld"
BASE64 = "d2l0aGhlbGQ="
"""`TEXT` in base64."""

_TOKENS = ("token", "clientKeyData")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


_KINDS = frozenset({"Secret", "SecretList", "TokenReview", "TokenRequest", "ExecCredential"})
_MARKS = (b'"Secret', b'"Token', b'"ExecCredential', rb"\u00")
"""Every document that names one of `_KINDS` contains one of these; an escape may stand for any letter."""


def is_withheld(resource_name: str, subresource: str | None = None) -> bool:
    """Whether objects of this resource, `plural.group`, contain data that must not be recorded."""
    return resource_name in ("secrets", "tokenreviews.authentication.k8s.io") or (
        resource_name == "serviceaccounts" and subresource == "token")


def without_secrets(document: bytes, *, withheld: bool = True) -> bytes:
    """The JSON of an object, a list, a patch or a Status, without secret values. `withheld`: the document's resource is
    withheld, so text that is not JSON is withheld as a whole. If not `withheld`, only objects of secret kinds in the
    document are withheld. If the document names a secret kind and cannot be read as JSON (too deep, cut), the document
    is withheld as a whole."""
    if not withheld and not any(mark in document for mark in _MARKS):
        return document
    try:
        return msgspec.json.encode(_cleaned(msgspec.json.decode(document), withheld))
    except DECODE_FAILURES:
        looks_like_json = document.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
        return msgspec.json.encode(TEXT) if withheld or looks_like_json else document


def _may_hold_secrets(text: Any) -> bool:
    return isinstance(text, str) and any(mark in text.encode(errors="replace") for mark in _MARKS)


def _cleaned(value: Any, withheld: bool) -> Any:
    if isinstance(value, list):  # a JSON patch, or the items of a list
        return [_cleaned(item, withheld) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not withheld and not (isinstance(kind, str) and kind in _KINDS):
        return {key: TEXT if key == _LAST_APPLIED and _may_hold_secrets(part) else _cleaned(part, False)
                for key, part in value.items()}
    if kind == "Status":
        return {key: TEXT if key == "message" else part for key, part in value.items() if key != "details"}
    if "op" in value and "path" in value:
        return {key: TEXT if key == "value" else part for key, part in value.items()}
    found = {key: _cleaned(part, key in ("items", "object", "rows")) for key, part in value.items()}
    for key, text in (("data", BASE64), ("stringData", TEXT)):
        if isinstance(found.get(key), dict):
            found[key] = {name: None if part is None else text for name, part in found[key].items()}
        elif found.get(key) is not None:
            found[key] = TEXT
    for key in ("spec", "status"):
        if isinstance(part := found.get(key), dict):
            found[key] = part | {name: TEXT for name in _TOKENS if part.get(name) is not None}
    if isinstance(metadata := found.get("metadata"), dict):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
            found["metadata"] = {**metadata, "annotations": {**annotations, _LAST_APPLIED: TEXT}}
    return found


FORMAT = 1
NOTE = ("the data of Secrets, tokens of service accounts and reviews, headers, and the bodies of streams are withheld; "
        "everything else that the controller read or wrote is recorded unchanged")

encode = msgspec.json.encode


class WatchPlace(msgspec.Struct, frozen=True):
    """The path and selectors of a watch."""

    path: str
    labels: str = ""
    fields: str = ""
    metadata: bool = False


def document(body: bytes | None) -> msgspec.Raw | str | None:
    """A request or response body as a value in a line: raw JSON, or a string if the body is not JSON."""
    if not body:
        return None
    try:
        if b"\n" in body:
            body = msgspec.json.format(body, indent=-1)
        return msgspec.json.decode(body, type=msgspec.Raw)
    except DECODE_FAILURES:
        return body.decode("utf-8", "replace")


def object_line(kind: str, now: float, watch: str, record: Record) -> bytes:
    """The line that records an object of the watch `watch`. `kind`: `apply` for an object that appeared or changed,
    `delete` for a deleted object."""
    key = f"{record.head.namespace or ''}/{record.head.name}"
    raw, name = record.raw, "line" if record.enveloped else "o"
    if record.view is not None:
        view = msgspec.to_builtins(record.view)
        raw, name = encode({**(view if isinstance(view, dict) else {}), "metadata": record.head}), "o"
    raw = without_secrets(raw, withheld=is_withheld(record.resource.full_name))
    start = encode({"k": kind, "t": now, "w": watch, "key": key})
    if record.problem is None and (record.enveloped or b"\n" not in raw):  # one line of JSON, as the client received it
        return b'%b,"%b":%b}' % (start[:-1], name.encode(), raw)
    return encode({"k": kind, "t": now, "w": watch, "key": key, name: document(raw)})


def call_line(now: float, run: int, exchanged: Exchanged) -> bytes:
    """The line for a call of a run, with secret content withheld."""
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
"""The maximum size of one process's recording on the disk, in bytes."""
MOST_ENTRIES, MOST_BYTES = 20_000, 64 << 20
"""The maximum number and size of queued entries; further entries are lost."""
GATHER = 0.02
"""Real seconds for which the writing thread collects entries."""
IDLE = 1.0
"""Real seconds after which the waiting thread checks the queue again."""

Entry = tuple[Callable[[], bytes], int]
"""A function that makes the line, and the number of bytes that the entry keeps in memory."""


class RunRecorder:
    """Records the inputs and actions of a controller, in a file of bounded size. Safe to use from any thread, except
    `open`, `pump` and `close`."""

    def __init__(self, path: Path, controller: str, clock: Clock, *, limit: int = LIMIT) -> None:
        """Opens nothing yet. `limit`: the maximum bytes on the disk."""
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
        """Called when the recording ends, to stop observing calls."""
        self.lost = 0
        """The number of entries lost so far."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Stop recording in a forked child process, because the file belongs to the parent. Must be called only in that
        child."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries, self._thread = deque(), None
        self.abandon()

    def abandon(self) -> None:
        """Stop recording and leave the file as it is, as if the process were killed."""
        self._dead = True
        if self._file is not None:
            self._file.close()

    # --- what is observed ------------------------------------------------------------------------------------------

    def watching(self, name: str, place: WatchPlace) -> OfHeads:
        """Record one more watch. Returns the subscription that observes it."""
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
        """Record that the list of this watch is complete."""
        now = self._clock.monotonic()
        self._put(lambda: encode({"k": "ready", "t": now, "w": name}))

    def triggering(self, schedule: Sink) -> Sink:
        """Returns a function that records requests and passes them to `schedule`."""
        def heard(requests: list[ReconcileRequest]) -> None:
            now = self._clock.monotonic()
            self._put(lambda: _trigger_line(now, requests), 100 * len(requests))
            schedule(requests)

        return heard

    def begin(self, run: Run, scope: RunScope) -> bool:  # noqa: ARG002
        """Record that a run begins. Like `RunPart.begin`."""
        number = self._playing[run] = next(self._numbers)
        ref, now, failures = run.request.ref, self._clock.monotonic(), run.failures
        self._put(lambda: encode({"k": "run", "t": now, "id": number, "ns": ref.namespace or "", "name": ref.name,
                                  "reason": str(run.request.reason), "failures": failures}))
        return True

    def end(self, run: Run, outcome: Outcome) -> None:
        """Record that the run has ended. Like `RunPart.end`."""
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
        """Open the file. Raises RequestError if the file cannot be written, or if another controller writes it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RingFile(self._path, self._limit, self._head)
        except BlockingIOError:
            raise RequestError(f"record={self._path}: another controller is recording into this file; give each one "
                               "its own file") from None
        except OSError as error:
            raise RequestError(f"record={self._path}: the file cannot be written: {error}") from None

    def start(self) -> None:
        """Open the file, and write the entries in a thread from then on."""
        self.open()
        self._thread = Thread(target=self._run, name=f"{self._controller} recorder", daemon=True)
        self._thread.start()

    def pump(self) -> None:
        """Write the pending entries. Raises nothing."""
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
            log.error("ended the recording of controller %s: cannot write %s: %s", self._controller, self._path,
                      error)

    def close(self, reason: str, timeout: float) -> None:
        """Write the pending entries for at most `timeout` seconds, and close the file. Blocks."""
        self.unhook()
        now = self._clock.monotonic()
        self._put(lambda: encode({"k": "stop", "t": now, "reason": reason}))
        with self._lock:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(max(0.1, timeout))
            if self._thread.is_alive():
                log.warning("the recording of controller %s is not complete: writing %s is too slow", self._controller,
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
    refs = [(request.ref.namespace or "", request.ref.name, str(request.reason)) for request in requests]
    return encode({"k": "trigger", "t": now, "refs": refs})


def _end_line(now: float, number: int, outcome: Outcome) -> bytes:
    line: dict[str, Any] = {"k": "end", "t": now, "id": number, "result": str(outcome.result)}
    error = outcome.error
    if error is not None:
        kind = type(error)
        line |= {"type": f"{kind.__module__}.{kind.__qualname__}", "error": described(error),
                 "trace": guarded("", "a traceback", lambda: "".join(traceback.format_exception(error)))}
    return encode(line)
