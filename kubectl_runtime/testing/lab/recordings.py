"""`Recording` reads the file that a controller with `record=` wrote; runtime/recording.py describes its lines.
`Journal` stores the writes of one simulated run.

FILE is read together with FILE.1 if one process wrote both and FILE continues FILE.1. An incomplete last line is
ignored. Other unreadable lines, and lines that the recorder lost, are counted in `gaps`.

A write is a request that changes stored objects. Dry runs, reviews, and requests for Events and Leases do not count as
writes, since they are not part of a controller's result.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import requests

from kubectl_runtime.apiserver.storage import Bucket, Change, Version
from kubectl_runtime.apiserver.wire import HttpRequest, RequestInfo, parse, parse_query
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.recording import FORMAT, WatchPlace, object_of


class RecordingError(Exception):
    """The file is no recording, or the recording cannot be replayed; the text says why."""


class Line(msgspec.Struct, rename={"kind": "k", "time": "t", "watch": "w", "run": "id", "namespace": "ns",
                                   "method": "m", "body": "b", "status": "s", "answer": "a"}):
    """A line of a recording, of any kind."""

    kind: str
    time: float = 0.0
    format: int = 0
    controller: str = ""
    session: str = ""
    part: int = 0
    at: str = ""
    partial: bool = False
    watches: dict[str, WatchPlace] = {}
    watch: str = ""
    place: WatchPlace | None = None
    key: str = ""
    o: msgspec.Raw = msgspec.Raw()
    line: msgspec.Raw = msgspec.Raw()
    run: int = 0
    namespace: str = ""
    name: str = ""
    reason: str = ""
    failures: int = 0
    method: str = ""
    path: str = ""
    query: str = ""
    body: msgspec.Raw = msgspec.Raw()
    status: int = 0
    answer: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    e: str = ""
    result: str = ""
    type: str = ""
    error: str = ""
    trace: str = ""
    count: int = 0

    @property
    def object(self) -> bytes:
        """The object of a line of the kind `held`, `apply` or `delete`."""
        return object_of(self.o, self.line)


    @property
    def content(self) -> bytes:
        """The response body of a line of the kind `call`."""
        if self.text is not None:
            return self.text.encode()
        return b"" if self.answer == b"null" else bytes(self.answer)


_decode = decoder_of(Line)


@dataclass
class RecordedRun:
    """One recorded run. `position`: the index of its first line; `calls`: the indexes of its calls' lines; `end`: its
    last line, or None if the run did not end."""

    position: int
    begin: Line
    calls: list[int] = field(default_factory=list)
    end: Line | None = None

    @property
    def failed(self) -> bool:
        """Whether the run ended with an error."""
        return self.end is not None and bool(self.end.type)

    def __str__(self) -> str:
        place = "/".join(part for part in (self.begin.namespace, self.begin.name) if part)
        return f"run {self.begin.run} of {place}"


@dataclass
class Recording:
    """A recording: all lines in order, and the runs that they describe."""

    head: Line
    lines: list[Line]
    watches: dict[str, WatchPlace]
    runs: list[RecordedRun]
    gaps: int = 0
    partial: bool = False
    """Whether the recording does not contain the objects that were stored at its beginning."""

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read the recording at `path`, together with the earlier file if there is one. Raises RecordingError and
        OSError."""
        lines, gaps = _lines_of(path)
        head = _head(path, lines)
        earlier = Path(f"{path}.1")
        if head.part > 1 and earlier.exists():
            before, lost = _lines_of(earlier)
            first = _head(earlier, before)
            if (first.session, first.part + 1) == (head.session, head.part):
                gaps += lost
                lines = [*before, *_after_what_was_held(lines)]
                head = first
        watches: dict[str, WatchPlace] = {}
        runs: dict[int, RecordedRun] = {}
        for position, line in enumerate(lines):
            if line.kind == "begin":
                watches |= line.watches
            elif line.kind == "watch" and line.place is not None:
                watches[line.watch] = line.place
            elif line.kind == "run":
                runs[line.run] = RecordedRun(position, line)
            elif line.kind == "call" and line.run in runs:
                runs[line.run].calls.append(position)
            elif line.kind == "end" and line.run in runs:
                runs[line.run].end = line
            elif line.kind == "lost":
                gaps += line.count
        return cls(head, lines, watches, list(runs.values()), gaps, head.partial)


def _lines_of(path: Path) -> tuple[list[Line], int]:
    texts = path.read_bytes().split(b"\n")
    lines, unread = [], 0
    for number, text in enumerate(texts):
        if not text.strip():
            continue
        try:
            lines.append(_decode(text))
        except DECODE_FAILURES:
            unread += number < len(texts) - 1  # only the last line may be incomplete
    return lines, unread


def _head(path: Path, lines: list[Line]) -> Line:
    if not lines or lines[0].kind != "begin":
        raise RecordingError(f"{path} is not a recording: Controller(..., record={str(path)!r}) makes one")
    if lines[0].format != FORMAT:
        raise RecordingError(f"{path} has the format {lines[0].format}, and this version reads format {FORMAT}: replay "
                             "it with the version of kubectl_runtime that wrote it")
    return lines[0]


def _after_what_was_held(lines: list[Line]) -> list[Line]:
    """The lines of the second file without its initial state, which follows from the first file's lines."""
    for number, line in enumerate(lines):
        if line.kind not in ("begin", "held", "ready"):
            return lines[number:]
    return []


PASSING = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""The ignored kinds (Events and Leases), as `plural.group`."""

_REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")
_WRITES = ("POST", "PUT", "PATCH", "DELETE")

Identity = tuple[str, str, str]
"""An object's identity: `plural.group`, namespace, name."""


def resource_of(group: str, plural: str) -> str:
    """The name of a resource, such as `deployments.apps`, or `pods` in the core group."""
    return f"{plural}.{group}" if group else plural


@dataclass(frozen=True)
class Asked:
    """A parsed request: its verb and target, and whether it is a write."""

    info: RequestInfo
    is_write: bool
    is_cached: bool
    """Whether the request accepts a cached, older state by `resourceVersion=0`."""

    @classmethod
    def of(cls, request: requests.PreparedRequest) -> Asked:
        """Parse a prepared request."""
        parts = urlsplit(request.url or "")
        wanted = HttpRequest(request.method or "GET", parts.path or "/", parse_query(parts.query))
        info = parse(wanted)
        lasting = (info.is_resource and resource_of(info.group, info.resource) not in PASSING
                   and info.group not in _REVIEWS and info.subresource not in ("token", "eviction"))
        return cls(info, wanted.method in _WRITES and lasting and not wanted.param("dryRun"),
                   info.verb in ("list", "get") and wanted.param("resourceVersion") == "0")

    @property
    def is_watch(self) -> bool:
        """Whether the request opens a watch."""
        return self.info.verb == "watch"

    def __str__(self) -> str:
        info = self.info
        kind = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        place = "/".join(part for part in (info.namespace, info.name) if part)
        return f"{info.verb} {resource_of(info.group, kind)} {place}".rstrip()


CLUSTER = "the cluster"
"""The author of writes by the server's own controllers."""


@dataclass
class Entry:
    """One write. `by`: its author; `text`: for example `create configmaps default/a`; `number`: counts the author's
    writes; `made`: the objects that the write changed, with None in place of a deleted object."""

    by: str
    number: int
    text: str
    status: int = 0
    made: list[tuple[Identity, Version | None]] = field(default_factory=list)

    def __str__(self) -> str:
        if self.by == CLUSTER:
            return f"{self.by}: {self.text}"
        answer = "never answered" if not self.status else str(self.status)
        return f"{self.by}, write {self.number}: {self.text} ({answer})"


class Journal:
    """The writes of one run, in order. `see` observes each change of the stored objects."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.known: dict[str, tuple[Identity, str]] = {}
        """The identity and the generateName of every object that existed in the run, by uid."""
        self._current: Entry | None = None

    @contextmanager
    def writing(self, by: str, number: int, asked: Asked) -> Iterator[Entry]:
        """Attribute changes inside the block to this write."""
        entry = self._current = Entry(by, number, str(asked))
        self.entries.append(entry)
        try:
            yield entry
        finally:
            self._current = None

    def see(self, bucket: Bucket, change: Change) -> None:
        """Record a change of the server's storage, as an observer of the storage."""
        version = change.new
        identity = identity_of(bucket.key, version)
        if version.uid not in self.known:
            generated = version.decode()["metadata"].get("generateName", "")
            self.known[version.uid] = identity, generated if version.name.startswith(generated) else ""
        entry = self._current
        if entry is None:  # the author is a controller of the cluster, such as the garbage collector
            verb = "delete" if change.deleted else "create" if change.old is None else "update"
            place = f"{version.namespace}/{version.name}" if version.namespace else version.name
            entry = Entry(CLUSTER, len(self.entries) + 1, f"{verb} {identity[0]} {place}")
            self.entries.append(entry)
        entry.made.append((identity, None if change.deleted else version))


def identity_of(key: str, version: Version) -> Identity:
    """Return the identity of a stored object. `key`: the kind's key in the storage, `group/plural`, or only the
    plural."""
    group, _, plural = key.rpartition("/")
    return resource_of(group, plural), version.namespace, version.name
