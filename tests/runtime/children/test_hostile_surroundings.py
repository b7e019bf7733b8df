"""Children among servers that go back in time, webhooks that never agree, threads that race, and texts of others."""
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, Context, OwnWrites, Patch, child_name, ensure_children
from kubectl_runtime.controller import Children
from kubectl_runtime.errors import ManifestError
from kubectl_runtime.resources import ConfigMap, Namespace, Secret, Service
from kubectl_runtime.runtime.children.applied import memory_of
from kubectl_runtime.testing import ApiServer
from tests.runtime.children.world import Land, Site, World


def one(obj: Any, ctx: Context[Any]) -> Children:
    return ctx.ensure(obj, ConfigMap(name="x", data={"a": obj.spec.get("a", "1")}))


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("own_writes", list(OwnWrites))
def test_a_server_that_was_restored_from_a_backup_gets_its_children_again(rewind: bool, own_writes: OwnWrites) -> None:
    played = World(one, ConfigMap, own_writes=own_writes)
    played.make()
    backup = played.server.snapshot()
    for value in ("2", "3", "4"):
        played.api(Site).patch("a", Patch.merge({"spec": {"a": value}}))
        played.settle()
    assert played.api(ConfigMap).get("x").data == {"a": "4"}
    played.server.restore(backup, rewind=rewind)
    played.sim.settle(700)
    played.running.trigger_all()
    played.sim.settle(120)
    assert played.api(ConfigMap).get("x").data == {"a": played.api(Site).get("a").spec.get("a", "1")}


def test_a_stored_text_of_a_secret_is_guarded_as_well() -> None:
    played = World(lambda obj, ctx: ctx.ensure(obj, Secret(name="s", string_data={"k": "ours"})), Secret)
    played.make()
    with played.sent() as sent:
        played.api(Secret).patch("s", Patch.merge({"data": {"k": "dGhlaXJz"}}), field_manager="kubectl")
        played.settle()
    assert sent == ["PATCH s"]
    assert played.api(Secret).get("s").data == {"k": b"ours"}


def test_what_a_webhook_changes_at_each_write_leads_to_no_endless_writes() -> None:
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
              "metadata": {"name": "stamp"}, "spec": {
                  "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources":
                                                          ["configmaps"], "operations": ["CREATE", "UPDATE"]}]},
                  "reinvocationPolicy": "Never", "failurePolicy": "Fail",
                  "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                                 'Object{data: {"a": "webhook"}}'}}]}}
    binding = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
               "metadata": {"name": "stamp"}, "spec": {"policyName": "stamp"}}
    played = World(one, ConfigMap)
    played.server.load([policy, binding])
    with played.sent() as sent:
        played.make()
        played.sim.settle(60)
        played.running.trigger_all()
        played.settle()
    assert len(sent) <= 2, sent
    assert played.last().unchanged


def test_text_is_a_manifest_and_never_the_name_of_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "passwords.yaml"
    secret.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stolen}\n")
    played = World(lambda obj, ctx: ctx.ensure(obj, obj.spec["manifest"]), ConfigMap)
    for name, text in (("a", str(secret)), ("b", "-"), ("c", "/dev/zero")):
        played.make(name, manifest=text)
        assert isinstance(played.errors[name][0], ManifestError)
    assert played.api(ConfigMap).get_opt("stolen") is None


def test_what_a_manifest_asks_for_in_another_namespace_is_refused() -> None:
    played = World(lambda obj, ctx: ctx.ensure(obj, obj.spec["manifest"]), ConfigMap)
    played.make(manifest="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-public}\n")
    assert "labels" in str(played.errors["a"][0]) or "label" in str(played.errors["a"][0])


def test_errors_show_nothing_of_a_secret() -> None:
    played = World(lambda obj, ctx: Children(), Secret)
    site, hidden = played.make(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                                   "stringData": {"k": "hush-hush"}}
    attempts: list[tuple[Any, ...]] = [
        (hidden, hidden), (site, {**hidden, "metadata": {}}), (site, {**hidden, "kind": ""}), (site, hidden, hidden),
        (site, {**hidden, "metadata": {"name": "s", "namespace": "other"}}), (site, [hidden]),
        (site, {**hidden, "stringData": {"k": object(), "l": "hush-hush"}})]
    for arguments in attempts:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, others look at
            ensure_children(played.user, *arguments, field_manager="m")
        assert "hush-hush" not in str(caught.value)
        assert "hush-hush" not in repr(caught.value)


@pytest.mark.parametrize("same_owner", [True, False])
def test_threads_that_ensure_one_name_agree_without_harm(same_owner: bool) -> None:
    with ApiServer() as server, server.client() as client:
        server.load([Site.crd()])
        sites = Api.namespaced(client, Site, "default")
        owners = [sites.create(Site(name=name, spec={})) for name in (["a"] if same_owner else ["a", "b", "c"])]
        ends: list[Any] = []
        barrier = threading.Barrier(6)

        def race(number: int) -> None:
            barrier.wait(20)
            for turn in range(5):
                try:
                    ends.append(ensure_children(client, owners[number % len(owners)], ConfigMap(
                        name=f"x{turn}", data={"a": "1"}), field_manager="m", adopt=not same_owner))
                except Exception as error:
                    ends.append(error)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(ends) == 30
        maps = Api.namespaced(client, ConfigMap, "default")
        for turn in range(5):
            (controller,) = [held for held in maps.get(f"x{turn}").owner_references if held.controller]
            assert controller.name in {owner.name for owner in owners}
        strange = [end for end in ends if not isinstance(end, Children) and type(end).__name__ != "NotOurs"]
        assert not strange, strange
        if same_owner:
            assert all(isinstance(end, Children) for end in ends), ends


def test_an_object_that_was_read_and_changed_is_a_child_like_any_other() -> None:
    def copied(obj: Any, ctx: Context[Any]) -> Children:
        template = Api.namespaced(ctx.client, ConfigMap, obj.namespace).get("template")
        template.metadata.name = f"{obj.name}-copy"
        return ctx.ensure(obj, template)

    played = World(copied, ConfigMap)
    played.api(ConfigMap).create(ConfigMap(name="template", data={"a": "1"}, labels={"l": "1"}))
    played.make()
    assert not played.errors
    assert played.api(ConfigMap).get("a-copy").data == {"a": "1"}
    with played.sent() as sent:
        played.running.trigger_all()
        played.settle()
    assert [each for each in sent if each.startswith("PATCH")] == []


def test_two_thousand_children_of_one_owner_and_all_but_one_pruned() -> None:
    def many(obj: Any, ctx: Context[Any]) -> Children:
        return ctx.ensure(obj, *(ConfigMap(name=child_name(obj, str(n)), data={"n": str(n)})
                                 for n in range(obj.spec["n"])), prune=True)

    played = World(many, ConfigMap)
    played.make(n=200)
    with played.sent() as sent:
        played.api(Site).patch("a", Patch.merge({"spec": {"n": 1}}))
        played.settle(10)
    assert len(sent) == 199
    assert len(memory_of(played.client)) == 200


def test_a_controller_of_the_childrens_kind_and_one_of_other_namespaces_do_not_disturb() -> None:
    """The controller watches two namespaces only; a cluster-scoped owner has a child in a third."""
    def build(made: Any) -> Any:
        return made.owns(Api.namespaces(made.plan().client, ConfigMap, ["default", "kube-public"]))

    played = World(lambda obj, ctx: ctx.ensure(obj, *(ConfigMap(name="x", namespace=space, data={"a": "1"}) for space in
                                                       ("default", "kube-public", "third"))), kind=Land, build=build)
    Api.all(played.user, Namespace).create(Namespace(name="third"))
    Api.all(played.user, Land).create(Land(name="l", spec={}))
    played.settle()
    with played.sent() as sent:
        played.running.trigger_all()
        played.settle()
    assert sent == ["GET x"]
    assert len(played.last("l").unchanged) == 3


def test_a_refused_right_to_list_falls_back_to_what_the_object_shows() -> None:
    """Not allowed to list the past: a stranger that appeared is still as it was."""
    from tests.runtime.children.test_strangers import raced

    def appear(world: World) -> None:
        world.server.faults.on("list", resource="configmaps").status(403)
        world.api(ConfigMap).create(ConfigMap(name="x", data={"b": "2"}), field_manager="kubectl")

    played = raced(appear)
    played.make()
    there = played.api(ConfigMap).get("x")
    assert there.data == {"b": "2"}
    assert there.owner_references == ()


def test_a_server_that_does_not_answer_ends_the_call_at_once() -> None:
    with ApiServer() as server, server.client() as good:
        server.load([Site.crd()])
        site = Api.namespaced(good, Site, "default").create(Site(name="a", spec={}))
    with Client(Config(cluster_url="http://127.0.0.1:9", timeout=2)) as bad:
        with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
            ensure_children(bad, site, *(ConfigMap(name=f"x{n}") for n in range(50)), Service(name="s"),
                            field_manager="m")
        assert type(caught.value).__name__ != "NotOurs"
