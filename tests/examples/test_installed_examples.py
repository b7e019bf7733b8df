"""What `kubectl-runtime manifests` prints for the examples is enough for them, and nothing too much.

Each example runs twice: once where everything is allowed, with its rights recorded, and once on a server with RBAC as
the account that its manifests make, started by the arguments that its Deployment gives.
"""
from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Patch
from kubectl_runtime.apiserver.transport.faults.script import RecordedRequest
from kubectl_runtime.apiserver.wire import parse
from kubectl_runtime.cli import manifests
from kubectl_runtime.cli.operator import manager_of
from kubectl_runtime.cli.run_options import RunOptions
from kubectl_runtime.cli.run_options import add_options as add_run_options
from kubectl_runtime.manifests import apply_manifests
from kubectl_runtime.objects import LabelSelector
from kubectl_runtime.resources import ConfigMap, Event, Job, Namespace, NetworkPolicy, Pod, Secret, Service, StatefulSet
from kubectl_runtime.testing import ApiServer, eventually
from kubectl_runtime.testing.rights_recorder import RightsRecorder

QUICK = ["--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms",
         "--leader-elect-retry-period=300ms", "--health-probe-bind-address=0"]
LIMIT = 60


def present(api: Api[Any], name: str) -> None:
    eventually(lambda: api.get_opt(name) is not None, timeout=LIMIT)


def gone(api: Api[Any], name: str) -> None:
    eventually(lambda: api.get_opt(name) is None, timeout=LIMIT)


def has_status(api: Api[Any], name: str) -> None:
    eventually(lambda: (found := api.get_opt(name)) is not None and found.status is not None, timeout=LIMIT)


def generators(client: Client) -> None:
    from configmapgen_controller import ConfigMapGenerator, Spec

    objects = Api.namespaced(client, ConfigMapGenerator, "default")
    objects.create(ConfigMapGenerator(name="a", spec=Spec(content="one")))
    has_status(objects, "a")
    assert Api.namespaced(client, ConfigMap, "default").get("a").data == {"content": "one"}


def jobs(client: Client) -> None:
    from cronjob import OWNER, SCHEDULED_AT, CronJob, CronJobSpec

    objects = Api.namespaced(client, CronJob, "default")
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never",
                                               "containers": [{"name": "a", "image": "busybox"}]}}}}
    made = objects.create({"metadata": {"name": "a"}, "spec": {"schedule": "* * * * *", "jobTemplate": template,
                                                                    "successfulJobsHistoryLimit": 1}})
    assert isinstance(made.spec, CronJobSpec)
    owner = {"apiVersion": "batch.tutorial.kubebuilder.io/v1", "kind": "CronJob", "name": "a", "uid": made.uid,
             "controller": True}
    owned = Api.namespaced(client, Job, "default")
    at = made.creation_timestamp + timedelta(minutes=-9)
    for number in range(2):  # more than it keeps
        name = f"done-{number}"
        owned.create({"metadata": {"name": name, "labels": {OWNER: "a"}, "ownerReferences": [owner],
                                   "annotations": {
            SCHEDULED_AT: (at + timedelta(minutes=number)).isoformat()}},
            **template})
        owned.patch_status(name, Patch.merge({"status": {
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 1,
            "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}}))
    gone(owned, "done-0")
    has_status(objects, "a")
    objects.create({"metadata": {"name": "wrong"}, "spec": {"schedule": "never", "jobTemplate": template}})
    eventually(lambda: Api.namespaced(client, Event, "default").list().items, timeout=LIMIT)


def databases(client: Client) -> None:
    from database_operator import Database, Spec

    objects = Api.namespaced(client, Database, "default")
    objects.create(Database(name="orders", spec=Spec()))
    present(Api.namespaced(client, StatefulSet, "default"), "orders")
    has_status(objects, "orders")
    objects.delete("orders")
    gone(objects, "orders")


def policies(client: Client) -> None:
    from namespace_policy import NamespacePolicy, Spec

    Api.all(client, Namespace).create(Namespace(name="web", labels={"team": "a"}))
    objects = Api.all(client, NamespacePolicy)
    selector = LabelSelector(match_labels={"team": "a"})
    objects.create(NamespacePolicy(name="quiet", spec=Spec(policy={"podSelector": {}}, namespace_selector=selector)))
    present(Api.namespaced(client, NetworkPolicy, "web"), "quiet")
    has_status(objects, "quiet")
    Api.all(client, Namespace).patch("web", Patch.merge({"metadata": {"labels": {"team": "b"}}}))
    gone(Api.namespaced(client, NetworkPolicy, "web"), "quiet")
    objects.delete("quiet")
    gone(objects, "quiet")


def secrets(client: Client) -> None:
    from secret_syncer import SecretSync, Spec

    for name in ("web", "shop"):
        Api.all(client, Namespace).create(Namespace(name=name))
    Api.namespaced(client, Secret, "default").create(Secret(name="password", data={"a": b"one"}))
    objects = Api.namespaced(client, SecretSync, "default")
    objects.create(SecretSync(name="s", spec=Spec(secret="password", namespaces=["web", "shop"]), status=None))
    present(Api.namespaced(client, Secret, "shop"), "password")
    has_status(objects, "s")
    objects.delete("s")
    gone(objects, "s")
    gone(Api.namespaced(client, Secret, "shop"), "password")


def servers(client: Client) -> None:
    from stateful_database import Postgres, Spec

    objects = Api.namespaced(client, Postgres, "default")
    objects.create(Postgres(name="orders", spec=Spec()))
    present(Api.namespaced(client, Service, "default"), "orders")
    present(Api.namespaced(client, StatefulSet, "default"), "orders")
    has_status(objects, "orders")


@dataclass(frozen=True)
class Example:
    program: str
    story: Callable[[Client], None]
    seldom: frozenset[tuple[str, str]] = frozenset()
    """Rights for what the library does rarely, as (resource, verb): it reads an object that is too old to tell what was
    applied or a child that it did not see, patches an event that repeats, and prunes what is no longer named."""


EXAMPLES = [
    Example("configmapgen_controller:operator", generators,
            frozenset({("configmapgenerators", "get"), ("configmaps", "get")})),
    Example("elected_replicas:operator", generators,
            frozenset({("configmapgenerators", "get"), ("configmaps", "get")})),
    Example("cronjob:operator", jobs, frozenset({("events", "patch"), ("cronjobs", "get"), ("jobs", "get")})),
    Example("database_operator:operator", databases,
            frozenset({("events", "patch"), ("statefulsets", "get"), ("services", "get")})),
    Example("namespace_policy:operator", policies, frozenset({("networkpolicies", "get")})),
    Example("secret_syncer:operator", secrets),
    Example("stateful_database:operator", servers,
            frozenset({("postgreses", "get"), *((kind, verb) for kind in ("cronjobs", "statefulsets", "services")
                                                for verb in ("get", "delete"))})),
]
by_program = pytest.mark.parametrize("example", EXAMPLES, ids=[one.program for one in EXAMPLES])


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKUPS", str(tmp_path / "backups"))
    (tmp_path / "backups").mkdir()


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    manifests.add_options(parser)
    return parser.parse_args([*words, "--image", "registry.example.com/operator:1"])


def printed(program: str, *words: str) -> list[dict[str, Any]]:
    return manifests.manifests(arguments(program, *words))


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


@contextmanager
def running(documents: list[dict[str, Any]], client: Client) -> Iterator[None]:
    """The operator as its Deployment starts it, in this process."""
    (container,) = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    options = RunOptions.of(parser.parse_args([*container["command"][2:], *container["args"]]))
    elected = [argument for argument in QUICK if options.leader_elect or not argument.startswith("--leader")]
    module = importlib.import_module(options.program.module)
    if module.__name__ == "elected_replicas":  # its Manager says itself where it serves, and how it is elected
        elected = []
    options = RunOptions.of(parser.parse_args([*container["command"][2:], *container["args"], *elected]))
    manager = manager_of(options, lambda: getattr(module, options.program.name)(client), client)
    started = manager.start()
    try:
        yield
    finally:
        assert started.stop(10) == []


def needed(entry: RecordedRequest) -> Iterator[tuple[str, str]]:
    """What a server asks its authorizer before it does this."""
    info = parse(entry.request)
    if info.resource:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        yield resource, info.verb
        if "apply-patch" in entry.headers.get("content-type", "") and not info.subresource:
            yield resource, "create"


def definitions(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == "CustomResourceDefinition"]


@by_program
def test_the_roles_are_enough_and_nothing_too_much(example: Example, tmp_path: Path) -> None:
    bare = printed(example.program)
    recorder = RightsRecorder()
    with ApiServer(warn_unobeyed=False) as server, server.client() as client:
        server.load(definitions(bare))
        with recorder, running(bare, client):
            example.story(client)
    recorder.write(tmp_path / "rights.json")

    documents = printed(example.program, "--recorded", str(tmp_path / "rights.json"))
    account = of_kind(documents, "ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    with ApiServer(authorization_mode="RBAC", tokens={}, warn_unobeyed=False) as server, server.client() as admin:
        report = apply_manifests(admin, documents, field_manager="install", progress=False)
        assert [outcome for outcome in report.outcomes if outcome.error is not None] == []
        with server.client(user) as seen:
            token = seen.config.token
            with Client(replace(seen.config, default_namespace=account["namespace"])) as client, \
                    running(documents, client):
                example.story(admin)
        own = [entry for entry in server.requests if token and token in entry.headers.get("authorization", "")]
        assert [(entry.verb, entry.path) for entry in own if entry.status == 403] == []
        used = {right for entry in own for right in needed(entry)}
    assert used  # the account's own requests were told from others
    granted = {(resource, verb) for document in documents for rule in document.get("rules") or ()
               for resource in rule["resources"] for verb in rule["verbs"]}
    # OwnerReferencesPermissionEnforcement, an admission plugin that is off here, asks for them
    foreseen = {(resource, "update") for resource, _ in granted if resource.endswith("/finalizers")}
    assert used <= granted
    assert granted - used - foreseen <= example.seldom


@by_program
def test_a_server_takes_the_manifests_twice_without_a_warning(example: Example,
                                                              caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(warn_unobeyed=False) as server, server.client() as admin:
        for _ in range(2):
            apply_manifests(admin, printed(example.program), field_manager="install", progress=False)
        spec = Api.all(admin, Pod).list().items
    assert spec == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
