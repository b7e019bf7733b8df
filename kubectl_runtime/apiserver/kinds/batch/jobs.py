"""Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    fill,
    immutable_causes,
    label_selector,
    non_negative,
    one_of,
    put_default,
)
from kubectl_runtime.apiserver.kinds.batch import cron
from kubectl_runtime.apiserver.kinds.batch.job_validation import INDEXED, job_spec_causes, pod_name_causes
from kubectl_runtime.apiserver.kinds.batch.status import job_status_causes
from kubectl_runtime.apiserver.kinds.pod.pod_defaults import default_pod_spec
from kubectl_runtime.apiserver.kinds.pod.warnings import name_warnings, template_warnings
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

CONTROLLER_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_LABELS = {CONTROLLER_UID: "controller-uid", JOB_NAME: "job-name"}
_MAX_CRON_NAME = 52  # the controller adds eleven characters for the names of Jobs


class JobStrategy(BuiltinStrategy):
    """Jobs: the selector is generated from the uid unless manualSelector is set."""

    has_status = True
    has_generation = True
    delete_warning = ("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
                      "remove them or set propagationPolicy=Orphan to suppress this warning")
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "status.successful": lambda obj: str((obj.get("status") or {}).get("succeeded", 0))}
    unsupported_field = 'field label "{}" not supported for Job'

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
        put_default(spec, "manualSelector", False)
        put_default(spec, "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                fill(pattern, status="True")
        _default_labels(obj)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The selector and its labels."""
        super().prepare_create(obj, ctx)
        if not obj["spec"].get("manualSelector"):
            self._generate_selector(obj["spec"], obj["metadata"])

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """The Job gets the selector's labels too: the stored object is defaulted when it is read back."""
        without = not obj["metadata"].get("labels")
        _default_labels(obj)
        return without

    @staticmethod
    def _generate_selector(spec: Object, metadata: Object) -> None:
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for key, value in ((CONTROLLER_UID, metadata.get("uid", "")), (JOB_NAME, metadata.get("name", ""))):
            for name in (key, _OLD_LABELS[key]):
                labels.setdefault(name, value)  # one that a client wrote stays, and is refused
        matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        if _OLD_LABELS[CONTROLLER_UID] not in matched:
            matched.setdefault(CONTROLLER_UID, metadata.get("uid", ""))

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Counts, template, and a restart policy under which a Job can end."""
        return (_generated_selector_causes(obj) + job_spec_causes(obj["spec"], "spec") + _selector_causes(obj["spec"])
                + pod_name_causes(obj))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Selector, template and completion mode do not change; completions only of an Indexed Job."""
        if subresource == "status":
            return job_status_causes(new, old)
        spec, before = new["spec"], old["spec"]
        keys = ["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy",
                "successPolicy"]
        if spec.get("suspend") and before.get("suspend"):
            keys.remove("template")  # a suspended Job may be re-targeted before it starts
            if _fixed_template(spec["template"]) != _fixed_template(before["template"]):
                return [errors.immutable("spec.template.spec", spec["template"].get("spec"))]
        causes = 2 * (job_spec_causes(spec, "spec") + _selector_causes(spec))  # the real server checks it twice
        if spec.get("completionMode") != INDEXED:
            keys.insert(0, "completions")
        elif spec.get("completions") not in (before.get("completions"), spec.get("parallelism")):
            causes.append(errors.invalid_value("spec.completions", spec.get("completions"),
                                               "can only be modified in tandem with spec.parallelism"))
        return causes + immutable_causes(spec, before, keys)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Those of the template."""
        return _warnings(obj, old, obj["spec"], "spec")

    def default_orphans(self) -> bool:
        """batch/v1 Jobs are older than garbage collection: a delete without a policy orphans their Pods."""
        return True


def _fixed_template(template: Object) -> Object:
    """What may not change in the template of a suspended Job: all but where its Pods run and what they ask for."""
    spec = {key: value for key, value in (template.get("spec") or {}).items()
            if key not in ("nodeSelector", "affinity", "tolerations", "schedulingGates")}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [{name: value for name, value in container.items() if name != "resources"}
                         for container in spec[key]]
    return spec


def _warnings(obj: Object, old: Object | None, spec: Object, path: str) -> list[str]:
    if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
        return []
    found = name_warnings(obj["metadata"].get("name", "")) if old is None else []
    completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
    if spec.get("completionMode") == INDEXED and completions > 100_000 and parallelism > 10_000:
        found.append(f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher "
                     "than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes "
                     "fail")
    return found + template_warnings(spec.get("template") or {}, f"{path}.template.")


def _default_labels(obj: Object) -> None:
    labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not obj.setdefault("metadata", {}).get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def _generated_selector_causes(obj: Object) -> list[Cause]:
    """A generated selector matches the generated labels and asks for no others."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return []
    names = {CONTROLLER_UID: metadata.get("uid", ""), JOB_NAME: metadata.get("name", "")}
    expected = {_OLD_LABELS[key]: value for key, value in names.items()} | names
    labels = spec["template"]["metadata"]["labels"]
    causes = [errors.invalid_value(f"spec.template.metadata.labels[{key}]", labels, f"must be '{value}'")
              for key, value in expected.items() if labels[key] != value]
    selector = label_selector(spec["selector"])
    if selector is None or not selector.matches(expected):
        causes.append(errors.invalid_value("spec.selector", spec["selector"], "`selector` not auto-generated"))
    return causes


def _selector_causes(spec: Object) -> list[Cause]:
    selector = label_selector(spec.get("selector"))
    causes = [errors.required("spec.selector")] if selector is None else []
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if selector is None or not selector.matches(labels or {}):
        causes.append(errors.invalid_value("spec.template.metadata.labels", labels and dict(sorted(labels.items())),
                                           "`selector` does not match template `labels`"))
    return causes


class CronJobStrategy(BuiltinStrategy):
    """CronJobs."""

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

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Schedule, policies and the template of the Jobs; a name so short that Jobs can be named after it."""
        causes, name = self._spec_causes(obj["spec"], {}), obj["metadata"].get("name", "")
        if len(name) > _MAX_CRON_NAME:
            causes.append(errors.invalid_value("metadata.name", name,
                                               f"must be no more than {_MAX_CRON_NAME} characters"))
        return causes

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Those of the template; a time zone in the schedule, which is refused at creation."""
        found = _warnings(obj, old, obj["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        if old is not None and "TZ" in obj["spec"].get("schedule", ""):
            found.append("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes."
                         "io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
        return found

    def _spec_causes(self, spec: Object, before: Object) -> list[Cause]:
        causes = _schedule_causes(spec, before)
        causes += non_negative(spec, "startingDeadlineSeconds", "spec")
        if (zone := spec.get("timeZone")) is not None and zone != before.get("timeZone"):
            causes += [errors.invalid_value("spec.timeZone", zone, why) for why in cron.time_zone_errors(zone)]
        causes += one_of(spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy")
        job = spec["jobTemplate"]["spec"]
        causes += job_spec_causes(job, "spec.jobTemplate.spec")
        if job.get("selector") is not None:
            causes.append(errors.invalid_value("spec.jobTemplate.spec.selector", job["selector"],
                                               "`selector` will be auto-generated"))
        if job.get("manualSelector"):
            causes.append(errors.not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
        for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            causes += non_negative(spec, key, "spec")
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; what the schedule and the time zone were before may stay."""
        return [] if subresource == "status" else self._spec_causes(new["spec"], old["spec"])


def _schedule_causes(spec: Object, before: Object) -> list[Cause]:
    schedule = spec.get("schedule") or ""
    if not schedule:
        return [errors.required("spec.schedule")]
    found = cron.schedule_errors(schedule)
    if "TZ" in schedule:
        if "TZ" not in (before.get("schedule") or ""):
            found.append("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        elif spec.get("timeZone") is not None:
            found.append("cannot use both timeZone field and TZ or CRON_TZ in schedule")
    return [errors.invalid_value("spec.schedule", schedule, why) for why in found]
