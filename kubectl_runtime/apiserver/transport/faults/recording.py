"""`Recording`: every request that a server got, in order, with what became of it.

Reads as a sequence of `RecordedRequest`. The oldest are forgotten above `max_requests` or when they take more than
`max_bytes`; numbers go on counting. Thread-safe; reading gives a snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, overload

import msgspec

from kubectl_runtime.apiserver.transport.faults.rule import Match, Words, glob, words
from kubectl_runtime.apiserver.wire import HttpRequest, Query, parse
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, seconds


@dataclass(slots=True, eq=False)
class RecordedRequest:
    """One request. `status` is that of the answer, None as long as (or if ever) there is none."""

    number: int  # 1 for the first
    monotonic: float  # seconds on the server's clock at which it was read
    time: datetime
    request: HttpRequest = field(repr=False)
    status: int | None = None
    ended: str = ""  # "reset", "close" or "stall" if the fault script ended it

    @property
    def verb(self) -> str:
        """RBAC's word: get, list, watch, create, update, patch, delete, deletecollection."""
        return parse(self.request).verb

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        """The path, decoded."""
        return self.request.path

    @property
    def query(self) -> Query:
        """The query as pairs, in order."""
        return self.request.query

    @property
    def headers(self) -> dict[str, str]:
        """The headers by lower-case name."""
        return self.request.headers

    @property
    def body(self) -> bytes:
        return self.request.body

    def param(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.request.param(name, default)

    def json(self) -> Any:
        """The body, decoded. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.request.body)

    def __repr__(self) -> str:  # neither headers nor body: they hold tokens and Secrets
        return f"<{self.number}: {self.verb} {self.method} {self.path} -> {self.ended or self.status}>"


def _size(request: HttpRequest) -> int:
    """Bytes that a request takes, roughly."""
    return (len(request.body) + len(request.path) + sum(map(len, request.headers.values()))
            + sum(len(key) + len(value) for key, value in request.query))


class Recording:
    """See the module."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, max_requests: int = 10_000, max_bytes: int = 32 << 20) -> None:
        self._clock = clock
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._changed = threading.Condition(threading.RLock())
        self._kept: deque[RecordedRequest] = deque()
        self._bytes = 0
        self._count = 0

    @property
    def total(self) -> int:
        """How many requests there were, forgotten and cleared ones included."""
        return self._count

    def add(self, request: HttpRequest) -> RecordedRequest:
        """Record a request that was read; the server fills in what becomes of it."""
        with self._changed:
            self._count += 1
            entry = RecordedRequest(self._count, self._clock.monotonic(), self._clock.now(), request)
            self._kept.append(entry)
            self._bytes += _size(request)
            while len(self._kept) > self._max_requests or (self._bytes > self._max_bytes and len(self._kept) > 1):
                self._bytes -= _size(self._kept.popleft().request)
            self._changed.notify_all()
        return entry

    def answered(self, entry: RecordedRequest, status: int | None, ended: str = "") -> None:
        """Note what became of a request."""
        with self._changed:
            entry.status = status if status is not None else entry.status
            entry.ended = ended or entry.ended
            self._changed.notify_all()

    def select(self, verb: Words | None = None, path: str | None = None, *, resource: Words | None = None,
               method: Words | None = None) -> list[RecordedRequest]:
        """The requests with these verbs, resources and methods whose path fits the pattern (`*`, `**`)."""
        match = Match(words(verb), glob(path) if path is not None else None, words(method), words(resource))
        return [entry for entry in self if match.matches(entry.request, parse(entry.request))]

    def wait_for(self, count: int, verb: Words | None = None, path: str | None = None, *, timeout: Duration = 10,
                 resource: Words | None = None) -> list[RecordedRequest]:
        """Block until so many of the selected requests were answered or ended; raises TimeoutError after `timeout`."""
        deadline = self._clock.monotonic() + seconds(timeout)
        while True:
            with self._changed:
                seen = self._count
                found = [entry for entry in self.select(verb, path, resource=resource)
                         if entry.status is not None or entry.ended]
                if len(found) >= count:
                    return found
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{len(found)} of {count} requests ({verb or 'any verb'} {path or 'any path'}) "
                                       f"within {seconds(timeout):g} s; {seen} requests in all")
                self._clock.wait(self._changed, left)

    def clear(self) -> None:
        """Forget what was recorded."""
        with self._changed:
            self._kept.clear()
            self._bytes = 0

    def __iter__(self) -> Iterator[RecordedRequest]:
        with self._changed:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> RecordedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordedRequest]: ...
    def __getitem__(self, index: int | slice) -> RecordedRequest | list[RecordedRequest]:
        return list(self)[index]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "<no requests>"
