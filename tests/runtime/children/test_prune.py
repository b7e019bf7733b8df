"""`prune=True` deletes what is no longer wanted, and nothing else."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime import Action, Api, Context, Controller, NotOurs, Patch, RequestError, owner_of
from kubectl_runtime.controller import Children
from kubectl_runtime.resources import ConfigMap, Job, Namespace, Secret
from kubectl_runtime.testing import ApiServer, eventually
from tests.runtime.children.world import Land, Site, World, bare


def pages(obj: Any, ctx: Context[Any], *, prune: bool = True) -> Children:
    return ctx.ensure(obj, *(ConfigMap(name=name, data={"a": "1"}) for name in obj.spec.get("pages", [])), prune=prune)


def world(*owned: Any, made: Any = pages, **options: Any) -> World:
    return World(made, *(owned or (ConfigMap,)), **options)


def want(played: World, *names: str, site: str = "a") -> None:
    played.api(Site).patch(site, Patch.merge({"spec": {"pages": list(names)}}))
    played.settle()


def names(played: World, kind: Any = ConfigMap, namespace: str = "default") -> set[str]:
    return {one.name for one in played.api(kind, namespace).list() if not one.name.startswith("kube-")}


def test_what_is_no_longer_named_is_deleted_by_one_request() -> None:
    played = world()
    played.make(pages=["x", "y", "z"])
    assert names(played) == {"x", "y", "z"}
    with played.sent() as sent:
        want(played, "y")
    assert sorted(sent) == ["DELETE x", "DELETE z"]
    assert names(played) == {"y"}
    assert {ref.name for found in played.results["a"] for ref in found.pruned} == {"x", "z"}
    with played.sent() as sent:
        want(played)
    assert sent == ["DELETE y"]


def test_children_of_a_run_that_raised_or_returned_early_stay() -> None:
    def some(obj: Any, ctx: Context[Any]) -> Children:
        if obj.spec.get("mode") == "early":
            return Children()
        if obj.spec.get("mode") == "raises":
            ctx.ensure(obj, ConfigMap(name="x", data={"a": "1"}))
            raise ValueError("after the first")
        return pages(obj, ctx)

    played = world(made=some)
    played.make(pages=["x", "y"])
    for mode in ("early", "raises"):
        played.api(Site).patch("a", Patch.merge({"spec": {"mode": mode, "pages": []}}))
        played.settle(30)
        assert names(played) == {"x", "y"}


def test_a_child_that_fails_or_is_refused_keeps_the_others_from_being_pruned() -> None:
    played = world()
    played.make(pages=["x", "y"])
    played.api(ConfigMap).create(ConfigMap(name="theirs", data={"a": "2"}))
    want(played, "theirs")
    assert isinstance(played.errors["a"][-1], NotOurs)
    assert names(played) == {"x", "y", "theirs"}
    want(played, "Not A Name")
    assert names(played) == {"x", "y", "theirs"}


def test_what_user_code_created_is_never_pruned_nor_what_others_apply_or_own_beside() -> None:
    def with_a_job(obj: Any, ctx: Context[Any]) -> Children:
        jobs = Api.namespaced(ctx.client, Job, obj.namespace)
        if jobs.get_opt(f"{obj.name}-run") is None:
            job = Job(name=f"{obj.name}-run", spec={  # type: ignore[arg-type]
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
            job.set_owner(obj)
            jobs.create(job, field_manager="sites")
        return pages(obj, ctx)

    played = world(ConfigMap, Job, made=with_a_job)
    played.make(pages=["x", "y", "z"])
    played.api(ConfigMap).apply({"metadata": {"name": "x", "labels": {"l": "1"}}}, field_manager="helm")
    played.api(ConfigMap).patch("y", Patch.merge({"metadata": {"labels": {"l": "1"}}}), field_manager="kubectl-edit")
    other = ConfigMap(name="w", data={"a": "1"})
    other.set_owner(played.api(Site).get("a"), controller=False)
    played.api(ConfigMap).apply(other, field_manager="sites")
    want(played)
    assert names(played, Job) == {"a-run"}
    assert names(played) == {"x", "w"}


def test_an_applied_status_of_another_controller_does_not_keep_a_child() -> None:
    def two(obj: Any, ctx: Context[Any]) -> Children:
        if obj.name != "a":
            return Children()
        return ctx.ensure(obj, *(Site(name=name, spec={"from": "a"}) for name in obj.spec.get("pages", [])), prune=True)

    played = world(Site, made=two)
    played.make(pages=["s1", "s2"])
    assert names(played, Site) == {"a", "s1", "s2"}
    want(played, "s1")
    assert names(played, Site) == {"a", "s1"}


def test_a_kind_that_the_controller_does_not_own_is_not_pruned_and_is_logged_once(
        caplog: pytest.LogCaptureFixture) -> None:
    played = world(Secret, made=lambda obj, ctx: ctx.ensure(
        obj, Secret(name="s"), *(ConfigMap(name=name, data={"a": "1"}) for name in obj.spec["pages"]), prune=True))
    played.make(pages=["x", "y"])
    played.make("b", pages=["z"])
    want(played, "x")
    assert names(played) == {"x", "y", "z"}
    assert [record.getMessage() for record in caplog.records if "prune" in record.getMessage()] == [
        "prune never deletes configmaps: no .owns(...) of the controller watches the kind"]


def test_a_kind_that_is_not_owned_is_not_logged_without_prune(caplog: pytest.LogCaptureFixture) -> None:
    played = world(Secret, made=lambda obj, ctx: pages(obj, ctx, prune=False))
    played.make(pages=["x"])
    assert names(played) == {"x"}
    assert "prune" not in caplog.text


def test_watching_alone_is_not_owning() -> None:
    played = World(pages, build=lambda made: made.watches(Api.all(made.plan().client, ConfigMap), owner_of(Site)))
    played.make(pages=["x", "y"])
    want(played, "x")
    assert names(played) == {"x", "y"}
    played.api(ConfigMap).delete("x")  # and the mapper leads to the owner
    played.settle()
    assert names(played) == {"x", "y"}


def test_each_owner_prunes_its_own() -> None:
    played = world()
    played.make("a", pages=["a1", "a2"])
    played.make("b", pages=["b1", "b2"])
    want(played, "a2")
    assert names(played) == {"a2", "b1", "b2"}


def test_a_name_that_moves_from_one_owner_to_another() -> None:
    played = world()
    played.make("a", pages=["x", "y"])
    played.make("b", pages=[])
    want(played, "y", site="b")
    assert "is controlled by Site a" in played.refused("b")
    want(played, "x", site="a")
    played.sim.settle(1200)
    assert names(played) == {"x", "y"}
    assert {one.name: one.owner_references[0].name for one in played.api(ConfigMap).list() if one.name in "xy"} == {
        "x": "a", "y": "b"}
    want(played, "x", site="a")
    want(played, site="b")
    assert names(played) == {"x"}


def test_pruning_reaches_all_namespaces_of_a_cluster_scoped_owner() -> None:
    def spread(obj: Any, ctx: Context[Any]) -> Children:
        return ctx.ensure(obj, *(ConfigMap(name="x", namespace=space, data={"a": "1"})
                                 for space in obj.spec["pages"]), prune=True)

    played = World(spread, ConfigMap, kind=Land)
    for name in ("s1", "s2"):
        Api.all(played.user, Namespace).create(Namespace(name=name))
    lands = Api.all(played.user, Land)
    lands.create(Land(name="a", spec={"pages": ["s1", "s2"]}))
    played.settle()
    assert len(played.last().unchanged) == 2
    lands.patch("a", Patch.merge({"spec": {"pages": ["s2"]}}))
    played.settle()
    assert names(played, namespace="s1") == set()
    assert names(played, namespace="s2") == {"x"}


def two_calls(first: dict[str, Any], second: dict[str, Any]) -> Any:
    def run(obj: Any, ctx: Context[Any]) -> Children:
        ctx.ensure(obj, *(ConfigMap(name=name, data={"a": "1"}) for name in first["names"]), prune=first["prune"])
        return ctx.ensure(obj, *(ConfigMap(name=name, data={"a": "1"}) for name in second["names"]),
                          prune=second["prune"])
    return run


def test_two_calls_in_one_run() -> None:
    played = world(made=two_calls({"names": ["x"], "prune": False}, {"names": ["y"], "prune": True}))
    with played.sent() as sent:
        played.make()
        played.running.trigger_all()
        played.settle()
    assert sent == ["PATCH x", "PATCH y"]
    assert names(played) == {"x", "y"}


@pytest.mark.parametrize(("second", "said"), [
    ({"names": ["y"], "prune": True}, "prune=True.*called twice"), ({"names": [], "prune": True}, "called twice"),
    ({"names": ["y"], "prune": False}, "an earlier ensure.* did not name ConfigMap")])
def test_a_call_after_one_that_named_all_is_refused_if_it_names_more(second: dict[str, Any], said: str) -> None:
    played = world(made=two_calls({"names": ["x"], "prune": True}, second))
    played.make()
    played.settle(60)
    with pytest.raises(RequestError, match=said):
        raise played.errors["a"][0]
    assert names(played) == {"x"}


def test_a_call_after_it_that_names_the_same_is_fine() -> None:
    played = world(made=two_calls({"names": ["x"], "prune": True}, {"names": ["x"], "prune": False}))
    played.make()
    assert not played.errors


def test_a_list_that_is_not_complete_prunes_nothing_and_its_completion_does() -> None:
    """A kind that is owned from the middle of the program on, and whose list does not come for a while."""
    with ApiServer() as server, server.client() as client:
        server.load([Site.crd()])
        sites, maps = (Api.namespaced(client, kind, "default") for kind in (Site, ConfigMap))
        sites.create(Site(name="a", spec={"pages": ["x", "y"]}))
        found: list[Children] = []

        def reconcile(obj: Site, ctx: Context[None]) -> Action:
            found.append(pages(obj, ctx))
            return Action.await_change()

        controller = Controller(Api.all(client, Site), name="sites")
        with controller.start(reconcile) as running:
            eventually(lambda: len(names_of(maps)), until=lambda count: count == 2)
            refused = server.faults.on("list", "/api/v1/configmaps").status(500)
            controller.owns(Api.all(client, ConfigMap))
            sites.patch("a", Patch.merge({"spec": {"pages": ["x"]}}))
            eventually(lambda: [ref.name for ref in found[-1].unchanged], until=lambda left: left == ["x"])
            running.trigger_all()
            assert names_of(maps) == {"x", "y"}
            refused.remove()
            eventually(lambda: names_of(maps), until=lambda left: left == {"x"}, timeout=40)


def names_of(maps: Any) -> set[str]:
    return {one.name for one in maps.list() if not one.name.startswith("kube-")}


def test_an_owner_that_is_being_deleted_prunes_nothing() -> None:
    played = world()
    played.api(Site).create(Site(name="a", spec={"pages": ["x"]}, finalizers=["example.com/wait"]))
    played.settle()
    played.api(Site).delete("a")
    want(played)
    assert names(played) == {"x"}


def test_a_child_that_another_one_made_anew_is_not_deleted() -> None:
    """The delete is bound to the uid that was seen."""
    played = world()
    played.make(pages=["x"])
    bodies: list[bytes] = []
    uid = played.api(ConfigMap).get("x").uid
    stop = played.client.on_answer(lambda exchanged: bodies.append(exchanged.request.body or b"")
                                   if exchanged.request.method == "DELETE" else None)
    want(played)
    stop()
    assert uid.encode() in bodies[0]
    assert b"Background" in bodies[0]


def released(maps: Api[Any]) -> None:
    maps.patch("x", Patch.merge({"metadata": {"ownerReferences": None}}), field_manager="kubectl")


def given_away(maps: Api[Any]) -> None:
    uid = Api.all(maps.client, Namespace).get("default").uid
    maps.patch("x", Patch.merge({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid, "controller": True}]}}))


def applied_beside(maps: Api[Any]) -> None:
    maps.apply({"metadata": {"name": "x"}, "data": {"b": "1"}}, field_manager="helm")


def made_anew(maps: Api[Any]) -> None:
    maps.delete("x")
    maps.create(ConfigMap(name="x", data={"a": "theirs"}), field_manager="kubectl")


def changed(maps: Api[Any]) -> None:
    maps.patch("x", Patch.merge({"metadata": {"annotations": {"seen": "yes"}}}))


@pytest.mark.parametrize(("meanwhile", "stays"), [
    (released, True), (given_away, True), (applied_beside, True), (made_anew, True), (changed, False)])
def test_a_child_that_changed_hands_right_before_it_would_be_deleted_stays(meanwhile: Any, stays: bool) -> None:
    server, sim = bare()
    armed, found = list[bool](), list[World]()

    def layer(send: Any) -> Any:
        def through(call: Any) -> Any:
            if call.request.verb == "delete" and armed and armed.pop():
                meanwhile(found[0].api(ConfigMap))
            return send(call)
        return through

    found.append(World(pages, ConfigMap, server=server, sim=sim, client=sim.client(server).with_layer(layer)))
    played = found[0]
    played.make(pages=["x"])
    armed.append(True)
    want(played)
    played.settle(30)
    assert not armed
    assert names(played) == ({"x"} if stays else set())
    assert not played.errors


def test_a_child_that_was_made_again_under_its_name_is_left_to_the_next_call() -> None:
    """By another replica, say: what it is for is not known until this one has seen it."""
    server, sim = bare()
    armed, found = list[bool](), list[World]()

    def layer(send: Any) -> Any:
        def through(call: Any) -> Any:
            if call.request.verb == "delete" and armed and armed.pop():
                maps = found[0].api(ConfigMap)
                again = ConfigMap(name="x", data={"a": "2"})
                again.set_owner(found[0].api(Site).get("a"))
                maps.delete("x")
                maps.apply(again, field_manager="sites")
            return send(call)
        return through

    found.append(World(pages, ConfigMap, server=server, sim=sim, client=sim.client(server).with_layer(layer)))
    played = found[0]
    played.make(pages=["x"])
    armed.append(True)
    before = len(played.results["a"])
    want(played)
    first, *later = played.results["a"][before:]
    assert not first.pruned
    assert [ref.name for one in later for ref in one.pruned] == ["x"]
    assert names(played) == set()


def test_a_call_for_another_owner_may_follow_one_that_named_all() -> None:
    def both(obj: Any, ctx: Context[Any]) -> Children:
        if obj.name == "b":
            return Children()
        other = ctx.store(Site).get("b", "default")
        assert other is not None
        found = ctx.ensure(obj, ConfigMap(name="x", data={"a": "1"}), prune=True)
        ctx.ensure(other, ConfigMap(name="y", data={"a": "1"}))
        return found

    played = world(made=both)
    other = played.make("b")
    played.make("a")
    assert not played.errors
    assert names(played) == {"x", "y"}
    assert played.api(ConfigMap).get("y").owner_references[0].uid == other.uid
