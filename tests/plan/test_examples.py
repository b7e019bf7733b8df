"""The plan of the running version is empty: for every example that is an operator, and the operators of the guides."""
from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import admission
import configmapgen_controller as generator
import cronjob
import database_operator
import namespace_policy
import pytest
import secret_syncer
import stateful_database
import web_operator
from elected_replicas import manager

from kubectl_runtime import Api, Client, Controller, LeaderElection, Patch, apply_crd
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.crd import merge_crds
from kubectl_runtime.manifests.documents import read_objects
from kubectl_runtime.objects import GoDuration, LabelSelector
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.resources import ConfigMap, Namespace, Node, Secret, StatefulSet
from kubectl_runtime.webhooks import apply_webhooks
from tests.examples.programs import ROOT, blocks
from tests.plan.conftest import World

Build = Callable[[Client], Any]
GUIDE = ROOT / "examples" / "guides"


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


def test_the_cron_jobs(tmp_path: Path) -> None:
    world = World()
    apply_crd(world.client, cronjob.CronJob)
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "tick"}]}}
    for name, schedule in (("monthly", "0 0 1 * *"), ("wrong", "never")):
        Api.namespaced(world.client, cronjob.CronJob, "default").create({
            "metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": pods}}}})
    assert_empty(world, cronjob.operator, tmp_path)


def test_the_jobs_of_the_next_minutes_are_what_a_plan_shows_of_a_schedule() -> None:
    world = World()
    apply_crd(world.client, cronjob.CronJob)
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "tick"}]}}
    Api.namespaced(world.client, cronjob.CronJob, "default").create({
        "metadata": {"name": "a"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": pods}}}})
    world.run(cronjob.operator, 300)
    found = plan(cronjob.operator, Snapshot.read(world.client, cronjob.operator), until=1000)
    assert [round(job.at) for job in found.created] == [240, 540, 840], str(found)
    assert len(found.deleted) == 1  # three that succeeded are kept
    assert not found.failed
    world.sim.close()


def test_the_websites(tmp_path: Path) -> None:
    def build(client: Client) -> Any:
        return web_operator.controller(client).bind(web_operator.Serve())

    world = World()
    apply_crd(world.client, web_operator.Website)
    for name, expose in (("a", True), ("b", False)):
        Api.namespaced(world.client, web_operator.Website, "default").create(web_operator.Website(
            name=name, spec=web_operator.Spec(image="nginx", replicas=2, settings={"KEY": "value"}, expose=expose)))
    assert_empty(world, build, tmp_path)


def test_the_stateful_database(tmp_path: Path) -> None:
    world = World()
    apply_crd(world.client, stateful_database.Postgres)
    Api.namespaced(world.client, stateful_database.Postgres, "default").create(
        stateful_database.Postgres(name="a", spec=stateful_database.Spec(replicas=2)))
    assert_empty(world, stateful_database.operator, tmp_path)


def test_the_admission_example(tmp_path: Path) -> None:
    world = World()
    with_authority(world, admission.app, "pod-policy", url="https://127.0.0.1:9443")
    assert_empty(world, admission.main, tmp_path)


def with_authority(world: World, app: Any, name: str, **where: str) -> None:
    """What its server applies when it starts, with its authority; controllers alone run in a simulation."""
    apply_webhooks(world.client, app, name, field_manager=name, ca_bundle=Authority("webhooks").pem, **where)


def module_of(guide: str, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "") -> Any:
    """The program of a guide: the module `name`, or its first block. Its other modules can be imported, too."""
    texts = blocks(ROOT / guide if guide == "README.md" else GUIDE / guide, "python")
    if guide.startswith("coming-from/kopf-"):
        texts = [*blocks(GUIDE / "coming-from/kopf.md", "python"), *texts]
    names = [found[1] if (found := re.match(r"# (\w+)\.py\n", text)) else f"block_{number}"
             for number, text in enumerate(texts)]
    for module, text in zip(names, texts, strict=True):
        (folder / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)  # one of them writes a file
    return importlib.import_module(name or names[0])


class Provider:
    def publish(self, host: str, address: str) -> None:
        pass

    def create_bucket(self, name: str) -> None:
        pass


def bound(*reconciler: str, context: Callable[[Any], Any] = lambda module: None) -> Callable[[Any], Build]:
    """A build of the module's controller with its reconciler: a function or a class."""
    def build_of(module: Any) -> Build:
        found = getattr(module, reconciler[0])
        return lambda client: module.controller(client).bind(found() if isinstance(found, type) else found,
                                                             context=context(module))
    return build_of


def main_of(module: Any) -> Build:
    return module.main  # type: ignore[no-any-return]


def labelled(name: str, **labels: str) -> dict[str, Any]:
    """A Deployment."""
    pods = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": name, "namespace": "default", "labels": labels}, "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": pods}}


def things(module: Any) -> list[Any]:
    kind = sys.modules["things"].Thing
    return [kind.crd(), kind(name="a", namespace="default", spec=sys.modules["things"].ThingSpec(3, "red"))]


def of_things(module: Any) -> Build:
    return lambda client: Controller(Api.all(client, sys.modules["things"].Thing), name="things").bind(module.reconcile)


def certificates(module: Any) -> list[Any]:
    return [*(obj for obj, _ in read_objects(blocks(GUIDE / "third-party-crds.md", "yaml")[0])), {
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"secretName": "web", "dnsNames": ["a.org"], "duration": "24h"}}]


def pods_on_nodes(module: Any) -> list[Any]:
    return [Node(name="one"), Node(name="two"), {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}}]


PROGRAMS: dict[str, tuple[Callable[[Any], Build], Callable[[Any], list[Any]]]] = {
    "README.md greeter": (
        lambda m: lambda client: Controller(Api.all(client, Namespace), name="greeter").owns(
            Api.all(client, ConfigMap)).bind(m.Greet()),
        lambda m: []),
    "children.md pages": (
        main_of,
        lambda m: [m.Site.crd(), m.Site(name="a", namespace="default", spec=m.SiteSpec(pages={"home": "hello"}))]),
    "coming-from/client-go.md sites_operator": (
        lambda m: m.manager,
        lambda m: [m.Site.crd(), m.Site(name="a", namespace="default", spec=m.SiteSpec("nginx", 2))]),
    "deletion-and-finalizers.md": (
        bound("SiteReconciler", context=lambda m: m.Dns()),
        lambda m: [m.Site.crd(), m.Site(name="shop", namespace="default", spec=m.SiteSpec(host="shop.example.com"))]),
    "errors-and-backoff.md dns_names": (
        bound("Publish", context=lambda m: Provider()),
        lambda m: [m.Name.crd(), m.Name(name="a", namespace="default", spec=m.NameSpec("a.example.org", "10.0.0.1"))]),
    "first-controller.md": (
        main_of,
        lambda m: [m.Greeting.crd(), m.Greeting(name="ada", namespace="default", spec=m.GreetingSpec("Ada", 2))]),
    "predicates-and-triggers.md sites": (
        bound("show", context=lambda m: {}),
        lambda m: [m.Site.crd(), ConfigMap(name="defaults", namespace="kube-public", data={"text": "hello"}),
                   m.Site(name="a", namespace="default", spec=m.SiteSpec())]),
    "project-layout.md shop_operator": (
        main_of,
        lambda m: [*(getattr(sys.modules["shop_kinds"], kind).crd() for kind in ("Shop", "Order")), *(
            {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": kind.lower(), "namespace": "default"},
             "spec": spec} for kind, spec in (("Shop", {"title": "x"}), ("Order", {"shop": "shop"})))]),
    "provider-limits.md buckets": (
        bound("Create", context=lambda m: m.Gate(Provider())),
        lambda m: [m.Bucket.crd(), m.Bucket(name="a", namespace="default", spec=m.BucketSpec("a"))]),
    "relations.md banner": (
        bound("Copy"),
        lambda m: [m.Banner.crd(), m.Banner(name="red", spec=m.BannerSpec("red!")),
                   Namespace(name="shop", labels={m.WANTS: "red"})]),
    "schedules.md dumps": (
        bound("Schedule"),
        lambda m: [m.Dump.crd(), m.Dump(name="a", namespace="default", spec=m.DumpSpec(every=GoDuration("24h")))]),
    "server-side-apply-and-conditions.md backup": (
        bound("Save"),
        lambda m: [m.Backup.crd(), m.Backup(name="a", namespace="default", spec=m.BackupSpec("orders"))]),
    "several-namespaces.md cost_centres": (
        bound("book"),
        lambda m: [Namespace(name="team-a", annotations={m.COSTS: "17"}),
                   ConfigMap(name="app", namespace="team-a", labels={"billed": "yes"})]),
    "third-party-crds.md cert_counts": (bound("count"), certificates),
    "web-application.md teams": (
        lambda m: lambda client: m.Teams(client).controller.bind(m.write_summary),
        lambda m: [labelled("web", team="red"), labelled("shop", team="red"), labelled("other")]),
    "webhooks.md": (
        main_of,
        lambda m: [merge_crds([m.OrderV1.crd(), m.OrderV2.crd()], stored="v2")]),
    "coming-from/kube-rs.md documents": (
        lambda m: lambda client: m.controller(client).bind(m.reconcile) if hasattr(m, "controller") else m.main(client),
        lambda m: [m.Document.crd(), m.Document(name="a", namespace="default", spec=m.DocumentSpec("t", "text"))]),
    **{f"coming-from/{guide}.md {name}": (of_things, things) for guide, name in (
        ("kopf", "ours_size"), ("kopf", "ours_color"), ("kopf", "ours_resume"),
        ("kopf-timers-and-daemons", "ours_errors"))},
    "production/availability-and-scaling.md": (
        lambda m: lambda client: m.elected(client, LeaderElection("stamps", "default", identity="one")),
        lambda m: [ConfigMap(name="a", namespace="default")]),
    "production/before-you-upgrade.md shops": (
        main_of,
        lambda m: [m.Shop.crd(), m.Shop(name="corner", namespace="default", spec=m.ShopSpec())]),
    "production/observability.md": (
        lambda m: lambda client: Controller(Api.all(client, ConfigMap), name="sizes").bind(m.reconcile),
        lambda m: [ConfigMap(name="a", namespace="default")]),
    "production/optimization.md pods_per_node": (bound("count"), pods_on_nodes),
    "production/security.md passwords": (
        main_of,
        lambda m: [m.Password.crd(), m.Password(name="db", namespace="default", spec=m.PasswordSpec())]),
    "production/your-own-metrics.md pages_metrics": (
        lambda m: m.manager,
        lambda m: [ConfigMap(name="a", namespace="default", data={"text": "hello"})]),
    "testing/finding-bugs.md shelves": (
        main_of,
        lambda m: [m.Shelf.crd(), m.Shelf(name="a", namespace="default", spec=m.ShelfSpec())]),
    "testing/finding-bugs.md recorded_shelves": (
        main_of,
        lambda m: [m.Shelf.crd(), m.Shelf(name="a", namespace="default", spec=sys.modules["shelves"].ShelfSpec())]),
}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_the_operator_of_a_guide(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide, _, name = program.partition(" ")
    module = module_of(guide, tmp_path, monkeypatch, "" if guide == "README.md" else name)
    build_of, objects = PROGRAMS[program]
    build, world = build_of(module), World()
    world.server.load(objects(module))
    if guide == "webhooks.md":
        with_authority(world, module.app, "orders", service="shop/orders")
    assert_empty(world, build, tmp_path)


ENDLESS: dict[str, Callable[[Plan], bool]] = {
    "coming-from/kopf-several-handlers.md ours_together": lambda found: bool(found.loops),
    "coming-from/kopf-timers-and-daemons.md ours_timer": lambda found: bool(found.loops),
    "coming-from/kopf-timers-and-daemons.md ours_daemon": lambda found: "127.0.0.1:8099" in str(found.unknown)}
"""Programs that change something with each run, or reach something outside: their plan says so."""


@pytest.mark.parametrize("program", sorted(ENDLESS))
def test_a_program_that_never_rests_or_reaches_out(program: str, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    guide, _, name = program.partition(" ")
    module, world = module_of(guide, tmp_path, monkeypatch, name), World()
    build = module.main if hasattr(module, "main") else of_things(module)
    world.server.load(things(None))
    assert ENDLESS[program](plan(build, Snapshot.read(world.client, build)))
    world.sim.close()


def test_no_operator_of_a_document_is_forgotten() -> None:
    tried = [program.split(" ") if " " in program else [program, ""] for program in (*PROGRAMS, *ENDLESS)]
    parts = {"README.md": 1, "project-layout.md": 1, "production/outages.md": 0}
    """Documents whose tried program has several blocks, or none."""
    for document in {"README.md", *(str(path.relative_to(GUIDE)) for path in GUIDE.rglob("*.md"))}:
        texts = blocks(ROOT / document if document == "README.md" else GUIDE / document, "python")
        found = [named[1] if (named := re.match(r"# (\w+)\.py\n", text)) else "" for text in texts
                 if re.search(r"\b(Controller|Manager|def reconcile)\(", text) and "def test_" not in text]
        if document in parts:
            assert len([one for one in tried if one[0] == document]) == parts[document]
        else:
            assert sorted(found) == sorted(name for guide, name in tried if guide == document), document


NOT_PLANNED = {"composite_controller.py": "its runs start controllers, which have threads and time of their own"}
"""As the guide says of such programs."""


def test_no_operator_of_the_examples_is_forgotten() -> None:
    here = Path(__file__).read_text()
    for file in (ROOT / "examples").glob("*.py"):
        if file.name not in NOT_PLANNED and re.search(r"\b(Controller|Manager)\(", file.read_text()):
            assert re.search(rf"^(import|from) {file.stem}\b", here, re.MULTILINE), file
