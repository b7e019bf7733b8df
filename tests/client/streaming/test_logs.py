"""A Pod's logs: which part is asked for, bytes and text, following."""
from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import ApiError, RequestError, StopToken, TransportError
from kubectl_runtime.client.streaming.logs import decoded, decoded_lines
from kubectl_runtime.core.requests.pods import LogParams
from tests.client.streaming.socket_peer import pods
from tests.client.wire_server import Peer, WireServer, answering, says, status


def streaming(*steps):
    """Sends the pieces of a chunked answer, and does what functions say."""

    def serve(peer):
        if peer.receive() is None:
            return
        peer.start_stream()
        for step in steps:
            peer.chunk(step) if isinstance(step, bytes) else step(peer)

    return WireServer(serve)


def test_a_log_is_bytes_as_they_are():
    with pods(WireServer(answering(says(200, b"one\n\xff\xfe two\r\n", kind="text/plain")))) as api:
        assert api.logs("web") == b"one\n\xff\xfe two\r\n"


def test_every_option_reaches_the_server_and_none_is_sent_unasked():
    server = WireServer(answering(says(200, b"", kind="text/plain")))
    with pods(server) as api:
        api.logs("web")
        api.logs("web", container="app", tail_lines=0, since_seconds=timedelta(minutes=1.5), previous=True,
                 timestamps=True, limit_bytes=1000)
        api.logs("web", LogParams(since_time=datetime(2026, 1, 2, 3, 4, 5, 600, UTC)))
        with api.log_stream("web", tail_lines=5) as log:
            assert list(log) == []
    asked = [urlsplit(request.target) for request in server.requests]
    assert {parts.path for parts in asked} == {"/api/v1/namespaces/default/pods/web/log"}
    assert [parse_qsl(parts.query) for parts in asked] == [
        [],
        [("container", "app"), ("tailLines", "0"), ("sinceSeconds", "90"), ("previous", "true"),
         ("timestamps", "true"), ("limitBytes", "1000")],
        [("sinceTime", "2026-01-02T03:04:05Z")],
        [("tailLines", "5"), ("follow", "true")]]


@pytest.mark.parametrize("options", [
    {"tail_lines": -1}, {"tail_lines": "5"}, {"limit_bytes": 0}, {"since_seconds": 0},
    {"since_time": datetime(2026, 1, 1)},
    {"since_seconds": 5, "since_time": datetime(2026, 1, 1, tzinfo=UTC)}])
def test_options_that_make_no_sense_are_refused(options):
    server = WireServer(answering(says()))
    with pods(server) as api, pytest.raises(RequestError):
        api.logs("web", **options)
    assert not server.requests


def test_a_followed_log_yields_lines_when_they_come_and_ends_with_the_container():
    seen = threading.Event()
    with pods(streaming(b"first\nsec", lambda _: seen.wait(20), b"ond\nunended", Peer.end_stream)) as api:
        lines = []
        with api.log_stream("web") as log:
            for line in log.lines():
                lines.append(line)
                seen.set()
    assert lines == ["first", "second", "unended"]


def test_a_character_that_is_cut_by_the_transport_is_put_together_and_what_is_no_utf_8_is_replaced():
    with pods(streaming(b"a\xe2\x82", b"\xacb\xff", b"\n\xe2", Peer.end_stream)) as api:
        with api.log_stream("web") as log:
            assert "".join(log.text()) == "a€b\ufffd\n\ufffd"


def test_a_stop_token_ends_a_log_that_waits():
    stop = StopToken()
    with pods(streaming(b"first\n", Peer.hold)) as api, api.log_stream("web", stop=stop) as log:
        lines = log.lines()
        assert next(lines) == "first"
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        assert list(lines) == []
        timer.join()


def test_a_log_that_breaks_off_is_an_error_after_what_had_come():
    with pods(streaming(b"first\n", Peer.reset)) as api, api.log_stream("web") as log:
        lines = log.lines()
        assert next(lines) == "first"
        with pytest.raises(TransportError, match="logs pods/log default/web"):
            next(lines)


def test_a_refused_log_is_an_api_error():
    refused = status(400, "BadRequest", "a container name must be specified for pod web")
    with pods(WireServer(answering(says(400, refused)))) as api:
        with pytest.raises(ApiError, match="a container name must be specified"):
            api.log_stream("web")
        with pytest.raises(ApiError, match="a container name must be specified"):
            api.logs("web")


@given(st.binary(), st.lists(st.integers(0, 50)))
def test_text_and_lines_do_not_depend_on_how_the_bytes_are_cut(content, cuts):
    pieces, left = [], content
    for cut in cuts:
        pieces.append(left[:cut])
        left = left[cut:]
    pieces.append(left)
    whole = content.decode("utf-8", "replace")
    assert "".join(decoded(pieces)) == whole
    ended = content.endswith(b"\n") or not content
    assert "\n".join(decoded_lines(pieces)) + ("\n" if content and ended else "") == whole


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), b"ab" * 1000, "€".encode() * (1 << 18)],
                         ids=["large pieces", "small ones", "characters"])
def test_a_line_without_end_comes_in_parts_and_is_never_held_whole(piece):
    times = (40 << 20) // len(piece)
    pieces = [*[piece] * times, b"end\nnext\n"]
    *parts, end, after = decoded_lines(iter(pieces))
    assert after == "next"
    assert "".join([*parts, end]).replace("\ufffd", "") == (piece * times).decode() + "end"
    assert max(map(len, parts)) <= (16 << 20) + len(piece)
    assert len(parts) == 2
