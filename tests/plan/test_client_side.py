"""`change=` on objects that `kubectl apply` made without `--server-side`: fields that the file drops are removed."""
from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from msgspec import Struct

from kubectl_runtime import Action, Api, Client, Controller, CustomResource, MapKeys, Patch, apply_crd
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.resources import CustomResourceDefinition, Deployment, Secret
from tests.plan.conftest import World

LAST = "kubectl.kubernetes.io/last-applied-configuration"


class Backup(Struct):
    schedule: str
    keep: int = 7


class Part(Struct):
    name: str
    size: int = 1


class Spec(Struct):
    replicas: int = 1
    engine: str = "postgres"
    backup: Backup | None = None
    parts: Annotated[list[Part], MapKeys("name")] = []


class Base(CustomResource, group="applied.example.com", version="v1", kind="Base"):
    spec: Spec


def build(client: Client) -> Any:
    return Controller(Api.all(client, Base), name="bases").bind(lambda obj, ctx: Action.await_change())


def base(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "applied.example.com/v1", "kind": "Base", "spec": spec,
            "metadata": {"name": "a", "namespace": "default", **metadata}}


BACKUP = {"schedule": "0 3 * * *"}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    apply_crd(made.client, Base)
    yield made
    made.sim.close()


def applied(api: Any, file: dict[str, Any], manager: str = "kubectl-client-side-apply") -> None:
    """What `kubectl apply` sends for a new object."""
    metadata = file["metadata"]
    last = json.dumps({**file, "metadata": {"annotations": {}, **metadata}}) + "\n"
    api.create({**file, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), LAST: last}}},
               field_manager=manager)


def changed(world: World, file: Any, kinds: tuple[Any, ...] = ()) -> Plan:
    return plan(build, Snapshot.read(world.client, build, kinds=kinds), change=[file])


def fields(found: Plan) -> dict[str, tuple[Any, Any]]:
    assert not found.failed, str(found)
    [change] = found.changed
    return {field.path: (field.before, field.after) for field in change.fields if LAST not in field.path}


def deployment(*containers: dict[str, Any]) -> Any:
    labels = {"app": "web"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [*containers]}}}}


def of_deployment(found: Plan) -> dict[str, tuple[Any, Any]]:
    assert not found.failed, str(found)
    [change] = [change for change in found.changed if change.ref.kind == "Deployment"]
    return {field.path: (field.before, field.after) for field in change.fields if LAST not in field.path}


def test_a_dropped_field_is_removed_with_its_defaults(world: World) -> None:
    api = Api.namespaced(world.client, Base, "default")
    applied(api, base({"replicas": 2, "backup": BACKUP, "parts": [{"name": "x"}, {"name": "y"}]}, labels={"a": "1",
                                                                                                        "b": "2"}))
    found = fields(changed(world, base({"replicas": 3, "parts": [{"name": "y"}]}, labels={"a": "1"})))
    assert found.pop("spec.replicas") == (2, 3)
    assert sorted(path.partition("[")[0] for path in found) == ["metadata.labels.b", "spec.backup", "spec.parts"]
    assert all(after is None for _, after in found.values())


def test_what_the_last_file_did_not_name_stays(world: World) -> None:
    """Kept are defaults from the creation, also when the definition has other defaults now, and what others set."""
    api = Api.namespaced(world.client, Base, "default")
    applied(api, base({"replicas": 2}))
    api.patch("a", Patch.merge({"metadata": {"annotations": {"by": "hand"}}, "spec": {"backup": BACKUP}}),
              field_manager="kubectl-edit")
    crd: Any = copy.deepcopy(Base.crd())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["engine"][
        "default"] = "mysql"
    Api.all(world.client, CustomResourceDefinition).patch(
        "bases.applied.example.com", Patch.merge({"spec": {"versions": crd["spec"]["versions"]}}))
    found = plan(build, Snapshot.read(world.client, build), change=[crd, base({"replicas": 3})])
    [changed] = [change for change in found.changed if change.ref.kind == "Base"]
    assert [field.path for field in changed.fields if LAST not in field.path] == ["spec.replicas"]


@pytest.mark.parametrize("manager", ["kubectl-edit", "kubectl-create"])
def test_a_dropped_field_that_another_manager_owns_is_removed(world: World, manager: str) -> None:
    api = Api.namespaced(world.client, Base, "default")
    if manager == "kubectl-create":  # kubectl create --save-config
        applied(api, base({"backup": BACKUP}), manager)
    else:
        applied(api, base({"backup": BACKUP}))
        api.patch("a", Patch.merge({"spec": {"backup": {"schedule": "0 4 * * *"}}}), field_manager=manager)
    assert list(fields(changed(world, base({})))) == ["spec.backup"]


def test_the_file_of_an_applier_on_the_server_side_leaves_what_others_own(world: World) -> None:
    api = Api.namespaced(world.client, Base, "default")
    api.apply(base({"replicas": 2, "backup": BACKUP}), field_manager="kubectl")
    api.apply(base({"replicas": 2}), field_manager="other")
    assert "spec.replicas" not in fields(changed(world, base({})))
    assert "spec.backup" in fields(changed(world, base({})))


def test_replicas_that_left_the_file_are_the_default_again(world: World) -> None:
    labels = {"app": "web"}
    file: Any = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                 "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
                     "metadata": {"labels": labels}, "spec": {"containers": [
                         {"name": "c", "image": "x:1", "env": [{"name": "A", "value": "1"}]}]}}}}
    api = Api.namespaced(world.client, Deployment, "default")
    applied(api, file)
    api.patch_scale("web", Patch.merge({"spec": {"replicas": 5}}))
    world.sim.settle(60)
    del file["spec"]["replicas"], file["spec"]["template"]["spec"]["containers"][0]["env"]
    found = changed(world, file, (Deployment,))
    [deployment] = [change for change in found.changed if change.ref.kind == "Deployment"]
    values = {field.path: (field.before, field.after) for field in deployment.fields}
    assert values["spec.replicas"] == (5, 1), str(found)
    assert any(".env" in path and after is None for path, (_, after) in values.items()), str(found)


def test_of_a_secret_whose_copy_is_redacted(world: World) -> None:
    file: Any = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
                 "data": {"a": "MQ==", "b": "Mg=="}}
    applied(Api.namespaced(world.client, Secret, "default"), file)
    del file["data"]["b"]
    assert list(fields(changed(world, file, (Secret,)))) == ["data.b"]


def test_a_definition_is_applied_in_the_same_way() -> None:
    made = World()
    crd: Any = {**copy.deepcopy(Base.crd()), "metadata": {"name": "bases.applied.example.com", "labels": {"a": "1"}}}
    applied(Api.all(made.client, CustomResourceDefinition), crd)
    made.sim.settle(10)
    del crd["metadata"]["labels"]
    assert list(fields(changed(made, crd))) == ["metadata.labels"]
    made.sim.close()


def test_admission_sees_only_the_object_after_the_change(world: World) -> None:
    applied(Api.namespaced(world.client, Base, "default"), base({"replicas": 8}))
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["applied.example.com"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["bases"]}
    world.server.load([
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
         "spec": {"matchConstraints": {"resourceRules": [rule]},
                  "validations": [{"expression": "object.spec.replicas <= 5"}]}},
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "p"},
         "spec": {"policyName": "p", "validationActions": ["Deny"]}}])
    assert fields(changed(world, base({"replicas": 3}))) == {"spec.replicas": (8, 3)}
    assert "spec.replicas <= 5" in str(changed(world, base({"replicas": 6})).failed[0])


def test_defaults_in_items_of_lists_stay(world: World) -> None:
    file = deployment({"name": "c", "image": "x:1", "ports": [{"containerPort": 80}, {"containerPort": 81}],
                       "livenessProbe": {"exec": {"command": ["true"]}}}, {"name": "side", "image": "y:1"})
    applied(Api.namespaced(world.client, Deployment, "default"), file)
    containers = file["spec"]["template"]["spec"]["containers"]
    del containers[1], containers[0]["ports"][1], containers[0]["livenessProbe"]
    containers[0]["image"] = "x"
    values = of_deployment(changed(world, file, (Deployment,)))
    assert values.pop("spec.template.spec.containers[c].image") == ("x:1", "x")
    assert all(after is None for _, after in values.values()), values
    assert sorted(path.removeprefix("spec.template.spec.containers").partition("[81")[0] for path in values) == [
        "[c].livenessProbe", "[c].ports", "[side]"]


def test_a_field_given_as_null_is_removed(world: World) -> None:
    api = Api.namespaced(world.client, Base, "default")
    applied(api, base({"replicas": 2, "backup": BACKUP}, labels={"a": "1", "b": "2"}))
    file = base({"replicas": 2, "backup": None}, labels={"a": None, "b": "2"})
    assert sorted(fields(changed(world, file))) == ["metadata.labels.a", "spec.backup"]


def test_null_removes_what_the_last_file_did_not_name(world: World) -> None:
    api = Api.namespaced(world.client, Base, "default")
    applied(api, base({"replicas": 2}))
    api.patch("a", Patch.merge({"spec": {"backup": BACKUP}}), field_manager="kubectl-edit")
    assert list(fields(changed(world, base({"replicas": 2, "backup": None})))) == ["spec.backup"]


def test_null_in_an_item_of_a_list(world: World) -> None:
    file = deployment({"name": "c", "image": "x:1", "args": ["a"]})
    applied(Api.namespaced(world.client, Deployment, "default"), file)
    file["spec"]["template"]["spec"]["containers"][0]["args"] = None
    assert list(of_deployment(changed(world, file, (Deployment,)))) == ["spec.template.spec.containers[c].args"]


def test_dropped_finalizers_and_owners_are_removed(world: World) -> None:
    api = Api.namespaced(world.client, Base, "default")
    made = api.create({**base({}), "metadata": {"name": "owner", "namespace": "default"}})
    owner = {"apiVersion": "applied.example.com/v1", "kind": "Base", "name": "owner", "uid": made.uid}
    applied(api, base({}, finalizers=["a.example.com/x"], ownerReferences=[owner]))
    paths = [path.partition("[")[0] for path in fields(changed(world, base({})))]
    assert sorted(paths) == ["metadata.finalizers", "metadata.ownerReferences"]


def test_data_stays_when_the_file_has_string_data(world: World) -> None:
    file: Any = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
                 "stringData": {"a": "1", "b": "2"}}
    applied(Api.namespaced(world.client, Secret, "default"), file)
    del file["stringData"]["b"]
    assert not any(path.startswith("data") for change in changed(world, file, (Secret,)).changed
                   for path in [field.path for field in change.fields])


def test_the_copy_of_the_last_file_is_malformed(world: World) -> None:
    last = json.dumps({"apiVersion": "applied.example.com/v1", "metadata": "x", "spec": 3})
    Api.namespaced(world.client, Base, "default").create(base({"replicas": 2}, annotations={LAST: last}),
                                                         field_manager="kubectl-client-side-apply")
    assert fields(changed(world, base({"replicas": 3}))) == {"spec.replicas": (2, 3)}
