"""Applying a set of manifests, over the embedded server: the order, what is waited for, what is told of failures."""
from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, RequestError, TransportError
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.kubectl.apply import apply_manifests, delete_manifests
from kubectl_runtime.kubectl.manifest_run import read_set
from kubectl_runtime.kubectl.report import ManifestReport, ManifestsFailed
from kubectl_runtime.manifests.scalars import ManifestError
from kubectl_runtime.resources import ConfigMap, Deployment, Job, Pod, Service
from kubectl_runtime.runtime import conditions
from kubectl_runtime.runtime.conditions import NeverReady
from kubectl_runtime.runtime.wait import WaitStopped, WaitTimeout
from tests.kubectl.conftest import World


class Widget(CustomResource, group="example.com", version="v1", kind="Widget"):
    spec: dict[str, Any]


class Rival(CustomResource, group="example.com", version="v1", kind="Widget", plural="rivals"):
    """Claims a kind that is taken."""

    spec: dict[str, Any]


WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}, "spec": {}}
SHOP = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
READY = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
         "availableReplicas": 1}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "5 times"}]}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str = "web") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}


def job() -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"},
            "spec": {"template": {"spec": pod}}}


@pytest.fixture
def apply(world: World) -> Callable[..., ManifestReport]:
    def applied(*source: Any, **options: Any) -> ManifestReport:
        return apply_manifests(world.client, source, **{"field_manager": "m", "progress": False, **options})

    return applied


def actions(report: ManifestReport) -> dict[str, str]:
    return {outcome.ref.name: outcome.action for outcome in report}


# The order


def test_what_the_others_need_goes_first_and_the_rest_in_the_order_of_the_source(world: World, apply: Any) -> None:
    report = apply(WIDGET, config_map("b"), Widget.crd(), config_map("a"), SHOP)
    assert world.applied() == ["shop", "widgets.example.com", "w", "b", "a"]
    assert [outcome.ref.name for outcome in report] == ["w", "b", "widgets.example.com", "a", "shop"]
    assert {outcome.action for outcome in report} == {"created"}
    assert report.changed


def test_it_works_over_sockets_at_once(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}')
    with ApiServer() as server, server.client() as client:
        report = apply_manifests(client, [WIDGET, Widget.crd(), tmp_path], field_manager="m", progress=False, wait=30)
        assert Api.namespaced(client, Widget, "shop").get("w").name == "w"
    assert report.outcomes[2].place == f"{tmp_path / 'all.json'}, document 1, line 1"
    assert [outcome.ready for outcome in report] == [None, True, True]


class Size(msgspec.Struct):
    width: int = 1
    height: int = 1


class Box(Resource, group="example.com", version="v1", kind="Box"):
    spec: Size


def test_an_object_of_a_class_owns_no_defaults_of_its_class_as_in_any_apply() -> None:
    box = Box(name="b", spec=Size(width=2))
    (item,) = read_set(box, "default")
    assert item.content["spec"] == {"width": 2}
    (given,) = read_set(box.to_dict(), "default")  # a dict owns what it says
    assert given.content["spec"] == {"width": 2, "height": 1}


def test_a_second_time_changes_nothing(apply: Any) -> None:
    source = [config_map("a", k="v"), Widget.crd(), deployment()]
    apply(*source)
    again = apply(*source)
    assert {outcome.action for outcome in again} == {"unchanged"}
    assert not again.changed
    assert actions(apply(config_map("a", k="other"))) == {"a": "updated"}


def test_a_kind_that_discovery_names_late_is_waited_for(world: World, apply: Any) -> None:
    late = world.server.faults.on(path="/apis/example.com/v1").first(4).answer(404, "404 page not found")
    apply(WIDGET, Widget.crd(), SHOP)
    assert late.taken == 4


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_a_server_that_learns_of_a_kind_later_than_another_is_asked_again(world: World, apply: Any, verb: str) -> None:
    late = world.server.faults.on(verb=verb, path="/apis/example.com/v1/namespaces/*/widgets/w").first(3).answer(
        404, "404 page not found")
    assert actions(apply(SHOP, Widget.crd(), WIDGET))["w"] == "created"
    assert late.taken == 3


def test_but_not_for_ever(world: World, apply: Any) -> None:
    world.server.faults.on(verb="patch", path="/apis/example.com/v1/namespaces/*/widgets/w").answer(
        404, "404 page not found")
    with pytest.raises(ManifestsFailed, match=r"Widget shop/w .*does not serve widgets"):
        apply(SHOP, Widget.crd(), WIDGET, wait=8)
    assert world.clock.monotonic() == pytest.approx(8, abs=1)


def test_a_definition_whose_names_are_taken_is_told_at_once(world: World, apply: Any) -> None:
    apply(Widget.crd())
    with pytest.raises(ManifestsFailed, match="its names are taken") as caught:
        apply(Rival.crd(), config_map("a"))
    assert actions(caught.value.report) == {"rivals.example.com": "created", "a": "created"}
    assert world.clock.monotonic() < 10


def test_what_is_still_being_deleted_is_waited_for_and_made_anew(world: World, apply: Any) -> None:
    maps = world.api(ConfigMap)
    old = maps.create(ConfigMap(name="a", finalizers=["example.com/held"]))
    maps.delete("a")
    world.after_looks(2, "configmaps", lambda: maps.patch("a", Patch.merge({"metadata": {"finalizers": None}})))
    apply(config_map("a"), config_map("b"))
    assert maps.get("a").uid != old.uid
    assert maps.get("a").deletion_timestamp is None
    assert world.applied()[:2] == ["a", "b"]


def test_what_is_being_deleted_for_good_is_told_with_what_holds_it(world: World, apply: Any) -> None:
    world.api(ConfigMap).create(ConfigMap(name="a", finalizers=["example.com/held"]))
    world.api(ConfigMap).delete("a")
    with pytest.raises(ManifestsFailed, match=r"within 7 s: it waits for its finalizers example\.com/held"):
        apply(config_map("a"), wait=7)


def test_namespaces_come_from_the_manifest_else_from_the_caller_else_from_the_client(world: World, apply: Any) -> None:
    apply(SHOP, {**config_map("a"), "metadata": {"name": "a", "namespace": "default"}}, config_map("b"),
          namespace="shop")
    apply(config_map("c"))
    assert world.api(ConfigMap).get_opt("a")
    assert world.api(ConfigMap, "shop").get_opt("b")
    assert world.api(ConfigMap).get_opt("c")


def test_the_namespace_of_a_cluster_scoped_object_is_ignored_as_kubectl_does(apply: Any) -> None:
    stray = {**SHOP, "metadata": {"name": "shop", "namespace": "elsewhere"}}
    assert actions(apply(stray)) == {"shop": "created"}


# Waiting


def test_it_waits_until_all_are_ready(world: World, apply: Any) -> None:
    world.after_looks(3, "deployments", lambda: world.says(Deployment, "web", READY))
    world.after_looks(6, "jobs", lambda: world.says(Job, "migrate", {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:09Z", "succeeded": 1,
        "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}))
    lines = io.StringIO()
    report = apply(deployment(), job(), config_map("a"), wait=100, progress=lines)
    assert [outcome.ready for outcome in report] == [True, True, None]
    assert lines.getvalue().splitlines() == [
        "Deployment default/web created", "Job default/migrate created", "ConfigMap default/a created",
        "waiting for Deployment default/web: its controller has not seen the latest change (and 1 more)",
        "Deployment default/web ready",
        "waiting for Job default/migrate: it is not complete: 0 active, 0 succeeded, 0 failed",
        "Job default/migrate ready"]


def test_what_fails_for_good_is_told_at_once_also_while_another_is_waited_for(world: World, apply: Any) -> None:
    failed = {"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "FailureTarget", "status": "True"}, *FAILED["conditions"]]}
    world.after_looks(2, "jobs", lambda: world.says(Job, "migrate", failed))
    lines = io.StringIO()
    with pytest.raises(ManifestsFailed) as caught:
        apply(deployment(), job(), wait=100, progress=lines)
    told = lines.getvalue().splitlines()
    assert told[-2].startswith("Job default/migrate: the Job failed: BackoffLimitExceeded")
    slow, broken = caught.value.report
    assert isinstance(broken.error, NeverReady)
    assert (broken.action, broken.ready) == ("created", False)
    assert isinstance(slow.error, WaitTimeout)
    assert world.clock.monotonic() == pytest.approx(100, abs=1)


def test_one_deadline_is_for_all_of_them(world: World, apply: Any) -> None:
    begun = world.clock.monotonic()
    with pytest.raises(ManifestsFailed, match=r"2 of 2 objects failed(\n.*not ready within 30 s: its controller.*){2}"):
        apply(deployment("a"), deployment("b"), wait=30)
    assert world.clock.monotonic() - begun == pytest.approx(30, abs=1)


def test_the_last_state_is_told(world: World, apply: Any) -> None:
    apply(deployment())
    world.says(Deployment, "web", {**READY, "readyReplicas": 0, "availableReplicas": 0, "unavailableReplicas": 1})
    with pytest.raises(ManifestsFailed, match="0 of 1 updated replicas are available"):
        apply(deployment(), wait=5)


def test_a_condition_of_ones_own_is_waited_for(world: World, apply: Any) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
               "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    apply(service, wait=5)
    world.after_looks(2, "services", lambda: world.says(Service, "web", {
        "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}))
    report = apply(service, wait=5, ready={"Service": conditions.is_service_loadbalancer_provisioned})
    assert report.outcomes[0].ready
    with pytest.raises(ManifestsFailed, match="within 5 s: condition is_large is not met"):
        apply(WIDGET, Widget.crd(), SHOP, wait=5, ready={"Widget.example.com": is_large})


def is_large(obj: Any) -> bool:
    return bool(obj["spec"].get("size"))


def test_a_condition_that_raises_fails_its_object_alone(apply: Any) -> None:
    with pytest.raises(ManifestsFailed, match="1 of 2 objects failed") as caught:
        apply(config_map("a"), Widget.crd(), wait=5, ready={"ConfigMap": lambda obj: obj["none"]})
    assert isinstance(caught.value.report.failed[0].error, NeverReady)


def test_a_stop_ends_the_wait_and_skips_the_rest(world: World, apply: Any) -> None:
    stop = StopToken(clock=world.clock)
    world.after_looks(2, "deployments", lambda: stop.set("enough"))
    with pytest.raises(ManifestsFailed, match=r"a stop was requested \(enough\)") as caught:
        apply(deployment(), wait=100, stop=stop)
    assert isinstance(caught.value.report.failed[0].error, WaitStopped)
    with pytest.raises(ManifestsFailed, match=r"0 of 1 objects failed, 1 more were not tried: .*\(enough\)"):
        apply(config_map("a"), stop=stop)


# Failures


def test_one_failure_keeps_no_other_from_being_tried(world: World, apply: Any) -> None:
    bad = f"{config_map('ok')}\n---\n" + """
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec: {containers: []}
---
{apiVersion: example.org/v1, kind: Gizmo, metadata: {name: g}}
---
{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: old}}
"""
    with pytest.raises(ManifestsFailed) as caught:
        apply(bad, config_map("last"))
    assert actions(caught.value.report) == {
        "ok": "created", "bad": "failed", "g": "failed", "old": "failed", "last": "created"}
    head, pod, gizmo, old = str(caught.value).splitlines()
    assert head == "apply: 3 of 5 objects failed"
    assert pod.startswith("  Pod default/bad (the YAML text, document 2, line 4): apply pods default/bad: ")
    assert gizmo == ("  Gizmo g (the YAML text, document 3, line 9): the server does not serve the kind Gizmo in "
                     "example.org/v1: install its CRD, or add the CRD to the manifests")
    assert old.endswith("the server does not serve the kind Deployment in apps/v1beta1: use apps/v1")
    assert isinstance(caught.value.report.failed[1].error, DiscoveryError)


@pytest.mark.parametrize(("source", "said"), [
    ([config_map("a"), {"kind": "ConfigMap"}], "object 2: an object needs an apiVersion and a kind"),
    ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}}], "object 1: a Pod with a generateName"),
    ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}}], "quote a number"),
    ([{"apiVersion": "v1", "kind": "Pod"}], "object 1: a Pod needs metadata"),
    ([{"apiVersion": "a/b/c", "kind": "Pod", "metadata": {"name": "a"}}], "object 1: malformed apiVersion"),
    ([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}},
      {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "namespace": "b"}}],
     "object 2: Namespace a is already in object 1"),
    ([config_map("a"), config_map("b"), {**config_map("a"), "metadata": {"name": "a", "namespace": "default"}}],
     "object 3: ConfigMap a is already in object 1"),
])
def test_what_is_wrong_without_asking_a_server_sends_nothing(world: World, apply: Any, source: list[Any], said: str
                                                             ) -> None:
    with pytest.raises(RequestError, match=f"nothing was sent.*\n  {said}|nothing was sent(.|\n)*{said}"):
        apply(*source)
    assert len(world.server.requests) == 0


def test_all_that_is_wrong_is_told_together(apply: Any) -> None:
    with pytest.raises(RequestError, match=r"object 1: (.|\n)*object 3: "):
        apply({"kind": "ConfigMap"}, config_map("a"), {"apiVersion": "v1"})


def test_text_that_is_no_manifest_sends_nothing(world: World, apply: Any) -> None:
    with pytest.raises(ManifestError, match=r"document 2, line \d"):
        apply("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n---\na: [\n")
    assert len(world.server.requests) == 0


def test_a_server_without_answer_is_asked_no_more(world: World, apply: Any) -> None:
    world.server.faults.on(verb="patch").drop()
    with pytest.raises(ManifestsFailed, match="1 of 3 objects failed, 2 more were not tried: the server did not answer"
                       ) as caught:
        apply(config_map("a"), config_map("b"), {"apiVersion": "v2", "kind": "None", "metadata": {"name": "c"}})
    assert isinstance(caught.value.report.failed[0].error, TransportError)
    assert actions(caught.value.report) == {"a": "failed", "b": "skipped", "c": "skipped"}


def test_an_empty_set_is_no_error_and_asks_nobody(world: World, apply: Any) -> None:
    assert len(apply("# only a comment\n")) == 0
    assert len(world.server.requests) == 0


def test_a_secret_is_never_quoted(world: World, apply: Any) -> None:
    lines = io.StringIO()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "hunter2!"}}
    with pytest.raises(ManifestsFailed) as caught:
        apply(secret, progress=lines)
    assert "hunter2" not in f"{caught.value}{lines.getvalue()}{caught.value.report!r}"
    assert "withheld" in lines.getvalue()
    assert "hunter2" not in repr(read_set(secret, "default"))


# Ownership of fields


def test_a_conflict_names_the_other_manager_and_force_takes_its_fields(world: World, apply: Any) -> None:
    apply(config_map("a", k="theirs"), field_manager="other")
    with pytest.raises(ManifestsFailed, match=r'conflict with "other": \.data\.k') as caught:
        apply(config_map("a", k="mine"))
    error = caught.value.report.failed[0].error
    assert isinstance(error, ApiError)
    assert [(cause.reason, cause.field) for cause in error.status.causes] == [("FieldManagerConflict", ".data.k")]
    assert len(world.server.requests.select("patch")) == 2  # a conflict is not tried again
    apply(config_map("a", k="mine"), force=True)
    assert world.server.requests.select("patch")[-1].param("force") == "true"
    assert world.api(ConfigMap).get("a").data == {"k": "mine"}


def test_what_this_manager_wrote_by_other_verbs_it_can_apply(world: World, apply: Any) -> None:
    """Managers are names and operations: the same name that created the object is another one. Where the value is the
    same, they own it together; where it is not, that is a conflict."""
    world.api(ConfigMap).create(ConfigMap(name="a", data={"k": "v"}))
    assert actions(apply(config_map("a", k="v"))) == {"a": "updated"}


def test_objects_as_the_server_sent_them_can_be_applied(world: World, apply: Any) -> None:
    apply(config_map("a", k="v"))
    found = world.api(ConfigMap).get("a")
    assert found.metadata.managed_fields
    assert actions(apply(found.to_dict())) == {"a": "unchanged"}
    listed = list(world.api(ConfigMap).list_all())
    assert "updated" not in actions(apply(*(obj for obj in listed if obj.name == "a"))).values()
    [body] = [request.json() for request in world.server.requests.select("patch")[-1:]]
    assert (body["apiVersion"], body["kind"], body["metadata"]) == ("v1", "ConfigMap", {
        "name": "a", "namespace": "default"})


def test_official_models_can_be_applied(apply: Any) -> None:
    models = pytest.importorskip("kubernetes.client")
    metadata = models.V1ObjectMeta(name="a")
    made = models.V1ConfigMap(api_version="v1", kind="ConfigMap", metadata=metadata, data={"k": "v"})
    assert actions(apply(made)) == {"a": "created"}


@pytest.mark.parametrize("manager", ["", "m" * 200, "a\nb"])
def test_a_manager_that_the_server_would_refuse_sends_nothing(world: World, apply: Any, manager: str) -> None:
    with pytest.raises(RequestError, match=r"field.manager"):
        apply(config_map("a"), field_manager=manager)
    assert len(world.server.requests) == 0


def test_the_request_is_a_server_side_apply(world: World, apply: Any) -> None:
    apply(config_map("a"), field_manager="release")
    [request] = world.server.requests.select("patch")
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert dict(request.query) == {"fieldManager": "release"}


# Arguments


def test_ready_without_a_time_and_no_time_at_all_are_refused(world: World, apply: Any) -> None:
    with pytest.raises(RequestError, match="must say for how long"):
        apply(config_map("a"), ready={"ConfigMap": conditions.is_created})
    with pytest.raises(RequestError, match="wait must be more than 0 seconds, not 0"):
        apply(config_map("a"), wait=0)
    assert len(world.server.requests) == 0


def test_a_dry_run_changes_nothing_and_says_what_would_be(world: World, apply: Any) -> None:
    report = apply(config_map("a", k="v"), dry_run=True)
    assert (actions(report), world.api(ConfigMap).get_opt("a")) == ({"a": "created"}, None)
    assert "+  k: v" in report.difference


def test_a_name_that_is_used_in_two_namespaces_is_two_objects(world: World, apply: Any) -> None:
    there = {**config_map("a"), "metadata": {"name": "a", "namespace": "shop"}}
    assert len(apply(config_map("a"), there, SHOP)) == 2 + 1
    assert [api.get("a").namespace for api in (world.api(ConfigMap), world.api(ConfigMap, "shop"))] == [
        "default", "shop"]


def test_a_pod_that_succeeded_is_ready(world: World, apply: Any) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
           "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
    world.after_looks(2, "pods", lambda: world.says(Pod, "once", {"phase": "Succeeded"}))
    assert apply(pod, wait=60).outcomes[0].ready


def test_configurations_of_webhooks_are_applied_last_and_deleted_first() -> None:
    hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "all"}, "webhooks": [{
                "name": "all.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "clientConfig": {"url": "https://127.0.0.1:1/never"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
                           "resources": ["configmaps"]}]}]}
    mutating = {**hook, "kind": "MutatingWebhookConfiguration"}
    with ApiServer() as server, server.client() as client:
        report = apply_manifests(client, [hook, config_map("a"), mutating, config_map("b")], field_manager="m",
                                 progress=False)
        assert [outcome.action for outcome in report.outcomes] == ["created"] * 4
        names = [(entry.method, entry.path.rsplit("/", 2)[-2]) for entry in server.requests if entry.method == "PATCH"]
        assert [name for _, name in names] == ["configmaps", "configmaps", "validatingwebhookconfigurations",
                                               "mutatingwebhookconfigurations"]
        report = delete_manifests(client, [hook, config_map("a"), mutating, config_map("b")], progress=False)
        assert [outcome.action for outcome in report.outcomes] == ["deleted"] * 4


@pytest.mark.parametrize("seconds", [1, 1.5])
def test_a_watch_ends_after_its_time(seconds: float) -> None:
    with ApiServer() as server, server.client() as client:
        maps, began = Api.namespaced(client, ConfigMap, "default"), time.monotonic()
        assert list(maps.watch(resource_version=maps.list().metadata.resource_version, timeout=seconds)) == []
        assert seconds - 0.6 <= time.monotonic() - began < 30
