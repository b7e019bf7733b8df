"""Jobs and CronJobs: generated selectors, what may change, schedules."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver.kinds import batch
from tests.apiserver.kinds.kindapi import Api, pod_spec


def job(name: str = "a", template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": template or {"spec": pod_spec(restartPolicy="Never")}, **spec}}


def cron_job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": job()["spec"]}, **spec}}


def test_a_job_gets_the_labels_of_its_template_in_the_answer_to_its_creation(api: Api) -> None:
    made = api.made(job())
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"] == labels
    assert labels["job-name"] == labels["batch.kubernetes.io/job-name"] == "a"
    assert "f:labels" not in str(made["metadata"]["managedFields"][0]["fieldsV1"].get("f:metadata"))


GENERATED = {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}


@pytest.mark.parametrize(("own", "of_template", "expected"), [
    ({}, {"a": "b"}, {"a"} | GENERATED),
    ({"x": "y"}, {"a": "b"}, {"x"}),
    ({}, {}, GENERATED),
    ({}, {"job-name": "a"}, GENERATED),
])
def test_a_job_without_labels_shares_those_of_its_template(
        api: Api, own: dict[str, str], of_template: dict[str, str], expected: set[str]) -> None:
    sent = job(template={"metadata": {"labels": of_template}, "spec": pod_spec(restartPolicy="Never")})
    made = api.made({**sent, "metadata": {"name": "a", "labels": own}})
    assert made["metadata"]["labels"].keys() == expected
    assert made["spec"]["template"]["metadata"]["labels"].keys() == of_template.keys() | GENERATED


@pytest.mark.parametrize(("name", "of_template", "fields"), [
    ("n" * 64, {"a": "b"}, ["metadata.labels"] * 2 + ["spec.template.labels"] * 2),
    ("n" * 64, {}, ["spec.template.labels"] * 2),
    ("a.", {"a": "b"}, ["metadata.name"] + ["metadata.labels"] * 2 + ["spec.template.labels"] * 2),
    ("a_b", {"a": "b"}, ["metadata.name"]),
])
def test_a_name_that_is_no_label_value_is_refused_at_each_label_that_shows_it(
        api: Api, name: str, of_template: dict[str, str], fields: list[str]) -> None:
    template = {"metadata": {"labels": of_template}, "spec": pod_spec(restartPolicy="Never")}
    assert [field for field, _ in api.create(job(name, template)).causes()] == fields


def test_a_job_that_is_created_from_what_was_read_of_another_is_refused(api: Api) -> None:
    made = api.made(job())
    refused = api.create({**job("b"), "spec": made["spec"]})
    uid, old_uid = "batch.kubernetes.io/controller-uid", "controller-uid"
    assert [field for field, _ in refused.causes()] == [
        *(f"spec.template.metadata.labels[{name}]"
          for name in (old_uid, "job-name", uid, "batch.kubernetes.io/job-name")), "spec.selector"]


def test_a_selector_of_ones_own_needs_manual_selector(api: Api) -> None:
    selector = {"matchLabels": {"own": "x"}}
    refused = api.create(job(selector=selector))
    assert [(field, message.rpartition(": ")[2]) for field, message in refused.causes()] == [
        ("spec.selector", "`selector` not auto-generated"),
        ("spec.template.metadata.labels", "`selector` does not match template `labels`")]
    template = {"metadata": {"labels": {"own": "x"}}, "spec": pod_spec(restartPolicy="Never")}
    made = api.made(job(template=template, selector=selector, manualSelector=True))
    assert made["spec"]["selector"] == selector


@pytest.mark.parametrize(("spec", "field"), [
    ({"completionMode": "Indexed", "parallelism": 2}, "spec.completions"),
    ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex"),
    ({"podReplacementPolicy": "Never"}, "spec.podReplacementPolicy"),
    ({"template": {"spec": pod_spec()}}, "spec.template.spec.restartPolicy"),
])
def test_an_invalid_job_is_refused_with_the_field(api: Api, spec: dict[str, Any], field: str) -> None:
    assert [name for name, _ in api.create(job(**spec)).causes()] == [field]


def test_completions_change_only_with_the_parallelism_of_an_indexed_job(api: Api) -> None:
    plain, indexed = api.made(job()), api.made(job("b", completionMode="Indexed", completions=2, parallelism=2))
    assert api.merge(plain, {"spec": {"completions": 3}}).causes()[0][1].endswith("field is immutable")
    assert api.merge(indexed, {"spec": {"completions": 3}}).causes()[0][1].endswith("in tandem with spec.parallelism")
    assert api.merge(indexed, {"spec": {"completions": 3, "parallelism": 3}}).status == 200


def test_deleting_a_job_without_a_policy_warns_that_its_pods_stay(api: Api) -> None:
    path = api.path(api.made(job()), "a")
    assert "child pods are preserved by default" in api("DELETE", path).headers["warning"]
    api.made(job("b"))
    assert "warning" not in api("DELETE", path[:-1] + "b", query={"propagationPolicy": "Background"}).headers


@pytest.mark.parametrize(("schedule", "wrong"), [
    ("", "found 0: []"), ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
    ("60 * * * *", "end of range (60) above maximum (59): 60"), ("* * 0 * *", "below minimum (1): 0"),
    ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"), ("*/0 * * * *", "positive number: */0"),
    ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
    ("1-2-3 * * * *", "too many hyphens: 1-2-3"), ("1/2/3 * * * *", "too many slashes: 1/2/3"),
    ("@often", "unrecognized descriptor: @often"), ("@every x", 'time: invalid duration "x"'),
    ("TZ=No/Where 0 0 * * *", "provided bad location No/Where: unknown time zone No/Where"),
])
def test_a_schedule_that_cannot_be_read_is_explained(schedule: str, wrong: str) -> None:
    assert batch.schedule_errors(schedule)[0].endswith(wrong)


@pytest.mark.parametrize("schedule", [
    "*/5 0-23/2 1,15 JAN-mar sun", "? ? ? ? ?", "0/10 * * * *", "@daily", "@every 1h30m", "TZ=UTC 0 0 * * *"])
def test_a_schedule_that_can_be_read_is_none(schedule: str) -> None:
    assert batch.schedule_errors(schedule) == []


@pytest.mark.parametrize(("spec", "field", "wrong"), [
    ({"schedule": ""}, "spec.schedule", "Required value"),
    ({"schedule": "TZ=UTC 0 0 * * *"}, "spec.schedule", "use timeZone field instead"),
    ({"timeZone": "No/Where"}, "spec.timeZone", "unknown time zone No/Where"),
    ({"timeZone": "local"}, "spec.timeZone", "https://www.iana.org/time-zones"),
    ({"concurrencyPolicy": "Odd"}, "spec.concurrencyPolicy", '"Allow", "Forbid", "Replace"'),
    ({"jobTemplate": {"spec": job(selector={})["spec"]}}, "spec.jobTemplate.spec.selector", "will be auto-generated"),
])
def test_an_invalid_cron_job_is_refused_with_the_field(api: Api, spec: dict[str, Any], field: str, wrong: str) -> None:
    causes = api.create(cron_job(**spec)).causes()
    assert [name for name, _ in causes] == [field]
    assert causes[0][1].endswith(wrong)
