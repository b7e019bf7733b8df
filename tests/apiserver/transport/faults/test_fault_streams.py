"""What a rule makes of the events of a watch."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.transport.faults import Close, Faults, Plan, Reset, Rule, Send, Stall
from kubectl_runtime.apiserver.transport.faults.shapers import sent
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.testing.clock import SimClock

LINES = [b'{"n":1}\n', b'{"n":2}\n', b'{"n":3}\n', b'{"n":4}\n']
TAIL = b"0\r\n\r\n"


def frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Source:
    """An `EventStream` of given chunks that ends if told so."""

    def __init__(self, chunks: list[bytes], *, ends: bool = False) -> None:
        self.chunks, self.ends, self.was_closed = list(chunks), ends, False
        self.callback: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        return self.was_closed or (self.ends and not self.chunks)

    @property
    def deadline(self) -> float | None:
        return 100.0

    def poll(self) -> bytes | None:
        return self.chunks.pop(0) if self.chunks else None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def close(self) -> None:
        self.was_closed = True


class Watch:
    """What a client gets of a watch under some rules."""

    def __init__(self, source: Source, *rules: Callable[[Rule], Rule]) -> None:
        self.clock = SimClock()
        faults = Faults()
        faults.bind(self.clock, lambda: None)
        for rule in rules:
            rule(faults.on("watch"))
        exchange = faults.begin(HttpRequest("GET", "/api/v1/pods", [("watch", "1")]))
        assert exchange is not None
        self.exchange = exchange
        stream = exchange.answer(HttpResponse(200, stream=source)).stream
        assert stream is not None
        self.stream = stream

    def polled(self) -> list[bytes]:
        """The chunks that are there now."""
        chunks = []
        while (chunk := self.stream.poll()) is not None:
            chunks.append(chunk)
        return chunks

    def end(self) -> Plan:
        assert self.stream.closed
        return self.exchange.end(frame, TAIL)


@given(after=st.integers(0, 6), how=st.sampled_from(["end", "close", "reset", "stall"]))
def test_a_watch_ends_after_so_many_events_in_each_way(after, how) -> None:
    source = Source(LINES)
    watch = Watch(source, lambda rule: rule.end_watch(after=after, how=how))
    assert watch.polled() == LINES[:after]
    assert watch.stream.closed is (after <= 4)
    if watch.stream.closed:
        assert source.was_closed
        assert watch.end() == [{"end": Send(TAIL), "close": Close(), "reset": Reset(), "stall": Stall()}[how]]


def test_events_that_come_in_one_chunk_are_counted_one_by_one() -> None:
    watch = Watch(Source([b"".join(LINES)]), lambda rule: rule.end_watch(after=2))
    assert watch.polled() == LINES[:2]


def test_a_watch_that_the_server_ends_ends_as_ever() -> None:
    watch = Watch(Source(LINES, ends=True), lambda rule: rule.end_watch(after=9, how="reset"))
    assert watch.polled() == LINES
    assert watch.end() == [Send(TAIL)]


@given(at=st.integers(0, len(LINES[1])), then=st.sampled_from(["close", "reset", "stall"]))
def test_an_event_is_cut_at_any_byte_of_its_line(at, then) -> None:
    watch = Watch(Source(LINES), lambda rule: rule.cut_event(2, at=at, then=then))
    assert watch.polled() == LINES[:1]
    plan = watch.end()
    assert sent(plan) == b"8\r\n" + LINES[1][:at]
    assert plan[-1] == {"close": Close(), "reset": Reset(), "stall": Stall()}[then]


@pytest.mark.parametrize(("at", "bytes_"), [
    (0, b""), (1, b"8"), (2, b"8\r"), (3, b"8\r\n"), (12, b"8\r\n" + LINES[0] + b"\r")])
def test_an_event_is_cut_within_the_header_of_its_chunk(at, bytes_) -> None:
    watch = Watch(Source(LINES), lambda rule: rule.cut_event(1, at=at, of="chunk"))
    assert watch.polled() == []
    assert sent(watch.end()) == bytes_


def test_half_a_line_can_end_in_order() -> None:
    watch = Watch(Source(LINES), lambda rule: rule.cut_event(2, at=4, then="end"))
    assert watch.polled() == [LINES[0], LINES[1][:4]]
    assert watch.end() == [Send(TAIL)]


def test_events_are_doubled_all_or_some() -> None:
    assert Watch(Source(LINES[:2]), lambda rule: rule.duplicate_events()).polled() == [
        LINES[0], LINES[0], LINES[1], LINES[1]]
    assert Watch(Source(LINES[:2]), lambda rule: rule.duplicate_events(3, 2)).polled() == [LINES[0], *[LINES[1]] * 3]


def test_events_are_lost_and_rewritten() -> None:
    assert Watch(Source(LINES), lambda rule: rule.drop_events(1, 3)).polled() == [LINES[1], LINES[3]]
    watch = Watch(Source(LINES[:1]), lambda rule: rule.rewrite_events(
        lambda line, number: line.replace(b"n", b"%d" % number)))
    assert watch.polled() == [b'{"1":1}\n']


def test_events_are_put_in_before_and_between() -> None:
    watch = Watch(Source(LINES[:2]), lambda rule: rule.insert_events({"a": 1}, "text").insert_events(b"x\n", after=3))
    # what an action puts in counts for the next one
    assert watch.polled() == [b'{"a":1}\n', b"text\n", LINES[0], b"x\n", LINES[1]]


def test_an_expired_watch_is_an_error_event_within_200() -> None:
    watch = Watch(Source(LINES), lambda rule: rule.expire_watch(after=1))
    first, error = watch.polled()
    assert first == LINES[0]
    event = json.loads(error)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert watch.end() == [Send(TAIL)]


def test_held_events_come_in_one_piece_and_none_is_lost_at_the_end() -> None:
    source = Source(LINES[:3], ends=True)
    watch = Watch(source, lambda rule: rule.batch_events(2))
    assert watch.polled() == [LINES[0] + LINES[1], LINES[2]]
    assert watch.stream.closed
    assert Watch(Source(LINES[:1]), lambda rule: rule.batch_events(2)).polled() == []


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_rechunked_events_lose_nothing(sizes) -> None:
    pieces = Watch(Source(LINES), lambda rule: rule.rechunk_events(*sizes)).polled()
    assert b"".join(pieces) == b"".join(LINES)
    assert all(len(piece) <= max(sizes) for piece in pieces)


def test_late_events_come_when_their_time_has_come() -> None:
    source = Source(LINES[:1])
    watch = Watch(source, lambda rule: rule.lag_events(5))
    assert watch.polled() == []
    assert watch.stream.deadline == 5
    watch.clock.advance(2)
    source.chunks.append(LINES[1])
    assert watch.polled() == []
    watch.clock.advance(3)
    assert watch.polled() == [LINES[0]]
    assert watch.stream.deadline == 7
    source.ends = True
    assert not watch.stream.closed  # the second one is still on its way
    watch.clock.advance(2)
    assert watch.polled() == [LINES[1]]
    assert watch.stream.closed


def test_event_faults_combine_in_their_order() -> None:
    watch = Watch(Source(LINES), lambda rule: rule.duplicate_events().end_watch(after=3).batch_events(2))
    assert watch.polled() == [LINES[0] * 2, LINES[1]]
    assert watch.end() == [Send(TAIL)]


def test_a_watch_that_is_answered_otherwise_is_closed() -> None:
    source = Source(LINES)
    faults = Faults()
    faults.on().status(500, handled=True)
    exchange = faults.begin(HttpRequest("GET", "/api/v1/pods", [("watch", "1")]))
    assert exchange is not None
    assert exchange.answer(HttpResponse(200, stream=source)).stream is None
    assert source.was_closed


def test_readiness_is_the_sources() -> None:
    source = Source([])
    watch = Watch(source, lambda rule: rule.duplicate_events())
    called = []
    watch.stream.on_ready(lambda: called.append(True))
    assert source.callback is not None
    source.callback()
    assert called == [True]
    watch.stream.close()
    assert source.was_closed
    assert watch.stream.deadline is None
