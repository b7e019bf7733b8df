"""A watch of ranges, on a server that divides and on one that takes no notice."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from kubectl_runtime import Api, Client, Config, Patch, WatcherConfig
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.params import DeleteParams, ShardSelector
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.watch.config import InitialListStrategy, ListSemantic
from kubectl_runtime.testing import ApiServer, SimClock

PLACES = ("billing", "shop", "search", "mail", "auth", "front", "data", "infra")


class Rig:
    def __init__(self, by: Any, gate: bool, **options: Any) -> None:
        self.clock = SimClock()
        self.server = ApiServer(clock=self.clock, seed=5, feature_gates={"ShardedListAndWatch": gate})
        self.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": f"m{n}", "namespace": PLACES[n % 8]}} for n in range(40)])
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)
        self.maps = Api.all(self.client, ConfigMap)
        self.part = ShardSelector.part(by, 1, 4)
        self.stop = StopToken(clock=self.clock)
        self.watch: Watch[Any] = Watch(self.maps, WatcherConfig(shard=self.part, **options), stop=self.stop,
                                       clock=self.clock)
        self.seen: list[str] = []
        self.watch.subscribe(self.note, lambda requests: None)

    def note(self, event: Any) -> tuple[()]:
        obj = getattr(event, "obj", None)
        if obj is not None:
            assert self.part.matches(obj.uid, obj.namespace), "nothing of other ranges is passed on"
            self.seen.append(f"{type(event).__name__} {obj.name}")
        return ()

    def settle(self) -> None:
        idle = 0
        while idle < 4:
            wait = self.watch.step()
            if wait:
                self.clock.advance(wait)
            idle = 0 if wait == 0 else idle + 1

    def wanted(self) -> set[str]:
        return {one.name or "" for one in self.maps.list() if self.part.matches(one.uid, one.namespace)}

    def stored(self) -> set[str]:
        return {one.name for one in self.watch.store}

    def place(self, obj: Any) -> Api[ConfigMap]:
        return Api.namespaced(self.client, ConfigMap, obj.namespace)


@pytest.fixture
def rig() -> Iterator[Any]:
    made: list[Rig] = []

    def make(*arguments: Any, **options: Any) -> Rig:
        made.append(Rig(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop.set()
        one.watch.step()
        one.client.close()


WAYS = pytest.mark.parametrize(("by", "gate"), [("uid", True), ("uid", False), ("namespace", True),
                                                ("namespace", False)])
HOW: list[dict[str, Any]] = [{}, {"page_size": 3}, {"page_size": None}, {"list_semantic": ListSemantic.ANY},
                             {"initial_list_strategy": InitialListStrategy.STREAMING_LIST}]


@WAYS
@pytest.mark.parametrize("how", HOW, ids=repr)
def test_it_holds_what_is_in_its_ranges_however_it_lists(rig: Any, by: str, gate: bool, how: Any) -> None:
    one = rig(by, gate, **how)
    one.settle()
    assert one.stored() == one.wanted() != set()
    for n, obj in enumerate(one.maps.list()):
        if n % 3 == 0:
            one.place(obj).delete(obj, DeleteParams())
        elif n % 3 == 1:
            one.place(obj).patch(obj, Patch.merge({"data": {"n": str(n)}}))
        else:
            one.place(obj).create({"metadata": {"name": f"new-{obj.name}"}})
    one.settle()
    assert one.stored() == one.wanted()


@WAYS
def test_what_others_do_moves_its_version_on_so_that_a_break_costs_no_list(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate)
    one.settle()
    other = next(obj for obj in one.maps.list() if not one.part.matches(obj.uid, obj.namespace))
    for n in range(30):
        one.place(other).patch(other, Patch.merge({"data": {"n": str(n)}}))
    one.settle()
    if gate:
        one.clock.advance(61)  # a bookmark says so
        one.settle()
    one.server.expire_history()
    one.server.restart()
    one.settle()
    assert one.watch.state.relists == 0
    assert one.stored() == one.wanted()


@WAYS
def test_it_is_listed_again_after_a_410(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate)
    one.settle()
    for obj in one.maps.list()[::2]:
        one.place(obj).delete(obj, DeleteParams())
    one.server.restart(lose_history=True)
    one.settle()
    assert one.stored() == one.wanted()


@WAYS
def test_a_store_that_is_verified_is_compared_with_its_own_ranges(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate, verify=5, timeout=20)
    one.settle()
    for _ in range(10):
        one.clock.advance(6)
        one.settle()
    assert one.watch.state.relists == 0
    assert one.stored() == one.wanted()


def test_it_says_once_that_the_server_takes_no_notice(rig: Any) -> None:
    for gate in (True, False):
        one, heard = rig("uid", gate), []
        one.watch.when_undivided(lambda heard=heard: heard.append(1))
        one.settle()
        one.server.restart(lose_history=True)
        one.settle()
        assert heard == ([] if gate else [1])
        one.watch.when_undivided(lambda heard=heard: heard.append(2))
        assert heard == ([] if gate else [1, 2])


@WAYS
def test_a_watch_of_nothing_holds_nothing(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate)
    one.part = ShardSelector(one.part.by, ())
    watch: Watch[Any] = Watch(one.maps, WatcherConfig(shard=one.part), stop=one.stop, clock=one.clock)
    one.watch = watch
    one.settle()
    assert watch.store.is_ready
    assert len(watch.store) == 0
