"""The server's calls to webhooks: over HTTPS (`HttpsCalls`), or to WSGI applications in process.

`WebhookRouter` finds the target of a webhook configuration:

- For a URL below a mounted prefix it calls the WSGI application in process.
- For a Service in `webhook_services` it calls the given address over HTTPS, with the Service's DNS name as the host.
- For other Services the call fails, as on a server that finds no such Service or no endpoints.
- Any other URL is called over HTTPS.

An HTTPS call has its own connection, and one deadline for everything up to the last byte except the name look-up, which
has the resolver's timeout. `close` ends running calls. Errors have the same texts as in Go.

An in-process application runs in the request's thread and is never interrupted. If it takes longer than the webhook's
timeout on the server's clock, its answer is too late. An exception in the application is logged and ends the call, as
if a server had closed the connection.
"""
from __future__ import annotations

import contextlib
import functools
import http.client
import io
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from kubectl_runtime.apiserver.webhooks.hooks import DEADLINE, HTTPS, CallFailed, Target, WebhookAnswer
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.base.version import VERSION

MAX_ANSWER = 64 << 20  # bytes
_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's verify codes
_BAD_HOST = (62, 64)
CANCELED = "context canceled"


class HttpsCalls:
    """Calls webhooks over HTTPS. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._ended = 0  # number of `close` calls so far
        self._is_closed = False

    def post(self, target: Target, url: str, address: str, body: bytes, timeout: float) -> WebhookAnswer:
        """POST to `url`, connecting to `address` (``https://host:port``), which may differ from the URL's host.

        Blocks for at most `timeout` seconds, or until `close`. Raises CallFailed.
        """
        try:
            call = _Call(self, urlsplit(url), urlsplit(address), time.monotonic() + timeout)
        except ValueError as error:  # an invalid port
            raise CallFailed(f"dial tcp: {error}") from None
        try:
            return call.run(_context(target.ca), body)
        except TimeoutError:
            raise CallFailed(DEADLINE) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CallFailed(call.told(error)) from None
        finally:
            call.close()

    def close(self) -> None:
        """End the running calls, and refuse new calls until `reopen`."""
        with self._lock:
            self._is_closed = True
            self._ended += 1
            for connection in self._open:
                _shut(connection)

    def reopen(self) -> None:
        """Accept calls again."""
        with self._lock:
            self._is_closed = False

    def began(self) -> int:
        """Begin a call. Returns a number to pass to `is_ended`."""
        with self._lock:
            return self._ended

    def opened(self, connection: socket.socket) -> None:
        """Register the socket of a call. Raises OSError between `close` and `reopen`."""
        with self._lock:
            if self._is_closed:
                raise OSError(CANCELED)
            self._open.add(connection)

    def replaced(self, before: socket.socket, after: socket.socket) -> None:
        """Replace the socket of a call."""
        with self._lock:
            self._open.discard(before)
            self._open.add(after)

    def finished(self, connection: socket.socket) -> None:
        """Unregister the socket of a call."""
        with self._lock:
            self._open.discard(connection)

    def is_ended(self, began: int) -> bool:
        """Whether `close` was called since the call began."""
        with self._lock:
            return self._ended != began


class _Call:
    """One HTTPS exchange."""

    def __init__(self, calls: HttpsCalls, url: SplitResult, address: SplitResult, deadline: float) -> None:
        self._calls, self._url, self._deadline = calls, url, deadline
        self._host, self._port = address.hostname or "", address.port or 443
        self._socket: socket.socket | None = None
        self._began = calls.began()

    def run(self, context: ssl.SSLContext, body: bytes) -> WebhookAnswer:
        """Connect, send the request and read the answer. Raises the errors of the socket and of http.client."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        plain = self._connect(found)
        plain.settimeout(self._left())
        name = (self._url.hostname or "").removesuffix(".")
        self._socket = secured = context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)
        self._calls.replaced(plain, secured)
        self._check()
        secured.settimeout(self._left())
        secured.do_handshake()
        secured.settimeout(self._left())
        secured.sendall(self._head(len(body)) + body)
        response = http.client.HTTPResponse(_Readable(self, secured), method="POST")  # type: ignore[arg-type]
        response.begin()
        content = response.read(MAX_ANSWER + 1)
        if response.length and len(content) <= MAX_ANSWER:
            raise OSError("unexpected EOF")
        if len(content) > MAX_ANSWER:
            raise OSError(f"http: response body too large: more than {MAX_ANSWER} bytes")
        return WebhookAnswer(response.status, response.getheader("Content-Type") or "", content)

    def _connect(self, found: list[Any]) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            self._socket = connection
            self._calls.opened(connection)
            try:
                connection.settimeout(self._left())
                connection.connect(address)
            except OSError as error:
                self.close()
                if isinstance(error, TimeoutError):
                    raise
                failure = error
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        raise failure or OSError("no such host")

    def _head(self, length: int) -> bytes:
        path = self._url.path + (f"?{self._url.query}" if self._url.query else "")
        lines = (f"POST {path} HTTP/1.1", f"Host: {self._url.netloc}",
                 f"User-Agent: kube-apiserver-admission/{VERSION}", "Accept: application/json, */*",
                 "Content-Type: application/json", f"Content-Length: {length}", "Connection: close", "", "")
        return "\r\n".join(lines).encode()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _check(self) -> None:
        if self._calls.is_ended(self._began):
            raise OSError(CANCELED)

    def read_into(self, connection: socket.socket, buffer: Any) -> int:
        """Read bytes as they arrive; waits until the deadline."""
        connection.settimeout(self._left())
        try:
            return connection.recv_into(buffer)
        except ssl.SSLEOFError:
            return 0  # the webhook's server closed the connection without TLS's close_notify

    def close(self) -> None:
        """Unregister and close the connection."""
        if self._socket is not None:
            self._calls.finished(self._socket)
            self._socket.close()
            self._socket = None

    def told(self, error: Exception) -> str:
        """The text that Go's HTTP client reports for an error such as `error`."""
        if self._calls.is_ended(self._began):
            return CANCELED
        at = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"tls: failed to verify certificate: x509: {_certificate_problem(error, self._url.hostname or '')}"
        if isinstance(error, socket.gaierror):
            return f"dial tcp: lookup {self._host}: no such host"
        if isinstance(error, ConnectionRefusedError):
            return f"dial tcp {at}: connect: connection refused"
        if isinstance(error, ConnectionResetError | BrokenPipeError) and not isinstance(
                error, http.client.RemoteDisconnected):
            return f"read tcp {at}: read: connection reset by peer"
        if isinstance(error, ssl.SSLError):
            if "WRONG_VERSION_NUMBER" in str(error) or "HTTP_REQUEST" in str(error):
                return "http: server gave HTTP response to HTTPS client"
            return "EOF" if isinstance(error, ssl.SSLEOFError) else f"remote error: tls: {error.reason or error}"
        if isinstance(error, http.client.RemoteDisconnected):
            return "EOF"
        if isinstance(error, http.client.IncompleteRead):
            return "unexpected EOF"
        if isinstance(error, http.client.HTTPException):
            return f"net/http: HTTP/1.x transport connection broken: malformed HTTP response ({error})"
        return str(error)


class _Readable:
    """The part of the socket interface that http.client needs to read an answer."""

    def __init__(self, call: _Call, connection: socket.socket) -> None:
        self._raw = _Raw(call, connection)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The answer as a buffered stream."""
        return io.BufferedReader(self._raw, 1 << 16)


class _Raw(io.RawIOBase):
    def __init__(self, call: _Call, connection: socket.socket) -> None:
        super().__init__()
        self._call, self._connection = call, connection

    def readable(self) -> bool:
        """True, for `io`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes as they arrive; waits until the call's deadline."""
        return self._call.read_into(self._connection, buffer)


@functools.lru_cache(maxsize=64)
def _context(ca: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not ca:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise CallFailed("unable to load root certificates: unable to parse bytes as PEM block") from None
    return context


def _certificate_problem(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code in (_EXPIRED, _NOT_YET):
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"certificate has expired or is not yet valid: current time {when} is out of its validity"
    if error.verify_code in _BAD_HOST:
        return f"certificate is not valid for {name}"
    return "certificate signed by unknown authority"


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the socket may not be connected
        # ssl's own shutdown would take the connection away from the thread that reads it
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


log = guarded_logger(__name__)

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Mounted:
    """A WSGI application and the prefix of the URLs that it answers."""

    def __init__(self, prefix: str, application: Application) -> None:
        """`prefix` must be ``https://host[:port][/path]``, with ``name.namespace.svc`` as the host of a Service.

        Raises ValueError for any other prefix.
        """
        parts = urlsplit(prefix)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the prefix of a webhook must be https://host[:port][/path], not {prefix!r}")
        self._place = _place(parts)
        self._path = parts.path.rstrip("/")
        self._application = application

    def matches(self, url: str) -> bool:
        """Whether a URL equals the prefix or is below it."""
        parts = urlsplit(url)
        path = parts.path
        return _place(parts) == self._place and (path.rstrip("/") == self._path or path.startswith(self._path + "/"))

    @property
    def weight(self) -> int:
        """The length of the path; the longest match wins."""
        return len(self._path)

    def post(self, url: str, body: bytes, timeout: float, clock: Clock) -> WebhookAnswer:
        """Call the application. Raises CallFailed."""
        began = clock.monotonic()
        try:
            answer = self._run(urlsplit(url), body)
        except (Exception, SystemExit):
            log.exception("the application mounted for webhook %s failed", url)
            raise CallFailed("EOF") from None
        if clock.monotonic() - began > timeout:
            raise CallFailed(DEADLINE)
        return answer

    def _run(self, parts: SplitResult, body: bytes) -> WebhookAnswer:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> Callable[..., Any]:
            begun[:] = [(status, headers)]
            return written.append

        below = unquote(parts.path[len(self._path):], "latin-1")
        content = self._application({
            "REQUEST_METHOD": "POST", "SCRIPT_NAME": self._path, "PATH_INFO": below, "QUERY_STRING": parts.query,
            "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)),
            "HTTP_ACCEPT": "application/json, */*", "HTTP_HOST": parts.netloc,
            "SERVER_NAME": parts.hostname or "", "SERVER_PORT": str(parts.port or HTTPS), "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr,
            "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False}, start_response)
        try:
            written.extend(content)
        finally:
            close = getattr(content, "close", None)
            if close is not None:
                close()
        if not begun:
            raise RuntimeError("the application did not call start_response")
        status, headers = begun[0]
        types = [value for key, value in headers if key.lower() == "content-type"]
        return WebhookAnswer(int(status.partition(" ")[0]), types[0] if types else "", b"".join(written))


def _place(parts: SplitResult) -> tuple[str, int]:
    return (parts.hostname or "").lower(), parts.port or HTTPS


class WebhookRouter:
    """Implements `hooks.WebhookCaller`. Safe to use from any thread."""

    def __init__(self, clock: Clock, services: Mapping[str, str], knows_service: Callable[[str], bool]) -> None:
        """`services` maps ``namespace/name`` to ``https://host:port``. Raises ValueError for addresses of another form.

        `knows_service` returns whether the cluster has the Service ``namespace/name``.
        """
        for name, address in services.items():
            parts = urlsplit(address)
            if name.count("/") != 1 or parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
                raise ValueError('webhook_services must map "namespace/name" to "https://host:port", '
                                 f"not {name!r} to {address!r}")
        self._clock = clock
        self._services, self._knows_service = dict(services), knows_service
        self._mounted: list[Mounted] = []
        self._calls = HttpsCalls()

    def mount(self, prefix: str, application: Application) -> None:
        """Let an application answer the URL `prefix` and all URLs below it. Raises ValueError for an invalid prefix."""
        self._mounted = [*self._mounted, Mounted(prefix, application)]

    def is_remote(self, url: str) -> bool:
        """Whether no mounted application answers the URL."""
        return self._application(url) is None

    def _application(self, url: str) -> Mounted | None:
        inside = [mounted for mounted in self._mounted if mounted.matches(url)]
        # If prefixes are equally long, the last mounted application wins.
        return max(reversed(inside), key=lambda mounted: mounted.weight) if inside else None

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """See `hooks.WebhookCaller`."""
        mounted = self._application(url)
        if mounted is not None:
            return mounted.post(url, body, timeout, self._clock)
        if not target.service:
            return self._calls.post(target, url, url, body, timeout)
        address = self._services.get(target.service)
        if address is None:
            name = target.service.partition("/")[2]
            why = (f'no endpoints available for service "{name}"' if self._knows_service(target.service)
                   else f'service "{name}" not found')
            raise CallFailed(f"{why} (no Pod runs behind a Service of the embedded API server: give the address with "
                             f'ApiServer(webhook_services={{"{target.service}": "https://HOST:PORT"}}) or '
                             f"--webhook-service {target.service}=https://HOST:PORT, or mount an application)")
        return self._calls.post(target, url, address, body, timeout)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """End the running HTTPS calls, and refuse new calls inside the block, because the server stops."""
        self._calls.close()
        try:
            yield
        finally:
            self._calls.reopen()
