"""`Client`: one API server, as one set of connections, credentials and retry rules. Safe to use from any thread.

    open -> close()      calls raise TransportError; open streams end; retries that wait give up
    after a fork         the child makes connections of its own at its first call; the parent's are left alone

It starts no threads. Calls block until their deadline at most (60 s unless the Config or the call says otherwise).
"""
from __future__ import annotations

import logging
import os
import platform
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

import msgspec
import requests

from kubectl_runtime.client.api.shared import Shared
from kubectl_runtime.client.api.writes import OwnWrites, WriteObserver, WriteObservers
from kubectl_runtime.client.config.auth import ClientCertificate, FixedCredentials
from kubectl_runtime.client.config.config import Config, Impersonation
from kubectl_runtime.client.http.failures import ConnectionFailed, error_of
from kubectl_runtime.client.http.middleware import (
    Answer,
    Call,
    Layer,
    authenticating,
    base_url,
    extra_headers,
    retrying,
    stacked,
)
from kubectl_runtime.client.http.observed import ObservedCredentials, observed
from kubectl_runtime.client.http.retry import Failure, RetryPolicy
from kubectl_runtime.client.http.send import exchange
from kubectl_runtime.client.http.session import Adapters, SessionRules
from kubectl_runtime.client.http.streams import ByteStream
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, seconds
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, together
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.request import Request

log = logging.getLogger(__name__)

SPARE_CONNECTIONS = 4
"""Pooled connections beyond one for each worker: lists of watches, leases, health checks."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_REMEMBERED_WARNINGS = 1000


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """What the server says of itself."""

    major: str = ""
    minor: str = ""
    git_version: str = ""


@dataclass(frozen=True)
class _Connections:
    """The adapters of one process with one certificate; replaced whole."""

    process: int
    certificate: ClientCertificate | None
    adapters: Adapters


class Client:
    """The way to one API server. A context manager; `close` it when it is no longer needed."""

    def __init__(self, config: Config, *, session: requests.Session | None = None, retry: RetryPolicy | None = None,
                 layers: Iterable[Layer] = (), workers: int = 10, clock: Clock = SYSTEM_CLOCK,
                 use_session_send: bool = False, observer: Observer = NO_OBSERVER,
                 own_writes: OwnWrites = OwnWrites.OVERLAY) -> None:
        """Opens no connection.

        `session`: taken as client/session.py says. `retry`: None is the default `RetryPolicy`. `layers`: the user's
        middleware, closest to the adapter, the first outermost. `workers`: how many threads will call at once; a
        Controller raises it. `use_session_send`: send through `Session.send`, for mocks of it. `observer`: told of
        attempts, retries, writes and credentials, and of what this client's controllers do. `own_writes`: how the
        stores of this client read what it wrote; a Controller may say otherwise. Raises ConfigError and AuthError for
        what cannot work, TypeError for an observer that is none.
        """
        if not isinstance(config, Config):
            raise ConfigError(f"a Client is made from a Config, not from {type(config).__name__}: "
                              "Client(Config(cluster_url=...)) or Client.try_default()")
        self.config = config
        self.clock = clock
        self.observer = together(observer)
        """Raises nothing, whatever the one does that was given."""
        self.own_writes = own_writes
        self.shared = Shared()
        """What the users of this client, and of clients derived from it, have in common."""
        self._closing = StopToken(clock=clock)
        self._change = threading.Lock()
        self._rules = SessionRules.read(session, config, connections=workers + SPARE_CONNECTIONS,
                                        through_session=use_session_send)
        self._timeout = seconds(config.timeout)
        self._connections = self._connect(config.certificate())
        self._send = stacked(self._layers(retry or RetryPolicy(), layers), exchange(self._rules, self._adapters, clock))
        self._writes = WriteObservers()
        self._warned: set[str] = set()

    @classmethod
    def try_default(cls) -> Self:
        """A client as `Config.infer` says. Raises ConfigError when nothing configures a cluster."""
        return cls(Config.infer())

    @property
    def default_namespace(self) -> str:
        return self.config.default_namespace

    # Calls

    def request(self, request: Request, *, deadline: float | None = None, stop: StopToken | None = None) -> bytes:
        """Send one request; the body of its answer.

        `deadline`: a point on the client's clock; by default the Config's `timeout` from now. When `stop` is set,
        retries end, and so does waiting for the answer of a GET. Raises ApiError for an answer that is an error,
        TransportError (RequestTimeout) for none, AuthError.
        """
        return self._answer(self._call(request, deadline, stop)).body

    def stream(self, request: Request, *, stop: StopToken | None = None, read_timeout: float | None = None,
               deadline: float | None = None) -> ByteStream:
        """Open a stream: a watch, a followed log. Blocks until the answer's head is there; raises as `request` does.

        `read_timeout`: seconds, the longest silence (None: any). `stop` and `close` end it. `deadline` is for its
        opening.
        """
        call = self._call(request, deadline, stop)
        call.streaming, call.read_timeout = True, read_timeout
        answer = self._answer(call)
        assert answer.response is not None
        stops = (self._closing,) if stop is None else (self._closing, stop)
        return ByteStream(answer.response, request.operation, stops=stops)

    def server_version(self) -> ServerVersion:
        """The server's version. Raises as `request` does."""
        body = self.request(Request("GET", "/version", "get", None, "get the server's version"))
        try:
            return msgspec.json.decode(body, type=ServerVersion)
        except msgspec.MsgspecError as error:
            raise DecodeError(None, "$", f"what {self.config.cluster_url} calls its version is none: {error}") from None

    def on_write(self, observer: WriteObserver) -> Callable[[], None]:
        """Have `observer` called with each `Write` that the server answered, before the writing verb returns, in its
        thread.

        Returns a function that takes it back. Dry runs are not reported. Observers must be short; their exceptions are
        logged.
        """
        return self._writes.add(observer)

    @property
    def writes(self) -> WriteObservers:
        """Who is told of writes; `Api` tells them."""
        return self._writes

    def _call(self, request: Request, deadline: float | None, stop: StopToken | None) -> Call:
        if deadline is None:
            deadline = self.clock.monotonic() + self._timeout
        return Call(request, deadline, stop or self._closing, headers=dict(request.headers))

    def _answer(self, call: Call) -> Answer:
        answer = self._send(call)
        if (warning := answer.headers.get("Warning")) is not None:
            self._warn(warning, call.request)
        if answer.status >= 300:
            raise error_of(call.request, answer.status, answer.headers, answer.body, self.clock.now())
        return answer

    def _warn(self, header: str, request: Request) -> None:
        """Log each warning of the server once in this client's life."""
        for text in _WARNING.findall(header):
            with self._change:
                known = text in self._warned or len(self._warned) >= _REMEMBERED_WARNINGS
                if not known:
                    self._warned.add(text)
            if not known:
                log.warning("%s: the API server warns: %s", request.operation, text.replace('\\"', '"'))

    # Connections

    def grow(self, workers: int) -> None:
        """Keep connections for at least `workers` threads that call at once."""
        with self._change:
            self._rules.connections = max(self._rules.connections, workers + SPARE_CONNECTIONS)
            self._connections.adapters.grow(self._rules.connections)

    def close(self) -> None:
        """Close all connections and end all streams. Does not block. Safe to repeat."""
        self._closing.set("the client was closed")
        self._connections.adapters.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _adapters(self, operation: str) -> Adapters:
        if self._closing.is_set():
            raise ConnectionFailed(f"{operation}: the client was closed", Failure(sent=False, permanent=True))
        connections = self._connections
        if connections.process != os.getpid():
            # The child of a fork: a connection used by both processes would mix their bytes. The parent's are not
            # closed here, since their locks may have been held by a thread that does not exist in this process.
            self._connections = connections = self._connect(connections.certificate)
        return connections.adapters

    def _connect(self, certificate: ClientCertificate | None) -> _Connections:
        return _Connections(os.getpid(), certificate, self._rules.adapters(certificate))

    def _use_certificate(self, certificate: ClientCertificate) -> None:
        """Identify new connections by `certificate`; those in use go on until their answer has been read."""
        if self._connections.certificate == certificate:
            return
        with self._change:
            before = self._connections
            if before.certificate != certificate:
                self._connections = self._connect(certificate)
                before.adapters.close()

    def _layers(self, retry: RetryPolicy, layers: Iterable[Layer]) -> list[Layer]:
        observer, clock, url = self.observer, self.clock, self.config.cluster_url
        host = urlsplit(url).netloc.rpartition("@")[2]
        fixed = _fixed_headers(self.config, self._rules)
        stack = [base_url(url), retrying(retry, clock, host, observer)]
        credentials = None if self._rules.auth or "Authorization" in fixed else self.config.credentials(clock)
        if credentials is not None and observer is not NO_OBSERVER and not isinstance(credentials, FixedCredentials):
            credentials = ObservedCredentials(credentials, observer, host, clock)
        if credentials is not None:
            stack.append(authenticating(credentials, self._use_certificate))
        watching = [] if observer is NO_OBSERVER else [observed(observer, host, clock)]
        return [*stack, extra_headers(fixed), *layers, *watching]

    def __repr__(self) -> str:
        return f"<Client of {self.config.cluster_url}>"


def _fixed_headers(config: Config, rules: SessionRules) -> Mapping[str, str | tuple[str, ...]]:
    """What every call carries: the session's headers outrank the Config's, which outrank the library's."""
    headers: dict[str, str | tuple[str, ...]] = {
        "User-Agent": f"kubectl_runtime/{VERSION} (python {platform.python_version()})",
        "Accept-Encoding": "gzip" if config.compression else "identity",
    }
    if config.impersonate is not None:
        headers.update(_impersonation(config.impersonate))
    for name, value in [*config.headers.items(), *rules.headers]:
        headers["-".join(word.capitalize() for word in name.split("-"))] = value
    return headers


def _impersonation(who: Impersonation) -> dict[str, str | tuple[str, ...]]:
    headers: dict[str, str | tuple[str, ...]] = {"Impersonate-User": who.user}
    if who.groups:
        headers["Impersonate-Group"] = who.groups
    if who.uid:
        headers["Impersonate-Uid"] = who.uid
    for key, values in who.extra.items():
        headers[f"Impersonate-Extra-{_encoded(key)}"] = values
    return headers


def _encoded(key: str) -> str:
    """An extra key as part of a header's name: percent-encoded where a name may not hold the character."""
    return quote(key.lower(), safe="!#$&'*+-.^_`|~")
