"""RetryPolicy: which failures are retried, and after what delay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import RequestError, RetryPolicy
from kubectl_runtime.client.http.retry import Failure, retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def answered(code: int, wait: float | None = None) -> Failure:
    return Failure(code=code, answered=True, retry_after=wait)


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_repeatable_call_is_retried_after_these_answers(code: int) -> None:
    assert RetryPolicy().next(0, answered(code)) is not None


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500, 501])
def test_no_call_is_retried_after_other_answers(code: int) -> None:
    assert RetryPolicy().next(0, answered(code)) is None


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (answered(429), False),
        (answered(429, 1), True),
        (answered(502), False),
        (answered(502, 1), False),
        (answered(503), False),
        (answered(503, 1), True),
        (answered(504), False),
        (answered(504, 1), False),
        (Failure(sent=False), True),
        (Failure(sent=True), False),
        (Failure(sent=True, answered=True), False),
        (Failure(code=500, message="etcdserver: request timed out"), False),
    ],
)
def test_a_post_is_retried_only_where_the_server_cannot_have_done_it(failure: Failure, again: bool) -> None:
    assert (RetryPolicy().next(0, failure, repeatable=False) is not None) == again


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (Failure(sent=False), True),
        (Failure(sent=True), True),
        (Failure(sent=True, answered=True), True),
        (Failure(code=500, message="etcdserver: request timed out, possibly due to previous leader failure"), True),
        (Failure(code=500, message="Internal error occurred: etcdserver: too many requests"), False),
        (Failure(sent=False, permanent=True), False),
        (Failure(sent=True, permanent=True), False),
    ],
)
def test_a_repeatable_call_is_retried_while_no_whole_answer_came(failure: Failure, again: bool) -> None:
    assert (RetryPolicy().next(0, failure) is not None) == again


def test_the_default_makes_eight_retries() -> None:
    delays = [RetryPolicy().next(attempt, answered(429)) for attempt in range(9)]
    assert None not in delays[:8]
    assert delays[8] is None


def test_never_retries_nothing() -> None:
    assert RetryPolicy.never().next(0, answered(429)) is None


@given(attempt=st.integers(0, 10_000), random=st.floats(0, 1, exclude_max=True))
def test_delays_double_up_to_the_cap_and_lose_at_most_half_to_jitter(attempt: int, random: float) -> None:
    delay = RetryPolicy(retries=100_000, random=lambda: random).next(attempt, answered(429))
    whole = min(10.0, 0.2 * 2.0 ** min(attempt, 60))
    assert delay is not None
    assert whole / 2 <= delay <= whole


@given(attempt=st.integers(0, 7), wait=st.floats(0, 1e6))
def test_what_the_server_asked_for_is_a_floor(attempt: int, wait: float) -> None:
    delay = RetryPolicy().next(attempt, answered(429, wait))
    assert delay is not None
    assert delay >= wait


def test_durations_may_be_timedeltas() -> None:
    policy = RetryPolicy(base=timedelta(seconds=1), maximum=timedelta(seconds=2), random=lambda: 0.0)
    assert [policy.next(attempt, answered(429)) for attempt in range(3)] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("arguments", [{"base": 0}, {"base": 3, "maximum": 2}, {"factor": 0.5}, {"retries": -1}])
def test_impossible_policies_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(RequestError):
        RetryPolicy(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("2", None, 2.0),
        (" 2 ", 9, 2.0),
        (None, 2, 2.0),
        (None, None, None),
        ("-1", None, None),
        ("soon", None, None),
        ("soon", 3, 3.0),
        ("", 0, None),
        (format_datetime(NOW + timedelta(seconds=3), usegmt=True), None, 3.0),
        (format_datetime(NOW - timedelta(seconds=3), usegmt=True), None, 0.0),
        ("9" * 500, None, None),
        ("9" * 500, 3, 3.0),
        ("99999999999", None, None),
        ("nan", None, None),
        ("inf", 3, 3.0),
        ("1e400", None, None),
        ("1.5", None, None),
        ("٣", None, None),
        ("²", None, None),
        ("Sun, 06 Nov 1994 08:49:37 +9999999999999999999999", None, None),
        ("Sun, 06 Nov 1994 08:49:37 -9999999999999999999999", 3, 3.0),
        ("Sun, 06 Nov 1994 08:49:37 +99999999", None, None),
        ("Sun, 06 Nov 99999999999999999999 08:49:37 GMT", None, None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None, None),
        ("Mon, 01 Jan 0001 00:00:00 +1400", None, 0.0),
        (None, -3, None),
        (None, 10**400, None),
    ],
)
def test_retry_after_comes_as_seconds_a_date_or_in_the_status(
    header: str | None, details: int | None, expected: float | None
) -> None:
    assert retry_after(header, details, NOW) == expected


@given(st.text(max_size=40) | st.builds(
    "{} Nov {} {}:49:37 {}{}".format, st.sampled_from(["Sun, 06", "0", "٣"]), st.integers(), st.integers(),
    st.sampled_from("+- "), st.integers(0)))
def test_no_header_breaks_the_parser(text: str) -> None:
    found = retry_after(text, None, NOW)
    assert found is None or found >= 0
