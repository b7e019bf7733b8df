"""What a rule makes of the bytes of an answer and of a connection."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.transport.faults import Close, Exchange, Faults, Plan, Reset, Rule, Send, Stall, Wait
from kubectl_runtime.apiserver.transport.faults.shapers import sent
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.testing.clock import SimClock

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
BODY = b"0123456789"


def exchange(*rules: Callable[[Rule], Rule]) -> Exchange:
    """The exchange of a request that all these rules take."""
    faults = Faults()
    faults.bind(SimClock(start=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)), lambda: None)
    for rule in rules:
        rule(faults.on())
    made = faults.begin(HttpRequest("GET", "/api/v1/pods"))
    assert made is not None
    return made


def whole(*rules: Callable[[Rule], Rule]) -> Plan:
    return exchange(*rules).whole(HEAD, BODY)


@pytest.mark.parametrize(("how", "step"), [("reset", Reset()), ("close", Close()), ("stall", Stall())])
def test_a_dropped_request_is_never_handled(how, step) -> None:
    made = exchange(lambda rule: rule.drop(how))
    assert made.before == [step]
    assert made.unhandled


def test_never_answering_is_a_stall_before_the_request_is_handled() -> None:
    assert exchange(lambda rule: rule.never_answer()).before == [Stall()]


def test_delays_add_up_and_stand_before_or_after_the_handling() -> None:
    made = exchange(lambda rule: rule.delay(1).delay(2, handled=True), lambda rule: rule.delay(0.5))
    assert made.before == [Wait(1), Wait(0.5)]
    assert not made.unhandled
    assert made.answer(HttpResponse(200, delay=3)).delay == 5


def test_the_first_answer_counts() -> None:
    made = exchange(lambda rule: rule.answer(503, "busy"), lambda rule: rule.answer(500))
    assert made.instead is not None
    assert (made.instead.status, made.instead.body) == (503, b"busy")
    assert made.instead.header("content-type") == "text/plain; charset=utf-8"


def test_a_mapping_is_answered_as_json_and_a_given_content_type_is_kept() -> None:
    made = exchange(lambda rule: rule.answer(200, {"items": None}, {"content-type": "text/html", "X-A": "b"}))
    assert made.instead is not None
    assert made.instead.headers == [("content-type", "text/html"), ("X-A", "b")]
    assert made.instead.body == b'{"items":null}'


def test_a_status_has_the_reason_of_its_code() -> None:
    made = exchange(lambda rule: rule.status(504, details={"retryAfterSeconds": 1}))
    assert made.instead is not None
    assert json.loads(made.instead.body) == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Timeout", "code": 504,
        "message": "the fault script answers 504", "details": {"retryAfterSeconds": 1}}


def test_an_answer_after_the_handling_replaces_what_the_server_says() -> None:
    made = exchange(lambda rule: rule.status(500, handled=True))
    assert made.instead is None
    assert made.answer(HttpResponse(201, body=b"{}")).status == 500


def test_an_answer_can_be_rewritten() -> None:
    made = exchange(lambda rule: rule.rewrite(lambda given: HttpResponse(given.status, body=given.body.upper())))
    assert made.answer(HttpResponse(200, body=b"abc")).body == b"ABC"


@pytest.mark.parametrize(("args", "header", "details"), [
    ((2,), "2", None), ((1.5,), "1.5", None), ((3, "date"), "Wed, 04 Mar 2026 05:06:10 GMT", None),
    ((2, "details"), None, {"retryAfterSeconds": 2}), ((2, "none"), None, None), (("soon",), "soon", None),
    (("-1",), "-1", None),
])
def test_429_asks_to_wait_in_each_form(args, header, details) -> None:
    made = exchange(lambda rule: rule.throttle(*args))
    assert made.instead is not None
    assert made.instead.status == 429
    assert made.instead.header("Retry-After") == header
    status = json.loads(made.instead.body)
    assert (status["reason"], status.get("details")) == ("TooManyRequests", details)
    if args[-1] == "date":
        assert parsedate_to_datetime(header) == datetime(2026, 3, 4, 5, 6, 10, tzinfo=UTC)


def test_429_in_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form of Retry-After"):
        exchange(lambda rule: rule.throttle(1, "sometime"))


@given(at=st.integers(-60, 60))
def test_an_answer_is_truncated_at_any_byte(at) -> None:
    message = HEAD + BODY
    plan = whole(lambda rule: rule.truncate(at, then="reset"))
    if at > len(message):
        assert plan == [Send(HEAD), Send(BODY)]
        return
    cut = at if at >= 0 else max(0, len(message) + at)
    assert sent(plan) == message[:cut]
    assert plan[-1] == Reset()


@given(at=st.integers(-15, 15))
def test_a_body_is_truncated_at_any_byte(at) -> None:
    plan = whole(lambda rule: rule.truncate(at, of="body", then="close"))
    if at > len(BODY):
        assert plan == [Send(HEAD), Send(BODY)]
        return
    assert sent(plan) == HEAD + BODY[:at if at >= 0 else max(0, len(BODY) + at)]
    assert plan[-1] == Close()


def test_a_lost_answer_is_handled_and_not_a_byte_of_it_sent() -> None:
    made = exchange(lambda rule: rule.lose_answer())
    assert made.before == []
    assert made.whole(HEAD, BODY) == [Reset()]
    assert exchange(lambda rule: rule.lose_answer("stall")).head(HEAD) == [Stall()]


def test_a_half_open_connection_has_headers_and_nothing_more() -> None:
    assert whole(lambda rule: rule.stall_after_headers()) == [Send(HEAD), Stall()]
    assert exchange(lambda rule: rule.stall_after_headers()).head(HEAD) == [Send(HEAD), Stall()]


def test_a_truncated_stream_counts_over_its_chunks() -> None:
    made = exchange(lambda rule: rule.truncate(7, of="body", then="close"))
    assert made.head(HEAD) == [Send(HEAD)]
    assert made.data(b"12345") == [Send(b"12345")]
    assert made.data(b"67890") == [Send(b"67"), Close()]


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_split_writes_lose_nothing_and_have_the_sizes(sizes) -> None:
    plan = whole(lambda rule: rule.split(*sizes, pause=0.5))
    assert sent(plan) == HEAD + BODY
    writes = [step for step in plan if isinstance(step, Send)]
    assert all(len(step.data) <= max(sizes) for step in writes)
    assert plan[1::2] == [Wait(0.5)] * (len(writes) - 1)


def test_a_slow_body_takes_its_time() -> None:
    plan = whole(lambda rule: rule.slow(2, piece=4))
    assert plan == [Send(HEAD), Wait(2), Send(b"0123"), Wait(2), Send(b"4567"), Wait(1), Send(b"89")]


def test_byte_faults_combine_in_their_order() -> None:
    plan = whole(lambda rule: rule.split(3), lambda rule: rule.truncate(5, of="body", then="reset"))
    assert plan[-3:] == [Send(b"012"), Send(b"34"), Reset()]
    assert sent(plan) == HEAD + b"01234"


def test_hanging_up_comes_after_the_answer() -> None:
    assert whole(lambda rule: rule.hang_up(after=1)) == [Send(HEAD + BODY), Wait(1), Close()]


def test_new_connections_are_dropped_delayed_or_ignored() -> None:
    faults = Faults()
    faults.connections().first().drop()
    faults.connections().nth(2).delay(3)
    faults.connections().nth(3).never_answer()
    faults.on().nth(1).answer(500)  # requests are counted apart from connections
    assert [faults.connect() for _ in range(4)] == [[Reset()], [Wait(3)], [Stall()], []]
