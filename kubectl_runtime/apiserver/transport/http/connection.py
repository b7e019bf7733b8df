"""HTTP connections: the `Listener` starts a thread for each connection.

Such a thread serves requests, watches and websockets.

The fault script makes plans (see shapers.py), which `_carry` executes; without faults a plan is one `Send`. While a
watch is idle, its thread waits on a condition. The watch, the `Reaper` (when the client is gone) and the listener (when
the server stops) notify this condition. Without a notification, the thread wakes only for the watch's deadline.

A thread that serves an idle watch reads nothing, so without the `Reaper` it would keep a dead connection until the next
write. The `Reaper` is one thread that polls the sockets of all idle watches and calls back when a client closes its
connection.
"""
from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kubectl_runtime.apiserver.encoding import compressed
from kubectl_runtime.apiserver.transport.faults import (
    Close,
    Exchange,
    Faults,
    Plan,
    RecordedRequest,
    Recording,
    Send,
    Stall,
    Wait,
)
from kubectl_runtime.apiserver.transport.http.reader import BadMessage, Reader, chunk, head, whole
from kubectl_runtime.apiserver.transport.http.websockets import ServerWebSocket, handshake_headers
from kubectl_runtime.apiserver.wire import EventStream, HttpRequest, HttpResponse, Session
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, Thread


def _readable(wake: socket.socket, watched: list[int]) -> list[int]:
    """Wait until `wake` is readable or the peer of a watched connection is gone. Returns these descriptors.

    On Linux a close by the peer can be distinguished from data. On other systems any input on a watch's connection
    counts as the end of the connection. Windows has no poll.
    """
    if not hasattr(select, "poll"):
        return select.select([wake.fileno(), *watched], [], [])[0]
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    for descriptor in watched:
        poller.register(descriptor, getattr(select, "POLLRDHUP", select.POLLIN))
    return [descriptor for descriptor, _ in poller.poll()]


class Reaper:
    """The thread that notices when clients close connections. `watch` and `forget` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._sockets: dict[int, Callable[[], None]] = {}
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def watch(self, connection: socket.socket, gone: Callable[[], None]) -> None:
        """Call `gone` once when the peer closes the connection."""
        with self._lock:
            self._sockets[connection.fileno()] = gone
        self._wake()

    def forget(self, connection: socket.socket) -> None:
        """Stop watching a connection. Must be called before the connection is closed."""
        with self._lock:
            self._sockets.pop(connection.fileno(), None)
        self._wake()  # closing a connection sends neither FIN nor RST while it is being polled

    def stop(self) -> None:
        """End the thread. Blocks until a running callback has returned, for at most 5 s."""
        self._stopped = True
        self._wake()
        self._thread.join(5)
        self._wake_in.close()
        self._wake_out.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"x")

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                watched = dict(self._sockets)
            try:
                found = _readable(self._wake_out, [*watched])
            except OSError:  # a connection was closed at the same time; `forget` was or will be called for it
                found = []
            for descriptor in found:
                if descriptor == self._wake_out.fileno():
                    with contextlib.suppress(OSError):
                        self._wake_out.recv(4096)
                    continue
                with self._lock:  # the descriptor may belong to another connection by now
                    gone = self._sockets.get(descriptor)
                    if gone is None or gone is not watched[descriptor]:
                        continue
                    del self._sockets[descriptor]
                gone()


log = guarded_logger(__name__)

SEND_TIMEOUT = 60.0  # seconds within which a client must read the data sent to it
LINGER = 0.5  # seconds that a client has to read the last answer if it is still sending data


class Tls(Protocol):
    """The listener's side of TLS; see `credentials.ServerTls`."""

    def accept(self, connection: socket.socket) -> socket.socket:
        """Do the handshake. Raises OSError if it fails."""

    def subject(self, connection: socket.socket) -> tuple[tuple[str, str], ...] | None:
        """The subject of the client's verified certificate; None without a certificate."""


@dataclass(frozen=True)
class ServingInfo:
    """The state that all connections of a server share."""

    handle: Callable[[HttpRequest], HttpResponse]
    clock: Clock
    faults: Faults
    recording: Recording | None
    reaper: Reaper
    tls: Tls | None


class Drop(Exception):
    """Ends the connection; `how` is the fault script's ending, or "" if no fault ends it."""

    def __init__(self, how: str = "") -> None:
        super().__init__(how)
        self.how = how


class Connection:
    """One connection. `run` serves the connection to its end; `stop` ends it from another thread."""

    def __init__(self, connection: socket.socket, serving: ServingInfo) -> None:
        self._socket = connection
        self._serving = serving
        self._condition = threading.Condition()
        self._events = 0  # counts notifications, so that no notification is missed between a poll and a wait
        self._gone = False
        self._stopping = False
        self._idle = True  # whether the connection is between two requests
        self._chunks = True  # whether the client of the current request accepts chunked answers
        self._entry: RecordedRequest | None = None  # the current request's entry

    def _send(self, data: bytes) -> None:
        """Send all data. Raises OSError if the client is gone."""
        if self._socket.gettimeout() != SEND_TIMEOUT:  # setting the timeout is a system call, and watches send often
            self._socket.settimeout(SEND_TIMEOUT)
        self._socket.sendall(data)

    def stop(self) -> None:
        """End the connection after the current answer. Idle connections and watches end at once."""
        with self._condition:
            self._stopping = True
            self._events += 1
            self._condition.notify_all()
            idle = self._idle
        if idle:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """End the connection now, even in the middle of an answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.stop()

    def run(self) -> None:
        """Serve requests until one side ends the connection. Raises nothing."""
        try:
            self._carry(self._serving.faults.connect())
            if self._serving.tls is not None:
                self._socket = self._serving.tls.accept(self._socket)
            self._serve()
        except Drop as drop:
            if drop.how == "reset":  # close() sends an RST if the linger time is 0
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self._say_goodbye()
                with contextlib.suppress(OSError):
                    self._linger()
        except OSError:
            pass  # the client is gone or the server is stopping
        except Exception:  # a bug here or in a user's fault function ends this connection, not the server
            log.exception("serving a connection failed")
        else:
            self._say_goodbye()
        finally:
            with contextlib.suppress(OSError):
                self._socket.close()

    def _say_goodbye(self) -> None:
        """Send TLS's close_notify, so that the client does not treat the end as a truncation attack."""
        if isinstance(self._socket, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):
                self._socket.settimeout(0)  # do not wait for the client's own close_notify
                self._socket.unwrap()

    def _serve(self) -> None:
        reader = Reader(self._socket)
        subject = self._serving.tls.subject(self._socket) if self._serving.tls is not None else None
        while not self._stopping:
            try:
                request = reader.next()
            except BadMessage as problem:
                self._send(problem.answer())
                self._linger()
                return
            if request is None or not self._begin():
                return
            request.peer_cert_subject = subject
            self._chunks = reader.chunks
            self._answer(request, reader)
            if not reader.keep_alive:
                self._linger()
                return
            if not self._end():
                return

    def _linger(self) -> None:
        """Briefly read data that the client still sends, since a close with unread bytes would discard the answer."""
        if isinstance(self._socket, ssl.SSLSocket):
            return  # TLS has its own close_notify
        self._socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            if not self._socket.recv(1 << 16):
                return

    def _begin(self) -> bool:
        with self._condition:
            self._idle = False
            return not self._stopping

    def _end(self) -> bool:
        with self._condition:
            self._idle = True
            return not self._stopping

    def _answer(self, request: HttpRequest, reader: Reader) -> None:
        service = self._serving
        self._entry = service.recording.add(request) if service.recording is not None else None
        exchange = service.faults.begin(request) or Exchange(service.clock)
        self._carry(exchange.before)
        for effect in exchange.effects:
            effect()
        response = compressed(request, exchange.answer(exchange.instead or self._handle(request)))
        self._note(response.status)
        if response.delay:
            self._wait(service.clock.monotonic() + response.delay, lambda: False)
        if response.stream is not None:
            self._watch(exchange, response, response.stream)
        elif response.session is not None:
            self._converse(exchange, request, response, response.session, reader)
        else:
            start, body = whole(response, service.clock.now(), close=self._stopping or not reader.keep_alive,
                                chunks=self._chunks)
            self._carry(exchange.whole(start, b"" if request.method == "HEAD" else body))

    def _handle(self, request: HttpRequest) -> HttpResponse:
        # OPTIONS * is about the server itself; Go's HTTP server answers it before the API server sees it
        if request.path == "*" and request.method == "OPTIONS":
            return HttpResponse(200)
        return self._serving.handle(request)

    def _note(self, status: int | None, ended: str = "") -> None:
        if self._entry is not None and self._serving.recording is not None:
            self._serving.recording.answered(self._entry, status, ended)

    def _carry(self, plan: Plan) -> None:
        """Execute a plan. Raises Drop if the plan ends the connection."""
        for step in plan:
            if isinstance(step, Send):
                self._send(step.data)
            elif isinstance(step, Wait):
                self._wait(self._serving.clock.monotonic() + step.seconds, lambda: False)
            elif isinstance(step, Stall):
                self._stall()
            else:
                how = "close" if isinstance(step, Close) else "reset"
                self._note(None, how)
                raise Drop(how)

    def _stall(self) -> None:
        """Send nothing until the client leaves or the server stops."""
        self._note(None, "stall")
        self._serving.reaper.watch(self._socket, self._client_gone)
        try:
            self._wait(None, lambda: False)
        finally:
            self._serving.reaper.forget(self._socket)
        raise Drop

    def _watch(self, exchange: Exchange, response: HttpResponse, stream: EventStream) -> None:
        service = self._serving
        frame, how = (chunk, ("Transfer-Encoding", "chunked")) if self._chunks else (bytes, ("Connection", "close"))
        service.reaper.watch(self._socket, self._client_gone)
        try:
            self._carry(exchange.head(head(response, service.clock.now(), [how])))
            stream.on_ready(self._notify)
            self._stream(stream, lambda data: self._carry(exchange.data(frame(data))))
            if not self._gone:
                self._carry(exchange.end(frame, frame(b"")))
        finally:
            service.reaper.forget(self._socket)
            stream.close()
        if self._gone or not self._chunks:
            raise Drop  # without chunks only the end of the connection marks the end of the stream

    def _converse(self, exchange: Exchange, request: HttpRequest, response: HttpResponse, session: Session,
                  reader: Reader) -> None:
        """Switch to a websocket. The connection ends with the websocket. A stopping server breaks the websocket."""
        self._carry(exchange.head(head(response, self._serving.clock.now(), handshake_headers(request))))
        websocket = ServerWebSocket(reader.take, lambda data: self._carry(exchange.data(data)))
        if self._end():  # not stopping; the connection now counts as idle, so that `stop` closes it at once
            with contextlib.suppress(OSError):
                session.run(websocket)
                websocket.close()
        raise Drop

    def _stream(self, stream: EventStream, send: Callable[[bytes], None]) -> None:
        """Send events as they occur until the watch, the client or the server ends the stream."""
        while not (self._gone or self._stopping):
            seen = self._events
            data = stream.poll()
            if data is not None:
                send(data)
            elif stream.closed:
                return
            else:
                self._wait(stream.deadline, lambda seen=seen: self._events != seen)  # type: ignore[misc]

    def _wait(self, deadline: float | None, ready: Callable[[], bool]) -> None:
        clock = self._serving.clock
        with self._condition:
            while not (ready() or self._gone or self._stopping):
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    return
                clock.wait(self._condition, left)

    def _notify(self) -> None:
        with self._condition:
            self._events += 1
            self._condition.notify_all()

    def _client_gone(self) -> None:
        self._gone = True
        self._notify()


BACKLOG = 1024
GRACE = 5.0  # when the server stops: seconds until requests in progress are cut off
RETRY_ACCEPT = 0.1  # seconds until the next attempt after a failed accept


class Listener:
    """Serves HTTP on one address from `start` to `stop`."""

    def __init__(self, handle: Callable[[HttpRequest], HttpResponse], *, clock: Clock, host: str = "127.0.0.1",
                 port: int = 0, faults: Faults | None = None, recording: Recording | None = None,
                 tls: Tls | None = None) -> None:
        """Bind the address; port 0 takes a free port. The default host is loopback on purpose.

        Raises OSError, which names the address, if the address is taken or does not belong to this host.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            where = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
            raise OSError(error.errno, f"cannot listen at {where}: {error.strerror or error}") from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._stopping = threading.Event()
        self._reaper = Reaper(f"apiserver-{self.port}-reaper")
        self._serving = ServingInfo(handle, clock, faults or Faults(), recording, self._reaper, tls)
        self._thread = Thread(target=self._accept, name=f"apiserver-{self.port}-accept", daemon=True)

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
                with contextlib.suppress(OSError):
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve(accepted)
            except (OSError, RuntimeError):  # currently no file descriptor or no thread is available
                if self._stopping.is_set():
                    return
                log.exception("a connection could not be accepted")
                self._stopping.wait(RETRY_ACCEPT)

    def _serve(self, accepted: socket.socket) -> None:
        connection = Connection(accepted, self._serving)
        thread = Thread(target=self._run, args=(connection,), name=f"apiserver-{self.port}-connection", daemon=True)
        with self._lock:
            if self._stopping.is_set():
                accepted.close()
                return
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError:
            accepted.close()
            with self._lock:
                del self._connections[connection]
            raise

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._connections.pop(connection, None)

    def stop(self) -> list[str]:
        """Stop listening, end all connections and join all threads. Returns the names of threads that are still alive.

        A connection that has not ended after `GRACE` seconds is broken.
        """
        with self._lock:
            self._stopping.set()
            open_now = dict(self._connections)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._socket.close()
        if self._thread.ident is not None:
            self._thread.join(GRACE)
        for connection in open_now:
            connection.stop()
        late = _alive_after(open_now, GRACE)
        for connection in late:
            connection.abort()
        stuck = _alive_after(late, GRACE)
        self._reaper.stop()
        return [thread.name for thread in stuck.values()]

    def drop_connections(self) -> None:
        """End all connections at once, like a broken network; new connections are accepted."""
        with self._lock:
            open_now = list(self._connections)
        for connection in open_now:
            connection.abort()


def _alive_after(threads: dict[Connection, threading.Thread], patience: float) -> dict[Connection, threading.Thread]:
    """Join threads for at most `patience` seconds in total. Returns the threads that are still alive."""
    deadline = time.monotonic() + patience
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {connection: thread for connection, thread in threads.items() if thread.is_alive()}
