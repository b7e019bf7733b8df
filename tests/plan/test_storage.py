"""Plans of Pods with claims: what is read of the cluster's storage, and what a plan says without it."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Controller, Patch
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.plan.stored import uses_claims
from kubectl_runtime.resources import ConfigMap, PersistentVolume, Pod, StatefulSet
from kubectl_runtime.testing import ApiServer
from tests.plan.conftest import World
from tests.plan.test_snapshot import rights

STORAGE = {"persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"}
CLASS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/disks", "metadata": {
    "name": "disks", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}


def database(image: str = "db:1", namespace: str = "default", *, claims: bool = True) -> dict[str, Any]:
    templates = [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]
    meta = {"name": "db", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {
        "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "volumeClaimTemplates": templates if claims else [], "template": {
            "metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}}


def keeper(image: str) -> Any:
    """Sets the image of the StatefulSets, and annotates them with the number of ready Pods."""
    def reconcile(found: StatefulSet, ctx: Any) -> Action:
        obj = found.to_dict()
        ready = {"ready": str((obj.get("status") or {}).get("readyReplicas", 0))}
        containers = [{"name": "c", "image": image}]
        if obj["spec"]["template"]["spec"]["containers"][0]["image"] != image or obj["metadata"].get(
                "annotations") != ready:
            Api.namespaced(ctx.client, StatefulSet, found.namespace).patch(found.name, Patch.strategic({
                "metadata": {"annotations": ready}, "spec": {"template": {"spec": {"containers": containers}}}}))
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.all(client, StatefulSet), name="keeper").bind(reconcile)
    return build


def assert_no_outage(found: Plan) -> None:
    [change] = found.changes
    assert [field.path for field in change.fields] == ["spec.template.spec.containers[c].image"], str(found)
    assert change.follows == ("replaces its 2 Pods", "makes 1 ControllerRevision")
    assert not found.unknown, str(found)


@pytest.fixture
def world() -> Any:
    made = World()
    made.server.load([CLASS, database()])
    made.run(keeper("db:1"), 120)
    yield made
    made.sim.close()


def test_storage_is_read_and_replaced_pods_run_again(world: World) -> None:
    snapshot = Snapshot.read(world.client, keeper("db:1"))
    assert set(snapshot.by_name) >= STORAGE
    assert plan(keeper("db:1"), snapshot).empty
    found = plan(keeper("db:2"), snapshot)
    assert_no_outage(found)
    assert not found.not_simulated


def test_storage_is_not_read_for_pods_without_claims() -> None:
    world = World()
    world.server.load([CLASS, database(claims=False)])
    world.run(keeper("db:1"), 120)
    snapshot = Snapshot.read(world.client, keeper("db:1"))
    assert not STORAGE & set(snapshot.by_name)
    assert_no_outage(found := plan(keeper("db:2"), snapshot))
    assert not found.not_simulated
    world.sim.close()


def test_a_pod_with_a_claim_is_enough() -> None:
    world = World()
    world.server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": {
        "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}}])

    def build(client: Client) -> Any:
        return Controller(Api.all(client, Pod), name="pods").bind(lambda obj, ctx: Action.await_change())
    assert set(Snapshot.read(world.client, build).by_name) >= STORAGE
    world.sim.close()


def test_storage_is_read_for_the_first_set_that_a_program_makes() -> None:
    def build(client: Client) -> Any:
        def reconcile(obj: ConfigMap, ctx: Any) -> Action:
            if obj.name == "first":
                Api.namespaced(ctx.client, StatefulSet, "default").apply(database(), field_manager="me")
            return Action.await_change()
        return Controller(Api.namespaced(client, ConfigMap, "default"), name="maker").bind(reconcile)

    world = World()
    world.server.load([CLASS, {"apiVersion": "v1", "kind": "ConfigMap",
                               "metadata": {"name": "first", "namespace": "default"}}])
    snapshot = Snapshot.read(world.client, build)
    assert set(snapshot.by_name) >= STORAGE
    found = plan(build, snapshot)
    assert [str(change) for change in found.created] == ["create StatefulSet default/db"]
    assert "makes 2 Pods" in found.created[0].follows, str(found)
    world.sim.close()


def test_volumes_of_claims_in_other_namespaces_stay_out_of_the_copy(world: World) -> None:
    world.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
                       database(namespace="other")])
    world.sim.settle(60)
    snapshot = Snapshot.read(world.client, keeper("db:1"), namespaces=["default"])
    assert snapshot.by_name["persistentvolumeclaims"].namespaces == ("default",)
    assert snapshot.by_name["persistentvolumes"].count == 4
    assert_no_outage(found := plan(keeper("db:2"), snapshot))
    assert not found.not_simulated

    def build(client: Client) -> Any:
        return Controller(Api.all(client, PersistentVolume), name="disks").bind(lambda obj, ctx: Action.await_change())
    found = plan(build, Snapshot.read(world.client, build, kinds=(StatefulSet,), namespaces=["default"]))
    assert found.not_simulated == ("2 of 4 PersistentVolumes, whose claims are in namespaces that were not read",)
    assert found.empty


@pytest.mark.parametrize("spec", ["text", {"volumes": [3]}, {"volumes": [{"ephemeral": {}}]}, None])
def test_a_custom_kind_named_pod_uses_no_claims(spec: Any) -> None:
    assert not uses_claims({"apiVersion": "odd.example.com/v1", "kind": "Pod", "spec": spec})
    assert not uses_claims({"apiVersion": "odd.example.com/v1", "kind": "StatefulSet",
                            "spec": {"volumeClaimTemplates": [{}]}})


@pytest.mark.parametrize("allowed", [(), ("persistentvolumeclaims",), ("persistentvolumes", "storageclasses")])
def test_without_the_right_to_read_storage_the_plan_says_so_and_pods_do_not_wait(world: World,
                                                                                 allowed: tuple[str, ...]) -> None:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "planner"}) as server:
        server.implant([{"apiVersion": kind.resource.api_version, "kind": kind.kind, **obj.to_dict()}
                        for kind in Snapshot.read(world.client, keeper("db:1")).kinds
                        for obj in Api.all(world.client, kind.resource).list()])
        server.load(rights("statefulsets", "pods", *allowed, *(
            "namespaces", "resourcequotas", "limitranges", "validatingadmissionpolicies", "customresourcedefinitions",
            "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")))
        with server.client("planner") as client:
            found = plan(keeper("db:2"), Snapshot.read(client, keeper("db:1")))
    assert_no_outage(found)
    [note] = found.not_simulated
    assert note.startswith("storage, so that claims are not bound and Pods do not wait for their claims (the right to "
                           "list persistentvolume")
    assert note.endswith(" is missing)")


def test_a_snapshot_without_storage_predicts_no_outage(world: World) -> None:
    whole = Snapshot.read(world.client, keeper("db:1"))
    kinds = tuple(kind for kind in whole.kinds if kind.resource.full_name not in STORAGE)
    names = {kind.kind for kind in kinds}
    found = plan(keeper("db:2"), replace(whole, kinds=kinds, objects=tuple(
        obj for obj in whole.objects if obj["kind"] in names)))
    assert_no_outage(found)
    [note] = found.not_simulated
    assert "the snapshot does not have persistentvolumeclaims, persistentvolumes, storageclasses" in note
