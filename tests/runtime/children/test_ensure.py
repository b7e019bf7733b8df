"""`ctx.ensure` makes children and keeps them: what is sent, and what is not."""
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import V1ConfigMap, V1ObjectMeta

from kubectl_runtime import Action, Api, ApiError, Context, Controller, NotOurs, Patch, RequestError, ensure_children
from kubectl_runtime.controller import Children
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, Secret, Service
from tests.runtime.children.world import Land, Site, World


def settings(obj: Any, **data: str) -> ConfigMap:
    return ConfigMap(name=f"{obj.name}-settings", data=data or {"size": str(obj.spec.get("size", 1))})


def three(obj: Any, ctx: Context[Any]) -> Children:
    return ctx.ensure(
        obj, settings(obj),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{obj.name}-key"}, "data": {"k": "djE="}},
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {obj.name}}}\nspec: {{ports: [{{port: 80}}]}}\n")


def test_children_of_each_form_are_made_once_and_owned() -> None:
    world = World(three, ConfigMap, Secret, Service)
    with world.sent() as sent:
        site = world.make()
    assert sent == ["PATCH a-settings", "PATCH a-key", "PATCH a"]
    first, last = world.results["a"][0], world.last()
    assert [ref.name for ref in first.created] == ["a-settings", "a-key", "a"]
    assert [ref.name for ref in last.unchanged] == ["a-settings", "a-key", "a"]
    for kind, name in ((ConfigMap, "a-settings"), (Secret, "a-key"), (Service, "a")):
        (reference,) = world.api(kind).get(name).owner_references
        assert (reference.uid, reference.controller, reference.block_owner_deletion) == (site.uid, True, True)
    assert last.ready
    assert last.waiting_for() == ""


@pytest.mark.parametrize("child", [
    V1ConfigMap(api_version="v1", kind="ConfigMap", metadata=V1ObjectMeta(name="made"), data={"a": "1"}),
    b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"a": "1"}}',
    "a file"])
def test_models_and_manifests_are_children(child: Any, tmp_path: Path) -> None:
    if child == "a file":
        child = tmp_path / "made.yaml"
        child.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata: {a: '1'}\n")
    world = World(lambda obj, ctx: ctx.ensure(obj, child), ConfigMap)
    world.make()
    assert world.api(ConfigMap).get("made").data == {"a": "1"}
    assert [ref.name for ref in world.last().unchanged] == ["made"]


def test_what_does_not_concern_a_child_sends_nothing_and_what_is_wanted_anew_one_apply() -> None:
    world = World(three, ConfigMap, Secret, Service)
    world.make(size=1)
    with world.sent() as sent:
        world.api(Site).patch("a", Patch.merge({"metadata": {"labels": {"x": "1"}}}))
        world.running.trigger_all()
        world.settle()
    assert sent == []
    with world.sent() as sent:
        world.api(Site).patch("a", Patch.merge({"spec": {"size": 2}}))
        world.settle()
    assert sent == ["PATCH a-settings"]
    assert world.api(ConfigMap).get("a-settings").data == {"size": "2"}


def test_a_new_process_sends_one_apply_for_each_child_and_makes_no_version() -> None:
    world = World(three, ConfigMap, Secret, Service)
    world.make()
    before = [world.api(kind).get(name).resource_version
              for kind, name in ((ConfigMap, "a-settings"), (Secret, "a-key"), (Service, "a"))]
    world.sim.kill()
    again = World(three, ConfigMap, Secret, Service, server=world.server, sim=world.sim)
    with again.sent() as sent:
        again.settle()
    assert sent == ["PATCH a-settings", "PATCH a-key", "PATCH a"]
    assert before == [world.api(kind).get(name).resource_version
                      for kind, name in ((ConfigMap, "a-settings"), (Secret, "a-key"), (Service, "a"))]
    assert len(again.last().unchanged) == 3


@pytest.mark.parametrize("owners", [25, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_many_owners_with_three_children_each(owners: int) -> None:
    world = World(three, ConfigMap, Secret, Service)
    world.server.load([{"apiVersion": "children.example.com/v1", "kind": "Site", "spec": {},
                        "metadata": {"name": f"s{n}", "namespace": "default"}} for n in range(owners)])
    with world.sent() as sent:
        world.settle(30)
    assert len(sent) == 3 * owners
    with world.sent() as sent:
        world.running.trigger_all()  # as a resync does
        world.settle(30)
        for n in range(owners):
            world.api(Site).patch(f"s{n}", Patch.merge({"metadata": {"annotations": {"seen": "yes"}}}))
        world.settle(30)
    assert sent == []
    versions = {one.name: one.resource_version for one in world.api(Secret).list()}
    world.sim.kill()
    again = World(three, ConfigMap, Secret, Service, server=world.server, sim=world.sim)
    with again.sent() as sent:
        again.settle(30)
    assert len(sent) == 3 * owners
    assert versions == {one.name: one.resource_version for one in world.api(Secret).list()}


def test_without_a_watch_the_metadata_is_read_first_and_nothing_is_applied_in_vain() -> None:
    world = World(three)
    with world.sent() as sent:
        world.make()
    assert sent == ["GET a-settings", "PATCH a-settings", "GET a-key", "PATCH a-key", "GET a", "PATCH a"]
    with world.sent() as sent:
        world.running.trigger_all()
        world.settle()
    assert sent == ["GET a-settings", "GET a-key", "GET a"]


def test_a_watch_that_selects_is_believed_only_where_it_shows_the_child() -> None:
    def labelled(obj: Any, ctx: Context[Any]) -> Children:
        shown = ConfigMap(name="shown", labels={"app": "x"}, data={"a": "1"})
        return ctx.ensure(obj, shown, ConfigMap(name="hidden", data={"a": "1"}))

    from kubectl_runtime import WatcherConfig

    def build(controller: Controller[Any]) -> Controller[Any]:
        return controller.owns(Api.all(controller.plan().client, ConfigMap),
                               watch=WatcherConfig(label_selector="app=x"))

    world = World(labelled, build=build)
    with world.sent() as sent:
        world.make()
    assert sent[:4] == ["GET shown", "PATCH shown", "GET hidden", "PATCH hidden"]
    with world.sent() as sent:
        world.running.trigger_all()
        world.settle()
    assert sent == ["GET hidden"]
    with world.sent() as sent:
        world.api(ConfigMap).patch("shown", Patch.merge({"metadata": {"labels": {"app": None}}}))
        world.settle()
    assert [one for one in sent if one.startswith("PATCH")] == ["PATCH shown"]
    assert world.api(ConfigMap).get("shown").labels == {"app": "x"}


def test_an_owner_that_is_being_deleted_gets_nothing() -> None:
    world = World(three, ConfigMap, Secret, Service)
    site = Site(name="a", spec={}, finalizers=["example.com/wait"])
    world.api(Site).create(site)
    world.settle()
    world.api(Site).delete("a")
    world.settle()
    with world.sent() as sent:
        world.api(ConfigMap).delete("a-settings")
        world.settle()
    assert sent == []
    assert world.last().owner_is_deleted
    assert "being deleted" in world.last().waiting_for()
    assert not world.last().ready


def test_a_child_that_is_being_deleted_is_waited_for_and_then_made_anew() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj)), ConfigMap)
    world.make()
    maps = world.api(ConfigMap)
    maps.patch("a-settings", Patch.merge({"metadata": {"finalizers": ["example.com/wait"]}}))
    world.settle()
    maps.delete("a-settings")
    with world.sent() as sent:
        world.settle()
        world.api(Site).patch("a", Patch.merge({"spec": {"size": 9}}))
        world.settle()
    assert sent == []
    assert [ref.name for ref in world.last().deleting] == ["a-settings"]
    assert world.last().waiting_for() == "ConfigMap default/a-settings: it is being deleted"
    maps.patch("a-settings", Patch.merge({"metadata": {"finalizers": None}}))
    world.settle()
    assert maps.get("a-settings").data == {"size": "9"}


def test_the_owner_of_children_anywhere_is_cluster_scoped() -> None:
    def in_two(obj: Any, ctx: Context[Any]) -> Children:
        return ctx.ensure(obj, Namespace(name="shop"), *(ConfigMap(name="x", namespace=space, data={"a": "1"})
                                                         for space in ("default", "shop")))

    world = World(in_two, ConfigMap, Namespace, kind=Land)
    Api.all(world.user, Land).create(Land(name="a", spec={}))
    world.settle()
    assert len(world.last().unchanged) == 3
    assert world.api(ConfigMap, "shop").get("x").owner_references[0].kind == "Land"


def deployment(obj: Any) -> Deployment:
    return Deployment(name=obj.name, spec={  # type: ignore[arg-type]
        "replicas": 1, "selector": {"matchLabels": {"app": obj.name}},
        "template": {"metadata": {"labels": {"app": obj.name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}})


def test_workloads_are_ready_by_kubectls_rules() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, deployment(obj), settings(obj)), ConfigMap,
                  build=lambda made: made.owns(Api.all(made.plan().client, Deployment), whole=True))
    world.make()
    assert not world.last().ready
    assert world.last().waiting_for().startswith("Deployment default/a: ")
    ready = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    world.api(Deployment).patch_status("a", Patch.merge({"status": ready}))
    world.settle()
    assert world.last().ready
    assert len(world.last().unchanged) == 2


def test_without_its_status_a_workload_is_not_ready_and_the_text_says_what_to_do() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, deployment(obj)), Deployment)
    world.make()
    assert "whole=True" in world.last().waiting_for()


@pytest.mark.parametrize(("child", "said"), [
    (ConfigMap(name="x", namespace="kube-public"), "labels? that names its owner"),
    (Namespace(name="x"), "finalizer"),
    (ConfigMap(data={"a": "1"}), "no name"),
    ({"kind": "ConfigMap", "metadata": {"name": "x"}}, "apiVersion"),
    ({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "x"}}, "does not serve"),
    (None, "not NoneType|not None"),
    ([ConfigMap(name="x")], "one by one"),
    (ConfigMap, "not "),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}]}},
     "Pod p as its controller")])
def test_what_cannot_be_a_child_is_refused_before_anything_is_sent(child: Any, said: str) -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj), child), ConfigMap)
    with world.sent() as sent:
        world.make()
    assert not [one for one in sent if one.startswith("PATCH")]
    with pytest.raises(Exception, match=said):
        raise world.errors["a"][0]


def test_one_name_twice_and_oneself_are_refused() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj), settings(obj)), ConfigMap)
    world.make()
    assert "twice" in str(world.errors["a"][0])
    world = World(lambda obj, ctx: ctx.ensure(obj, Site(name=obj.name, spec={})))
    world.make()
    assert "its own child" in str(world.errors["a"][0])


def test_what_one_child_is_refused_for_keeps_no_other_from_being_made() -> None:
    def two(obj: Any, ctx: Context[Any]) -> Children:
        return ctx.ensure(obj, Service(name="bad", spec={"ports": [{"port": 99999999}]}),  # type: ignore[arg-type]
                          settings(obj))

    world = World(two, ConfigMap, Service)
    world.make()
    error = world.errors["a"][0]
    assert isinstance(error, ApiError)
    assert error.is_invalid
    assert world.api(ConfigMap).get("a-settings").data == {"size": "1"}


def test_what_another_writer_of_this_process_does_under_our_name_is_mended() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj, a="1")), ConfigMap)
    world.make()
    mine = Api.namespaced(world.client, ConfigMap, "default")
    there = mine.get("a-settings")
    # In the same second, with the same fields: metadata alone cannot show it.
    mine.apply({"metadata": {"name": "a-settings", "ownerReferences": there["metadata"]["ownerReferences"]},
                "data": {"a": "2"}}, field_manager="sites")
    with world.sent() as sent:
        world.settle()
    assert sent == ["PATCH a-settings"]
    assert mine.get("a-settings").data == {"a": "1"}


def test_whole_objects_show_even_a_change_under_our_own_name_in_the_same_second() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj, a="1")),
                  build=lambda made: made.owns(Api.all(made.plan().client, ConfigMap), whole=True))
    world.make()
    theirs = world.api(ConfigMap)
    there = theirs.get("a-settings")
    theirs.apply({"metadata": {"name": "a-settings", "ownerReferences": there["metadata"]["ownerReferences"]},
                  "data": {"a": "2"}}, field_manager="sites", force=True)
    with world.sent() as sent:
        world.settle()
    assert sent == ["PATCH a-settings"]
    assert theirs.get("a-settings").data == {"a": "1"}


def test_normalised_values_and_defaults_are_no_change() -> None:
    def canonical(obj: Any, ctx: Context[Any]) -> Children:
        made = deployment(obj)
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1000m"}}
        return ctx.ensure(obj, made)

    world = World(canonical, build=lambda made: made.owns(Api.all(made.plan().client, Deployment), whole=True))
    world.make()
    with world.sent() as sent:
        world.api(Deployment).patch_status("a", Patch.merge({"status": {"replicas": 1}}))
        world.settle()
        world.api(Deployment).patch("a", Patch.merge({"metadata": {"annotations": {"theirs": "1"}}}))
        world.settle()
    assert sent == []


def test_without_a_controller_one_call_makes_children_too() -> None:
    world = World(three, ConfigMap)
    owner = Api.all(world.user, Namespace).get("default")
    child = ConfigMap(name="x", namespace="default", data={"a": "1"})
    assert len(ensure_children(world.user, owner, child, field_manager="me").created) == 1
    assert len(ensure_children(world.user, owner, child, field_manager="me").unchanged) == 1
    with pytest.raises(RequestError, match="field_manager"):
        ensure_children(world.user, owner, child)
    with pytest.raises(NotOurs, match="x is controlled by Namespace default"):
        ensure_children(world.user, world.make(), ConfigMap(name="x", data={"a": "1"}), field_manager="other")


def test_the_manager_is_the_controllers_name() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj)), ConfigMap, name="my-sites")
    world.make()
    (entry,) = world.api(ConfigMap).get("a-settings").metadata.managed_fields
    assert entry["manager"] == "my-sites"


def test_real_threads_make_the_children_of_many_owners() -> None:
    from kubectl_runtime.testing import ApiServer

    with ApiServer() as server, server.client() as client:
        server.load([Site.crd()])
        for n in range(20):
            Api.namespaced(client, Site, "default").create(Site(name=f"s{n}", spec={}))
        done, seen = threading.Event(), set()

        def reconcile(obj: Site, ctx: Context[None]) -> Action:
            three(obj, ctx)
            seen.add(obj.name)
            if len(seen) == 20:
                done.set()
            return Action.await_change()

        apis = [Api.all(client, kind) for kind in (ConfigMap, Secret, Service)]
        controller = Controller(Api.all(client, Site))
        for api in apis:
            controller.owns(api)
        with controller.start(reconcile):
            assert done.wait(30)
        for kind, name in ((ConfigMap, "-settings"), (Secret, "-key"), (Service, "")):
            names = {one.name for one in Api.namespaced(client, kind, "default").list()}
            assert {f"s{n}{name}" for n in range(20)} <= names


def test_a_client_of_dry_runs_changes_nothing_and_remembers_nothing() -> None:
    world = World(lambda obj, ctx: ctx.ensure(obj, settings(obj)), ConfigMap)
    site = world.make()
    world.sim.kill()
    client = world.sim.client(world.server)
    dry = type(client)(client.config, session=None, clock=world.sim.clock, dry_run=True)
    dry._carriers, dry._exchange, dry._send = client._carriers, client._exchange, client._send
    theirs = world.api(ConfigMap).create(ConfigMap(name="theirs", data={"a": "1"}), field_manager="kubectl")
    versions = {one.name: one.resource_version for one in world.api(ConfigMap).list()}
    with pytest.raises(NotOurs, match="theirs"):
        ensure_children(dry, site, ConfigMap(name="new", data={"a": "1"}), settings(site, size="9"),
                        ConfigMap(name=theirs.name, data={"a": "2"}), field_manager="sites")
    assert versions == {one.name: one.resource_version for one in world.api(ConfigMap).list()}
    asked = len(world.server.requests)
    for _ in range(2):  # what was only tried is tried again
        ensure_children(dry, site, settings(site, size="9"), field_manager="sites")
    assert [one.verb for one in list(world.server.requests)[asked:]].count("patch") == 2


def test_outside_of_runs_the_clients_own_manager_is_taken() -> None:
    world = World(lambda obj, ctx: Children(), ConfigMap)
    site = world.make()
    client = world.sim.client(world.server)
    from msgspec.structs import replace

    client.write_defaults = replace(client.write_defaults, field_manager="scripts")
    ensure_children(client, site, settings(site))
    (entry,) = world.api(ConfigMap).get("a-settings").metadata.managed_fields
    assert entry["manager"] == "scripts"
