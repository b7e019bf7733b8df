"""Nothing of others is overwritten, taken or deleted, and no fight goes on forever."""
from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Api, Context, LeaderElection, NotOurs, Patch, elect, ensure_children
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.controller import Children
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.resources import ConfigMap, Deployment
from kubectl_runtime.runtime.children.applied import memory_of
from kubectl_runtime.runtime.children.ensure import Found, Naming, ensure
from kubectl_runtime.testing import ApiServer
from tests.runtime.children.test_drift import child
from tests.runtime.children.world import Land, Made, Site, World, bare

OURS, THEIRS = {"a": "ours"}, {"a": "theirs"}


def one(obj: Any, ctx: Context[Any], **how: bool) -> Children:
    return ctx.ensure(obj, ConfigMap(name="x", data=OURS), **how)


def world(**options: Any) -> World:
    return World(one, ConfigMap, **options)


def theirs(world: World, **more: Any) -> ConfigMap:
    made: ConfigMap = world.api(ConfigMap).create(ConfigMap(name="x", data=THEIRS, **more), field_manager="kubectl")
    return made


# Objects of others


@pytest.mark.parametrize("make", [
    theirs,
    lambda world: world.api(ConfigMap).apply(ConfigMap(name="x", data=THEIRS), field_manager="helm"),
    lambda world: world.api(ConfigMap).create(ConfigMap(name="x"), field_manager="kubectl"),
    lambda world: world.api(ConfigMap).create(ConfigMap(name="x", data=OURS), field_manager="sites")],
    ids=["made by an update", "applied by another", "empty", "made by an update under our own name"])
@pytest.mark.parametrize("owned", [True, False])
def test_a_strangers_object_is_not_touched_and_named(make: Callable[[World], ConfigMap], owned: bool) -> None:
    played = World(one, *([ConfigMap] if owned else []))
    before = make(played)
    played.settle()
    played.make()
    played.sim.settle(60)
    there = played.api(ConfigMap).get("x")
    assert there.resource_version == before.resource_version
    assert "ConfigMap default/x was made by" in played.refused()
    assert "adopt=True" in played.refused()
    played.api(Site).delete("a")
    played.sim.settle(60)
    assert played.api(ConfigMap).get("x").uid == before.uid
    played.api(ConfigMap).delete("x")


def test_when_the_stranger_goes_the_child_is_made() -> None:
    played = world()
    theirs(played)
    played.settle()
    played.make()
    played.api(ConfigMap).delete("x")
    played.sim.settle(1200)
    assert played.api(ConfigMap).get("x").data == OURS


def test_adopt_takes_what_nothing_controls_and_keeps_what_others_set_beside() -> None:
    played = World(lambda obj, ctx: one(obj, ctx, adopt=True), ConfigMap)
    played.api(ConfigMap).create(ConfigMap(name="x", data={**THEIRS, "b": "2"}), field_manager="kubectl")
    played.settle()
    site = played.make()
    there = played.api(ConfigMap).get("x")
    assert there.data == {"a": "ours", "b": "2"}
    assert there.owner_references[0].uid == site.uid
    assert not played.errors


def test_adopt_does_not_take_what_another_object_controls() -> None:
    played = World(lambda obj, ctx: one(obj, ctx, adopt=True), ConfigMap)
    for name in ("a", "b"):
        played.make(name)
    played.sim.settle(300)
    (winner,) = {"a", "b"} - set(played.errors)
    assert played.api(ConfigMap).get("x").owner_references[0].name == winner


def test_two_owners_that_want_one_name_do_not_fight_and_the_second_follows_the_first() -> None:
    played = world()
    first = played.make("a")
    played.make("b")
    assert "ConfigMap default/x is controlled by Site a" in played.refused("b")
    version = played.api(ConfigMap).get("x").resource_version
    played.sim.settle(600)
    assert played.api(ConfigMap).get("x").resource_version == version
    assert played.api(ConfigMap).get("x").owner_references[0].uid == first.uid
    played.api(Site).delete("a")
    played.sim.settle(2000)
    assert played.api(ConfigMap).get("x").owner_references[0].name == "b"


def test_an_owner_that_was_made_anew_takes_what_its_earlier_self_left_behind() -> None:
    played = world()
    played.make()
    child = played.api(ConfigMap).get("x")
    played.sim.kill()
    played.api(Site).delete("a", propagation_policy="Orphan")
    assert played.api(ConfigMap).get("x").owner_references == ()
    played = World(one, ConfigMap, server=played.server, sim=played.sim)
    played.make()
    there = played.api(ConfigMap).get("x")
    assert there.uid == child.uid
    assert [reference.uid for reference in there.owner_references] == [played.api(Site).get("a").uid]
    played.api(Site).delete("a")
    played.api(Site).create(Site(name="a", spec={}))
    played.sim.settle(600)
    assert [one.uid for one in played.api(ConfigMap).get("x").owner_references] == [played.api(Site).get("a").uid]


# Races


def before_applies(action: Callable[[Call, Send], Answer]) -> Layer:
    """A layer that does `action` in place of sending an apply."""
    def layer(send: Send) -> Send:
        return lambda call: action(call, send) if call.request.verb == "apply" else send(call)
    return layer


def raced(action: Callable[[World], object], *, made: bool = False, run: Made = one) -> World:
    """A world in which `action` happens once, between the controller's look and its first apply; with `made`, of a
    child that was made before, and is edited now."""
    server, sim = bare()
    armed, found = [not made], list[World]()

    def act(call: Call, send: Send) -> Answer:
        if armed and armed.pop():
            action(found[0])
        return send(call)

    found.append(World(run, ConfigMap, server=server, sim=sim, client=sim.client(server).with_layer(
        before_applies(act))))
    if made:
        found[0].make()
        armed[:] = [True]
        found[0].api(ConfigMap).patch("x", Patch.merge({"data": {"a": "edited"}}))
        found[0].settle(60)
    return found[0]


@pytest.mark.parametrize("data", [THEIRS, {"b": "2"}, OURS, {}], ids=["other value", "other key", "same", "empty"])
def test_a_stranger_that_appears_between_look_and_apply_is_as_it_was(data: dict[str, str]) -> None:
    played = raced(lambda world: world.api(ConfigMap).create(ConfigMap(name="x", data=data), field_manager="kubectl"))
    with played.sent() as sent:
        played.make()
        played.settle(60)
    there = played.api(ConfigMap).get("x")
    assert there.data == data
    assert there.owner_references == ()
    assert {entry["manager"] for entry in there.metadata.managed_fields or ()} <= {"kubectl"}
    assert "default/x" in played.refused()
    assert len([each for each in sent if each.startswith("PATCH")]) <= 2
    played.api(Site).delete("a")
    played.settle(60)
    assert played.api(ConfigMap).get("x").uid == there.uid


@pytest.mark.parametrize("data", [THEIRS, {"b": "2"}, OURS, {}], ids=["other value", "other key", "same", "empty"])
def test_adopt_takes_a_stranger_that_appears_between_look_and_apply_in_the_same_run(data: dict[str, str]) -> None:
    played = raced(lambda world: world.api(ConfigMap).create(ConfigMap(name="x", data=data), field_manager="kubectl"),
                   run=lambda obj, ctx: one(obj, ctx, adopt=True))
    site = played.make()
    there = played.api(ConfigMap).get("x")
    assert there.data == {**data, **OURS}
    assert [reference.uid for reference in there.owner_references] == [site.uid]
    assert not played.errors


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("manager", ["sites", "others"])
def test_of_two_owners_that_apply_one_name_at_once_the_second_takes_its_apply_back(adopt: bool, manager: str) -> None:
    """Another replica, or another controller, makes the child for b between a's look and a's apply."""
    def for_b(world: World) -> None:
        made = ConfigMap(name="x", data={"b": "b's"})
        made.set_owner(world.api(Site).get("b"))
        world.api(ConfigMap).apply(made, field_manager=manager)

    played = raced(for_b, run=lambda obj, ctx: Children() if obj.name == "b" else one(obj, ctx, adopt=adopt))
    owner = played.make("b")
    played.make("a")
    played.settle(60)
    there = played.api(ConfigMap).get("x")
    assert there.data == {"b": "b's"}
    assert [reference.uid for reference in there.owner_references] == [owner.uid]
    assert {entry["manager"] for entry in there.metadata.managed_fields or ()} == {manager}
    assert "is controlled by Site b" in played.refused("a")


@pytest.mark.parametrize("data", [THEIRS, OURS, {"b": "2"}])
def test_a_child_that_is_deleted_and_made_by_others_before_the_apply_is_not_overwritten(data: dict[str, str]) -> None:
    def swap(world: World) -> None:
        world.api(ConfigMap).delete("x")
        world.api(ConfigMap).create(ConfigMap(name="x", data=data), field_manager="kubectl")

    played = raced(swap, made=True)
    there = played.api(ConfigMap).get("x")
    assert there.data == data
    assert there.owner_references == ()
    assert "default/x" in played.refused()


def test_a_child_that_is_deleted_before_the_apply_is_made_anew_in_the_same_run() -> None:
    played = raced(lambda world: world.api(ConfigMap).delete("x"), made=True)
    assert played.api(ConfigMap).get("x").data == OURS
    assert not played.errors


def test_a_stranger_that_changes_while_our_apply_is_taken_back_keeps_its_change() -> None:
    server, sim = bare()
    client, number = sim.client(server), [0]
    maps = Api.namespaced(sim.client(server), ConfigMap, "default")

    def meddle(call: Call, send: Send) -> Answer:
        number[0] += 1
        if number[0] == 1:
            maps.create(ConfigMap(name="x", data={"b": "2"}), field_manager="kubectl")
        elif number[0] <= 3:
            maps.patch("x", Patch.merge({"data": {"b": f"changed {number[0]}"}}))
        return send(call)

    played = World(one, ConfigMap, server=server, sim=sim, client=client.with_layer(before_applies(meddle)))
    played.make()
    there = played.api(ConfigMap).get("x")
    assert there.data == {"b": "changed 3"}
    assert there.owner_references == ()
    assert "default/x" in played.refused()


@pytest.mark.parametrize("edited", [False, True], ids=["alone", "others write before it is sent again"])
def test_a_lost_answer_to_the_apply_that_made_the_child_leaves_it_ours(edited: bool) -> None:
    server, sim = bare()
    client, lost = sim.client(server), list[str]()
    maps = Api.namespaced(sim.client(server), ConfigMap, "default")

    def lose(call: Call, send: Send) -> Answer:
        answer = send(call)
        if lost:
            return answer
        lost.append(call.request.path)
        if edited:
            maps.patch("x", Patch.merge({"metadata": {"labels": {"theirs": "1"}}}), field_manager="kubectl")
        raise ConnectionFailed("the answer was lost", Failure(sent=True, permanent=False))

    played = World(one, ConfigMap, server=server, sim=sim, client=client.with_layer(before_applies(lose)))
    site = played.make()
    played.settle(30)
    there = maps.get("x")
    assert lost
    assert there.data == OURS
    assert there.owner_references[0].uid == site.uid
    assert not played.errors


def test_a_child_of_ours_that_no_watch_shows_yet_stays_ours_though_others_have_touched_it() -> None:
    """A new process, before an API server that is behind: the child is there, with other content and another writer."""
    played = world()
    site = played.make()
    played.api(ConfigMap).patch("x", Patch.merge({"data": {"b": "2"}}), field_manager="kubectl")
    played.sim.kill()

    class Behind:
        def find(self, *_: Any) -> Found:
            return Found(None, True, False)

        def owned_by(self, uid: str) -> tuple[Any, ...]:
            return ()

        def kind_of(self, gvk: Any) -> None:
            return None

    fresh = played.sim.client(played.server)
    for data in ({"a": "changed"}, {"a": "again", "c": "3"}):
        found = ensure(fresh, site, [ConfigMap(name="x", data=data)], manager="sites", watched=Behind(),
                       naming=Naming())
        assert not found.refused
        assert played.api(ConfigMap).get("x").data == {**data, "b": "2"}
        assert played.api(ConfigMap).get("x").owner_references[0].uid == site.uid


# Fights


def rival(played: World, value: str = "rival") -> None:
    played.api(ConfigMap).apply({"metadata": {"name": "x"}, "data": {"a": value}}, field_manager="rival", force=True)
    played.settle()


def test_what_another_applier_takes_by_force_is_taken_back_once_and_then_contested(
        caplog: pytest.LogCaptureFixture) -> None:
    played = world()
    played.make()
    with played.sent() as sent, caplog.at_level(logging.WARNING):
        rival(played)
        assert played.api(ConfigMap).get("x").data == OURS
        rival(played)
        rival(played)
        played.sim.settle(3000)
        played.running.trigger_all()
        played.settle()
    assert sent == ["PATCH x"]
    (contested,) = played.last().contested
    assert (contested.name, contested.manager, contested.fields) == ("x", "rival", (".data.a",))
    assert "rival takes the fields .data.a" in caplog.text
    assert not played.last().ready
    assert not played.errors


@pytest.mark.parametrize("own", [False, True], ids=["another manager", "the reconciler itself"])
def test_an_applier_of_the_scale_is_contested_as_well(own: bool) -> None:
    def scaled(obj: Any, ctx: Context[Any]) -> Children:
        found = child(obj, ctx)
        if own and ctx.api(Deployment).get("d").spec.replicas != 7:
            ctx.api(Deployment).apply_scale({"metadata": {"name": "d"}, "spec": {"replicas": 7}}, force=True)
        return found

    played = World(scaled, Deployment)
    with played.sent() as sent:
        played.make()
        for number in range(0 if own else 6):
            played.api(Deployment).apply_scale({"metadata": {"name": "d"}, "spec": {"replicas": 10 + number}},
                                               field_manager="scaler", force=True)
            played.settle()
        played.sim.settle(120)
    assert sent.count("PATCH d") == 2
    (contested,) = played.last().contested
    assert (contested.manager, contested.fields) == ("sites" if own else "scaler", (".spec.replicas",))


def test_a_contest_ends_when_something_else_is_wanted_or_the_other_lets_go() -> None:
    played = World(lambda obj, ctx: ctx.ensure(obj, ConfigMap(name="x", data={"a": obj.spec.get("a", "1")})), ConfigMap)
    played.make()
    rival(played)
    rival(played)
    assert played.last().contested
    played.api(Site).patch("a", Patch.merge({"spec": {"a": "2"}}))
    played.settle()
    assert not played.last().contested
    assert played.api(ConfigMap).get("x").data == {"a": "2"}
    rival(played)
    assert played.last().contested
    played.api(ConfigMap).apply({"metadata": {"name": "x"}, "data": {"b": "mine"}}, field_manager="rival", force=True)
    played.settle()
    assert not played.last().contested
    assert played.api(ConfigMap).get("x").data == {"a": "2", "b": "mine"}


def test_a_field_that_is_taken_once_an_hour_is_taken_back_each_time() -> None:
    played = world()
    played.make()
    with played.sent() as sent:
        for _ in range(3):
            rival(played)
            played.sim.settle(3600)
    assert sent == ["PATCH x"] * 3
    assert played.api(ConfigMap).get("x").data == OURS


def test_updates_are_taken_back_every_time() -> None:
    played = world()
    played.make()
    with played.sent() as sent:
        for number in range(5):
            played.api(ConfigMap).patch("x", Patch.merge({"data": {"a": str(number)}}), field_manager="kubectl-edit")
            played.settle()
    assert sent == ["PATCH x"] * 5
    assert not played.last().contested


def test_two_controllers_of_different_managers_on_one_child_of_one_owner_come_to_rest() -> None:
    played = world()
    second = World(lambda obj, ctx: ctx.ensure(obj, ConfigMap(name="x", data={"a": "second"})), ConfigMap,
                   server=played.server, sim=played.sim, name="second")
    before = len(played.server.requests)
    played.make()
    played.sim.settle(3000)
    writes = [each for each in list(played.server.requests)[before:] if each.method == "PATCH"]
    assert len(writes) <= 5
    assert played.last().contested or second.last().contested
    version = played.api(ConfigMap).get("x").resource_version
    played.sim.settle(7200)
    assert played.api(ConfigMap).get("x").resource_version == version


def test_two_controllers_of_different_managers_for_different_owners_refuse() -> None:
    played = world()
    second = World(lambda obj, ctx: ctx.ensure(obj, ConfigMap(name="x", namespace="default", data={"a": "second"})),
                   ConfigMap, kind=Land, server=played.server, sim=played.sim, name="second")
    played.make()
    Api.all(played.user, Land).create(Land(name="l", spec={}))
    played.sim.settle(100)
    assert "is controlled by Site a" in second.refused("l")
    assert played.api(ConfigMap).get("x").data == OURS
    assert not played.errors


def test_a_lost_lease_or_shard_forgets_what_was_applied() -> None:

    played = world()
    played.make()
    memory = memory_of(played.client)
    assert len(memory) == 1
    memory.forget(lambda key: key == ("default", "b"))
    assert len(memory) == 1
    memory.forget(lambda key: key == ("default", "a"))
    assert len(memory) == 0
    played.running.trigger_all()
    played.settle()
    assert len(memory) == 1


def test_a_lost_leadership_forgets_everything() -> None:
    with ApiServer() as server, server.client() as client:
        server.load([Site.crd()])
        site = Api.namespaced(client, Site, "default").create(Site(name="a", spec={}))
        with elect(client, LeaderElection("x", "default")) as lock:
            assert lock.wait(timeout=20)
            ensure_children(lock.client, site, ConfigMap(name="x", data=OURS), field_manager="sites")
            assert len(memory_of(client)) == 1
        assert len(memory_of(client)) == 0


def test_bodies_bind_a_forced_apply_to_the_uid() -> None:
    played = world()
    played.make()
    uid = played.api(ConfigMap).get("x").uid
    bodies: list[Any] = []
    stop = played.client.on_answer(lambda exchanged: bodies.append(json.loads(exchanged.request.body or b"{}")))
    played.api(ConfigMap).patch("x", Patch.merge({"data": {"a": "2"}}))
    played.settle()
    stop()
    assert [body["metadata"].get("uid") for body in bodies if "metadata" in body] == [uid]


def test_a_strangers_object_with_the_name_and_version_of_a_child_is_none() -> None:
    """A cluster that was made again behind the same address counts its versions from the beginning."""
    played = world()
    site = played.make()
    there = played.api(ConfigMap).get("x").to_dict()
    there["metadata"] |= {"uid": "theirs", "ownerReferences": [], "managedFields": []}
    stranger = decode_object(json.dumps(there).encode(), ConfigMap.api_resource)

    class Shown:
        def find(self, *_: Any) -> Found:
            return Found(stranger, True, True)

        def owned_by(self, uid: str) -> tuple[Any, ...]:
            return ()

        def kind_of(self, gvk: Any) -> None:
            return None

    with pytest.raises(NotOurs, match="ConfigMap default/x"):
        ensure(played.client, site, [ConfigMap(name="x", data=OURS)], manager="sites", watched=Shown(),
               naming=Naming())
