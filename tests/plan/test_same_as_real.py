"""A plan is what a real run of the new version then does to a copy: object by object, field by field.

The real run has nothing of the plan: a server that was given the same objects, the program's definitions applied as an
upgrade does, its controllers in a simulation or in threads.
"""
from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, Client
from kubectl_runtime.crd import merge_crds
from kubectl_runtime.kinds import Scope
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.resources import ConfigMap, CustomResourceDefinition
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.webhooks import application, apply_webhooks
from tests.plan import sites
from tests.plan.conftest import World, sites_world

DEFINITIONS = CustomResourceDefinition.api_resource
WRITTEN = [ApiResource("", "v1", "ConfigMap", "configmaps"), ApiResource("", "v1", "Secret", "secrets"),
           ApiResource("", "v1", "Service", "services"), ApiResource("apps", "v1", "Deployment", "deployments"),
           ApiResource("", "v1", "Namespace", "namespaces", Scope.CLUSTER),
           ApiResource("plan.example.com", "v1", "Site", "sites")]
SERVERS_OWN = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
State = dict[tuple[str, str, str], dict[str, str]]


def leaves(value: Any, path: str = "") -> dict[str, str]:
    """An object as its leaves, without any of the plan's own comparisons."""
    if isinstance(value, dict) and value:
        return {key: text for name, part in value.items() for key, text in leaves(part, f"{path}/{name}").items()}
    if isinstance(value, list) and value:
        return {key: text for number, part in enumerate(value)
                for key, text in leaves(part, f"{path}/{number}").items()}
    return {path: repr(value)}


def state(client: Client) -> State:
    found: State = {}
    for kind in WRITTEN:
        for obj in Api.all(client, kind).list():
            content = obj.to_dict()
            if kind.group != "plan.example.com":
                content.pop("status", None)
            content["metadata"] = {key: value for key, value in content["metadata"].items() if key not in SERVERS_OWN}
            if kind.kind == "Deployment":  # the cluster's own controller counts revisions
                content["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
            content.pop("apiVersion", None)
            found[kind.kind, obj.namespace or "", obj.name] = {**leaves(content), "uid": obj.uid or ""}
    return found


def apply_definitions(client: Client, version: sites.Version) -> None:
    definition = version.kind.crd() if version.kind is not sites.NewSite else \
        merge_crds([sites.OldSite.crd(), sites.NewSite.crd()], "v2")
    Api.all(client, CustomResourceDefinition).apply(definition, field_manager="upgrade", force=True)


def real_run(objects: list[Any], version: sites.Version, world: World) -> tuple[State, State]:
    world.server.implant(objects)
    world.sim.settle(60)
    before = state(world.client)
    if version.webhooks:
        made = version.build(world.client)
        app = application({"/convert": made.servers[0].app.handlers["/convert"]})
        world.server.mount_webhook("https://sites.ops.svc", app)
    apply_definitions(world.client, version)
    if version.webhooks:
        apply_webhooks(world.client, app, "sites", service="ops/sites", force=True)
    world.sim.settle(1)
    world.run(version.build, 900)
    return before, state(world.client)


def assert_alike(found: Plan, before: State, after: State) -> None:
    """What was planned and what was done are the same."""
    def keys(changes: Any) -> set[tuple[str, str, str]]:
        return {(change.ref.kind, change.ref.namespace or "", change.ref.name) for change in changes
                if change.ref.kind != "CustomResourceDefinition"}

    mentioned = {(change.ref.kind, change.ref.namespace or "", change.ref.name) for change in found.changes}
    made = {key for key in after if key not in before and key[2] not in ("kube-root-ca.crt", "default")}
    assert keys(found.created) == made
    assert keys(found.deleted) == {key for key in before if key not in after}
    different = {key: {path for path in {*before[key], *after[key]} - {"uid"}
                       if before[key].get(path) != after[key].get(path)}
                 for key in before if key in after}
    if found.definitions:  # what a definition takes away is not shown any more, and said so in the first lines
        different = {key: paths for key, paths in different.items() if key[0] != "Site"}
    really = {key for key, paths in different.items() if paths}
    assert keys(found.changed) == really, mentioned
    for change in found.changed:
        if change.ref.kind == "CustomResourceDefinition":
            continue
        key = (change.ref.kind, change.ref.namespace or "", change.ref.name)
        named = {simple(one.path) for one in change.fields if one.path != "metadata.uid"}
        for path in different[key]:
            assert any(simple_leaf(path)[:len(one)] == one for one in named), (path, named)
        for one in named:
            assert any(simple_leaf(path)[:len(one)] == one for path in different[key]), (one, different[key])


def simple(path: str) -> tuple[str, ...]:
    """A path of the plan, without what names items of lists."""
    named = [re.sub(r"\[\d+\]|\[(?![^\]]*[./])[^\]]*\]", "", path)]
    return tuple(part for part in re.split(r"[.\[\]]+", named[0]) if part) if "[" not in named[0] else tuple(
        part for piece in re.split(r"(\[[^\]]*\])", named[0])
        for part in ([piece[1:-1]] if piece.startswith("[") else piece.split(".")) if part)


def simple_leaf(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part and not part.isdigit())


@pytest.fixture(scope="module")
def cluster() -> Any:
    """What was read, and all objects that there are, with the values of Secrets."""
    world = sites_world()
    found = Snapshot.read(world.client, sites.RUNNING.build)
    objects = [{"apiVersion": kind.api_version, "kind": kind.kind, **obj.to_dict()}
               for kind in [*(read.resource for read in found.kinds), DEFINITIONS]
               for obj in Api.all(world.client, kind).list()]
    world.sim.close()
    return found, objects


def test_the_running_version_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    found = plan(sites.RUNNING.build, cluster[0])
    assert found.empty, str(found)
    cluster[0].save(tmp_path / "saved.json.gz")
    found = plan(sites.RUNNING.build, Snapshot.load(tmp_path / "saved.json.gz"))
    assert found.empty, str(found)
    assert "2 values of Secrets" in str(found)  # the key of the digests was not saved


SHORT = ("template", "renamed-child", "conversion", "later", "selector", "recreated", "schema-loss", "secret")
"""Which of them are tried in the fast suite."""


@pytest.mark.parametrize("name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long)
                                  for name in sorted(sites.VERSIONS)])
def test_a_plan_is_what_a_real_run_does(cluster: Any, name: str) -> None:
    snapshot, objects = cluster
    version = sites.VERSIONS[name]
    found = plan(version.build, snapshot, until=900)
    world = World(seed=7, start=snapshot.read_at)
    try:
        before, after = real_run(objects, version, world)
    finally:
        world.sim.close()
    assert_alike(found, before, after)
    assert bool(found.failed) == (name in ("failing", "selector", "recreate-strategy")), str(found)
    assert bool(found.definitions) == (name in ("rule", "schema-loss", "conversion")) or name == "conversion"


def test_it_is_so_in_threads_over_sockets_too(cluster: Any) -> None:
    snapshot, objects = cluster
    version = sites.VERSIONS["renamed-child"]
    found = plan(version.build, snapshot)
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        server.implant(objects)
        before = state(client)
        with version.build(client).start():
            end = time.monotonic() + 20
            maps = Api.namespaced(client, ConfigMap, "default")
            while time.monotonic() < end and (len(maps.list(label_selector="team=web").items) != 2
                                              or maps.get_opt("a") or maps.get_opt("b")):
                time.sleep(0.05)
            time.sleep(0.3)
        assert_alike(found, before, state(client))
