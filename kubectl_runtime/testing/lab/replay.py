"""`replay`: repeats a recording's runs in one thread, up to a run that failed.

The recorded changes are applied to the stores in their recorded order, and a simulated clock returns the recorded
times. The runs are replayed in the order in which they began, with the recorded stores and responses. Each run's
requests and result are compared with the recording. A recording does not contain random numbers, values that a program
reads from other places, or the program's memory from before the recording. Concurrent runs are replayed one after the
other. Each run begins with the stores as they were at its recorded beginning. During its calls the stores change as
recorded, up to the beginning of the next run.

`ScriptedTransport` answers requests from the recording. To a watch it sends the recorded changes up to the position of
`feed`. A call inside a run receives the recorded response if it matches one of the run's next recorded calls. A call
with another body (a time, a random value) also receives the response, but is reported as a departure. A call that was
not recorded receives a 501 and is reported as a departure. A call without a response in the recording raises a
connection error.
"""
from __future__ import annotations

import io
import random
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import requests
import urllib3
from msgspec.structs import replace
from requests.adapters import BaseAdapter

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.guard import described
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.metav1 import parse_time
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import functions_of
from kubectl_runtime.runtime.queue.runs import FailureState, Outcome, Run
from kubectl_runtime.runtime.recording import is_withheld, without_secrets
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing.asking import muted_logs
from kubectl_runtime.testing.clock import SimClock, SimExecutor
from kubectl_runtime.testing.lab.recordings import Line, RecordedRun, Recording, RecordingError

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


class ScriptedWatch:
    """One watch of the recording: its first list and its later events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_ready = False
        self.events: list[bytes] = []
        self._stored: dict[str, bytes] = {}
        self._listed = 0
        self._after: dict[str, int] = {}
        """By resourceVersion, the index of the event that follows it."""

    def take(self, line: Line) -> None:
        """Apply a line of the recording that belongs to this watch."""
        if line.kind == "ready":
            self.is_ready = True
            return
        obj = line.object
        if line.kind == "delete":
            self._stored.pop(line.key, None)
        else:
            self._stored[line.key] = obj
        kind = "DELETED" if line.kind == "delete" else "MODIFIED"
        self.events.append(msgspec.json.encode({"type": kind, "object": msgspec.Raw(obj)}) + b"\n")
        self._after[_version(obj)] = len(self.events)

    def listing(self) -> bytes:
        """The stored objects as a list response."""
        if not self.is_ready:
            raise RecordingError(f"the watch of {self.name} never had a complete list, so nothing ran")
        self._listed = len(self.events)
        return msgspec.json.encode({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                                    "items": [msgspec.Raw(obj) for obj in self._stored.values()]})

    def start_of(self, version: str) -> int:
        """The index of the first event to send to a watch that starts at this resourceVersion."""
        return self._after.get(version, self._listed)


class ScriptedTransport(BaseAdapter):
    """Answers a program's requests from a recording; a transport adapter for requests. Not thread-safe."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.departures: list[str] = []
        self.before_answer: Callable[[int], None] = lambda _: None
        """Called before each call is answered, with the call's position in the recording."""
        self._recording = recording
        self._watches = {name: ScriptedWatch(name) for name in recording.watches}
        self._by_place = {(place.path, place.labels, place.fields, place.metadata): self._watches[name]
                          for name, place in recording.watches.items()}
        self._fed = 0
        self._run: RecordedRun | None = None
        self.in_run = False
        """Whether requests are made by the run, and not by a watch."""
        self._calls: deque[int] = deque()
        self._last: int | None = None

    def feed(self, position: int) -> None:
        """Pass the recorded changes before this position to the watches."""
        for line in self._recording.lines[self._fed:position]:
            watch = self._watches.get(line.watch)
            if watch is not None and line.kind in ("held", "apply", "delete", "ready"):
                try:
                    watch.take(line)
                except DECODE_FAILURES as error:
                    raise RecordingError(f"the recording is damaged at {line.watch} {line.key}: {error}") from None
        self._fed = max(self._fed, position)

    def begin(self, run: RecordedRun) -> None:
        """Attribute the following requests to this run."""
        self._run, self._calls, self._last, self.in_run = run, deque(run.calls), None, True

    def end(self) -> None:
        """End the run; recorded calls that the run did not make are departures."""
        run, self._run, self.in_run = self._run, None, False
        for position in self._calls:
            self._depart(run, f"did not {_words(self._recording.lines[position])}, which was recorded")

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Return the recorded response. Raises requests.ConnectionError for a call without a response in the
        recording."""
        parts = urlsplit(request.url or "")
        if self.in_run:
            return self._call(request, parts.path, parts.query)
        query = dict(parse_qsl(parts.query))
        watch = self._by_place.get((parts.path, query.get("labelSelector", ""), query.get("fieldSelector", ""),
                                    "PartialObjectMetadata" in str(request.headers.get("Accept", ""))))
        if watch is None:
            self.departures.append(f"the program asks to {request.method} {parts.path} outside of a run, which was not "
                                   "recorded: does it watch something else now?")
            return _status(request, 501, f"{request.method} {parts.path} was asked outside of a run, and is not "
                                         "recorded")
        if query.get("watch") == "true":
            return _response(request, 200, _Body(watch, watch.start_of(query.get("resourceVersion", ""))))
        return _response(request, 200, io.BytesIO(watch.listing()))

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _call(self, request: requests.PreparedRequest, path: str, query: str) -> requests.Response:
        position = self._position(request, path, query)
        if position is None:
            self._depart(self._run, f"asks to {request.method} {path}, which was not recorded")
            return _status(request, 501, f"{request.method} {path} is not in the recording at this point")
        self._last = position
        self.before_answer(position)
        line = self._recording.lines[position]
        sent, recorded = _comparable(path, request.body), _comparable(path, bytes(line.body))
        if sent != recorded:
            self._depart(self._run, f"sends another body with {_words(line)}")
        if line.e:
            raise requests.ConnectionError(f"as recorded: {line.e}", request=request)
        return _response(request, line.status, io.BytesIO(line.content))

    def _position(self, request: requests.PreparedRequest, path: str, query: str) -> int | None:
        asked = (request.method, path, sorted(parse_qsl(query)))
        for position in self._calls:
            line = self._recording.lines[position]
            if asked == (line.method, line.path, sorted(parse_qsl(line.query))):
                while (left := self._calls.popleft()) != position:
                    self._depart(self._run, f"did not {_words(self._recording.lines[left])}, which was recorded")
                return position
        if self._last is not None:  # the request may be a retry: a recording contains all attempts as one call
            line = self._recording.lines[self._last]
            if asked == (line.method, line.path, sorted(parse_qsl(line.query))) and (line.e or line.status >= 400):
                return self._last
        return None

    def _depart(self, run: RecordedRun | None, text: str) -> None:
        self.departures.append(f"{run} {text}")


class _Body:
    """The body of a watch response: the part of urllib3's response that clients use."""

    def __init__(self, watch: ScriptedWatch, start: int) -> None:
        self.headers, self.status = urllib3.HTTPHeaderDict(), 200
        self._watch, self._next = watch, start
        self._closed = False

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:  # noqa: ARG002
        while not self._closed:
            start, self._next = self._next, len(self._watch.events)
            yield b"".join(self._watch.events[start:])

    def shutdown(self) -> None:
        self._closed = True

    close = release_conn = shutdown


class _Versioned(msgspec.Struct):
    metadata: dict[str, msgspec.Raw] = {}


def _version(obj: bytes) -> str:
    found = decoded(obj, _Versioned).metadata.get("resourceVersion", msgspec.Raw(b'""'))
    return bytes(found).decode().strip('"')


def _response(request: requests.PreparedRequest, status: int, body: Any) -> requests.Response:
    response = requests.Response()
    response.status_code, response.request, response.url = status, request, request.url or ""
    response.raw = body
    response.headers = requests.structures.CaseInsensitiveDict({"Content-Type": "application/json"})
    response.encoding = "utf-8"
    return response


def _status(request: requests.PreparedRequest, code: int, message: str) -> requests.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "NotRecorded",
              "code": code}
    return _response(request, code, io.BytesIO(msgspec.json.encode(status)))


def _words(line: Line) -> str:
    return f"{line.method} {line.path}"


def _comparable(path: str, body: Any) -> Any:
    """The request body without times and without the content that a recording redacts."""
    if not body or body == b"null":
        return None
    data = body.encode() if isinstance(body, str) else bytes(body)
    if is_withheld("secrets" if "/secrets" in path else "serviceaccounts" if path.endswith("/token") else "", "token"):
        data = without_secrets(data)
    try:
        text = msgspec.json.encode(msgspec.json.decode(data), order="sorted").decode()
    except DECODE_FAILURES:
        text = data.decode("utf-8", "replace")
    return _TIME.sub("<time>", text)


URL = "http://recording.invalid"


@dataclass(frozen=True)
class Replayed:
    """The result of `replay`. `runs`: the number of replayed runs; `target`: the last replayed run, as text; `recorded`
    and `error`: the error of that run in the recording and in the replay, or None; `recorded_trace`: the traceback of
    the recorded error, or an empty text; `departures`: the requests and results of the program that differ from the
    recording, as text; `notes`: what the recording lacks, as text."""

    runs: int
    target: str
    recorded: str | None
    recorded_trace: str
    error: BaseException | None
    departures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the target ended as recorded: with the same exception and text, or without an exception."""
        return self.recorded == (None if self.error is None else _named(self.error))

    @property
    def alike(self) -> bool:
        """Like `same`, but without comparing the text, since a recording redacts messages about Secrets, and connection
        errors name another server. If the run departs from the recording, the text is compared too, since the refusal
        of an unrecorded call may raise an exception of the same class."""
        departs = any(text.startswith(f"{self.target} ") for text in self.departures)
        if self.error is None or self.recorded is None or departs:
            return self.same
        return self.recorded.partition(": ")[0] == _named(self.error).partition(": ")[0]


def replay(path: str | Path, build: Callable[[Client], BoundController[Any] | Manager], *,
           run: int | None = None) -> Replayed:
    """Replay the recording in `path` up to the run with the number `run`, by default up to the last run that failed.

    `build(client)` makes the recorded program, as for `perturb`; `build` must not make requests. The call
    blocks, because the program runs in this thread; simulated waits take no real time. Raises RecordingError for a file
    without a run that can be replayed, OSError, and what `build` raises.
    """
    recording = Recording.read(Path(path))
    runs = _chosen(recording, run)
    player = _Player(recording, build)
    with muted_logs():
        for one in runs[:-1]:
            player.play(one)
    last = runs[-1]
    outcome = player.play(last)
    recorded = f"{last.end.type}: {_text(last.end.error)}" if last.end is not None and last.failed else None
    notes = [f"{recording.gaps} lines of the recording are lost"] if recording.gaps else []
    if recording.partial:
        notes.append("the recording lacks the objects that were stored when it began, since they were too many")
    if recording.head.part > 1:
        notes.append("the recording is the end of a longer one, and lacks what the program remembered from before")
    return Replayed(len(runs), str(last), recorded, last.end.trace if last.end is not None else "", outcome.error,
                    tuple(player.transport.departures), tuple(notes))


def _chosen(recording: Recording, number: int | None) -> list[RecordedRun]:
    runs = recording.runs
    if not runs:
        raise RecordingError("there is no run in the recording")
    if number is None:
        failed = [index for index, one in enumerate(runs) if one.failed]
        return runs[:failed[-1] + 1] if failed else runs
    for index, one in enumerate(runs):
        if one.begin.run == number:
            return runs[:index + 1]
    raise RecordingError(f"there is no run {number} in the recording, whose runs are {runs[0].begin.run} to "
                         f"{runs[-1].begin.run}")


class _Player:
    def __init__(self, recording: Recording, build: Callable[[Client], BoundController[Any] | Manager]) -> None:
        self._recording = recording
        self._began = recording.head.time
        self.clock = SimClock(start=_date(recording), self_advancing=True)
        self.transport = ScriptedTransport(recording)
        self.transport.before_answer = lambda position: self._reach(min(position, self._next))
        begins = [one.position for one in recording.runs]
        self._following = dict(pairwise(begins))
        self._next = 0
        """The position in the recording at which the next run begins."""
        session = requests.Session()
        session.mount("http://", self.transport)
        client = Client(Config(cluster_url=URL), session=session, clock=self.clock)
        bound = _controller_of(build(client), recording.head.controller)
        plan = replace(bound.controller.plan().without_record(), clock=self.clock, partition=None, hold=None)
        reconcile, policy = functions_of(bound.reconciler, bound.error_policy)
        rng = random.Random(0)
        self._resource = plan.resource
        self._assembly: Assembly[Any] = Assembly(plan, reconcile, policy, bound.context, executor=SimExecutor(rng),
                                                 on_bug=_raise, rng=rng)
        self._assembly.subscribe()
        self.transport.feed(recording.runs[0].position)  # all stores were complete when this run began
        self._step()

    def play(self, run: RecordedRun) -> Outcome:
        self._reach(run.position)
        self._next = self._following.get(run.position, len(self._recording.lines) - 1)
        begin = run.begin
        ref = ObjectRef(self._resource, begin.name, begin.namespace or None)
        state = FailureState(count=begin.failures) if begin.failures else None
        made = Run(ref.key, ReconcileRequest(ref, begin.reason), state, self.clock.monotonic())
        self.transport.begin(run)
        try:
            outcome = self._assembly.execute(made)
        finally:
            self.transport.end()
        end = run.end
        if end is not None and end.result != str(outcome.result):
            self.transport.departures.append(f"{run} ended with {outcome.result}; the recorded result is {end.result}")
        return outcome

    def _reach(self, position: int) -> None:
        """Apply all recorded changes up to this position."""
        self.transport.feed(position)
        now = self._recording.lines[position].time - self._began
        if now > self.clock.monotonic():
            self.clock.advance(timedelta(seconds=now - self.clock.monotonic()))
        self._step()

    def _step(self) -> None:
        """Let the watches read all events that are available."""
        asked, self.transport.in_run = self.transport.in_run, False
        try:
            for watch in self._assembly.watches.values():
                while watch.step() == 0:
                    pass
        finally:
            self.transport.in_run = asked


def _controller_of(made: Any, name: str) -> BoundController[Any]:
    bound = made.controllers() if isinstance(made, Manager) else [made] if isinstance(made, BoundController) else []
    for one in bound:
        if one.controller.plan().name == name:
            return one
    there = ", ".join(one.controller.plan().name for one in bound) or f"nothing but {type(made).__name__}"
    raise RecordingError(f"the recording is of a controller called {name}, but the program makes {there}")


def _date(recording: Recording) -> datetime:
    try:
        return parse_time(recording.head.at)
    except ValueError:
        raise RecordingError(f"the recording is damaged: its start {recording.head.at!r} is no date") from None


def _named(error: BaseException) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}: {_text(described(error))}"


def _text(told: str) -> str:
    """The message of an exception, without its class."""
    return told.partition(": ")[2]


def _raise(_what: str, error: BaseException) -> None:
    raise error
