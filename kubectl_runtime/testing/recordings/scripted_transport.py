"""`ScriptedTransport`: a recording as a `requests` adapter.

    the list of a watch     what was stored then, as far as `feed` has come
    a watch                 the changes after that, likewise
    a call inside a run     the recorded answer to the run's next recorded call, if that asks the same; else it departs

A call that asks for the same in another body (a time, something drawn at random) is answered, and noted; one that was
never asked is answered by a 501. What came to no answer comes to none again.
"""
from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.flight.withheld import is_withheld, without_secrets
from kubectl_runtime.testing.recordings.flight_reader import Line, RecordedRun, Recording, RecordingError

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


class ScriptedWatch:
    """One watch of the recording: what it lists first, and what it is told after that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_ready = False
        self.events: list[bytes] = []
        self._stored: dict[str, bytes] = {}
        self._listed = 0
        self._after: dict[str, int] = {}
        """By resourceVersion: which event follows."""

    def take(self, line: Line) -> None:
        """One more of its lines."""
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
        """What is stored now."""
        if not self.is_ready:
            raise RecordingError(f"the watch of {self.name} never had a complete list, so nothing ran")
        self._listed = len(self.events)
        return msgspec.json.encode({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                                    "items": [msgspec.Raw(obj) for obj in self._stored.values()]})

    def start_of(self, version: str) -> int:
        """Which event is the first for a watch from a version on."""
        return self._after.get(version, self._listed)


class ScriptedTransport(BaseAdapter):
    """Answers a program's requests as its recording says; a transport adapter for requests. For one thread."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.departures: list[str] = []
        self.before_answer: Callable[[int], None] = lambda _: None
        """Called with the position of a call before it is answered."""
        self._recording = recording
        self._watches = {name: ScriptedWatch(name) for name in recording.watches}
        self._by_place = {(place.path, place.labels, place.fields, place.metadata): self._watches[name]
                          for name, place in recording.watches.items()}
        self._fed = 0
        self._run: RecordedRun | None = None
        self.in_run = False
        """Whether what is asked is asked by the run, and not by a watch."""
        self._calls: deque[int] = deque()
        self._last: int | None = None

    def feed(self, position: int) -> None:
        """Let the watches have what comes before this position of the recording."""
        for line in self._recording.lines[self._fed:position]:
            watch = self._watches.get(line.watch)
            if watch is not None and line.kind in ("held", "apply", "delete", "ready"):
                try:
                    watch.take(line)
                except DECODE_FAILURES as error:
                    raise RecordingError(f"the recording is damaged where it tells of {line.watch} {line.key}: {error}"
                                         ) from None
        self._fed = max(self._fed, position)

    def begin(self, run: RecordedRun) -> None:
        """What is asked from now on, is by this run."""
        self._run, self._calls, self._last, self.in_run = run, deque(run.calls), None, True

    def end(self) -> None:
        """The run is over; calls that it did not make are departures."""
        run, self._run, self.in_run = self._run, None, False
        for position in self._calls:
            self._depart(run, f"did not {_words(self._recording.lines[position])}, which was recorded")

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """The recorded answer. Raises requests.ConnectionError for a call that was not answered."""
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
        """Do nothing: nothing is kept open."""

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
        if self._last is not None:  # the client tries again: its attempts are one call of the recording
            line = self._recording.lines[self._last]
            if asked == (line.method, line.path, sorted(parse_qsl(line.query))) and (line.e or line.status >= 400):
                return self._last
        return None

    def _depart(self, run: RecordedRun | None, text: str) -> None:
        self.departures.append(f"{run} {text}")


class _Body:
    """The body of a watch, as the part of urllib3's response that clients use."""

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
    """What was sent, without times, and without what a recording withholds."""
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
