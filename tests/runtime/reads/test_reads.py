"""`ctx.read` and `ctx.read_all`: what they answer, what triggers a run again, and what is kept."""
from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Controller,
    FinalizingReconciler,
    ObjectRef,
    Patch,
    RequestError,
    Resource,
    TerminalError,
)
from kubectl_runtime.cli.top_screen import Screen
from kubectl_runtime.resources import ConfigMap, Namespace, Pod, Secret
from kubectl_runtime.runtime.observe.debug import snapshot
from kubectl_runtime.runtime.reads.values import ABSENT, value_at
from kubectl_runtime.testing import ApiServer, Simulation, context_for, eventually

Run = tuple[str, Any, str]


class World:
    """A controller of ConfigMaps in simulation, which keeps what its runs read and why they came."""

    def __init__(self, read: Any, *, seed: int = 0, client: Client | None = None, declared: bool = False,
                 namespace: str | None = None, **options: Any) -> None:
        self.sim = Simulation(seed)
        self.server = self.sim.serve()
        self.admin = self.sim.client(self.server)
        self.client = client or self.sim.client(self.server)
        self.secrets = Api.namespaced(self.admin, Secret, "default")
        self.maps = Api.namespaced(self.admin, ConfigMap, "default")
        self.runs: list[Run] = []
        self.read, self.declared, self.namespace, self.options = read, declared, namespace, options
        self.controller: Any = None

    def start(self, *names: str) -> World:
        for name in names or ("one",):
            self.maps.create(ConfigMap(name=name, data={"secret": "s"}))
        api: Any = Api.namespaced(self.client, ConfigMap, self.namespace) if self.namespace else Api.all(
            self.client, ConfigMap)
        made = Controller(api, **self.options)
        if self.declared:
            made.reads(Secret)
        self.controller = self.sim.start(made, self.reconcile)
        self.sim.settle(5)
        return self

    def reconcile(self, obj: ConfigMap, ctx: Any) -> Action:
        if obj.namespace == "default":
            found = self.read(obj, ctx)
            self.runs.append((obj.name, found, str(ctx.reason)))
        return Action.await_change()

    def after(self, act: Any, limit: float = 5) -> list[Run]:
        """The runs that follow."""
        self.runs.clear()
        act()
        self.sim.settle(limit)
        return [*self.runs]

    def put(self, name: str, data: dict[str, str] | None = None, **labels: str) -> Secret:
        return self.secrets.apply({"metadata": {"name": name, "labels": labels}, "stringData": data or {}},
                                  field_manager="story", force=True)

    def gets(self) -> int:
        return sum(one.verb == "get" and "/secrets" in one.path for one in self.server.requests)

    @property
    def reads(self) -> Any:
        return self.controller.assembly.reads

    @property
    def kept(self) -> set[str]:
        return {key[1] for source in self.reads.sources.all() for key in source.shelf.contents}


def x_of(obj: Any) -> Any:
    return None if obj is None else (obj.data or {}).get("x")


@pytest.mark.parametrize("declared", [False, True])
def test_a_change_an_appearance_and_a_deletion_trigger_and_nothing_else(declared: bool) -> None:
    world = World(lambda obj, ctx: x_of(ctx.read(Secret, "s")), declared=declared).start("one", "two")
    assert min(world.runs)[:2] == ("one", None)
    appeared = world.after(lambda: world.put("s", {"x": "1"}))
    assert sorted(appeared) == [("one", b"1", "secret/s appeared"), ("two", b"1", "secret/s appeared")]
    assert {run[2] for run in world.after(lambda: world.put("s", {"x": "2"}))} == {"secret/s changed"}
    assert world.after(lambda: world.put("other", {"x": "2"})) == []
    assert world.after(lambda: world.put("s", {"x": "2"})) == [], "a write that changes nothing"
    assert {run[1:] for run in world.after(lambda: world.secrets.delete("s"))} == {(None, "secret/s went")}
    assert {run[1:] for run in world.after(lambda: world.put("s", {"x": "3"}))} == {(b"3", "secret/s appeared")}


def test_contents_are_read_once_and_freed_with_the_last_reader() -> None:
    names = {"one": "s", "two": "s", "three": "t"}
    world = World(lambda obj, ctx: names.get(obj.name) and x_of(ctx.read(Secret, names[obj.name])), declared=True)
    world.put("s", {"x": "1"})
    world.put("t", {"x": "2"})
    world.put("u", {"x": "3"})
    world.start(*names)
    gets = world.gets()
    assert gets == 2
    world.after(world.controller.trigger_all)
    assert world.gets() == gets, "from memory"
    assert world.kept == {"s", "t"}
    names["one"] = ""
    world.after(world.controller.trigger_all)
    assert world.kept == {"s", "t"}
    names["two"] = ""
    world.after(world.controller.trigger_all)
    assert world.kept == {"t"}
    world.after(lambda: world.maps.delete("three"))
    assert world.kept == set()
    assert world.reads.look(10) == (0, [])


def test_what_a_reader_does_to_an_object_changes_no_other() -> None:
    def read(obj: Any, ctx: Any) -> Any:
        found = ctx.read(Secret, "s")
        before = dict(found.data)
        found.data["x"] = b"mine"
        return before

    world = World(read)
    world.put("s", {"x": "1"})
    world.start("one", "two")
    world.after(world.controller.trigger_all)
    assert {str(run[1]) for run in world.runs} == {str({"x": b"1"})}


@pytest.mark.parametrize("value", ["data.tls.crt", ".data.tls.crt", lambda one: one.data["tls.crt"]])
def test_with_a_value_only_its_change_triggers(value: Any) -> None:
    def read(obj: Any, ctx: Any) -> Any:
        found = ctx.read(Secret, "s", value=value)
        return None if found is None else found.data["tls.crt"]

    world = World(read)
    world.put("s", {"tls.crt": "1", "y": "1"})
    world.start()
    assert world.after(lambda: world.put("s", {"tls.crt": "1", "y": "2"})) == []
    assert world.after(lambda: world.put("s", {"tls.crt": "1", "y": "2"}, app="web")) == []
    assert world.after(lambda: world.put("s", {"tls.crt": "2", "y": "2"})) == [("one", b"2", "secret/s changed")]
    assert world.after(lambda: world.put("s", {"tls.crt": "2", "y": "3"})) == []
    assert world.after(lambda: world.secrets.delete("s")) == [("one", None, "secret/s went")]
    assert world.after(lambda: world.put("s", {"tls.crt": "2", "y": "3"})) == [("one", b"2", "secret/s appeared")]


def test_a_value_of_whole_objects_that_are_watched_anyway_needs_no_request() -> None:
    world = World(lambda obj, ctx: obj.name == "one" and x_of(ctx.read(ConfigMap, "two", value="data.x"))).start(
        "one", "two")
    before = len(world.server.requests)
    changed = world.after(lambda: world.maps.patch("two", Patch.merge({"data": {"y": "1"}})))
    assert [run[0] for run in changed] == ["two"]
    changed = world.after(lambda: world.maps.patch("two", Patch.merge({"data": {"x": "1"}})))
    assert sorted(run[0] for run in changed) == ["one", "two"]
    assert [one for one in [*world.server.requests][before:] if one.verb in ("get", "list")] == []
    assert len(world.controller.assembly.watches) == 1


def test_a_value_that_cannot_be_read_for_a_while_is_compared_later() -> None:
    world = World(lambda obj, ctx: x_of(ctx.read(Secret, "s", value="data.x")))
    world.put("s", {"x": "1"})
    world.start()

    def disturbed() -> None:
        world.server.faults.on(verb="get", resource="secrets").status(500)
        world.put("s", {"x": "1", "y": "1"})

    assert world.after(disturbed, 100) == []
    world.put("s", {"x": "2", "y": "1"})
    world.sim.settle(100)
    assert world.runs == []
    world.server.faults.clear()
    world.sim.settle(100)
    assert world.runs == [("one", b"2", "secret/s changed")]


@pytest.mark.parametrize("also", ["data.y", None])
def test_two_reads_of_one_object_add_up_within_a_run_and_after_one_that_failed(also: str | None) -> None:
    values = ["data.x", also]

    def read(obj: Any, ctx: Any) -> Any:
        for value in values:
            ctx.read(Secret, "s", value=value)
        if values == ["data.z"]:
            raise TerminalError("planned")

    world = World(read)
    world.put("s", {"x": "1", "y": "1", "z": "1"})
    world.start()
    assert world.after(lambda: world.put("s", {"x": "2", "y": "1", "z": "1"}))
    assert world.after(lambda: world.put("s", {"x": "2", "y": "2", "z": "1"}))
    assert bool(world.after(lambda: world.put("s", {"x": "2", "y": "2", "z": "2"}))) == (also is None)
    values[:] = ["data.z"]
    world.after(world.controller.trigger_all)
    values[:] = ["data.x"]
    assert world.after(lambda: world.put("s", {"x": "2", "y": "3", "z": "2"})), "what the last good run wanted"
    assert world.after(lambda: world.put("s", {"x": "2", "y": "4", "z": "3"})) == []


def test_a_kind_is_declared_once_whatever_its_class_and_after_it_was_read() -> None:
    class Mine(Resource, group="", version="v1", kind="Secret"):
        data: dict[str, str]

    sim = Simulation(1)
    client = sim.client(sim.serve())
    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="one"))
    made = Controller(Api.namespaced(client, ConfigMap, "default")).reads(Secret).reads(Mine)
    controller = sim.start(made, lambda obj, ctx: Action.await_change())
    sim.settle(5)
    assert controller.is_ready
    assert len(controller.assembly.watches) == 2
    controller.assembly.add_read(Secret)
    controller.assembly.add_read(Pod)
    sim.settle(5)
    assert len(controller.assembly.watches) == 3
    sim.close()


def test_a_selection_is_a_dependency_and_what_enters_or_leaves_it() -> None:
    world = World(lambda obj, ctx: [one.name for one in ctx.read_all(Secret, namespace="default",
                                                                      labels={"app": "web"})])
    world.put("b", app="web")
    world.put("a", app="web")
    world.put("c", app="db")
    world.start()
    assert world.runs[-1][1] == ["a", "b"]
    assert [run[1] for run in world.after(lambda: world.put("c", app="web"))] == [["a", "b", "c"]]
    assert [run[1] for run in world.after(lambda: world.put("a", {"x": "1"}, app="web"))] == [["a", "b", "c"]]
    assert [run[1] for run in world.after(lambda: world.put("a", {"x": "1"}, app="db"))] == [["b", "c"]]
    assert world.after(lambda: world.put("a", {"x": "2"}, app="db")) == []
    assert [run[1] for run in world.after(lambda: world.secrets.delete("b"))] == [["c"]]
    assert world.kept == {"c"}
    assert world.reads.look(1)[1] == [(("default", "one"), ["1 secrets app=web"])]


@pytest.mark.parametrize("selection", ["app in (web, db),!old", "app", "", {"app": "web"}])
def test_selections_of_any_form_are_judged_as_the_server_does(selection: Any) -> None:
    world = World(lambda obj, ctx: [one.name for one in ctx.read_all(Secret, namespace="default", labels=selection)],
                  declared=True)
    world.start()
    for name, labels in (("a", {"app": "web"}), ("b", {"app": "db", "old": "1"}), ("c", {}), ("d", {"app": "db"})):
        world.put(name, **labels)
        world.sim.settle(2)
    expected = [one.name for one in world.secrets.list(label_selector=selection or None).items]
    world.after(world.controller.trigger_all)
    assert world.runs[-1][1] == expected


def test_a_selection_by_fields_is_a_watch_of_its_own() -> None:
    read = lambda obj, ctx: [one.name for one in ctx.read_all(Secret, fields={"type": "example.com/a"})]  # noqa: E731
    world = World(read).start()
    made = world.after(lambda: world.secrets.create(Secret(name="a", type="example.com/a")))
    assert made == [("one", ["a"], "secret/a appeared")]
    assert world.after(lambda: world.secrets.create(Secret(name="b", type="example.com/b"))) == []
    assert world.after(lambda: world.secrets.delete("a")) == [("one", [], "secret/a went")]
    assert len(world.controller.assembly.watches) == 3
    world.after(lambda: world.maps.delete("one"), 30)
    assert len(world.controller.assembly.watches) == 2, "nothing reads the selection any more"


def test_reads_reach_other_namespaces_and_cluster_scoped_kinds() -> None:
    def read(obj: Any, ctx: Any) -> Any:
        space = ctx.read(Namespace, "default")
        other = ctx.read(Secret, ObjectRef.of(Secret, "s", "kube-system"))
        unknown = ctx.read(ApiResource("", "v1", "ServiceAccount", "serviceaccounts"), "robot")
        return space.labels.get("team"), other and other.name, unknown and unknown.name

    world = World(read).start()
    assert world.runs[-1][1] == (None, None, None)
    labelled = Patch.merge({"metadata": {"labels": {"team": "red"}}})
    found = world.after(lambda: Api.all(world.admin, Namespace).patch("default", labelled))
    assert found == [("one", ("red", None, None), "namespace/default changed")]
    other = Api.namespaced(world.admin, Secret, "kube-system")
    found = world.after(lambda: other.create(Secret(name="s")))
    assert found == [("one", ("red", "s", None), "secret/kube-system/s appeared")]
    accounts = Api.namespaced(world.admin, ApiResource("", "v1", "ServiceAccount", "serviceaccounts"), "default")
    found = world.after(lambda: accounts.create({"metadata": {"name": "robot"}}))
    assert found == [("one", ("red", "s", "robot"), "serviceaccount/robot appeared")]


def test_a_controller_of_one_namespace_watches_that_one_and_what_it_reads_elsewhere() -> None:
    def read(obj: Any, ctx: Any) -> Any:
        elsewhere = ctx.read(Secret, ObjectRef.of(Secret, "s", "kube-system"))
        return len(ctx.read_all(Secret)), elsewhere is not None

    world = World(read, namespace="default", declared=True).start()
    assert world.after(lambda: world.put("a")) == [("one", (1, False), "secret/a appeared")]
    other = Api.namespaced(world.admin, Secret, "kube-system")
    assert world.after(lambda: other.create(Secret(name="t"))) == []
    found = world.after(lambda: other.create(Secret(name="s")))
    assert found == [("one", (1, True), "secret/kube-system/s appeared")]
    listed = {one.path.partition("?")[0] for one in world.server.requests if "/secrets" in one.path
              and one.verb in ("list", "watch")}
    assert listed == {f"/api/v1/namespaces/{space}/secrets" for space in ("default", "kube-system")}


@pytest.mark.parametrize("declared", [False, True])
def test_own_writes_are_seen_at_once(declared: bool) -> None:
    def read(obj: Any, ctx: Any) -> Any:
        api = Api.namespaced(ctx.client, Secret, obj.namespace)
        before = x_of(ctx.read(Secret, "s"))
        api.apply({"metadata": {"name": "s", "labels": {"app": "web"}}, "stringData": {"x": "2"}}, field_manager="me")
        inside = x_of(ctx.read(Secret, "s")), len(ctx.read_all(Secret, labels="app=web"))
        api.delete("s")
        gone = ctx.read(Secret, "s"), len(ctx.read_all(Secret, labels="app=web"))
        return before, inside, gone

    runs = []

    def once(obj: Any, ctx: Any) -> Any:
        if not runs:
            runs.append(read(obj, ctx))
        return None

    World(once, declared=declared).start()
    assert runs == [(None, (b"2", 1), (None, 0))]


def test_a_child_that_is_read_and_written_makes_no_loop() -> None:
    def read(obj: Any, ctx: Any) -> Any:
        child = ctx.read(Secret, f"{obj.name}-child")
        made = Secret(name=f"{obj.name}-child", string_data={"x": "1"})
        made.set_owner(obj)
        Api.namespaced(ctx.client, Secret, obj.namespace).apply(made, field_manager="me", force=True)
        return child is not None

    world = World(read).start("one", "two")
    assert len(world.runs) <= 4
    assert world.after(lambda: world.secrets.delete("one-child"), 50)[-1][:2] == ("one", True)
    assert len(world.runs) <= 3


def test_an_object_that_reads_itself_and_its_like_makes_no_loop() -> None:
    def read(obj: Any, ctx: Any) -> Any:
        assert ctx.read(ConfigMap, obj.name).name == obj.name
        other = ctx.read(ConfigMap, {"one": "two", "two": "one"}[obj.name])
        Api.namespaced(ctx.client, ConfigMap, obj.namespace).patch(
            obj.name, Patch.merge({"data": {"seen": other.data["secret"]}}))
        return len(ctx.read_all(ConfigMap, namespace="default"))

    world = World(read).start("one", "two")
    assert 2 <= len(world.runs) <= 12
    runs = world.after(lambda: world.maps.patch("one", Patch.merge({"data": {"secret": "t"}})), 50)
    assert 2 <= len(runs) <= 10
    assert world.maps.get("two").data["seen"] == "t"


def test_two_controllers_that_read_each_others_objects_end() -> None:
    sim = Simulation(5)
    client = sim.client(sim.serve())
    maps, secrets = Api.namespaced(client, ConfigMap, "default"), Api.namespaced(client, Secret, "default")
    runs = []

    def of_maps(obj: ConfigMap, ctx: Any) -> Action:
        other = ctx.read(Secret, obj.name)
        runs.append("map")
        if other is not None:
            maps.patch(obj.name, Patch.merge({"data": {"saw": (other.data or {}).get("n", b"").decode()}}))
        return Action.await_change()

    def of_secrets(obj: Secret, ctx: Any) -> Action:
        other = ctx.read(ConfigMap, obj.name)
        runs.append("secret")
        if other is not None:
            secrets.patch(obj.name, Patch.merge({"stringData": {"n": (other.data or {}).get("n", "")}}))
        return Action.await_change()

    for name in "abc":
        maps.create(ConfigMap(name=name, data={"n": "1"}))
        secrets.create(Secret(name=name))
    sim.start(Controller(maps), of_maps)
    sim.start(Controller(secrets), of_secrets)
    sim.settle(100)
    assert maps.get("a").data["saw"] == "1"
    assert len(runs) < 40
    runs.clear()
    maps.patch("b", Patch.merge({"data": {"n": "2"}}))
    sim.settle(100)
    assert maps.get("b").data["saw"] == "2"
    assert len(runs) < 15
    sim.close()


def test_a_failed_run_only_adds_and_a_terminal_one_waits_for_what_it_read() -> None:
    good = [True]

    def read(obj: Any, ctx: Any) -> Any:
        ctx.read(Secret, "first" if good else "second")
        reasons.append(str(ctx.reason))
        if not good:
            raise TerminalError("planned")

    reasons: list[str] = []
    world = World(read).start()
    good.clear()
    world.after(world.controller.trigger_all)
    assert set(world.reads.look(1)[1][0][1]) == {"secret/first", "secret/second"}
    for name in ("second", "first"):
        reasons.clear()
        world.after(lambda name=name: world.put(name))
        assert reasons == [f"secret/{name} appeared"]
    good.append(True)
    world.after(world.controller.trigger_all)
    assert world.reads.look(1)[1][0][1] == ["secret/first"]


def test_a_cleanup_may_read_and_its_reads_are_dropped_after_it() -> None:
    class Cleans(FinalizingReconciler[ConfigMap]):
        finalizer_name = "example.com/cleanup"

        def apply(self, obj: ConfigMap, ctx: Any) -> Action:
            return Action.await_change()

        def cleanup(self, obj: ConfigMap, ctx: Any) -> Action:
            runs.append(str(ctx.reason))
            return Action.requeue(3600) if ctx.read(Secret, "hold") else Action.await_change()

    runs: list[str] = []
    sim = Simulation(1)
    client = sim.client(sim.serve())
    maps, secrets = Api.namespaced(client, ConfigMap, "default"), Api.namespaced(client, Secret, "default")
    secrets.create(Secret(name="hold"))
    maps.create(ConfigMap(name="a", finalizers=["example.com/other"]))
    controller = sim.start(Controller(maps), Cleans())
    sim.settle(5)
    maps.delete("a")
    sim.settle(5)
    assert controller.assembly.reads.look(5)[0] == 1
    secrets.delete("hold")
    sim.settle(5)
    assert runs[-1] == "secret/hold went"
    assert maps.get("a").finalizers == ("example.com/other",)
    assert controller.assembly.reads.look(5)[0] == 0
    sim.close()


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_the_reads_of_a_run_whose_object_is_deleted_meanwhile_are_dropped(end: str) -> None:
    def read(obj: ConfigMap, ctx: Any) -> Any:
        found = ctx.read(Secret, "s")
        if found is not None:
            ctx.read(Secret, "first read by this run")
            world.maps.delete(obj.name)
            world.controller.assembly.runner.forget(lambda key: key == ("default", obj.name))
            if end == "raises":
                raise ValueError("too late")
        return found

    world = World(read).start()
    world.after(lambda: world.put("s"))
    assert world.reads.look(5)[0] == 0
    assert world.kept == set()
    assert world.after(lambda: world.secrets.delete("s")) == []
    assert not [node for source in world.reads.sources.all() for node in source.shelf.nodes()]


class Restricted:
    """A controller, over sockets, of a user with few rights."""

    def __init__(self, server: ApiServer, rules: list[dict[str, Any]]) -> None:
        admin = server.client()
        self.secrets = Api.namespaced(admin, Secret, "default")
        self.maps = Api.namespaced(admin, ConfigMap, "default")
        roles = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}, *rules]
        server.load([
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "few"},
             "rules": roles},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "few"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "few"},
             "subjects": [{"kind": "User", "name": "few", "apiGroup": "rbac.authorization.k8s.io"}]}])
        self.client = server.client("few")


@pytest.mark.parametrize("declared", [False, True])
def test_with_rights_to_single_names_each_is_watched_by_its_name(declared: bool, caplog: Any) -> None:
    with ApiServer(authorization_mode="RBAC") as server:
        world = Restricted(server, [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s", "t"],
                                     "verbs": ["get", "list", "watch"]}])
        seen: list[Any] = []
        changed = threading.Condition()

        def reconcile(obj: ConfigMap, ctx: Any) -> Action:
            found = x_of(ctx.read(Secret, obj.data["secret"]))
            with changed:
                seen.append((obj.name, found))
                changed.notify_all()
            return Action.await_change()

        def wait_for(what: Any) -> None:
            with changed:
                assert changed.wait_for(lambda: what in seen, 30), (what, seen)

        world.secrets.create(Secret(name="s", data={"x": b"1"}))
        for name in "st":
            world.maps.create(ConfigMap(name=name, data={"secret": name}))
        controller = Controller(Api.namespaced(world.client, ConfigMap, "default"))
        if declared:
            controller.reads(Secret)
        with world.client, controller.start(reconcile) as running:
            running.wait_until_ready(30)
            wait_for(("s", b"1"))
            world.secrets.patch("s", Patch.merge({"stringData": {"x": "2"}}))
            wait_for(("s", b"2"))
            world.secrets.create(Secret(name="t", data={"x": b"3"}))
            wait_for(("t", b"3"))
            assert running.is_ready
            assert len([name for name in running.watch_states if name.startswith("secrets")]) == 2
            world.maps.delete("s")
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_what_must_not_be_watched_is_read_each_time_and_a_warning_names_the_right(caplog: Any) -> None:
    with ApiServer(authorization_mode="RBAC") as server:
        world = Restricted(server, [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])
        seen: list[Any] = []

        def reconcile(obj: ConfigMap, ctx: Any) -> Action:
            seen.append(x_of(ctx.read(Secret, "s")))
            return Action.requeue(0.2)

        world.secrets.create(Secret(name="s", data={"x": b"1"}))
        world.maps.create(ConfigMap(name="one"))
        with world.client, Controller(Api.namespaced(world.client, ConfigMap, "default")).start(reconcile) as running:
            running.wait_until_ready(30)
            world.secrets.patch("s", Patch.merge({"stringData": {"x": "2"}}))
            for _ in range(300):
                if b"2" in seen:
                    break
                threading.Event().wait(0.1)
            assert b"2" in seen
            for _ in range(300):
                if "grant list and watch of secrets" in caplog.text:
                    break
                threading.Event().wait(0.1)
    assert "grant list and watch of secrets" in caplog.text


@pytest.mark.parametrize(("call", "text"), [
    (lambda ctx: ctx.read(Secret, ""), "is empty"),
    (lambda ctx: ctx.read(Secret, ObjectRef.of(ConfigMap, "a", "b")), "is not of the kind secrets"),
    (lambda ctx: ctx.read(Secret, ObjectRef.of(Secret, "a")), "has no namespace"),
    (lambda ctx: ctx.read(Secret, 5), "a name, an ObjectRef or an object"),
    (lambda ctx: ctx.read("Secret", "a"), "neither an ApiResource nor a resource class"),
    (lambda ctx: ctx.read({}, "a"), "neither an ApiResource nor a resource class"),
    (lambda ctx: ctx.read(Api.all(ctx.client, Secret), "a"), "the kind Secret itself is expected, not Api"),
    (lambda ctx: ctx.read(ObjectRef.of(Secret, "a"), "a"), "the kind Secret itself is expected, not ObjectRef"),
    (lambda ctx: Controller(Api.all(ctx.client, ConfigMap)).reads(Api.all(ctx.client, Secret)), "as in reads(Secret)"),
    (lambda ctx: Controller(Api.all(ctx.client, ConfigMap)).reads(Api.namespaces(ctx.client, Secret, ["a", "b"])),
     "as in reads(Secret)"),
    (lambda ctx: ctx.read(Secret, "a", value="."), "value must be a path"),
    (lambda ctx: ctx.read(Secret, "a", value=lambda: 1), "value must be a path"),
    (lambda ctx: ctx.read(Secret, "a", value=7), "value must be a path"),
    (lambda ctx: ctx.read_all(Namespace, namespace="a"), "cluster-scoped"),
    (lambda ctx: ctx.read_all(Secret, labels="a in b"), "label"),
])
def test_what_cannot_be_read_is_refused(call: Any, text: str) -> None:
    errors: list[str] = []

    def read(obj: Any, ctx: Any) -> Any:
        try:
            call(ctx)
        except RequestError as error:
            errors.append(str(error))

    World(read).start()
    assert text in errors[0]


@pytest.mark.parametrize(("path", "expected"), [
    ("data.tls.crt", "1"), (".data.tls.crt", "1"), ("data.tls.crt.more", "2"), ("spec.ports.1.name", "b"),
    ("spec.ports.7.name", ABSENT), ("spec.none", ABSENT), ("spec.null", None), ("data.a.b", "3"),
    ("spec.ports.x", ABSENT),
])
def test_paths(path: str, expected: Any) -> None:
    obj = {"data": {"tls.crt": "1", "tls.crt.more": "2", "a": {"b": "3"}},
           "spec": {"ports": [{"name": "a"}, {"name": "b"}], "null": None}}
    assert value_at(obj, path) is expected or value_at(obj, path) == expected


def test_a_unit_test_says_what_is_stored_and_reads_the_rest_by_its_client() -> None:
    obj, secret = ConfigMap(name="a", namespace="x"), Secret(name="s", namespace="x", labels={"app": "web"})
    ctx = context_for(obj, stored=[secret], kinds=[Pod])
    assert ctx.read(Secret, "s", value="data.x").name == "s"
    assert ctx.read(Secret, "t") is None
    assert [one.name for one in ctx.read_all(Secret, labels="app=web")] == ["s"]
    assert ctx.read_all(Secret, namespace="y") == []
    assert ctx.read(Pod, "p") is None


def test_what_is_read_by_the_context_of_a_run_that_has_ended_is_no_dependency() -> None:
    kept: list[Any] = []
    world = World(lambda obj, ctx: kept.append(ctx)).start()
    assert kept[0].read(Secret, "s") is None
    assert kept[0].read_all(Secret) == []
    assert world.after(lambda: world.put("s")) == []
    assert world.reads.look(1) == (0, [])
    assert [one.name for one in kept[0].read_all(Secret, namespace="default")] == ["s"]


def test_the_log_says_why_a_run_began(caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(lambda obj, ctx: ctx.read(Secret, "s")).start("one", "two")
    caplog.clear()
    world.after(lambda: world.put("s", {"x": "hush"}))
    assert "secret/default/s appeared: triggers" in caplog.text
    assert "(secret/s appeared)" in caplog.text
    assert "hush" not in caplog.text


def test_the_status_page_and_top_show_what_was_read() -> None:
    ran = threading.Event()

    def reconcile(obj: ConfigMap, ctx: Any) -> Action:
        if obj.name == "one":
            ctx.read(Secret, "s")
            ctx.read_all(Secret, labels="app=web")
            ctx.read_all(Secret, namespace="default", labels="app=web")
            ran.set()
        return Action.await_change()

    class Page:
        def controllers(self) -> list[Any]:
            return [running]

        def manager(self) -> None:
            return None

    with ApiServer() as server, server.client() as client:
        Api.namespaced(client, Secret, "default").create(Secret(name="a", labels={"app": "web"}))
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.create(ConfigMap(name="one"))
        with Controller(Api.all(client, ConfigMap)).reads(Secret).start(reconcile) as running:
            assert ran.wait(30)
            running.stop(10)
            state = snapshot(Page(), client.clock, 0, 10, details=False)
    (controller,) = state.controllers
    assert controller.readers == 1
    assert [(row.name, row.reads) for row in controller.reads] == [
        ("default/one", ["secret/s", "1 secrets app=web in all namespaces", "1 secrets app=web"])]
    lines = Screen(160, colours=False).lines(state)
    assert any("reads" in line and "default/one" in line and "secret/s, 1 secrets" in line for line in lines)


def test_a_watch_that_nothing_reads_any_more_ends_though_the_controller_is_idle() -> None:
    def watches() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "type=Opaque" in thread.name]

    def reconcile(obj: ConfigMap, ctx: Any) -> Action:
        if obj.name == "reader":
            ctx.read_all(Secret, fields="type=Opaque")
        return Action.await_change()

    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        for name in ("reader", "other"):
            maps.create(ConfigMap(name=name))
        with Controller(maps).start(reconcile):
            eventually(watches)
            maps.delete("reader")
            eventually(lambda: not watches(), timeout=5)
