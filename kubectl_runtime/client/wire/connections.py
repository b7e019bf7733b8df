"""Connections to the API server: faster variants of urllib3's connections, whose requests are bounded by `Limits`.

- `request` sends head and body in one write; http.client writes them separately, and checks and encodes each line. A
  head of an unusual form is left to http.client (`request_head`).
- `received` returns an answer without http.client, if the whole answer arrives at once and its head is plain. Nearly
  all answers to calls are of this kind. The answer classes of http.client, urllib3 and requests would cost more CPU
  time than the rest of the call.
- For other answers `received` and `getresponse` make http.client's response. They parse a plain head (HTTP/1.1,
  `Name: value` lines, all of it in the first data) in one step, and leave any other head to the standard library, whose
  size limits apply in both cases.
- `connect` connects to the address or the proxy (`dialing.py`), and adds a tunnel and TLS as needed, all within the
  time limit for connecting. A stop token ends the connecting.
"""
from __future__ import annotations

import errno
import http.client
import io
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterator, KeysView, Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Self

from urllib3 import HTTPHeaderDict, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
)
from urllib3.response import HTTPResponse

from kubectl_runtime.client.config.config import UNLIMITED
from kubectl_runtime.client.config.proxies import Proxy
from kubectl_runtime.client.config.secrets import Secret, SecretBytes
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.client.http.sockets import ApiSocket, ApiTlsSocket, TlsInTls, TlsSource, bottom, remaining
from kubectl_runtime.client.wire.dialing import dial, dial_by_socks
from kubectl_runtime.client.wire.transport_errors import ENDED, is_about_our_certificate
from kubectl_runtime.core.base.errors import text_of


class Limits(Timeout):
    """The deadlines of the parts of one request, on `time.monotonic`. For requests and urllib3, a `Limits` is a Timeout
    that never expires, because the sockets enforce the deadlines."""

    connect_timeout = read_timeout = None  # in the base class, these are properties that read the clock

    def start_connect(self) -> float:
        """Does nothing: the deadlines are already fixed."""
        return 0.0

    def clone(self) -> Self:
        """Returns itself: urllib3 copies a Timeout for each request, and a `Limits` serves one request."""
        return self

    def __init__(self, connect: float, left: float, interrupt: Interrupt | None = None, *, streaming: bool = False,
                 silence: float | None = None) -> None:
        """All limits are seconds: `connect` until the request begins to leave, `left` until the whole answer (for a
        stream, its head) has arrived, and `silence` for each silence of a stream after that (None: no limit).
        `interrupt` may end the request earlier."""
        now = time.monotonic()
        self.interrupt = interrupt or Interrupt()
        self.connect_by = now + min(connect, left)
        self.seconds = left if silence is None or not streaming else min(left, silence)
        self.deadline = now + self.seconds
        self.streaming, self.silence = streaming, silence
        self.sent = True
        """Whether a byte of the request may have left. True at first, False once the request has a connection."""

    @classmethod
    def of(cls, timeout: Any) -> Self:
        """The limits of a request that other code sends through the adapter."""
        given = (getattr(timeout, name, None) for name in ("connect_timeout", "read_timeout"))
        connect, read = (seconds if isinstance(seconds, int | float) else UNLIMITED for seconds in given)
        return cls(connect, read)

    def __repr__(self) -> str:
        return f"<Limits of {self.seconds:.3g} s, {self.connect_by - self.deadline + self.seconds:.3g} s to connect>"


_MOST_LINES = 100
_is_status = re.compile(r"HTTP/1\.1 ([1-9][0-9]{2})(| [^\r\n]*)").fullmatch
_is_length = re.compile(r"\s*([0-9]{1,18})\s*(?:,\s*\1\s*)*", re.ASCII).fullmatch
"""A Content-Length; if the header was repeated, its value may be a list of equal numbers."""
_TRANSFER_CODINGS = frozenset(("", "identity", "chunked", "chunked, chunked"))

_WITHOUT_CONTENT = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))

Head = tuple[int, str, HTTPHeaderDict]
"""Status, reason, headers."""


class QuickResponse(http.client.HTTPResponse):
    """http.client's response with a faster parser for the head; `headers` (and `msg`) are urllib3's mapping of
    headers."""

    def begin(self) -> None:
        """Read the head of the answer, skipping interim answers (1xx). Raises http.client.HTTPException as the base
        class does, and for headers that do not say where the body ends."""
        this: Any = self  # http.client's private attributes are not in its stubs
        if this.headers is not None:
            return
        self._read_head()
        while this.status < HTTPStatus.OK and this.status != HTTPStatus.SWITCHING_PROTOCOLS:
            this.headers = None  # 100 Continue, 103 Early Hints: the answer itself follows
            self._read_head()
        if this._method != "CONNECT":  # the answer to CONNECT has no body
            _check_framing(this.msg)

    def _read_head(self) -> None:
        this: Any = self
        head = answer_head(this.fp)
        if head is None:
            super().begin()
            lines = [(name, value.rstrip(" \t")) for name, value in this.msg.raw_items()]
            this.headers = this.msg = HTTPHeaderDict(lines)
            return
        status, this.reason, headers = head
        this.version = 11
        this.code = this.status = status
        this.headers = this.msg = headers
        this.chunked = (headers.get("transfer-encoding") or "").lower() == "chunked"
        if this.chunked:
            this.chunk_left = None
        this.will_close = "close" in (headers.get("connection") or "").lower()
        this.length = None if this.chunked else _length(headers.get("content-length"))
        if status in _WITHOUT_CONTENT or status < 200 or this._method == "HEAD":
            this.length = 0
        if not this.will_close and not this.chunked and this.length is None:
            this.will_close = True

    @property
    def length_remaining(self) -> int | None:
        """`length`, by the name that it has in urllib3's response."""
        return self.length


def answer_head(file: Any) -> Head | None:
    """Take the head from the beginning of a buffered `file`. Returns None, and takes nothing, if the buffer does not
    hold the whole head, or if the head is unusual (for example has folded lines). Blocks until there is data."""
    seen: bytes = file.peek(1)
    parsed = _parsed(seen)
    if parsed is None:
        return None
    status, reason, lines, end = parsed
    headers = HTTPHeaderDict()
    for name, value in lines:
        headers.add(name, value)
    file.read(end)
    return status, reason, headers


def _parsed(data: bytes) -> tuple[int, str, list[tuple[str, str]], int] | None:
    """Status, reason, header lines and length of the head at the beginning of `data`; None if the head is not whole, or
    not plain."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].decode("latin-1")
    first, *rest = head.split("\r\n")
    status = _is_status(first)
    if status is None or not head.count("\n") == head.count("\r") == len(rest) < _MOST_LINES:
        return None
    lines = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not (name and colon) or name[0].isspace():
            return None
        lines.append((name, value.strip(" \t")))
    return int(status[1]), status[2].strip(), lines, end + 4


class AnswerHeaders(Mapping[str, str]):
    """The headers of an answer in which no header is repeated. Look-ups ignore the case of names; iterating yields the
    names as sent."""

    __slots__ = ("_lines", "_values")

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines
        self._values = {name.lower(): value for name, value in lines}

    @property
    def names(self) -> KeysView[str]:
        """The names in lower case."""
        return self._values.keys()

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of the header `name`, or `default`. The base class's `get` is slower, because it raises and catches
        an exception."""
        return self._values.get(name.lower(), default)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._lines)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}>"  # without the values


WholeAnswer = tuple[int, AnswerHeaders, bytes]
"""Status, headers, body."""
_FIRST = 1 << 14
_ELSEWHERE = frozenset(("transfer-encoding", "content-encoding", "connection"))
"""An answer with one of these headers is left to http.client."""


def whole_answer(data: bytes) -> WholeAnswer | None:
    """The answer, if `data` is one whole answer in the common form: no header occurs twice, the body has exactly the
    length in Content-Length, and it is neither compressed nor chunked. None for any other data."""
    parsed = _parsed(data)
    if parsed is None:
        return None
    status, _, lines, end = parsed
    headers, body = AnswerHeaders(lines), data[end:]
    if (len(headers) < len(lines) or headers.get("content-length") != str(len(body))
            or not _ELSEWHERE.isdisjoint(headers.names)
            or status < 200 or status in _WITHOUT_CONTENT):
        return None
    return status, headers, body


class _Begun:
    """Takes the place of a socket whose first bytes, `data`, were already read. It has only the method that the
    response of http.client needs."""

    def __init__(self, data: bytes, connection: Any) -> None:
        self._data, self._connection = data, connection

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Rest(self._data, self._connection.makefile(mode, buffering=0)))


class _Rest(io.RawIOBase):
    """Yields `data` first, and then the bytes of `raw`. If `data` is empty, the connection has ended, and nothing is
    read from `raw`."""

    def __init__(self, data: bytes, raw: Any) -> None:
        self._data: bytes | None = data
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._data
        if data is None:
            return int(self._raw.readinto(buffer))
        taken = min(len(data), len(buffer))
        buffer[:taken] = data[:taken]
        self._data = data[taken:] or None
        return taken

    def close(self) -> None:
        self._raw.close()
        super().close()


def _length(text: str | None) -> int | None:
    """The value of Content-Length; None where `_check_framing` refuses it."""
    length = _is_length(text) if text is not None else None
    return None if length is None else int(length[1])


def _check_framing(headers: Mapping[str, str]) -> None:
    """Raise HTTPException for an invalid Transfer-Encoding or Content-Length: http.client would read until the end of
    the connection, which may have been cut."""
    coding = headers.get("transfer-encoding")
    if coding is not None and coding.strip().lower() not in _TRANSFER_CODINGS:
        raise HTTPException(f"the answer's Transfer-Encoding {coding[:100]!r} is not supported")
    length = headers.get("content-length")
    if length is not None and "chunked" not in (coding or "").lower() and not _is_length(length):
        raise HTTPException(f"the answer's Content-Length {length[:100]!r} is not a number of bytes")


_WITHOUT_BODY = frozenset(("GET", "DELETE"))
"""Methods whose requests have no Content-Length when they have no body."""
_CUT_OFF = (*ENDED, ConnectionError)
"""Exceptions that a TLS handshake raises when its connection ends."""
_FRAMING = frozenset(("host", "transfer-encoding"))
_is_usual = re.compile(r"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1\r\nHost: [^\r\n]+\r\n"
                       r"(?:[A-Za-z0-9-]+: [^\r\n\0]*+\r\n)++\r\n").fullmatch


def request_head(method: str, url: str, host: str, headers: Mapping[str, str]) -> SecretBytes | None:
    """The head of a request as http.client would send it; None if http.client has to complete or refuse the head."""
    if "User-Agent" not in headers or "Accept-Encoding" not in headers:
        return None
    lines = []
    for name, value in headers.items():
        if not isinstance(value, str) or name.lower() in _FRAMING:
            return None
        lines.append(f"{name}: {value}\r\n")
    head = f"{method} {url} HTTP/1.1\r\nHost: {host}\r\n{''.join(lines)}\r\n"
    # A line break within a name or value would make one more line, which looks as valid as the others.
    if not _is_usual(head) or head.count("\n") != len(lines) + 3:
        return None
    try:
        return SecretBytes(head.encode("latin-1"))
    except UnicodeEncodeError:
        return None


class ApiConnection(HTTPConnection):
    """A connection to an http server, through a proxy if there is one. `ApiTlsConnection` is for https servers.

    proxy          the server is http                               the server is https
    http, https    requests with absolute URLs (`forwards`)         a tunnel (CONNECT), and TLS in the tunnel
                   a websocket: a tunnel
    socks          the proxy connects                               the proxy connects; TLS with the server follows
    """

    _asked: tuple[str, str] | None = None
    """Method and URL of the unanswered request, if this class has sent it and not http.client; otherwise None."""
    _named: str = ""
    _forwards = False

    def __init__(self, host: str, *arguments: Any, via: Proxy | None = None, via_tls: TlsSource | None = None,
                 **options: Any) -> None:
        """`via_tls`: the CAs to trust for an https proxy."""
        super().__init__(host, *arguments, **options)
        self._full_name = host.strip("[]")
        """The host with its trailing dot, if any, which `host` leaves out."""
        self._via, self._via_tls = via, via_tls
        self.limits = Limits(UNLIMITED, UNLIMITED)
        """The limits of the current request."""

    @property
    def is_connected(self) -> bool:
        """Whether the idle connection can take a further request: nothing has arrived since the last answer, neither
        data nor the end of the connection."""
        connection: Any = self.sock
        # Decrypted data inside TlsInTls is not reported by polling the socket.
        held_back = isinstance(connection, TlsInTls) and connection.pending() > 0
        return super().is_connected and not held_back

    def connect(self) -> None:
        """Connect, within the limit for connecting. Raises what urllib3 raises."""
        by = self.limits.connect_by
        try:
            self.sock = self._secured(self._reached(), by)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from error
        sys.audit("http.client.connect", self, self.host, self.port)

    def _secured(self, connection: ApiSocket | ApiTlsSocket, by: float) -> Any:  # noqa: ARG002 - for TLS
        """The socket on which the request is sent."""
        return connection

    def _reached(self) -> ApiSocket | ApiTlsSocket:
        """A connection to the server, or to the proxy if the proxy receives absolute URLs."""
        via, by, interrupt = self._via, self.limits.connect_by, self.limits.interrupt
        try:
            if via is None:
                return dial(self._full_name, self.port, by, interrupt, self.socket_options)
            if via.is_socks:
                return dial_by_socks(via, self._full_name, self.port, by, interrupt, self.socket_options)
            connection: ApiSocket | ApiTlsSocket = dial(via.host, via.port, by, interrupt, self.socket_options)
        except socket.gaierror as error:
            if via is not None:
                raise ProxyError(f"the proxy {via.place}", error) from error
            raise NameResolutionError(self.host, self, error) from error
        except OSError as error:
            if via is not None:
                raise ProxyError(f"the proxy {via.place}", error) from error
            if isinstance(error, TimeoutError):
                raise
            raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error
        try:
            if self._via_tls is not None:
                connection = self._trusted_proxy(connection, via, self._via_tls, by)
            if not self._forwards:
                self._tunnel_through(connection, via, by)
        except OSError as error:
            connection.close()
            raise ProxyError(f"the proxy {via.place}", error) from error
        except HTTPException as error:
            connection.close()
            no_http = OSError(f"the proxy's answer to CONNECT is not HTTP: {text_of(error)}")
            raise ProxyError(f"the proxy {via.place}", no_http) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _trusted_proxy(self, connection: ApiSocket | ApiTlsSocket, via: Proxy, tls: TlsSource, by: float
                       ) -> ApiTlsSocket:
        try:
            made: ApiTlsSocket = _handshake(connection, tls.current(), via.host, by)
            return made
        except ssl.SSLError as error:
            tls.explain(error)
            raise

    def _tunnel_through(self, connection: ApiSocket | ApiTlsSocket, via: Proxy, by: float) -> None:
        """Make the proxy connect to the server."""
        host = self._full_name
        if ":" in host:
            host = f"[{host}]"
        elif not host.isascii():
            host = host.encode("idna").decode()
        lines = [f"CONNECT {host}:{self.port} HTTP/1.1", f"Host: {host}:{self.port}"]
        if via.authorization is not None:
            lines.append(Secret(f"Proxy-Authorization: {via.authorization}"))
        connection.deadline = by
        connection.sendall(SecretBytes("\r\n".join([*lines, "", ""]).encode()))
        answer = QuickResponse(connection, method="CONNECT")
        try:
            answer.begin()
        finally:
            answer.close()
        if not 200 <= answer.status < 300:
            raise OSError(f"Tunnel connection failed: {answer.status} {answer.reason}")

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, *,
                chunked: bool = False, **options: Any) -> None:
        """Send one request; a small head and body are sent in one piece. Raises as http.client does."""
        self._asked = None
        if self._via is not None:
            headers = self._towards_proxy(url, headers)
        if self.sock is None:
            self.connect()
        self._begin()
        whole = type(body) is bytes and "Content-Length" in headers if body is not None else method in _WITHOUT_BODY
        head = request_head(method, url, self._host_header(), headers) if whole and headers and not chunked else None
        if head is None:
            try:
                super().request(method, url, body=body, headers=headers, chunked=chunked, **options)
            except BaseException as error:  # noqa: BLE001 - without the frames below, where the head is plain bytes
                raise error.with_traceback(None) from None
            return
        self._asked = (method, url)
        self.sock.sendall(SecretBytes(head + body) if body else head)

    def _towards_proxy(self, url: str, headers: Any) -> Any:
        """Adapt the connection to this URL; returns the headers. A request with an absolute URL is for the proxy, and
        needs the proxy's credentials."""
        via, forwards = self._via, not url.startswith("/")
        if self.sock is not None and forwards != self._forwards:
            self.close()
        self._forwards = forwards
        if not forwards or via is None or via.authorization is None:
            return headers
        return {**headers, "Proxy-Authorization": via.authorization}

    def _begin(self) -> None:
        """Called when the first byte is about to leave. Raises, so that nothing is sent, if the request was ended."""
        connection: Any = self.sock
        connection.deadline = self.limits.deadline
        if time.monotonic() >= self.limits.deadline:
            raise ConnectTimeoutError(self, "the time was up before the request was sent")
        self.limits.interrupt.begin(bottom(connection))
        self.limits.sent = True

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        """The response to the sent request. Blocks until its head has arrived. Raises as http.client does."""
        asked, self._asked = self._asked, None
        connection: Any = self.sock
        if asked is None:
            answer = super().getresponse()
            _note_unframed(connection, answer)
        else:
            head: Any = self._head(connection, asked[0], connection)
            answer = HTTPResponse(
                body=head, headers=head.headers, status=head.status, version=head.version, version_string="HTTP/1.1",
                reason=head.reason, preload_content=False, decode_content=False, original_response=head,
                request_method=asked[0], request_url=asked[1], sock_shutdown=connection.shutdown)
        if self.limits.streaming and answer.status < 300:
            connection.deadline = None
            connection.settimeout(self.limits.silence)
        return answer

    def received(self) -> WholeAnswer | QuickResponse:
        """The answer to the request that was sent. An answer that comes at once and in the common form is returned
        whole; for any other answer, http.client's response is returned, whose head has been read. Blocks and raises
        like `getresponse`."""
        asked, self._asked = self._asked, None
        connection: Any = self.sock
        if asked is None:  # http.client has sent the request
            self.response_class = QuickResponse
            answer: Any = http.client.HTTPConnection.getresponse(self)
            _note_unframed(connection, answer)
            return answer  # type: ignore[no-any-return] # of response_class
        data = connection.recv(_FIRST)
        return whole_answer(data) or self._head(_Begun(data, connection), asked[0], connection)

    def _head(self, source: Any, method: str, connection: Any) -> QuickResponse:
        """The head of an answer, read from `source`."""
        answer: Any = QuickResponse(source, method=method)
        try:
            answer.begin()
        except BaseException as error:
            if isinstance(error, ConnectionError):
                self.close()
            answer.close()
            raise
        if answer.will_close:  # the socket stays open until the answer's body is read
            self.close()
        _note_unframed(connection, answer)
        return answer  # type: ignore[no-any-return] # http.client's private attributes are not in its stubs

    def _host_header(self) -> str:
        """The Host header as http.client makes it: the host, with the port unless it is the scheme's default."""
        if not self._named:
            host, port = self.host, self.port
            if ":" in host:
                host = f"[{host.strip('[]').partition('%')[0]}]"
            elif not host.isascii():
                host = host.encode("idna").decode()
            self._named = host if port == self.default_port else f"{host}:{port}"
        return self._named


def _note_unframed(connection: Any, answer: Any) -> None:
    """Note an answer without framing: its body ends with the connection, and only TLS's close_notify shows that
    the body is whole."""
    if answer.length_remaining is None and not answer.chunked:
        connection.suppress_ragged_eofs = False


class ApiTlsConnection(ApiConnection, HTTPSConnection):
    """One connection with TLS. It takes its context from a `TlsSource` each time it connects, so that replaced files
    take effect."""

    def __init__(self, *arguments: Any, ssl_context: TlsSource, **options: Any) -> None:
        self._tls = ssl_context
        super().__init__(*arguments, ssl_context=ssl_context.current(), **options)

    def _secured(self, connection: ApiSocket | ApiTlsSocket, by: float) -> Any:
        """The TLS socket to the server, with the current context."""
        context = self.ssl_context = self._tls.current()
        self.is_verified = context.verify_mode is ssl.CERT_REQUIRED
        name = self.server_hostname or self.host
        try:
            return _handshake(connection, context, name, by)
        except _CUT_OFF as error:  # not because of a certificate; perhaps a load balancer has no backend
            why = "" if isinstance(error, ssl.SSLError) else f": {error.strerror or type(error).__name__}"
            raise NewConnectionError(self, f"the TLS handshake was cut off{why}") from error
        except ssl.SSLError as error:
            self._tls.explain(error)
            raise

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, *,
                chunked: bool = False, **options: Any) -> None:
        """Send one request. Raises as http.client does. When the connection has ended, raises BrokenPipeError, as a
        connection without TLS does. urllib3 then reads the server's last answer, which may say why the server refuses
        the client certificate."""
        try:
            super().request(method, url, body, headers, chunked=chunked, **options)
        except ENDED as error:
            raise BrokenPipeError(errno.EPIPE, "the server has ended the connection") from error

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        """The response to the sent request. Blocks until its head has arrived. Raises as http.client does."""
        try:
            return super().getresponse()
        except ssl.SSLError as error:
            raise self._broken(error) from error

    def received(self) -> WholeAnswer | QuickResponse:
        """As in the base class."""
        try:
            return super().received()
        except ssl.SSLError as error:
            raise self._broken(error) from error

    def _broken(self, error: ssl.SSLError) -> OSError:
        """The exception to raise when TLS fails while an answer is awaited."""
        if not is_about_our_certificate(error):  # the server may have carried out the request
            return ConnectionAbortedError(errno.ECONNABORTED, f"TLS broke off: {error.reason or error}")
        self._tls.explain(error)  # the server judges the client certificate only now
        return error


def _handshake(connection: ApiSocket | ApiTlsSocket, context: ssl.SSLContext, name: str, by: float) -> Any:
    """`connection` with TLS for the server `name`, until `by` at most; closed when that fails. Raises ssl.SSLError,
    OSError."""
    host = name.strip("[]").partition("%")[0] if ":" in name else name.rstrip(".")
    context.set_alpn_protocols(["http/1.1"])
    if isinstance(connection, ApiTlsSocket):
        connection.deadline = by
        return TlsInTls(connection, context, host)
    connection.settimeout(remaining(by))
    context.sslsocket_class = ApiTlsSocket
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
