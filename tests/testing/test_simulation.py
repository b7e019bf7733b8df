"""The simulation's own parts: the executor's interleavings, and how time moves."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime import Api, ApiError, LeaderElection, Manager, RequestError
from kubectl_runtime.resources import ConfigMap, Pod
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing import simulation
from kubectl_runtime.testing.clock import SimExecutor
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent


def work(name: str, log: list[str]) -> Iterator[None]:
    for step in range(3):
        log.append(f"{name}{step}")
        yield


def interleaving(seed: int) -> list[str]:
    log: list[str] = []
    executor = SimExecutor(seed)
    for name in "abc":
        executor.submit(work(name, log))
    executor.run()
    return log


def test_a_seed_gives_one_interleaving_and_seeds_give_many() -> None:
    assert interleaving(1) == interleaving(1)
    assert len({tuple(interleaving(seed)) for seed in range(50)}) > 30
    assert sorted(interleaving(1)) == sorted(f"{name}{step}" for name in "abc" for step in range(3))


def test_what_work_raises_comes_out_and_the_rest_goes_on() -> None:
    def broken() -> Iterator[None]:
        yield
        raise ValueError("planned")

    log: list[str] = []
    executor = SimExecutor()
    executor.submit(broken())
    executor.submit(work("a", log))
    with pytest.raises(ValueError, match="planned"):
        executor.run()
    executor.run()
    assert log == ["a0", "a1", "a2"]
    assert len(executor) == 0


def test_time_moves_to_the_next_thing_to_do_and_to_the_limit_exactly() -> None:
    sim = Simulation(1)
    cluster = Cluster(sim.clock)
    cluster.put(Parent, "a")
    at: list[float] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        at.append(sim.clock.monotonic())
        return Action.requeue(7.5)

    sim.start(Controller(cluster.api(Parent)), reconcile)
    sim.settle(20)
    assert at == [0.0, 7.5, 15.0]
    assert sim.clock.monotonic() == 20


def test_a_wait_that_is_never_over_names_the_seed() -> None:
    sim = Simulation(4711)
    cluster = Cluster(sim.clock)
    cluster.failing.add(Child.api_resource)
    controller = sim.start(Controller(cluster.api(Parent)).owns(cluster.api(Child)), lambda obj,
                           ctx: Action.await_change())
    with pytest.raises(AssertionError, match="seed 4711"):
        sim.run_until(lambda: controller.is_ready, limit=60)


def test_controllers_that_keep_each_other_busy_are_named_instead_of_running_for_ever(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "RESTLESS", 500)
    sim = Simulation(4711)
    cluster = Cluster(sim.clock)
    for name in ("calm", "disputed"):
        cluster.put(Parent, name)

    def wants(value: int) -> Callable[[Parent, Context[Any]], Action]:
        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            if obj.name == "disputed" and obj.spec["value"] != value:
                cluster.put(Parent, obj.name, value)
            return Action.await_change()
        return reconcile

    for value in (1, 2):
        sim.start(Controller(cluster.api(Parent), name=f"wants-{value}"), wants(value))
    with pytest.raises(AssertionError, match=r"does not come to rest: \d+ .* at 0 s \(seed 4711\)") as found:
        sim.settle(20)
    assert all(f"wants-{value}: Parent.v1.test.example/disputed" in str(found.value) for value in (1, 2))
    assert "calm" not in str(found.value)


def test_much_work_at_one_moment_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "RESTLESS", 500)
    sim = Simulation(5)
    cluster = Cluster(sim.clock)
    for number in range(500):
        cluster.put(Parent, f"p{number}")
    runs: list[str] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        runs.append(obj.name)
        return Action.requeue(1) if len(runs) < 1500 else Action.await_change()

    sim.start(Controller(cluster.api(Parent)), reconcile)
    sim.settle(20)
    assert len(runs) >= 1500


def test_actors_of_the_test_take_part_and_what_they_raise_comes_out() -> None:
    sim = Simulation(2)
    cluster = Cluster(sim.clock)
    seen: set[str] = set()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen.add(obj.name)
        return Action.await_change()

    sim.start(Controller(cluster.api(Parent)), reconcile)
    sim.add(lambda: cluster.put(Parent, f"p{len(cluster.names(Parent))}") if len(cluster.names(Parent)) < 5 else None)
    sim.run(300)
    assert seen == {f"p{number}" for number in range(5)}
    sim.add(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sim.run(100)


def test_the_controllers_of_its_servers_work_at_their_times() -> None:
    with Simulation(3) as simulation:
        server = simulation.serve(controllers=["*"])
        server.kubelet.rules.on().start(after=7).be_ready(after=0.5)
        pods = Api.namespaced(simulation.client(server), Pod, "default")
        pods.create({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
        simulation.eventually(lambda: pods.get("web"), lambda pod: pod["status"]["phase"] == "Running")
        assert simulation.clock.monotonic() == 7
        ready = simulation.eventually(lambda: [each for each in pods.get("web")["status"]["conditions"]
                                               if each["type"] == "Ready" and each["status"] == "True"])
        assert simulation.clock.monotonic() == 7.5
        assert ready[0]["lastTransitionTime"] == "2026-01-01T00:00:07Z"


def test_what_was_last_seen_is_told_with_the_seed() -> None:
    with Simulation(5) as simulation:
        with pytest.raises(AssertionError, match=r"within 60 simulated seconds \(seed 5\) .*; last seen: \[1\]"):
            simulation.eventually(lambda: [1], lambda found: len(found) > 1, timeout=60)
        assert simulation.clock.monotonic() == 60


def test_users_of_a_simulated_server_have_their_rights() -> None:
    with Simulation() as simulation:
        server = simulation.serve(authorization_mode="RBAC")
        assert Api.namespaced(simulation.client(server), Pod, "default").list().items == []
        with pytest.raises(ApiError, match="cannot list"):
            Api.namespaced(simulation.client(server, "alice"), Pod, "default").list()


def test_a_bound_controller_starts_alone_with_its_context() -> None:
    def reconcile(obj: ConfigMap, ctx: Context[list[str]]) -> Action:
        ctx.data.append(obj.name)
        return Action.await_change()

    with Simulation() as sim:
        client, ran = sim.client(sim.serve()), list[str]()
        controller = Controller(Api.namespaced(client, ConfigMap, "default"))
        sim.start(controller.bind(reconcile, context=ran))
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        sim.settle(5)
        assert "a" in ran
        with pytest.raises(RequestError, match="bound to its reconciler"):
            sim.start(controller.bind(reconcile, context=ran), context=["another"])  # type: ignore[call-overload]
        with pytest.raises(RequestError, match=r"controller\.bind\(reconcile\)"):
            sim.start(controller)  # type: ignore[call-overload]


def test_the_controllers_of_a_manager_are_started() -> None:
    ran: list[str] = []

    def reconcile(obj: ConfigMap, ctx: Context[str]) -> Action:
        ran.append(ctx.data)
        return Action.requeue(60)

    with Simulation(3) as sim:
        client = sim.client(sim.serve())
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.create(ConfigMap(name="a"))
        made = Manager(client, leader=LeaderElection("sites", "default"))
        assert sim.start(made) == []
        for name in "xy":
            made.add(Controller(maps, name=name), reconcile, context=name)
        made.add_runnable(lambda stop: ran.append("runnable"), "runnable")
        started = sim.start(made)
        sim.settle(60)
        assert [one.is_ready for one in started] == [True, True]
        assert sorted(ran) == ["x", "x", "y", "y"]
        for more in ({"reconciler": reconcile}, {"context": "z"}):
            with pytest.raises(RequestError, match="bound to its reconciler"):
                sim.start(made, **more)
        with pytest.raises(RequestError, match=r"or a Manager: .*simulation\.start\(manager\)"):
            sim.start(Controller(maps))
