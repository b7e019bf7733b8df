"""What crosses the border of the sans-I/O core: a request in, a response or a stream of watch events out.

The rim over HTTP (``rim/http``) and the one in process (``rim/inprocess``) speak these types and nothing else, so
that the core never sees a socket and the rim never sees an object.

An `EventStream` is pulled by one thread (the one that serves the connection) and pushed by whichever thread writes:

=================  =====================================================================================================
``poll()``         next chunk (whole lines of JSON), or None: nothing is ready, or the stream has ended (``closed``)
``closed``         the server has nothing more to say; chunks that are still queued come first
``deadline``       monotonic seconds at which ``poll()`` has something to do although nobody writes (bookmark, timeout)
``on_ready(f)``    f() is called, without the cluster's lock, whenever a chunk may be ready or the stream has ended
``close()``        the client went away: the core forgets the watch
=================  =====================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
Query = list[tuple[str, str]]


def parse_query(text: str) -> Query:
    """A query as the real server reads it: a pair with a semicolon or a broken escape is left out, not refused."""
    pairs = (pair for pair in text.split("&") if pair and ";" not in pair and not _BAD_ESCAPE.search(pair))
    return parse_qsl("&".join(pairs), keep_blank_values=True)


class EventStream(Protocol):
    """The events of one watch, encoded; see the module's table."""

    @property
    def closed(self) -> bool: ...

    @property
    def deadline(self) -> float | None: ...

    def poll(self) -> bytes | None: ...

    def on_ready(self, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class MessageConnection(Protocol):
    """A websocket, as the one thread that serves it sees it."""

    def receive(self) -> bytes | None:
        """The next message; None once the client has closed or gone."""

    def send(self, data: bytes) -> None:
        """Send one message; raises OSError when the client has gone."""


class Session(Protocol):
    """What happens on a connection after a 101."""

    def run(self, connection: MessageConnection) -> None:
        """Serve it to its end, in the thread of the connection; raises OSError when the client goes before it."""


@dataclass(slots=True)
class HttpRequest:
    """One HTTP request as the core sees it.

    The path is still percent-encoded, the query is a decoded list of pairs, header names are lower case; a header that
    was sent several times has its values joined by commas.
    """

    method: str
    path: str
    query: Query = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # (attribute, value) pairs of a verified client certificate
    peer_cert_subject: tuple[tuple[str, str], ...] | None = None
    broken_body: str = ""  # why the body could not be read to its end

    def param(self, name: str, default: str = "") -> str:
        """The first value of a query parameter, or the default."""
        for key, value in self.query:
            if key == name:
                return value
        return default

    def has_param(self, name: str) -> bool:
        """Whether a query parameter was given at all, be it empty."""
        return any(key == name for key, _ in self.query)

    def params(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return [value for key, value in self.query if key == name]

    def header(self, name: str, default: str = "") -> str:
        """The value of a header; the name is given in lower case."""
        return self.headers.get(name, default)


@dataclass(slots=True)
class HttpResponse:
    """One HTTP answer: a body, a stream for a watch, or with a 101 what is served over a websocket."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    stream: EventStream | None = None
    session: Session | None = None
    delay: float = 0.0  # seconds on the clock before the answer is sent (the 3 s of a resourceVersion from the future)

    def header(self, name: str) -> str | None:
        """The first value of a header, in any case."""
        wanted = name.lower()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value
        return None
