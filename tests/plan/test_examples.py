"""The plan of the running version is empty: for every example that is an operator, and the operators of the guides."""
from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import admission
import configmapgen_controller as generator
import database_operator
import namespace_policy
import pytest
import secret_syncer
from elected_replicas import manager

from kubectl_runtime import Api, Client, LeaderElection, Patch, apply_crd
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.crd import merge_crds
from kubectl_runtime.objects import GoDuration, LabelSelector
from kubectl_runtime.plan import Snapshot, plan
from kubectl_runtime.resources import ConfigMap, Namespace, Secret, StatefulSet
from kubectl_runtime.webhooks import apply_webhooks
from tests.examples.programs import ROOT, blocks
from tests.plan.conftest import World

Build = Callable[[Client], Any]


def assert_empty(world: World, build: Build, tmp_path: Path) -> None:
    """Read while the program's work is done; live and from a file the plan is empty."""
    try:
        world.run(build, 300)
        snapshot = Snapshot.read(world.client, build)
        found = plan(build, snapshot)
        assert found.empty, str(found)
        snapshot.save(tmp_path / "snapshot.json")
        again = plan(build, Snapshot.load(tmp_path / "snapshot.json"))
        assert again.empty, str(again)
    finally:
        world.sim.close()


def test_the_configmap_generator_and_its_elected_replica(tmp_path: Path) -> None:
    world = World()
    apply_crd(world.client, generator.ConfigMapGenerator)
    Api.namespaced(world.client, generator.ConfigMapGenerator, "default").create(
        generator.ConfigMapGenerator(name="a", spec=generator.Spec(content="one")))
    assert_empty(world, generator.operator, tmp_path)
    world = World()
    apply_crd(world.client, generator.ConfigMapGenerator)
    assert_empty(world, lambda client: manager(client, LeaderElection("configmapgen", "default")), tmp_path)


def test_the_database_operator(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()

    def build(client: Client) -> Any:
        return database_operator.controller(client).bind(database_operator.Operate(), context=tmp_path / "backups")

    world = World()
    apply_crd(world.client, database_operator.Database)
    Api.namespaced(world.client, database_operator.Database, "default").create(
        database_operator.Database(name="orders", spec=database_operator.Spec()))
    world.run(build, 60)
    Api.namespaced(world.client, StatefulSet, "default").patch_status("orders", Patch.merge(
        {"status": {"replicas": 1, "readyReplicas": 1}}))
    assert_empty(world, build, tmp_path)


def test_the_namespace_policy(tmp_path: Path) -> None:
    def build(client: Client) -> Any:
        reconciler = namespace_policy.CopyPolicies()
        return namespace_policy.controller(client, reconciler).bind(reconciler)

    world = World()
    apply_crd(world.client, namespace_policy.NamespacePolicy)
    Api.all(world.client, Namespace).create(Namespace(name="web", labels={"team": "a"}))
    Api.all(world.client, namespace_policy.NamespacePolicy).create(
        namespace_policy.NamespacePolicy(name="quiet", spec=namespace_policy.Spec(
            policy={"podSelector": {}}, namespace_selector=LabelSelector(match_labels={"team": "a"}))))
    assert_empty(world, build, tmp_path)


def test_the_secret_syncer(tmp_path: Path) -> None:
    def build(client: Client) -> Any:
        return secret_syncer.controller(client).bind(secret_syncer.CopySecrets())

    world = World()
    apply_crd(world.client, secret_syncer.SecretSync)
    for name in ("web", "shop"):
        Api.all(world.client, Namespace).create(Namespace(name=name))
    Api.namespaced(world.client, Secret, "default").create(Secret(name="password", data={"a": b"one"}))
    Api.namespaced(world.client, secret_syncer.SecretSync, "default").create(secret_syncer.SecretSync(
        name="s", spec=secret_syncer.Spec(secret="password", namespaces=["web", "shop"]), status=None))
    assert_empty(world, build, tmp_path)


def test_the_admission_example(tmp_path: Path) -> None:
    world = World()
    with_authority(world, admission.app, "pod-policy", url="https://127.0.0.1:9443")
    assert_empty(world, admission.main, tmp_path)


def with_authority(world: World, app: Any, name: str, **where: str) -> None:
    """What its server applies when it starts, with its authority; controllers alone run in a simulation."""
    apply_webhooks(world.client, app, name, field_manager=name, ca_bundle=Authority("webhooks").pem, **where)


def load(guide: str, folder: Path) -> Any:
    """The program of a guide as a module."""
    text = blocks(ROOT / "examples" / "guides" / guide, "python")[0]
    name = f"guide_{Path(guide).stem.replace('-', '_')}"
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Provider:
    def publish(self, host: str, address: str) -> None:
        pass


GUIDES: dict[str, tuple[Callable[[Any], Build], Callable[[Any], list[Any]]]] = {
    "deletion-and-finalizers.md": (
        lambda m: lambda client: m.controller(client).bind(m.SiteReconciler(), context=m.Dns()),
        lambda m: [m.Site.crd(), m.Site(name="shop", namespace="default", spec=m.SiteSpec(host="shop.example.com"))]),
    "errors-and-backoff.md": (
        lambda m: lambda client: m.controller(client).bind(m.Publish(), context=Provider()),
        lambda m: [m.Name.crd(), m.Name(name="a", namespace="default", spec=m.NameSpec("a.example.org", "10.0.0.1"))]),
    "first-controller.md": (
        lambda m: m.main,
        lambda m: [m.Greeting.crd(), m.Greeting(name="ada", namespace="default", spec=m.GreetingSpec("Ada", 2))]),
    "predicates-and-triggers.md": (
        lambda m: lambda client: m.controller(client).bind(m.show, context={}),
        lambda m: [m.Site.crd(), ConfigMap(name="defaults", namespace="kube-public", data={"text": "hello"}),
                   m.Site(name="a", namespace="default", spec=m.SiteSpec())]),
    "relations.md": (
        lambda m: lambda client: m.controller(client).bind(m.Copy()),
        lambda m: [m.Banner.crd(), m.Banner(name="red", spec=m.BannerSpec("red!")),
                   Namespace(name="shop", labels={m.WANTS: "red"})]),
    "schedules.md": (
        lambda m: lambda client: m.controller(client).bind(m.Schedule()),
        lambda m: [m.Dump.crd(), m.Dump(name="a", namespace="default", spec=m.DumpSpec(every=GoDuration("24h")))]),
    "server-side-apply-and-conditions.md": (
        lambda m: lambda client: m.controller(client).bind(m.Save()),
        lambda m: [m.Backup.crd(), m.Backup(name="a", namespace="default", spec=m.BackupSpec("orders"))]),
    "webhooks.md": (
        lambda m: m.main,
        lambda m: [merge_crds([m.OrderV1.crd(), m.OrderV2.crd()], stored="v2")]),
    "coming-from/kube-rs.md": (
        lambda m: lambda client: m.controller(client).bind(m.reconcile) if hasattr(m, "controller") else m.main(client),
        lambda m: [m.Document.crd(), m.Document(name="a", namespace="default", spec=m.DocumentSpec("t", "text"))]),
    "production/security.md": (
        lambda m: m.main,
        lambda m: [m.Password.crd(), m.Password(name="db", namespace="default", spec=m.PasswordSpec())]),
    "testing/finding-bugs.md": (
        lambda m: m.main,
        lambda m: [m.Shelf.crd(), m.Shelf(name="a", namespace="default", spec=m.ShelfSpec())]),
}


@pytest.mark.parametrize("guide", sorted(GUIDES))
def test_the_operator_of_a_guide(guide: str, tmp_path: Path) -> None:
    module = load(guide, tmp_path)
    build, objects = GUIDES[guide]
    world = World()
    world.server.load(objects(module))
    if guide == "webhooks.md":
        with_authority(world, module.app, "orders", service="shop/orders")
    assert_empty(world, build(module), tmp_path)
