"""`Client`: the connections, credentials and retry rules for one API server. Safe to use from any thread.

- A client starts no threads. Calls block at most until their deadline (60 s, unless the Config or the call sets
  another).
- After `close`, new calls raise TransportError, open streams end, and calls that wait for a retry give up.
- After a fork the child opens its own connections at its first call, and does not use the parent's connections.
- Creating a client does not import requests and urllib3, so that a program that only prints its help starts fast. The
  first call imports them, which takes about 0.15 s of CPU time. If a process with a client forks children (gunicorn
  --preload, multiprocessing), each child spends this time and holds its own copy of the modules, unless the parent
  makes one call (for example `client.server_version()`) or imports requests before it forks.

`Carriers` holds the connections of a client in this process, and is the only importer of client/wire, which needs
requests and urllib3. `Shared` holds objects that all users of one client share; the client does not know their types.
`WriteObservers` reports this process's own writes; `OwnWrites` decides whether reads from stores return these writes
before the watch delivers them.
"""
from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, EnumType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.layers import Layers, stack_of, with_layers
from kubectl_runtime.client.http.middleware import Answer, Call, Layer
from kubectl_runtime.client.http.retry import (
    RetryPolicy,
    error_of,
    failure_of,
    unexpected_answer,
    unknown_outcome,
)
from kubectl_runtime.client.http.send import Fence, RateLimit, Reachability, exchange
from kubectl_runtime.client.http.sockets import TlsSource
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.client.server import Refusals, ServerVersion, ServerWarnings
from kubectl_runtime.core.base.errors import ApiError, ConfigError, KubeError, RequestError
from kubectl_runtime.core.base.guard import Guard, guarded_logger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, extensible
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, ForkSafeLock, renewed_in_children, seconds, unforked
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.params import FieldValidation, WriteDefaults
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import FirstOf, StopToken, scoped_stop, time_left

if TYPE_CHECKING:
    import requests
    from requests.models import Response

    from kubectl_runtime.client.api.discovery import Discovery
    from kubectl_runtime.client.streaming.websocket import Inbox, WebSocket
    from kubectl_runtime.client.wire.carrier import RequestsCarrier
    from kubectl_runtime.client.wire.streams import ByteStream

T = TypeVar("T")


class _WithoutWait(EnumType):
    def __getattr__(cls, name: str) -> Any:
        if name == "WAIT":
            raise AttributeError("OwnWrites.WAIT was removed in 0.3: use OwnWrites.OVERLAY (the default), whose reads "
                                 "show a write at once, or OwnWrites.OFF")
        # Python 3.11 calls this method for existing members too.
        if name in cls._member_map_:
            return cls._member_map_[name]
        raise AttributeError(f"{cls.__name__} has no member {name!r}")


class OwnWrites(Enum, metaclass=_WithoutWait):
    """How stores treat this process's own writes until the watch delivers them.

    >>> own = Client(Config(cluster_url=server.url), own_writes=OwnWrites.OFF)
    >>> own.close()
    """

    OVERLAY = "overlay"
    """Until the watch delivers the write, reads return the object from the write's answer."""
    OFF = "off"
    """Reads return only what the watch has delivered, even if that is older than the write."""

    @classmethod
    def checked(cls, value: object) -> OwnWrites:
        """`value`, if it is an OwnWrites. Raises RequestError for anything else."""
        if isinstance(value, cls):
            return value
        raise RequestError(f"own_writes must be one of {', '.join(map(str, cls))}, not {value!r}")


class Write(msgspec.Struct, frozen=True):
    """One write that the server answered. `verb`: create, replace, patch, apply, delete or deletecollection (one Write
    for each object); `subresource`: for example `status`.

    `record` is the object in the answer. It is None for a subresource that is an object of another kind (scale), for a
    delete that was answered with a Status (the object is gone), and for each object of a deletecollection, because the
    object may still exist. `resource_version` and `uid` come from the answer and may be empty. `sent` is the request
    body: the object or patch. `manager` is the field manager in the request; it may be empty.
    """

    ref: ObjectRef
    verb: str
    resource_version: str = ""
    uid: str = ""
    record: Record | None = None
    subresource: str | None = None
    sent: bytes | None = None
    manager: str = ""

    def __repr__(self) -> str:
        return f"<Write {self.verb} of {self.ref} at {self.resource_version or 'no version'}>"  # contains no body


WriteObserver = Callable[[Write], None]


class Exchanged(msgspec.Struct, frozen=True):
    """One finished call, after its retries: the `status` and `body` of the answer (also of an error), or, when no
    answer came, the `error`. For a stream, `body` is empty."""

    request: Request
    status: int = 0
    body: bytes = b""
    error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Exchanged {self.request!r}: {self.status or 'no answer'}>"  # contains no body, sent or received


class Observers(Generic[T]):
    """A list of observers; one observer may be added twice. Thread-safe; observers are called outside the list's
    lock."""

    _what = "an observer"

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._observers: dict[object, tuple[Callable[[T], None], Guard]] = {}
        """Always replaced as a whole, so that notifying needs no lock."""

    def add(self, observer: Callable[[T], None]) -> Callable[[], None]:
        """Add `observer`; returns a function that removes it."""
        key, guard = object(), Guard(self._what)
        with self._lock:
            self._observers = {**self._observers, key: (observer, guard)}

        def remove() -> None:
            with self._lock:
                self._observers = {other: known for other, known in self._observers.items() if other is not key}

        return remove

    def tell(self, what: T) -> None:
        """Call each observer with `what`, in this thread. Exceptions of observers are logged."""
        # An observer's mistake, SystemExit included, must not look like a failed call.
        for observer, guard in self._observers.values():
            guard.call(None, repr, observer, what)

    def __bool__(self) -> bool:
        return bool(self._observers)


class WriteObservers(Observers[Write]):
    """The observers of a client's writes."""

    _what = "a write observer"

    def __init__(self) -> None:
        super().__init__()
        self.begun: Observers[ObjectRef | None] = Observers()
        """Observers that are called right before a write is sent, in its thread, with the object (None for a new
        object). This is the moment to note the state before the write: once the write is answered, a watch may already
        have delivered the change."""


SPARE_CONNECTIONS = 4
"""Pooled connections in addition to one per worker: for lists by watches, requests for Leases, and health checks."""


def connections_for(workers: int) -> int:
    """The number of connections that a client keeps for `workers` concurrent threads. Raises RequestError if `workers`
    is not a whole number of at least 1."""
    given: Any = workers  # not every caller uses a type checker
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise RequestError(f"workers must be a whole number of at least 1, not {workers!r}")
    return workers + SPARE_CONNECTIONS


class _Present(msgspec.Struct, frozen=True):
    """The TLS settings of this process, and its carrier once a call has needed one. Always replaced as a whole."""

    process: int
    certificate: ClientCertificate | None
    tls: TlsSource | None
    carrier: RequestsCarrier | None


class Carriers:
    """The connections of one client and of the clients derived from it. Safe to use from any thread."""

    def __init__(self, config: Config, *, session: requests.Session | None, through_session: bool, connections: int,
                 clock: Clock) -> None:
        """The arguments are those of `Client`. Opens no connection. Raises ConfigError and AuthError for settings that
        cannot work."""
        self._clock = clock
        self._change = ForkSafeLock()
        self.closing = StopToken(clock=clock)
        """Set when the client is closed; a forked child process gets a new token."""
        given = session is not None or through_session
        if given:  # requests is imported already, since the caller needed it to make a session
            with unforked():
                from kubectl_runtime.client.wire.carrier import rules_with

            self.rules = rules_with(session, config, connections=connections, through_session=through_session)
        else:
            self.rules = WireRules.of(config, connections=connections)
        certificate = self.rules.config.certificate()
        tls = self.rules.tls(certificate)
        self._present = _Present(os.getpid(), certificate, tls, self._made(tls) if given else None)

    def current(self) -> RequestsCarrier | None:
        """The carrier for a call; None once the client is closed. The first call blocks while requests is imported."""
        present = self._present
        if (present.carrier is None or present.process != os.getpid()) and not self.closing.is_set():
            present = self._first()
        return None if self.closing.is_set() else present.carrier

    def _first(self) -> _Present:
        with self._change:
            present = self._present
            if present.carrier is None or present.process != os.getpid():
                self._replace(present.certificate)
            return self._present

    def _replace(self, certificate: ClientCertificate | None) -> None:
        """Use `certificate` in this process. The caller holds the lock."""
        before, tls = self._present, None
        if before.process != os.getpid():
            # This is a forked child process. A connection used by both processes would mix their bytes. The parent's
            # connections are not closed here and its TLS contexts are not used, since a thread that does not exist in
            # this process may hold their locks. Closing the client in this process must not end the parent's streams.
            self.closing = StopToken(clock=self._clock)
        elif before.carrier is None and before.certificate == certificate:
            tls = before.tls
        tls = tls or self.rules.tls(certificate)
        carrier = self._made(tls)
        self._present = _Present(os.getpid(), certificate, tls, carrier)
        if before.carrier is not None and before.process == os.getpid():
            before.carrier.close()
        if self.closing.is_set():  # closed before this carrier existed
            carrier.close()

    def _made(self, tls: TlsSource | None) -> RequestsCarrier:
        with unforked():
            from kubectl_runtime.client.wire.carrier import RequestsCarrier

        return RequestsCarrier(self.rules, tls, self._clock)

    def opened(self, response: Response, operation: str, stops: Iterable[StopToken]) -> ByteStream:
        """A ByteStream of the body of `response`, which answers a stream request. `response` may come from a layer."""
        with unforked():
            from kubectl_runtime.client.wire.streams import ByteStream

        return ByteStream(response, operation, stops=stops)

    def use_certificate(self, certificate: ClientCertificate) -> None:
        """Use `certificate` for new connections; a connection in use stays open until its answer has been read."""
        if self._present.certificate == certificate:
            return
        with self._change:
            if self._present.certificate != certificate:
                self._replace(certificate)

    def grow(self, connections: int) -> None:
        """Raise the limit on idle connections to `connections`, unless the limit is already higher."""
        with self._change:
            self.rules.connections = max(self.rules.connections, connections)
            carrier = self._present.carrier
            if carrier is not None:
                carrier.grow(self.rules.connections)

    def close(self) -> None:
        """Close all connections and set `closing`. Does not block. Safe to repeat. In a forked child process it
        closes only the child's connections."""
        present = self._present
        ours = present.process == os.getpid()
        if not ours:  # both processes hold the sockets, so closing would end streams of the parent
            self.closing = StopToken(clock=self._clock)
        self.closing.set("the client was closed")
        if ours and present.carrier is not None:
            present.carrier.close()


class Shared:
    """The objects that all Apis of a client share: one object of each class. Safe to use from any thread. A
    forked child process begins without these objects, since the threads that they use do not run there."""

    def __init__(self) -> None:
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Drop all shared objects; called in a forked child process."""
        self._lock = threading.Lock()
        self._things: dict[Callable[[], Any], Any] = {}

    def get(self, kind: Callable[[], T]) -> T:
        """The shared object of the class `kind`. The first call creates the object with `kind()`, which must be
        quick."""
        with self._lock:
            if kind not in self._things:
                self._things[kind] = kind()
            return cast(T, self._things[kind])


log = guarded_logger(__name__)


class Client:
    """A connection to one API server, with credentials, retries and middleware. An `Api` reads and writes through it.

    Use it in a `with` block, or `close` it when it is no longer needed. Safe to use from any thread, also in a forked
    child, which opens its own connections. Creating a client opens no connection.

    >>> with Client(Config(cluster_url=server.url)) as own:
    ...     Api.namespaced(own, ConfigMap, "default").get("settings").data["color"]
    'blue'
    """

    def __init__(self, config: Config, *, session: requests.Session | None = None, retry: RetryPolicy | None = None,
                 layers: Layers = (), rate_limit: RateLimit | None = None, workers: int = 10,
                 clock: Clock = SYSTEM_CLOCK, use_session_send: bool = False,
                 observer: Observer = NO_OBSERVER, own_writes: OwnWrites = OwnWrites.OVERLAY,
                 field_manager: str | None = None, field_validation: FieldValidation | None = None,
                 dry_run: bool = False) -> None:
        """Make a client for the cluster of `config`. Opens no connection.

        - `session`: your own requests.Session, whose adapters, proxies and TLS settings are used.
        - `retry`: which failures are retried (default: `RetryPolicy()`).
        - `rate_limit`: the highest rate of calls (default: no limit).
        - `layers`: your middleware. A list of layers is called for each attempt, in the order of the list, right before
          the request is sent. To put layers anywhere else, pass a function from `Stack` to `Stack`.
        - `workers`: how many threads call at the same time; a Controller raises the number for its own threads.
        - `observer`: is notified of attempts, retries, writes and credentials, and of this client's controllers.
        - `own_writes`: what stores return after a write until the watch delivers it; see `OwnWrites`. A Controller may
          have its own value.
        - `field_manager`, `field_validation`: the defaults for every write. In a controller's run the controller's name
          is the field manager. `dry_run`: every write is a dry run, Events included, and an election raises
          RequestError. These three apply to the verbs of `Api`; `request` sends its request unchanged.
        - `use_session_send`: send through `Session.send`, so that mocks of this method work. `clock`: for tests.

        Raises ConfigError or AuthError for arguments that cannot work, RequestError for invalid headers, `own_writes`,
        `workers` or options of writes, and TypeError for an observer that is not an Observer.
        """
        if not isinstance(config, Config):
            raise ConfigError(f"the config of a Client must be a Config, not {type(config).__name__}: "
                              "use Client(Config(cluster_url=...)) or Client.try_default()")
        self.clock = clock
        self.observer = extensible(observer)
        """The given observer, in a form that never raises."""
        self.reachability = Reachability()
        """Whether the server is reachable; shared by all watches of the client, which take turns during an outage."""
        self.refusals = Refusals()
        """Features that the server has refused."""
        self.own_writes = OwnWrites.checked(own_writes)
        self.write_defaults = WriteDefaults(field_manager=field_manager, field_validation=field_validation,
                                            dry_run=dry_run)
        """Options for writes whose verb sets none."""
        self.shared = Shared()
        """The state that this client shares with clients derived from it."""
        self._carriers = Carriers(config, session=session, through_session=use_session_send,
                                  connections=connections_for(workers), clock=clock)
        rules = self._carriers.rules
        self.config = config = rules.config
        self._timeout = seconds(config.timeout)
        self._root = self
        own = stack_of(config, rules, retry or RetryPolicy(), rate_limit, clock, self.observer,
                       self._carriers.use_certificate)
        self._layers = with_layers(own, layers)
        self._exchange = exchange(self._carriers.current, config, clock, self.reachability, self.observer, self.shared)
        self._send = self._layers.around(self._exchange)
        self._refused = False
        self._discovery: Discovery | None = None
        self._writes = WriteObservers()
        self._exchanges: Observers[Exchanged] = Observers()
        self._warnings = ServerWarnings()

    @classmethod
    def try_default(cls) -> Self:
        """A client for the Config that `Config.infer` finds. Raises ConfigError when nothing configures a cluster."""
        return cls(Config.infer())

    @property
    def root(self) -> Client:
        """The client from which this one was derived, or this client."""
        return self._root

    def with_layer(self, layer: Layer) -> Self:
        """A client like this one with one more layer: each attempt calls `layer` after all other layers.

        Both clients share connections, credentials, warnings, `on_write` and the watches of stores. Closing one client
        closes both.
        """
        derived = copy.copy(self)
        derived._layers = self._layers.innermost(layer)
        derived._send = derived._layers.around(self._exchange)
        return derived

    @property
    def fences(self) -> tuple[Fence, ...]:
        """This client's `Fence` layers. In the runs of this client's controllers, the fences also check the writes of
        all clients that share this client's connections. For internal use."""
        return tuple(layer for _, layer in self._layers.entries if isinstance(layer, Fence))

    @property
    def default_namespace(self) -> str:
        """The Config's default namespace, which `Api.default_namespaced` uses."""
        return self.config.default_namespace

    # Calls

    def request(self, request: Request, *, deadline: float | None = None, stop: StopToken | None = None) -> bytes:
        """Send one request, as `answer` does, and return only the body of the answer."""
        return self.answer(request, deadline=deadline, stop=stop).body

    def answer(self, request: Request, *, deadline: float | None = None, stop: StopToken | None = None) -> Answer:
        """Send one request and return its answer.

        `deadline`: a point on the client's clock; by default the Config's `timeout` from now. Setting `stop` ends the
        retries, and the wait for the answer to a GET. Raises ApiError when the answer is an error, TransportError when
        no answer came (RequestTimeout at the deadline), OutcomeUnknownError for a write that the server may have
        carried out although no whole answer came, and AuthError when credentials cannot be obtained.
        """
        return self._answer(self._call(request, deadline, stop))

    def stream(self, request: Request, *, stop: StopToken | None = None, read_timeout: float | None = None,
               deadline: float | None = None) -> ByteStream:
        """Open a stream, such as a watch or a followed log. Blocks until the answer's headers have arrived; raises like
        `request`.

        `read_timeout`: the longest silence in seconds (None: no limit). `stop` and `close` end the stream. `deadline`
        applies only to opening the stream.
        """
        call = self._call(request, deadline, stop)
        call.streaming, call.read_timeout = True, read_timeout
        answer = self._answer(call)
        assert answer.response is not None
        return self._carriers.opened(answer.response, request.operation, (call.stop,))

    def connect(self, request: Request, protocols: Sequence[str] = (), *, inbox: Inbox | None = None,
                stop: StopToken | None = None, deadline: float | None = None) -> WebSocket:
        """Open a websocket with one of `protocols`, in order of preference. Blocks until the websocket is open. Raises
        like `request`, and TransportError if the server or an adapter does not open a websocket.

        The websocket is closed when `stop` is set, when the client is closed, and at the end of the controller run that
        called `connect`. `deadline` applies only to opening the websocket. `inbox` receives the websocket's messages.
        """
        with unforked():  # few programs need websocket-client
            from kubectl_runtime.client.streaming.websocket import WebSocket, opened, upgrading

        asked, key = upgrading(request, protocols)
        call = self._call(asked, deadline, stop)
        call.streaming = True
        answer = self._answer(call)
        assert answer.response is not None
        return WebSocket(opened(answer.response, request, key, protocols), request.operation, inbox=inbox,
                         stops=(call.stop,), clock=self.clock)

    def server_version(self) -> ServerVersion:
        """The server's version. Raises like `request`."""
        request = Request("GET", "/version", "get", None, "get the server's version")
        answer = self.answer(request)
        try:
            return ServerVersion.decoded(answer.body, self.config.cluster_url)
        except DecodeError as error:
            raise unexpected_answer(request, answer.status, answer.headers, answer.body) or error from None

    def on_write(self, observer: WriteObserver) -> Callable[[], None]:
        """Call `observer` with each `Write` that the server answered, in the thread that wrote, before the verb
        returns.

        Returns a function that removes the observer. Dry runs are not reported. Observers must be short; their
        exceptions are logged.
        """
        return self._writes.add(observer)

    def on_answer(self, observer: Callable[[Exchanged], None]) -> Callable[[], None]:
        """Call `observer` after each call, in the calling thread, before the call returns or raises; failed and
        unanswered calls are included. For a stream, the observer is called when the stream is open. Returns a function
        that removes the observer; observers must be short, and their exceptions are logged. The observer sees
        everything that was sent and answered, including Secrets."""
        return self._exchanges.add(observer)

    @property
    def discovery(self) -> Discovery:
        """The kinds that the server serves; requested on first use and kept for some minutes."""
        found = self._discovery
        if found is None:
            with unforked():  # few programs need discovery, and none needs it at startup
                from kubectl_runtime.client.api.discovery import Discovery

            self._discovery = found = Discovery(self)
        return found

    @property
    def writes(self) -> WriteObservers:
        """The observers of this client's writes, which `Api` calls. For internal use; programs use `on_write`."""
        return self._writes

    def _call(self, request: Request, deadline: float | None, stop: StopToken | None) -> Call:
        if deadline is None:
            deadline = self.clock.monotonic() + self._timeout
        if (left := time_left(None, self.clock)) is not None:
            deadline = min(deadline, self.clock.monotonic() + left)
        closing = self._carriers.closing
        return Call(request, deadline, self._ended_by(stop, closing), headers=dict(request.headers), closing=closing)

    def _ended_by(self, stop: StopToken | None, closing: StopToken) -> StopToken:
        """The tokens that end a call: the caller's token, `close`, and the end of the controller's run that makes the
        call."""
        scoped = scoped_stop()
        if scoped is not None:
            tokens = (closing, scoped) if stop is None else (stop, closing, scoped)
            return FirstOf(*tokens, clock=self.clock)
        return closing if stop is None else FirstOf(stop, closing)

    def _answer(self, call: Call) -> Answer:
        failure = None
        try:
            answer = self._told(call) if self._exchanges else self._logged(call)
            if (warning := answer.headers.get("Warning")) is not None:
                self._warnings.tell(warning, call.request.operation)
            if answer.status < 300:
                self._refused = False
                return answer
            failure = failure_of(answer.status, answer.headers, answer.body, self.clock.now())
            raise self._error(call.request, answer)
        except KubeError as error:
            unknown = unknown_outcome(call.request, error, failure, in_doubt=call.in_doubt)
            if unknown is None:
                raise
        raise unknown

    def _logged(self, call: Call) -> Answer:
        """Send the call, retries included, and return the answer; logs one line at DEBUG."""
        if not log.isEnabledFor(logging.DEBUG):
            return self._send(call)
        begun, code = self.clock.monotonic(), "no answer"
        try:
            answer = self._send(call)
            code = str(answer.status)
            return answer
        finally:
            request = call.request
            log.debug("%s %s: %s in %.0f ms%s", request.verb, request.path, code,
                      1000 * (self.clock.monotonic() - begun),
                      f", {call.attempt} retr{'y' if call.attempt == 1 else 'ies'}" if call.attempt else "")

    def _told(self, call: Call) -> Answer:
        """Send the call, report its answer or error to the observers of `on_answer`, and return the answer."""
        try:
            answer = self._logged(call)
        except BaseException as error:
            self._exchanges.tell(Exchanged(call.request, error=error))
            raise
        self._exchanges.tell(Exchanged(call.request, answer.status, answer.body))
        return answer

    def _error(self, request: Request, answer: Answer) -> ApiError:
        error = error_of(request, answer.status, answer.headers, answer.body, self.clock.now(), self.config.origin)
        if error.is_unauthorized and not self._refused:  # log once until a call succeeds
            self._refused = True
            log.warning("%s", error)
        return error

    # Connections

    def grow(self, workers: int) -> None:
        """Keep enough connections for at least `workers` concurrent threads."""
        self._carriers.grow(connections_for(workers))

    def close(self) -> None:
        """Close all connections and end all streams. Does not block. Safe to repeat. In a forked child process it
        closes only the child's connections."""
        self._carriers.close()

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the client is closed, or at once if it already is; returns a function that removes
        `callback`."""
        return self._carriers.closing.on_set(callback)

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed, so that its calls raise TransportError."""
        return self._carriers.closing.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.config.cluster_url}>"
