"""Reads after own writes, against the embedded server in simulation: watches that lag, gaps, two controllers."""
from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client, OwnWrites
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.objects.partial import PartialView, dynamic
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent
from kubectl_runtime.runtime.triggers.shared_watches import SharedWatches
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import ListSemantic, WatcherConfig
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent
from tests.thoroughness import examples

FOREVER = Action.await_change()

DynamicConfigMap = dynamic(ConfigMap.api_resource)
"""The same kind, by another class."""


class World:
    """A server, a client of it, and a simulation that moves their controllers."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock, seed=seed)
        self.client = self.another_client(**options)
        self.maps = Api.namespaced(self.client, ConfigMap, "default")
        self.secrets = Api.namespaced(self.client, Secret, "default")

    def another_client(self, **options: Any) -> Client:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        return Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock,
                      retry=RetryPolicy(random=self.sim.random.random), **options)

    def lag(self, seconds: float) -> None:
        """From now on events come so much later, on watches that are opened from now on."""
        self.server.faults.clear()
        if seconds:
            self.server.faults.on("watch").lag_events(seconds)
        self.server.drop_connections()

    def run_until(self, done: Callable[[], bool], limit: float = 600) -> None:
        """As the simulation's, in small steps of time: it does not know when an event that is late will come."""
        end = self.sim.clock.monotonic() + limit
        while not done():
            assert self.sim.clock.monotonic() < end, f"not done within {limit:g} simulated seconds"
            self.sim.settle(0.1)

    def parent(self, name: str = "p") -> ConfigMap:
        return self.maps.create({"metadata": {"name": name}, "data": {"value": "0"}})


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def value_of(obj: Any) -> int:
    return int(obj.data["value"])


def lags(count: int, rng: random.Random) -> list[float]:
    return [rng.choice((0.0, rng.uniform(0, 0.5))) for _ in range(count)]


def test_of_a_thousand_pairs_of_a_write_and_a_read_none_is_stale_with_a_watch_that_lags() -> None:
    """Each run raises a number in the object and in its child, and must find what the run before it wrote."""
    world, rng = World(seed=1), random.Random(1)
    pairs, stale = 0, 0
    written = {"p": 0, "child": 0}

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        nonlocal pairs, stale
        child = ctx.store(ConfigMap).get("child", "default")
        found = {"p": value_of(obj), "child": value_of(child)}
        for name, value in found.items():
            pairs += 1
            stale += value < written[name]
            world.maps.patch(name, Patch.merge({"data": {"value": str(written[name] + 1)}}))
            written[name] += 1
            seen = ctx.store(ConfigMap).get(name, "default")
            pairs += 1
            stale += value_of(seen) < written[name]
        return Action.requeue(rng.uniform(0, 0.3)) if obj.name == "p" else FOREVER

    world.parent()
    world.parent("child")
    controller = Controller(world.maps, concurrency=1)
    simulated = world.sim.start(controller, lambda obj, ctx: reconcile(obj, ctx) if obj.name == "p" else FOREVER)
    for lag in lags(40, rng):
        world.lag(lag)
        goal = min(pairs + 25, 1000)
        world.sim.run_until(lambda goal=goal: pairs >= goal)
    assert pairs >= 1000
    assert stale == 0
    world.lag(0)
    simulated.begin_stop()
    world.sim.settle(60)
    assert simulated.has_ended


def test_without_it_such_reads_are_stale_so_the_test_above_can_fail() -> None:
    world = World(own_writes=OwnWrites.OFF)
    stale: list[bool] = []

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        new = world.maps.patch("p", Patch.merge({"data": {"value": str(len(stale))}}))
        seen = ctx.store(ConfigMap).get("p", "default")
        stale.append(seen.resource_version != new.resource_version)
        return Action.requeue(0.1)

    world.parent()
    world.lag(0.4)
    world.sim.start(Controller(world.maps), reconcile)
    world.sim.run_until(lambda: len(stale) > 10)
    assert any(stale)


def test_a_write_by_one_controller_is_heard_by_the_other_one_on_the_watch_that_both_use() -> None:
    world = World()
    heard: list[tuple[str, int]] = []

    def writer(obj: ConfigMap, ctx: Context[Any]) -> Action:
        if value_of(obj) < 5:
            world.maps.patch(obj.name, Patch.merge({"data": {"value": str(value_of(obj) + 1)}}))
        return FOREVER

    def listener(obj: ConfigMap, ctx: Context[Any]) -> Action:
        heard.append((obj.name, value_of(obj)))
        return FOREVER

    one = world.sim.start(Controller(world.maps, name="writer"), writer)
    two = world.sim.start(Controller(world.maps, name="listener"), listener)
    ((mine,), (other,)) = one.assembly.watches.values(), two.assembly.watches.values()
    assert mine is other
    assert len(world.client.shared.get(SharedWatches)) == 1
    world.sim.run_until(lambda: one.is_ready and two.is_ready)
    world.lag(0.3)
    world.parent()
    world.sim.run_until(lambda: ("p", 5) in heard)
    world.lag(0)
    one.begin_stop()
    world.sim.settle(40)
    assert one.has_ended
    assert not two.has_ended
    world.maps.patch("p", Patch.merge({"data": {"value": "9"}}))
    world.sim.run_until(lambda: ("p", 9) in heard)
    late = world.sim.start(Controller(world.maps, name="late"), listener)
    assert [*late.assembly.watches.values()] == [other]
    heard.clear()
    world.sim.run_until(lambda: bool(heard))
    assert heard == [("p", 9)], "who comes late is given what is stored"
    two.begin_stop()
    late.begin_stop()
    world.sim.settle(40)
    assert two.has_ended
    assert late.has_ended
    assert len(world.client.shared.get(SharedWatches)) == 0


def test_what_makes_two_watches_different_keeps_those_of_controllers_apart() -> None:
    world = World()
    selected, cached = WatcherConfig(label_selector="a"), WatcherConfig(list_semantic=ListSemantic.ANY)
    controllers = [Controller(world.maps, name="one"), Controller(world.maps, name="two", watch=selected),
                   Controller(world.maps, name="three", watch=cached), Controller(world.secrets, name="four"),
                   Controller(world.maps, name="five", modify=strip_managed_fields),
                   Controller(world.maps, name="six", watch=WatcherConfig(backoff=WatchBackoff(maximum=60))),
                   Controller(world.maps.with_metadata_only(), name="seven"),
                   Controller(Api.all(world.client, ConfigMap), name="eight"),
                   Controller(world.maps, name="nine", watch=WatcherConfig(shared=False))]
    same = [Controller(world.maps, name="ten", watch=WatcherConfig(page_size=3), concurrency=2),
            Controller(Api.namespaced(world.client, DynamicConfigMap, "default"), name="eleven"),
            Controller(Api.namespaces(world.client, ConfigMap, ["default", "other"]), name="twelve")]
    started = [world.sim.start(one, lambda obj, ctx: FOREVER) for one in (*controllers, *same)]
    assert len({id(watch) for one in started for watch in one.assembly.watches.values()}) == len(controllers) + 1
    assert len(world.client.shared.get(SharedWatches)) == len(controllers)  # less the one that is nobody else's


def test_each_user_of_a_watch_gets_objects_of_its_own_class() -> None:
    world, kinds = World(), list[type]()
    world.parent()

    def reconcile(obj: Any, ctx: Context[Any]) -> Action:
        kinds.append(type(obj))
        return FOREVER

    others = Api.namespaced(world.client, DynamicConfigMap, "default")
    mapped: list[type] = []

    def mapper(obj: Any) -> None:
        mapped.append(type(obj))

    def passes(event: ObjectEvent[Any]) -> bool:
        mapped.append(type(event.obj))
        return True

    controller = Controller(world.maps, name="one").watches(others, mapper).owns(
        world.maps, predicate=predicates.when(passes))
    one = world.sim.start(controller, reconcile)
    two = world.sim.start(Controller(others, name="two"), reconcile)
    world.sim.run_until(lambda: len(kinds) == 2)
    assert set(kinds) == {ConfigMap, DynamicConfigMap}
    assert set(mapped) == {DynamicConfigMap, world.maps.with_metadata_only().kind}
    assert [*one.assembly.watches.values()] == [*two.assembly.watches.values()]


@pytest.mark.parametrize(("own_writes", "times"), [
    (OwnWrites.OVERLAY, 200), (OwnWrites.OFF, 50), pytest.param(OwnWrites.OVERLAY, 1000, marks=pytest.mark.long)])
def test_an_owner_runs_each_time_its_child_was_made_and_deleted_inside_a_gap_of_the_watch(
        own_writes: OwnWrites, times: int) -> None:
    """The watch of children is down while a run makes a child and somebody else deletes it, so that
    no list ever shows it."""
    sim = Simulation(3)
    cluster = Cluster(sim.clock)
    runs, wanted = 0, False

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        nonlocal runs
        runs += 1
        if wanted:
            cluster.put(Child, "c", owner="p", verb="create")
        return FOREVER

    cluster.put(Parent, "p")
    controller = Controller(cluster.api(Parent), own_writes=own_writes).owns(cluster.api(Child))
    simulated = sim.start(controller, reconcile)
    sim.run_until(lambda: runs == 1)
    for time in range(times):
        cluster.failing.add(Child.api_resource)
        cluster.compact(Child)
        wanted = True
        simulated.trigger(ObjectRef(Parent.api_resource, "p", "default"))
        sim.run_until(lambda: "c" in cluster.names(Child))
        cluster.delete(Child, "c")
        cluster.compact(Child)
        wanted, before = False, runs
        cluster.failing.clear()
        sim.run_until(lambda before=before: runs > before, limit=120)
        assert cluster.names(Child) == set(), f"the {time}th"


def test_what_is_no_way_to_read_own_writes_is_refused() -> None:
    for no_way in ("wait", "overlay", True):
        with pytest.raises(RequestError, match=rf"OwnWrites.OVERLAY, OwnWrites.OFF, not {no_way!r}"):
            World(own_writes=no_way)
        with pytest.raises(RequestError, match=rf"OwnWrites.OVERLAY, OwnWrites.OFF, not {no_way!r}"):
            Controller(World().maps, own_writes=no_way)  # type: ignore[arg-type]


def test_the_way_that_was_removed_names_what_to_use_instead() -> None:
    with pytest.raises(AttributeError, match=r"removed in 0\.3: use OwnWrites\.OVERLAY"):
        _ = OwnWrites.WAIT
    with pytest.raises(AttributeError, match="has no member 'LATER'"):
        _ = OwnWrites.LATER
    assert not hasattr(OwnWrites, "WAIT")
    assert [*OwnWrites] == [OwnWrites["OVERLAY"], OwnWrites("off")]


def test_the_first_run_finds_every_store_complete_however_long_the_list_of_one_is_held() -> None:
    world = World()
    world.parent()
    for name in ("a", "b"):
        world.secrets.create({"metadata": {"name": name}})
    world.server.faults.on("list", resource="secrets").delay(3)
    found: list[tuple[int, int]] = []

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        found.append((len(ctx.store(ConfigMap)), len(ctx.metadata_store(Secret))))
        return FOREVER

    world.sim.start(Controller(world.maps).owns(world.secrets), reconcile)
    world.sim.run_until(lambda: bool(found))
    assert found == [(1, 2)]
    assert world.sim.clock.monotonic() >= 3


class SecretView(PartialView, frozen=True):
    type: str = ""


def test_a_view_of_fields_and_namespaces_are_served_by_what_is_watched_whole() -> None:
    world = World()
    places = Api.namespaces(world.client, Secret, ["default", "other"])
    seen: list[object] = []

    def mapper(secret: SecretView) -> None:
        seen.append((type(secret), secret.type))

    def whole(secret: Secret) -> None:
        seen.append((type(secret), secret.type))

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        seen.append([type(secret) for secret in ctx.store(Secret)])
        seen.append([type(secret) for secret in ctx.store(SecretView)])
        return FOREVER

    world.parent()
    world.secrets.create(Secret(name="s", namespace="default", type="Opaque"))
    controller = Controller(world.maps)
    controller.watches(places, mapper, watch=WatcherConfig(fields=SecretView)).watches(places, whole).owns(places)
    simulated = world.sim.start(controller, reconcile)
    world.sim.run_until(lambda: len(seen) == 4)
    assert [*simulated.assembly.watches] == [
        "configmaps in namespace default", "secrets in namespace default", "secrets in namespace other"]
    assert (SecretView, "Opaque") in seen
    assert (Secret, "Opaque") in seen
    assert [Secret] in seen
    assert [SecretView] in seen


def test_the_store_of_views_is_asked_for_by_their_class() -> None:
    world = World()
    seen: list[object] = []

    class MapView(PartialView, frozen=True):
        data: dict[str, str]

    def reconcile(obj: MapView, ctx: Context[Any]) -> Action:
        views = ctx.store(MapView)
        seen.extend([obj.data, [other.data for other in views]])
        with pytest.raises(RequestError, match=r"only the fields of MapView of configmaps: ctx.store\(MapView\)"):
            ctx.store(ConfigMap)
        with pytest.raises(RequestError, match=r"does not watch SecretView: watch api.with_fields\(SecretView\)"):
            ctx.store(SecretView)
        return FOREVER

    world.maps.create(ConfigMap(name="a", data={"k": "v"}))
    world.sim.start(Controller(world.maps.with_fields(MapView)), reconcile)
    world.sim.run_until(lambda: bool(seen))
    assert seen == [{"k": "v"}, [{"k": "v"}]]


def test_the_fuller_form_serves_both_of_one_controller() -> None:
    world = World()
    mapped: list[str] = []
    seen: list[dict[str, bytes]] = []

    def mapper(secret: Secret) -> None:
        mapped.append(secret.data["k"].decode())

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        seen.append({secret.name: secret.data["k"] for secret in ctx.store(Secret)})
        return FOREVER

    parent = world.parent()
    child = Secret(name="c", namespace="default", string_data={"k": "v"})
    child.set_owner(parent)
    world.secrets.create(child)
    controller = Controller(world.maps).owns(world.secrets).watches(world.secrets, mapper)
    simulated = world.sim.start(controller, reconcile)
    world.sim.run_until(lambda: bool(seen))
    assert sorted(simulated.assembly.watches) == ["configmaps in namespace default", "secrets in namespace default"]
    assert (seen[0], mapped) == ({"c": b"v"}, ["v"])
    world.secrets.delete("c")
    world.sim.run_until(lambda: len(seen) > 1)
    assert (seen[-1], mapped) == ({}, ["v", "v"])


# Whatever happens to the watch, and whoever else writes

NAMES = ("a", "b")
HAPPENINGS = st.lists(st.tuples(
    st.sampled_from(["create", "patch", "patch", "relabel", "delete", "dry run", "other patch", "other delete", "lag",
                     "cut", "expire", "steps", "steps", "time"]), st.sampled_from(NAMES), st.integers(1, 9)),
    min_size=5, max_size=40)


class Selected:
    """A store of what is labelled app=web, this process and somebody else who write, and what a read may show."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.others = Api.namespaced(world.another_client(), ConfigMap, "default")
        self.wrote: set[str] = set()
        """Uids of what this process made or changed."""
        self.states: dict[str, list[str | None]] = {name: [None] for name in NAMES}
        """All that each object has been: its version, None where it is not there or not selected."""
        self.floor = dict.fromkeys(NAMES, 0)
        """Before which of these no read may fall."""
        controller = Controller(world.maps, watch=WatcherConfig(label_selector="app=web"))
        self.controller = world.sim.start(controller, lambda obj, ctx: FOREVER)
        world.sim.run_until(lambda: self.controller.is_ready)

    def act(self, what: str, name: str, number: int) -> None:
        world, web = self.world, {"metadata": {"labels": {"app": "web"}}, "data": {"value": str(number)}}
        if what == "create" and world.maps.get_opt(name) is None:
            self.own(name, world.maps.create({**web, "metadata": {"name": name, "labels": {"app": "web"}}}))
        elif what in ("patch", "relabel") and world.maps.get_opt(name) is not None:
            change = web if what == "patch" else {"metadata": {"labels": {"app": "db"}}}
            self.own(name, world.maps.patch(name, Patch.merge(change)))
        elif what == "dry run" and world.maps.get_opt(name) is not None:
            world.maps.patch(name, Patch.merge({"data": {"value": "dry"}}), dry_run=True)
            world.maps.delete(name, dry_run=True)
        elif what == "delete" and (found := world.maps.get_opt(name)) is not None and found.uid in self.wrote:
            world.maps.delete(name)  # of one that this process never knew, too little is known
            self.note(name, None, own=True)
        elif what == "other patch" and self.others.get_opt(name) is not None:
            self.note(name, self.others.patch(name, Patch.merge(web)))
        elif what == "other delete" and self.others.get_opt(name) is not None:
            self.others.delete(name)
            self.note(name, None)
        elif what == "lag":
            world.lag(number / 10)
        elif what == "cut":
            world.server.drop_connections()
        elif what == "expire":
            world.server.expire_history()
            world.server.drop_connections()
        elif what == "steps":
            world.sim.run(number)
        elif what == "time":
            world.sim.clock.advance(number / 4)
            world.sim.run(3)

    def own(self, name: str, answer: ConfigMap) -> None:
        self.wrote.add(answer.uid)
        self.note(name, answer, own=True)

    def note(self, name: str, answer: ConfigMap | None, *, own: bool = False) -> None:
        shown = answer is not None and answer.labels.get("app") == "web"
        version = answer.resource_version if answer is not None and shown else None
        if self.states[name][-1] != version:
            self.states[name].append(version)
        if own:
            self.floor[name] = len(self.states[name]) - 1

    def check(self) -> None:
        store = self.controller.store
        store_s = {obj.name: obj.resource_version for obj in store}
        for name in NAMES:
            found = store.get(name, "default")
            version = None if found is None else found.resource_version
            assert version in self.states[name][self.floor[name]:], f"{name}: a read from before the last own write"
            assert store_s.get(name) == version


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), HAPPENINGS)
def test_whatever_happens_no_read_is_older_than_the_last_own_write(
        seed: int, happenings: list[tuple[str, str, int]]) -> None:
    """Deletions, new objects of the name, dry runs, a selection that is left, lists in flight, lag and gaps."""
    selected = Selected(seed)
    for what, name, number in happenings:
        selected.act(what, name, number)
        selected.check()
    selected.world.lag(0)
    selected.world.sim.settle(60)
    for name in NAMES:
        selected.floor[name] = len(selected.states[name]) - 1
    selected.check()
    (watch,) = selected.controller.assembly.watches.values()
    assert not watch.stored.overlay.entries, "the watch has shown everything"
