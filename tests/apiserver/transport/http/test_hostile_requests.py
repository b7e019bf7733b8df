"""Requests that nobody should send get the answers of the real server, and the server goes on serving."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from kubectl_runtime.apiserver.transport.http import reader
from kubectl_runtime.testing import ApiServer
from tests.apiserver.transport.http.http_peer import Peer, connection_threads, until

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NEW = b'{"metadata":{"generateName":"new-"}}'
UNRECOGNIZED = ("the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
                "json parse error: ")


@pytest.fixture(scope="module")
def server():
    with ApiServer() as server:
        yield server
        with Peer(server) as peer:
            assert peer.ask("GET", "/healthz")[2] == b"ok"
            assert peer.ask("POST", CONFIG_MAPS, NEW)[0] == 201


def post(body, *headers, path=CONFIG_MAPS, method="POST"):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def sized(body, *headers, **place):
    return post(body, f"Content-Length: {len(body)}", *headers, **place)


def chunked(body):
    return post(body, "Transfer-Encoding: chunked")


@pytest.mark.parametrize(("body", "why"), [
    (b"hello", "invalid character 'h' looking for beginning of value (68656c6c6f)"),
    (b"", "unexpected end of JSON input (<empty>)"),
    (b'{"metadata":', 'unexpected end of JSON input ({"metadata":)'),
    (b'{"data": NaN}', "invalid character 'N' looking for beginning of value ({\"data\": NaN})"),
    (b'{} {}', "invalid character '{' after top-level value ({} {})"),
    (b"\0", "invalid character '\\x00' looking for beginning of value (00)"),
    (b"\xff\xfe{\0}\0", "invalid character '\xff' looking for beginning of value (fffe7b007d00)"),
    (b'{"data":' * 100_000 + b"1" + b"}" * 100_000,
     "invalid character '{' exceeded max depth ({\"data\":{\"data\":{\"data\":{\"data ...)"),
    (b"[" * 100_000 + b"]" * 100_000, f"invalid character '[' exceeded max depth ({'5b' * 30} ...)"),
])
def test_what_is_no_json_is_a_400_that_says_where_it_stops_being_it(server, body, why):
    with Peer(server) as peer:
        status, _, answer = peer.ask("POST", CONFIG_MAPS, body)
        assert status == 400
        assert json.loads(answer)["message"] == UNRECOGNIZED + why


@pytest.mark.parametrize(("body", "data"), [
    (b'{"metadata":{"generateName":"a"},"data":{"k":"\xff\xfe"}}', "\ufffd\ufffd"),
    (b'{"metadata":{"generateName":"a"},"data":{"k":"\\ud800x"}}', "\ufffdx"),
    (b'{"metadata":{"generateName":"a"},"data":{"k":"\\ud83d\\ude00"}}', "\U0001f600"),
])
def test_what_is_no_unicode_is_replaced(server, body, data):
    with Peer(server) as peer:
        status, _, answer = peer.ask("POST", CONFIG_MAPS, body)
        assert status == 201
        assert json.loads(answer)["data"]["k"] == data


@pytest.mark.parametrize(("format_", "body", "why"), [
    ("merge-patch+json", b'{"a":' * 100_000, "error decoding patch: invalid character '{' exceeded max depth"),
    ("strategic-merge-patch+json", b'{"a":' * 100_000,
     "error decoding patch: invalid character '{' exceeded max depth"),
    ("json-patch+json", b"[" * 100_000, "error decoding patch: invalid character '[' exceeded max depth"),
    ("apply-patch+yaml", b"[" * 100_000, "error decoding YAML: error converting YAML to JSON: yaml: "),
])
def test_a_patch_nested_a_hundred_thousand_deep_is_a_400(server, format_, body, why):
    with Peer(server) as peer:
        peer.ask("POST", CONFIG_MAPS, b'{"metadata":{"name":"patched"}}')
        status, _, answer = peer.ask("PATCH", f"{CONFIG_MAPS}/patched?fieldManager=f", body,
                                     Content_Type=f"application/{format_}")
        assert status == 400
        assert json.loads(answer)["message"].startswith(why)


def test_yaml_that_multiplies_itself_is_refused_before_it_grows(server):
    lines = [b"a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [b"a%d: &a%d [%s]" % (number, number, b",".join([b"*a%d" % (number - 1)] * 9)) for number in range(1, 30)]
    merged = [b"a0: &a0 {k: v}"]
    merged += [b"a%d: &a%d {<<: [%s]}" % (number, number, b",".join([b"*a%d" % (number - 1)] * 9))
               for number in range(1, 30)]
    with Peer(server) as peer:
        for document, why in ((lines, "excessive aliasing"), (merged, "excessive aliasing"),
                              ([b"a: &a [*a]"], "contains itself")):
            status, _, answer = peer.ask("POST", CONFIG_MAPS, b"\n".join(document), Content_Type="application/yaml")
            assert status == 400
            assert why in json.loads(answer)["message"]
        status, _, answer = peer.ask("POST", CONFIG_MAPS,
                                     b"metadata: {generateName: a}\ndata: &d {k: v}\nbinaryData: {}\n",
                                     Content_Type="application/yaml")
        assert status == 201


@pytest.mark.parametrize("content_type",
                         ["text/plain", "application/x-www-form-urlencoded", ";;;", "application/json; x", "a"])
def test_a_wrong_content_type_is_a_415(server, content_type):
    with Peer(server) as peer:
        status, _, answer = peer.ask("POST", CONFIG_MAPS, NEW, Content_Type=content_type)
        assert status == 415
        assert json.loads(answer)["reason"] == "UnsupportedMediaType"
        assert peer.ask("PATCH", f"{CONFIG_MAPS}/a", b"{}", Content_Type=content_type)[0] == 415
        assert peer.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("length", ["-1", "+2", "0x2", "many", "2, 2", "", "1e3", "\u0662", "9" * 30, str(1 << 63)])
def test_a_length_that_is_none_is_a_400_and_the_end(server, length):
    with Peer(server) as peer:
        peer.send(post(b"{}", f"Content-Length: {length}"))
        answer = peer.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\n400 Bad Request")


def test_a_body_without_a_length_is_empty(server):
    with Peer(server) as peer:
        peer.send(post(b""))
        status, _, answer = peer.answer()
        assert status == 400
        assert json.loads(answer)["message"] == UNRECOGNIZED + "unexpected end of JSON input (<empty>)"


def test_a_body_longer_than_announced_is_cut_and_its_rest_is_no_request(server):
    with Peer(server) as peer:
        peer.send(post(NEW + b"\n", "Content-Length: 5"))
        status, _, answer = peer.answer()
        assert status == 400
        assert "unexpected end of JSON input" in json.loads(answer)["message"]
        assert peer.rest().startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(("request_", "why"), [
    (post(NEW, "Content-Length: 500"), "unexpected EOF"),
    (post(b"", "Content-Length: 2"), "unexpected EOF"),
    (chunked(b"5\r\n{}"), "unexpected EOF"),
    (chunked(b""), "unexpected EOF"),
    (chunked(b"-5\r\nab"), "invalid byte in chunk length"),
    (chunked(b"0x2\r\n{}"), "invalid byte in chunk length"),
    (chunked(b"1_0\r\n{}"), "invalid byte in chunk length"),
    (chunked(b"00000000000000002\r\n{}"), "http chunk length too large"),
    (chunked(b"2\r\n{}{}\r\n"), "malformed chunked encoding"),
    (chunked(b"2" * 5000), "header line too long"),
    (chunked(b"2\n{}\r\n0\r\n\r\n"), "chunked line ends with bare LF"),
    (chunked(b"2\r \r\n{}\r\n0\r\n\r\n"), "invalid CR in chunked line"),
    (chunked(b"\r\n{}\r\n0\r\n\r\n"), "empty hex number for chunk length"),
    (chunked(b"".join(b"1;%s\r\n \r\n" % (b"a" * 3000) for _ in range(10)) + b"0\r\n\r\n"),
     "chunked encoding contains too much non-data"),
    (chunked(b"2\r\n{}\r\n0\r\nXy\r\n\r\n"), 'malformed MIME header: missing colon: "Xy"'),
    (chunked(b"2\r\n{}\r\n0\r\nX: %s\r\n\r\n" % (b"y" * 5000)), "http: suspiciously long trailer after chunked body"),
])
def test_a_body_that_ends_before_its_end_is_the_real_servers_500(server, request_, why):
    with Peer(server) as peer:
        peer.send(request_)
        peer.socket.shutdown(socket.SHUT_WR)
        status, headers, answer = peer.answer()
        assert (status, headers["connection"]) == (500, "close")
        assert json.loads(answer) == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                      "message": why, "code": 500}
        assert peer.rest() == b""


def test_who_may_not_write_hears_that_and_nothing_of_the_body(tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("t,alice,1\n", encoding="utf-8")
    with ApiServer(tokens=tokens, authorization_mode="RBAC") as server:
        for token, expected in (("t", 403), ("wrong", 401)):
            for body in (b"x" * (10 << 20), b"[" * 100_000):
                with Peer(server) as peer:
                    peer.send(sized(body, f"Authorization: Bearer {token}"))
                    assert peer.answer()[0] == expected


@pytest.mark.parametrize("encoding", ["gzip", "gzip, chunked", "chunked\r\nTransfer-Encoding: chunked"])
def test_another_transfer_encoding_is_a_501(server, encoding):
    with Peer(server) as peer:
        peer.send(post(b"0\r\n\r\n", f"Transfer-Encoding: {encoding}"))
        answer = peer.rest()
    assert answer.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert answer.endswith(b"\r\n\r\nUnsupported transfer encoding")


@pytest.mark.parametrize("body", [
    b"%x\r\n%s\r\n0\r\n\r\n", b"%x;a=b\r\n%s\r\n0;c\r\n\r\n", b"%x \t\r\n%s\r\n000\r\nX: y\r\n\r\n"])
def test_chunks_with_extensions_and_trailers_are_read(server, body):
    with Peer(server) as peer:
        peer.send(chunked(body % (len(NEW), NEW)) + post(b"", path="/healthz", method="GET"))
        assert [peer.answer()[0] for _ in range(2)] == [201, 200]


def test_chunks_count_for_more_than_a_length(server):
    with Peer(server) as peer:
        peer.send(post(b"%x\r\n%s\r\n0\r\n\r\n" % (len(NEW), NEW), "Transfer-Encoding: chunked", "Content-Length: 3"))
        assert peer.answer()[0] == 201


@pytest.mark.parametrize(("text", "status"), [
    ("GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", "400 Bad Request: invalid header value"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", "400 Bad Request: invalid header name"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA(: c\r\n\r\n", "400 Bad Request"),
    ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400 Bad Request"),
    ("GET /api/v1/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
    ("GET /a\x01b HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400 Bad Request: malformed Host header"),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400 Bad Request: malformed Host header"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", "400 Bad Request"),
    ("GET / HTTP/1.1\r\n Host: x\r\n\r\n", "400 Bad Request"),
    ("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
    ("".join(map(chr, range(128))), "400 Bad Request"),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported: unsupported protocol version"),
    ("GET /" + "a" * (2 << 20), "431 Request Header Fields Too Large"),
    ("GET / HTTP/1.1\r\nHost: x\r\nA: " + "a" * (2 << 20), "431 Request Header Fields Too Large"),
    ("POST / HTTP/1.1\r\nHost: x\r\nExpect: a lot\r\n\r\n", "417 Expectation Failed"),
])
def test_a_head_that_is_none_is_refused_at_once(server, text, status):
    with Peer(server) as peer:
        peer.send(text)
        assert peer.file.readline().strip().decode() == f"HTTP/1.1 {status}"
        assert b"Connection: close" in peer.rest()


@pytest.mark.parametrize("text", [
    "GET /healthz HTTP/1.1\nHost: x\n\n", "GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /healthz HTTP/1.0\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n d\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: [::1]:80\r\nConnection: closet, keep-alive\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\n" + "".join(f"h{number}: v\r\n" for number in range(5000)) + "\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
])
def test_what_is_unusual_but_right_is_served(server, text):
    with Peer(server) as peer:
        peer.send(text)
        status, _, body = peer.answer()
        assert (status, body) == (200, b"ok")


def test_options_of_the_server_itself(server):
    with Peer(server) as peer:
        peer.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.answer()[0] == 200


def test_a_client_of_the_old_protocol_gets_a_watch_without_chunks(server):
    with Peer(server) as peer:
        peer.send(f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=none HTTP/1.0\r\n"
                  "Connection: keep-alive\r\n\r\n")
        head, _, body = peer.rest().decode().partition("\r\n\r\n")
    assert "chunked" not in head
    assert "Connection: close" in head
    assert body == ""


def test_a_newline_after_the_body_of_a_post_is_forgiven(server):
    with Peer(server) as peer:
        peer.send(sized(NEW) + b"\r\n" + sized(NEW) + b"\r\n")
        assert [peer.answer()[0] for _ in range(2)] == [201, 201]


def test_requests_that_were_sent_at_once_are_answered_in_order_up_to_the_one_that_is_none(server):
    with Peer(server) as peer:
        peer.send(sized(NEW) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + sized(b"nonsense") + b"nonsense\r\n\r\n")
        assert [peer.answer()[0] for _ in range(3)] == [201, 200, 400]
        assert peer.rest().startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(("timeout", "text", "answer"), [
    ("IDLE_TIMEOUT", "", ""),
    ("HEAD_TIMEOUT", "GET /hea", ""),
    ("HEAD_TIMEOUT", "GET /healthz HTTP/1.1\r\nHost: x\r\n", ""),
    ("BODY_TIMEOUT", "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", "HTTP/1.1 504 Gateway Timeout"),
    ("BODY_TIMEOUT", "POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
     "HTTP/1.1 504 Gateway Timeout"),
])
def test_half_a_request_and_then_silence_does_not_keep_its_thread(server, monkeypatch, timeout, text, answer):
    monkeypatch.setattr(reader, timeout, 0.05)
    with Peer(server) as peer:
        peer.send(text)
        assert peer.rest().decode().partition("\r\n")[0] == answer
        until(lambda: not connection_threads(server))


def test_the_timeout_of_a_body_is_told_as_the_real_server_does(server, monkeypatch):
    monkeypatch.setattr(reader, "BODY_TIMEOUT", 0.05)
    with Peer(server) as peer:
        peer.send(post(b"{", "Content-Length: 5"))
        head, _, body = peer.rest().decode().partition("\r\n\r\n")
    assert "Content-Type: text/plain; charset=utf-8" in head
    assert json.loads(body) == {"metadata": {}, "status": "Failure", "reason": "Timeout", "details": {}, "code": 504,
                                "message": "Timeout: request did not complete within the allotted timeout"}


def test_a_drip_of_bytes_does_not_stretch_the_time_for_a_head(server, monkeypatch):
    monkeypatch.setattr(reader, "HEAD_TIMEOUT", 0.3)
    pause = threading.Event()
    with Peer(server) as peer:
        peer.send("GET /")
        with pytest.raises(OSError):  # noqa: PT011 - a reset, or a broken pipe
            while True:  # nobody but the server ends it
                peer.send("a")
                pause.wait(0.02)


def test_a_client_that_goes_in_the_middle_frees_its_thread(server):
    for text in ("GET /hea", post(b"{", "Content-Length: 5"), chunked(b"5\r\n{")):
        with Peer(server) as peer:
            peer.send(text)
    until(lambda: not connection_threads(server))
