"""Deployments and their like, Jobs, autoscalers, disruption budgets."""

from __future__ import annotations

import pytest

from tests.apiserver.kinds.kindapi import Api, Maker, pod_spec


def test_replicas_and_update_strategies_have_defaults(api: Api, workload: Maker) -> None:
    assert api.made(workload("ReplicaSet"))["spec"]["replicas"] == 1
    daemons = api.made(workload("DaemonSet"))["spec"]
    assert daemons["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    recreated = api.made(workload(strategy={"type": "Recreate"}))["spec"]
    assert recreated["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(("more", "field"), [
    ({"selector": {}}, "spec.selector"), ({"minReadySeconds": 700}, "spec.progressDeadlineSeconds"),
    ({"strategy": {"type": "Odd"}}, "spec.strategy"),
    ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
     "spec.strategy.rollingUpdate.maxUnavailable"),
    ({"template": {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(restartPolicy="Never")}},
     "spec.template.spec.restartPolicy"),
    ({"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}},
     "spec.selector.matchExpressions[0].values"),
])
def test_an_invalid_deployment_is_refused_with_the_field(api: Api, workload: Maker, more: dict[str, object],
                                                         field: str) -> None:
    refused = api.create(workload(**more))
    assert refused.status == 422
    assert field in [name for name, _ in refused.causes()]


def test_status_and_labels_raise_no_generation_annotations_of_a_deployment_do(api: Api, workload: Maker) -> None:
    for kind, after_annotation in (("Deployment", 2), ("ReplicaSet", 1)):
        made = api.made(workload(kind, name="g"))
        assert api.merge(made, {"status": {"replicas": 1}}, "status").body["metadata"]["generation"] == 1
        assert api.merge(made, {"metadata": {"labels": {"a": "b"}}}).body["metadata"]["generation"] == 1
        changed = api.merge(made, {"metadata": {"annotations": {"a": "b"}}}).body
        assert changed["metadata"]["generation"] == after_annotation


def test_most_of_a_stateful_set_is_fixed(api: Api, workload: Maker) -> None:
    made = api.made(workload("StatefulSet", serviceName="s", volumeClaimTemplates=[
        {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                "resources": {"requests": {"storage": "1Gi"}}}}]))
    claim = made["spec"]["volumeClaimTemplates"][0]
    assert (claim["kind"], claim["spec"]["volumeMode"], claim["status"]) == (
        "PersistentVolumeClaim", "Filesystem", {"phase": "Pending"})
    assert api.merge(made, {"spec": {"replicas": 3}}).status == 200
    refused = api.merge(made, {"spec": {"serviceName": "other"}})
    assert refused.status == 422
    assert refused.causes()[0][1].startswith("Forbidden: updates to statefulset spec for fields other than 'replicas'")


def test_scale_shows_the_selector_as_text_and_sets_replicas(api: Api, workload: Maker) -> None:
    made = api.made(workload("StatefulSet", serviceName="s"))
    path = api.path(made, "a") + "/scale"
    assert api("GET", path).body["status"] == {"replicas": 0, "selector": "app=a"}
    api("PATCH", path, {"spec": {"replicas": 4}}, content_type="application/merge-patch+json")
    assert api("GET", api.path(made, "a")).body["spec"]["replicas"] == 4


def test_a_job_selects_its_pods_by_its_uid(api: Api) -> None:
    made = api.made({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                     "spec": {"template": {"spec": pod_spec(restartPolicy="Never")}}})
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"]["job-name"] == "j"
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"], spec["completionMode"]) == (
        1, 1, 6, "NonIndexed")
    refused = api.merge(made, {"spec": {"completions": 2}})
    assert refused.causes() == [("spec.completions", "Invalid value: 2: field is immutable")]


def test_a_job_that_would_never_end_is_refused(api: Api) -> None:
    refused = api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                          "spec": {"template": {"spec": pod_spec()}}})
    assert refused.causes() == [("spec.template.spec.restartPolicy",
                                 'Required value: valid values: "OnFailure", "Never"')]


def test_a_cron_job_needs_a_schedule_and_a_short_name(api: Api) -> None:
    job = {"spec": {"template": {"spec": pod_spec(restartPolicy="Never")}}}
    base = {"apiVersion": "batch/v1", "kind": "CronJob"}
    made = api.made({**base, "metadata": {"name": "c"}, "spec": {"schedule": "@daily", "jobTemplate": job}})
    assert (made["spec"]["concurrencyPolicy"], made["spec"]["failedJobsHistoryLimit"]) == ("Allow", 1)
    assert "completions" not in made["spec"]["jobTemplate"]["spec"]
    refused = api.create({**base, "metadata": {"name": "c" * 53}, "spec": {"schedule": "* *", "jobTemplate": job}})
    assert [field for field, _ in refused.causes()] == ["spec.schedule", "metadata.name"]


def test_an_autoscaler_is_the_same_object_in_both_versions(api: Api) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    made = api.made({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
                     "spec": {"maxReplicas": 3, "scaleTargetRef": target}})
    old = {**made, "apiVersion": "autoscaling/v1"}
    assert api("GET", api.path(old, "h")).body["spec"]["targetCPUUtilizationPercentage"] == 80
    api.merge(old, {"spec": {"targetCPUUtilizationPercentage": 50}})
    metrics = api("GET", api.path(made, "h")).body["spec"]["metrics"]
    assert metrics == [{"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]


def test_a_disruption_budget_has_one_bound(api: Api) -> None:
    refused = api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
                          "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}})
    assert refused.causes()[0][1].endswith("minAvailable and maxUnavailable cannot be both set")


def test_an_apply_that_only_defaults_make_equal_changes_nothing(api: Api, workload: Maker) -> None:
    applied = workload("StatefulSet", serviceName="s", volumeClaimTemplates=[
        {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                "resources": {"requests": {"storage": "1024Mi"}}}}])

    def apply() -> str:
        answer = api("PATCH", api.path(applied, "a"), applied, query={"fieldManager": "m"},
                     content_type="application/apply-patch+yaml")
        assert answer.status in (200, 201), answer.body
        return str(answer.body["metadata"]["resourceVersion"])

    first = apply()
    api.clock.advance(5)
    assert apply() == first


@pytest.mark.parametrize(("kind", "first"), [
    ("Deployment", "spec.template.metadata.labels"), ("ReplicaSet", "spec.template.metadata.labels"),
    ("DaemonSet", "spec.selector")])
def test_the_order_of_the_causes_of_another_selector(api: Api, workload: Maker, kind: str, first: str) -> None:
    made = api.made(workload(kind))
    refused = api.merge(made, {"spec": {"selector": {"matchLabels": {"z": "1", "b": "2"}}, "minReadySeconds": -1}})
    causes = refused.causes()
    assert causes[0][0] == first
    assert {name for name, _ in causes} >= {"spec.selector", "spec.template.metadata.labels", "spec.minReadySeconds"}
    assert dict(causes)["spec.selector"] == (
        'Invalid value: {"matchLabels":{"app":"a","b":"2","z":"1"}}: field is immutable')
