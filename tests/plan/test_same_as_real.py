"""A plan is what a real run of the new version then does to a copy: object by object, field by field.

The real run has nothing of the plan: a server that was given the same objects, the program's definitions applied as an
upgrade does, its controllers in a simulation or in threads.
"""
from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime import Api, ApiResource, Client
from kubectl_runtime.crd import merge_crds
from kubectl_runtime.kinds import Scope
from kubectl_runtime.manifests.documents import read_objects
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.plan.report import STARS
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
UID = ("uid",)
SERVERS_OWN = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
Path = tuple[str, ...]
State = dict[tuple[str, str, str], dict[Path, str]]


def leaves(value: Any, path: Path = ()) -> dict[Path, str]:
    """An object as its leaves, without any of the plan's own comparisons; what is empty has none."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: text for name, part in items for key, text in leaves(part, (*path, str(name))).items()}
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
            found[kind.kind, obj.namespace or "", obj.name] = {**leaves(content), UID: obj.uid or ""}
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


def assert_equal_values(found: Plan, after: State) -> None:
    """Created objects and changed fields have the values of the real run, as far as values are shown."""
    for change in found.changes:
        real = after.get((change.ref.kind, change.ref.namespace or "", change.ref.name))
        if change.action == "create" and real is not None:
            made = "\n".join(line[1:] for line in change.difference.splitlines() if line.startswith("+") and
                             not line.startswith("+++"))
            [(content, _)] = read_objects(made)
            content["metadata"] = {key: value for key, value in content["metadata"].items() if key not in SERVERS_OWN}
            shown = leaves({key: value for key, value in content.items() if key not in ("apiVersion", "status")})
            wanted = {path: value for path, value in real.items() if path != UID and path[0] != "status"}
            assert {path: value for path, value in shown.items() if STARS not in value} == {
                path: value for path, value in wanted.items() if STARS not in shown.get(path, "")}, str(change)
        for one in change.fields if real is not None and change.action == "change" else ():
            if STARS in repr(one.after) or one.path == "metadata.uid":
                continue
            there = Counter(value for path, value in real.items() if simple_leaf(path)[:len(simple(one.path))] ==
                            simple(one.path))
            values = Counter(leaves(one.after).values()) if one.after is not None else Counter()
            assert not values - there, (str(one), there)
            assert one.after is not None or not there or re.search(r"\[[^\]]+\]", one.path), (str(one), there)


def assert_alike(found: Plan, before: State, after: State) -> None:
    """What was planned and what was done are the same."""
    def keys(changes: Any) -> set[tuple[str, str, str]]:
        return {(change.ref.kind, change.ref.namespace or "", change.ref.name) for change in changes
                if change.ref.kind != "CustomResourceDefinition"}

    mentioned = {(change.ref.kind, change.ref.namespace or "", change.ref.name) for change in found.changes}
    made = {key for key in after if key not in before and key[2] not in ("kube-root-ca.crt", "default")}
    assert keys(found.created) == made
    gone = {key for key in before if key not in after}
    assert keys(found.deleted) <= gone
    folded = Counter(kind for kind, _, _ in gone - keys(found.deleted))
    said = [text for change in found.changes for text in change.follows]
    assert folded == counted(said, r"deletes (\d+) (\w+?)s? that it owns")
    orphans = {key for key in before if key in after and count_owners(after[key]) < count_owners(before[key])}
    assert Counter(kind for kind, _, _ in orphans - keys(found.changed)) == counted(
        said, r"leaves (\d+) (\w+?)s? without this owner")
    different = {key: {path for path in {*before[key], *after[key]} - {UID}
                       if before[key].get(path) != after[key].get(path)}
                 for key in before if key in after and key not in orphans - keys(found.changed)}
    if found.definitions:  # what a definition takes away is not shown any more, and said so in the first lines
        different = {key: paths for key, paths in different.items() if key[0] != "Site"}
        found = replace(found, changed=tuple(change for change in found.changed if change.ref.kind != "Site"))
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


def counted(texts: list[str], pattern: str) -> Counter[str]:
    """How many objects of the compared kinds these texts count."""
    found: Counter[str] = Counter()
    for text in texts:
        if (match := re.fullmatch(pattern, text)) and match[2] in {kind.kind for kind in WRITTEN}:
            found[match[2]] += int(match[1])
    return found


def count_owners(obj: dict[Path, str]) -> int:
    return sum(path[:2] == ("metadata", "ownerReferences") and path[3] == "uid" for path in obj if len(path) == 4)


def simple(path: str) -> tuple[str, ...]:
    """A path of the plan, without what names items of lists."""
    named = [re.sub(r"\[\d+\]|\[(?![^\]]*[./])[^\]]*\]", "", path)]
    return tuple(part for part in re.split(r"[.\[\]]+", named[0]) if part) if "[" not in named[0] else tuple(
        part for piece in re.split(r"(\[[^\]]*\])", named[0])
        for part in ([piece[1:-1]] if piece.startswith("[") else piece.split(".")) if part)


def simple_leaf(path: Path) -> tuple[str, ...]:
    return tuple(part for part in path if not part.isdigit())


class Read(tuple[Any, ...]):
    """With a short text, for hypothesis."""

    def __repr__(self) -> str:
        return "cluster"


@pytest.fixture(scope="module")
def cluster() -> Any:
    """What was read, and all objects that there are, with the values of Secrets."""
    world = sites_world()
    found = Snapshot.read(world.client, sites.RUNNING.build)
    objects = [{"apiVersion": kind.api_version, "kind": kind.kind, **obj.to_dict()}
               for kind in [*(read.resource for read in found.kinds), DEFINITIONS]
               for obj in Api.all(world.client, kind).list()]
    world.sim.close()
    return Read((found, objects))


def test_the_running_version_changes_nothing(cluster: Any, tmp_path: Any) -> None:
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


def block(function: Callable[..., None], *values: st.SearchStrategy[Any] | str | None) -> st.SearchStrategy[Any]:
    """A building block with drawn arguments."""
    return st.builds(partial, st.just(function),
                     *(value if isinstance(value, st.SearchStrategy) else st.just(value) for value in values))


def changes() -> st.SearchStrategy[Any]:
    """One change of what a version wants of a Site."""
    child, plain = st.sampled_from(sites.CHILDREN), st.sampled_from(sites.CHILDREN[:3])
    words = st.sampled_from(["one", "two"])
    values = st.sampled_from(["", "x", "a longer text", "1"])
    alone = st.sampled_from([
        sites.other_image, sites.other_selector, sites.service_selector, sites.replicas, sites.fewer_replicas,
        sites.container_gone, sites.env_added, sites.port_changed, sites.strategy])
    some = st.one_of(
        alone, alone,
        block(sites.on_meta, child, "labels", st.sampled_from(["team", "more/x"]), "new"),
        block(sites.on_meta, plain, "labels", "team", None),
        block(sites.on_meta, child, "annotations", st.sampled_from(["a", "e.com/a.b"]), values),
        block(sites.on_data, st.sampled_from(["config", "secret"]), st.sampled_from(["text", "token", "bad key"]),
              values),
        block(sites.on_data, "config", "mode", None),
        block(sites.owner_is, child, st.sampled_from(["none", "no controller", "gone"])),
        block(sites.absent, child), block(sites.renamed, plain, words),
        block(sites.added, st.sampled_from(["ConfigMap", "Secret", "Service"]), words), block(sites.first, child))
    return st.one_of(some, some, some, block(sites.for_site, st.sampled_from(["a", "b"]), some))


def versions() -> st.SearchStrategy[sites.Version]:
    """Versions that differ from the running one in a few respects."""
    site = st.sampled_from(["a", "b"])
    before = st.one_of(st.none(), st.none(), block(sites.raises, site), block(
        sites.deletes, site, st.sampled_from(["Background", "Foreground", "Orphan"])))
    kind = st.sampled_from([(sites.Site, False), (sites.Site, False), (sites.RuledSite, False), (sites.NewSite, True)])
    return st.builds(lambda kind, **more: sites.Version(kind=kind[0], webhooks=kind[1], **more), kind,
                     steps=st.lists(changes(), max_size=4).map(tuple), finalizer=st.booleans(), before=before,
                     extra=st.sampled_from([{}, {}, {"phase": "Up"}]), ensure=st.booleans())


def check_version(cluster: Any, version: sites.Version) -> None:
    snapshot, objects = cluster
    found = plan(version.build, snapshot, until=900)
    version.failing.clear()
    world = World(seed=7, start=snapshot.read_at)
    try:
        before, after = real_run(objects, version, world)
    finally:
        world.sim.close()
    assert_alike(found, before, after)
    assert_equal_values(found, after)
    assert {problem.object for problem in found.failed} == {f"Site default/{name}" for name in version.failing}


GENERATED = {"deadline": None, "suppress_health_check": [*HealthCheck]}


@settings(max_examples=5, derandomize=True, **GENERATED)
@given(version=versions())
def test_the_plan_of_a_generated_version(cluster: Any, version: sites.Version) -> None:
    check_version(cluster, version)


@pytest.mark.long
@settings(max_examples=150, **GENERATED)
@given(version=versions())
def test_the_plans_of_many_generated_versions(cluster: Any, version: sites.Version) -> None:
    check_version(cluster, version)


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
