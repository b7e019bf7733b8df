"""What an observer hears of a controller: in simulation, where times are exact, and with threads over HTTP."""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.observer import METHODS
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import ListSemantic, WatcherConfig
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.core.recording_observer import RecordingObserver
from tests.runtime.scripted_cluster import Child, Cluster, Parent

EXACT = KeyBackoff(initial=1, jitter=0)
WATCH_EXACT = WatchBackoff(jitter=False)
PARENTS = "parents.test.example"


def satisfied(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


class Rig:
    """A controller of Parents in simulation, with an observer."""

    def __init__(self, seed: int = 0, observer: RecordingObserver | None = None) -> None:
        self.sim = Simulation(seed)
        self.cluster = Cluster(self.sim.clock)
        self.observer = observer or RecordingObserver()

    def start(self, reconcile: Callable[[Parent, Context[Any]], Action] = satisfied,
              **options: Any) -> SimulatedController[Parent]:
        options = {"backoff": EXACT, "watch": WatcherConfig(backoff=WATCH_EXACT), "observer": self.observer, **options}
        return self.sim.start(Controller(self.cluster.api(Parent), **options), reconcile)

    def results(self, name: str) -> list[tuple[str, str]]:
        """How the runs of `name` ended, and of which type of exception."""
        return [(str(result), type(error).__name__ if error else "")
                for _, key, result, _, error in self.observer.of("run_ended") if key == ("default", name)]


def test_a_start_is_told_from_the_first_list_to_the_last_run() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    started = rig.start(name="parents", concurrency=3)
    rig.sim.settle()
    key = ("default", "a")
    size = started.assembly.shares[0].watch.stored.bytes
    assert size > 100
    assert [call for call in rig.observer.heard if call[0] != "frame_arrived"] == [
        ("controller_started", "parents", 3),
        ("watch_phase_changed", PARENTS, "listing", 0.0),
        ("store_changed", PARENTS, 1),
        ("store_sized", PARENTS, size),
        ("keys_triggered", "parents", 1, 1, 0.0),
        ("list_completed", PARENTS, 1, 0, 0.0),
        ("watch_phase_changed", PARENTS, "watching", 0.0),
        ("run_started", "parents", key, "object updated", 0.0, 0, 0.0),
        ("run_ended", "parents", key, "success", 0.0, None),
    ]


def test_a_watch_tells_its_frames_and_the_size_of_its_store_once_for_each_batch() -> None:
    rig = Rig()
    rig.start()
    rig.sim.settle()
    rig.observer.heard.clear()
    rig.sim.clock.advance(5)
    for name in "abc":
        rig.cluster.put(Parent, name)
    rig.sim.settle()
    rig.cluster.delete(Parent, "b")
    rig.sim.settle()
    assert rig.observer.of("frame_arrived") == [(PARENTS, 3, 5.0), (PARENTS, 1, 5.0)]
    assert rig.observer.of("store_changed") == [(PARENTS, 3), (PARENTS, 2)]
    assert [call[1:3] for call in rig.observer.of("keys_triggered")] == [(3, 3), (1, 0)]


def test_failures_of_a_watch_are_told_with_their_number_and_the_wait_and_lists_made_anew_counted() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    rig.cluster.failing.add(Parent.api_resource)
    rig.start()
    rig.sim.settle(2.5)
    failures = rig.observer.of("watch_failed")
    assert [(watch, number, delay) for watch, _, number, delay in failures] == [
        (PARENTS, 1, 5.0), (PARENTS, 2, 5.0)], "the server is away: one look in 5 s"
    assert "cannot be reached" in str(failures[0][1])
    rig.cluster.failing.clear()
    rig.sim.settle(20)
    rig.cluster.put(Parent, "b")
    rig.cluster.compact(Parent)
    rig.sim.settle(20)
    assert rig.observer.of("list_completed") == [(PARENTS, 1, 0, 0.0), (PARENTS, 2, 1, 0.0)]
    phases = [(phase, now) for _, phase, now in rig.observer.of("watch_phase_changed")]
    assert phases[:3] == [("listing", 0.0), ("waiting", 0.0), ("watching", pytest.approx(7.82, abs=0.01))]
    assert [phase for phase, _ in phases[3:]] == ["waiting", "watching"]


def test_how_long_a_list_took_counts_from_its_first_request() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    rig.cluster.put(Parent, "b")
    rig.cluster.on_request = lambda _: rig.sim.clock.advance(2)
    rig.sim.start(Controller(rig.cluster.api(Parent), watch=WatcherConfig(page_size=1), observer=rig.observer),
                  satisfied)
    rig.sim.settle()
    assert rig.observer.of("list_completed") == [(PARENTS, 2, 0, 4.0)]  # two pages


def test_failures_retries_requeues_and_what_did_not_run_are_told_apart() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "fails")
    rig.cluster.put(Parent, "again")
    rig.cluster.put(Parent, "broken")
    outcomes: list[Exception | None] = [ValueError("one"), OSError("two"), None]

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name == "fails" and (error := outcomes.pop(0)) is not None:
            raise error
        if obj.name == "broken":
            if ctx.attempt == 1:
                rig.cluster.put(Parent, "broken", 7, verb="patch")
            raise DecodeError(obj.ref, "$.spec", "it is not what it should be")
        return Action.requeue(50) if obj.name == "again" else Action.await_change()

    controller = rig.start(reconcile, name="c")
    rig.sim.settle(20)
    controller.trigger(ObjectRef(Parent.api_resource, "missing", "default"))
    controller.trigger(ObjectRef(Parent.api_resource, "broken", "default"))
    rig.sim.settle()
    assert rig.results("fails") == [("error", "ValueError"), ("error", "OSError"), ("success", "")]
    key = ("default", "fails")
    assert rig.observer.of("retry_scheduled") == [("c", key, 1, 1.0), ("c", key, 2, 2.0)]
    assert [call[5] for call in rig.observer.of("run_started") if call[1][1] == "fails"] == [0.0, 1.0, 3.0]
    assert rig.results("again") == [("requeue_after", "")]
    assert rig.results("missing") == [("gone", "")]
    assert rig.results("broken") == [
        ("terminal_error", "DecodeError"), ("skipped", ""), ("terminal_error", "DecodeError")]


def test_a_failure_that_waits_for_a_change_is_no_retry() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        raise ValueError("planned")

    controller = Controller(rig.cluster.api(Parent), observer=rig.observer)
    rig.sim.start(controller, reconcile, error_policy=lambda obj, error, ctx: Action.await_change())
    rig.sim.settle(100)
    assert rig.results("a") == [("error", "ValueError")]
    assert not rig.observer.of("retry_scheduled")


def test_queue_latency_depth_and_work_duration_are_those_of_the_simulated_clock() -> None:
    rig = Rig()
    for name in "abc":
        rig.cluster.put(Parent, name)

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        rig.sim.clock.advance(3)
        return Action.requeue(100)

    rig.start(reconcile, concurrency=1)
    rig.sim.settle()
    assert [(waited, depth, now) for _, _, _, waited, depth, now in rig.observer.of("run_started")] == [
        (0.0, 2, 0.0), (3.0, 1, 3.0), (6.0, 0, 6.0)]
    assert [seconds for _, _, _, seconds, _ in rig.observer.of("run_ended")] == [3.0, 3.0, 3.0]
    rig.observer.heard.clear()
    rig.cluster.put(Parent, "d")
    rig.sim.settle()
    # The three that wait for their time are not due, and so are not counted.
    assert [(depth, now) for _, _, depth, now in rig.observer.of("keys_triggered")] == [(1, 9.0)]


def test_what_a_stop_drops_is_told_and_nothing_begins_any_more() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    rig.cluster.put(Parent, "b")
    controller = rig.start(lambda obj, ctx: Action.requeue(60), name="c")
    rig.sim.settle()
    assert len(rig.observer.of("run_started")) == 2
    rig.observer.heard.clear()
    controller.trigger(ObjectRef(Parent.api_resource, "b", "default"))
    controller.begin_stop()
    rig.sim.settle(100)
    assert rig.observer.of("keys_dropped") == [("c", 1)], "b was due; a's timer is no work"
    assert not rig.observer.of("run_started")
    assert rig.observer.of("watch_phase_changed") == [(PARENTS, "stopped", 0.0)]


@pytest.mark.parametrize("seed", range(10))
def test_starts_and_ends_come_in_pairs_and_nothing_is_told_under_a_lock(seed: int) -> None:
    rig = Rig(seed)
    controller: list[SimulatedController[Parent]] = []
    under_a_lock: list[tuple[Any, ...]] = []

    class Heard(list[tuple[Any, ...]]):
        def append(self, call: tuple[Any, ...]) -> None:
            super().append(call)
            held = [watch.stored.condition._is_owned()  # type: ignore[attr-defined]
                    for one in controller for watch in one.assembly.watches.values()]
            if any(held) or any(one.assembly.runner._lock.locked() for one in controller):
                under_a_lock.append(call)

    rig.observer.heard = Heard()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if rig.sim.random.random() < 0.3:
            raise ValueError("planned")
        return Action.requeue(1) if rig.sim.random.random() < 0.5 else Action.await_change()

    def world() -> None:
        rig.cluster.put(Parent, rig.sim.random.choice("abcd"))

    controller.append(rig.start(reconcile, concurrency=3))
    rig.sim.add(world)
    rig.sim.run(300)
    rig.sim.settle(30)
    controller[0].begin_stop()
    rig.sim.settle(30)
    assert not under_a_lock
    runs = rig.observer.of("run_started", "run_ended")
    assert len(runs) > 20
    assert [name for name, *_ in runs] == ["run_started", "run_ended"] * (len(runs) // 2)
    assert all(begun[2] == ended[2] for begun, ended in zip(runs[::2], runs[1::2], strict=True))
    assert len(rig.observer.of("keys_dropped")) == 1


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1)])
def test_an_observer_that_raises_changes_nothing(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def story(observer: RecordingObserver) -> tuple[list[tuple[str, int, float]], list[tuple[Any, ...]]]:
        rig = Rig(5, observer)
        seen: list[tuple[str, int, float]] = []

        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            seen.append((obj.name, ctx.attempt, rig.sim.clock.monotonic()))
            if obj.name == "a" and ctx.attempt < 3:
                raise ValueError("planned")
            return Action.requeue(7)

        rig.cluster.failing.add(Parent.api_resource)
        controller = rig.start(reconcile)
        rig.sim.settle(1)
        rig.cluster.failing.clear()
        rig.cluster.put(Parent, "a")
        rig.sim.settle(10)
        rig.cluster.put(Parent, "b")
        rig.sim.settle(10)
        controller.begin_stop()
        rig.sim.settle(10)
        assert controller.has_ended
        return seen, [call[:1] for call in observer.heard]

    with caplog.at_level(logging.ERROR, logger="kubectl_runtime.core.base.guard"):
        raising, quiet = story(RecordingObserver(raised)), story(RecordingObserver())
    assert raising == quiet
    assert len(raising[0]) > 5
    failures = [record.getMessage() for record in caplog.records if record.exc_info and "observer" in record.message]
    methods = {name for (name,) in raising[1]}
    assert len(failures) == len(methods)  # each is told once, with its traceback
    assert len(raising[1]) > len(methods)


def test_a_client_s_observer_is_its_controllers_and_a_controller_can_have_its_own() -> None:
    ours, own = RecordingObserver(), RecordingObserver()
    with Client(Config(cluster_url="http://127.0.0.1:1"), observer=ours) as client:
        api = Api.all(client, ConfigMap)
        assert Controller(api).plan().options.observer is client.observer
        Controller(api, observer=own).plan().options.observer.store_changed("pods", 1)
        Controller(api).plan().options.observer.store_changed("pods", 2)
    assert (own.of("store_changed"), ours.of("store_changed")) == ([("pods", 1)], [("pods", 2)])
    with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
        assert client.observer is Controller(Api.all(client, ConfigMap)).plan().options.observer
        with pytest.raises(TypeError, match="an instance of a subclass of Observer, not the class RecordingObserver"):
            Controller(Api.all(client, ConfigMap), observer=RecordingObserver)  # type: ignore[arg-type]


def test_two_watches_of_one_kind_are_told_apart() -> None:
    rig = Rig()
    controller = Controller(rig.cluster.api(Parent), observer=rig.observer)
    cached = WatcherConfig(list_semantic=ListSemantic.ANY)
    controller.watches(rig.cluster.api(Parent), lambda obj: None, watch=cached).owns(rig.cluster.api(Child))
    rig.sim.start(controller, satisfied)
    rig.sim.settle()
    assert {watch for watch, *_ in rig.observer.of("list_completed")} == {
        PARENTS, f"{PARENTS} #2", "children.test.example"}



@pytest.mark.parametrize("raised", [None, RuntimeError("an observer's mistake")])
def test_with_threads_over_http_all_is_told_and_a_write_stands_between_start_and_end_of_its_run(
    raised: BaseException | None
) -> None:
    observer = RecordingObserver(raised)
    failed: list[str] = []
    done = threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        if obj.name.startswith("copy-"):
            return Action.await_change()
        if ctx.reason.startswith("configmap/copy-x"):
            done.set()  # not in the run of the copy, which may end before the watch has notified of the read
        if not failed:
            failed.append(obj.name)
            raise ValueError("planned")
        ctx.read(ConfigMap, f"copy-{obj.name}")
        Api.namespaced(ctx.client, ConfigMap, "default").apply(
            {"metadata": {"name": f"copy-{obj.name}"}, "data": {"a": "b"}}, field_manager="test")
        return Action.requeue(3600)

    with ApiServer() as server, server.client() as plain, Client(plain.config, observer=observer) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        with Controller(api, name="c", backoff=KeyBackoff(initial=0.001)).start(reconcile) as running:
            running.wait_until_ready(30)
            api.create({"metadata": {"name": "x"}, "data": {}})
            assert done.wait(30)
        assert observer.of("controller_stopped") == [("c", 0)]
        host = server.url.partition("://")[2]
    told = {name for name, *_ in observer.heard}
    assert set(METHODS) - told == {"watch_failed", "request_retried", "credentials_refreshed", "leadership_changed",
                                    "election_ended", "webhooks_ended",
                                   "webhooks_served", "webhook_began", "webhook_answered"}
    written = [at for at, call in enumerate(observer.heard) if call[:2] == ("object_written", "configmaps")
               and call[2] == ("default", "copy-x")]
    key = ("default", "x")
    runs = [at for at, call in enumerate(observer.heard) if call[0] in ("run_started", "run_ended") and call[2] == key]
    assert any(begun < written[0] < ended for begun, ended in pairwise(runs))
    assert observer.heard[written[0]][3] == "apply"
    assert int(observer.heard[written[0]][4]) > 0
    requests = {(call[0], call[1], call[2], call[3], call[4]) for call in observer.of("request_attempted")}
    assert {(host, "GET", "list", "configmaps", 200), (host, "GET", "watch", "configmaps", 200),
            (host, "PATCH", "apply", "configmaps", 201), (host, "POST", "create", "configmaps", 201)} <= requests
