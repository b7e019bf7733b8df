"""What a controller's options and relations make it run: predicates, mappers, streams, deletions, time, namespaces."""
from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap, Namespace, Secret
from kubectl_runtime.runtime.conditions import all_of
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.plan import ControllerError
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.retry import create_or_update
from kubectl_runtime.runtime.store.reflector import StoreWriter, reflector, store
from kubectl_runtime.runtime.store.store import StoreNotReady
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent
from kubectl_runtime.runtime.triggers.streams import applied_objects, predicate_filter, touched_objects
from kubectl_runtime.runtime.triggers.triggers import EVERYTHING, ref_of
from kubectl_runtime.runtime.triggers.watch_store import watch_store
from kubectl_runtime.runtime.wait import await_condition
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, InitApply
from kubectl_runtime.runtime.watch.watcher import watcher
from kubectl_runtime.testing.asking import eventually
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent
from tests.runtime.watch.scripted_watch import Foo

LIMIT = 20.0


class Story:
    """A controller in a simulation, and what ran."""

    def __init__(self) -> None:
        self.sim = Simulation(1)
        self.cluster = Cluster(self.sim.clock)
        self.ran: list[str] = []

    def reconcile(self, obj: Parent, ctx: Context[Any]) -> Action:
        self.ran.append(obj.name)
        return Action.await_change()

    def start(self, controller: Controller[Parent]) -> SimulatedController[Parent]:
        started = self.sim.start(controller, self.reconcile)
        self.after()
        return started

    def after(self, limit: float = 0) -> list[str]:
        """What runs until nothing is left to do."""
        self.ran.clear()
        self.sim.settle(limit)
        return sorted(self.ran)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(blocking=True)


class Ran:
    """A reconciler for threads, which lets a test wait for its runs."""

    def __init__(self) -> None:
        self.names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __call__(self, obj: Any, ctx: Context[Any]) -> Action:
        self.names.put(obj.name)
        return Action.await_change()

    def until(self, *names: str) -> None:
        left = set(names)
        while left:
            left.discard(self.names.get(timeout=LIMIT))


# Predicates

def test_a_predicate_of_the_controller_compares_with_the_state_in_the_store(story: Story) -> None:
    predicate = predicates.value(lambda obj: obj.spec["value"])
    story.cluster.put(Parent, "a", -1)
    story.start(Controller(story.cluster.api(Parent), predicate=predicate))
    story.cluster.put(Parent, "a", -1)
    assert story.after() == []
    story.cluster.put(Parent, "a", -2)
    assert story.after() == ["a"]


def test_the_initial_objects_and_a_namesake_that_is_made_anew_pass_a_predicate(story: Story) -> None:
    story.cluster.put(Parent, "a", 1)
    simulated = story.sim.start(Controller(story.cluster.api(Parent), predicate=predicates.value(lambda obj: 1)),
                                story.reconcile)
    assert story.after() == ["a"]
    story.cluster.delete(Parent, "a")
    story.cluster.put(Parent, "a", 1)
    assert story.after() == ["a"]
    assert simulated.is_ready


def test_a_predicate_of_one_watch_does_not_affect_the_others(story: Story) -> None:
    story.cluster.put(Parent, "a")
    story.cluster.put(Child, "c", 1, owner="a")
    never = predicates.when(lambda event: False)
    story.start(Controller(story.cluster.api(Parent)).owns(story.cluster.api(Child), predicate=never))
    story.cluster.put(Child, "c", 2, owner="a")
    assert story.after() == []
    story.cluster.put(Parent, "a", 2)
    assert story.after() == ["a"]


def test_a_deletion_that_a_predicate_holds_back_still_frees_what_is_known_of_the_key(story: Story) -> None:
    story.cluster.put(Parent, "a")
    never = predicates.when(lambda event: not event.deleted)
    simulated = story.start(Controller(story.cluster.api(Parent), predicate=never).on_gone(lambda ref, ctx: 1 / 0))
    simulated.trigger(ObjectRef.of(Parent, "a", "default"))
    story.cluster.delete(Parent, "a")
    story.after()
    assert simulated.scheduled == 0


# Owners and mappers

def test_with_controller_only_other_owners_are_not_triggered() -> None:
    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        owners = {name: maps.create({"metadata": {"name": name}}) for name in ("boss", "friend")}
        ran = Ran()
        controller = Controller(maps).owns(Api.namespaced(client, Secret, "default"), controller_only=True)
        with controller.start(ran):
            ran.until("boss", "friend")
            references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid,
                           "controller": name == "boss"} for name, owner in owners.items()]
            Api.namespaced(client, Secret, "default").create({"metadata": {"name": "s", "ownerReferences": references}})
            assert ran.names.get(timeout=LIMIT) == "boss"
        assert ran.names.empty()


@pytest.mark.parametrize("found", [
    EVERYTHING, [EVERYTHING], (ObjectRef.of(Parent, "a", "default"), EVERYTHING), {EVERYTHING}])
@pytest.mark.parametrize("on", ["object", "event"])
def test_a_mapper_may_say_everything_alone_or_among_others(story: Story, found: Any, on: Any) -> None:
    for name in "abc":
        story.cluster.put(Parent, name)
    story.start(Controller(story.cluster.api(Parent)).watches(story.cluster.api(Child), lambda child: found, on=on))
    story.cluster.put(Child, "settings", 1)
    assert sorted(story.after()) == ["a", "b", "c"]


def test_a_mapper_may_look_into_the_store_which_is_there_before_the_start(story: Story) -> None:
    for number, name in enumerate("abc"):
        story.cluster.put(Parent, name, number)
    controller = Controller(story.cluster.api(Parent))
    parents = controller.store
    assert not parents.is_ready

    def mapper(child: Child) -> list[ObjectRef]:
        return [obj.ref for obj in parents if obj.spec["value"] >= child.spec["value"]]

    simulated = story.start(controller.watches(story.cluster.api(Child), mapper))
    assert simulated.store.is_ready
    assert parents.is_ready
    story.cluster.put(Child, "limit", 1)
    assert story.after() == ["b", "c"]


def test_the_store_is_the_same_in_each_life_and_empty_at_its_beginning(cluster: Cluster) -> None:
    cluster.put(Parent, "a")
    controller = Controller(cluster.api(Parent))
    parents = controller.store
    parents.add_index("value", lambda obj: obj.spec["value"])
    for name in ("a", "b"):
        with controller.start(Ran()) as running:
            running.wait_until_ready(LIMIT)
            assert [obj.name for obj in parents.by_index("value", 0)] == [name]
        cluster.delete(Parent, name)
        cluster.put(Parent, "b")
    cluster.failing.add(Parent.api_resource)
    with controller.start(Ran()):
        assert not parents.is_ready
        assert (len(parents), parents.by_index("value", 0)) == (0, [])


def test_a_mapper_on_events_gets_both_states_at_once(story: Story) -> None:
    story.cluster.put(Child, "c", 1)
    seen: list[tuple[int, int | None, bool]] = []

    def mapper(event: ObjectEvent[Child]) -> None:
        seen.append((event.obj.spec["value"], event.old.spec["value"] if event.old else None, event.deleted))

    story.start(Controller(story.cluster.api(Parent)).watches(story.cluster.api(Child), mapper, on="event"))
    story.cluster.put(Child, "c", 2)
    story.after()
    story.cluster.delete(Child, "c")
    story.after()
    assert seen == [(1, None, False), (2, 1, False), (2, None, True)]


@pytest.mark.parametrize("namespace", [None, "", "default"])
def test_a_ref_of_a_cluster_scoped_kind_is_one_key_whatever_namespace_it_carries(namespace: str | None) -> None:
    assert ref_of(ObjectRef(Foo.api_resource, "team", namespace), Foo.api_resource).key == (None, "team")


@pytest.mark.parametrize("namespace", [None, ""])
def test_a_mappers_ref_without_a_namespace_is_refused_with_a_line(story: Story, caplog: pytest.LogCaptureFixture,
                                                                  namespace: str | None) -> None:
    story.cluster.put(Parent, "a")
    story.start(Controller(story.cluster.api(Parent)).watches(
        story.cluster.api(Child), lambda child: ObjectRef(Parent.api_resource, "a", namespace)))
    story.cluster.put(Child, "c")
    assert story.after() == []
    assert "Parent.v1.test.example/a has no namespace" in caplog.text


def test_a_mapper_of_a_controller_of_namespaces_may_spell_no_namespace_as_it_likes() -> None:
    """Three spellings of one key are one run."""
    with ApiServer() as server, server.client() as client:
        running_at_once: list[int] = []
        active, lock = [0], threading.Lock()
        ran = Ran()

        def reconcile(obj: Namespace, ctx: Context[Any]) -> Action:
            with lock:
                active[0] += 1
                running_at_once.append(active[0])
            ran(obj, ctx)
            threading.Event().wait(0.05)
            with lock:
                active[0] -= 1
            return Action.await_change()

        def mapper(obj: ConfigMap) -> list[ObjectRef]:
            own = Namespace.api_resource
            return [ObjectRef(own, "default", spelling) for spelling in (None, "", "default")]

        only_default = predicates.when(lambda event: event.obj.name == "default")
        controller = Controller(Api.all(client, Namespace), predicate=only_default)
        controller.watches(Api.namespaced(client, ConfigMap, "default"), mapper)
        with controller.start(reconcile) as running:
            running.wait_until_ready(LIMIT)
            ran.until("default")
            Api.namespaced(client, ConfigMap, "default").create({"metadata": {"name": "team"}})
            ran.until("default")
        assert max(running_at_once) == 1


# Objects that are gone

def test_on_gone_runs_once_for_a_deleted_object_and_never_beside_its_reconciler(story: Story) -> None:
    gone: list[ObjectRef] = []
    story.cluster.put(Parent, "a")
    story.start(Controller(story.cluster.api(Parent)).on_gone(lambda ref, ctx: gone.append(ref)))
    story.cluster.delete(Parent, "a")
    assert story.after() == []
    assert gone == [ObjectRef.of(Parent, "a", "default")]


def test_on_gone_that_raises_is_logged_and_tried_again(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def let_go(ref: ObjectRef, ctx: Context[Any]) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("planned")

    story.cluster.put(Parent, "a")
    story.start(Controller(story.cluster.api(Parent)).on_gone(let_go))
    story.cluster.delete(Parent, "a")
    story.after(10)
    assert attempts == [1, 2, 3]
    assert "Parent default/a: reconcile failed (attempt 1" in caplog.text
    assert "Parent default/a: still fails after 2 attempts" in caplog.text


def test_on_gone_runs_for_whatever_asks_for_an_object_that_is_not_there(story: Story) -> None:
    gone: list[str] = []
    simulated = story.start(Controller(story.cluster.api(Parent)).on_gone(lambda ref, ctx: gone.append(ref.name)))
    simulated.trigger(ObjectRef.of(Parent, "never-was", "default"))
    story.after()
    assert gone == ["never-was"]


@pytest.mark.parametrize("wrong", [5, lambda: None, lambda ref: None])
def test_what_is_no_function_of_a_ref_and_a_context_is_refused(story: Story, wrong: Any) -> None:
    with pytest.raises(RequestError, match="on_gone"):
        Controller(story.cluster.api(Parent)).on_gone(wrong)


# Time

def test_a_resync_runs_everything_each_period_more_or_less_a_tenth(story: Story) -> None:
    for name in "ab":
        story.cluster.put(Parent, name)
    story.start(Controller(story.cluster.api(Parent)).resync(100))
    assert story.after(80) == []
    assert story.after(40) == ["a", "b"]
    assert story.after(1000).count("a") in (9, 10, 11)


@pytest.mark.parametrize("period", [0, -1, float("nan")])
def test_a_resync_that_makes_no_sense_is_refused(story: Story, period: float) -> None:
    with pytest.raises(RequestError, match=r"^resync"):
        Controller(story.cluster.api(Parent)).resync(period)


# What is stored

def test_modify_changes_what_is_stored_and_strips_managed_fields() -> None:
    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.apply({"metadata": {"name": "a"}, "data": {"x": "y"}}, field_manager="me")
        assert maps.get("a").metadata.managed_fields
        ran = Ran()
        controller = Controller(maps, modify=strip_managed_fields)
        with controller.start(ran):
            ran.until("a")
            stored = controller.store.get("a", "default")
            assert stored is not None
            assert stored.metadata.managed_fields is None
            assert stored.data == {"x": "y"}
            stored.data["x"] = "z"
            assert maps.replace(stored).metadata.managed_fields, "the server keeps its own"

        def shrink(obj: ConfigMap) -> None:
            strip_managed_fields(obj)
            obj.data.clear()

        controller = Controller(maps, modify=shrink)
        with controller.start(ran) as running:
            running.wait_until_ready(LIMIT)
            stored = controller.store.get("a", "default")
            assert stored is not None
            assert (stored.metadata.managed_fields, dict(stored.data)) == (None, {})


# Streams of one's own

def test_the_chain_of_a_watcher_a_reflector_flattened_and_filtered_drives_a_controller(cluster: Cluster) -> None:
    cluster.put(Parent, "a", 1)
    parents, writer = store(Parent)
    stop = StopToken()
    stream = predicate_filter(applied_objects(reflector(writer, watcher(cluster.api(Parent), stop=stop))),
                              predicates.value(lambda obj: obj.spec["value"]))
    ran = Ran()
    controller = Controller.for_stream(stream, parents, client=cluster.client, stop=stop)
    with controller.start(ran) as running:
        running.wait_until_ready(LIMIT)
        ran.until("a")
        cluster.put(Parent, "a", 1)
        cluster.put(Parent, "b", 1)
        assert ran.names.get(timeout=LIMIT) == "b"
    assert stop.is_set()


def test_a_stream_of_objects_without_any_is_ready_when_its_store_is(cluster: Cluster) -> None:
    parents, writer = store(Parent)
    stop = StopToken()
    stream = applied_objects(reflector(writer, watcher(cluster.api(Parent), stop=stop)))
    with Controller.for_stream(stream, parents, client=cluster.client, stop=stop).start(Ran()) as running:
        running.wait_until_ready(LIMIT)


def test_an_object_of_a_stream_that_is_not_in_the_store_any_more_counts_as_deleted(cluster: Cluster) -> None:
    a = Parent.from_record(cluster.put(Parent, "a"))
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    end = StopToken()

    def events() -> Iterator[Any]:
        yield from (INIT, InitApply(a), INIT_DONE, Delete(a), Apply(Parent.from_record(cluster.put(Parent, "b"))))
        end.wait(LIMIT)

    ran = Ran()
    stream = touched_objects(reflector(writer, events()))
    with Controller.for_stream(stream, writer.store, client=cluster.client, stop=end, concurrency=1).start(ran):
        ran.until("b")
    assert ran.names.empty()


def test_a_stream_takes_a_predicate_a_resync_and_a_function_for_what_is_gone(cluster: Cluster) -> None:
    a, old = (Parent.from_record(cluster.put(Parent, name)) for name in ("a", "old"))
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    end = StopToken()

    def events() -> Iterator[Any]:
        yield from (INIT, InitApply(a), InitApply(old), INIT_DONE, Delete(old))
        end.wait(LIMIT)

    ran = Ran()
    gone: queue.SimpleQueue[str] = queue.SimpleQueue()
    controller = Controller.for_stream(reflector(writer, events()), writer.store, client=cluster.client, stop=end,
                                       predicate=predicates.when(lambda event: event.obj.name != "a"))
    with controller.resync(0.05).on_gone(lambda ref, ctx: gone.put(ref.name)).start(ran):
        assert gone.get(timeout=LIMIT) == "old"
        ran.until("a")  # which no event asks for


@pytest.mark.parametrize("events", [[INIT, INIT_DONE], [INIT_DONE]])
def test_a_stream_without_a_reflector_ends_the_controller_and_says_what_is_missing(cluster: Cluster,
                                                                                   events: list[Any]) -> None:
    parents, _ = store(Parent)
    controller = Controller.for_stream(iter(events), parents, client=cluster.client)
    with pytest.raises(ControllerError, match=r"not been through a reflector.*pass reflector\(writer, events\)"):
        controller.run(Ran())


@pytest.mark.parametrize("flatten", [applied_objects, touched_objects])
def test_a_stream_of_objects_without_a_reflector_ends_it_as_well(cluster: Cluster, flatten: Any) -> None:
    cluster.put(Parent, "a")
    parents, _ = store(Parent)
    stop = StopToken()
    objects = flatten(watcher(cluster.api(Parent), stop=stop))
    with pytest.raises(ControllerError, match=r"not been through a reflector"):
        Controller.for_stream(objects, parents, client=cluster.client, stop=stop).run(Ran())


@pytest.mark.parametrize("flat", [False, True], ids=["events", "objects"])
def test_streams_of_owned_and_of_related_objects_trigger_as_watches_do(cluster: Cluster, flat: bool) -> None:
    for name in ("owner", "related"):
        cluster.put(Parent, name)
    stops = StopToken(), StopToken()
    streams = [watcher(cluster.api(Child), stop=stop) for stop in stops]
    owned, related = map(touched_objects, streams) if flat else streams
    ran = Ran()
    controller = Controller(cluster.api(Parent)).owns_stream(owned, stop=stops[0])
    controller.watches_stream(related, lambda child: ObjectRef.of(Parent, "related", "default"), stop=stops[1])
    with controller.start(ran):
        ran.until("owner", "related")
        cluster.put(Child, "c", owner="owner")
        ran.until("owner", "related")
    assert all(stop.is_set() for stop in stops)


# While it runs

def test_a_watch_that_is_added_to_a_running_controller_starts(cluster: Cluster) -> None:
    cluster.put(Parent, "a")
    ran = Ran()
    controller = Controller(cluster.api(Parent))
    with controller.start(ran) as running:
        ran.until("a")
        controller.owns(cluster.api(Child), whole=True)
        cluster.put(Child, "c", owner="a")
        ran.until("a")
        more: queue.SimpleQueue[Any] = queue.SimpleQueue()
        controller.reconcile_on(more)
        more.put(ObjectRef.of(Parent, "a", "default"))
        ran.until("a")
        with pytest.raises(RequestError, match="a stream must be added before the start"):
            controller.owns_stream([])
        assert running._assembly.store_of(Child).is_ready


def test_a_controller_that_runs_cannot_be_started_again_before_its_end(cluster: Cluster) -> None:
    controller = Controller(cluster.api(Parent))
    with controller.start(Ran()), pytest.raises(RequestError, match="is already running"):
        controller.start(Ran())
    controller.start(Ran()).stop()


def test_two_controllers_of_one_name_on_one_client_are_refused(cluster: Cluster) -> None:
    with Controller(cluster.api(Parent)).start(Ran()):
        with pytest.raises(RequestError, match=r"named 'parent' is running on this client already.*another name="):
            Controller(cluster.api(Parent)).start(Ran())
        Controller(cluster.api(Parent), name="other").start(Ran()).stop()
        Controller(Cluster(blocking=True).api(Parent)).start(Ran()).stop()
    Controller(cluster.api(Parent)).start(Ran()).stop()


def test_a_name_that_is_taken_on_a_client_is_taken_on_those_that_are_derived_from_it() -> None:
    with ApiServer() as server, server.client() as client:
        derived = client.with_layer(lambda send: send).with_layer(lambda send: send)
        with Controller(Api.namespaced(derived, ConfigMap, "default")).start(Ran()):
            with pytest.raises(RequestError, match="is running on this client already"):
                Controller(Api.namespaced(client, ConfigMap, "default")).start(Ran())
        Controller(Api.namespaced(client, ConfigMap, "default")).start(Ran()).stop()


def test_a_watch_that_has_stopped_takes_no_subscriber(cluster: Cluster) -> None:
    running = Controller(cluster.api(Parent)).start(Ran())
    (watch,) = running._assembly.watches.values()
    running.stop()
    with pytest.raises(RequestError, match="the watch has stopped"):
        watch.subscribe(lambda event: (), lambda requests: None)


# Several namespaces

def test_several_namespaces_are_one_store_with_a_watch_each_and_the_gate_waits_for_all() -> None:
    with ApiServer() as server, server.client() as client:
        for name in ("one", "two", "three"):
            Api.all(client, Namespace).create({"metadata": {"name": name}})
            Api.namespaced(client, ConfigMap, name).create({"metadata": {"name": f"in-{name}"}})
        api = Api.namespaces(client, ConfigMap, ["one", "two"])
        assert {obj.name for obj in api.list_all()} - {"kube-root-ca.crt"} == {"in-one", "in-two"}
        server.faults.on("list", resource="configmaps", namespace="two").status(500).first(2)
        ran, sizes = Ran(), []
        controller = Controller(api)

        def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
            sizes.append({found.name for found in ctx.store(ConfigMap)} >= {"in-one", "in-two"})
            return ran(obj, ctx)

        with controller.start(reconcile) as running:
            running.wait_until_ready(LIMIT)
            ran.until("in-one", "in-two")
            assert sorted(running._assembly.watches) == ["configmaps in namespace one", "configmaps in namespace two"]
            Api.namespaced(client, ConfigMap, "two").create({"metadata": {"name": "later"}})
            ran.until("later")
            Api.namespaced(client, ConfigMap, "one").delete("in-one")
            server.expire_history()
            server.drop_connections()
            Api.namespaced(client, ConfigMap, "one").create({"metadata": {"name": "last"}})
            ran.until("last")
            names = {obj.name for obj in controller.store} - {"kube-root-ca.crt"}
            assert names == {"in-two", "later", "last"}
        assert sizes[:2] == [True, True]


@pytest.mark.parametrize("names", [[], "default"])
def test_namespaces_are_a_list_of_at_least_one(names: Any) -> None:
    with ApiServer() as server, server.client() as client, pytest.raises(RequestError, match="at least one name"):
        Api.namespaces(client, ConfigMap, names)


def scoped(client: Client, *namespaces: str) -> Controller[ConfigMap]:
    return Controller(Api.namespaces(client, ConfigMap, [*namespaces]), name="scoped")


def warnings_of(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.mark.parametrize("on", ["object", "event"])
@pytest.mark.parametrize("added", ["before", "while it runs"])
def test_what_a_mapper_names_outside_the_namespaces_is_ignored_and_logged_once_for_each(
        on: Any, added: str, caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer() as server, server.client() as client:
        for name in ("team-a", "team-b", "team-c"):
            Api.all(client, Namespace).create({"metadata": {"name": name}})
            Api.namespaced(client, Secret, name).create({"metadata": {"name": "s1"}})
        ran, gone = Ran(), []

        def mapper(found: Any) -> Any:
            obj = found if on == "object" else found.obj
            return [ObjectRef(ConfigMap.api_resource, obj.name, obj.namespace)]

        def add(controller: Controller[Any]) -> None:
            controller.watches(Api.all(client, Secret), mapper, on=on)

        controller = Controller(Api.namespaces(client, ConfigMap, ["team-a"]), name="scoped")
        controller.on_gone(lambda ref, ctx: gone.append(ref))
        if added == "before":
            add(controller)
        with controller.start(ran) as running:
            running.wait_until_ready(LIMIT)
            if added != "before":
                add(controller)
            Api.namespaced(client, Secret, "team-b").create({"metadata": {"name": "s2"}})
            Api.namespaced(client, ConfigMap, "team-a").create({"metadata": {"name": "s3"}})
            Api.namespaced(client, Secret, "team-a").create({"metadata": {"name": "s3"}})
            ran.until("s3")
            eventually(lambda: len(warnings_of(caplog, "ignoring its triggers")) >= 2)
        lines = warnings_of(caplog, "ignoring its triggers")
        assert len([line for line in lines if "mapper" in line and "team-b" in line]) == 1
        assert len([line for line in lines if "mapper" in line and "team-c" in line]) == 1
        assert {ref.namespace for ref in gone} <= {"team-a"}


def test_what_a_program_triggers_outside_the_namespaces_is_refused() -> None:
    with ApiServer() as server, server.client() as client, scoped(client, "default").start(Ran()) as running:
        with pytest.raises(RequestError, match="in none of the controller's namespaces, default"):
            running.trigger(ObjectRef(ConfigMap.api_resource, "a", "elsewhere"))
        running.trigger(ObjectRef(ConfigMap.api_resource, "a", "default"))


@pytest.mark.parametrize(("children", "refused"), [(["b"], True), (["b", "c"], True), (["a", "b"], False),
                                                   (None, False)])
def test_children_in_other_namespaces_alone_are_refused(children: list[str] | None, refused: bool) -> None:
    with ApiServer() as server, server.client() as client:
        api = Api.all(client, Secret) if children is None else Api.namespaces(client, Secret, children)
        if refused:
            with pytest.raises(RequestError, match="an owner must be in the namespace of the objects that it owns"):
                scoped(client, "a", "d").owns(api)
        else:
            scoped(client, "a", "d").owns(api)
        Controller(Api.all(client, Namespace)).owns(api)  # a cluster-scoped owner may own anything
        Controller(Api.all(client, ConfigMap)).owns(api)


# Async functions

async def coroutine(*_: Any) -> Any:
    """Written for another library."""


async def many(*_: Any) -> Any:
    yield None


class Asynchronous:
    async def __call__(self, obj: Any) -> Any:
        """An object that is called."""

    async def method(self, *_: Any) -> Any:
        """A bound one."""


MAKERS = [
    lambda given, api: Controller(api).watches(api, given),
    lambda given, api: Controller(api).watches(api, given, on="event"),
    lambda given, api: Controller(api).watches_stream([], given), lambda given, api: predicates.value(given),
    lambda given, api: predicates.when(given), lambda given, api: predicates.Predicate(given, "own"),
    lambda given, api: Controller(api).store.add_index("i", given), lambda given, api: Controller(api, modify=given),
    lambda given, api: Controller(api).on_result(given),
    lambda given, api: watch_store(api, indexes={"i": given}), lambda given, api: all_of(given),
    lambda given, api: await_condition(api, "a", given, timeout=1),
    lambda given, api: create_or_update(api, "a", given)]


@pytest.mark.parametrize("given", [coroutine, many, Asynchronous(), Asynchronous().method, partial(coroutine, 1)],
                         ids=["function", "generator", "object", "method", "partial"])
@pytest.mark.parametrize("make", MAKERS)
def test_async_functions_are_refused_when_they_are_given(make: Any, given: Any) -> None:
    with Client(Config(cluster_url="http://127.0.0.1:9")) as client, pytest.raises(
            RequestError, match=r"is async|combines conditions"):
        make(given, Api.namespaced(client, ConfigMap, "default"))


@pytest.mark.parametrize("given", [coroutine, Asynchronous().method, partial(coroutine, 1)])
def test_async_reconcilers_are_refused_when_they_are_given(given: Any) -> None:
    with ApiServer() as server, server.client() as client:
        controller = Controller(Api.all(client, ConfigMap))
        for take in (controller.start, controller.run, controller.bind):
            with pytest.raises(RequestError, match="is async"):
                take(given)
        with pytest.raises(RequestError, match="is async"):
            controller.start(Ran(), error_policy=given)


def test_what_turns_out_to_be_async_is_logged_by_name(story: Story, caplog: pytest.LogCaptureFixture,
                                                      recwarn: pytest.WarningsRecorder) -> None:
    class Awaited:
        def __await__(self) -> Iterator[Any]:
            return iter(())

        __iter__ = __await__

    def disguised(obj: Any) -> Any:
        return coroutine(obj)

    story.cluster.put(Child, "a")
    controller = Controller(story.cluster.api(Parent), predicate=predicates.when(lambda event: coroutine()))
    controller.watches(story.cluster.api(Child), disguised)
    controller.watches(story.cluster.api(Child), lambda obj: Awaited(), predicate=predicates.value(disguised))
    controller.store.add_index("i", disguised)
    story.start(controller)
    story.cluster.put(Parent, "a")
    story.cluster.put(Child, "a", 2)
    story.after()
    lines = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert len([line for line in lines if "nothing awaits it" in line]) >= 4
    assert any("disguised returned a coroutine" in line for line in lines)
    gc.collect()
    assert not [str(one.message) for one in recwarn if "never awaited" in str(one.message)]


# Before the start

@pytest.mark.parametrize("read", [
    lambda store: store.list(), len, lambda store: store.get("a", "default"), lambda store: store.by_index("i", "x"),
    lambda store: store.filter("app")])
def test_a_store_whose_controller_was_never_started_says_so(read: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = "its controller was never started"
    with ApiServer() as server, server.client() as client:
        controller = Controller(Api.namespaces(client, ConfigMap, ["default"]))
        store = controller.store
        store.add_index("i", lambda obj: obj.name)
        assert not read(store)
        assert not read(store)
        assert len(warnings_of(caplog, told)) == 1
        with pytest.raises(StoreNotReady, match=told):
            store.wait_until_ready(0.01)
        assert told in store.trouble
        with controller.start(Ran()):
            store.wait_until_ready(LIMIT)
            assert not store.trouble
        assert not store.trouble
        assert len(warnings_of(caplog, told)) == 1


def test_a_thread_may_wait_for_a_store_before_the_start() -> None:
    with ApiServer() as server, server.client() as client:
        controller, ready = Controller(Api.all(client, ConfigMap)), threading.Event()

        def wait() -> None:
            controller.store.wait_until_ready(LIMIT)
            ready.set()

        thread = threading.Thread(target=wait)
        thread.start()
        with controller.start(Ran()):
            assert ready.wait(LIMIT)
        thread.join(LIMIT)


# What is refused at the start

def no_argument() -> Action:
    return Action.await_change()


def one_argument(obj: Any) -> Action:
    return Action.await_change()


def three_arguments(obj: Any, ctx: Any, more: Any) -> Action:
    return Action.await_change()


def needs_data(obj: Parent, ctx: Context[SimClock]) -> Action:
    return Action.await_change()


def takes_anything(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


@pytest.mark.parametrize("reconcile", [no_argument, one_argument, three_arguments])
def test_a_reconciler_of_the_wrong_signature_is_refused(cluster: Cluster, reconcile: Any) -> None:
    with pytest.raises(RequestError, match="cannot be called with 2 arguments, obj and ctx"):
        Controller(cluster.api(Parent)).start(reconcile)


@pytest.mark.parametrize("policy", [takes_anything, one_argument, 5])
def test_an_error_policy_of_the_wrong_signature_is_refused(cluster: Cluster, policy: Any) -> None:
    with pytest.raises(RequestError, match="error policy"):
        Controller(cluster.api(Parent)).start(takes_anything, error_policy=policy)


def test_a_context_that_the_reconciler_needs_and_nobody_gave_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RequestError, match=r"needs_data takes a Context\[SimClock\], but no context= was given"):
        Controller(cluster.api(Parent)).start(needs_data)
    Controller(cluster.api(Parent)).start(needs_data, context=SimClock()).stop()


@pytest.mark.parametrize("mapper", [None, "x", no_argument, three_arguments])
def test_what_is_no_mapper_is_refused_when_it_is_given(cluster: Cluster, mapper: Any) -> None:
    with pytest.raises(RequestError, match="mapper"):
        Controller(cluster.api(Parent)).watches(cluster.api(Child), mapper)
    with pytest.raises(RequestError, match='on must be "object" or "event"'):
        Controller(cluster.api(Parent)).watches(cluster.api(Child), one_argument, on="both")  # type: ignore[call-overload]


def test_what_raises_in_place_of_a_trigger_is_in_the_controllers_log_with_what_it_costs(
        caplog: pytest.LogCaptureFixture) -> None:
    def mapper(obj: Child) -> list[ObjectRef]:
        raise ValueError("no")

    class Odd:
        @property
        def ref(self) -> ObjectRef:
            raise ValueError("no")

    cluster = Cluster(SimClock())
    cluster.put(Child, "b")
    controller = Controller(cluster.api(Parent), name="shop").watches(cluster.api(Child), mapper)
    with controller.reconcile_on([Odd()]).start(lambda obj, ctx: Action.await_change()):
        told = eventually(lambda: sorted((record.name, record.getMessage()) for record in caplog.records
                                         if "raised ValueError" in record.getMessage()), lambda lines: len(lines) == 2)
    assert {name for name, _ in told} == {"kubectl_runtime.controller.shop"}
    assert told[0][1] == "an item of a trigger source, for which nothing is reconciled, raised ValueError"
    assert told[1][1].endswith(".mapper, given Apply of Child.v1.test.example/b.default (nothing more is reconciled "
                               "because of this event), raised ValueError")
