"""What a look at a queue shows: how many keys are in each state, which ones, and that many keys cost no more."""
from __future__ import annotations

import heapq
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, Repeated, RetryRateLimit, Run
from kubectl_runtime.runtime.queue.scheduler import VISITS, WAITING, Scheduler, soonest
from kubectl_runtime.runtime.queue.work_queue import KeyState, QueueLook, WorkQueue
from tests.runtime.reconcile.test_runner import Rig, request

FAILED = Outcome(60.0, RunResult.ERROR, ValueError("no"), last_failure="the log was told")
TERMINAL = Outcome(None, RunResult.TERMINAL_ERROR, ValueError("never"))
CONFLICT = Outcome(0.5, RunResult.ERROR, ValueError("stale"), repeated=Repeated.CONFLICT)


def new(debounce: float = 0.0, rate: float = 10.0) -> tuple[WorkQueue, Scheduler]:
    rate_limit = RetryRateLimit(rate)
    scheduler: Scheduler = Scheduler(debounce=debounce, rate_limit=rate_limit)
    return WorkQueue(scheduler, rate_limit), scheduler


def ran(queue: WorkQueue, name: str, outcome: Outcome, now: float) -> None:
    queue.trigger(request(name), now)
    run = taken(queue, now)
    assert run.key[1] == name
    queue.finish(run, outcome, now)


def taken(queue: WorkQueue, now: float) -> Run:
    run = queue.take(now)
    assert run is not None
    return run


def names(rows: Sequence[tuple[Key, ...]]) -> list[str]:
    return [row[0][1] for row in rows]


def test_each_key_is_in_the_state_that_it_is_in() -> None:
    queue, _ = new()
    ran(queue, "delayed", Outcome(300.0, RunResult.REQUEUE_AFTER), 0)
    ran(queue, "broken", FAILED, 1)
    ran(queue, "wrong", TERMINAL, 2)
    queue.trigger(request("running"), 3)
    run = taken(queue, 4)
    queue.trigger(request("running"), 5)
    queue.trigger(request("due"), 6)
    assert queue.take(6) is not None  # "due" is taken, "running" held: it runs already
    queue.trigger(request("next"), 7)

    look = queue.look(10, 30)

    assert look.counts == {"running": 2, "due": 2, "delayed": 1, "backing_off": 1, "held_back": 0, "failing": 2}
    assert names(look.running) == ["running", "due"]
    assert (look.running[0].started, look.running[0].waited) == (4, 1)
    assert names(look.due) == ["next", "running"]
    assert [(row.at, row.state) for row in look.due] == [(7, KeyState.DUE), (5, KeyState.DUE)]
    assert [(row.key[1], row.at, row.state) for row in look.delayed] == [("delayed", 300, KeyState.DELAYED)]
    assert [(row.key[1], row.state, row.at, row.failures) for row in look.failing] == [
        ("broken", KeyState.BACKING_OFF, 61, 1), ("wrong", KeyState.WAITS_FOR_CHANGE, None, 1)]
    assert look.failing[0].last_failure == "the log was told"
    queue.finish(run, SUCCEEDED, 11)
    assert names(queue.look(11, 30).due) == ["running", "next"]


def test_a_retry_is_held_back_when_the_brake_says_so_and_a_trigger_makes_it_due() -> None:
    queue, scheduler = new(rate=0.001)
    for number in range(103):
        ran(queue, f"key-{number}", Outcome(1.0, RunResult.ERROR, ValueError()), 0)
    assert queue.look(0, 30).counts["backing_off"] == 103
    look = queue.look(1, 200)
    assert (look.counts["due"], look.counts["held_back"], look.counts["backing_off"]) == (100, 3, 0)
    assert [row.state for row in look.failing[-3:]] == [KeyState.HELD_BACK] * 3
    queue.trigger(request("key-102"), 1)
    look = queue.look(1, 200)
    assert (look.counts["due"], look.counts["held_back"]) == (101, 2)
    assert scheduler.waiting_retries == 0


def test_a_key_that_failed_is_told_with_its_error_also_where_others_have_failed_longer() -> None:
    queue, _ = new()
    for number in range(5):
        ran(queue, f"broken-{number}", FAILED, number)
    queue.trigger(request("broken-4"), 10)
    look = queue.look(10, 1)
    assert [(row.key[1], row.last_failure) for row in look.due] == [("broken-4", "the log was told")]
    assert names(look.failing) == ["broken-0"]


def test_a_quiet_retry_after_a_conflict_is_delayed_and_no_failure() -> None:
    queue, _ = new()
    ran(queue, "a", CONFLICT, 0)
    look = queue.look(0, 5)
    assert (look.counts["delayed"], look.counts["backing_off"], look.counts["failing"]) == (1, 0, 0)


def test_a_look_at_a_closed_queue_shows_the_runs_that_are_left() -> None:
    queue, _ = new()
    ran(queue, "broken", FAILED, 0)
    queue.trigger(request("a"), 0)
    taken(queue, 0)
    queue.close()
    look = queue.look(1, 5)
    assert look.counts == {"running": 1, "due": 0, "delayed": 0, "backing_off": 0, "held_back": 0, "failing": 0}


def test_no_more_rows_are_given_than_asked_for_and_none_if_none_are() -> None:
    queue, _ = new()
    for number in range(50):
        ran(queue, f"later-{number}", Outcome(100.0 + number), 0)
        ran(queue, f"broken-{number}", Outcome(500.0, RunResult.ERROR, ValueError("no")), 0)
    for number in range(50):
        queue.trigger(request(f"due-{number}"), 1)
    for most in (0, 1, 7):
        look = queue.look(1, most)
        assert {len(rows) for rows in (look.due, look.delayed, look.failing)} == {most}
    assert names(queue.look(1, 3).delayed) == ["later-0", "later-1", "later-2"]
    assert names(queue.look(1, 3).due) == ["due-0", "due-1", "due-2"]


KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(["trigger", "take", "fail", "succeed", "requeue", "terminal", "conflict",
                                            "forget", "wait", "close", "write"]), KEYS, st.floats(0, 30)), max_size=60)


@given(steps=STEPS, debounce=st.sampled_from([0.0, 2.0]))
def test_the_numbers_are_those_of_a_count_of_every_key(steps: list[tuple[str, str, float]], debounce: float) -> None:
    queue, scheduler = new(debounce)
    now, runs = 0.0, list[Run]()
    ends = {"fail": FAILED, "succeed": SUCCEEDED, "requeue": Outcome(5.0), "terminal": TERMINAL, "conflict": CONFLICT}
    for action, name, seconds in steps:
        if action == "trigger":
            queue.trigger(request(name), now)
        elif action == "take":
            runs += [run] if (run := queue.take(now)) is not None else []
        elif action == "forget":
            queue.forget(request(name).ref.key)
        elif action == "wait":
            now += seconds
        elif action == "close" and seconds > 28:
            queue.close()
        elif action == "write" and runs:  # and its own event comes before its end
            run, version = runs.pop(0), str(len(steps))
            run.wrote(Write(run.request.ref, "patch", version, "uid", None))
            queue.trigger(request(run.key[1], ("uid", version)), now)
            queue.finish(run, SUCCEEDED, now)
        elif action in ends and runs:
            queue.finish(runs.pop(0), ends[action], now)
        look = queue.look(now, 100)
        check(look, queue, scheduler)


def check(look: QueueLook, queue: WorkQueue, scheduler: Scheduler) -> None:
    keys = scheduler.keys()
    entries = [entry for key in keys if (entry := scheduler.entry(key)) is not None]
    waiting = [entry for entry in entries if entry.place == WAITING]
    retries = [entry for entry in waiting if entry.retry]
    counts = look.counts
    assert counts["running"] == len(list(queue.running)) == len(look.running)
    assert counts["backing_off"] == len(retries) == scheduler.waiting_retries
    assert counts["delayed"] == len(waiting) - len(retries) == len(look.delayed)
    assert counts["due"] == len(look.due)
    assert counts["due"] + counts["held_back"] == len(entries) - len(waiting)
    assert counts["failing"] == queue.failing == len(look.failing)
    assert [row.at for row in look.delayed] == sorted(row.at for row in look.delayed)


class Counting(list):
    """A heap that counts who looks at it."""

    looks = 0

    def __getitem__(self, index: int) -> tuple:  # type: ignore[override]
        self.looks += 1
        return super().__getitem__(index)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=200), st.integers(0, 20))
def test_the_soonest_of_a_heap_are_those_that_come_out_of_it_first(items: list[tuple[int, bool]], most: int) -> None:
    heap = [(float(at), order, wanted) for order, (at, wanted) in enumerate(items)]
    heapq.heapify(heap)
    expected = [item for item in sorted(heap)[:VISITS * most] if item[2]][:most]
    whole = [(at, number, (at, number, wanted)) for at, number, wanted in heap]
    assert soonest(whole, most, lambda _at, item: item[2]) == expected


def test_looking_at_20_000_waiting_keys_touches_a_few_of_them() -> None:
    heap = Counting((float(number), number, number % 1000 == 999) for number in range(20_000))
    assert soonest(heap, 30, lambda _at, wanted: wanted) == []
    assert heap.looks <= 8 * VISITS * 30


def test_the_runner_adds_what_ran() -> None:
    rig = Rig()
    rig.outcomes["b"] = [FAILED]
    rig.trigger("a", "b")
    rig.run()
    look = rig.runner.look(30)
    assert (look.runs, look.failed) == (2, 1)
    assert {(row.key[1], row.result) for row in look.recent} == {("a", RunResult.SUCCESS), ("b", RunResult.ERROR)}
    assert {row.key[1] for row in look.slowest} <= {"a", "b"}
    assert names(look.failing) == ["b"]
    assert rig.runner.look(1).recent == look.recent[:1]
