"""Objects as a real server stores them lead to no change: recordings of a kube-apiserver, and what clusters do to them.
"""
from __future__ import annotations

import gzip
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Action, Api, ApiResource, Client, Controller, Patch, PatchParams
from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.kinds import Scope
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.plan.stored import ReadKind
from kubectl_runtime.resources import ConfigMap
from tests.examples.programs import ROOT
from tests.plan import sites
from tests.plan.conftest import World, sites_world

GOLDEN = ROOT / "tests" / "apiserver" / "golden"
TYPES = {(kind.group, kind.version, kind.kind): kind for kind in builtin_types()}
LEFT = {"Event", "Lease", "Namespace", "CustomResourceDefinition", "Scale", "Node", "Eviction", "TokenReview"}
AT = datetime(2026, 5, 1, tzinfo=UTC)


def filled(value: Any, place: str) -> Any:
    """A recording without its placeholders."""
    if isinstance(value, dict):
        return {key: filled(part, place) for key, part in value.items()}
    if isinstance(value, list):
        return [filled(part, place) for part in value]
    if not isinstance(value, str):
        return value
    if value.startswith("$uid"):
        return str(uuid.UUID(bytes=hashlib.md5(f"{place}{value}".encode(), usedforsecurity=False).digest()))
    if value.startswith("$rv"):
        return str(1000 + int(value[3:] or 0))
    return "2025-01-01T00:00:00Z" if value.startswith("$time") else value.replace("{{ns}}", place).replace(
        "{{id}}", place)


def recorded() -> Iterator[tuple[dict[str, Any], dict[str, Any], str, bool]]:
    """What was sent, what a real server answered, by which manager, and whether it was an apply."""
    number = 0
    for file in sorted(GOLDEN.glob("*/*.json")):
        for vector in json.loads(file.read_text()).get("vectors", ()):
            for step in [*vector.get("given", ()), *vector.get("steps", ())]:
                expect, sent, query = step.get("expect"), step.get("body"), step.get("query") or {}
                answer = expect.get("body") if isinstance(expect, dict) else None
                if not isinstance(answer, dict) or not isinstance(sent, dict) or "dryRun" in query or isinstance(
                        query, str):
                    continue
                meta = answer.get("metadata") if isinstance(answer.get("metadata"), dict) else {}
                applied = step.get("method") == "PATCH" and "apply" in str(step.get("headers"))
                if not (applied or step.get("method") == "POST") or "uid" not in dict(meta):
                    continue
                number += 1
                place = f"g{number}"
                text = json.dumps([filled(sent, place), filled(answer, place)])
                if "$" in text or "{{" in text or "deletionTimestamp" in text:
                    continue
                given, stored = json.loads(text)
                group, _, version = str(stored.get("apiVersion")).rpartition("/")
                kind = TYPES.get((group, version, str(stored.get("kind"))))
                if kind is None or stored["kind"] in LEFT or "/status" in step["path"] or (
                        "generateName" in stored["metadata"]):
                    continue
                yield given, stored, query.get("fieldManager") or "golden", applied


def snapshot_of(objects: list[dict[str, Any]]) -> Snapshot:
    kinds: dict[str, ReadKind] = {}
    for obj in objects:
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = TYPES[group, version, obj["kind"]]
        kinds[f"{kind.plural}.{group}"] = ReadKind(group, version, kind.kind, kind.plural, kind.namespaced, None, 1)
    return Snapshot(tuple(objects), tuple(kinds.values()), AT)


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_recorded_objects_that_are_applied_once_more_do_not_change(every: int) -> None:
    """The objects that a real server answered to a create or an apply, under their own managers and bodies."""
    found = list(recorded())[::every]
    trigger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "trigger", "namespace": "default", "uid": "t", "resourceVersion": "5"}}
    objects: dict[tuple[str, str, str], dict[str, Any]] = {("ConfigMap", "default", "trigger"): trigger}
    bodies: list[tuple[dict[str, Any], str]] = []
    for sent, stored, manager, _ in found:
        key = stored["kind"], stored["metadata"].get("namespace", ""), stored["metadata"]["name"]
        if key in objects:
            continue
        objects[key] = stored
        body = {**sent, "apiVersion": stored["apiVersion"], "kind": stored["kind"],
                "metadata": {key: value for key, value in {**sent["metadata"], "name": stored["metadata"]["name"],
                                                           "namespace": stored["metadata"].get("namespace")}.items()
                             if key not in ("resourceVersion", "uid", "creationTimestamp", "managedFields",
                                            "generation") and value is not None}}
        body.pop("status", None)
        bodies.append((body, manager))
    refused: list[str] = []

    def reconcile(obj: Any, ctx: Any) -> Action:
        for body, manager in bodies if obj.name == "trigger" else ():
            group, _, version = body["apiVersion"].rpartition("/")
            kind = TYPES[group, version, body["kind"]]
            resource = ApiResource(group, version, kind.kind, kind.plural,
                                   Scope.NAMESPACED if kind.namespaced else Scope.CLUSTER)
            namespace = body["metadata"].get("namespace")
            api: Any = Api.namespaced(ctx.client, resource, namespace) if namespace else Api.all(ctx.client, resource)
            try:
                api.apply(body, field_manager=manager, force=True)
            except Exception as error:
                refused.append(f"{body['kind']}: {error}")
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "default")).bind(reconcile)

    planned = plan(build, snapshot_of(list(objects.values())))
    kinds = {obj["kind"] for obj in objects.values()}
    print(f"{len(objects)} recorded objects of {len(kinds)} kinds, {len(set(refused))} refused")
    assert len(objects) >= 100
    assert len(kinds) >= 9
    assert len(set(refused)) <= len(objects) // 20, refused
    assert planned.empty, str(planned)


Bend = Callable[[dict[str, Any]], None]


def of_kind(*kinds: str) -> Callable[[Bend], Bend]:
    def only(bend: Bend) -> Bend:
        def bent(obj: dict[str, Any]) -> None:
            if obj["kind"] in kinds:
                bend(obj)
        return bent
    return only


@of_kind("Deployment")
def sidecar(obj: dict[str, Any]) -> None:
    """Somebody's webhook has put a container into it."""
    obj["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "mesh:1", "resources": {}})
    obj["spec"]["template"]["metadata"]["annotations"] = {"sidecar.example.com/status": "injected"}


@of_kind("Deployment", "ReplicaSet", "Pod", "Service")
def more_defaults(obj: dict[str, Any]) -> None:
    """Fields of a newer server."""
    obj["spec"]["fieldOfTheFuture"] = {"enabled": True}


@of_kind("Deployment", "ConfigMap", "Service", "Secret")
def others_fields(obj: dict[str, Any]) -> None:
    obj["metadata"].setdefault("annotations", {})["example.com/by-helm"] = "yes"
    obj["metadata"].setdefault("labels", {})["cost-centre"] = "42"
    obj["metadata"]["managedFields"].append({
        "manager": "helm", "operation": "Update", "apiVersion": obj["apiVersion"], "time": "2025-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:cost-centre": {}}}}})


@of_kind("Deployment", "Pod", "ReplicaSet")
def other_status(obj: dict[str, Any]) -> None:
    obj["status"].setdefault("conditions", []).append(
        {"type": "example.com/Judged", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"})


def no_managers(obj: dict[str, Any]) -> None:
    """As objects are that were written before there were managedFields, or by a tool that strips them."""
    obj["metadata"].pop("managedFields", None)


@of_kind("Pod")
def on_other_nodes(obj: dict[str, Any]) -> None:
    obj["spec"]["nodeName"] = "worker-17"
    obj["status"]["podIP"] = "10.99.0.7"


@of_kind("Site")
def newer_status(obj: dict[str, Any]) -> None:
    obj["metadata"]["generation"] = 41


BENDS = [sidecar, more_defaults, others_fields, other_status, no_managers, on_other_nodes, newer_status]


@pytest.mark.parametrize("bend", BENDS, ids=["sidecar", "more-defaults", "others-fields", "status", "no-managers",
                                             "other-nodes", "generation"])
def test_what_clusters_do_to_objects_is_no_change(running: Snapshot, bend: Bend) -> None:
    objects = json.loads(json.dumps(running.objects))
    for obj in objects:
        if obj["kind"] != "CustomResourceDefinition":
            bend(obj)
    planned = plan(sites.RUNNING.build, replace(running, objects=tuple(objects)))
    assert planned.empty, str(planned)


def test_other_hashes_in_names_and_replicas_of_an_autoscaler_are_no_change() -> None:
    def build(client: Client) -> Any:
        def reconcile(site: Any, ctx: Any) -> Action:
            children = sites.wanted(site)
            del children["deployment"]["spec"]["replicas"]  # an autoscaler's
            Api.namespaced(ctx.client, sites.Deployment, "default").apply(children["deployment"], field_manager="site")
            return Action.await_change()
        return Controller(Api.all(client, sites.Site)).owns(Api.all(client, sites.Deployment)).bind(reconcile)

    world = sites_world(("a",))
    for name in ("configmaps", "secrets", "services"):
        Api.namespaced(world.client, ApiResource("", "v1", name[:-1].title(), name), "default").delete("a")
    world.run(build, 60)
    Api.namespaced(world.client, sites.Deployment, "default").patch("a", Patch.merge({"spec": {"replicas": 7}}),
                                                                    PatchParams(field_manager="hpa"))
    world.sim.settle(120)
    found = Snapshot.read(world.client, build)
    [old] = [obj["metadata"]["labels"]["pod-template-hash"] for obj in found.objects if obj["kind"] == "ReplicaSet"]
    objects = json.loads(json.dumps(found.objects).replace(old, "7d4b9cf5c8"))
    planned = plan(build, replace(found, objects=tuple(objects)))
    assert planned.empty, str(planned)
    world.sim.close()


def test_an_old_version_of_an_api_is_no_change() -> None:
    """A HorizontalPodAutoscaler that is read as autoscaling/v1, and applied as autoscaling/v2."""
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
                                                                           "averageUtilization": 70}}}]
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "minReplicas": 1,
        "maxReplicas": 5, "metrics": metrics}}
    v1, v2 = (ApiResource("autoscaling", version, "HorizontalPodAutoscaler", "horizontalpodautoscalers")
              for version in ("v1", "v2"))

    def build(client: Client) -> Any:
        def reconcile(obj: Any, ctx: Any) -> Action:
            if obj.name == "t":
                Api.namespaced(ctx.client, v2, "default").apply(body, field_manager="me")
            return Action.await_change()
        return Controller(Api.namespaced(client, ConfigMap, "default")).bind(reconcile)

    world = World()
    world.server.load("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: t, namespace: default}")
    world.run(build, 10)
    found = Snapshot.read(world.client, build, kinds=[v1])
    assert [obj["apiVersion"] for obj in found.objects if obj["kind"].startswith("Horizontal")] == ["autoscaling/v1"]
    planned: Plan = plan(build, found)
    assert planned.empty, str(planned)
    world.sim.close()


RECORDED = Path(__file__).parent / "recorded" / "cluster-1.36.json.gz"
"""A snapshot of a real cluster of 1.36 with a controller-manager: 27 kinds, one half made by `kubectl apply` first, all
then applied by a program as `gitops`; what its controllers made of that; and the applied manifests, as `applied`."""


def gitops(image: str) -> Callable[[Client], Any]:
    applied = json.loads(gzip.decompress(RECORDED.read_bytes()))["applied"]
    things = ApiResource("demo.example.com", "v1", "Thing", "things")

    def reconcile(obj: Any, ctx: Any) -> Action:
        for body in applied if obj.name == "trigger" else ():
            group, _, version = body["apiVersion"].rpartition("/")
            kind = TYPES.get((group, version, body["kind"]))
            resource = things if kind is None else ApiResource(
                group, version, kind.kind, kind.plural, Scope.NAMESPACED if kind.namespaced else Scope.CLUSTER)
            namespace = body["metadata"].get("namespace")
            api: Any = Api.namespaced(ctx.client, resource, namespace) if namespace else Api.all(ctx.client, resource)
            if body["kind"] == "Deployment":
                body["spec"]["template"]["spec"]["containers"][0]["image"] = image
            api.apply(body, field_manager="gitops", force=True)
        return Action.await_change()
    return lambda client: Controller(Api.all(client, ConfigMap), name="gitops").bind(reconcile)


def test_a_recorded_cluster_does_not_change() -> None:
    snapshot = Snapshot.load(RECORDED)
    assert len(snapshot.objects) >= 200
    planned = plan(gitops("i:1"), snapshot)
    assert planned.empty, str(planned)
    assert not planned.not_simulated or "values of Secrets" in str(planned.not_simulated)
    planned = plan(gitops("i:2"), snapshot)
    assert {(change.action, change.ref.kind) for change in planned.changes} == {("change", "Deployment")}
    assert len(planned.changed) == 6
    assert all("replaces 2 Pods, one after the other" in change.follows for change in planned.changed), str(planned)
    assert not planned.failed
    assert not planned.unknown


@pytest.mark.parametrize("trouble", [
    lambda rules: rules.crash(), lambda rules: rules.fail_image_pull(), lambda rules: rules.unschedulable(),
    lambda rules: rules.never_be_ready()], ids=["crashing", "no-image", "no-node", "unready"])
def test_pods_that_do_not_run_stay_so(trouble: Callable[[Any], Any]) -> None:
    """What the program would report of Pods that come to life in the copy is no change; its new Pods run."""
    def build_of(image: str) -> Callable[[Client], Any]:
        def reconcile(obj: Any, ctx: Any) -> Action:
            api = ctx.api(sites.Deployment)
            if obj.spec.template.spec.containers[0].image != image:
                api.patch(obj.name, Patch.strategic({"spec": {"template": {"spec": {"containers": [
                    {"name": "c", "image": image}]}}}}))
            ready = str((obj.to_dict().get("status") or {}).get("readyReplicas", 0))
            ctx.api(ConfigMap).apply({"metadata": {"name": "report"}, "data": {"ready": ready}})
            return Action.await_change()
        return lambda client: Controller(Api.all(client, sites.Deployment), name="reporter").bind(reconcile)

    world = World()
    trouble(world.server.kubelet.rules.on("app=web"))
    world.server.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": "web", "namespace": "default"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}}])
    world.run(build_of("i:1"), 120)
    found = Snapshot.read(world.client, build_of("i:1"))
    world.sim.close()
    planned = plan(build_of("i:1"), found)
    assert planned.empty, str(planned)
    after = plan(build_of("i:2"), found)
    assert "replaces 2 Pods: all stop before the new ones start" in after.changed[0].follows
    assert 'data.ready: "0" -> "2"' in str(after)


@pytest.mark.parametrize("kind", [
    ApiResource("", "v1", "Node", "nodes", Scope.CLUSTER), ApiResource("", "v1", "Service", "services"),
    ApiResource("", "v1", "ServiceAccount", "serviceaccounts")], ids=["nodes", "services", "accounts"])
def test_what_the_copy_has_by_itself_is_no_object_of_the_cluster(kind: ApiResource) -> None:
    """A cluster without Nodes, and with a Service in one namespace."""
    def reconcile(obj: Any, ctx: Any) -> Action:
        api: Any = Api.namespaced(ctx.client, kind, obj.namespace) if obj.namespace else Api.all(ctx.client, kind)
        if "seen" not in obj.annotations:
            api.patch(obj.name, Patch.merge({"metadata": {"annotations": {"seen": "yes"}}}))
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.all(client, kind), name="marker").bind(reconcile)

    world = World()
    if kind.kind == "Node":
        for obj in Api.all(world.client, kind).list():
            Api.all(world.client, kind).delete(obj.name)
    world.run(build, 60)
    found = Snapshot.read(world.client, build, namespaces=["kube-public"])
    world.sim.close()
    assert kind.full_name in found.by_name
    planned = plan(build, found)
    assert planned.empty, str(planned)


def test_the_recordings_are_there() -> None:
    assert Path(GOLDEN).is_dir()
