"""Connections to the API server: `dial`, which a stop token can end, and urllib3's connections, for less.

    request      the head in one piece and, with the body, in one write; http.client writes them apart, and checks and
                 encodes each line. What is not of the usual form is left to it (`request_head`).
    getresponse  reads the head in one step (heads.py), without a second look at the headers
    connect      can be interrupted, and takes the TLS context of that moment
"""
from __future__ import annotations

import errno
import re
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError
from urllib3.response import HTTPResponse

from kubectl_runtime.client.config.secrets import SecretBytes
from kubectl_runtime.client.http.interrupt import connects, waits_on
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.client.wire.heads import QuickResponse
from kubectl_runtime.client.wire.transport_errors import ENDED, is_about_our_certificate
from kubectl_runtime.core.base.errors import text_of

Options = Sequence[tuple[int, int, int | bytes]]

_WITHOUT_BODY = frozenset(("GET", "DELETE"))
"""Methods whose requests say no length when they have no body."""
_CUT_OFF = (*ENDED, ConnectionError)
"""What a handshake raises whose connection ends."""
_FRAMING = frozenset(("host", "transfer-encoding"))
_is_usual = re.compile(r"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1\r\nHost: [^\r\n]+\r\n"
                       r"(?:[A-Za-z0-9-]+: [^\r\n\0]*\r\n)+\r\n").fullmatch


def dial(host: str, port: int, timeout: float | None, source: tuple[str, int] | None,
         options: Options | None) -> socket.socket:
    """A connected socket. Blocks for `timeout` seconds at most for each address (None: as long as the system tries).

    urllib3's own function does not show the socket before it is connected; otherwise this one does the same: each
    address that the name has, in order, with the options set first. Raises what the last address raised: TimeoutError,
    OSError; socket.gaierror for a name that has no address. The look-up of the name cannot be interrupted.
    """
    host = host.strip("[]")
    try:
        host.encode("idna")
    except UnicodeError:
        raise LocationParseError(f"'{host}', label empty or too long") from None
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        connection: Any = None
        try:
            connection = socket.socket(family, kind, protocol)
            for option in options or ():
                connection.setsockopt(*option)
            connection.settimeout(timeout)
            if source:
                connection.bind(source)
            if not connects(connection):
                raise ConnectionAbortedError("given up before it was made")
            connection.connect(address)
            return connection  # type: ignore[no-any-return]
        except OSError as error:
            failure = error
            if connection is not None:
                connection.close()
    raise failure


def request_head(method: str, url: str, host: str, headers: Mapping[str, str]) -> SecretBytes | None:
    """The head of a request as http.client would send it; None for what it has to look at itself: what it would add
    something to, or refuse."""
    if "User-Agent" not in headers or "Accept-Encoding" not in headers:
        return None
    for name, value in headers.items():
        if not isinstance(value, str) or name.lower() in _FRAMING:
            return None
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    head = f"{method} {url} HTTP/1.1\r\nHost: {host}\r\n{''.join(lines)}\r\n"
    # A line break within a name or value would make a line of its own, which looks as good as the others.
    if not _is_usual(head) or head.count("\n") != len(lines) + 3:
        return None
    try:
        return SecretBytes(head.encode("latin-1"))
    except UnicodeEncodeError:
        return None


class ApiConnection(HTTPConnection):
    """One connection without TLS."""

    _asked: tuple[str, str] | None = None
    """Method and URL of a request that was sent here, and not by urllib3, until it is answered."""
    _named: str = ""

    def _new_conn(self) -> socket.socket:
        """What urllib3's connections do to connect, in a way that can be interrupted."""
        try:
            made = dial(self._dns_host, self.port, self.timeout, self.source_address, self.socket_options)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(
                self, f"Connection to {self.host} timed out. (connect timeout={self.timeout})") from error
        except OSError as error:
            raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error
        sys.audit("http.client.connect", self, self.host, self.port)
        return made

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, *,
                chunked: bool = False, **options: Any) -> None:
        """Send one request, its head and body in one piece where they are small. Raises as http.client does."""
        self._asked = None
        whole = type(body) is bytes and "Content-Length" in headers if body is not None else method in _WITHOUT_BODY
        head = request_head(method, url, self._host_header(), headers) if whole and headers and not chunked else None
        if head is None:
            super().request(method, url, body=body, headers=headers, chunked=chunked, **options)
            return
        if self.sock is not None:  # one that is made now has this limit already
            self.sock.settimeout(self.timeout)
        self._asked = (method, url)
        self.send(SecretBytes(head + body) if body else head)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        """The response to the request that was sent. Blocks until its head is there. Raises as http.client does."""
        waits_on(self.sock)
        asked, self._asked = self._asked, None
        if asked is None:
            return super().getresponse()
        connection: Any = self.sock
        connection.settimeout(self.timeout)
        answer: Any = QuickResponse(connection, method=asked[0])
        try:
            answer.begin()
        except BaseException as error:
            if isinstance(error, ConnectionError):
                self.close()
            answer.close()
            raise
        if answer.will_close:  # the answer keeps the socket until it is read
            self.close()
        return HTTPResponse(
            body=answer, headers=answer.headers, status=answer.status, version=answer.version,
            version_string="HTTP/1.1", reason=answer.reason, preload_content=False, decode_content=False,
            original_response=answer, request_method=asked[0], request_url=asked[1], sock_shutdown=connection.shutdown)

    def _host_header(self) -> str:
        """As http.client has it: the host, with the port unless it is the scheme's own."""
        if not self._named:
            through: Any = self  # the tunnel's end is not in the stubs
            host, port = self.host, self.port
            if through._tunnel_host:
                host, port = through._tunnel_host, through._tunnel_port
            if ":" in host:
                host = f"[{host.strip('[]').partition('%')[0]}]"
            elif not host.isascii():
                host = host.encode("idna").decode()
            self._named = host if port == self.default_port else f"{host}:{port}"
        return self._named


class ApiTlsConnection(ApiConnection, HTTPSConnection):
    """Takes its context from a `TlsSource` each time it connects, so that files which were replaced count."""

    def __init__(self, *arguments: Any, ssl_context: TlsSource, **options: Any) -> None:
        self._tls = ssl_context
        super().__init__(*arguments, ssl_context=ssl_context.current(), **options)

    def connect(self) -> None:
        """Connect, and make the TLS handshake. Blocks for the connection's timeout at most. Raises what urllib3
        does."""
        self.ssl_context = self._tls.current()
        try:
            super().connect()
        except TimeoutError as error:  # of the handshake, or of the proxy's answer: nothing was asked of the server yet
            raise ConnectTimeoutError(self, f"the TLS handshake with {self.host} was not made in time") from error
        except _CUT_OFF as error:  # nobody is there behind a load balancer, say; of a certificate it tells nothing
            why = "" if isinstance(error, ssl.SSLError) else f": {error.strerror or type(error).__name__}"
            raise NewConnectionError(self, f"the TLS handshake was cut off{why}") from error
        except HTTPException as error:
            raise NewConnectionError(self, f"the proxy's answer to CONNECT is no HTTP: {text_of(error)}") from error
        except ssl.SSLError as error:
            self._tls.explain(error)
            raise

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, *,
                chunked: bool = False, **options: Any) -> None:
        """Send one request. Raises as http.client does, and BrokenPipeError when the connection has ended, as without
        TLS: urllib3 then reads what the server has said last, why it takes no client certificate, say."""
        try:
            super().request(method, url, body, headers, chunked=chunked, **options)
        except ENDED as error:
            raise BrokenPipeError(errno.EPIPE, "the server has ended the connection") from error

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        """The response to the request that was sent. Blocks until its head is there. Raises as http.client does."""
        try:
            return super().getresponse()
        except ssl.SSLError as error:
            if not is_about_our_certificate(error):  # it comes after a request that may have been carried out
                raise ConnectionAbortedError(errno.ECONNABORTED, f"TLS broke off: {error.reason or error}") from error
            self._tls.explain(error)  # the server's view of our certificate comes only now
            raise
