"""Outages as a whole: how often a server that is away is asked, how soon its return is noticed, and how often one that
refuses for ever is asked. On a simulated clock over the embedded server's transport; once with real seconds."""
from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.send import PROBE_SECONDS
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.config import InitialListStrategy, WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Event
from kubectl_runtime.runtime.watch.states import Phase
from kubectl_runtime.testing.clock import SimClock

NOTICED = 8.0
"""Seconds after the server is ready within which every change has to be noticed."""


class Counted(BaseAdapter):
    """A transport, and when it was used."""

    def __init__(self, inner: Any, clock: SimClock) -> None:
        super().__init__()
        self.inner, self.clock = inner, clock
        self.times: list[float] = []

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:  # type: ignore[override]
        self.times.append(self.clock.monotonic())
        found: requests.Response = self.inner.send(request, **more)
        return found

    def close(self) -> None:
        pass

    def since(self, begin: float) -> list[float]:
        return [at for at in self.times if at >= begin]


class World:
    """Watches of one client, each as in a thread of its own, on a simulated clock."""

    def __init__(self, watches: int = 1, config: WatcherConfig = WatcherConfig(), seed: int = 1,  # noqa: B008
                 observer: Observer = NO_OBSERVER) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(clock=self.clock)
        self.adapter = Counted(self.server.transport(), self.clock)
        session = requests.Session()
        session.mount("http://", self.adapter)
        self.client = Client(Config(cluster_url="http://simulated", timeout=30), session=session, clock=self.clock)
        self.stop = StopToken(clock=self.clock)
        self.heard: dict[str, float] = {}
        self.watches: list[Watch[ConfigMap]] = []
        self._wakes: list[float] = []
        rng = random.Random(seed)
        for number in range(watches):
            self.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{number}"}}])
            api = Api.namespaced(self.client, ConfigMap, f"n{number}")
            watch = Watch(api, config, stop=self.stop, clock=self.clock, rng=random.Random(rng.random()),
                          observer=observer)
            watch.subscribe(self._hear, lambda _: None)
            self.watches.append(watch)
            self._wakes.append(0.0)

    def _hear(self, event: Event[ConfigMap]) -> list[ReconcileRequest]:
        if isinstance(event, Apply):
            self.heard[f"{event.obj.namespace}/{event.obj.name}"] = self.clock.monotonic()
        return []

    def put(self, namespace: str, name: str, value: str = "") -> None:
        self.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
                           "data": {"value": value}}])

    def run(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while True:
            at = min(self._wakes)
            if at > end:
                self.clock.advance(max(0.0, end - self.clock.monotonic()))
                return
            if at > self.clock.monotonic():
                self.clock.advance(at - self.clock.monotonic())
            number = self._wakes.index(at)
            wait = self.watches[number].step()
            self._wakes[number] = self.clock.monotonic() + (0.25 if wait is None else wait)

    def go_away(self) -> Rule:
        rule = self.server.faults.connections().drop()
        self.server.drop_connections()
        return rule


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("initializing", [0, 6], ids=["ready at once", "refuses for 6 s first"])
@pytest.mark.parametrize("away", [5, 40])
def test_after_an_outage_in_which_history_was_lost_every_change_is_noticed_within_eight_seconds_of_ready(
        away: int, initializing: int, seed: int) -> None:
    world = World(8, seed=seed)
    for number in range(8):
        world.put(f"n{number}", "a")
    world.run(200)
    gone = world.go_away()
    begun = world.clock.monotonic()
    world.run(away)
    while_away = world.adapter.since(begun)
    for number in range(20):
        world.put(f"n{number % 8}", f"c{number}")
    gone.remove()
    world.server.restart(lose_history=True, initializing=initializing)
    world.run(initializing)
    ready = world.clock.monotonic()
    world.run(NOTICED)
    late = {f"n{number % 8}/c{number}" for number in range(20)} - set(world.heard)
    assert not late, f"not noticed: {late}; {[watch.state for watch in world.watches]}"
    assert max(world.heard.values()) - ready <= NOTICED
    # What was under way when the server went may fail for each; from then on the watches of a client try as one.
    tries = while_away[1:]
    assert all(later - earlier >= PROBE_SECONDS - 1e-6 for earlier, later in pairwise(tries)), tries
    assert len(while_away) <= 2 + away / PROBE_SECONDS


class Failing(Observer):
    """What metrics hear of failures."""

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}

    def watch_failed(self, watch: str, error: BaseException, failures: int, delay: float) -> None:
        self.failures[watch] = failures


@pytest.mark.parametrize("half_open", [False, True], ids=["all connections end", "one stays half-open"])
@pytest.mark.parametrize("watches", [1, 3, 10, 20])
def test_every_watch_says_within_ten_seconds_that_the_server_is_away_and_at_once_that_it_is_back(
        watches: int, half_open: bool) -> None:
    heard = Failing()
    world = World(watches + half_open, observer=heard)
    world.run(30)
    if half_open:  # nothing comes on its connection, and it does not end
        world.watches[-1].step = lambda: 0.5  # type: ignore[method-assign]
    begun = world.clock.monotonic()
    gone = world.go_away()
    world.run(3)
    assert [watch.trouble for watch in world.watches] == [""] * len(world.watches), "a moment is no trouble"
    world.run(7)
    assert all("in a row: cannot watch" in watch.trouble for watch in world.watches)
    assert min(heard.failures[f"configmaps in namespace n{number}"] for number in range(watches)) >= 3
    assert len(world.adapter.since(begun)) <= watches + 4, "and it costs no attempts"
    gone.remove()
    world.run(NOTICED)
    assert [watch.trouble for watch in world.watches] == [""] * len(world.watches)


def test_a_call_that_is_answered_ends_the_wait_of_all_watches_of_its_client() -> None:
    world = World(5)
    world.run(100)
    gone = world.go_away()
    world.run(23)
    gone.remove()
    assert {watch.state.phase for watch in world.watches} == {Phase.WAITING}
    assert all("cannot watch configmaps" in watch.state.last_error for watch in world.watches)
    Api.all(world.client, Namespace).list()
    asked = len(world.adapter.times)
    world.run(1.1)
    assert {watch.state.phase for watch in world.watches} == {Phase.WATCHING}
    assert len(world.adapter.times) - asked == 2 * 5, "one watch each, and a question for the server's version"
    assert [watch.state.last_error for watch in world.watches] == [""] * 5


PERMANENT: dict[str, Callable[[ApiServer], object]] = {
    "each watch has expired": lambda server: server.faults.on("watch").expire_watch(),
    "each watch is answered 410": lambda server: server.faults.on("watch").status(410, "Expired"),
    "lists and watches are forbidden": lambda server: server.faults.on(["list", "watch"]).status(403),
    "watches are forbidden": lambda server: server.faults.on("watch").status(403),
    "everything fails": lambda server: server.faults.on().status(500),
    "watches fail": lambda server: server.faults.on("watch").status(500),
    "nothing is available": lambda server: server.faults.on().status(503),
    "watches end at once": lambda server: server.faults.on("watch").end_watch(),
    "watches are reset at once": lambda server: server.faults.on("watch").end_watch(how="reset"),
}


@pytest.mark.parametrize("strategy", InitialListStrategy)
@pytest.mark.parametrize("what", PERMANENT)
def test_a_server_that_refuses_for_ever_is_asked_at_most_once_in_ten_seconds_after_a_minute(
        what: str, strategy: InitialListStrategy) -> None:
    world = World(3, WatcherConfig(initial_list_strategy=strategy))
    PERMANENT[what](world.server)
    world.run(60)
    begun = world.clock.monotonic()
    world.run(600)
    assert len(world.adapter.since(begun)) / 600 / 3 <= 0.1


def test_credentials_that_are_refused_for_two_minutes_are_tried_a_few_times_a_minute_and_then_every_watch_is_back(
        caplog: pytest.LogCaptureFixture) -> None:
    world = World(3)
    for number in range(3):
        world.put(f"n{number}", "a")
    refused = world.server.faults.on().status(401)  # from the very first list on, for watch 0 .. 2 alike
    world.run(120)
    assert len(world.adapter.times) / 3 <= 12, "attempts a watch in two minutes"
    assert {watch.state.phase for watch in world.watches} == {Phase.WAITING}
    assert all("Unauthorized" in watch.state.last_error or "401" in watch.state.last_error for watch in world.watches)
    assert not any(watch.store.is_ready for watch in world.watches)
    refused.remove()
    world.run(61)
    assert {watch.state.phase for watch in world.watches} == {Phase.WATCHING}
    assert set(world.heard) == {f"n{number}/a" for number in range(3)}
    again = world.server.faults.on().status(401)  # and for watches that were well before
    world.server.drop_connections()
    begun = world.clock.monotonic()
    world.run(120)
    assert len(world.adapter.since(begun)) / 3 <= 12
    for number in range(3):
        world.put(f"n{number}", "b")
    again.remove()
    world.run(61)
    assert {f"n{number}/b" for number in range(3)} <= set(world.heard)
    assert [watch.state.last_error for watch in world.watches] == [""] * 3
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 0 < len(warned) <= 3 * 12, "told, and not in a flood"


def test_a_proxy_that_resets_watches_alone_is_not_asked_in_a_tight_loop_by_a_busy_client() -> None:
    world = World(2)
    world.server.faults.on("watch").drop()
    api = Api.all(world.client, Namespace)
    for _ in range(120):
        world.run(0.5)
        api.list()
    begun, calls = world.clock.monotonic(), 0
    for _ in range(600):
        world.run(0.5)
        api.list()
        calls += 1
    assert (len(world.adapter.since(begun)) - calls) / 300 / 2 <= 0.1


def test_a_rewind_behind_an_outage_is_seen_told_once_and_mended(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1)
    world.put("n0", "a", "old")
    world.put("n0", "b", "same")
    before = world.server.snapshot()
    world.put("n0", "a", "lost")
    world.put("n0", "gone")
    world.run(100)
    store = world.watches[0].store
    gone = world.go_away()
    world.run(8)
    world.server.restore(before, rewind=True)
    world.put("n0", "a", "new")  # at the very version that "lost" had
    world.heard.clear()
    gone.remove()
    with caplog.at_level(logging.WARNING):
        world.run(20)
    assert {obj.name: obj.data["value"] for obj in store} == {"a": "new", "b": "same"}
    assert set(world.heard) == {"n0/a", "n0/b"}, "everything counts as changed"
    assert [record.message for record in caplog.records if "went back in time" in record.message] != []
    assert sum("went back in time" in record.message for record in caplog.records) == 1


def test_a_connection_that_failed_costs_one_question_for_the_version_and_a_clean_end_none() -> None:
    world = World(1, WatcherConfig(timeout=60))
    world.run(10)
    begun = world.clock.monotonic()
    world.run(600)
    assert 10 <= len(world.adapter.since(begun)) <= 13, "watches alone"
    begun = world.clock.monotonic()
    world.server.drop_connections()
    world.run(5)
    assert len(world.adapter.since(begun)) == 2
    assert world.watches[0].state.relists == 0


class Flows(Counted):
    """A transport whose answers name the FlowSchema that matched the request."""

    uid = "flow-1"

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        found = super().send(request, **more)
        found.raw.headers["X-Kubernetes-Pf-Flowschema-Uid"] = found.headers["X-Kubernetes-Pf-Flowschema-Uid"] = self.uid
        return found


def flowing(watches: int, number: int) -> tuple[World, Flows]:
    """Watches of `number` objects each, whose first watch is open and named its FlowSchema."""
    world = World(watches, WatcherConfig(timeout=60))
    for count in range(watches):
        for name in range(number):
            world.put(f"n{count}", f"m{name}")
    world.adapter.inner = flows = Flows(world.adapter.inner, world.clock)
    return world, flows


@pytest.mark.parametrize("objects", [0, 1, 20])
def test_a_flow_schema_that_comes_and_goes_costs_a_question_and_no_list(objects: int,
                                                                        caplog: pytest.LogCaptureFixture) -> None:
    world, flows = flowing(3, objects)
    world.run(100)
    with caplog.at_level(logging.INFO):
        for uid in ("flow-2", "flow-1", "flow-3"):
            flows.uid = uid
            world.put("n0", f"new-{uid}")
            world.run(100)
    assert [watch.state.relists for watch in world.watches] == [0, 0, 0]
    assert caplog.messages == []
    begun = world.clock.monotonic()
    world.run(600)
    assert len(flows.since(begun)) <= 3 * 14, "the new one is known, and not asked about again"


@pytest.mark.parametrize("gone", ["the newest object", "all objects"])
def test_objects_that_are_deleted_beside_a_flow_schema_are_no_other_cluster(gone: str,
                                                                            caplog: pytest.LogCaptureFixture) -> None:
    world, flows = flowing(1, 5)
    world.run(100)
    maps = Api.namespaced(world.client, ConfigMap, "n0")
    for name in range(5 if gone == "all objects" else 1):
        maps.delete(f"m{4 - name}")
    world.run(10)
    flows.uid = "flow-2"
    world.run(100)
    assert (world.watches[0].state.relists, caplog.messages) == (0, [])


@pytest.mark.parametrize("objects", [1, 20])
def test_another_cluster_behind_the_address_is_seen_and_listed(objects: int, caplog: pytest.LogCaptureFixture) -> None:
    world, flows = flowing(2, objects)
    world.run(100)
    other = ApiServer(clock=world.clock)
    other.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{number}"}} for number in range(2)])
    for number in range(100):  # its versions go on where ours were
        other.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{number}", "namespace": "n0"}}])
    flows.inner, flows.uid = other.transport(), "flow-of-another"
    world.run(100)
    assert {obj.name for obj in world.watches[0].store} == {f"m{number}" for number in range(100)}
    assert [*world.watches[1].store] == []
    assert any("another cluster answers" in line for line in caplog.messages)
    assert not any("went back in time" in line for line in caplog.messages)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_over_sockets_a_server_that_is_killed_for_five_seconds_is_tried_by_one_and_its_return_noticed_by_all(
        server: ApiServer) -> None:
    tries: list[tuple[float, str]] = []
    stop, heard, clock = StopToken(), threading.Condition(), server.clock
    seen: dict[str, float] = {}

    def counting(send: Send) -> Send:
        def counted(call: Call) -> Answer:
            tries.append((clock.monotonic(), call.request.verb))
            return send(call)
        return counted

    def hear(event: Event[ConfigMap]) -> list[ReconcileRequest]:
        if isinstance(event, Apply):
            with heard:
                seen[event.obj.name] = clock.monotonic()
                heard.notify_all()
        return []

    with Client(server.config(), layers=[counting]) as client:
        watches = [Watch(Api.namespaced(client, ConfigMap, "default"), WatcherConfig(label_selector=f"w={number}"),
                         stop=stop) for number in range(6)]
        threads = [threading.Thread(target=watch.run, daemon=True) for watch in watches]
        for watch, thread in zip(watches, threads, strict=True):
            watch.subscribe(hear, lambda _: None)
            thread.start()
            watch.store.wait_until_ready(30)
        server.drop_connections()
        server.stop()
        down = clock.monotonic()
        stop.wait(5)
        server.load([{"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": f"c{number}", "namespace": "default", "labels": {"w": str(number % 6)}}}
                     for number in range(20)])
        server.expire_history()
        tried = [at for at, _ in tries if at > down]
        server.start()
        ready = clock.monotonic()
        with heard:
            noticed = heard.wait_for(lambda: len(seen) == 20, 60)
        stop.set("the test is over")
        for thread in threads:
            thread.join(30)
    assert noticed
    assert max(seen.values()) - ready <= NOTICED
    assert not any(thread.is_alive() for thread in threads)
    # Each may have had a request under way when the server went; then it is about one in the first seconds.
    assert len(tried) <= 6 + 2
