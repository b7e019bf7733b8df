"""The work queue alone: what it counts, what it keeps, what its end means. Time is a number that the test passes."""
from __future__ import annotations

import gc
import json
import weakref

import pytest

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.queue.own_writes import RunWrites
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, Repeated, RetryRateLimit
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import KeyRate, WorkQueue
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")
FAILED = Outcome(5.0, RunResult.ERROR)


def new() -> WorkQueue:
    rate_limit = RetryRateLimit()
    return WorkQueue(Scheduler(rate_limit=rate_limit), rate_limit)


def made(version: str) -> Record:
    metadata = {"name": "a", "namespace": "default", "uid": "uid-a", "resourceVersion": version}
    return decode_object(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).encode(), KIND)


def request(name: str, cause: tuple[str, str] | None = None, reason: str = Reason.OBJECT_UPDATED) -> ReconcileRequest:
    return ReconcileRequest(ObjectRef(KIND, name, "default"), reason, cause)


def test_due_are_neither_running_nor_delayed_keys_and_the_length_counts_what_is_scheduled() -> None:
    queue = new()
    for name in "abc":
        queue.trigger(request(name), 0)
    assert (queue.due(0), len(queue)) == (3, 3)
    run = queue.take(0)
    assert run is not None
    assert (queue.due(0), len(queue), [running.key[1] for running in queue.running]) == (2, 2, ["a"])
    queue.finish(run, Outcome(10.0), 0)
    assert (queue.due(0), len(queue)) == (2, 3)
    assert queue.due(10) == 3


@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.parametrize(("causes", "nothing_new"), [
    ([("uid-a", "7")], True),
    ([("uid-a", "6")], True),
    ([("uid-a", "8")], True),
    ([("uid-child", "3")], True),
    ([("uid-child", "4"), ("uid-a", "7")], False),
    ([("uid-a", "7"), ("uid-secret", "1")], False),
    ([None], False),
])
def test_after_a_terminal_error_changes_of_its_own_are_told_from_news(
        while_it_runs: bool, causes: list[tuple[str, str] | None], nothing_new: bool) -> None:
    queue, record = new(), made("7")
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    run.looks_at(record)
    if while_it_runs:
        queue.trigger_all([request("a", cause) for cause in causes], 0)
    own = {("uid-a", "8"): None, ("uid-child", "3"): None}
    run.writes = RunWrites()
    for uid, version in own:
        run.writes.add(Write(record.ref, "patch", version, uid, None), None)
    queue.finish(run, Outcome(None, RunResult.TERMINAL_ERROR, own=own, waits_beyond=frozenset("78")), 1)
    if not while_it_runs:
        queue.trigger_all([request("a", cause) for cause in causes], 2)
    again = queue.take(2)
    assert again is not None
    assert again.has_nothing_new(record) is nothing_new
    assert not again.has_nothing_new(made("9")), "the object itself has another version"


def test_a_key_that_is_triggered_while_it_runs_is_due_and_not_taken_before_its_end() -> None:
    queue = new()
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    for _ in range(5):
        queue.trigger(request("a"), 1)
    assert queue.due(1) == 1
    assert queue.take(1) is None
    queue.finish(run, SUCCEEDED, 2)
    again = queue.take(2)
    assert again is not None
    assert queue.take(2) is None
    queue.finish(again, SUCCEEDED, 3)
    assert queue.take(3) is None


ENDS = {"succeeded": SUCCEEDED, "requeued": Outcome(10.0), "failed": FAILED, "stopped": Outcome(None, RunResult.ERROR),
        "conflict": Outcome(3.0, RunResult.ERROR, repeated=Repeated.CONFLICT),
        "skipped": Outcome(None, RunResult.SKIPPED)}


@pytest.mark.parametrize("wrote", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_trigger_that_a_worker_has_set_aside_runs_when_the_run_has_ended_however_it_ends(
        end: str, wrote: bool) -> None:
    queue = new()
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    queue.trigger(request("a", ("uid-secret", "7")), 0)
    assert queue.take(0) is None
    if wrote:
        run.wrote(Write(run.request.ref, "patch", "8", "uid-a", None))
    queue.finish(run, ENDS[end], 1)
    assert queue.take(1) is not None


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_run_leaves_nothing_of_a_key_that_was_forgotten_meanwhile(end: str) -> None:
    queue = new()
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    queue.trigger(request("a", reason=Reason.OBJECT_DELETED), 0)
    queue.finish(run, ENDS[end], 1)
    assert (len(queue), queue.failing, queue.keys()) == (0, 0, set())
    assert queue.take(100) is None


@pytest.mark.parametrize(("causes", "due"), [
    ([("uid-a", "8")], 5.0), ([("uid-a", "8"), ("uid-a", "9")], 5.0), ([("uid-a", "8"), ("uid-a", "10")], 0.0),
    ([("uid-secret", "1"), ("uid-a", "8")], 0.0), ([("uid-a", "8"), None], 0.0)])
def test_a_retry_takes_up_what_came_meanwhile_only_if_all_of_it_is_its_own(
        causes: list[tuple[str, str] | None], due: float) -> None:
    queue = new()
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    for version in "89":
        run.wrote(Write(run.request.ref, "patch", version, "uid-a", None))
    queue.trigger_all([request("a", cause) for cause in causes], 0)
    queue.finish(run, FAILED, 0)
    assert queue.due_at(run.key) == due


def test_a_run_that_its_rate_delays_still_knows_all_that_led_to_it() -> None:
    queue, record = WorkQueue(Scheduler(), None, KeyRate(runs=1, per=10)), made("7")
    queue.trigger(request("a"), 0)
    run = queue.take(0)
    assert run is not None
    run.looks_at(record)
    queue.trigger_all([request("a", ("uid-a", "7")), request("a", ("uid-secret", "1"))], 0)
    queue.finish(run, Outcome(None, RunResult.TERMINAL_ERROR, own={}, waits_beyond=frozenset("7")), 1)
    assert queue.take(9) is None
    again = queue.take(10)
    assert again is not None
    assert [*again.causes] == [("uid-a", "7"), ("uid-secret", "1")]
    assert not again.has_nothing_new(record), "the Secret may be what was missing"


def test_a_closed_queue_takes_nothing_gives_nothing_and_lets_runs_end() -> None:
    queue = new()
    for name in "abc":
        queue.trigger(request(name), 0)
    run = queue.take(0)
    assert run is not None
    assert queue.close() == 2
    queue.trigger(request("d"), 0)
    assert (queue.take(0), len(queue), queue.failing) == (None, 0, 0)
    queue.finish(run, FAILED, 1)
    assert ([*queue.running], queue.take(100), queue.failing) == ([], None, 0)


def test_the_earlier_of_a_retry_and_a_timer_that_came_meanwhile_is_kept() -> None:
    for asked, due in ((2.0, 2.0), (50.0, 5.0)):
        queue = new()
        queue.trigger(request("a"), 0)
        run = queue.take(0)
        assert run is not None
        queue._scheduler.add(run.key, request("a"), asked, 0)
        queue.finish(run, FAILED, 0)
        assert queue.due_at(run.key) == due


def test_a_run_that_was_skipped_does_not_end_what_the_runs_before_it_were_in_a_row() -> None:
    queue = new()
    conflict = Outcome(0.005, RunResult.ERROR, repeated=Repeated.CONFLICT)
    queue.trigger(request("a"), 0)
    counts = []
    for outcome in (conflict, Outcome(5.0, RunResult.SKIPPED), conflict, Outcome(5.0, RunResult.SKIPPED), SUCCEEDED):
        run = queue.take(100)
        assert run is not None
        counts.append(run.times_in_a_row(Repeated.CONFLICT))
        queue.finish(run, outcome, 0)
    assert counts == [0, 1, 1, 2, 2]
    queue.trigger(request("a"), 100)
    run = queue.take(100)
    assert run is not None
    assert run.times_in_a_row(Repeated.CONFLICT) == 0


def test_causes_are_kept_one_by_one_only_where_one_may_be_an_own_write() -> None:
    queue = new()

    def trigger(version: str) -> None:
        queue.trigger(request("a", ("uid", version)), 0)

    trigger("1")
    trigger("2")
    trigger("3")
    run = queue.take(0)
    assert run is not None
    assert [*run.causes] == [None], "nobody has written anything, so it does not matter which they were"
    trigger("4")  # while it runs: it may be the run's own, of whose answer it has not heard
    trigger("5")
    run.wrote(Write(run.request.ref, "patch", "4", "uid"))
    queue.finish(run, SUCCEEDED, 0)
    trigger("6")
    run = queue.take(0)
    assert run is not None
    assert [*run.causes] == [("uid", "4"), ("uid", "5"), ("uid", "6")]


def test_a_single_trigger_is_the_cause_and_a_timer_is_none() -> None:
    queue = new()
    queue.trigger(request("a", ("uid", "1")), 0)
    run = queue.take(0)
    assert run is not None
    assert [*run.causes] == [("uid", "1")]
    queue.finish(run, Outcome(5.0, RunResult.REQUEUE_AFTER), 0)
    run = queue.take(5)
    assert run is not None
    assert [*run.causes] == []


class Tracked(str):
    """A name whose end can be seen."""

    __slots__ = ("__weakref__",)


def test_a_key_that_was_delivered_is_released_from_memory() -> None:
    queue = new()
    outcomes = (SUCCEEDED, FAILED, Outcome(0.005, RunResult.ERROR, repeated=Repeated.CONFLICT),
                Outcome(0.1, RunResult.REQUEUE_AFTER, repeated=Repeated.SOON), Outcome(None, RunResult.TERMINAL_ERROR))
    names = [Tracked(f"n{number}") for number in range(len(outcomes))]
    gone = [weakref.ref(name) for name in names]
    for name, outcome in zip(names, outcomes, strict=True):
        for version in range(3):
            queue.trigger(request(name, ("uid", str(version))), 0)
        run = queue.take(0)
        assert run is not None
        queue.finish(run, outcome, 0)
        queue.trigger(request(name), 100)
        while (run := queue.take(100)) is not None:
            queue.finish(run, SUCCEEDED, 100)
    del name, names, run
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_a_key_whose_object_is_deleted_is_released_whatever_was_known_of_it() -> None:
    queue = new()
    name = Tracked("a")
    gone = weakref.ref(name)
    key: Key = ("default", name)
    queue.trigger(request(name), 0)
    run = queue.take(0)
    assert run is not None
    queue.finish(run, FAILED, 0)
    queue.trigger(request(name, ("uid", "1")), 0)
    queue.trigger(request(name, ("uid", "2")), 0)
    queue.trigger(request(name, reason=Reason.OBJECT_DELETED), 0)
    assert (queue.due_at(key), queue.failing) == (None, 0)
    assert queue.take(100) is None
    del name, key, run
    gc.collect()
    assert gone() is None
