"""The scheduler alone: times, messages, holding, debounce, order. Time is a number that the test passes."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.runtime.queue.scheduler import MAX_DELAY, Scheduler


def drain(scheduler: Scheduler[str, str], now: float, running: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    popped = []
    while (entry := scheduler.pop_due(now, running)) is not None:
        popped.append((entry.key, entry.message))
    return popped


def test_a_key_that_is_added_five_times_comes_out_once() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    for number in range(5):
        scheduler.trigger("a", str(number), 0)
    assert drain(scheduler, 0) == [("a", "0")]


def test_a_held_key_comes_out_when_it_is_released_and_blocks_nobody_meanwhile() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.trigger("a", "first", 0)
    scheduler.trigger("b", "first", 0)
    assert drain(scheduler, 0, frozenset("a")) == [("b", "first")]
    scheduler.trigger("a", "second", 1)
    assert drain(scheduler, 1, frozenset("a")) == []
    scheduler.release("a")
    assert drain(scheduler, 1) == [("a", "first")]
    assert drain(scheduler, 100) == []


def test_a_released_key_goes_before_those_that_became_due_after_it() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.trigger("a", "", 0)
    assert drain(scheduler, 0, frozenset("a")) == []
    scheduler.trigger("b", "", 1)
    scheduler.release("a")
    assert drain(scheduler, 1) == [("a", ""), ("b", "")]


def test_keys_come_out_at_their_times_and_not_before() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    for key, at in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        scheduler.add(key, "", at, 0)
    assert scheduler.next_due() == 1.0
    assert drain(scheduler, 0.99) == []
    assert drain(scheduler, 1.0) == [("a", "")]
    assert drain(scheduler, 5.0) == [("b", ""), ("c", "")]
    assert scheduler.next_due() is None


def test_an_earlier_request_replaces_a_later_one_with_its_message_and_a_later_one_is_dropped() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("a", "in ten", 10, 0)
    scheduler.add("a", "in two", 2, 0)
    scheduler.add("a", "in five", 5, 0)
    assert drain(scheduler, 1) == []
    assert drain(scheduler, 2) == [("a", "in two")]
    assert drain(scheduler, 100) == []


def test_a_trigger_makes_the_timer_of_its_key_superfluous() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("a", "timer", 5, 0)
    scheduler.trigger("a", "trigger", 0)
    assert drain(scheduler, 0) == [("a", "trigger")]
    assert drain(scheduler, 10) == []


def test_a_key_that_came_out_may_be_added_again() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("a", "once", 1, 0)
    assert drain(scheduler, 1) == [("a", "once")]
    scheduler.add("a", "again", 2, 1)
    assert drain(scheduler, 2) == [("a", "again")]


def test_due_keys_come_out_in_the_order_in_which_they_became_due() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("timer", "", 1.0, 0)
    scheduler.trigger("early", "", 0.5)
    scheduler.trigger("late", "", 2.0)
    scheduler.trigger("later", "", 2.0)
    assert [key for key, _ in drain(scheduler, 2.0)] == ["early", "timer", "late", "later"]


def test_the_debounce_is_added_to_a_trigger_and_every_new_one_moves_it_with_its_message() -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=3)
    scheduler.trigger("a", "first", 0)
    scheduler.trigger("a", "second", 1)
    assert drain(scheduler, 3.5) == []
    assert drain(scheduler, 4) == [("a", "second")]


def test_a_key_that_never_comes_to_rest_runs_after_the_maximum_wait() -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=3, max_wait=10)
    for second in range(10):
        scheduler.trigger("a", str(second), second)
        assert drain(scheduler, second) == []
    assert drain(scheduler, 9.9) == []
    assert drain(scheduler, 10) == [("a", "9")]


def test_a_debounced_trigger_never_delays_a_timer() -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=3)
    scheduler.add("a", "timer", 2, 0)
    scheduler.trigger("a", "trigger", 1)
    assert [key for key, _ in drain(scheduler, 2)] == ["a"]


def test_timers_are_exact_even_when_triggers_are_debounced() -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=3)
    scheduler.add("a", "", 1, 0)
    assert drain(scheduler, 1) == [("a", "")]


def test_times_in_the_past_are_now_and_times_beyond_180_days_are_clamped() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("past", "", -5, 0)
    scheduler.add("far", "", 1e12, 0)
    assert drain(scheduler, 0) == [("past", "")]
    assert scheduler.next_due() == MAX_DELAY == 180 * 86400


def test_a_removed_key_does_not_come_out_whatever_its_place() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("waiting", "", 5, 0)
    scheduler.trigger("ready", "", 0)
    scheduler.trigger("held", "", 0)
    assert drain(scheduler, 0, frozenset(("held", "ready"))) == []
    scheduler.release("ready")
    assert [scheduler.remove(key) for key in ("waiting", "ready", "held", "unknown")] == [True, True, True, False]
    assert scheduler.ready_count(10) == 0
    scheduler.release("held")
    assert drain(scheduler, 10) == []
    assert len(scheduler) == 0


def test_what_is_moved_and_removed_for_ever_leaves_no_memory_behind() -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=1)
    for round_ in range(10_000):
        scheduler.trigger("a", "", round_ / 1000)
        scheduler.add(f"gone-{round_}", "", 1e6, round_ / 1000)
        scheduler.remove(f"gone-{round_}")
        scheduler.add("x", "", 0, round_ / 1000)
        scheduler.remove("x")
    assert len(scheduler) == 1
    assert len(scheduler._heap) < 200
    assert len(scheduler._urgent.items) < 200


def test_a_maximum_wait_below_the_debounce_is_refused() -> None:
    with pytest.raises(ValueError, match="debounce"):
        Scheduler(debounce=5, max_wait=1)


STEPS = st.lists(st.tuples(st.sampled_from(["trigger", "add", "pop", "finish", "remove", "time"]),
                           st.sampled_from("abc"), st.integers(0, 12)), max_size=60)


@given(STEPS, st.sampled_from([(0.0, 0.0), (2.0, 2.0), (2.0, 5.0)]))
def test_against_a_list_of_requests(steps: list[tuple[str, str, int]], timing: tuple[float, float]) -> None:
    """The model keeps every request since a key last ran and computes from them when it must come out."""
    debounce, max_wait = timing
    scheduler: Scheduler[str, int] = Scheduler(debounce=debounce, max_wait=max_wait)
    now = 0.0
    requests: dict[str, tuple[float, float]] = {}  # key -> (at, limit)
    running: set[str] = set()
    for kind, key, number in steps:
        known = requests.get(key)
        due = known is not None and known[0] <= now
        if kind == "trigger" and not due:
            limit = min(known[1] if known else float("inf"), now + max_wait)
            requests[key] = (min(now + debounce, limit), limit)
            scheduler.trigger(key, number, now)
        elif kind == "trigger":
            scheduler.trigger(key, number, now)
        elif kind == "add":
            if not due:
                at, limit = known or (float("inf"), float("inf"))
                requests[key] = (min(at, now + number), min(limit, now + number))
            scheduler.add(key, number, now + number, now)
        elif kind == "time":
            now += number
        elif kind == "remove":
            assert scheduler.remove(key) == (requests.pop(key, None) is not None)
        elif kind == "finish":
            running.discard(key)
            scheduler.release(key)
        else:
            runnable = {k: at for k, (at, _) in requests.items() if at <= now and k not in running}
            entry = scheduler.pop_due(now, running)
            assert (entry is None) == (not runnable)
            if entry is not None:
                assert runnable[entry.key] == min(runnable.values())
                running.add(entry.key)
                del requests[entry.key]
        assert {k: scheduler.due_at(k) for k in requests} == {k: at for k, (at, _) in requests.items()}
        assert len(scheduler) == len(requests)
