"""Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import (
    BuiltinStrategy,
    immutable_causes,
    non_negative,
    one_of,
    put_default,
)
from kubectl_runtime.testing.apiserver.kinds.podspec import default_pod_spec
from kubectl_runtime.testing.apiserver.kinds.podspec_validation import template_causes
from kubectl_runtime.testing.apiserver.names import dns_subdomain_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

CONTROLLER_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_LABELS = {CONTROLLER_UID: "controller-uid", JOB_NAME: "job-name"}
_MAX_CRON_NAME = 52  # the controller adds eleven characters for the names of Jobs


class JobStrategy(BuiltinStrategy):
    """Jobs: the selector is generated from the uid unless manualSelector is set."""

    has_status = True
    has_generation = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "status.successful": lambda obj: str((obj.get("status") or {}).get("succeeded", 0))}

    def default(self, obj: Object) -> None:
        """One completion, six retries; labels from the template."""
        spec = obj["spec"]
        template = spec.setdefault("template", {})
        default_pod_spec(template.setdefault("spec", {}))
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        put_default(spec, "parallelism", 1)
        put_default(spec, "backoffLimit", 2**31 - 1 if spec.get("backoffLimitPerIndex") is not None else 6)
        put_default(spec, "completionMode", "NonIndexed")
        put_default(spec, "suspend", False)
        put_default(spec, "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
        labels = (template.get("metadata") or {}).get("labels")
        if labels and not obj.setdefault("metadata", {}).get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The selector and its labels."""
        super().prepare_create(obj, ctx)
        spec, metadata = obj["spec"], obj["metadata"]
        if spec.get("manualSelector"):
            return
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for key, value in ((CONTROLLER_UID, metadata.get("uid", "")), (JOB_NAME, metadata.get("name", ""))):
            labels[key] = labels[_OLD_LABELS[key]] = value
        selector = spec.setdefault("selector", {})
        selector.setdefault("matchLabels", {})[CONTROLLER_UID] = metadata.get("uid", "")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Counts, template, and a restart policy under which a Job can end."""
        return job_spec_causes(obj["spec"], "spec")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Selector, template and completion mode do not change; completions only of an Indexed Job."""
        if subresource == "status":
            return []
        keys = ["selector", "template", "completionMode", "podFailurePolicy"]
        if new["spec"].get("suspend") and old["spec"].get("suspend"):
            keys.remove("template")  # a suspended Job may be re-targeted before it starts
        if new["spec"].get("completionMode") != "Indexed":
            keys.insert(0, "completions")
        return job_spec_causes(new["spec"], "spec") + immutable_causes(new["spec"], old["spec"], keys)

    def default_orphans(self, obj: Object) -> bool:
        """batch/v1 Jobs are older than garbage collection: a delete without a policy orphans their Pods."""
        return True


def job_spec_causes(spec: Object, path: str) -> list[Cause]:
    """What is wrong with a Job's spec."""
    causes = [cause for key in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
                                "ttlSecondsAfterFinished") for cause in non_negative(spec, key, path)]
    causes += one_of(spec.get("completionMode"), ("NonIndexed", "Indexed"), f"{path}.completionMode")
    causes += template_causes(spec.get("template") or {}, f"{path}.template")
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        causes.append(errors.not_supported(f"{path}.template.spec.restartPolicy", policy, ("OnFailure", "Never")))
    return causes


class CronJobStrategy(BuiltinStrategy):
    """CronJobs; the schedule is checked for its five parts only."""

    has_status = True
    has_generation = True

    def default(self, obj: Object) -> None:
        """History limits, concurrency."""
        spec = obj["spec"]
        put_default(spec, "concurrencyPolicy", "Allow")
        put_default(spec, "suspend", False)
        put_default(spec, "successfulJobsHistoryLimit", 3)
        put_default(spec, "failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
        default_pod_spec(template.setdefault("spec", {}))

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """Short enough that Jobs can be named after it."""
        found = dns_subdomain_errors(name, prefix=prefix)
        if len(name) > _MAX_CRON_NAME:
            found.append(f"must be no more than {_MAX_CRON_NAME} characters")
        return found

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Schedule, policies and the template of the Jobs."""
        spec = obj["spec"]
        causes = []
        schedule = spec.get("schedule", "")
        if not schedule:
            causes.append(errors.required("spec.schedule"))
        elif not schedule.startswith("@") and len(schedule.split()) != 5:
            parts = schedule.split()
            causes.append(errors.invalid_value("spec.schedule", schedule, "expected exactly 5 fields, found "
                                               f"{len(parts)}: [{' '.join(parts)}]"))
        causes += non_negative(spec, "startingDeadlineSeconds", "spec")
        causes += one_of(spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy")
        causes += job_spec_causes((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
        for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            causes += non_negative(spec, key, "spec")
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource == "status" else self.validate_create(new, ctx)
