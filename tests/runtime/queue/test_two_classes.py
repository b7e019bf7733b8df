"""Urgent keys before background ones, and retries behind the rate limit: the scheduler alone."""
from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.queue.runs import BURST, OPEN, RetryRateLimit
from kubectl_runtime.runtime.queue.scheduler import BACKGROUND_TURN, FEW, Scheduler


def drain(scheduler: Scheduler[str, str], now: float, running: frozenset[str] = frozenset()) -> list[str]:
    popped = []
    while (entry := scheduler.pop_due(now, running)) is not None:
        popped.append(entry.key)
    return popped


def resynced(count: int, *, rate_limit: RetryRateLimit | None = None) -> Scheduler[str, str]:
    scheduler: Scheduler[str, str] = Scheduler(rate_limit=rate_limit)
    for number in range(count):
        scheduler.trigger(f"background-{number}", "", 0, background=True)
    return scheduler


def test_an_event_behind_300_resynced_keys_runs_among_the_first_ten() -> None:
    scheduler = resynced(300)
    scheduler.trigger("event", "", 0)
    assert "event" in drain(scheduler, 0)[:10]


def test_background_keys_keep_their_order_and_so_do_urgent_ones() -> None:
    scheduler = resynced(3)
    for name in ("a", "b", "c"):
        scheduler.trigger(name, "", 0)
    assert drain(scheduler, 0) == ["a", "b", "c", "background-0", "background-1", "background-2"]


def test_every_eighth_run_is_a_background_one_however_many_urgent_keys_there_are() -> None:
    scheduler = resynced(5)
    for number in range(100):
        scheduler.trigger(f"urgent-{number}", "", 0)
    order = drain(scheduler, 0)
    assert [place for place, key in enumerate(order, 1) if key.startswith("background")] == [8, 16, 24, 32, 40]
    assert BACKGROUND_TURN == 8


def test_a_urgent_trigger_moves_a_background_entry_to_the_end_of_the_urgent_ones_and_it_runs_once() -> None:
    scheduler = resynced(3)
    scheduler.trigger("urgent", "", 0)
    scheduler.trigger("background-1", "", 0)
    assert drain(scheduler, 0) == ["urgent", "background-1", "background-0", "background-2"]


def test_a_background_trigger_never_demotes_a_urgent_entry() -> None:
    scheduler = resynced(2)
    scheduler.trigger("urgent", "", 0)
    scheduler.trigger("urgent", "", 0, background=True)
    assert drain(scheduler, 0)[0] == "urgent"


def test_a_waiting_background_entry_becomes_urgent_as_well() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    scheduler.add("a", "", 5, 0, background=True)
    scheduler.add("a", "", 3, 0)
    scheduler.trigger("b", "", 0, background=True)
    assert drain(scheduler, 4) == ["a", "b"]


def test_a_held_key_keeps_its_class_and_comes_first_of_it() -> None:
    scheduler = resynced(3)
    assert drain(scheduler, 0, frozenset(("background-0", "background-1", "background-2"))) == []
    scheduler.trigger("urgent", "", 0)
    scheduler.trigger("background-1", "", 0)
    scheduler.release("background-2")
    scheduler.release("background-1")
    scheduler.release("background-0")
    assert drain(scheduler, 0) == ["background-1", "urgent", "background-0", "background-2"]


def test_what_is_moved_up_and_removed_for_ever_leaves_no_memory_behind() -> None:
    scheduler = resynced(10)
    for round_ in range(10_000):
        scheduler.trigger("x", "", round_, background=True)
        scheduler.trigger("x", "", round_)
        assert scheduler.remove("x")
    assert len(scheduler) == scheduler.ready_count(1e6) == 10
    assert len(scheduler._background.items) < 200
    assert len(scheduler._urgent.items) < 200


KINDS = ["urgent", "background", "pop", "remove", "finish", "quiet"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("abcdef")), max_size=80)


@given(STEPS)
def test_against_two_lists(steps: list[tuple[str, str]]) -> None:
    """The model is two lists and a counter: urgent first, each eighth from background, nothing twice, nothing lost."""
    scheduler: Scheduler[str, str] = Scheduler()
    urgent: deque[str] = deque()
    background: deque[str] = deque()
    running: set[str] = set()
    held: dict[str, deque[str]] = {}
    row = 0
    for kind, key in steps:
        known = next((lane for lane in (urgent, background) if key in lane), held.get(key))
        if kind == "urgent":
            scheduler.trigger(key, "", 0)
            if key in held:
                held[key] = urgent
            elif known is background and key in background:
                background.remove(key)
                urgent.append(key)
            elif known is None:
                urgent.append(key)
        elif kind == "background":
            scheduler.trigger(key, "", 0, background=True)
            if known is None:
                background.append(key)
        elif kind == "remove":
            assert scheduler.remove(key) == (known is not None)
            if key in held:
                del held[key]
            elif known is not None:
                known.remove(key)
        elif kind == "finish" and key in running:
            running.discard(key)
            scheduler.release(key)
            if key in held:
                held.pop(key).appendleft(key)
        elif kind == "quiet" and key in running:
            running.discard(key)
            scheduler.to_background(key)
            scheduler.release(key)
            if known is not None:
                if held.pop(key, None) is None:
                    known.remove(key)
                background.append(key)
        elif kind == "pop":
            entry = scheduler.pop_due(0, running)
            wanted = None
            while wanted is None and (urgent or background):
                lane = background if (row >= 7 and background) or not urgent else urgent
                first = lane.popleft()
                if first in running:
                    held[first] = lane
                else:
                    wanted, row = first, 0 if lane is background else row + 1
            assert (None if entry is None else entry.key) == wanted
            if wanted is not None:
                running.add(wanted)
        assert scheduler.ready_count(0) == len(urgent) + len(background)
        assert len(scheduler) == len(urgent) + len(background) + len(held)


def test_the_brake_lets_a_burst_begin_and_then_ten_a_second() -> None:
    rate_limit = RetryRateLimit()
    assert sum(rate_limit.take(0) for _ in range(1000)) == BURST == 100
    assert rate_limit.next_at() == pytest.approx(0.1)
    begun = sum(rate_limit.take(second / 100) for second in range(1, 1001) for _ in range(3))
    assert begun == pytest.approx(100, abs=1)


def test_the_brake_opens_with_each_success_and_closes_again_with_failures_but_never_below_its_rate() -> None:
    rate_limit = RetryRateLimit(rate=5)
    for _ in range(30):
        rate_limit.succeeded(0, holding=True)
    assert all(rate_limit.take(0) for _ in range(10_000))
    for _ in range(100):
        rate_limit.failed(0)
    assert sum(rate_limit.take(0) for _ in range(1000)) == BURST
    assert rate_limit.next_at() == pytest.approx(0.2)


def test_successes_do_not_open_a_brake_that_holds_nothing_back() -> None:
    rate_limit = RetryRateLimit()
    for _ in range(30):
        rate_limit.succeeded(0, holding=False)
    assert sum(rate_limit.take(0) for _ in range(1000)) == BURST


@given(st.lists(st.tuples(st.sampled_from(["take", "won", "lost"]), st.floats(0, 10)), max_size=200),
       st.floats(0.1, 1000))
def test_whatever_happens_the_brake_says_when_it_lets_the_next_one_begin(steps: list[tuple[str, float]],
                                                                        rate: float) -> None:
    rate_limit, now = RetryRateLimit(rate), 0.0
    for kind, wait in steps:
        now += wait
        if kind == "won":
            rate_limit.succeeded(now, holding=True)
        elif kind == "lost":
            rate_limit.failed(now)
        elif not rate_limit.take(now):
            assert rate_limit.next_at() > now
            now = rate_limit.next_at()
            assert rate_limit.take(now)
    assert rate <= rate_limit._rate <= max(rate, OPEN)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(RequestError, match="retry_rate"):
        RetryRateLimit(rate)


def limited(count: int) -> Scheduler[str, str]:
    """A scheduler whose burst is spent, with so many retries due at 0."""
    rate_limit = RetryRateLimit()
    for _ in range(BURST):
        rate_limit.take(0)
    scheduler: Scheduler[str, str] = Scheduler(rate_limit=rate_limit)
    for number in range(count):
        scheduler.add(f"retry-{number}", "", 0, 0, retry=True)
    return scheduler


def test_retries_that_are_held_back_come_out_oldest_first_at_the_brakes_rate() -> None:
    scheduler = limited(3)
    assert drain(scheduler, 0) == []
    assert scheduler.held_back == 3
    assert scheduler.next_due() == pytest.approx(0.1)
    assert drain(scheduler, 0.1) == ["retry-0"]
    assert drain(scheduler, 0.3) == ["retry-1", "retry-2"]


def test_a_trigger_takes_a_key_out_of_the_brake_and_passes_it() -> None:
    scheduler = limited(3)
    scheduler.trigger("retry-2", "changed", 0)
    scheduler.trigger("event", "", 0)
    assert drain(scheduler, 0) == ["retry-2", "event"]
    assert scheduler.held_back == 2
    assert drain(scheduler, 10) == ["retry-0", "retry-1"]


def test_a_key_that_is_held_back_can_be_removed() -> None:
    scheduler = limited(2)
    assert scheduler.remove("retry-0")
    assert scheduler.held_back == len(scheduler) == 1
    assert drain(scheduler, 10) == ["retry-1"]


def test_a_retry_that_a_trigger_joins_before_its_time_is_no_retry_any_more() -> None:
    scheduler = limited(0)
    scheduler.add("a", "retry", 5, 0, retry=True)
    scheduler.trigger("a", "changed", 1)
    entry = scheduler.pop_due(1, ())
    assert entry is not None
    assert (entry.message, entry.retry) == ("changed", False)


def test_a_requeue_passes_the_rate_limit() -> None:
    scheduler = limited(5)
    scheduler.add("requeued", "", 0, 0)
    assert drain(scheduler, 0) == ["requeued"]


def test_without_a_brake_retries_come_at_their_times() -> None:
    scheduler: Scheduler[str, str] = Scheduler()
    for number in range(500):
        scheduler.add(str(number), "", 1, 0, retry=True)
    assert len(drain(scheduler, 1)) == 500


@pytest.mark.parametrize("count", [FEW, 4 * FEW])
def test_who_went_to_the_background_class_is_counted_once_however_many_did(count: int) -> None:
    """Else the count says that somebody waits, and workers come and go for nothing, for ever."""
    scheduler: Scheduler[str, str] = Scheduler()
    for number in range(count):
        scheduler.trigger(f"key-{number}", "", 0)
    for number in range(count):
        scheduler.to_background(f"key-{number}")
        assert scheduler.ready_count(0) == count
    assert len(drain(scheduler, 0)) == count
    assert scheduler.ready_count(0) == 0
