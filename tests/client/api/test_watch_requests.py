"""open_watch and Api.watch: batches of events from bytes that arrive as they like."""

from __future__ import annotations

import gzip
import json
import threading
from typing import Any

import pytest

from kubectl_runtime import Api, ApiError, DecodeError, RequestTimeout, StopToken
from kubectl_runtime.client.api.watch import RecordEvent
from kubectl_runtime.params import WatchParams
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, config_map, status


def event(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


ADDED = event("ADDED", config_map("a", "7"))
BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "500"}})


def stream(*steps: Any, head: bool = True) -> Any:
    def serve(peer: Peer) -> None:
        if peer.receive() is None:
            return
        if head:
            peer.start_stream()
        for step in steps:
            if isinstance(step, bytes):
                peer.chunk(step)
            else:
                step(peer)

    return serve


def watched(*steps: Any, **how: Any) -> list[RecordEvent]:
    with WireServer(stream(*steps, **how)) as server, server.client() as client:
        with Api.all(client, ConfigMap).open_watch(None, "5") as batches:
            return [seen for batch in batches for seen in batch]


def summary(events: list[RecordEvent]) -> list[tuple[str, str]]:
    return [(seen.type, seen.resource_version) for seen in events]


@pytest.mark.parametrize(
    "pieces",
    [
        [ADDED[:20], ADDED[20:50], ADDED[50:]],
        [ADDED + BOOKMARK],
        [ADDED[:-1], b"\n" + BOOKMARK],
        [b"\n\n" + ADDED + b"\r\n \n"],
        [ADDED[i : i + 1] for i in range(len(ADDED))],
    ],
    ids=["split", "joined", "before the newline", "empty lines", "byte by byte"],
)
def test_events_come_whole_however_they_are_cut(pieces: list[bytes]) -> None:
    seen = summary(watched(*pieces, Peer.end_stream))
    assert seen == [("ADDED", "7"), *([("BOOKMARK", "500")] if any(b"BOOKMARK" in piece for piece in pieces) else [])]


def test_a_batch_is_what_arrived_together_and_does_not_wait_for_more() -> None:
    go_on = threading.Event()
    with WireServer(stream(ADDED + BOOKMARK, lambda _: go_on.wait(10), ADDED, Peer.end_stream)) as server:
        with server.client() as client, Api.all(client, ConfigMap).open_watch(None, "5") as batches:
            assert summary(next(batches)) == [("ADDED", "7"), ("BOOKMARK", "500")]
            go_on.set()
            assert summary(next(batches)) == [("ADDED", "7")]
            assert list(batches) == []


def test_an_event_of_one_and_a_half_megabytes_is_delivered_and_the_small_one_after_it() -> None:
    large = event("MODIFIED", config_map("big", "8", data={"x": "y" * 1_500_000}))
    pieces = [large[i : i + 16_384] for i in range(0, len(large), 16_384)]
    assert summary(watched(*pieces, ADDED, Peer.end_stream)) == [("MODIFIED", "8"), ("ADDED", "7")]


def long_event(size: int) -> bytes:
    """An ADDED event of exactly `size` bytes, with its newline."""
    short = event("ADDED", config_map("a", "7", data={"k": ""}))
    return event("ADDED", config_map("a", "7", data={"k": "x" * (size - len(short))}))


def without_end(piece: bytes, sent: list[int]) -> Any:
    def go_on(peer: Peer) -> None:
        while True:
            peer.chunk(piece)
            sent.append(len(piece))

    return go_on


def test_an_event_of_16_mib_is_delivered_and_a_longer_one_is_an_error_after_the_events_before_it() -> None:
    assert summary(watched(long_event((16 << 20) + 1), BOOKMARK)) == [("ADDED", "7"), ("BOOKMARK", "500")]
    with WireServer(stream(BOOKMARK, long_event((16 << 20) + 2))) as server, server.client() as client:
        with Api.all(client, ConfigMap).open_watch(WatchParams(bookmarks=True), "5") as batches:
            assert summary(next(batches)) == [("BOOKMARK", "500")]
            with pytest.raises(DecodeError, match="watch configmaps in all namespaces: an event is longer than 16 MiB"):
                list(batches)


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), ADDED[:-2] + b" " * (1 << 16), b" " * 2048],
                         ids=["no JSON", "an event that goes on", "blanks in small chunks"])
def test_a_line_without_end_is_given_up_at_16_mib(piece: bytes) -> None:
    sent: list[int] = []
    with pytest.raises(DecodeError, match="watch configmaps in all namespaces: an event is longer than 16 MiB"):
        watched(ADDED, without_end(piece, sent))
    assert sum(sent) < 64 << 20, "what the sockets hold is all that was sent in vain"


def test_so_is_one_that_gzip_makes_of_little() -> None:
    sent: list[int] = []
    zeros = gzip.compress(bytes(16 << 20))

    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        without_end(zeros, sent)(peer)

    with WireServer(serve) as server, server.client() as client:
        with Api.all(client, ConfigMap).open_watch(None, "5") as batches:
            with pytest.raises(DecodeError, match="an event is longer than 16 MiB"):
                list(batches)


def test_text_is_intact_when_characters_are_cut() -> None:
    data = event("ADDED", config_map(data={"x": "€uro \N{GRINNING FACE}"})).decode("ascii").encode()
    raw = data.replace(b"\\u20ac", "€".encode()).replace(b"\\ud83d\\ude00", "\N{GRINNING FACE}".encode())
    events = watched(*(raw[i : i + 1] for i in range(len(raw))), Peer.end_stream)
    record = events[0].record
    assert record is not None
    assert ConfigMap.from_record(record).data == {"x": "€uro \N{GRINNING FACE}"}


@pytest.mark.parametrize(
    "end",
    [Peer.reset, Peer.close, lambda peer: peer.send(b"1"), lambda peer: peer.send(b"40\r\n{")],
    ids=["reset", "end in mid event", "end in a chunk header", "end in a chunk"],
)
def test_a_cut_ends_the_watch_without_error_and_without_half_an_event(end: Any) -> None:
    assert summary(watched(ADDED, ADDED[:40], end)) in ([("ADDED", "7")], [])  # a reset may overtake the event


def test_an_error_event_carries_its_status() -> None:
    events = watched(event("ERROR", status(410, "Expired", "too old")), Peer.end_stream)
    assert [(seen.type, seen.status and seen.status.code, seen.resource_version) for seen in events] == [
        ("ERROR", 410, "")
    ]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(status(410, "Expired")).encode() + b"\n",
        json.dumps(status(410, "Expired")).encode(),
        json.dumps(status(410, "Expired"), indent=2).encode() + b"\n",
        json.dumps(status(410, "Expired"), indent=2).encode(),
    ],
    ids=["line", "no newline", "indented", "indented, no newline"],
)
@pytest.mark.parametrize("chunked", [True, False])
def test_a_bare_status_is_an_error_event(body: bytes, chunked: bool) -> None:
    steps = (body, Peer.end_stream) if chunked else (lambda peer: peer.answer(200, body),)
    events = watched(*steps, head=chunked)
    assert [(seen.type, seen.status and seen.status.code) for seen in events] == [("ERROR", 410)]


def test_a_line_that_is_no_event_is_a_decode_error_after_the_events_before_it() -> None:
    seen = []
    with WireServer(stream(ADDED + b"service unavailable\n", Peer.end_stream)) as server, server.client() as client:
        with Api.all(client, ConfigMap).open_watch(None, "5") as batches, pytest.raises(DecodeError):
            for batch in batches:
                seen += batch
    assert summary(seen) == [("ADDED", "7")]


def test_an_object_that_does_not_decode_comes_as_invalid_and_the_watch_goes_on() -> None:
    bad = event("ADDED", {**config_map("bad", "8"), "metadata": {**config_map("bad", "8")["metadata"], "labels": [1]}})
    with WireServer(stream(bad, ADDED, Peer.end_stream)) as server, server.client() as client:
        objects = [seen.obj for seen in Api.all(client, ConfigMap).watch(resource_version="5")]
    assert [found and found.name for found in objects] == ["bad", "a"]
    with pytest.raises(DecodeError):
        _ = objects[0].data  # type: ignore[union-attr]


@pytest.mark.parametrize(("params", "seen"), [
    (None, ["ADDED", "ADDED"]), (WatchParams(bookmarks=True), ["ADDED", "BOOKMARK", "ADDED"])])
def test_events_without_an_object_come_only_to_who_asks_for_them(params: WatchParams | None, seen: list[str]) -> None:
    with WireServer(stream(ADDED + BOOKMARK + ADDED, Peer.end_stream)) as server, server.client() as client:
        events = list(Api.all(client, ConfigMap).watch(params, "5"))
    assert [event.type for event in events] == seen
    assert [event.type for event in events if event.obj is None] == [kind for kind in seen if kind == "BOOKMARK"]


@pytest.mark.parametrize("code", [410, 403, 400])
def test_an_answer_that_is_an_error_is_raised_when_the_watch_opens(code: int) -> None:
    def refuse(peer: Peer) -> None:
        while peer.receive() is not None:
            peer.answer(code, status(code, "", "no"))

    with WireServer(refuse) as server, server.client() as client, pytest.raises(ApiError) as error:
        Api.all(client, ConfigMap).open_watch(None, "5")
    assert error.value.code == code
    assert error.value.is_expired == (code == 410)


def test_a_dead_connection_is_a_request_timeout_soon_after_the_watchs_own_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubectl_runtime.client.api.api.IDLE_MARGIN", 0.1)
    with WireServer(stream(ADDED, Peer.hold)) as server, server.client(timeout=0.1) as client:
        with (
            Api.all(client, ConfigMap).open_watch(WatchParams(timeout=0.1), "5") as batches,
            pytest.raises(RequestTimeout),
        ):
            list(batches)


def test_the_request_asks_for_what_the_parameters_say() -> None:
    with WireServer(stream(Peer.end_stream)) as server, server.client() as client:
        list(Api.namespaced(client, ConfigMap, "default").watch(WatchParams(label_selector="a=b", bookmarks=True),
                                                                       "5"))
    request = server.requests[0]
    assert request.target.startswith("/api/v1/namespaces/default/configmaps?watch=true&")
    for part in ("labelSelector=a%3Db", "timeoutSeconds=290", "allowWatchBookmarks=true", "resourceVersion=5"):
        assert part in request.target
    assert request.all_of("Accept-Encoding") == ["identity"]


def test_stop_ends_a_silent_watch() -> None:
    stop = StopToken()
    with WireServer(stream(ADDED, Peer.hold)) as server, server.client() as client:
        seen = []
        for found in Api.all(client, ConfigMap).watch(resource_version="5", stop=stop):
            seen.append(found.type)
            stop.set()
    assert seen == ["ADDED"]


def test_a_watch_that_was_opened_and_never_read_can_be_closed() -> None:
    gone = threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        peer.start_stream()
        peer.hold()
        gone.set()

    with WireServer(serve) as server, server.client() as client:
        Api.all(client, ConfigMap).open_watch(None, "5").close()
        assert gone.wait(20)


def test_bookmarks_say_when_the_initial_events_end() -> None:
    end = event(
        "BOOKMARK", {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    )
    events = watched(BOOKMARK + end, Peer.end_stream)
    assert [(seen.resource_version, seen.initial_events_end) for seen in events] == [("500", False), ("9", True)]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("line", "seen"), [
    (ADDED, [("ADDED", "7")]), (BOOKMARK, [("BOOKMARK", "500")]),
    (event("ERROR", status(410, "Expired")), [("ERROR", "")])], ids=["object", "bookmark", "error"])
def test_a_whole_line_without_its_newline_at_an_orderly_end_is_an_event(
        line: bytes, seen: list[tuple[str, str]], chunked: bool) -> None:
    body = line.rstrip(b"\n")
    steps = (body, Peer.end_stream) if chunked else (lambda peer: peer.answer(200, body),)
    assert summary(watched(*steps, head=chunked)) == seen


@pytest.mark.parametrize("cut", range(1, len(ADDED) - 1, 7))
def test_half_a_line_at_an_orderly_end_is_none(cut: int) -> None:
    assert watched(ADDED[:cut], Peer.end_stream) == []


@pytest.mark.parametrize(("end", "broke"), [(Peer.end_stream, False), (Peer.close, True), (Peer.reset, True)],
                         ids=["end", "close", "reset"])
def test_a_watch_tells_a_connection_that_failed_from_one_that_ended(end: Any, broke: bool) -> None:
    with WireServer(stream(BOOKMARK, end)) as server, server.client() as client:
        with Api.all(client, ConfigMap).open_watch(None, "5") as batches:
            assert batches.broke is None
            list(batches)
            assert (batches.broke is not None) is broke


@pytest.mark.parametrize("content", [{}, {"metadata": {}}, {"kind": "Bar", "x": 1}], ids=str)
def test_an_event_of_a_type_that_nobody_knows_ends_nothing(content: dict[str, Any]) -> None:
    assert summary(watched(event("FOO", content), ADDED, Peer.end_stream)) == [("FOO", ""), ("ADDED", "7")]
