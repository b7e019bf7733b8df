"""Controllers in a simulation for hours of its clock, while everything that can go wrong does; in the end all is right.

    variable       means                                        here      tox env `soak`
    SOAK_HOURS     hours of the simulated clock                 0.25      10
    SOAK_OBJECTS   objects of all controllers together          200       2000
    SOAK_SEED      of everything that is left to chance         1         drawn, and printed

A failure names its seed: the same numbers make the same run.
"""
from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.watcher.watcher_config import InitialListStrategy, WatcherConfig
from kubectl_runtime.testing.simulation import Simulation

CONTROLLERS = 5
VERIFY = 300
HOURS = float(os.environ.get("SOAK_HOURS", "0.25"))
OBJECTS = int(os.environ.get("SOAK_OBJECTS", "200"))
SEED = os.environ.get("SOAK_SEED", "1")


def copied(obj: ConfigMap, ctx: Context[None]) -> Action:
    """Each parent has a child with its data."""
    child = ConfigMap(name=f"child-{obj.name}", labels={"role": "child"}, owner_references=[obj.owner_ref()],
                      data=dict(obj.data or {}))
    Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(child, field_manager="soak", force=True)
    return Action.await_change()


class Soak:
    """A server, its controllers, and what is done to them."""

    def __init__(self, seed: int, objects: int) -> None:
        self.random = random.Random(seed)
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock, seed=seed, record=False)
        self.names = [f"p{number}" for number in range(objects // CONTROLLERS)]
        self.done: Counter[str] = Counter()
        self.backup = self.server.snapshot()
        for number in range(CONTROLLERS):
            self.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"c{number}"}}])
            for name in self.names:
                self.put(f"c{number}", name)
        self.controllers = [self.start(number) for number in range(CONTROLLERS)]

    def start(self, number: int) -> Any:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        api = Api.namespaced(client, ConfigMap, f"c{number}")
        strategy = list(InitialListStrategy)[number % 2]
        controller = Controller(api, name=f"c{number}", watch=WatcherConfig(
            label_selector="role=parent", verify=VERIFY, initial_list_strategy=strategy))
        controller.owns(api, watch=WatcherConfig(label_selector="role=child", verify=VERIFY, page_size=50))
        return self.sim.start(controller, copied)

    # What happens

    def put(self, namespace: str, name: str) -> None:
        self.server.load([{"apiVersion": "v1", "kind": "ConfigMap",
                           "metadata": {"name": name, "namespace": namespace, "labels": {"role": "parent"}},
                           "data": {"value": str(self.random.random())}}])

    def change(self) -> None:
        namespace, name = f"c{self.random.randrange(CONTROLLERS)}", self.random.choice(self.names)
        what = self.random.random()
        target = name if what < 0.9 else f"child-{name}"
        if what < 0.7:
            self.put(namespace, name)
            return
        with self.server_client() as client:
            api = Api.namespaced(client, ConfigMap, namespace)
            if api.get_opt(target) is not None:
                api.delete(target)

    def server_client(self) -> Client:
        """A client that the faults do not touch: another server over the same data."""
        other = ApiServer(clock=self.sim.clock, record=False)
        other.core = self.server.core
        session = requests.Session()
        session.mount("http://", other.transport())
        return Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)

    def resets(self) -> None:
        self.server.drop_connections()

    def stall(self) -> None:
        self.server.faults.on("watch").first(self.random.randint(1, 4)).stall_after_headers()

    def expire(self) -> None:
        self.server.expire_history()

    def throttle(self) -> None:
        self.server.faults.on(["list", "watch", "patch"]).first(self.random.randint(1, 8)).throttle(
            self.random.choice((1, 5)))

    def lose_answers(self) -> None:
        self.server.faults.on("patch").first(self.random.randint(1, 8)).lose_answer()

    def fail(self) -> None:
        self.server.faults.on().first(self.random.randint(1, 8)).status(self.random.choice((500, 503, 504)))

    def away(self) -> None:
        rule = self.server.faults.connections().drop()
        self.server.drop_connections()
        self.sim.settle(self.random.choice((3, 40)))
        rule.remove()

    def restart(self) -> None:
        self.server.drop_connections()
        self.server.restart(lose_history=self.random.random() < 0.7, initializing=self.random.choice((0, 3)))

    def back_up(self) -> None:
        self.backup = self.server.snapshot()

    def rewind(self) -> None:
        rule = self.server.faults.connections().drop()
        self.server.drop_connections()
        self.sim.settle(5)
        self.server.restore(self.backup, rewind=True)
        for _ in range(self.random.choice((0, 50))):
            self.change()  # the versions may overtake what is known
        rule.remove()

    def run(self, hours: float) -> None:
        happenings: list[Callable[[], None]] = [
            self.resets, self.stall, self.expire, self.throttle, self.lose_answers, self.fail, self.away, self.restart,
            self.back_up, self.rewind]
        end, deck = self.sim.clock.monotonic() + 3600 * hours, list[Callable[[], None]]()
        while self.sim.clock.monotonic() < end:
            deck = deck or self.random.sample(happenings, len(happenings))
            what = deck.pop()
            what()
            self.done[what.__name__] += 1
            for _ in range(self.random.randint(0, 10)):
                self.change()
            self.sim.settle(self.random.choice((0.1, 2, 20, 120)))
        self.server.faults.clear()

    # What has to be

    def wrong(self) -> list[str]:
        """What is not as it has to be: on the server, and in the stores."""
        found: list[str] = []
        with self.server_client() as client:
            for number, controller in enumerate(self.controllers):
                objects = list(Api.namespaced(client, ConfigMap, f"c{number}").list())
                parents = {obj.name: obj for obj in objects if obj.labels.get("role") == "parent"}
                children = {obj.name: obj for obj in objects if obj.labels.get("role") == "child"}
                found += [f"c{number}/{name} has no right child" for name, obj in parents.items()
                          if (child := children.get(f"child-{name}")) is None or child.data != obj.data]
                found += [f"c{number}/{name} is nobody's" for name in children if name[len("child-"):] not in parents]
                for watch, truth in zip(controller.assembly.watches.values(), (parents, children), strict=True):
                    held = {obj.name: (obj.uid, obj.resource_version) for obj in watch.store}
                    if held != {name: (obj.uid, obj.resource_version) for name, obj in truth.items()}:
                        found.append(f"the store of {watch.target} is not what the server has: {watch.state}")
        return found


@pytest.mark.timeout(4 * 3600 if HOURS > 1 else 240)
def test_after_hours_of_faults_everything_is_as_it_has_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1 << 32) if SEED == "random" else int(SEED)
    with capsys.disabled():
        print(f"\nsoak: SOAK_SEED={seed} SOAK_OBJECTS={OBJECTS} SOAK_HOURS={HOURS:g}")
    soak = Soak(seed, OBJECTS)
    soak.sim.run_until(lambda: all(controller.is_ready for controller in soak.controllers))
    soak.run(HOURS)
    # Past the idle guard of a stalled watch, two verifications and the longest backoff, nothing may be wrong.
    for _ in range(30):
        soak.sim.settle(60)
        if not soak.wrong():
            break
    with capsys.disabled():
        print(f"soak: {dict(soak.done)}")
    assert soak.wrong() == [], f"SOAK_SEED={seed}"
    assert len(soak.done) == 10, "each kind of fault came"
