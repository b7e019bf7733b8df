"""The finalizer's promise, with a crash between any two steps, stale stores, late requests and others who interfere.

A cloud holds one bucket per ConfigMap, under the object's name. Whatever happens:

    a bucket is there only while its object is, with our finalizer on it     never forgotten
    a bucket is deleted only when its own object is going                    never too early, never a namesake's
    in the end each object has its bucket, and what was deleted is gone      exactly when the object goes

One thread, simulated time. A crash comes out of the transport, or out of the cloud, as a BaseException; from then on
neither hears of that process again, and a new one begins with the same server and cloud.
"""
from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from requests.adapters import BaseAdapter

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    Client,
    Config,
    Context,
    Controller,
    FinalizingReconciler,
    Patch,
    RetryPolicy,
)
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, Simulation
from tests.thoroughness import examples

OURS = "buckets.example.com/cleanup"
OTHER = "other.example.com/x"
NAMES = ("a", "b")
PROCESS = "x-process"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


class Crash(BaseException):
    """The process is gone."""


class Process(BaseAdapter):
    """One life of the controller: its line to the server, which it also counts its steps on.

    Each write and each call of the cloud is a step before and a step after; at step `dies_at` the process dies.
    """

    def __init__(self, story: Story, dies_at: int | None) -> None:
        super().__init__()
        self.story = story
        self.dies_at = dies_at
        self.steps = 0
        self.dead = False
        self.line = story.server.transport()
        session = requests.Session()
        session.mount("http://", self)
        random = story.sim.random
        client = Client(Config(cluster_url="http://simulated"), session=session, clock=story.sim.clock,
                        retry=RetryPolicy(random=random.random))
        self.controller = story.sim.start(Controller(Api.all(client, ConfigMap), concurrency=2), Buckets(self))

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        if self.dead:
            raise Crash
        request.headers[PROCESS] = "controller"
        if request.method == "GET":
            answer = self.line.send(request, **options)
            self.story.meanwhile()
            return answer
        return self.step(lambda: self.line.send(request, **options))

    def close(self) -> None:
        self.line.close()

    def step(self, effect: Callable[[], Any]) -> Any:
        self._may_die()
        self.story.meanwhile()
        self.story.check()
        result = effect()
        self.story.check()
        self.story.meanwhile()
        self._may_die()
        return result

    def _may_die(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            self.dead = True
            self.controller.begin_stop(grace=0)
        if self.dead:
            raise Crash


class Buckets(FinalizingReconciler[ConfigMap]):
    finalizer_name = OURS

    def __init__(self, process: Process) -> None:
        self.process = process
        self.story = process.story

    def apply(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        self.story.may_fail()
        self.process.step(lambda: self.story.create_bucket(obj))
        self.story.may_fail()
        return Action.await_change()

    def cleanup(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        self.story.may_fail()
        if self.story.chance(0.2):
            return Action.requeue(2)
        self.process.step(lambda: self.story.delete_bucket(obj))
        self.story.may_fail()
        return Action.await_change()


class Story:
    """Server, cloud and whoever else there is. `wild`: others act, and user code fails, at any moment."""

    def __init__(self, seed: int, deaths: tuple[int, ...] = (), *, wild: bool = False) -> None:
        self.sim = Simulation(seed)
        self.wild = wild
        self.server = ApiServer(clock=self.sim.clock, seed=seed)
        self.session = requests.Session()
        self.session.mount("http://", self.server.transport())
        self.maps = Api.namespaced(Client(Config(cluster_url="http://simulated"), session=self.session,
                                          clock=self.sim.clock), ConfigMap, "default")
        self.cloud: dict[str, str] = {}
        self.harm: list[str] = []
        self.deaths = list(deaths)
        self.crashes = 0
        self.process = self.begin()

    def begin(self) -> Process:
        return Process(self, self.deaths.pop(0) if self.deaths else None)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.sim.step()
            self.replace_the_dead()

    def settle(self, seconds: int) -> None:
        """Second by second, so that what arrives at different times is seen at different times."""
        for _ in range(seconds):
            self.sim.settle(1)
            while self.replace_the_dead():
                self.sim.settle(1)

    def replace_the_dead(self) -> bool:
        if not self.process.dead:
            return False
        self.crashes += 1
        self.process = self.begin()
        return True

    # the cloud

    def create_bucket(self, obj: ConfigMap) -> None:
        if self.cloud.setdefault(obj.name, obj.uid) != obj.uid:
            self.harm.append(f"{obj.name} took over the bucket of a namesake")

    def delete_bucket(self, obj: ConfigMap) -> None:
        if self.cloud.get(obj.name, obj.uid) != obj.uid:
            self.harm.append(f"{obj.name}: a namesake's bucket was deleted")
        live = self.live(obj.name)
        if live is None or live.uid != obj.uid or live.deletion_timestamp is None:
            self.harm.append(f"{obj.name}: cleaned up although it was not going")
        self.cloud.pop(obj.name, None)

    def check(self) -> None:
        """Objects change only by requests, so this is asked after each."""
        for name, uid in self.cloud.items():
            live = self.live(name)
            if live is None or live.uid != uid or OURS not in live.finalizers:
                self.harm.append(f"the bucket of {name} is forgotten")

    def live(self, name: str) -> ConfigMap | None:
        return self.quietly(lambda: self.maps.get_opt(name))

    # the others

    def chance(self, probability: float) -> bool:
        return self.wild and self.sim.random.random() < probability

    def may_fail(self) -> None:
        if self.chance(0.1):
            raise ValueError("planned")

    def meanwhile(self) -> None:
        if self.chance(0.15):
            self.act(self.sim.random.choice(("create", "delete", "label", "hold", "let go", "replace")),
                     self.sim.random.choice(NAMES), 1)

    def quietly(self, call: Callable[[], Any]) -> Any:
        """What the server refuses to the others is their affair."""
        try:
            return call()
        except ApiError:
            return None

    def fault(self, verb: str) -> Rule:
        """For requests of the controller alone."""
        return self.server.faults.on(verb, where=lambda request: PROCESS in request.headers)

    def act(self, what: str, name: str, number: int) -> None:
        maps = self.maps
        acts: dict[str, Callable[[], Any]] = {
            "create": lambda: maps.create(ConfigMap(name=name)),
            "delete": lambda: maps.delete(name),
            "label": lambda: maps.patch(name, Patch.merge({"metadata": {"labels": {"v": str(number)}}})),
            "hold": lambda: maps.patch(name, Patch.json(
                [{"op": "test", "path": "/metadata/finalizers/0", "value": OURS},
                 {"op": "add", "path": "/metadata/finalizers/0", "value": OTHER}])),
            "let go": lambda: maps.patch(name, Patch.json(
                [{"op": "test", "path": "/metadata/finalizers/0", "value": OTHER},
                 {"op": "remove", "path": "/metadata/finalizers/0"}])),
            "replace": lambda: (maps.delete(name), maps.create(ConfigMap(name=name))),
        }
        if what in acts:
            self.quietly(acts[what])
            self.check()
        elif what == "crash":
            self.process.dies_at = self.process.steps + number
        elif what == "stale":
            self.fault("watch").lag_events(number * 3).first(2)
            self.server.drop_connections()
        elif what == "stall":
            self.fault("watch").stall_after_headers().first()
            self.server.drop_connections()
        elif what == "lose":
            self.fault("patch").first(1).lose_answer()
        elif what == "late":  # the client gives up before the server has handled it
            self.fault("patch").first(1).delay(60 + number)
        elif what == "refuse":
            self.fault("patch").first(number % 3 + 1).status(500)
        elif what == "time":
            self.sim.clock.advance(number)
        else:
            self.run(number)

    def come_to_rest(self) -> None:
        self.wild = False
        self.process.dies_at = None
        self.server.faults.clear()
        for name in NAMES:
            self.act("let go", name, 0)
        self.sim.settle(300)  # a watch that is stalled ends by then
        controller = self.process.controller
        self.sim.run_until(lambda: controller.is_ready and not controller.scheduled, limit=2500)
        self.sim.settle(30)


def life(deaths: tuple[int, ...], *acts: str) -> Story:
    """What becomes of one object; each act comes when everything is at rest."""
    story = Story(0, deaths)
    for act in acts:
        story.act(act, "a", 1)
        story.settle(1)
    return story


def test_a_crash_at_any_step_of_a_life_forgets_nothing_and_harms_nobody() -> None:
    for step in itertools.count(1):
        story = life((step,), "create", "label", "delete", "create", "delete")
        assert (story.cloud, story.harm, story.live("a")) == ({}, [], None), step
        if not story.crashes:
            break
    # before and after: the addition, bucket, (label) bucket, deletion of the bucket, removal; and once more
    assert step > 2 * (5 + 4)


def test_a_second_crash_at_any_step_after_a_first_at_any_step_changes_nothing() -> None:
    crashes = set()
    for deaths in itertools.product(range(1, 9), repeat=2):
        story = life(deaths, "create", "delete")
        assert (story.cloud, story.harm, story.live("a")) == ({}, [], None), deaths
        crashes.add(story.crashes)
    assert crashes == {1, 2}


def test_a_removal_that_is_handled_late_takes_nothing_from_a_namesake() -> None:
    """The client gives up and does it again; the first request is still on its way when a namesake has a bucket."""
    story = life((), "create")
    late = story.fault("patch").first(1).delay(200)
    story.act("delete", "a", 1)
    story.settle(100)
    assert late.taken == 1
    assert story.cloud == {}
    story.act("create", "a", 1)
    story.settle(10)
    assert list(story.cloud) == ["a"]
    story.settle(200)
    story.act("delete", "a", 1)
    story.settle(10)
    assert (story.cloud, story.harm, story.live("a")) == ({}, [], None)


def test_a_store_that_still_shows_what_is_gone_cleans_nothing_up_a_second_time() -> None:
    """Each event comes 5 s late: the label's comes when the object is gone and its name belongs to another one."""
    story = life((), "create")
    story.fault("watch").lag_events(5)
    story.server.drop_connections()
    story.settle(20)
    story.act("delete", "a", 1)
    story.settle(3)
    story.act("label", "a", 1)
    story.settle(3)
    assert (story.live("a"), story.cloud) == (None, {})
    story.act("create", "a", 1)
    story.settle(20)
    assert (story.harm, list(story.cloud)) == ([], ["a"])


WORLD = st.lists(st.tuples(
    st.sampled_from(["create", "create", "delete", "delete", "label", "hold", "let go", "replace", "crash", "crash",
                     "stale", "stall", "lose", "late", "refuse", "time", "steps", "steps", "steps"]),
    st.sampled_from(NAMES), st.integers(1, 12)), min_size=5, max_size=40)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), WORLD)
def test_whatever_happens_what_is_outside_is_cleaned_up_exactly_when_its_object_goes(
        seed: int, world: list[tuple[str, str, int]]) -> None:
    story = Story(seed, wild=True)
    for what, name, number in world:
        story.act(what, name, number)
        story.run(6)
        assert story.harm == []
    story.come_to_rest()
    assert story.harm == []
    assert story.cloud == {obj.name: obj.uid for obj in story.maps.list().items if obj.name in NAMES}
    for name in story.cloud:
        live = story.live(name)
        assert live is not None
        assert live.deletion_timestamp is None
