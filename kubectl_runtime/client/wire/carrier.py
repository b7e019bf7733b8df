"""`RequestsCarrier`: the wire of one process with one client certificate; each call goes through one of two adapters.

A call goes from `ApiAdapter.carry` to a connection and back, bypassing the request and answer classes of requests and
urllib3, which cost as much CPU time as the rest of the call. The exceptions are streams, calls of a client that was
given a session, and all calls while something (`responses`, a tracer) replaces `HTTPAdapter.send`. These go through
`HTTPAdapter.send`, with a prepared request that is built directly, not by `Session.prepare_request`.

The client reads its settings from a `requests.Session` once:

- adapters: the one mounted for the server's URL; requests' own default is replaced by two `ApiAdapter`s
- verify: False (verify nothing) or a path (trust these CAs); cert: the client certificate
- proxies: outrank the kubeconfig's and the environment's; auth: outranks every configured credential
- headers: those that differ from requests' defaults; hooks: the response hooks; trust_env: False ignores environment
  proxies

The client does not use netrc, cookies, redirects, environment CA bundles or `params`. With `use_session_send=True`
requests go through `Session.send`, so that mocks of this method work. Session adapters, `responses` and requests_mock
work without the option.

`ApiAdapter` is the requests adapter to one API server; a client has two, one for calls and one for streams. The adapter
keeps `HTTPAdapter.send` and overrides the steps of `send` that depend only on the server. It has one connection pool
with the client's own SSLContext (which trusts no public CA in addition to the cluster's CA). Its connections use TCP
keepalive; the adapter does not retry and does not wait for a free connection. Idle connections beyond the pool's size
are closed silently.
"""
from __future__ import annotations

import errno
import os
import queue
import socket
import ssl
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache, cached_property
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import FunctionType
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
import urllib3.exceptions
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.cookies import RequestsCookieJar
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict
from requests.utils import default_headers, select_proxy
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ProtocolError, ProxyError, SSLError

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.proxies import Proxy
from kubectl_runtime.client.config.secrets import is_credential, reading_problem, secret_file, secret_headers
from kubectl_runtime.client.http.middleware import Answer, Call
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.client.http.sockets import TlsSource
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.client.wire.connections import (
    ApiConnection,
    ApiTlsConnection,
    Limits,
    QuickResponse,
    WholeAnswer,
)
from kubectl_runtime.client.wire.streams import (
    FramingError,
    UnknownCoding,
    check_coding,
    read_body,
    unread_answer,
    unread_error,
    whole_body,
)
from kubectl_runtime.client.wire.transport_errors import transport_error
from kubectl_runtime.core.base.errors import ConfigError, KubeError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, ForkSafeLock

KEEPALIVE_IDLE = 30
"""Seconds of silence before the first keepalive probe; probes follow every 10 s, and the connection is dead after 3
unanswered ones."""


def _socket_options() -> list[tuple[int, int, int]]:
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", KEEPALIVE_IDLE), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on every system
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class _IdleConnections:
    """The idle connections of a pool, most recently used first. Only `limit` connections are kept, but urllib3 is shown
    no limit, because it would log each connection above the limit. The class has the methods of LifoQueue that urllib3
    uses, without locks: no thread waits for a connection here, and the ends of a deque are safe from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._idle: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002 - urllib3's
        if item is None:  # urllib3 fills its queue with empty places; this class keeps only connections
            return
        if item.limits.interrupt.release():  # the connection was shut down, so its next request would fail
            item.close()
        if len(self._idle) >= self.limit:
            item.close()
        else:
            self._idle.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002 - urllib3's signature
        try:
            return self._idle.pop()
        except IndexError:
            raise queue.Empty from None

    def qsize(self) -> int:
        return len(self._idle)


class _Pool(HTTPConnectionPool):
    ConnectionCls = ApiConnection
    QueueCls = _IdleConnections  # type: ignore[assignment] # what urllib3 uses of a LifoQueue

    def urlopen(self, method: str, url: str, body: Any = None, headers: Any = None,  # type: ignore[override]
                retries: Any = None, *more: Any, **options: Any) -> Any:
        """As in the base class, limited to the needs of `HTTPAdapter.send`: one attempt, without redirects, whose
        answer is not read yet."""
        timeout = options.get("timeout")
        if more or options.get("chunked") or not isinstance(timeout, Timeout):
            return super().urlopen(method, url, body, headers, retries, *more, **options)
        connection: Any = self._get_conn()
        connection.limits = limits = timeout if isinstance(timeout, Limits) else Limits.of(timeout)
        limits.sent = False
        try:
            return self._make_request(connection, method, url, body=body, headers=headers, timeout=timeout,
                                      retries=retries, response_conn=connection, preload_content=False,
                                      decode_content=False)
        except BaseException as error:
            connection.close()
            reason = _reason(error)
            if reason is None:
                raise
            retries.increment(method, url, error=reason, _pool=self, _stacktrace=error.__traceback__)  # which raises
            raise

    def exchange(self, method: str, url: str, body: bytes | None, headers: Any, limits: Limits
                 ) -> tuple[ApiConnection, WholeAnswer | QuickResponse]:
        """Send a request on one of the connections; returns the connection and the answer. The caller must read the
        answer, and then give the connection to `_put_conn` or close it. Raises urllib3's exceptions, and TimeoutError
        if the answer does not come in time."""
        connection: Any = self._get_conn()
        connection.limits = limits
        limits.sent = awaited = False
        try:
            try:
                connection.request(method, url, body, headers)
            except OSError as error:
                if error.errno not in _SENT_IN_VAIN:
                    raise
            awaited = True
            return connection, connection.received()
        except BaseException as error:
            connection.close()
            reason = None if awaited and isinstance(error, TimeoutError) else _reason(error)
            if reason is None:
                raise
            raise reason from error


def _reason(error: BaseException) -> Exception | None:
    """The exception that urllib3 raises in place of `error`; None if `error` does not come from a connection."""
    if not isinstance(error, _FAILED):
        return None
    if isinstance(error, ssl.SSLError):  # ssl.CertificateError is a subclass
        return SSLError(error)
    return ProtocolError("Connection aborted.", error) if isinstance(error, OSError | HTTPException) else error


class _TlsPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = ApiTlsConnection  # type: ignore[assignment] # it takes a TlsSource for a context

    def _validate_conn(self, conn: Any) -> None:
        """As in the base class, but without a warning at each request to a server whose certificate is not verified
        (`insecure-skip-tls-verify`)."""
        if conn.is_closed:
            conn.connect()


_SENT_IN_VAIN = frozenset((errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE))
"""Errors of a failed send: the server has ended the connection, perhaps after it sent an answer. As in urllib3."""
_FAILED = (urllib3.exceptions.TimeoutError, HTTPException, OSError, ProtocolError, SSLError, ProxyError)
"""Exceptions that a connection may raise."""


class _Answer(Response):
    """A response that creates its cookie jar, which stays empty, only on access: creating it is expensive."""

    def __init__(self) -> None:
        self.__dict__.update(_blank())
        self.history = []

    @cached_property
    def cookies(self) -> RequestsCookieJar:  # type: ignore[override] # an attribute of the base class
        return RequestsCookieJar()


@cache
def _blank() -> dict[str, Any]:
    """The attributes that requests gives to every response."""
    return {name: value for name, value in vars(Response()).items() if name not in ("cookies", "headers", "history")}


class ApiAdapter(HTTPAdapter):
    """Sends prepared requests to the one server of `base_url`. Safe to use from any thread."""

    def __init__(self, base_url: str, *, size: int, tls: TlsSource | None = None,
                 server_hostname: str | None = None, proxy: str | None = None) -> None:
        """`size`: how many idle connections to keep. `server_hostname`: the name for SNI and verification, instead of
        the URL's host. Opens no connection."""
        parts = urlsplit(base_url)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._origin_length = len(f"{parts.scheme}://{parts.netloc}")
        self._forwarded = proxy is not None and parts.scheme == "http" and not proxy.startswith("socks")
        self._limit = size
        self._resize = ForkSafeLock()
        super().__init__(pool_connections=1, pool_maxsize=size, max_retries=0, pool_block=False)
        self._pool = self._make_pool(None if proxy is None else Proxy.of(proxy), tls, server_hostname)

    def grow(self, size: int) -> None:
        """Raise the limit on idle connections to `size`, unless the limit is already higher."""
        with self._resize:
            self._limit = max(self._limit, size)
            idle: Any = self._pool.pool
            if isinstance(idle, _IdleConnections):  # None once the pool is closed
                idle.limit = self._limit

    def close(self) -> None:
        """Close the idle connections at once, and connections in use when their answer has been read."""
        super().close()  # drops its pools and leaves their connections to the garbage collector
        self._pool.close()

    def _make_pool(self, via: Proxy | None, tls: TlsSource | None, server_hostname: str | None) -> _Pool:
        """The pool of connections to the server. urllib3 does not know the proxy, since the connections connect
        through it themselves."""
        options: dict[str, Any] = {"maxsize": self._limit, "block": False, "socket_options": _socket_options()}
        if via is not None:
            options["via"] = via
            if via.scheme == "https":
                options["via_tls"] = TlsSource(ca=None, ca_source="the system's CAs (SSL_CERT_FILE names others), not "
                                               "the cluster's: it is the proxy's certificate")
        if self._scheme == "http":
            return _Pool(self._host, self._port, **options)
        if server_hostname:
            options["server_hostname"] = server_hostname
        return _TlsPool(self._host, self._port, ssl_context=tls, **options)

    def carry(self, call: Call, limits: Limits, clock: Clock) -> Answer:
        """Send a call, and read its answer, without the request and answer classes of requests and urllib3, which cost
        as much CPU time as the rest of the call. Raises like `_Pool.exchange` and `read_body` do."""
        pool, request = self._pool, call.request
        connection, answered = pool.exchange(request.method, self._target(call.url, call.headers), request.body,
                                           _headers(call), limits)
        if not isinstance(answered, QuickResponse):
            pool._put_conn(connection)
            return Answer(*answered)
        answer: Any = answered  # http.client's private attributes are not in its stubs
        try:
            if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise FramingError(_SWITCHED)
            body = read_body(answer, answer.fp, call, clock, is_error=answer.status >= 300)
        except UnknownCoding as coding:
            connection.close()
            if answer.status < 300:
                raise unread_answer(request, coding) from None
            body = unread_error(answer.status, coding)
        except BaseException:
            connection.close()
            raise
        finally:
            answer.close()
        pool._put_conn(connection)
        return Answer(answer.status, answer.headers, body)

    def _target(self, url: str, headers: Container[str]) -> str:
        """The path and query for the request line; the whole URL if an HTTP proxy forwards the request. (An HTTP proxy
        does not forward the handshake of a websocket: it makes a tunnel.)"""
        return url if self._forwarded and "Upgrade" not in headers else url[self._origin_length:]

    # The steps of HTTPAdapter.send

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        """The adapter's only pool. The arguments are ignored, because all settings were fixed when the pool was
        made."""
        return self._pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the SSLContext was complete when it was made."""

    def request_url(self, request: PreparedRequest, proxies: Mapping[str, str] | None) -> str:  # noqa: ARG002
        """Like `_target`."""
        return self._target(request.url or "", request.headers or ())

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        """Build the response as requests does, without looking for cookies."""
        response = _Answer()
        response.status_code = resp.status
        response.headers = resp.headers  # case-insensitive like requests' own mapping, and already built
        response.raw = resp
        response.reason = resp.reason
        response.url = req.url or ""
        response.request = req
        response.connection = self
        return response


STREAM_CONNECTIONS = 16
"""Idle connections that the streams' adapter keeps: only connections of refused watches ever become idle."""


class RequestsCarrier:
    """Implements `Carrier`. Opens no connection before it is used; safe to use from any thread."""

    def __init__(self, rules: WireRules, tls: TlsSource | None, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._server = urlsplit(rules.config.cluster_url).netloc
        self.calls: BaseAdapter
        self.streams: BaseAdapter
        if rules.mounted is not None:
            self.calls = self.streams = rules.mounted
        else:
            self.calls, self.streams = (
                ApiAdapter(rules.config.cluster_url, size=size, tls=tls, proxy=rules.proxy,
                           server_hostname=rules.config.tls_server_name)
                for size in (rules.connections, STREAM_CONNECTIONS))

    def carry(self, call: Call, connect: float, left: float, interrupt: Interrupt) -> Answer:
        """Like `Carrier.carry`. Raises RequestError if a layer changed the call to something that HTTP cannot carry."""
        rules, adapter = self._rules, self.streams if call.streaming else self.calls
        limits = Limits(connect, left, interrupt, streaming=call.streaming, silence=call.read_timeout)
        timeout: Any = limits
        if rules.mounted is not None:  # a user's adapter may accept only a tuple (connect, read)
            timeout = (connect, call.read_timeout if call.streaming else left)
        arguments = {"stream": True, "timeout": timeout, **rules.arguments}
        try:
            if rules.session is None and not call.streaming and _is_requests_own(HTTPAdapter.send):
                assert isinstance(adapter, ApiAdapter)
                return adapter.carry(call, limits, self._clock)
            if rules.session is None:
                response = adapter.send(_prepared(call, plain=True), **arguments)
            else:
                response = _sent_as_the_session_says(rules, adapter, _prepared(call, plain=False), arguments)
                if rules.hooks and not rules.through_session:
                    response = self._hooked(response, call, arguments)
            if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS and "Upgrade" not in call.headers:
                response.close()
                raise FramingError(_SWITCHED)
            opened = call.streaming and response.status_code < 300
            if opened:
                check_coding(response, call.request)
            body = b"" if opened else whole_body(response, call, self._clock)
            return Answer(response.status_code, response.headers, body, response if opened else None)
        except (requests.RequestException, urllib3.exceptions.HTTPError, FramingError, OSError) as error:
            problem: KubeError = transport_error(error, call.request.operation, self._server, rules.config.origin,
                                                 limits.seconds, rules.proxy, sent=limits.sent)
        except (ValueError, TypeError) as error:
            if rules.session is not None:  # then the user's adapter or hook may have raised the error
                raise
            # A layer caused this, since the client's own part was checked before. Headers are not shown.
            unsendable = isinstance(error, UnicodeError) or "header" in str(error).lower()
            problem = RequestError(f"{call.request.operation}: a layer changed the call so that it cannot be sent: "
                                   f"{'a header has characters that cannot be sent' if unsendable else error}")
        except (KeyboardInterrupt, SystemExit) as error:
            raise error.with_traceback(None) from None
        # Raised outside the handlers, so that no traceback has the frames of the send functions, in which headers are
        # plain bytes.
        raise problem

    def _hooked(self, response: Response, call: Call, arguments: dict[str, Any]) -> Response:
        """The response as changed by the session's hooks. The body is read before a hook can read it, because requests
        would not check that the body is whole."""
        if not call.streaming:
            response._content = whole_body(response, call, self._clock)
        for hook in self._rules.hooks:  # as in requests, each hook may replace the response
            response = hook(response, **arguments) or response
        return response

    def grow(self, size: int) -> None:
        """Raise the limit on idle connections for calls to `size`, unless the limit is already higher."""
        if isinstance(self.calls, ApiAdapter):
            self.calls.grow(size)

    def close(self) -> None:
        """Close idle connections at once, and connections in use when their answer has been read. An adapter that the
        program has mounted on the session must be closed by the program."""
        if self._rules.mounted is None:
            self.calls.close()
            self.streams.close()


_SWITCHED = "it has switched protocols without being asked to"


@cache
def _is_requests_own(send: Callable[..., Response]) -> bool:
    """Whether `HTTPAdapter.send` is the original. A tool that replaces it, such as `responses`, needs to see each
    request."""
    return type(send) is FunctionType and send.__module__ == HTTPAdapter.__module__ and not hasattr(send, "__wrapped__")


def _sent_as_the_session_says(rules: WireRules, adapter: BaseAdapter, request: PreparedRequest,
                              arguments: dict[str, Any]) -> Response:
    if rules.auth is not None:
        request = rules.auth(request)
        request.headers.update(secret_headers(request.headers))
    if rules.through_session:
        assert rules.session is not None
        request.prepare_cookies({})  # Session.send expects a jar
        return rules.session.send(request, allow_redirects=False, **arguments)
    return adapter.send(request, **arguments)


def _prepared(call: Call, *, plain: bool) -> PreparedRequest:
    """The call as a PreparedRequest. `plain`: only urllib3 will read the headers, so they may be a dict."""
    prepared = PreparedRequest()
    prepared.method = call.request.method
    prepared.url = call.url
    prepared.body = call.request.body
    headers = _headers(call)
    prepared.headers = CaseInsensitiveDict(headers) if type(headers) is dict and not plain else headers
    return prepared


def _headers(call: Call) -> Any:
    """The headers of the request, with the length of its body."""
    headers = call.headers
    if (body := call.request.body) is not None:
        headers["Content-Length"] = str(len(body))
    return _repeated(headers) if tuple in map(type, headers.values()) else headers


class _Lines(urllib3.HTTPHeaderDict):
    """Headers with several values for a name, which only urllib3's own mapping can hold."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}>"  # the base class would show secret values


def _repeated(headers: dict[str, str | tuple[str, ...]]) -> urllib3.HTTPHeaderDict:
    repeated = _Lines()
    for name, value in headers.items():
        for line in value if isinstance(value, tuple) else (value,):
            repeated.add(name, line)
    return repeated


log = guarded_logger(__name__)


def rules_with(session: requests.Session | None, config: Config, *, connections: int,
               through_session: bool) -> WireRules:
    """The rules of a client that was given `session` or `through_session`. If `session` is None, a new session is
    used. Raises ConfigError for settings that cannot work."""
    if session is None:
        session = requests.Session()
    _check(session)
    rules = WireRules.of(config, connections=connections, trust_env=session.trust_env,
                         proxy=select_proxy(config.cluster_url, session.proxies) if session.proxies else None)
    defaults = default_headers()
    rules.session, rules.through_session = session, through_session
    rules.verify = session.verify
    rules.headers = tuple(secret_headers({str(name): str(value) for name, value in session.headers.items()
                                          if defaults.get(name) != value}).items())
    rules.auth = _auth(session.auth)
    rules.hooks = tuple(_listed(session.hooks.get("response")))
    if rules.config.withholds_credentials:
        _withhold_credentials(rules)
    try:
        mounted = session.get_adapter(config.cluster_url)
    except requests.exceptions.InvalidSchema:
        raise ConfigError(f"the session has no adapter for {config.cluster_url}: mount one, or keep requests' own "
                          "adapters") from None
    if through_session or not _is_default(mounted):
        rules.mounted, rules.arguments = mounted, _arguments(session, rules)
    else:
        rules.certificate = _certificate(session)
    return rules


def _check(session: requests.Session) -> None:
    """Raise ConfigError for anything but a session, and for settings on which requests would fail at the first call."""
    if not isinstance(session, requests.Session):
        raise ConfigError(f"session= must be a requests.Session, not {_kind(session)}")
    verify, cert, auth = session.verify, session.cert, session.auth
    if verify is not None and not isinstance(verify, bool | str | os.PathLike):
        raise ConfigError(f"the session's verify must be True, False or a path, not {_kind(verify)}")
    if not (cert is None or isinstance(cert, str | os.PathLike) or (isinstance(cert, tuple) and len(cert) == 2)):
        raise ConfigError(f"the session's cert must be a path, or a pair of certificate and key, not {_kind(cert)}")
    if not (auth is None or callable(auth) or (isinstance(auth, tuple) and len(auth) == 2)):
        raise ConfigError(f"the session's auth must be a function, or a pair of name and password, not {_kind(auth)}")


def _kind(value: object) -> str:
    """The type of a value, without the value: it may be a credential."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _withhold_credentials(rules: WireRules) -> None:
    """Withhold the session's own credentials as well; see `Config.withholds_credentials`."""
    kept = tuple((name, value) for name, value in rules.headers if not is_credential(name))
    if rules.auth is not None or len(kept) < len(rules.headers):
        log.warning("the session's credentials are not sent to %s, which is neither https nor loopback: use "
                    "https, or Config(allow_plain_http_credentials=True) where that is safe", rules.config.cluster_url)
    rules.auth, rules.headers = None, kept


def _is_default(adapter: BaseAdapter) -> bool:
    """Whether requests itself mounted `adapter`."""
    return type(adapter) is HTTPAdapter and adapter.max_retries.total == 0


def _arguments(session: requests.Session, rules: WireRules) -> dict[str, Any]:
    """The CA and the client certificate as files, for a program's own adapter, which takes them as arguments."""
    config = rules.config
    verify: bool | str | None = session.verify
    if verify is True:
        verify = not config.insecure_skip_tls_verify and (config.ca_file or _ca_path(rules) or True)
    cert = session.cert
    if cert is None and config.client_certificate_file and config.client_key_file:
        cert = (config.client_certificate_file, config.client_key_file)
    if cert is None and config.client_certificate_data:
        raise ConfigError(f"{config.origin}: a client certificate given as data cannot be used with an adapter mounted "
                          "on the session, nor with use_session_send: pass the certificate and its key as files")
    proxies = {"http": rules.proxy, "https": rules.proxy} if rules.proxy else {}
    return {"verify": verify, "cert": cert, "proxies": proxies}


def _ca_path(rules: WireRules) -> str | None:
    if not rules.config.ca_data:
        return None
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # a CA is not secret; the file is deleted with the rules
    with os.fdopen(descriptor, "wb") as file:
        file.write(rules.config.ca_data)
    weakref.finalize(rules, _remove, path, os.getpid())
    return path


def _remove(path: str, process: int) -> None:
    if process == os.getpid():  # not in a forked child process, which shares the parent's file
        Path(path).unlink(missing_ok=True)


def _auth(auth: Any) -> Callable[[PreparedRequest], PreparedRequest] | None:
    if isinstance(auth, tuple):
        return HTTPBasicAuth(*auth)
    return auth  # type: ignore[no-any-return]


def _listed(hooks: Any) -> Iterable[Callable[..., Any]]:
    if hooks is None:
        return ()
    return (hooks,) if callable(hooks) else hooks


def _certificate(session: requests.Session) -> ClientCertificate | None:
    if session.cert is None:
        return None
    certificate, key = session.cert if isinstance(session.cert, tuple) else (session.cert, session.cert)
    try:
        return ClientCertificate(secret_file(certificate), secret_file(key) if key != certificate else b"")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the session's client certificate: {reading_problem(error)}") from None
