"""The types that enter and leave the sans-I/O core: a request in, a response or a stream of watch events out.

The HTTP and in-process transports use only these types, so that the core never sees a socket and a transport never sees
a Kubernetes object. `parse` reads the target of a request from its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
Query = list[tuple[str, str]]
Object = dict[str, Any]  # decoded JSON


def parse_query(text: str) -> Query:
    """Decode a query like the real server: a pair with a semicolon or a broken escape is ignored, not refused."""
    pairs = (pair for pair in text.split("&") if pair and ";" not in pair and not _BAD_ESCAPE.search(pair))
    return parse_qsl("&".join(pairs), keep_blank_values=True)


class EventStream(Protocol):
    """The encoded events of one watch. The connection's thread calls `poll`; any thread that writes may add events.

    - ``poll()``: the next chunk (whole lines of JSON). None if nothing is ready or the stream has ended (``closed``).
    - ``closed``: whether the stream has ended; queued chunks are still sent first.
    - ``deadline``: monotonic seconds at which ``poll()`` has work even without a write (bookmark, timeout).
    - ``on_ready(f)``: call f(), without the cluster's lock, whenever a chunk may be ready or the stream has ended.
    - ``close()``: the client has left, so the core forgets the watch.
    """

    @property
    def closed(self) -> bool: ...

    @property
    def deadline(self) -> float | None: ...

    def poll(self) -> bytes | None: ...

    def on_ready(self, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class MessageConnection(Protocol):
    """A websocket; only the thread that serves it may use it."""

    def receive(self) -> bytes | None:
        """The next message; None once the client has closed the connection or is gone."""

    def send(self, data: bytes) -> None:
        """Send one message. Raises OSError if the client is gone."""


class Session(Protocol):
    """Serves a websocket connection after a 101 response."""

    def run(self, connection: MessageConnection) -> None:
        """Serve the connection to its end in the calling thread. Raises OSError if the client leaves early."""


@dataclass(slots=True)
class HttpRequest:
    """One HTTP request as the core sees it.

    The path is still percent-encoded, the query is a decoded list of pairs, and header names are lower case. The values
    of a repeated header are joined by commas.
    """

    method: str
    path: str
    query: Query = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # (attribute, value) pairs of a verified client certificate
    peer_cert_subject: tuple[tuple[str, str], ...] | None = None
    broken_body: str = ""  # why the body could not be read completely; "" if it could be read

    def param(self, name: str, default: str = "") -> str:
        """The first value of a query parameter, or the default."""
        for key, value in self.query:
            if key == name:
                return value
        return default

    def has_param(self, name: str) -> bool:
        """Whether the query has the parameter, even if it is empty."""
        return any(key == name for key, _ in self.query)

    def params(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return [value for key, value in self.query if key == name]

    def header(self, name: str, default: str = "") -> str:
        """The value of a header, by its lower-case name."""
        return self.headers.get(name, default)


@dataclass(slots=True)
class HttpResponse:
    """One HTTP answer: a body, a watch stream, or for a 101 a websocket session."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    stream: EventStream | None = None
    session: Session | None = None
    delay: float = 0.0  # seconds on the clock before the answer is sent (3 s for a resourceVersion in the future)

    def header(self, name: str) -> str | None:
        """The first value of a header; its name is case-insensitive."""
        wanted = name.lower()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value
        return None


_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class RequestInfo:
    """The target of a request. `verb` is the RBAC verb, or the lower-case method for a non-resource path."""

    is_resource: bool
    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()  # path segments after the subresource, for example of proxy

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse(request: HttpRequest) -> RequestInfo:
    """The target of a request, as the real server's filters read it from the path; the group need not exist."""
    plain = RequestInfo(False, request.method.lower(), request.path)
    parts = unquote(request.path).removeprefix("/").rstrip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, parts = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return plain
    verb = _VERBS.get(request.method, "")
    if parts[0] == "watch" and len(parts) > 1:
        verb, parts = "watch", parts[1:]  # the old form of watch=true
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        # /namespaces/x/status and /finalize are subresources of the Namespace; other paths are resources inside it
        if len(parts) > 2 and parts[2] not in ("status", "finalize"):
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    info = RequestInfo(True, verb, request.path, group, version, namespace, parts[0], name,
                       parts[2] if len(parts) > 2 else "", tuple(parts[3:]))
    info.verb = _verb(request, info)
    return info


def _verb(request: HttpRequest, info: RequestInfo) -> str:
    if info.name:
        return info.verb
    if info.verb == "get":
        return "watch" if is_true(request, "watch") else "list"
    return "deletecollection" if info.verb == "delete" else info.verb


def is_true(request: HttpRequest, name: str) -> bool:
    """A boolean query parameter as the real server reads it: if present, it is true except for "false" and "0"."""
    if not request.has_param(name):
        return False
    return request.param(name).lower() not in ("false", "0")
