"""At most n runs of one object in a time, whatever asks for them."""
from __future__ import annotations

import random
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, RetryRateLimit
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import KeyRate, WorkQueue
from kubectl_runtime.runtime.reconcile.reconciler import Action
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest
from kubectl_runtime.testing import Simulation

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")


def request(name: str, reason: str = Reason.OBJECT_UPDATED, *, bulk: bool = False) -> ReconcileRequest:
    return ReconcileRequest(ObjectRef(KIND, name, "default"), reason, None, bulk)


@pytest.mark.parametrize("runs", [0, -1, True, 1.5, "3", None])
def test_a_rate_without_runs_is_refused(runs: Any) -> None:
    with pytest.raises(RequestError):
        KeyRate(runs, 60)


@pytest.mark.parametrize("per", [0, -1, float("nan"), float("inf"), "60", None, timedelta(0), True])
def test_a_rate_without_a_time_is_refused(per: Any) -> None:
    with pytest.raises(RequestError):
        KeyRate(1, per)


def test_a_controller_takes_a_rate_and_nothing_like_it() -> None:
    with Simulation() as simulation:
        controller = Controller(Api.all(simulation.client(simulation.serve()), ConfigMap))
        for wrong in (10, (10, 60), {"runs": 10, "per": 60}, KeyRate):
            with pytest.raises(RequestError, match="KeyRate"):
                controller.key_rate(wrong)  # type: ignore[arg-type]
        assert controller.key_rate(KeyRate(2, timedelta(minutes=1))).plan().key_rate == KeyRate(
            2, timedelta(minutes=1))
        assert controller.key_rate(None).plan().key_rate is None


def test_what_comes_beyond_the_rate_is_one_run_when_its_time_has_come() -> None:
    queue = WorkQueue(Scheduler(), None, KeyRate(runs=2, per=10))
    for now in (0.0, 1.0):
        queue.trigger(request("a"), now)
        run = queue.take(now)
        assert run is not None
        queue.trigger(request("a"), now)  # while it runs
        queue.finish(run, SUCCEEDED, now + 0.5)
    for now in (2.0, 5.0, 9.99):
        queue.trigger(request("a"), now)
        assert queue.take(now) is None
    assert (queue.due_at(("default", "a")), queue.next_due()) == (10.0, 10.0)
    queue.trigger(request("b"), 9.99)
    other = queue.take(9.99)  # nobody else waits
    assert other is not None
    assert other.key == ("default", "b")
    assert queue.take(10.0) is not None


@pytest.mark.parametrize("seed", range(20))
def test_no_window_has_more_runs_whatever_asks(seed: int) -> None:
    rng = random.Random(seed)
    rate, per = rng.randrange(1, 4), rng.choice([0.5, 5.0, 30.0])
    limit = RetryRateLimit() if rng.random() < 0.5 else None
    queue = WorkQueue(Scheduler(debounce=rng.choice([0, 0, 0.3]), rate_limit=limit), limit, KeyRate(rate, per))
    began: dict[Key, list[float]] = defaultdict(list)
    asked: dict[Key, float] = {}
    running: list[Any] = []
    now = 0.0
    for _ in range(2000):
        now += rng.choice([0, 0, 0.01, 0.3, per / 3])
        key = "abc"[rng.randrange(3)]
        match rng.randrange(7):
            case 0 | 1:
                queue.trigger(request(key), now)
            case 2:
                queue.trigger(request(key, bulk=True), now, background=True)
            case 3:
                queue.trigger_all([request(key, Reason.OBJECT_DELETED), request(key, Reason.OBJECT_GONE)], now)
            case 4 if running:
                outcome = rng.choice([SUCCEEDED, Outcome(0.0), Outcome(0.2), Outcome(2.0, RunResult.ERROR),
                                      Outcome(0.0, RunResult.ERROR)])
                queue.finish(running.pop(rng.randrange(len(running))), outcome, now)
            case _:
                if (run := queue.take(now)) is not None:
                    began[run.key].append(now)
                    running.append(run)
    assert sum(map(len, began.values())) > 30
    for times in began.values():
        assert all(later - first >= per - 1e-9 for first, later in zip(times, times[rate:], strict=False))
    # Nothing is lost: what was asked for last runs, once its time has come.
    while running:
        queue.finish(running.pop(), SUCCEEDED, now)
    for name in "abc":
        queue.trigger(request(name), now)
        asked["default", name] = now
    later = set()
    for _ in range(4):
        now += per
        while (run := queue.take(now)) is not None:
            later.add(run.key)
            queue.finish(run, SUCCEEDED, now)
    assert later == set(asked)


def test_what_no_longer_counts_is_not_kept() -> None:
    queue = WorkQueue(Scheduler(), None, KeyRate(runs=1, per=10))
    for number in range(1000):
        queue.trigger(request(f"k{number}"), number)
        run = queue.take(number)
        assert run is not None
        queue.finish(run, SUCCEEDED, number)
    assert queue._rates is not None
    assert len(queue._rates) <= 11
    assert len(queue._requeue_delays) <= 11


@pytest.mark.parametrize("how", ["changes", "requeue", "errors", "trigger", "mapper", "resync"])
def test_a_controller_runs_an_object_ten_times_a_minute_at_most(how: str) -> None:
    with Simulation(3) as simulation:
        client = simulation.client(simulation.serve())
        maps = Api.namespaced(client, ConfigMap, "default")
        for name in ("busy", "quiet", "other"):
            maps.create({"metadata": {"name": name}})
        runs: dict[str, list[float]] = defaultdict(list)

        def reconcile(obj: ConfigMap, _ctx: Any) -> Action:
            runs[obj.name].append(simulation.clock.monotonic())
            if how == "errors" and obj.name == "busy":
                raise ValueError("always")
            return Action.requeue(0.5) if how == "requeue" and obj.name == "busy" else Action.await_change()

        controller = Controller(maps, retry_rate=None).key_rate(KeyRate(runs=10, per=60))
        if how == "mapper":
            controller.watches(Api.namespaced(client, ConfigMap, "kube-system"),
                               lambda _: ObjectRef.of(ConfigMap, "busy", "default"))
            Api.namespaced(client, ConfigMap, "kube-system").create({"metadata": {"name": "busy"}})
        if how == "resync":
            controller.resync(1)
        simulated = simulation.start(controller, reconcile)
        for turn in range(240):
            change = Patch.merge({"data": {"turn": str(turn)}})
            if how == "changes":
                maps.patch("busy", change)
            elif how == "trigger":
                simulated.trigger(ObjectRef.of(ConfigMap, "busy", "default"))
            elif how == "mapper":
                Api.namespaced(client, ConfigMap, "kube-system").patch("busy", change)
            simulation.settle(1)
        times = runs["busy"]
        assert len(times) >= (12 if how == "errors" else 40)  # and the backoff of errors makes them fewer
        assert all(later - first >= 60 for first, later in zip(times, times[10:], strict=False))
        if how != "resync":
            assert len(runs["quiet"]) == 1
        if how == "changes":
            assert times[-1] >= 180  # the last change has been, or will be, seen
