"""What a controller watches, shows and runs of its replica's shards; the replica's part is set by hand."""
from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Patch, WatcherConfig
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.selectors import ShardSelector, part_of_hash
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, Simulation
from kubectl_runtime.triggers import EVERYTHING

PARTS = 4
PLACES = ("billing", "shop", "search", "mail", "auth", "front", "data", "infra")


@dataclass(frozen=True)
class Numbers:
    numbers: frozenset[int]

    def __call__(self, key: Any) -> bool:
        raise AssertionError("by ranges the shard of a key is the controller's to know")


class Group:
    """A replica's part of all, which a test gives and takes."""

    def __init__(self, by: Any, clock: Any) -> None:
        self.by, self.parts, self.clock = by, PARTS, clock
        self.shards: frozenset[int] = frozenset()
        self.tokens: dict[int, StopToken] = {}
        self.busy: list[int] = []
        self.listeners: list[Any] = []

    def begin_in(self, shard: int) -> StopToken | None:
        if shard not in self.shards:
            return None
        self.busy.append(shard)
        return self.tokens[shard]

    def end_in(self, shard: int) -> None:
        self.busy.remove(shard)

    def owned(self, requests: Any) -> Any:
        raise AssertionError

    begin = end = owned

    def listen(self, listener: Any) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def gain(self, *numbers: int) -> None:
        self.shards |= set(numbers)
        self.tokens.update({n: StopToken(clock=self.clock) for n in numbers if n not in self.tokens})
        for listener in self.listeners:
            listener.gained(Numbers(frozenset(numbers)))

    def expect(self, *numbers: int) -> None:
        for listener in self.listeners:
            listener.expected(Numbers(frozenset(numbers)))

    def lose(self, *numbers: int) -> None:
        self.shards -= set(numbers)
        for listener in self.listeners:
            listener.lost(Numbers(frozenset(numbers)))

    def leave(self, *numbers: int) -> None:
        for n in numbers:
            self.tokens.pop(n).set("lost")
        for listener in self.listeners:
            listener.left(Numbers(frozenset(numbers)))


class Rig:
    def __init__(self, by: str = "uid", *, gate: bool = True, set_up: Any = lambda controller: controller,
                 objects: int = 24, **options: Any) -> None:
        self.by: Any = by
        self.sim = Simulation(3)
        self.server = ApiServer(clock=self.sim.clock, seed=3, feature_gates={"ShardedListAndWatch": gate})
        self.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in PLACES])
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": f"m{n}", "namespace": PLACES[n % len(PLACES)]}} for n in range(objects)])
        self.maps = Api.all(self.client, ConfigMap)
        self.group = Group(by, self.sim.clock)
        self.runs: list[tuple[str, str]] = []
        self.during: Any = lambda obj, ctx: Action.await_change()
        controller = set_up(Controller(self.maps, name="maps", **options))
        controller._plan = replace(controller.plan(), partition=self.group)
        self.controller: Any = self.sim.start(controller, self.reconcile)
        self.sim.run_until(lambda: self.controller.is_ready)

    def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        self.runs.append((obj.name or "", obj.uid or ""))
        found: Action = self.during(obj, ctx)
        return found

    def shard(self, obj: Any) -> int:
        return part_of_hash(ShardSelector(self.by).hash_of(obj.uid, obj.namespace), PARTS)

    def of(self, *shards: int) -> set[str]:
        return {one.uid or "" for one in self.maps.list() if self.shard(one) in shards}

    @property
    def stored(self) -> set[str]:
        return {one.uid for one in self.controller.store}

    @property
    def ran(self) -> set[str]:
        found = {uid for _, uid in self.runs}
        self.runs.clear()
        return found

    def place(self, obj: Any) -> Api[ConfigMap]:
        return Api.namespaced(self.client, ConfigMap, obj.namespace)

    def settle(self) -> None:
        self.sim.settle(1)


@pytest.fixture
def rig() -> Iterator[Any]:
    made: list[Rig] = []

    def make(*arguments: Any, **keywords: Any) -> Rig:
        made.append(Rig(*arguments, **keywords))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


WAYS = pytest.mark.parametrize(("by", "gate"), [("uid", True), ("uid", False), ("namespace", True),
                                                ("namespace", False)])


@WAYS
def test_without_a_shard_nothing_is_shown_and_nothing_runs(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    one.settle()
    assert one.controller.store.is_ready
    assert (one.stored, one.ran, len(one.controller.store)) == (set(), set(), 0)


@WAYS
def test_what_is_gained_is_shown_and_runs_and_what_is_left_is_not_there_any_more(rig: Any, by: str,
                                                                                 gate: bool) -> None:
    one = rig(by, gate=gate)
    one.group.gain(0, 2)
    one.settle()
    assert one.stored == one.of(0, 2) == one.ran
    one.group.gain(1)
    one.settle()
    assert one.ran == one.of(1), "only what is new runs"
    one.group.lose(0)
    assert one.stored == one.of(0, 1, 2), "runs in progress still find their objects"
    one.group.leave(0)
    assert one.stored == one.of(1, 2)
    one.settle()
    assert one.ran == set()


def lists_of(one: Rig) -> int:
    return len([entry for entry in one.server.requests if "watch" not in str(entry.query) and entry.method == "GET"])


@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_an_expected_shard_is_listed_and_shown_when_it_is_gained(rig: Any, by: str) -> None:
    one = rig(by)
    one.group.gain(0)
    one.settle()
    assert one.ran == one.of(0)
    one.group.expect(1, 2)
    one.settle()
    for obj in one.maps.list():
        one.place(obj).patch(obj, Patch.merge({"data": {"changed": "before it is gained"}}))
    one.settle()
    assert (one.stored, one.ran) == (one.of(0), one.of(0)), "nothing of it is shown or runs"
    lists = lists_of(one)
    one.group.gain(1)
    assert one.stored == one.of(0, 1), "at once"
    assert {obj.data.get("changed") for obj in one.controller.store} == {"before it is gained"}
    one.group.expect()
    one.settle()
    assert one.ran == one.of(1)
    assert lists_of(one) == lists + 2, "those of this test alone"


@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_a_shard_that_is_not_expected_any_more_leaves_no_watch(rig: Any, by: str) -> None:
    one = rig(by)
    one.group.gain(0)
    one.settle()
    watches = set(one.controller.assembly.watches)
    one.group.expect(1, 2)
    one.settle()
    assert len(one.controller.assembly.watches) == len(watches) + 2
    one.group.expect(2)
    one.group.gain(2)
    one.group.expect()
    one.settle()
    assert len(one.controller.assembly.watches) == len(watches) + 1
    one.group.lose(2)
    one.group.leave(2)
    one.settle()
    assert set(one.controller.assembly.watches) == watches
    assert one.stored == one.of(0)


def test_an_expected_shard_is_gained_while_it_is_listed(rig: Any) -> None:
    one = rig("uid")
    one.server.faults.on("list", resource="configmaps").first(2).status(500)
    one.group.expect(3)
    one.group.gain(3)
    one.group.expect()
    assert one.stored == set()
    one.sim.settle(30)
    assert one.stored == one.of(3) == one.ran


@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_where_the_server_does_not_divide_nothing_is_listed_for_an_expected_shard(rig: Any, by: str) -> None:
    one = rig(by, gate=False)
    one.group.gain(0)
    one.settle()
    assert one.ran == one.of(0)
    lists = lists_of(one)
    one.group.expect(1)
    one.settle()
    assert lists_of(one) == lists
    one.group.gain(1)
    one.settle()
    assert one.ran == one.of(1)


def test_a_name_passes_to_an_expected_shard_and_its_deletion_is_not_lost(rig: Any) -> None:
    gone: list[str] = []
    one = rig("uid", set_up=lambda controller: controller.on_gone(lambda ref, ctx: gone.append(ref.name)))
    one.group.gain(0)
    one.group.expect(1, 2, 3)
    one.settle()
    names = {obj.name for obj in one.maps.list() if one.shard(obj) == 0}
    for obj in one.maps.list():
        if obj.name in names:
            one.place(obj).delete(obj, DeleteParams())
            one.place(obj).create({"metadata": {"name": obj.name}})
    one.settle()
    moved = {obj.name for obj in one.maps.list() if obj.name in names and one.shard(obj) != 0}
    assert moved
    assert set(gone) == moved
    assert one.stored == one.of(0)


@WAYS
def test_a_shard_that_is_wanted_again_while_it_drains_is_not_listed_again(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    one.group.gain(0, 1)
    one.settle()
    assert one.ran
    lists = len([entry for entry in one.server.requests if "watch" not in str(entry.query) and entry.method == "GET"])
    one.group.lose(0)
    for obj in one.maps.list():
        one.place(obj).patch(obj, Patch.merge({"data": {"changed": "meanwhile"}}))
    one.settle()
    assert one.ran == one.of(1)
    one.group.gain(0)
    one.settle()
    assert one.ran == one.of(0)
    again = [entry for entry in one.server.requests if "watch" not in str(entry.query) and entry.method == "GET"]
    assert len(again) == lists + 3, "those of this test alone"


@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_only_the_gained_range_is_asked_for(rig: Any, by: str) -> None:
    one = rig(by)
    one.settle()
    before = len(one.server.requests)
    one.group.gain(3)
    one.settle()
    asked = {str(dict(entry.query).get("shardSelector", "")) for entry in list(one.server.requests)[before:]
             if entry.path == "/api/v1/configmaps"}
    assert asked == {str(ShardSelector.part(one.by, 3, PARTS))}


def owning(controller: Any) -> Any:
    return controller.owns(Api.all(controller.plan().client, Secret))


def test_by_namespace_nothing_runs_before_the_children_are_there(rig: Any) -> None:
    one = rig("namespace", set_up=owning)
    for obj in one.maps.list():
        Api.namespaced(one.client, Secret, obj.namespace).create({"metadata": {
            "name": obj.name, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": obj.name,
                                                   "uid": obj.uid}]}})
    seen: list[bool] = []

    def look(obj: ConfigMap, ctx: Context[None]) -> Action:
        seen.append(ctx.metadata_store(Secret).get(obj.name or "", obj.namespace) is not None)
        return Action.await_change()

    one.during = look
    one.server.faults.on("list", resource="secrets").first(3).status(500)
    one.group.gain(0, 1, 2, 3)
    one.sim.settle(30)
    assert one.ran == one.of(0, 1, 2, 3)
    assert all(seen)
    one.group.lose(1)
    one.group.leave(1)
    assert {child.namespace for child in one.controller.assembly._taken.metadata_store_of(Secret)} == {
        obj.namespace for obj in one.maps.list() if one.shard(obj) != 1}


def test_by_uid_the_children_stay_whole_and_trigger_what_is_here(rig: Any) -> None:
    one = rig("uid", set_up=owning)
    one.group.gain(0)
    one.settle()
    assert one.ran
    for obj in one.maps.list():
        Api.namespaced(one.client, Secret, obj.namespace).create({"metadata": {
            "name": obj.name, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": obj.name,
                                                   "uid": obj.uid}]}})
    one.settle()
    assert one.ran == one.of(0)
    assert len(one.controller.assembly._taken.metadata_store_of(Secret)) == 24


@WAYS
def test_a_name_that_is_created_again_runs_wherever_it_is(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    one.group.gain(0, 1, 2)
    one.settle()
    assert one.ran
    for obj in one.maps.list():
        one.place(obj).delete(obj, DeleteParams())
        one.place(obj).create({"metadata": {"name": obj.name}})
    one.settle()
    assert one.ran == one.stored == one.of(0, 1, 2)
    assert len(one.controller.store) == len(one.of(0, 1, 2))


@WAYS
def test_a_deletion_is_passed_on_by_the_replica_that_saw_it(rig: Any, by: str, gate: bool) -> None:
    gone: list[str] = []
    one = rig(by, gate=gate, set_up=lambda controller: controller.on_gone(lambda ref, ctx: gone.append(ref.name)))
    one.group.gain(0, 1)
    one.settle()
    mine = {obj.name for obj in one.maps.list() if one.shard(obj) in (0, 1)}
    for obj in one.maps.list():
        one.place(obj).delete(obj, DeleteParams())
    one.settle()
    assert sorted(gone) == sorted(mine)


@WAYS
def test_what_belongs_to_another_replica_is_not_taken_for_deleted(rig: Any, by: str, gate: bool) -> None:
    gone: list[str] = []
    one = rig(by, gate=gate, set_up=lambda controller: controller.on_gone(lambda ref, ctx: gone.append(ref.name)))
    one.group.gain(0, 1)
    one.settle()
    for obj in one.maps.list():  # of all shards, held or not
        one.controller.trigger(ObjectRef.of(ConfigMap, obj.name or "", obj.namespace))
    one.group.lose(0)
    one.group.leave(0)
    for obj in one.maps.list():
        one.controller.trigger(ObjectRef.of(ConfigMap, obj.name or "", obj.namespace))
    one.settle()
    assert gone == []
    assert one.ran <= one.of(0, 1)


def test_a_run_whose_shard_is_lost_finds_its_stop_set_and_not_that_its_object_is_gone(rig: Any) -> None:
    gone: list[str] = []
    one = rig("uid", set_up=lambda controller: controller.on_gone(lambda ref, ctx: gone.append(ref.name)))
    stops: list[bool] = []

    def lose(obj: ConfigMap, ctx: Context[None]) -> Action:
        shard = one.shard(obj)
        if shard in one.group.shards:
            one.group.lose(shard)
            one.group.leave(shard)
        stops.append(ctx.stop.is_set())
        assert ctx.store(ConfigMap).get(obj.name or "", obj.namespace) is None
        raise RuntimeError("its run goes wrong by that")

    one.during = lose
    one.group.gain(0, 1, 2, 3)
    one.sim.settle(30)
    assert stops
    assert all(stops)
    assert gone == []
    assert one.group.busy == []


@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_a_server_that_stops_dividing_is_watched_once(rig: Any, by: str, caplog: pytest.LogCaptureFixture) -> None:
    one = rig(by, set_up=owning)
    one.group.gain(0, 1)
    one.settle()
    assert one.ran == one.of(0, 1)
    with caplog.at_level(logging.WARNING):
        one.server.core.cluster.gates = frozenset()
        one.server.restart(lose_history=True)
        for obj in one.maps.list():
            one.place(obj).patch(obj, Patch.merge({"data": {"changed": "once"}}))
        one.sim.settle(60)
    said = [record for record in caplog.records if "does not divide" in record.getMessage()]
    assert len(said) == 1
    assert one.stored == one.of(0, 1)
    names = [name for name in one.controller.assembly.watches if name.startswith("configmaps")]
    assert names == ["configmaps"]
    one.runs.clear()
    for obj in one.maps.list():
        one.place(obj).patch(obj, Patch.merge({"data": {"changed": "since"}}))
    one.settle()
    assert one.ran == one.of(0, 1)
    one.group.gain(2)
    one.settle()
    assert one.ran == one.of(2)
    one.group.lose(0)
    one.group.leave(0)
    assert one.stored == one.of(1, 2)


@WAYS
def test_indexes_and_selections_of_a_store_are_of_what_is_shown(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    store = one.controller.store
    store.add_index("place", lambda obj: obj.namespace)
    one.group.gain(0, 1)
    one.settle()
    for place in PLACES:
        wanted = {obj.uid for obj in one.maps.list() if obj.namespace == place and one.shard(obj) in (0, 1)}
        assert {obj.uid for obj in store.by_index("place", place)} == wanted
        assert {obj.uid for obj in store.filter(lambda obj, place=place: obj.namespace == place)} == wanted
    one.group.lose(0)
    one.group.leave(0)
    found = {obj.uid for place in PLACES for obj in store.by_index("place", place)}
    assert found == one.of(1)


@WAYS
def test_what_this_process_writes_is_read_where_it_belongs_to(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    one.group.gain(0, 1)
    one.settle()
    for n in range(20):
        made = Api.namespaced(one.client, ConfigMap, PLACES[n % 8]).create({"metadata": {"name": f"new{n}"}})
        assert (made.ref in one.controller.store) == (one.shard(made) in (0, 1))  # at once, before the watch shows it
    one.settle()
    assert one.stored == one.of(0, 1)
    for obj in one.maps.list():
        one.place(obj).delete(obj, DeleteParams())
        assert obj.ref not in one.controller.store


def test_the_watches_of_a_shard_end_with_it_and_their_number_follows(rig: Any) -> None:
    one = rig("namespace", set_up=owning)
    watches = one.controller.assembly.watches
    assert len(watches) == 2
    for _ in range(5):
        one.group.gain(0, 1, 2, 3)
        one.settle()
        assert len(one.controller.assembly.watches) == 10
        one.group.lose(0, 1, 2, 3)
        one.group.leave(0, 1, 2, 3)
        one.settle()
        assert len(one.controller.assembly.watches) == 2
    one.controller.begin_stop(5)
    one.settle()
    assert one.controller.has_ended


def test_what_comes_after_the_end_is_not_watched(rig: Any) -> None:
    one = rig("uid")
    listeners = [*one.group.listeners]
    one.controller.begin_stop(5)
    one.group.listeners = listeners  # told all the same, as by a thread that was about to
    one.group.gain(0, 1)
    one.settle()
    assert one.controller.has_ended
    assert one.ran == set()


def test_selectors_and_views_of_the_watch_are_kept(rig: Any) -> None:
    one = rig("uid", watch=WatcherConfig(label_selector="app=web"))
    for n, obj in enumerate(one.maps.list()):
        if n % 2:
            one.place(obj).patch(obj, Patch.merge({"metadata": {"labels": {"app": "web"}}}))
    one.group.gain(0, 1, 2, 3)
    one.settle()
    assert len(one.stored) == 12


def test_of_a_shard_that_has_left_nothing_is_kept(rig: Any) -> None:
    one = rig("uid")
    one.group.gain(0, 1)
    one.settle()
    states = [weakref.ref(watch.stored) for name, watch in one.controller.assembly.watches.items() if "0 of 4" in name]
    assert [len(state().records) for state in states] == [len(one.of(0))]
    one.group.lose(0)
    one.group.leave(0)
    one.settle()
    one.sim._resume = {watch: at for watch, at in one.sim._resume.items() if not watch.stopped}
    gc.collect()
    assert [state() for state in states] == [None]


@WAYS
def test_what_on_gone_has_to_do_is_tried_again(rig: Any, by: str, gate: bool) -> None:
    tried: dict[str, int] = {}

    def fail_twice(ref: ObjectRef, ctx: Context[None]) -> None:
        tried[ref.name] = tried.get(ref.name, 0) + 1
        if tried[ref.name] < 3:
            raise RuntimeError("not yet")

    one = rig(by, gate=gate, set_up=lambda controller: controller.on_gone(fail_twice))
    one.group.gain(0, 1)
    one.settle()
    mine = {obj.name for obj in one.maps.list() if one.shard(obj) in (0, 1)}
    for obj in one.maps.list():
        one.place(obj).delete(obj, DeleteParams())
    one.sim.settle(60)
    assert tried == dict.fromkeys(mine, 3)
    assert one.controller.assembly.divided._gone == set()


@WAYS
def test_everything_is_everything_of_this_replica(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate, set_up=lambda controller: controller.resync(100).watches(
        Api.all(controller.plan().client, Secret), lambda secret: EVERYTHING))
    one.group.gain(1, 2)
    one.settle()
    assert one.ran == one.of(1, 2)
    Api.namespaced(one.client, Secret, "shop").create({"metadata": {"name": "s"}})
    one.settle()
    assert one.ran == one.of(1, 2)
    one.controller.trigger_all()
    one.settle()
    assert one.ran == one.of(1, 2)
    one.sim.settle(111)
    assert one.ran == one.of(1, 2)


@WAYS
def test_several_namespaces_are_divided_too(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    places = Api.namespaces(one.client, ConfigMap, ["shop", "mail", "infra", "data"])
    group = Group(by, one.sim.clock)
    ran: set[str] = set()
    controller = Controller(places, name="some")
    controller._plan = replace(controller.plan(), partition=group)

    def note(obj: ConfigMap, ctx: Context[None]) -> Action:
        ran.add(obj.uid or "")
        return Action.await_change()

    running = one.sim.start(controller, note)
    one.sim.run_until(lambda: running.is_ready)
    group.gain(0, 1, 2)
    one.settle()
    wanted = {obj.uid for obj in one.maps.list() if obj.namespace in places.namespaces and one.shard(obj) in (0, 1, 2)}
    assert ran == {obj.uid for obj in running.store} == wanted != set()
    group.lose(1)
    group.leave(1)
    assert {obj.uid for obj in running.store} == wanted & one.of(0, 2)


@WAYS
def test_a_server_that_is_away_for_long_changes_nothing(rig: Any, by: str, gate: bool) -> None:
    one = rig(by, gate=gate)
    one.group.gain(0, 1)
    one.settle()
    assert one.ran
    one.server.faults.on(resource="configmaps", verb=("list", "watch")).lasting(300).drop()
    one.server.restart()
    one.group.gain(2)
    one.sim.settle(100)
    before = one.stored
    one.sim.settle(400)
    assert before == one.of(0, 1) | (one.of(2) if not gate else set())
    assert one.stored == one.of(0, 1, 2)
    one.group.lose(2)
    one.group.leave(2)
    assert one.stored == one.of(0, 1)


def test_a_recording_of_a_divided_controller_is_written(rig: Any, tmp_path: Any) -> None:
    one = rig("uid", record=tmp_path / "flight")
    one.group.gain(0, 1)
    one.settle()
    one.group.lose(1)
    one.group.leave(1)
    one.settle()
    one.controller.begin_stop(5)
    one.settle()
    assert one.ran == one.of(0, 1)
    assert (tmp_path / "flight").stat().st_size > 0


def test_two_controllers_share_the_watches_of_a_shard(rig: Any) -> None:
    one = rig("uid")
    other = Controller(one.maps, name="other")
    other._plan = replace(other.plan(), partition=one.group)
    running = one.sim.start(other, lambda obj, ctx: Action.await_change())
    one.sim.run_until(lambda: running.is_ready)
    one.group.gain(0)
    one.settle()
    assert {obj.uid for obj in running.store} == one.stored == one.of(0)
    mine, others = one.controller.assembly.watches, running.assembly.watches
    assert set(mine.values()) == set(others.values())
    one.controller.begin_stop(5)
    one.settle()
    made = [Api.namespaced(one.client, ConfigMap, PLACES[n % 8]).create({"metadata": {"name": f"x{n}"}})
            for n in range(20)]
    one.settle()
    assert {obj.uid for obj in running.store} == one.of(0)
    assert any(obj.uid in one.of(0) for obj in made)
