"""`Soak`: controllers in a simulation over an embedded server to which everything that can go wrong happens.

    happening     what it is                                                       what has to make up for it
    resets        every connection breaks                                          watches resume
    stall         some watches open and then say nothing                           the idle guard
    expire        the server forgets its history                                   410, and a list
    throttle      some requests are answered with 429                              Retry-After
    lose_answers  some writes are carried out, and their answers are lost          retries
    fail          some requests are answered with 500, 503 or 504                  backoff
    away          nobody is there for a while                                      one probe a client
    restart       as a kube-apiserver restarts, most often without its history     410, 503 and 429 at first
    back_up       the state is remembered
    rewind        the state of the last back-up returns, resourceVersions too      `verify`

Each is dealt once before any comes again; between them objects are changed, deleted, and deleted behind a controller's
back. The garbage collector takes its time, as a real one does: one that deletes in the instant of the creation makes a
loop, without end and in no time at all, of a controller whose stale store still has the owner.
"""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import requests

from kubectl_runtime.apiserver.controllers import controller_catalog
from kubectl_runtime.apiserver.controllers.garbage import GarbageCollector
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.storage import Cluster
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.config import InitialListStrategy, WatcherConfig
from kubectl_runtime.testing.simulation import SimulatedController, Simulation

CONTROLLERS = 5
VERIFY = 300


def copied(obj: ConfigMap, ctx: Context[None]) -> Action:
    """Each parent has a child with its data."""
    child = ConfigMap(name=f"child-{obj.name}", labels={"role": "child"}, owner_references=[obj.owner_ref()],
                      data=dict(obj.data or {}))
    Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(child, field_manager="soak", force=True)
    return Action.await_change()


class SlowCollector(GarbageCollector):
    """Looks at what waits for it once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def due(self) -> float | None:
        return None if super().due() is None else self._next

    def step(self, cluster: Cluster) -> None:
        while super().due() is not None:
            super().step(cluster)
        self._next = cluster.clock.monotonic() + 1


class Soak:
    """A server, its controllers, and what is done to them."""

    def __init__(self, seed: int, objects: int) -> None:
        self.random = random.Random(seed)
        self.sim = Simulation(seed)
        with patch.dict(controller_catalog.CONTROLLERS, {SlowCollector.name: SlowCollector}):
            self.server = ApiServer(clock=self.sim.clock, seed=seed, record=False)
        self.names = [f"p{number}" for number in range(objects // CONTROLLERS)]
        self.done: Counter[str] = Counter()
        for number in range(CONTROLLERS):
            self.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"c{number}"}}])
            for name in self.names:
                self.put(f"c{number}", name)
        self.backup = self.server.snapshot()
        self.controllers = [self.start(number) for number in range(CONTROLLERS)]

    def start(self, number: int) -> SimulatedController[ConfigMap]:
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
        initializing = self.random.choice((0, 3))
        self.server.drop_connections()
        self.server.restart(lose_history=self.random.random() < 0.7, initializing=initializing)
        self.sim.settle(initializing)  # nobody can change anything before

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
        """Do all that for so many hours of the clock, and until each has come."""
        happenings: list[Callable[[], None]] = [
            self.resets, self.stall, self.expire, self.throttle, self.lose_answers, self.fail, self.away, self.restart,
            self.back_up, self.rewind]
        end, deck = self.sim.clock.monotonic() + 3600 * hours, list[Callable[[], None]]()
        while self.sim.clock.monotonic() < end or len(self.done) < len(happenings):
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

    def heal(self) -> list[str]:
        """What is still wrong when it is past the idle guard of a stalled watch, verifications, and the longest
        backoff."""
        for _ in range(30):
            self.sim.settle(60)
            if not (found := self.wrong()):
                break
        return found
