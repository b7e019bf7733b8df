"""Calls over real sockets: retries, deadlines, credentials, errors, headers."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kubectl_runtime import (
    Api,
    ApiError,
    ApiResource,
    Client,
    Config,
    RequestTimeout,
    RetryPolicy,
    StopToken,
    TransportError,
)
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.errors import DiscoveryError
from kubectl_runtime.resources import Secret
from kubectl_runtime.testing.clock import SimClock
from tests.client.meanwhile import Meanwhile
from tests.client.wire_server import Peer, Received, WireServer, answering, says, status

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
GET = Request(
    "GET", "/api/v1/namespaces/default/configmaps/a", "get", RESOURCE, "get configmaps default/a", "default", "a"
)
POST = Request(
    "POST",
    "/api/v1/namespaces/default/configmaps",
    "create",
    RESOURCE,
    "create configmaps default/a",
    "default",
    "a",
    body=b"{}",
    retry=Retry.UNSENT_ONLY,
)
APPLY = Request("PATCH", GET.path, "apply", RESOURCE, "apply configmaps default/a", "default", "a", body=b"{}")
FAST = {"retry": RetryPolicy(base=0.001, maximum=0.002)}
TIMELESS = {"clock": SimClock()}
"""No time is up before the request is sent, however busy the machine is; sockets wait by the system's clock."""


def lost(peer: Peer, _: Received) -> None:
    """The request was read, and the connection ends without an answer."""
    peer.close()


def half(peer: Peer, _: Received) -> None:
    """An answer whose body breaks off."""
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    peer.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: application/js"])
@pytest.mark.parametrize(("request_", "times"), [(GET, 9), (POST, 1)], ids=["get", "create"])
def test_an_answer_that_breaks_off_in_its_head_is_no_answer(request_: Request, times: int, head: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(head)
        peer.close()

    with WireServer(serve) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match=r"was lost \(the connection ended within the answer's head"):
            client.request(request_)
        assert len(server.requests) == times


@pytest.mark.parametrize("size", [1, 2048, 300_000])
def test_an_answer_in_chunks_comes_whole_and_its_connection_serves_the_next_call(size: int) -> None:
    body = bytes(range(256)) * 3000

    def chunks(peer: Peer, _: Received) -> None:
        peer.start_stream()
        for begin in range(0, len(body) if size > 1 else 500, size):
            peer.chunk(body[begin:begin + size])
        peer.send(b"0\r\nX-Trailer: a\r\n\r\n")

    with WireServer(answering(chunks, chunks)) as server, server.client(client=FAST) as client:
        for _ in range(2):
            assert client.request(GET) == (body if size > 1 else body[:500])
    assert {request.connection for request in server.requests} == {server.requests[0].connection}


@pytest.mark.parametrize("end", [b"", b"5\r\nab", b"5\r\nabcdeXX", b"zz\r\n", b"0\r\n"])
def test_an_answer_in_chunks_that_breaks_off_is_none(end: bytes) -> None:
    def cut(peer: Peer, _: Received) -> None:
        peer.start_stream()
        peer.chunk(b'{"a": ')
        peer.send(end)
        peer.close()

    with WireServer(answering(cut)) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match="was lost"):
            client.request(GET)
        assert len(server.requests) == 9, "no whole answer"


@pytest.mark.parametrize("head",
                         [b"204 No Content\r\n", b"200 OK\r\nContent-Length: 0\r\n",
                          b"200 OK\r\nTransfer-Encoding: chunked\r\n"])
def test_an_empty_answer_is_an_answer(head: bytes) -> None:
    with WireServer(answering(lambda peer, _: peer.send(b"HTTP/1.1 " + head + b"\r\n0\r\n\r\n"))) as server:
        assert server.client(client=FAST).request(GET) == b""


ANSWER = b'{"kind": "Status", "status": "Success"}'
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["together", "apart"])
@pytest.mark.parametrize("first", [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nContent-Length: 7\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nX: folded\r\n  line\r\n\r\n" * 2 + b"HTTP/1.1 199 Whatever\r\n\r\n",
], ids=["100", "102", "103", "several, of unusual form"])
def test_an_answer_that_others_announce_is_the_last_one(first: bytes, pause: float) -> None:
    def announced(peer: Peer, _: Received) -> None:
        peer.send(first if pause else first + LAST)
        if pause:
            time.sleep(pause)
            peer.send(LAST)

    with WireServer(answering(announced, announced, announced)) as server, server.client(client=FAST) as client:
        for request in (GET, POST, GET):  # none takes what is another's
            assert client.request(request) == ANSWER
        assert len(server.requests) == 3


@pytest.mark.parametrize("request_", [GET, POST], ids=["get", "create"])
def test_switched_protocols_are_no_answer_to_a_call(request_: Request) -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with WireServer(answering(lambda peer, _: peer.send(switched))) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match="switched protocols") as caught:
            client.request(request_)
        assert caught.type.__name__ == ("OutcomeUnknownError" if request_ is POST else "ConnectionFailed")


@pytest.mark.parametrize("head", [
    b"Content-Length: abc", b"Content-Length: -1", b"Content-Length: +39", b"Content-Length: 3_9", b"Content-Length:",
    b"Content-Length: 39, 3", b"Content-Length: 39\r\nContent-Length: 3", b"Content-Length: 9" + b"9" * 5000,
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
    b"X: folded\r\n  line\r\nContent-Length: 3 9",
], ids=lambda head: head[:40].decode())
@pytest.mark.parametrize("request_", [GET, POST], ids=["get", "create"])
def test_framing_that_leaves_the_end_of_the_body_open_is_an_error(request_: Request, head: bytes) -> None:
    def unclear(peer: Peer, _: Received) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + ANSWER)
        peer.close()

    with WireServer(answering(unclear)) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match=r"the answer's (Content-Length|Transfer-Encoding) '") as caught:
            client.request(request_)
        assert len(str(caught.value)) < 600
        assert caught.type.__name__ == ("OutcomeUnknownError" if request_ is POST else "ConnectionFailed")
        assert len(server.requests) == 1, "the server would answer so again"


@pytest.mark.parametrize("head", [
    b"Content-Length: 39, 39", b"Content-Length: 39\r\nContent-Length: 39", b"Content-Length:   39  ",
    b"Content-Length:\r\n 39", b"Transfer-Encoding: identity\r\nContent-Length: 39", b"Connection: close",
], ids=lambda head: head.decode())
def test_framing_that_is_odd_and_clear_is_read(head: bytes) -> None:
    def odd(peer: Peer, _: Received) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + ANSWER)
        if head.startswith(b"Connection"):
            peer.close()

    with WireServer(answering(odd, odd)) as server, server.client(client=FAST) as client:
        assert [client.request(GET), client.request(GET)] == [ANSWER, ANSWER]


@pytest.mark.parametrize("end", [b"X: y\r\n" * 20_000, b"X: " + b"y" * 100_000], ids=["lines", "a line"])
def test_a_trailer_without_end_is_not_read_to_its_end(end: bytes) -> None:
    def endless(peer: Peer, _: Received) -> None:
        peer.start_stream()
        peer.chunk(ANSWER)
        peer.send(b"0\r\n" + end)
        peer.hold()

    with WireServer(answering(endless)) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        with pytest.raises(TransportError, match="no end"):
            client.request(GET)


@pytest.mark.parametrize("line", [
    b'{"kind": "Secret", "data": {"password": "aHVudGVyMg=="}}', b"HTTP/1.1 20 aHVudGVyMg==\r\n\r\n",
    b"aHVudGVyMg==\r\n" * 10_000, b"\x15\x03\x01\x00\x02\x02\x16"], ids=["JSON", "status", "lines", "TLS"])
def test_what_comes_in_place_of_a_head_is_not_quoted(line: bytes) -> None:
    def misplaced(peer: Peer, _: Received) -> None:
        peer.send(line)
        peer.close()

    with WireServer(answering(misplaced)) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match="the answer is not HTTP") as caught:
            client.request(GET)
    assert "aHVudGVyMg" not in str(caught.value)
    assert ("https://" in str(caught.value)) == line.startswith(b"\x15")


class TestRetries:
    @pytest.mark.parametrize("code", [429, 503, 504])
    def test_a_get_is_sent_again_until_it_is_answered(self, code: int) -> None:
        with (
            WireServer(answering(says(code), says(code), says(200, b"{}"))) as server,
            server.client(client=FAST) as client,
        ):
            assert client.request(GET) == b"{}"
        assert len(server.requests) == 3

    def test_their_number_is_bounded_and_the_servers_reason_comes_out(self) -> None:
        refusal = status(429, "TooManyRequests", "slow down")
        with WireServer(answering(says(429, refusal))) as server, server.client(client=FAST) as client:
            with pytest.raises(ApiError, match="get configmaps default/a: slow down") as error:
                client.request(GET)
        assert len(server.requests) == 9
        assert error.value.code == 429

    @pytest.mark.parametrize(
        "refusal",
        [
            says(429, headers=("Retry-After: 3600",)),
            says(503, headers=("Retry-After: Fri, 01 Jan 2100 00:00:00 GMT",)),
            says(429, status(429, "TooManyRequests", details={"retryAfterSeconds": 3600})),
        ],
    )
    def test_a_wait_that_does_not_fit_the_deadline_is_not_begun(self, refusal: Any) -> None:
        with WireServer(answering(refusal)) as server, server.client(client=FAST) as client:
            with pytest.raises(ApiError) as error:
                client.request(GET)
        assert len(server.requests) == 1
        assert (error.value.retry_after or 0) >= 3600

    def test_a_post_is_not_sent_again_when_its_answer_was_lost(self) -> None:
        with WireServer(answering(lost, says(409))) as server, server.client(client=FAST) as client:
            with pytest.raises(TransportError, match=r"create configmaps default/a.*lost") as error:
                client.request(POST)
        assert len(server.requests) == 1
        assert error.value.sent

    @pytest.mark.parametrize("request_", [GET, APPLY])
    def test_what_may_be_done_twice_is_sent_again_when_its_answer_was_lost(self, request_: Request) -> None:
        with WireServer(answering(lost, says(200, b"{}"))) as server, server.client(client=FAST) as client:
            assert client.request(request_) == b"{}"
        assert len(server.requests) == 2

    @pytest.mark.parametrize("request_", [GET, APPLY])
    def test_an_answer_that_breaks_off_is_asked_for_again(self, request_: Request) -> None:
        with WireServer(answering(half, says(200, b"{}"))) as server, server.client(client=FAST) as client:
            assert client.request(request_) == b"{}"
        assert len(server.requests) == 2

    def test_what_is_not_http_is_asked_for_once(self) -> None:
        with (
            WireServer(answering(lambda peer, _: peer.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))) as server,
            server.client(client=FAST) as client,
            pytest.raises(TransportError, match="lost"),
        ):
            client.request(GET)
        assert len(server.requests) == 1

    @pytest.mark.direct("the server refuses it")
    def test_a_post_waits_for_a_server_that_is_not_there_yet(self) -> None:
        with WireServer(answering(says(201, b"{}"))) as server:
            pass  # its port is closed again
        attempts = []

        def noting(send: Send) -> Send:
            def noted(call: Call) -> Answer:
                attempts.append(call.attempt)
                return send(call)

            return noted

        with Client(Config(cluster_url=server.url), layers=[noting], **FAST) as client:
            with pytest.raises(TransportError, match="cannot connect") as error:
                client.request(POST)
        assert attempts == list(range(9))
        assert not error.value.sent

    @pytest.mark.direct("the client sees at once that the server has ended it")
    def test_a_kept_connection_that_the_server_closed_costs_no_error(self) -> None:
        closed = threading.Event()

        def once(peer: Peer) -> None:
            if peer.receive() is not None:
                peer.answer()
            peer.close()
            closed.set()

        with WireServer(once) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
            for request in (GET, POST, APPLY):
                assert client.request(request) == b"{}"
                assert closed.wait(20)
                closed.clear()
        assert server.connections == 3

    def test_a_wait_ends_when_the_token_is_set(self) -> None:
        stop = StopToken(clock=Meanwhile(lambda: stop.set("the test says so")))
        refusal = says(429, headers=("Retry-After: 30",))
        with WireServer(answering(refusal)) as server, server.client() as client:
            begin = time.monotonic()
            with pytest.raises(ApiError):
                client.request(GET, stop=stop)
        assert time.monotonic() - begin < 20
        assert len(server.requests) == 1

    def test_retries_can_be_turned_off(self) -> None:
        with WireServer(answering(says(503))) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
            with pytest.raises(ApiError):
                client.request(GET)
        assert len(server.requests) == 1


class TestDeadlines:
    def test_a_server_that_never_answers_is_a_request_timeout(self) -> None:
        asked = threading.Event()

        def silent(peer: Peer, _: Received) -> None:
            asked.set()
            peer.hold()

        with WireServer(answering(silent)) as server, server.client(timeout=0.2, client=TIMELESS) as client:
            with pytest.raises(
                RequestTimeout, match=f"get configmaps default/a: no answer from 127.0.0.1:{server.port}"
            ):
                client.request(GET)
            assert asked.wait(20)
        assert len(server.requests) == 1

    @pytest.mark.direct("the server does not read it")
    def test_a_server_that_does_not_read_the_request_is_one_too(self) -> None:
        def deaf(peer: Peer) -> None:
            released.wait(20)

        released = threading.Event()
        with WireServer(deaf) as server, server.client(timeout=0.3, client=TIMELESS) as client:
            try:
                with pytest.raises(RequestTimeout, match="did not take the whole request in time"):
                    client.request(Request("PUT", "/a", "replace", None, "replace something large",
                                           body=b"x" * 30_000_000))
            finally:
                released.set()

    def test_a_server_that_trickles_chunks_is_one_too(self) -> None:
        def trickle(peer: Peer, _: Received) -> None:
            peer.start_stream()
            pause = threading.Event()
            while True:  # until the client goes away
                peer.chunk(b"x")
                pause.wait(0.02)

        with WireServer(answering(trickle)) as server, server.client(timeout=0.2) as client:
            with pytest.raises(RequestTimeout):
                client.request(GET)

    def test_a_server_that_trickles_is_one_too(self) -> None:
        def trickle(peer: Peer, _: Received) -> None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            pause = threading.Event()
            while True:
                peer.send(b"x")
                pause.wait(0.02)

        with WireServer(answering(trickle)) as server, server.client(timeout=0.2) as client:
            with pytest.raises(RequestTimeout):
                client.request(GET)

    def test_a_call_whose_time_is_up_is_not_sent(self) -> None:
        with WireServer(answering(says())) as server, server.client() as client:
            with pytest.raises(RequestTimeout, match="before the request could be sent"):
                client.request(GET, deadline=client.clock.monotonic())
        assert server.requests == []


class TestUnreachable:
    @pytest.mark.direct("the server refuses it")
    def test_the_message_says_where_and_what_to_do(self) -> None:
        with WireServer(answering(says())) as server:
            pass
        with Client(Config(cluster_url=server.url, origin="context 'x' of /k"), retry=RetryPolicy.never()) as client:
            with pytest.raises(TransportError) as error:
                client.request(GET)
        text = str(error.value)
        for part in (
            "get configmaps default/a",
            f"127.0.0.1:{server.port}",
            "refused",
            "Is the API server running",
            "context 'x' of /k",
        ):
            assert part in text
        assert "0x" not in text

    def test_a_closed_client_says_so(self) -> None:
        with WireServer(answering(says())) as server:
            client = server.client()
            client.close()
            client.close()
            with pytest.raises(TransportError, match="closed"):
                client.request(GET)
        assert server.requests == []


class TestErrors:
    def error(self, answer: Any, request: Request = GET) -> ApiError:
        with WireServer(answering(answer)) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
            with pytest.raises(ApiError) as error:
                client.request(request)
        return error.value

    def test_a_status_comes_out_with_the_operation(self) -> None:
        error = self.error(says(404, status(404, "NotFound", 'configmaps "a" not found', details={"name": "a"})))
        assert str(error) == 'get configmaps default/a: configmaps "a" not found'
        assert error.is_not_found
        assert not isinstance(error, DiscoveryError)

    @pytest.mark.parametrize(
        ("code", "body", "kind", "message", "reason"),
        [
            (503, b"service unavailable", "text/plain", "service unavailable", "ServiceUnavailable"),
            (500, b"", "text/plain", "HTTP 500 Internal Server Error without a body", "InternalError"),
            (
                502,
                b"<html><head><title>502 Bad\nGateway</title></head></html>",
                "text/html",
                "a web page: 502 Bad Gateway",
                "",
            ),
            (409, b"[1", "application/json", "[1", "Conflict"),
            (400, b"\xff\xfe", "text/plain", "\ufffd\ufffd", "BadRequest"),
            (403, b'{"kind": "Pod"}', "application/json", "Pod", "Forbidden"),
        ],
    )
    def test_a_body_that_is_no_status_becomes_the_message(
        self, code: int, body: bytes, kind: str, message: str, reason: str
    ) -> None:
        error = self.error(says(code, body, kind=kind))
        assert (error.code, error.reason) == (code, reason)
        assert message in str(error)

    @pytest.mark.parametrize(("body", "kept"), [
        (b"x" * 5000, "x" * 1024),
        (b"<html><head><title>%s</title></head></html>" % (b"x" * 5000),
         f"HTTP 502 Bad Gateway with a web page: {'x' * 200} (is a proxy or another server in the way?)"),
    ])
    def test_a_long_body_that_is_no_status_is_cut(self, body: bytes, kept: str) -> None:
        assert str(self.error(says(502, body, kind="text/html"))) == f"get configmaps default/a: {kept}"

    def test_a_plain_404_is_an_unknown_kind(self) -> None:
        error = self.error(says(404, b"404 page not found\n", kind="text/plain"))
        assert isinstance(error, DiscoveryError)
        assert error.is_not_found
        assert "the server does not serve configmaps in v1: is its CRD installed" in str(error)

    def test_so_is_the_status_of_a_missing_kind_and_any_404_of_a_list(self) -> None:
        missing = status(404, "NotFound", "the server could not find the requested resource", details={})
        assert isinstance(self.error(says(404, missing)), DiscoveryError)
        listing = Request("GET", "/api/v1/configmaps", "list", RESOURCE, "list configmaps")
        assert isinstance(self.error(says(404, status(404, "NotFound", "x")), listing), DiscoveryError)

    @pytest.mark.parametrize("body", [b"{}", status(302, "Found", "moved")], ids=["bare", "with a Status"])
    def test_a_redirect_is_not_followed_but_named(self, body: Any) -> None:
        with (
            WireServer(answering(says(302, body, headers=("Location: https://elsewhere/login",)))) as server,
            server.client() as client,
            pytest.raises(ApiError, match="redirects to https://elsewhere/login"),
        ):
            client.request(GET)
        assert len(server.requests) == 1

    @pytest.mark.parametrize("code", [400, 422, 500])
    def test_what_the_server_says_of_a_secrets_content_is_withheld(self, code: int) -> None:
        said = status(
            code, "Invalid", 'Invalid value: "geheim"', details={"causes": [{"message": "geheim", "field": "data"}]}
        )
        with WireServer(answering(says(code, said))) as server, server.client() as client:
            with pytest.raises(ApiError) as error:
                Api.namespaced(client, Secret, "default").create({"metadata": {"name": "a"}})
        assert "geheim" not in str(error.value)
        assert "geheim" not in repr(error.value.status)
        assert f"create secrets default/a: {code} Invalid: data: not valid; " in str(error.value)

    @pytest.mark.parametrize(("message", "shown"), [
        ("Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 5: geheim",
         "illegal base64 data at input byte 5"),
        ("strict decoding error: unknown field \"sringData\" geheim", 'unknown field "sringData"'),
        ("json: cannot unmarshal string into Go struct field Secret.stringData of type map[string]string; geheim",
         "cannot unmarshal string into Go struct field Secret.stringData of type map[string]string"),
        ('Secret "geheim_" is invalid: metadata.name: Invalid value: "geheim_": a lowercase RFC 1123 subdomain must '
         "consist of lower case alphanumeric characters, '-' or '.' (e.g. 'geheim')",
         "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters")])
    def test_what_quotes_no_content_of_a_secret_is_shown(self, message: str, shown: str) -> None:
        with WireServer(answering(says(400, status(400, "BadRequest", message)))) as server, server.client() as client:
            with pytest.raises(ApiError) as error:
                Api.namespaced(client, Secret, "default").create({"metadata": {"name": "a"}})
        assert shown in str(error.value)
        assert "geheim" not in str(error.value)

    def test_other_messages_about_secrets_stay(self) -> None:
        with (
            WireServer(
                answering(says(404, status(404, "NotFound", 'secrets "a" not found', details={"name": "a"})))
            ) as server,
            server.client() as client,
            pytest.raises(ApiError, match='secrets "a" not found'),
        ):
            Api.namespaced(client, Secret, "default").get("a")

    def test_retry_after_is_on_the_error(self) -> None:
        assert self.error(says(429, headers=("Retry-After: 7",))).retry_after == 7
