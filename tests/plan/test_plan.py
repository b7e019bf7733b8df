"""What a plan says: causes and what follows, failures, loops, timers, what others own, what is alike."""
from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Context,
    Controller,
    CustomResource,
    Manager,
    Patch,
    Reconciler,
)
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, StatefulSet
from tests.plan import sites
from tests.plan.conftest import World, sites_world

Reconcile = Callable[[Any, Any], Action]


def of(reconcile: Reconcile, kind: Any = ConfigMap, **options: Any) -> Callable[[Client], Any]:
    def build(client: Client) -> Any:
        return Controller(Api.all(client, kind), name="mine", **options).bind(reconcile)
    return build


def planned(reconcile: Reconcile, objects: Any, kind: Any = ConfigMap, *, version: Any = None, **options: Any) -> Plan:
    """A cluster with these objects, read, and a plan of the reconciler on it."""
    world = World()
    world.server.load(objects)
    world.sim.settle(120)
    try:
        return plan(version or of(reconcile, kind), Snapshot.read(world.client, version or of(reconcile, kind)),
                    **options)
    finally:
        world.sim.close()


def maps(*names: str, **data: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
             "data": data or {"a": "b"}} for name in names]


def deployment(replicas: int = 3, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, **spec, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}}


def with_image(image: str, **more: Any) -> Reconcile:
    def reconcile(obj: Any, ctx: Any) -> Action:
        patch = {"spec": {**more, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
        kind = type(obj)
        if obj.to_dict()["spec"]["template"]["spec"]["containers"][0]["image"] != image:
            Api.namespaced(ctx.client, kind, obj.namespace).patch(obj.name, Patch.strategic(patch))
        return Action.await_change()
    return reconcile


@pytest.mark.parametrize(("spec", "words"), [
    ({}, "replaces 3 Pods, one after the other"),
    ({"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}, "replaces 3 Pods, up to 2 at a time"),
    ({"strategy": {"type": "Recreate"}}, "replaces 3 Pods: all stop before the new ones start")])
def test_what_follows_is_folded_under_its_cause(spec: dict[str, Any], words: str) -> None:
    found = planned(with_image("x:2"), [deployment(**spec)], Deployment)
    [change] = found.changes
    assert change.follows[0] == words
    assert [str(one) for one in change.fields] == [
        'spec.template.spec.containers[c].image: "x:1" -> "x:2"   (owned by load)']
    assert "Pod" not in {one.ref.kind for one in found.changes}
    assert '-      - image: x:1' in change.difference or "x:1" in change.difference


def test_what_a_stateful_set_does_follows_from_its_change() -> None:
    stateful = {**deployment(), "kind": "StatefulSet"}
    stateful["spec"]["serviceName"] = "web"
    found = planned(with_image("x:2"), [stateful], StatefulSet)
    assert found.changes[0].follows == ("replaces its 3 Pods", "makes 1 ControllerRevision")
    assert not any("StatefulSet" in one for one in found.not_simulated)


def test_deletions_take_what_is_owned_with_them(world: World) -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.name == "a":
            Api.namespaced(ctx.client, sites.Site, "default").delete("a")
        return Action.await_change()

    found = plan(of(reconcile, sites.Site), Snapshot.read(world.client, of(reconcile, sites.Site), kinds=[
        sites.ConfigMap, sites.Secret, sites.Service, sites.Deployment]))
    assert [str(change) for change in found.changes] == ["delete Site default/a"]
    assert "deletes 2 Pods that it owns" in found.changes[0].follows
    assert "deletes 1 Deployment that it owns" in found.changes[0].follows


def test_a_namespace_that_is_deleted_and_an_object_that_is_kept() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.name == "shop":
            Api.all(ctx.client, Namespace).delete("shop")
        if obj.name == "default":
            Api.namespaced(ctx.client, ConfigMap, "default").delete("kept")
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.all(client, Namespace)).owns(Api.all(client, ConfigMap)).bind(reconcile)

    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "finalizers": ["example.com/x"]}}
    inside = [{**obj, "metadata": {"name": obj["metadata"]["name"], "namespace": "shop"}} for obj in maps("a", "b")]
    found = planned(reconcile, [*inside, kept], version=build)
    text = str(found)
    assert "- Namespace shop" in text
    assert "deletes 3 ConfigMaps in it" in text
    assert "is being deleted, and is kept by example.com/x" in text


def test_runs_that_fail_are_named_with_error_and_line() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.namespace != "default":
            return Action.await_change()
        if obj.name == "bad":
            raise KeyError("size")
        if obj.name == "refused":
            Api.namespaced(ctx.client, ConfigMap, "nowhere").apply({"metadata": {"name": "x"}}, field_manager="m")
        if obj.name == "ending":
            sys.exit(3)
        if obj.name == "passing" and ctx.attempt < 2:
            raise TimeoutError("comes right by itself")
        return Action.await_change()

    found = planned(reconcile, maps("bad", "refused", "passing", "ending"))
    problems = {problem.object: problem for problem in found.failed}
    assert set(problems) == {"ConfigMap default/bad", "ConfigMap default/refused", "ConfigMap default/ending"}
    assert problems["ConfigMap default/ending"].reason == "SystemExit: 3"
    assert problems["ConfigMap default/bad"].reason == "KeyError: 'size'"
    assert "test_plan.py:" in problems["ConfigMap default/bad"].line
    assert 'namespaces "nowhere" not found' in problems["ConfigMap default/refused"].reason
    assert not found.empty
    assert "3 failing" in str(found)


class Ending(Reconciler[ConfigMap]):
    """Does its work where it is not in `reconcile`."""

    def reconcile(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
        if obj.name == "x":
            Api.namespaced(ctx.client, ConfigMap, "default").delete("x")
        return Action.await_change()

    def on_success(self, obj: ConfigMap, action: Action, ctx: Context[Any]) -> None:
        if obj.name == "y":
            Api.namespaced(ctx.client, ConfigMap, "default").apply({"metadata": {"name": "made"}}, field_manager="me")
        if obj.name == "z":
            raise ValueError("after its success")


def test_the_whole_run_is_followed_and_not_only_reconcile() -> None:
    def gone(ref: Any, ctx: Any) -> None:
        raise KeyError(ref.name)

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "default"), name="mine").on_gone(gone).bind(Ending())

    found = planned(lambda obj, ctx: Action.await_change(), maps("x", "y", "z"), version=build)
    assert [str(change) for change in found.changes] == ["delete ConfigMap default/x", "create ConfigMap default/made"]
    assert {problem.object: problem.reason for problem in found.failed} == {
        "ConfigMap default/x": "KeyError: 'x'", "ConfigMap default/z": "ValueError: after its success"}
    assert all("test_plan.py:" in problem.line for problem in found.failed)


@pytest.mark.parametrize("answer", [None, 5, Action])
def test_a_reconciler_that_returns_no_action_fails(answer: Any) -> None:
    found = planned(lambda obj, ctx: answer, maps("x"))
    assert "ConfigMap default/x" in {problem.object for problem in found.failed}
    assert all("return Action.await_change()" in problem.reason for problem in found.failed)


class NumberSpec(msgspec.Struct):
    size: int


class Number(CustomResource, group="numbers.example.com", version="v1", kind="Number"):
    spec: NumberSpec


def test_an_object_that_a_new_version_cannot_read_fails() -> None:
    crd = msgspec.to_builtins(Number.crd())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    text = {"apiVersion": "numbers.example.com/v1", "kind": "Number", "metadata": {"name": "n"}, "spec": {"size": "L"}}
    found = planned(lambda obj, ctx: Action.requeue(obj.spec.size), [crd, text], Number)
    [problem] = found.failed
    assert problem.object == "Number default/n"
    assert "size" in problem.reason


@pytest.mark.parametrize("name", [{"generateName": "g-"}, {}], ids=["generated", "named"])
def test_objects_that_lead_to_more_objects_are_a_loop(name: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.namespace == "default":
            Api.namespaced(ctx.client, ConfigMap, "default").create(
                {"metadata": name or {"name": f"n-{hash(obj.name) & 0xffffffffff:x}"}})
        return Action.await_change()

    monkeypatch.setattr("kubectl_runtime.plan.running.MOST_CREATED", 50)
    [problem] = planned(reconcile, maps("x")).loops
    assert problem.object == "ConfigMap objects"
    assert "are created again and again" in problem.reason
    assert problem.by.startswith("mine, for ConfigMap default/")


def test_a_plan_of_a_program_that_runs_very_often_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.plan.running.MOST_RUNS", 100)
    found = planned(lambda obj, ctx: Action.requeue(1), maps("x"))
    assert found.seconds < 600
    assert any("in which the program ran" in one for one in found.not_simulated)
    assert found.empty
    found = planned(lambda obj, ctx: Action.requeue(1), maps("x"), until=300)
    assert found.seconds >= 300
    assert not found.not_simulated


def flipping(to: str) -> Reconcile:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.name == "x" and (obj.data or {}).get("owner") != to:
            Api.namespaced(ctx.client, ConfigMap, "default").patch("x", Patch.merge({"data": {"owner": to}}))
        return Action.await_change()
    return reconcile


def test_two_controllers_that_take_a_field_from_each_other_are_a_loop() -> None:
    def build(client: Client) -> Any:
        manager = Manager(client, serve=None)
        for name in ("one", "other"):
            manager.add(Controller(Api.all(client, ConfigMap), name=name), flipping(name))
        return manager

    found = planned(flipping("x"), maps("x"), version=build)
    [problem] = found.loops
    assert problem.object == "ConfigMap default/x"
    assert "one, for ConfigMap default/x" in problem.by
    assert "other, for ConfigMap default/x" in problem.by
    assert not found.empty


def test_a_slow_loop_is_one_too_and_a_heartbeat_is_not() -> None:
    def counts(obj: Any, ctx: Any) -> Action:
        if obj.name == "x":
            number = int((obj.data or {}).get("count", "0"))
            more = Patch.merge({"data": {"count": str(number + 1)}})
            Api.namespaced(ctx.client, ConfigMap, "default").patch("x", more)
            return Action.requeue(60)
        return Action.await_change()

    [problem] = planned(counts, maps("x"), until=900).loops
    assert problem.object == "ConfigMap default/x"

    def beats(site: Any, ctx: Any) -> Action:
        now = ctx.client.clock.now().isoformat()
        Api.namespaced(ctx.client, sites.Site, "default").patch_status("s", Patch.merge({"status": {"phase": now}}))
        return Action.requeue(60)

    site = sites.Site(name="s", namespace="default", spec=sites.Spec(),
                      status=sites.Status(phase="2026-01-01T00:00:00Z"))
    found = planned(beats, [sites.Site.crd(), site], sites.Site)
    assert found.empty, str(found)
    assert found.seconds <= 1300


def test_timers_come_in_their_time() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        api = Api.namespaced(ctx.client, ConfigMap, "default")
        if obj.name != "x":
            return Action.await_change()
        if ctx.client.clock.now() < started + timedelta(minutes=50):
            return Action.requeue(timedelta(minutes=55))
        api.apply({"metadata": {"name": "late"}}, field_manager="me")
        return Action.await_change()

    world = World()
    world.server.load(maps("x"))
    started = world.client.clock.now()
    snapshot = Snapshot.read(world.client, of(reconcile))
    assert plan(of(reconcile), snapshot).empty
    [change] = plan(of(reconcile), snapshot, until=timedelta(hours=1)).created
    assert change.at == pytest.approx(3300, abs=1)
    assert plan(of(reconcile), snapshot, until=60).empty
    world.sim.close()


def test_a_hundred_equal_changes_are_one_screen() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.namespace == "default" and "seen" not in (obj.data or {}):
            Api.namespaced(ctx.client, ConfigMap, "default").patch(obj.name, Patch.merge({"data": {"seen": obj.name}}))
        return Action.await_change()

    found = planned(reconcile, maps(*(f"map-{number:03}" for number in range(100))))
    assert len(found.changed) == 101  # and the cluster's own
    assert len(str(found).splitlines()) < 24
    assert "    and 98 alike" in str(found)
    assert len(found.to_dict()["changes"]) == 101
    assert "and 98 alike" in found.to_html()


def test_many_equal_failures_are_one_screen() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        raise ValueError(f"cannot do {obj.name}")

    found = planned(reconcile, maps(*(f"map-{number:03}" for number in range(30))), until=5)
    assert len(found.failed) >= 30
    assert len(str(found).splitlines()) < 14
    assert "alike" in str(found)


def test_fields_of_other_managers_are_said() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.name == "x":
            Api.namespaced(ctx.client, ConfigMap, "default").apply(
                {"metadata": {"name": "x"}, "data": {"theirs": "mine"}}, field_manager="me", force=True)
        return Action.await_change()

    world = World()
    Api.namespaced(world.client, ConfigMap, "default").apply(
        {"metadata": {"name": "x"}, "data": {"theirs": "1"}}, field_manager="helm")
    found = plan(of(reconcile), Snapshot.read(world.client, of(reconcile)))
    assert found.changed[0].fields[0].owner == "helm"
    world.sim.close()


def test_manifests_that_come_with_it_are_applied_first(running: Snapshot) -> None:
    more = sites.Site(name="c", namespace="default", spec=sites.Spec())
    found = plan(sites.RUNNING.build, running, change=[more])
    assert (str(found.created[0]), found.created[0].by) == ("create Site default/c", "change")
    assert len(found.created) == 5
    refused = plan(sites.RUNNING.build, running, change=[{**more.to_dict(), "apiVersion": "plan.example.com/v1",
                                                          "kind": "Site", "spec": {"replicas": "many"}}])
    assert "is refused" in refused.failed[0].reason
    crd = sites.NarrowSite.crd()
    assert "takes away" in str(plan(sites.RUNNING.build, running, change=[crd]).definitions)


def test_a_stored_version_that_goes_is_the_first_line(running: Snapshot) -> None:
    crd = sites.NewSite.crd()  # v2 alone, while objects are stored as v1
    found = plan(sites.RUNNING.build, running, change=[crd])
    first = str(found).splitlines()[:3]
    assert first[0] == "definitions:"
    assert any("stored version" in line or "objects are stored in it" in line for line in first)
    assert any("is refused" in str(problem) for problem in found.definitions)


def test_it_is_the_same_each_time_and_leaves_its_snapshot_alone(running: Snapshot) -> None:
    before = json.dumps(running.objects)
    one, other = (plan(sites.VERSIONS["template"].build, running, seed=seed) for seed in (1, 2))
    assert {str(change) for change in one.changes} == {str(change) for change in other.changes}
    assert str(one) == str(plan(sites.VERSIONS["template"].build, running, seed=1))
    assert json.dumps(running.objects) == before


def test_what_build_must_return(world: World) -> None:
    snapshot = Snapshot.read(world.client, sites.RUNNING.build)
    with pytest.raises(TypeError, match="has to return"):
        plan(lambda client: 3, snapshot)
    with pytest.raises(ZeroDivisionError):
        plan(lambda client: 1 / 0, snapshot)
    with pytest.raises(ValueError, match="client"):
        plan(lambda client: sites.RUNNING.build(world.client), snapshot)


def test_an_empty_cluster_and_a_program_of_a_new_kind() -> None:
    world = World()
    found = plan(sites.RUNNING.build, Snapshot.read(world.client, sites.RUNNING.build))
    assert [str(change) for change in found.changes] == ["create CustomResourceDefinition sites.plan.example.com"]
    found = plan(sites.RUNNING.build, Snapshot.read(world.client, sites.RUNNING.build),
                 change=[sites.Site(name="c", namespace="default", spec=sites.Spec())])
    assert len(found.created) == 6
    assert not found.unknown, str(found)
    world.sim.close()


def test_a_controller_that_would_not_begin_is_no_empty_plan() -> None:
    gadgets = ApiResource("elsewhere.example.com", "v1", "Gadget", "gadgets")

    def build(client: Client) -> Any:
        return Controller(Api.all(client, ConfigMap), name="mine").owns(Api.all(client, gadgets)).bind(
            lambda obj, ctx: Action.await_change())

    found = planned(lambda obj, ctx: Action.await_change(), maps("x"), version=build)
    assert [str(problem) for problem in found.failed] == [
        "controller mine: does not begin: the cluster does not serve gadgets.elsewhere.example.com in "
        "elsewhere.example.com/v1"]


def test_html_escapes_what_it_shows() -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        if obj.name == "x":
            Api.namespaced(ctx.client, ConfigMap, "default").patch("x", Patch.merge({"data": {"a": "<script>\x1b[2J"}}))
        return Action.await_change()

    found = planned(reconcile, maps("x"))
    assert "<script>" not in found.to_html()
    assert "\x1b" not in str(found)


def test_sites_world_is_what_the_tests_take_it_for() -> None:
    made = sites_world()
    assert len(Api.all(made.client, sites.Site).list().items) == 2
    made.sim.close()
