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
