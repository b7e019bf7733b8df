"""Controllers against the embedded API server: over real sockets under hammering and outages, and in simulation with
its faults.

The controller copies `data` of labelled ConfigMaps into Secrets that they own. With threads only invariants and the
final state are asserted; the simulation also reproduces.
"""
from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.triggers.shared_watches import WatchedWrites
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.testing.simulation import Simulation
from tests.thoroughness import examples

PATIENCE = 60.0
ENOUGH_RUNS = 40
"""Reconciles of twelve keys that make a hammering worth its name."""
QUICK = WatchBackoff(initial=0.02, maximum=0.2)
PARENTS = WatcherConfig(label_selector="role=parent")


class Copier:
    """The reconciler, with its own watch over the invariants."""

    def __init__(self, failures: float = 0.1, rng: random.Random | None = None, *, at_the_latest: float = 600) -> None:
        """`failures`: the share of runs that fail. A run asks for another one `at_the_latest` seconds after it."""
        self.failures = failures
        self.at_the_latest = at_the_latest
        self.rng = rng or random.Random(1)
        self.lock = threading.Lock()
        self.active: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self.runs = 0

    def __call__(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
        with self.lock:
            self.runs += 1
            self.active[obj.name] += 1
            if self.active[obj.name] > 1:
                self.overlaps.append(obj.name)
        try:
            child = Secret(name=obj.name, namespace=obj.namespace, string_data=dict(obj.data))
            child.set_owner(obj)
            Api.namespaced(ctx.client, Secret, obj.namespace).apply(child, field_manager="copier", force=True)
            if self.rng.random() < self.failures:
                raise ValueError("planned")
            return Action.requeue(self.rng.choice([0.05, self.at_the_latest]))
        finally:
            with self.lock:
                self.active[obj.name] -= 1


def parent(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"role": "parent"}}, "data": {"value": value}}


def write(client: Client, name: str, value: str) -> None:
    Api.namespaced(client, ConfigMap, "default").apply(parent(name, value), field_manager="world", force=True)


def delete_quietly(api: Api[Any], name: str) -> None:
    try:
        api.delete(name)
    except ApiError as error:
        if not error.is_not_found:
            raise


def controller(client: Client, watch: WatcherConfig = PARENTS, **more: Any) -> Controller[ConfigMap]:
    api = Api.namespaced(client, ConfigMap, "default")
    return Controller(api, watch=replace(watch, backoff=QUICK), **more).owns(Api.namespaced(client, Secret, "default"))


def copies_agree(client: Client) -> bool:
    parents = {obj.name: (obj.uid, obj.data["value"]) for obj in Api.namespaced(client, ConfigMap, "default").list()
               if obj.labels.get("role") == "parent"}
    children = {obj.name: (obj.owner_references[0].uid, obj.data["value"].decode())
                for obj in Api.namespaced(client, Secret, "default").list()}
    return parents == children


def state_of(running: Running[ConfigMap], client: Client) -> str:
    """What tells the cause of a failure."""
    api: list[Api[Any]] = [Api.namespaced(client, kind, "default") for kind in (ConfigMap, Secret)]
    lines = [f"on the server: {obj.ref} {obj.uid} {obj.resource_version} {[one.uid for one in obj.owner_references]} "
             f"{dict(obj.data)}" for each in api for obj in each.list()]
    for name, watch in running.assembly.watches.items():
        lines += [f"{name}: {watch.state}, shown up to {watch.stored.overlay.shown}"]
        lines += [f"  stored: {record.ref} {record.uid} {record.resource_version}"
                  for record in watch.stored.records.values()]
        lines += [f"  written: {key} {own.uid} {own.version} {'gone' if own.gone else ''}"
                  for key, own in watch.stored.overlay.entries.items()]
    return "\n".join(["", *lines, f"the queue: {running.assembly.runner.look(50)}"])


def until(done: Callable[[], bool], state: Callable[[], str] = str) -> None:
    """`state` returns what the failure shows besides."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while True:
        try:
            if done():
                return
        except KubeError:  # the server may be away just now
            pass
        assert time.monotonic() < deadline, f"the controller did not come to the right state{state()}"
        pause.wait(0.05)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def settle_and_stop(running: Running[ConfigMap], client: Client, copier: Copier) -> None:
    copier.failures = 0.0
    until(lambda: copies_agree(client), lambda: state_of(running, client))
    assert running.error is None
    assert running.stop() == []
    assert copier.overlaps == []


@pytest.mark.parametrize(("children_are_deleted", "at_the_latest"), [(False, 600), (True, 600)])
def test_under_hammering_no_runs_overlap_and_nothing_is_lost(
        server: ApiServer, client: Client, children_are_deleted: bool, at_the_latest: float) -> None:
    """A child that is made and deleted while the watch of children is down is in no list: that it was written here and
    is missing there tells its owner.
    """
    copier, deadline = Copier(at_the_latest=at_the_latest), time.monotonic() + PATIENCE
    running = controller(client, concurrency=6).start(copier)

    def hammer(seed: int) -> None:
        rng = random.Random(seed)
        maps, secrets = Api.namespaced(client, ConfigMap, "default"), Api.namespaced(client, Secret, "default")
        number = 0
        # On a busy machine the hammers outrun the controller, which then has few runs that could overlap: they go on.
        while number < 60 or (copier.runs < ENOUGH_RUNS and time.monotonic() < deadline):
            number += 1
            name = f"p{rng.randrange(12)}"
            action = rng.random()
            if action < 0.6:
                write(client, name, f"{seed}-{number}")
            elif action < 0.75:
                delete_quietly(maps, name)
            elif action < 0.9:
                if children_are_deleted:
                    delete_quietly(secrets, name)
                else:
                    write(client, name, f"{seed}-{number}")
            elif action < 0.95:
                server.faults.on("watch").end_watch(after=1, how="reset").first()
            else:
                server.expire_history()

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    server.faults.clear()
    settle_and_stop(running, client, copier)
    assert copier.runs >= ENOUGH_RUNS


@pytest.mark.parametrize("outage", ["same data", "fresh data", "reset in mid-line"])
def test_after_an_outage_the_controller_recovers_by_itself(server: ApiServer, client: Client, outage: str) -> None:
    copier = Copier(failures=0.0)
    for number in range(5):
        write(client, f"p{number}", "before")
    running = controller(client).start(copier)
    until(lambda: copies_agree(client))
    if outage == "same data":
        server.stop()
        server.start()
    elif outage == "fresh data":
        server.restart(fresh=True)
    else:
        server.faults.on("watch").cut_event(1, 40, then="reset").first(2)
        server.drop_connections()
    for number in range(3, 8):
        until(lambda number=number: write(client, f"p{number}", "after") is None)
    settle_and_stop(running, client, copier)


def test_a_watch_that_stalls_half_open_is_given_up(server: ApiServer, client: Client,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Real time: the watch asks for one second, and is given up some time after that."""
    monkeypatch.setattr("kubectl_runtime.client.api.api.IDLE_MARGIN", 0.5)
    copier = Copier(failures=0.0)
    write(client, "p1", "before")
    running = controller(client, WatcherConfig(label_selector="role=parent", timeout=1)).start(copier)
    until(lambda: copies_agree(client))
    server.faults.on("watch").stall_after_headers().first(2)
    server.drop_connections()
    until(lambda: write(client, "p1", "after") is None)
    settle_and_stop(running, client, copier)


SEEDS = st.integers(0, 2**32)
WORLD = st.lists(st.tuples(st.sampled_from(["write", "write", "delete", "orphan", "drop", "expire", "stall", "cut",
                                            "refuse", "steps", "steps", "time"]),
                           st.integers(0, 3), st.integers(1, 30)), min_size=5, max_size=30)


class SimulatedStory:
    """The same controller in one thread, on simulated time, over the server's transport."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock, seed=seed)
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock,
                             retry=RetryPolicy(random=self.sim.random.random))
        self.copier = Copier(rng=self.sim.random)
        # While the watch of parents is stalled, the controller makes what the garbage collector deletes. Requests take
        # no simulated time, so without debounce that would go on for ever at the same moment.
        self.controller = self.sim.start(controller(self.client, concurrency=3, debounce=1), self.copier)

    def act(self, what: str, number: int, amount: int) -> None:
        name = f"p{number}"
        faults = self.server.faults
        if what == "write":
            write(self.client, name, str(amount))
        elif what == "delete":
            delete_quietly(Api.namespaced(self.client, ConfigMap, "default"), name)
        elif what == "orphan":
            delete_quietly(Api.namespaced(self.client, Secret, "default"), name)
        elif what == "drop":
            faults.on("watch").end_watch(after=1, how="reset").first()
        elif what == "cut":
            faults.on("watch").cut_event(1, amount, then="reset").first()
        elif what == "stall":
            faults.on("watch").stall_after_headers().first()
        elif what == "refuse":
            faults.on(("list", "watch")).status(500).first(2)
        elif what == "expire":
            self.server.expire_history()
        elif what == "time":
            self.sim.clock.advance(amount)
        else:
            self.sim.run(amount)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, WORLD)
def test_in_simulation_with_the_servers_faults_the_controller_ends_in_the_right_state(
        seed: int, world: list[tuple[str, int, int]]) -> None:
    story = SimulatedStory(seed)
    for what, number, amount in world:
        story.act(what, number, amount)
        story.sim.run(3)
    story.server.faults.clear()
    story.copier.failures = 0.0
    story.sim.run_until(lambda: story.controller.is_ready, limit=2000)
    story.sim.settle(900)
    assert copies_agree(story.client)
    assert story.copier.overlaps == []
    story.controller.begin_stop()
    story.sim.settle(60)
    assert story.controller.has_ended


@pytest.mark.parametrize("late", ["the deletion", "the first write"])
def test_a_write_that_is_reported_after_its_object_was_replaced_loses_no_run(
        monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """A thread may be interrupted between the server's answer and its report to the stores."""
    held: list[Callable[[], None]] = []
    report, holds = WatchedWrites._was_written, False
    monkeypatch.setattr(WatchedWrites, "_was_written", lambda writes, write: (
        held.append(partial(report, writes, write)) if holds else report(writes, write)))
    story = SimulatedStory(1)
    maps = Api.namespaced(story.client, ConfigMap, "default")
    if late == "the deletion":
        write(story.client, "p", "1")
    story.copier.failures = 0.0
    story.sim.run_until(lambda: story.controller.is_ready, limit=100)
    story.sim.settle(10)
    story.server.drop_connections()
    holds = True
    if late == "the first write":
        write(story.client, "p", "1")
        holds = False
    maps.delete("p")
    holds = False
    write(story.client, "p", "2")
    story.server.expire_history()
    second, store = maps.get("p"), story.controller.store
    story.sim.run_until(lambda: (found := store.as_watched(second.ref)) is not None and found.uid == second.uid)
    for reported in held:
        reported()
    story.sim.settle(100)
    assert held
    assert copies_agree(story.client)
