"""`eventually`: what counts as not yet, and what is told at the end."""
from __future__ import annotations

import pytest

from kubectl_runtime import ApiError, RequestError
from kubectl_runtime.core.base.errors import Status
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import SimClock, eventually


@pytest.fixture
def clock():
    return SimClock(self_advancing=True)


def test_what_is_so_at_last_is_returned(clock):
    answers = iter([0, None, [], "yes"])
    assert eventually(lambda: next(answers), clock=clock) == "yes"
    assert clock.monotonic() == pytest.approx(0.15)


def test_until_decides(clock):
    numbers = iter(range(100))
    assert eventually(lambda: next(numbers), lambda number: number == 7, clock=clock) == 7
    assert eventually(lambda: 0, lambda number: number == 0, clock=clock) == 0


def test_the_last_answer_is_told(clock):
    with pytest.raises(AssertionError, match=r"<lambda> \(test_asking.py:\d+\) did not become true within 10 s "
                                             r"\(called 201 times\); last seen: \[\]"):
        eventually(lambda: sorted(()), clock=clock)
    assert clock.monotonic() == pytest.approx(10)


def test_objects_are_told_whole_but_secrets_are_not(clock):
    seen = ConfigMap.from_dict({"metadata": {"name": "a", "managedFields": [{"manager": "noise"}]},
                                "data": {"key": "value"}})
    with pytest.raises(AssertionError) as caught:
        eventually(lambda: seen, lambda obj: False, 1, clock=clock)
    assert '"key": "value"' in str(caught.value)
    assert "noise" not in str(caught.value)
    secret = Secret.from_dict({"metadata": {"name": "a"}, "data": {"key": "aHVzaA=="}})
    for ask in (lambda: secret, lambda: [secret]):
        with pytest.raises(AssertionError) as caught:
            eventually(ask, lambda obj: False, 1, clock=clock)
        assert "aHVzaA" not in str(caught.value)


def test_an_assertion_that_fails_is_not_yet_and_is_told(clock):
    numbers = iter(range(100))

    def looks():
        assert next(numbers) > 3, "too small"
        return "fine"

    assert eventually(looks, clock=clock) == "fine"

    def never():
        raise AssertionError("the third Pod is missing")

    told = r"(?s)^never .*last seen: nothing\n.* raised AssertionError: the third Pod"
    with pytest.raises(AssertionError, match=told) as caught:
        eventually(never, timeout=1, clock=clock)
    assert isinstance(caught.value.__cause__, AssertionError)


@pytest.mark.parametrize("error", [ApiError(Status(code=404, message="gone")), KeyError("status"),
                                   AttributeError("phase"), TypeError("None"), IndexError("0")])
def test_what_is_missing_may_come(clock, error):
    answers = iter([error, error, "there"])

    def ask():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert eventually(ask, clock=clock) == "there"


@pytest.mark.parametrize("error", [RequestError("no such verb"), NameError("typo"), ZeroDivisionError(),
                                   KeyboardInterrupt()])
def test_what_time_does_not_change_comes_out_at_once(clock, error):
    def ask():
        raise error

    with pytest.raises(type(error)):
        eventually(ask, clock=clock)
    assert clock.monotonic() == 0


def test_an_answer_at_the_very_end_counts(clock):
    assert eventually(lambda: clock.monotonic() >= 3, timeout=3, every=0.7, clock=clock)
    assert clock.monotonic() == 3


def test_the_system_clock_has_a_deadline_too():
    with pytest.raises(AssertionError, match=r"within 0.1 s"):
        eventually(lambda: False, timeout=0.1, every=0.02)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1}, {"every": 0}, {"timeout": float("nan")},
                                   {"timeout": "5"}, {"timeout": True}])
def test_no_time_is_refused(wrong):
    with pytest.raises(ValueError, match="seconds or a timedelta, above 0"):
        eventually(lambda: True, **wrong)


@pytest.mark.parametrize("given", [(True,), (None,), (lambda: True, True)])
def test_a_value_instead_of_a_function_is_refused(given):
    with pytest.raises(TypeError, match="lambda"):
        eventually(*given)


def test_long_and_broken_reprs_do_not_get_in_the_way(clock):
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.raises(AssertionError, match="whose repr raised RuntimeError"):
        eventually(Broken, lambda _: False, 1, clock=clock)
    with pytest.raises(AssertionError) as caught:
        eventually(lambda: "x" * 100_000, lambda _: False, 1, clock=clock)
    assert len(str(caught.value)) < 5000
