"""Code that fails again and again is told of as often as helps, and no more."""
from __future__ import annotations

import logging
import sys
import threading
from typing import NoReturn

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import MOST_PLACES, WITHIN, Guard
from kubectl_runtime.testing import SimClock


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def fail(error: BaseException) -> NoReturn:
    raise error


def fail_on_another_line(error: BaseException) -> NoReturn:
    raise error


def test_the_first_failure_has_its_traceback_and_the_thousands_after_it_a_line_a_doubling(
        caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard("mapper", clock=SimClock())
    for number in range(5000):
        assert guard.call("default", str, fail, ValueError(number)) == "default"
    assert len(caplog.records) == 13
    first, second, *_, last = caplog.records
    assert first.getMessage() == "mapper, given 0, raised ValueError"
    assert first.exc_info is not None
    assert second.getMessage() == "mapper, given 1, raised ValueError again: 2 failures like it in 0 s"
    assert last.getMessage() == "mapper, given 4095, raised ValueError again: 4096 failures like it in 0 s"
    assert not any(record.exc_info for record in caplog.records[1:])


def test_what_fails_seldom_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    guard = Guard("mapper", clock=clock)
    for _ in range(1024):
        guard.call(None, "", fail, ValueError())
    caplog.clear()
    for _ in range(600):
        clock.advance(1)
        guard.call(None, "", fail, ValueError())
    assert [record.getMessage() for record in caplog.records] == [
        f"mapper raised ValueError again: {1024 + after} failures like it in {after} s" for after in range(60, 601, 60)]


def test_another_place_is_told_with_its_own_traceback_and_its_own_count(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard("mapper", clock=SimClock())
    for _ in range(3):
        for function, error in ((fail, ValueError()), (fail_on_another_line, ValueError()), (fail, KeyError())):
            guard.call(None, "", function, error)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "mapper raised ValueError", "mapper raised ValueError", "mapper raised KeyError"]
    assert len(caplog.records) == 6


def test_places_without_end_are_counted_as_one(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard("mapper", clock=SimClock())
    for number in range(1000):
        guard.call(None, "", fail, type(f"Error{number}", (Exception,), {})())
    assert sum(record.exc_info is not None for record in caplog.records) == MOST_PLACES + 1
    assert len(caplog.records) < MOST_PLACES + 12


def test_that_it_works_again_is_told_once_when_it_has_not_failed_for_a_minute(told: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    guard = Guard("mapper", clock=clock)
    guard.call(None, "", fail, ValueError())
    clock.advance(10)
    guard.call(None, "", fail, ValueError())
    told.clear()
    clock.advance(WITHIN - 1)
    assert guard.call(None, "", int, "5") == 5
    assert told.messages == []
    clock.advance(1)
    assert [guard.call(None, "", int, "5"), guard.call(None, "", int, "5")] == [5, 5]
    assert told.messages == ["mapper works again after 2 failures in 10 s"]
    guard.call(None, "", fail, ValueError())
    assert told.messages[1:] == ["mapper raised ValueError"]
    clock.advance(WITHIN)
    guard.call(None, "", int, "5")
    assert told.messages[2:] == ["mapper works again after 1 failure in 0 s"]


def test_what_fails_for_every_second_object_does_not_work_again(told: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    guard = Guard("mapper", clock=clock)
    for _ in range(600):
        clock.advance(1)
        guard.call(None, "", fail, ValueError())
        guard.call(None, "", int, "5")
    assert len(told.messages) <= 10 + 600 / WITHIN
    assert not any("works again" in line for line in told.messages)


def test_an_error_of_the_library_says_it_all_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    Guard("source").call(None, "", fail, RequestError("no such kind"))
    (record,) = caplog.records
    assert record.getMessage() == "source raised RequestError: no such kind"
    assert not record.exc_info


def test_what_shows_an_object_may_raise_too(caplog: pytest.LogCaptureFixture) -> None:
    assert Guard("mapper").call(1, lambda _: fail(SystemExit(1)), fail, ValueError()) == 1
    assert caplog.messages == ["mapper, given something that cannot be shown (SystemExit), raised ValueError"]


def test_the_person_at_the_keyboard_is_obeyed_in_the_main_thread_only() -> None:
    guard = Guard("mapper")
    with pytest.raises(KeyboardInterrupt):
        guard.call(None, "", fail, KeyboardInterrupt())
    passed: list[object] = []
    thread = threading.Thread(target=lambda: passed.append(guard.call("default", "", fail, KeyboardInterrupt())))
    thread.start()
    thread.join(10)
    assert passed == ["default"]


def test_many_threads_lose_no_failure(told: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    guard = Guard("mapper", clock=clock)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [guard.call(None, "", fail, ValueError()) for _ in range(500)])
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(before)
    clock.advance(WITHIN)
    guard.call(None, "", int, "5")
    assert told.messages[-1] == "mapper works again after 2000 failures in 0 s"
