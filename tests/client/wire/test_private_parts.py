"""What the client uses of requests, urllib3, http.client and PySocks beyond their documented interfaces.

One row for each part: the package, where it is used, and what it must be like. A new version that changes a part fails
its row with a sentence that says so, instead of a test of calls or watches with a riddle. Known to be as expected: the
versions in `KNOWN`; `tox run -e lowest` runs this file with the oldest, the other environments with the newest.
"""
from __future__ import annotations

import http.client
import inspect
import io
import platform
import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.models import PreparedRequest, Response
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ClosedPoolError, MaxRetryError, NewConnectionError, ProtocolError

from kubectl_runtime.client.http.sockets import ApiSocket
from kubectl_runtime.client.wire.carrier import _blank, _is_requests_own, _Pool
from kubectl_runtime.client.wire.connections import ApiConnection, Limits, QuickResponse
from kubectl_runtime.client.wire.streams import raw_file

KNOWN = {"urllib3": "2.3.0 to 2.8.0", "requests": "2.32.2 to 2.34.2", "PySocks": "1.7.0 to 1.7.1",
         "Python": "3.11 to 3.14"}


def takes(function: Callable[..., Any], *names: str) -> bool:
    """Whether it can be called with these arguments by name."""
    return set(names) <= set(inspect.signature(function).parameters)


def overridden(base: type, ours: type, name: str) -> bool:
    """Whether the base class has such a method, whose arguments ours takes in the same order."""
    theirs, mine = (list(inspect.signature(getattr(cls, name)).parameters.values()) for cls in (base, ours))
    if any(one.kind is one.VAR_POSITIONAL for one in mine):
        return True
    return [one.name for one in theirs if one.kind is one.POSITIONAL_OR_KEYWORD][:len(mine)] == [
        one.name for one in mine if one.kind is one.POSITIONAL_OR_KEYWORD][:len(theirs)]


def answered() -> tuple[http.client.HTTPResponse, urllib3.HTTPResponse]:
    """http.client's response and urllib3's around it, of an answer that stands in a socket's buffer."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\n\r\n{}")
        inner = http.client.HTTPResponse(ours, method="GET")
        inner.begin()
        ours.close()  # the response keeps the file
    return inner, urllib3.HTTPResponse(inner, headers=dict(inner.headers), status=200, preload_content=False,
                                       original_response=inner)


class _Opened:
    """A connection that gives an answer without being connected."""

    def __init__(self) -> None:
        self.is_closed, self.is_verified, self.proxy_is_verified, self.timeout, self.host = False, True, None, None, "a"
        self.sock, self.port, self.proxy = None, 80, None
        self.raw = answered()[1]

    def request(self, *_: Any, **options: Any) -> None:
        self.options = options

    def getresponse(self) -> urllib3.HTTPResponse:
        return self.raw

    def close(self) -> None:
        pass


def get_conn_takes_from_the_queue() -> bool:
    pool = _Pool("127.0.0.1", 1, maxsize=1, block=False)
    made = pool._get_conn()
    again = pool._get_conn()
    pool.close()
    with pytest.raises(ClosedPoolError):
        pool._get_conn()
    return isinstance(made, ApiConnection) and made is not again


def a_released_connection_goes_back_into_the_queue() -> bool:
    pool, connection = _Pool("127.0.0.1", 1, maxsize=1, block=False), ApiConnection("127.0.0.1", 1)
    raw = urllib3.HTTPResponse(io.BytesIO(), preload_content=False, pool=pool, connection=connection)  # type: ignore[arg-type]
    raw.release_conn()
    idle: Any = pool.pool
    return bool(idle.qsize() == 1 and idle.get() is connection)


def a_connection_is_given_back_without_an_answer() -> bool:
    pool = _Pool("127.0.0.1", 1, maxsize=1, block=False)
    connection, idle = pool._get_conn(), pool.pool
    pool._put_conn(connection)
    kept = idle is not None and idle.qsize() == 1
    pool.close()
    pool._put_conn(connection)  # a client that was closed during the call
    return kept


class _Sent(ApiConnection):
    """A connection on which a request was sent by http.client, and answered."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 1)
        ours, self.peer = socket.socketpair()
        self.sock = ApiSocket(ours.family, ours.type, ours.proto, fileno=ours.detach())

    def close(self) -> None:
        super().close()
        self.peer.close()


def http_client_makes_the_response_of_its_class() -> bool:
    sent = _Sent()
    sent.request("PUT", "/", headers={"A": "b"})  # no User-Agent: http.client completes the head
    sent.peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    answer: Any = sent.received()
    found = isinstance(answer, QuickResponse) and answer.fp.read(2) == b"{}" and answer.length == 2
    answer.close()
    sent.close()
    return found


def http_client_reads_from_the_file_that_a_source_makes() -> bool:
    class Source:
        def makefile(self, mode: str) -> io.BufferedReader:
            return io.BufferedReader(io.BytesIO(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nrest"))  # type: ignore[arg-type]

    answer: Any = QuickResponse(Source(), method="GET")  # type: ignore[arg-type]
    answer.begin()
    return bool(answer.version == 10 and answer.headers["a"] == "b" and answer.fp.read() == b"rest")


def make_request_uses_the_limits_and_ties_the_answer_to_its_connection() -> bool:
    pool, opened, limits = _Pool("127.0.0.1", 1), _Opened(), Limits(1.0, 2.0)
    raw = pool._make_request(opened, "GET", "/", body=None, headers={}, timeout=limits, retries=urllib3.Retry(0),  # type: ignore[arg-type]
                             response_conn=opened, preload_content=False, decode_content=False)  # type: ignore[arg-type]
    tied = raw.connection is opened
    raw.close()
    return tied and opened.options.get("preload_content") is False and opened.timeout is None


def retries_of_none_raise() -> bool:
    pool, retries = _Pool("127.0.0.1", 1), HTTPAdapter(max_retries=0).max_retries
    lost, unmade = ProtocolError("x"), NewConnectionError(HTTPConnection("a"), "x")
    with pytest.raises(ProtocolError):
        retries.increment("POST", "/", error=lost, _pool=pool, _stacktrace=None)
    with pytest.raises(MaxRetryError):
        retries.increment("GET", "/", error=unmade, _pool=pool, _stacktrace=None)
    return True


def a_limit_is_no_copy() -> bool:
    limits = Limits(1.0, 2.0)
    return urllib3.HTTPConnectionPool("a")._get_timeout(limits) is limits


def the_queue_is_ours() -> bool:
    return type(_Pool("127.0.0.1", 1).pool).__name__ == "_IdleConnections"


def http_client_state_is_as_begin_leaves_it() -> bool:
    inner, raw = answered()
    known = {"version": 11, "status": 200, "code": 200, "reason": "OK", "chunked": False, "will_close": False,
             "length": 2, "_method": "GET"}
    state = {name: getattr(inner, name) for name in known}
    as_known = inner.msg is inner.headers and inner.fp is not None
    raw.close()
    return as_known and state == known


def a_response_before_its_head_has_no_headers() -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        response: Any = QuickResponse(ours, method="HEAD")
        nothing = response.headers is None and isinstance(response.fp, io.BufferedReader) and response._method == "HEAD"
        response.close()
    return nothing


def urllib3_keeps_http_clients_response() -> bool:
    inner, raw = answered()
    file = raw_file(raw)
    found = raw._fp is inner and file is inner.fp and raw.length_remaining == 2 and raw.chunked is False
    raw.close()
    return found and file is not None


def requests_notes_whether_a_body_was_read() -> bool:
    fresh, read = Response(), Response()
    read.raw = io.BytesIO(b"x")
    return (vars(fresh).get("_content"), vars(fresh).get("_content_consumed"), read.content) == (False, False, b"x") \
        and vars(read)["_content"] == b"x" and bool(vars(read)["_content_consumed"])


def a_given_content_is_not_read_again() -> bool:
    response = Response()
    response._content = b"{}"  # type: ignore[attr-defined]
    return response.content == b"{}" and response.text == "{}"


def responses_have_the_known_attributes() -> bool:
    return {"_content", "_content_consumed", "_next", "status_code", "raw", "url", "encoding", "reason", "elapsed",
            "request"} <= set(_blank()) and not any(isinstance(value, list | dict) for value in _blank().values())


def prepare_cookies_makes_the_jar_that_a_session_expects() -> bool:
    request = PreparedRequest()
    request.url, request.headers = "http://a/", requests.structures.CaseInsensitiveDict()
    request.prepare_cookies({})
    return request._cookies is not None and "Cookie" not in request.headers  # type: ignore[attr-defined]


def a_file_tells_its_socket_when_it_is_closed() -> bool:
    class Told:
        count = 0

        def _decref_socketios(self) -> None:
            self.count += 1

    told = Told()
    socket.SocketIO(told, "r").close()  # type: ignore[arg-type]
    return told.count == 1


def socks_keeps_a_timeout_for_its_connect() -> bool:
    socks = pytest.importorskip("socks")
    with socks.socksocket() as unconnected:
        unconnected.settimeout(3.0)
        return bool(unconnected.gettimeout() == 3.0)


PARTS: list[tuple[str, str, Callable[[], bool]]] = [
    ("urllib3", "HTTPConnectionPool._get_conn", get_conn_takes_from_the_queue),
    ("urllib3", "HTTPConnectionPool._put_conn", a_connection_is_given_back_without_an_answer),
    ("urllib3", "HTTPConnectionPool._make_request", make_request_uses_the_limits_and_ties_the_answer_to_its_connection),
    ("urllib3", "HTTPConnectionPool._get_timeout, which calls Timeout.clone", a_limit_is_no_copy),
    ("urllib3", "HTTPConnectionPool.QueueCls", the_queue_is_ours),
    ("urllib3", "HTTPResponse.release_conn, which calls HTTPConnectionPool.pool.put",
     a_released_connection_goes_back_into_the_queue),
    ("urllib3", "HTTPConnectionPool.urlopen", lambda: overridden(urllib3.HTTPConnectionPool, _Pool, "urlopen")),
    ("urllib3", "Retry.increment(_pool=, _stacktrace=)", retries_of_none_raise),
    ("urllib3", "HTTPResponse._fp, length_remaining, chunked", urllib3_keeps_http_clients_response),
    ("urllib3", "HTTPResponse(version_string=, sock_shutdown=, original_response=)", lambda: takes(
        urllib3.HTTPResponse.__init__, "version_string", "sock_shutdown", "original_response", "request_method",
        "request_url", "preload_content", "decode_content")),
    ("urllib3", "HTTPConnection.request", lambda: overridden(HTTPConnection, ApiConnection, "request")),
    ("urllib3", "HTTPConnection.getresponse, connect", lambda: all(
        overridden(HTTPConnection, ApiConnection, name) for name in ("getresponse", "connect"))),
    ("requests", "HTTPAdapter.send, a plain function of its module", lambda: _is_requests_own(HTTPAdapter.send)),
    ("requests", "Response._content, _content_consumed", requests_notes_whether_a_body_was_read),
    ("requests", "Response._content, set", a_given_content_is_not_read_again),
    ("requests", "vars(Response())", responses_have_the_known_attributes),
    ("requests", "HTTPAdapter.get_connection_with_tls_context, cert_verify, request_url, build_response", lambda: all(
        hasattr(HTTPAdapter, name) for name in ("get_connection_with_tls_context", "cert_verify", "request_url",
                                                "build_response"))),
    ("requests", "PreparedRequest._cookies, by prepare_cookies", prepare_cookies_makes_the_jar_that_a_session_expects),
    ("Python", "http.client.HTTPResponse's state after begin", http_client_state_is_as_begin_leaves_it),
    ("Python", "http.client.HTTPConnection.getresponse, with response_class",
     http_client_makes_the_response_of_its_class),
    ("Python", "http.client.HTTPResponse(sock), which calls sock.makefile(mode)",
     http_client_reads_from_the_file_that_a_source_makes),
    ("Python", "http.client.HTTPResponse before begin", a_response_before_its_head_has_no_headers),
    ("Python", "socket.SocketIO.close, which calls _decref_socketios", a_file_tells_its_socket_when_it_is_closed),
    ("PySocks", "socksocket.settimeout before connect", socks_keeps_a_timeout_for_its_connect),
]


@pytest.mark.parametrize(("package", "part", "holds"), PARTS, ids=[part for _, part, _ in PARTS])
def test_a_private_part_is_as_the_client_uses_it(package: str, part: str, holds: Callable[[], bool]) -> None:
    here = platform.python_version() if package == "Python" else version(package)
    said = (f"{package} {here} has another {part} than {KNOWN[package]}, on which kubectl_runtime/client relies: "
            f"adapt the client, or exclude this version in setup.cfg")
    try:
        found = holds()
    except Exception as error:
        raise AssertionError(said) from error
    assert found, said
