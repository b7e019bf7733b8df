"""How runs end and what follows, in whole controllers on simulated time."""
from __future__ import annotations

import json
import logging
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import ApiError, Status, TransportError
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context, Reconciler, RunReport, TerminalError
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent

ENOUGH = 20
"""Runs after which a loop is one. It has to end, as a simulation goes on until there is nothing to do."""

Answer = Callable[[Parent, Context[Any]], Action]


class World:
    """A controller of Parents, which owns Children, on simulated time."""

    def __init__(self, answer: Answer | Reconciler[Parent], *, owns: bool = False, policy: Any = None,
                 mapper: Any = None, run_timeout: float | None = None, resync: float | None = None,
                 attempts: float = inf, **options: Any) -> None:
        self.simulation = Simulation(3)
        self.clock = self.simulation.clock
        self.cluster = Cluster(self.clock)
        self.reports: list[RunReport] = []
        self.times: list[float] = []
        controller = Controller(self.cluster.api(Parent), backoff=KeyBackoff(jitter=0, attempts=attempts), **options)
        controller.on_result(self._report)
        if run_timeout is not None:
            controller.run_timeout(run_timeout)
        if resync is not None:
            controller.resync(resync)
        if owns:
            controller.owns(self.cluster.api(Child))
        if mapper is not None:
            controller.watches(self.cluster.api(Child), mapper)
        self.running = self.simulation.start(controller, answer, error_policy=policy)

    def _report(self, report: RunReport) -> None:
        self.reports.append(report)
        self.times.append(self.clock.monotonic())

    def put(self, value: int = 0, **metadata: Any) -> None:
        self.cluster.put(Parent, "a", value, metadata=metadata)

    def child(self, value: int = 0, **options: Any) -> None:
        """Somebody changes the child of a; with `verb`, this process does."""
        self.cluster.put(Child, "c", value, owner="a", **options)

    def own_write(self, value: int, **sent: Any) -> None:
        """The reconciler changes its own object."""
        self.cluster.put(Parent, "a", value, verb="patch", sent=json.dumps(sent or {"spec": {"value": value}}).encode())

    def settle(self, seconds: float = 0) -> int:
        """Let it go on for so long; how many runs there were."""
        before = len(self.reports)
        self.simulation.settle(seconds)
        return len(self.reports) - before


def conflict() -> ApiError:
    return ApiError(Status(code=409, reason="Conflict", message="the object has been modified"), "replace parents a")


@pytest.mark.parametrize("wrapped", [False, True])
def test_after_a_terminal_error_a_key_waits_for_a_new_version_and_the_policy_is_not_asked(wrapped: bool) -> None:
    asked: list[BaseException] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.spec["value"] == 0:
            if wrapped:
                raise ValueError("of mine") from TerminalError("no such region")
            raise TerminalError("no such region")
        return Action.await_change()

    world = World(answer, policy=lambda obj, error, ctx: asked.append(error) or Action.requeue(1))
    world.put(0)
    assert world.settle(5000) == 1
    world.put(1)
    assert world.settle() == 1
    assert asked == []
    assert [(report.result, report.attempt) for report in world.reports] == [
        (RunResult.TERMINAL_ERROR, 1), (RunResult.SUCCESS, 2)]


def terminal(ref: ObjectRef, kind: str) -> BaseException:
    if kind == "policy":
        return ValueError("the policy says that a change is needed")
    return TerminalError("no such secret") if kind == "terminal" else DecodeError(ref, "$.spec", "$.spec: no")


def no_retry(obj: Parent, error: BaseException, ctx: Context[Any]) -> Action:
    return Action.await_change()


@pytest.mark.parametrize("kind", ["terminal", "decode", "policy"])
@pytest.mark.parametrize("news", ["trigger", "trigger_all", "owned child", "mapped object", "resync", "two of them"])
def test_after_a_terminal_error_news_lead_to_a_run_and_time_does_not(news: str, kind: str) -> None:
    me = ObjectRef.of(Parent, "a", "default")

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise terminal(me, kind)

    world = World(answer, owns=news == "owned child", mapper=(lambda child: me) if news != "owned child" else None,
                  resync=600 if news == "resync" else None, policy=no_retry)
    world.put(0)
    if news == "resync":
        assert world.settle(6000) >= 9
        return
    assert world.settle(5000) == 1
    for number in range(3):
        if news == "trigger":
            world.running.trigger(me)
        elif news == "trigger_all":
            world.running.trigger_all()
        else:
            world.child(number)
        if news == "two of them":
            world.child(number + 100)
        assert world.settle(1000) == 1
    result = RunResult.ERROR if kind == "policy" else RunResult.TERMINAL_ERROR
    assert {(report.result, report.attempt) for report in world.reports[1:]} == {(result, 2)}


@pytest.mark.parametrize("kind", ["terminal", "decode", "policy"])
def test_what_a_run_wrote_elsewhere_before_its_terminal_error_is_no_news(kind: str) -> None:
    me = ObjectRef.of(Parent, "a", "default")

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if len(world.reports) < ENOUGH:
            world.child(len(world.reports), verb="patch")
            world.own_write(len(world.reports) + 100)
        raise terminal(me, kind)

    world = World(answer, owns=True, policy=no_retry)
    world.put(0)
    assert world.settle(1000) == 1
    world.child(77)
    assert world.settle(1000) == 1, "somebody else has changed the child"


@pytest.mark.parametrize("kind", ["terminal", "decode", "policy"])
def test_what_a_run_wrote_before_its_terminal_error_is_no_new_version(kind: str) -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if len(world.reports) < ENOUGH:
            world.own_write(len(world.reports) + 100)
            world.own_write(len(world.reports) + 200)
        raise terminal(ObjectRef.of(Parent, "a", "default"), kind)

    world = World(answer, policy=no_retry)
    world.put(0)
    assert world.settle(1000) == 1
    world.put(7)
    assert world.settle(1000) == 1


def test_an_object_whose_body_does_not_decode_is_terminal_and_a_child_that_does_not_is_retried() -> None:
    other = ObjectRef.of(Child, "c", "default")
    raised: list[BaseException] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise raised[-1]

    world = World(answer)
    world.put(0)
    raised.append(DecodeError(other, "$.spec", "$.spec: no"))
    assert world.settle(1) > 5
    raised.append(DecodeError(ObjectRef.of(Parent, "a", "default"), "$.spec", "$.spec: no"))
    world.put(1)
    assert world.settle(5000) == 1


def test_a_conflict_is_retried_soon_and_quietly_without_a_word_to_the_policy_and_without_a_count(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    asked: list[BaseException] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if len(world.reports) < 3:
            raise conflict()
        return Action.await_change()

    world = World(answer, policy=lambda obj, error, ctx: asked.append(error) or Action.requeue(1))
    world.put(0)
    assert world.settle(0.1) == 4
    assert [report.attempt for report in world.reports] == [1, 1, 1, 1]
    assert asked == []
    assert [record.getMessage() for record in caplog.records if "Parent default/a" in record.getMessage()] == []


def test_conflicts_without_end_become_a_failure_that_backs_off() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise conflict()

    world = World(answer)
    world.put(0)
    assert world.settle(60) < 120
    assert world.reports[-1].attempt > 5


def test_the_failure_count_is_kept_over_a_conflict() -> None:
    errors: list[BaseException] = [TransportError("x"), TransportError("x"), conflict(), TransportError("x")]

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if errors:
            raise errors.pop(0)
        return Action.await_change()

    world = World(answer)
    world.put(0)
    world.settle(10)
    assert [report.attempt for report in world.reports] == [1, 2, 3, 3, 4]


def test_on_success_hears_of_each_success_and_what_it_raises_is_a_failure() -> None:
    heard: list[tuple[str, Action]] = []

    class Telling(Reconciler[Parent]):
        def reconcile(self, obj: Parent, ctx: Context[Any]) -> Action:
            if obj.spec["value"] == 1:
                raise ValueError("planned")
            return Action.requeue(300)

        def on_success(self, obj: Parent, action: Action, ctx: Context[Any]) -> None:
            heard.append((obj.name, action))
            if obj.spec["value"] == 2:
                raise ValueError("planned as well")

    world = World(Telling())
    world.put(0)
    world.settle()
    assert heard == [("a", Action.requeue(300))]
    world.put(1)
    world.settle(0.001)
    assert len(heard) == 1
    world.put(2)
    world.settle(0.001)
    assert [report.result for report in world.reports] == [RunResult.REQUEUE_AFTER, RunResult.ERROR, RunResult.ERROR]


def test_each_run_is_reported_with_its_result_and_a_callback_that_raises_harms_nobody() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if ctx.attempt == 1:
            raise TransportError("planned")
        return Action.requeue(5)

    world = World(answer)
    world.put(0)
    world.settle(1)
    first, second = world.reports
    assert (first.result, str(first.error), first.requeue_after, first.attempt) == (
        RunResult.ERROR, "planned", 0.005, 1)
    assert (second.result, second.error, second.requeue_after, second.attempt) == (
        RunResult.REQUEUE_AFTER, None, 5.0, 2)
    assert first.ref == ObjectRef.of(Parent, "a", "default")
    assert len(first.reconcile_id) == 8 != second.reconcile_id

    def raising(report: RunReport) -> None:
        raise SystemExit("planned")

    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    seen: list[str] = []
    simulation.start(Controller(cluster.api(Parent)).on_result(raising),
                     lambda obj, ctx: seen.append(obj.name) or Action.requeue(1))
    simulation.settle(3.5)
    assert len(seen) == 4


def test_requeue_after_is_exact_and_starts_the_failure_count_over() -> None:
    results: list[Any] = [ValueError("x")] * 4 + [Action.requeue(1), ValueError("x"), Action.await_change()]

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    world = World(answer)
    world.put(0)
    world.settle(60)
    gaps = [round(after - before, 6) for before, after in zip(world.times, world.times[1:], strict=False)]
    assert gaps == [0.005, 0.01, 0.02, 0.04, 1.0, 0.005]


def test_to_ask_for_0_again_and_again_is_slowed_down_to_ten_times_a_second() -> None:
    world = World(lambda obj, ctx: Action.requeue(0))
    world.put(0)
    world.settle(10)
    gaps = [round(after - before, 6) for before, after in zip(world.times, world.times[1:], strict=False)]
    assert gaps[:6] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1]
    assert set(gaps[5:]) == {0.1}


def test_a_longer_requeue_in_between_starts_the_row_anew_and_is_kept_as_asked() -> None:
    asked = [0, 0, 0, 0.5, 0, 0]
    world = World(lambda obj, ctx: Action.requeue(asked[len(world.reports)]) if len(world.reports) < len(asked)
                  else Action.await_change())
    world.put(0)
    world.settle(10)
    gaps = [round(after - before, 6) for before, after in zip(world.times, world.times[1:], strict=False)]
    assert gaps == [0.005, 0.01, 0.02, 0.5, 0.005, 0.01]


def test_somebody_else_s_change_is_looked_at_at_once_even_if_a_write_without_effect_was_answered_with_its_version(
) -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.spec["value"] == 1:
            return Action.await_change()
        if len(world.reports) == 12:  # somebody mends it, just before we write what stands there anyway
            world.put(1)
            mended = world.cluster.objects[Parent.api_resource]["a"]
            sent = json.dumps({"metadata": {"labels": {"state": "failed"}}}).encode()
            world.cluster.answer(Parent, "a", "patch", lambda: mended, sent)
        raise TransportError("planned")

    world = World(answer)
    world.cluster.put(Parent, "a", 0, metadata={"labels": {"state": "failed"}})
    world.settle(100)
    mended_at = world.times[12]
    assert world.reports[13].result is RunResult.SUCCESS
    assert world.times[13] == mended_at


def test_the_echo_of_an_own_write_does_not_bring_the_retry_forward_however_many_children_it_changes() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        for number in range(100):
            value = len(world.reports)
            sent = json.dumps({"spec": {"value": value}}).encode()
            world.cluster.put(Child, f"c-{number}", value, owner="a", verb="apply", sent=sent)
        raise TransportError("planned")

    world = World(answer, owns=True)
    world.put(0)
    assert world.settle(10) <= 12


def test_a_webhook_that_puts_the_time_into_each_write_does_not_defeat_the_backoff() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        sent = json.dumps({"metadata": {"labels": {"state": "failed"}}}).encode()
        world.cluster.put(Parent, "a", len(world.reports), verb="patch", metadata={"labels": {"state": "failed"}},
                          sent=sent)
        raise TransportError("planned")

    world = World(answer)
    world.put(0, labels={"state": "failed"})
    assert world.settle(10) <= 20


def test_an_own_deletion_does_not_bring_the_retry_forward() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        world.cluster.put(Child, "c", len(world.reports), owner="a", verb="create")
        world.cluster.delete(Child, "c", own=True)
        raise TransportError("planned")

    world = World(answer, owns=True)
    world.put(0)
    assert world.settle(10) <= 12


def test_changes_by_others_while_a_key_fails_do_not_raise_its_count() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise TransportError("planned")

    world = World(answer, retry_rate=None)
    world.put(0)
    world.settle(0.2)
    count = world.reports[-1].attempt
    for value in range(1, 21):
        world.put(value)
        world.settle()
    assert world.reports[-1].attempt == count + 1, "the attempt is the next after the retries', whoever asks"
    assert world.reports[-1].requeue_after is not None
    assert world.reports[-1].requeue_after <= 0.005 * 2 ** count


@pytest.mark.parametrize(("change", "attempt"), [
    ({"generation": 2}, 1), ({"uid": "other"}, 1), ({"generation": 1, "labels": {"x": "y"}}, 4)])
def test_a_new_generation_or_uid_starts_the_count_anew_and_nothing_else_does(change: dict[str, Any],
                                                                            attempt: int) -> None:
    def policy(obj: Parent, error: BaseException, ctx: Context[Any]) -> Action:
        return Action.await_change() if ctx.attempt >= 3 else Action.requeue(ctx.backoff_delay)

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise TransportError("planned")

    world = World(answer, policy=policy)
    world.put(0, generation=1)
    world.settle(10)
    assert [report.attempt for report in world.reports] == [1, 2, 3]
    world.running.trigger_all()
    world.settle(10)
    assert world.reports[3].attempt == 4, "a resync is no reason to begin anew"
    if "uid" in change:
        world.cluster.delete(Parent, "a")
    world.put(1, **change)
    world.settle(10)
    assert world.reports[4].attempt == attempt


def test_a_kind_without_generation_never_starts_the_count_anew() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise TransportError("planned")

    world = World(answer, policy=lambda obj, error, ctx: Action.requeue(3600))
    world.put(0)
    world.settle()
    world.put(1)
    world.settle()
    world.put(2)
    world.settle()
    assert [report.attempt for report in world.reports] == [1, 2, 2]


def test_a_generation_that_the_run_made_itself_does_not_start_the_count_anew() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        number = len(world.reports)
        sent = json.dumps({"spec": {"value": number + 1}}).encode()
        world.cluster.put(Parent, "a", number + 1, verb="patch", metadata={"generation": number + 2}, sent=sent)
        raise TransportError("planned")

    world = World(answer)
    world.put(0, generation=1)
    world.settle(5)
    assert [report.attempt for report in world.reports[:5]] == [1, 2, 3, 4, 5]


def test_a_run_has_a_deadline_that_its_stop_token_keeps_and_one_that_is_late_is_named(
        caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        began = world.clock.monotonic()
        seen.append((ctx.deadline, began + 10, ctx.stop.is_set()))
        seen.append((ctx.stop.wait(4), world.clock.monotonic() - began))
        seen.append((ctx.stop.wait(60), world.clock.monotonic() - began, ctx.stop.reason))
        world.clock.advance(1)
        return Action.await_change()

    world = World(answer, run_timeout=10)
    world.put(0)
    world.settle()
    assert seen[0][0] == seen[0][1]
    assert seen[0][2] is False
    assert seen[1:] == [(False, 4.0), (True, 10.0, "its time is up")]
    assert "Parent default/a: took 11.0 s, longer than the run_timeout of 10.0 s" in caplog.text


def test_without_a_run_timeout_there_is_no_deadline() -> None:
    seen: list[Any] = []
    world = World(lambda obj, ctx: seen.append((ctx.deadline, ctx.stop.is_set())) or Action.await_change())
    world.put(0)
    world.settle()
    assert seen == [(None, False)]


def test_the_initial_list_and_a_resync_wait_for_what_changes() -> None:
    order: list[str] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        order.append(obj.name)
        return Action.await_change()

    world = World(answer, concurrency=1)
    for number in range(300):
        world.cluster.put(Parent, f"p-{number}", number)
    world.simulation.settle()
    order.clear()
    world.running.trigger_all()
    world.running.trigger(ObjectRef.of(Parent, "p-299", "default"))
    world.simulation.settle()
    assert "p-299" in order[:10]
    assert len(order) == 300


def test_a_retry_of_a_bulk_run_stays_in_its_class() -> None:
    order: list[str] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        order.append(obj.name)
        if ctx.attempt == 1:
            raise TransportError("planned")
        return Action.await_change()

    world = World(answer, concurrency=1, retry_rate=None)
    for number in range(50):
        world.cluster.put(Parent, f"p-{number}", number)
    world.simulation.settle(0.004)
    order.clear()
    world.clock.advance(0.01)
    world.cluster.put(Parent, "new")
    world.simulation.settle()
    assert "new" in order[:12]


@pytest.mark.parametrize("policy", [None, lambda obj, error, ctx: Action.requeue(ctx.backoff_delay),
                                    lambda obj, error, ctx: Action.requeue(7), lambda obj, error, ctx: 1 / 0])
def test_after_the_last_attempt_of_the_backoff_a_key_waits_for_a_change_whatever_the_policy_says(policy: Any) -> None:
    last: list[bool] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        last.append(ctx.retry_delay is None)
        assert ctx.backoff_delay == (1000 if last[-1] else ctx.retry_delay)
        raise ValueError("no")

    world = World(answer, owns=True, policy=policy, attempts=3)
    world.put(0, generation=1)
    assert world.settle(5000) == 3
    assert world.reports[2].requeue_after is None
    world.child(1)
    assert world.settle(5000) == 1, "a change leads to one attempt"
    world.put(2, generation=2)
    assert world.settle(5000) == 3, "another spec leads to all of them"
    assert last == [False, False, True, True, False, False, True]


def test_a_success_starts_the_attempts_of_the_backoff_over_and_conflicts_do_not_count() -> None:
    outcomes = [ValueError("no"), None, *[conflict()] * 3, *[ValueError("no")] * 5]

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        return Action.requeue(1)

    world = World(answer, attempts=2)
    world.put(0)
    assert world.settle(5000) == 7
    assert len(outcomes) == 3


@pytest.mark.parametrize(("context", "notes"), [
    (None, ["ctx.data is None, because no context= was given: pass it to start, run, bind or Manager.add"]),
    ("given", [])])
def test_what_is_read_of_a_context_that_was_not_given_fails_with_that(context: Any, notes: list[str]) -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        return Action.requeue(ctx.data.interval)

    simulation, reports = Simulation(3), list[RunReport]()
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    simulation.start(Controller(cluster.api(Parent)).on_result(reports.append), answer, context=context)
    simulation.settle()
    assert isinstance(reports[0].error, AttributeError)
    assert getattr(reports[0].error, "__notes__", []) == notes


def test_what_is_read_of_another_none_has_no_note() -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        nothing: Any = None
        return Action.requeue(nothing.interval)

    world = World(answer)
    world.put()
    world.settle()
    assert not hasattr(world.reports[0].error, "__notes__")
