"""`Listener`: a small WSGI server on a listening socket, for untrusted clients. The health and webhook servers use it.

    phase       the connection waits for                  ends at the latest
    opening     its thread, and the TLS handshake         `HANDSHAKE` seconds after it was accepted
    idle        the next request                          after `IDLE` seconds
    reading     the rest of a request                     `limit` seconds after the first byte; `limit` more seconds
                                                          remain to answer that the body was too slow
    answering   the application                           2 * `limit` seconds after the first byte
    writing     the client to read the answer             2 * `limit` seconds after the first byte
    cut         the end of its thread

There are at most `connections` connections at once, each with a thread. If there is no room for another client, the
connection that has waited longest for its client is cut, even if that client still sends; only `answering` connections
are spared. If all connections are answering, the new client waits in the backlog. So clients that hold connections
cannot lock out others.

If a client refuses the server's certificate, the listener logs a warning, at most once a minute: such a client sends no
request that could be logged. The server resolves no names and writes nothing to stderr, and all its threads are
daemons. Times are real, not those of a simulated clock, because connections belong to the operating system.

`RequestHandler` is wsgiref's handler with persistent connections: HTTP/1.1, one thread per connection, one write per
answer. The API server keeps its connections to a webhook, and a handshake costs more than most answers. If the
application does not read the whole body, or the answer has no length, the connection is closed after the answer.
"""
from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import re
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Thread

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


BACKLOG = 32


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port to listen at. An empty `host` means all addresses, `port` 0 a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """The address in a text: `:8080`, `127.0.0.1:8080` or `[::1]:8080`. Raises RequestError for any other text."""
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise _unreadable(text)
        return cls(host, int(port))

    @classmethod
    def of(cls, address: str | tuple[str, int]) -> ListenAddress:
        """The address from a text, like `parse`, or from a host and a port. Raises RequestError for any other value."""
        if isinstance(address, str):
            return cls.parse(address)
        given: Any = address
        if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str)
                and type(given[1]) is int and 0 <= given[1] <= 65535):
            raise _unreadable(address)
        return cls(*address)

    def listen(self, use: str = "") -> socket.socket:
        """Returns a listening socket. Raises OSError if this address cannot be used. The error's text contains the
        address and `use`: the server's purpose, and where to set another address."""
        try:
            if self.host:
                found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
                family, _, _, _, address = found[0]
                return socket.create_server(address[:2], family=family, backlog=BACKLOG)
            if socket.has_dualstack_ipv6():
                try:
                    return socket.create_server(("", self.port), family=socket.AF_INET6, backlog=BACKLOG,
                                                dualstack_ipv6=True)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise
            return socket.create_server(("", self.port), backlog=BACKLOG)  # no IPv6
        except OSError as error:
            # Not the error's own text, which repeats the address. For an unknown host name, errno is not above 0.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise OSError(error.errno, f"cannot listen at {self}: {why}{use and f'; {use}'}") from error

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _unreadable(address: object) -> RequestError:
    return RequestError(f'{address!r} is not an address to listen at: ":8080" means all addresses of this host, '
                        '"127.0.0.1:8080" or "[::1]:8080" one address, and port 0 a free port')


log = guarded_logger(__name__)

LONGEST_LINE = 65536
_LENGTH = re.compile(r"[0-9]{1,18}")
LINGER = 1.0
"""Seconds in which a client that is still sending may read the answer that says why the server stopped reading."""


def linger(connection: socket.socket, read: Callable[[int], bytes]) -> None:
    """Send no more, and read for a moment from a client that may still be sending. Without this, the connection would
    be reset and the answer lost. Blocks for at most `LINGER` seconds, then raises OSError."""
    until = time.monotonic() + LINGER
    socket.socket.shutdown(connection, socket.SHUT_WR)
    while (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        if not read(1 << 16):
            return


class Served(Protocol):
    """The methods of a connection that a request handler calls. Safe to use from any thread."""

    @property
    def limit(self) -> float:
        """The seconds within which a request must arrive."""

    @property
    def is_draining(self) -> bool:
        """Whether the server stops, so that each connection ends after its current answer."""

    def begin_idle(self) -> bool:
        """Begin to wait for the next request. Returns whether the connection may serve another request."""

    def begin_reading(self) -> float:
        """Begin to read a request. Returns the time by which the request must be complete."""

    def head_is_read(self, until: float) -> None:
        """The request's head was read. The body may arrive until the time `until`."""

    def begin_answering(self) -> None:
        """The whole request was read, and the application begins to work."""

    def begin_writing(self) -> None:
        """The server begins to send the answer."""

    def get_app(self) -> Any:
        """The application that answers."""


class _Body(io.RawIOBase):
    """The body of a request. Reads end after the body's length, or raise TimeoutError when the body's time is over."""

    def __init__(self, connection: socket.socket, source: io.BufferedReader, length: int, until: float,
                 when_read: Callable[[], None]) -> None:
        self.left = length
        self._when_read = when_read
        if not length:
            when_read()
        self._connection, self._source, self._until = connection, source, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left:
            return 0
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the body arrived too slowly")
        self._connection.settimeout(left)
        chunk = self._source.read1(min(len(buffer), self.left))
        buffer[:len(chunk)] = chunk
        self.left -= len(chunk)
        if not self.left:
            self._when_read()
        return len(chunk)


class _Exchange(ServerHandler):
    http_version = "1.1"
    server_software = "kubectl-runtime"
    headers: Any
    """The headers of the application's answer; None before the application has passed them."""

    def __init__(self, handler: RequestHandler, served: Served, body: _Body, *, is_last: bool) -> None:
        super().__init__(cast("BinaryIO", io.BufferedReader(body, 1 << 16)), cast("BinaryIO", handler.wfile),
                         sys.stderr, handler.get_environ(), multithread=True)
        self.request_handler = handler  # wsgiref expects this name
        self.is_last = is_last
        """Whether the connection ends after this answer; final once the answer begins."""
        self._served, self._body = served, body

    def send_preamble(self) -> None:
        self._served.begin_writing()
        # End the connection if a part of the request's body is unread, since it would be taken for the next request,
        # and if the answer has no Content-Length, since the client then reads until the connection ends.
        self.is_last = (self.is_last or self._served.is_draining or self._body.left > 0
                        or "Content-Length" not in self.headers)
        super().send_preamble()
        if self.is_last:
            self._write(b"Connection: close\r\n")

    def log_exception(self, exc_info: Any) -> None:
        error = exc_info[1]
        if isinstance(error, OSError):
            log.debug("a client has disconnected: %s", error)
        else:
            request: Any = self.request_handler
            log.error("the application failed on %s %s", request.command, request.path, exc_info=error)


class RequestHandler(WSGIRequestHandler):
    """Reads the requests of one connection, one after the other; the application answers them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # with Nagle's algorithm, the end of an answer waits for the ACK of its beginning
    wbufsize = 1 << 16
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s: %(explain)s\n"

    def handle(self) -> None:
        """Serve the connection until it ends. Blocks."""
        while self._handle_next():
            pass

    def _handle_next(self) -> bool:
        """Handle a request; returns whether another one may follow."""
        served = cast("Served", self.server)
        if not served.begin_idle():
            return False
        self.connection.settimeout(None)  # no limit here: the listener cuts connections that are idle for too long
        source = cast("io.BufferedReader", self.rfile)
        if not source.peek(1):
            return False
        until = served.begin_reading()
        self.connection.settimeout(served.limit)
        self.raw_requestline = source.readline(LONGEST_LINE + 1)
        if not self.raw_requestline:
            return False
        if len(self.raw_requestline) > LONGEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return self._end()
        if not self.parse_request():  # `parse_request` has sent an error
            return self._end()
        served.head_is_read(until)
        return self._exchange(served, until)

    def _exchange(self, served: Served, until: float) -> bool:
        body = _Body(self.connection, cast("io.BufferedReader", self.rfile), self._length(), until,
                     served.begin_answering)
        exchange = _Exchange(self, served, body, is_last=self.close_connection or self.command == "HEAD")
        exchange.run(served.get_app())
        self.connection.settimeout(served.limit)
        self.wfile.flush()
        return self._end() if exchange.is_last else True

    def _length(self) -> int:
        """The length of the body; 0 if the length is missing or in a form that this server does not support."""
        said = self.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in self.headers or len(said) > 1 or not _LENGTH.fullmatch(said[0]):
            self.close_connection = True
            del self.headers["Content-Length"]
            return 0
        return int(said[0])

    def handle_expect_100(self) -> bool:
        """Send `100 Continue` to a client that waits for this answer before it sends the body. Returns True."""
        found = super().handle_expect_100()
        self.wfile.flush()
        return found

    def _end(self) -> bool:
        with contextlib.suppress(OSError):
            self.wfile.flush()
            linger(self.connection, cast("io.BufferedReader", self.rfile).read1)
        return False

    def log_message(self, format: str, *args: Any) -> None:
        """Log at DEBUG the line that http.server would print."""
        log.debug("%s: " + format, self.client_address[0], *args)


HANDSHAKE = 10.0
"""Seconds that a TLS handshake may take, as in Go."""
IDLE = 120.0
"""Seconds between two requests; Go's transport closes a connection after 90 idle seconds."""
BACKLOG = 1024
POLL = 1.0
"""Seconds between two searches for connections whose time is over."""
MOMENT = 0.05
"""Seconds that threads get to end."""
SPARED = 0.02
"""Seconds that a connection must have been in its phase before it may be cut to make room."""
LOGGED_AGAIN = 60.0
"""Seconds before a refused certificate is logged again."""
_HANDSHAKE_RECORD = 0x16  # the first byte that a TLS client sends
_PLAIN = (b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)


class Phase(Enum):
    """What a connection waits for; see the module's table."""

    OPENING = "opening"
    IDLE = "idle"
    READING = "reading"
    ANSWERING = "answering"
    WRITING = "writing"
    CUT = "cut"


class Connection:
    """One connection of a listener, for its request handler. Safe to use from any thread."""

    def __init__(self, listener: Listener, sock: socket.socket, address: Any) -> None:
        self.socket, self.address = sock, address
        self.phase, self.since = Phase.OPENING, time.monotonic()
        self.until = self.since + HANDSHAKE
        self.base_environ = listener.base_environ
        self.limit = listener.limit
        self._listener = listener

    @property
    def is_draining(self) -> bool:
        """Whether the server stops, so that each connection ends after its current answer."""
        return self._listener.is_draining

    def get_app(self) -> WSGIApplication:
        """The application that answers."""
        return self._listener.application

    def begin_idle(self) -> bool:
        """Begin to wait for the next request. Returns whether the connection may serve another request."""
        return not self.is_draining and self._enter(Phase.IDLE, time.monotonic() + IDLE)

    def begin_reading(self) -> float:
        """Begin to read a request. Returns the time by which the request must be complete."""
        until = time.monotonic() + self.limit
        self._enter(Phase.READING, until)
        return until

    def head_is_read(self, until: float) -> None:
        """The request's head was read. The body may arrive until the time `until`; the answer may take `limit` seconds
        more."""
        with self._listener.change:
            if self.phase is not Phase.CUT:
                self.until = until + self.limit

    def begin_answering(self) -> None:
        """The whole request was read, and the application begins to work."""
        self._enter(Phase.ANSWERING)

    def begin_writing(self) -> None:
        """The server begins to send the answer, which the client must read."""
        self._enter(Phase.WRITING)

    def _enter(self, phase: Phase, until: float | None = None) -> bool:
        with self._listener.change:
            if self.phase is Phase.CUT:
                return False
            if phase is not self.phase:
                self.phase, self.since = phase, time.monotonic()
            if until is not None:
                self.until = until
            return True

    def cut(self) -> None:
        """Shut the connection down while its thread uses it. The caller must hold the listener's lock."""
        self.phase = Phase.CUT
        with contextlib.suppress(OSError):  # not `SSLSocket.shutdown`, which would disturb the reading thread
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Listener:
    """Serves a WSGI application on `sock`, over TLS if there is a `context`. Safe to use from any thread."""

    def __init__(self, sock: socket.socket, application: WSGIApplication, name: str, limit: float, *, connections: int,
                 context: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`limit`: seconds for a request to arrive, and again for its answer. `connections`: the maximum number at
        once; it is reduced to a third of the files that the process may open. `context` is called for each
        connection."""
        sock.listen(BACKLOG)
        self.application, self.limit, self.change = application, limit, threading.Condition()
        host, self.port = sock.getsockname()[:2]
        self.base_environ = {"SERVER_NAME": host, "SERVER_PORT": str(self.port), "GATEWAY_INTERFACE": "CGI/1.1",
                             "REMOTE_HOST": "", "CONTENT_LENGTH": "", "SCRIPT_NAME": ""}
        self._ends = threading.Event()
        self._socket, self._name, self._context = sock, name, context
        self._most = min(connections, _third_of_the_files())
        self._open: dict[Connection, threading.Thread] = {}
        self._thread = Thread(target=self._accept_all, name=name, daemon=True)
        self._logged = -math.inf
        self._process = os.getpid()

    @property
    def is_draining(self) -> bool:
        """Whether the stop has begun, so that each connection ends after its current answer."""
        return self._ends.is_set()

    def start(self) -> None:
        """Accept connections in a new thread. Raises RuntimeError if no thread can be started."""
        try:
            self._thread.start()
        except BaseException:
            self._socket.close()
            raise

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` serves a connection. Such a thread cannot wait for the stop, because the stop waits for the
        thread's answer."""
        with self.change:
            return thread in self._open.values()

    def stop(self, timeout: float) -> None:
        """Accept no more connections, and end each connection after its answer in progress. Blocks until all
        connections have ended; connections that remain after `timeout` seconds are cut. If a thread is still in the
        application then, it continues to run. If the application itself calls `stop`, the call waits only for the other
        connections, and the calling connection still sends its answer. In a forked child process, only the child's copy
        of the parent's socket is closed."""
        if os.getpid() != self._process:
            self._socket.close()
            return
        end = time.monotonic() + timeout
        self._ends.set()
        with contextlib.suppress(OSError):  # wakes the thread; if this fails, the thread wakes within POLL
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(timeout)
        caller = threading.current_thread()
        with self.change:
            threads = set(self._open.values()) - {caller}
            self._cut_those(lambda one: one.phase in (Phase.OPENING, Phase.IDLE))
            self.change.wait_for(lambda: not {*self._open.values()} - {caller}, max(0.0, end - time.monotonic()))
            self._cut_those(lambda one: self._open[one] is not caller)
        end = max(end, time.monotonic() + MOMENT)
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._socket.close()

    # The thread that accepts

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not self._ends.is_set():
                try:
                    is_there = selector.select(POLL)
                    self._cut_late()
                    if is_there and self._make_room():
                        self._accept()
                except Exception as error:
                    if self._ends.is_set():  # the socket is closed
                        return
                    log.error("%s: %s", self._name, error, exc_info=error)
                    self._rest()

    def _accept(self) -> None:
        try:
            sock, address = self._socket.accept()
        except OSError as error:
            if error.errno in _NO_MORE_FILES:
                self._cut_longest_waiting()
                self._rest()
            return  # for example, the client has gone again
        connection = Connection(self, sock, address)
        thread = Thread(target=self._serve, args=(connection,), name=f"{self._name} connection", daemon=True)
        with self.change:
            self._open[connection] = thread
        try:
            thread.start()
        except BaseException:  # no more threads
            self._close(connection)
            raise

    def _make_room(self) -> bool:
        """Make room for a connection, if necessary by cutting one. Returns whether there is room. If no connection can
        be cut, wait a moment. A cut connection makes room before its thread has ended, but only up to a limit, since
        threads may be stuck in the application."""
        with self.change:
            if len(self._open) < self._most:
                return True
            taken = sum(one.phase is not Phase.CUT for one in self._open)
            if len(self._open) < 2 * self._most and (taken < self._most or self._cut_longest_waiting()):
                return True
            self.change.wait(SPARED)
            return False

    def _cut_longest_waiting(self) -> bool:
        with self.change:
            latest = time.monotonic() - SPARED
            waiting = [one for one in self._open
                       if one.phase not in (Phase.ANSWERING, Phase.CUT) and one.since <= latest]
            if waiting:
                longest = min(waiting, key=lambda one: one.since)
                log.debug("%s: a connection that was %s made room for another one", self._name, longest.phase.value)
                longest.cut()
            return bool(waiting)

    def _cut_late(self) -> None:
        with self.change:
            now = time.monotonic()
            self._cut_those(lambda one: one.until <= now)

    def _cut_those(self, is_over: Callable[[Connection], bool]) -> None:
        for connection in [one for one in self._open if one.phase is not Phase.CUT and is_over(one)]:
            log.debug("%s: a connection that was %s was cut", self._name, connection.phase.value)
            connection.cut()

    def _rest(self) -> None:
        with self.change:
            self.change.wait(MOMENT)

    # The thread of a connection

    def _serve(self, connection: Connection) -> None:
        try:
            if self._context is None or self._secure(connection, self._context):
                RequestHandler(connection.socket, connection.address, connection)  # type: ignore[arg-type]
        except Exception:  # a client that leaves or is too slow is not the server's failure
            log.debug("%s: a connection of %s failed", self._name, connection.address[0], exc_info=True)
        finally:
            self._close(connection)

    def _secure(self, connection: Connection, context: Callable[[], ssl.SSLContext]) -> bool:
        """Perform the TLS handshake; returns whether it succeeded."""
        raw = connection.socket
        raw.settimeout(HANDSHAKE)
        first = raw.recv(1, socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE_RECORD:
            raw.sendall(_PLAIN)
            linger(raw, raw.recv)
            return False
        certified = context()
        with self.change:  # the TLS socket replaces the plain one
            if connection.phase is Phase.CUT:
                return False
            secured = connection.socket = certified.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
        except BaseException as error:
            self._log_refused(error, connection.address)
            raise
        return True

    def _log_refused(self, error: BaseException, address: Any) -> None:
        if not isinstance(error, ssl.SSLError) or "ALERT" not in (error.reason or "").upper():
            return  # a scanner, a slow or broken client: not a refused certificate
        now = time.monotonic()
        with self.change:
            if now - self._logged < LOGGED_AGAIN:
                return
            self._logged = now
        log.warning("%s: the client at %s refuses this server's certificate (%s): the client's caBundle must "
                    "contain the CA that issued the certificate, and the certificate must contain the host name that "
                    "the client uses",
                    self._name, address[0], error.reason)

    def _close(self, connection: Connection) -> None:
        ended = connection.socket
        with contextlib.suppress(OSError, ValueError):
            if isinstance(ended, ssl.SSLSocket):
                # Announce the end by TLS, so that the client does not suspect truncation; do not wait for its answer.
                ended.settimeout(0)
                ended.unwrap()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(ended, socket.SHUT_WR)
        with contextlib.suppress(OSError):
            ended.close()
        with self.change:
            self._open.pop(connection, None)
            self.change.notify_all()


def _third_of_the_files() -> int:
    try:
        import resource
    except ImportError:  # Windows lacks this module
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(1, soft // 3)
