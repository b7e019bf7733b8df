"""The examples that are controllers end alike, whatever happens to them on the way: here at one point, and at each of
them in `tox -e long`.
"""
from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import database_operator
import namespace_policy
import pytest
import secret_syncer
from configmapgen_controller import ConfigMapGenerator, operator
from configmapgen_controller import Spec as ContentSpec
from elected_replicas import manager

from kubectl_runtime import Api, BoundController, Client, LeaderElection, Manager, Patch
from kubectl_runtime.objects import LabelSelector
from kubectl_runtime.resources import ConfigMap, Namespace, NetworkPolicy, Secret, StatefulSet
from kubectl_runtime.testing import perturb
from tests.examples.programs import ROOT, blocks

at = pytest.mark.parametrize("only", ["crash-after-1", pytest.param(None, marks=pytest.mark.long, id="each point")])


def generators(client: Client) -> None:
    api = Api.namespaced(client, ConfigMapGenerator, "default")
    api.create(ConfigMapGenerator(name="a", spec=ContentSpec(content="one")))
    api.patch("a", Patch.merge({"spec": {"content": "two"}}))
    Api.namespaced(client, ConfigMap, "default").delete("a")
    api.delete("a")


@at
@pytest.mark.timeout(400)
def test_the_configmap_generator_and_its_elected_replica(only: str | None) -> None:
    report = perturb(operator, generators, only=only)
    assert report.ok, str(report)

    def elected(client: Client) -> Manager:
        return manager(client, LeaderElection("configmapgen", "default"))

    report = perturb(elected, generators, only=only)
    assert report.ok, str(report)


@at
@pytest.mark.timeout(400)
def test_the_database_operator(tmp_path: Path, only: str | None) -> None:
    backups = tmp_path / "backups"

    def build(client: Client) -> BoundController[database_operator.Database]:
        return database_operator.controller(client).bind(database_operator.Operate(), context=backups)

    def story(client: Client) -> None:
        shutil.rmtree(backups, ignore_errors=True)
        backups.mkdir()
        databases = Api.namespaced(client, database_operator.Database, "default")
        databases.create(database_operator.Database(name="orders", spec=database_operator.Spec()))
        ready = {"status": {"replicas": 1, "readyReplicas": 1}}
        Api.namespaced(client, StatefulSet, "default").patch_status("orders", Patch.merge(ready))
        databases.patch("orders", Patch.merge({"spec": {"replicas": 2}}))
        databases.delete("orders")
        assert not list(backups.iterdir())

    report = perturb(build, story, only=only)
    assert report.ok, str(report)


@at
@pytest.mark.timeout(400)
def test_the_namespace_policy(only: str | None) -> None:
    def build(client: Client) -> BoundController[namespace_policy.NamespacePolicy]:
        reconciler = namespace_policy.CopyPolicies()
        return namespace_policy.controller(client, reconciler).bind(reconciler)

    def story(client: Client) -> None:
        policies, namespaces = Api.all(client, namespace_policy.NamespacePolicy), Api.all(client, Namespace)
        namespaces.create(Namespace(name="web", labels={"team": "a"}))
        policies.create(namespace_policy.NamespacePolicy(name="quiet", spec=namespace_policy.Spec(
            policy={"podSelector": {}}, namespace_selector=LabelSelector(match_labels={"team": "a"}))))
        namespaces.create(Namespace(name="shop", labels={"team": "a"}))
        Api.namespaced(client, NetworkPolicy, "web").delete("quiet")
        namespaces.patch("shop", Patch.merge({"metadata": {"labels": {"team": "b"}}}))
        policies.delete("quiet")

    report = perturb(build, story, only=only)
    assert report.ok, str(report)


@at
@pytest.mark.timeout(400)
def test_the_guide_on_relations(only: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "examples" / "guides" / "relations.md").read_text()
    banner = ModuleType("banner")
    monkeypatch.setitem(sys.modules, "banner", banner)
    exec(text.partition("```python\n")[2].partition("```")[0], vars(banner))

    def build(client: Client) -> BoundController[Any]:
        bound: BoundController[Any] = banner.controller(client).bind(banner.Copy())
        return bound

    def story(client: Client) -> None:
        spaces, banners = Api.all(client, Namespace), Api.all(client, banner.Banner)
        banners.create(banner.Banner(name="red", spec=banner.BannerSpec(text="red!")))
        spaces.create(Namespace(name="shop", labels={banner.WANTS: "red"}))
        banners.create(banner.Banner(name="blue", spec=banner.BannerSpec(text="blue!")))
        spaces.patch("shop", Patch.merge({"metadata": {"labels": {banner.WANTS: "blue"}}}))
        Api.namespaced(client, ConfigMap, "shop").delete("blue")
        banners.delete("blue")

    report = perturb(build, story, only=only)
    assert report.ok, str(report)


@at
@pytest.mark.timeout(400)
def test_the_secret_syncer(only: str | None) -> None:
    def build(client: Client) -> BoundController[secret_syncer.SecretSync]:
        return secret_syncer.controller(client).bind(secret_syncer.CopySecrets())

    def story(client: Client) -> None:
        for name in ("web", "shop"):
            Api.all(client, Namespace).create(Namespace(name=name))
        secrets = Api.namespaced(client, Secret, "default")
        secrets.create(Secret(name="password", data={"a": b"one"}))
        syncs = Api.namespaced(client, secret_syncer.SecretSync, "default")
        syncs.create(secret_syncer.SecretSync(name="s", spec=secret_syncer.Spec(
            secret="password", namespaces=["web", "shop"]), status=None))
        secrets.patch("password", Patch.merge({"stringData": {"a": "two"}}))
        syncs.patch("s", Patch.merge({"spec": {"namespaces": ["web"]}}))
        syncs.delete("s")

    report = perturb(build, story, only=only)
    assert report.ok, str(report)


@at
@pytest.mark.timeout(400)
def test_the_guide_for_client_go(only: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = ModuleType("sites_operator")
    monkeypatch.setitem(sys.modules, "sites_operator", sites)
    exec(blocks(ROOT / "examples/guides/coming-from/client-go.md", "python")[0], vars(sites))

    def story(client: Client) -> None:
        api = Api.namespaced(client, sites.Site, "default")
        api.create(sites.Site(name="a", spec=sites.SiteSpec("nginx:1")))
        for image in ("nginx:2", "nginx:3"):
            api.patch("a", Patch.merge({"spec": {"image": image}}))

    report = perturb(sites.manager, story, only=only)
    assert report.ok, str(report)
