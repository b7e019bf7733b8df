"""Jobs and CronJobs.

As in the real server, an update of a Job's status is validated only where the status changes. An invalid schedule gets
the message of the real server's parser.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    dig,
    domain_path_causes,
    label_selector,
    true_conditions,
)
from kubectl_runtime.apiserver.kinds.pod.pod_validation import template_causes
from kubectl_runtime.apiserver.kinds.pod.pods import default_pod_spec
from kubectl_runtime.apiserver.kinds.pod.warnings import name_warnings, template_warnings
from kubectl_runtime.apiserver.names import dns_label_errors
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = "@every "
_DURATION = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0")


@dataclass(frozen=True)
class _Field:
    least: int
    most: int
    names: dict[str, int] = field(default_factory=dict)


_FIELDS = (
    _Field(0, 59),
    _Field(0, 23),
    _Field(1, 31),
    _Field(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


def schedule_errors(schedule: str) -> list[str]:
    """The first problem of a schedule, which has five fields or is a descriptor such as ``@daily``."""
    text = schedule
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, _, text = text.partition(" ")
        name = zone.partition("=")[2]
        if (found := time_zone_errors(name)) and name not in ("", "Local"):
            return [f"provided bad location {name}: {found[0]}"]
        text = text.strip()
    try:
        _check(text)
    except ValueError as error:
        return [str(error)]
    return []


def time_zone_errors(zone: str) -> list[str]:
    """The problems of a time zone's name."""
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    if zone.lower() == "local":
        return ["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"]
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return [] if zone == "UTC" else [f"unknown time zone {zone}"]
    return []


def _check(text: str) -> None:
    if text.startswith("@"):
        _check_descriptor(text)
        return
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    for bounds, part in zip(_FIELDS, parts, strict=True):
        for expression in filter(None, part.split(",")):
            _check_range(expression, bounds)


def _check_descriptor(text: str) -> None:
    if text.startswith(_EVERY):
        duration = text.removeprefix(_EVERY)
        if not _DURATION.fullmatch(duration):
            raise ValueError(f'failed to parse duration {text}: time: invalid duration "{duration}"')
    elif text not in _DESCRIPTORS:
        raise ValueError(f"unrecognized descriptor: {text}")


def _check_range(expression: str, bounds: _Field) -> None:
    span, *steps = expression.split("/")
    ends = span.split("-")
    if ends[0] in ("*", "?"):
        start, end = bounds.least, bounds.most
    elif len(ends) > 2:
        raise ValueError(f"too many hyphens: {expression}")
    else:
        start, end = _number(ends[0], bounds.names), _number(ends[-1], bounds.names)
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {expression}")
    if steps and len(ends) == 1:
        end = bounds.most  # N/step runs to the maximum
    step = _number(steps[0], {}) if steps else 1
    if start < bounds.least:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.least}): {expression}")
    if end > bounds.most:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.most}): {expression}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {expression}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number


INDEXED = "Indexed"
MAX_INDEXED_PARALLELISM = 100_000
_IS_INDEXED = r.equals("completionMode", INDEXED)
_NEEDS_INDEXES = r.when(r.negated(_IS_INDEXED), *(
    r.when(r.has(key), (key, r.invalid("requires indexed completion mode")))
    for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")))


def pod_name_causes(obj: Object) -> list[Cause]:
    """Check that an Indexed Job's Pod names (the Job's name and an index) are DNS labels.

    Returns a cause for each error of the name with the highest index.
    """
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != INDEXED or completions <= 0:
        return []
    pod = f"{name}-{completions - 1}"
    return [errors.invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {pod}")
            for _why in dns_label_errors(pod)]


def _success_rules(spec: Object, path: str) -> Iterator[Cause]:
    completions = spec.get("completions") or 0
    for index, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        at, count, indexes = (f"{path}.successPolicy.rules[{index}]", rule.get("succeededCount"),
                              rule.get("succeededIndexes"))
        if count is None and indexes is None:
            yield errors.required(at, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None and (why := _format_error(indexes, completions)):
            yield errors.invalid_value(f"{at}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}")
        yield from r.NATURAL(count, f"{at}.succeededCount")
        if count is not None and count > completions:
            yield errors.invalid_value(f"{at}.succeededCount", count, "must be less than or equal to "
                                       f"{completions} (the number of specified completions)")


_INDEXES = r.when(
    _IS_INDEXED,
    ("completions", r.present("when completion mode is Indexed")),
    ("parallelism", r.must(lambda number: number <= MAX_INDEXED_PARALLELISM, "must be less than or equal to "
                         f"{MAX_INDEXED_PARALLELISM} when completion mode is Indexed")),
    r.when(r.has("maxFailedIndexes", "completions"), lambda spec: spec["maxFailedIndexes"] > spec["completions"],
        ("maxFailedIndexes", r.invalid("must be less than or equal to completions"))),
    r.when(r.has("successPolicy"), ("successPolicy.rules", r.required(
        "at least one rules must be specified when the successPolicy is specified"))),
    ("", _success_rules),
)


def _exit_codes(codes: Object, path: str, spec: Object) -> Iterator[Cause]:
    operator, values, name = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    yield from (*r.REQUIRED(operator, f"{path}.operator"), *r.choice("In", "NotIn")(operator, f"{path}.operator"))
    pod = (spec.get("template") or {}).get("spec") or {}
    known = {entry.get("name") for key in ("containers", "initContainers") for entry in pod.get(key) or ()}
    if name is not None and name not in known:
        yield errors.invalid_value(f"{path}.containerName", name,
                                   "must be one of the container or initContainer names in the pod template")
    if not values:
        yield errors.invalid_value(f"{path}.values", values, "at least one value is required")
    yield from r.at_most_items(255)(values, f"{path}.values")
    if values != sorted(values):
        yield errors.invalid_value(f"{path}.values", values, "must be ordered")
    for index, value in enumerate(values):
        if value in values[:index]:
            yield errors.duplicate(f"{path}.values[{index}]", value)
        if operator == "In" and value == 0:
            yield errors.invalid_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator")


_POD_CONDITION = r.Rules(("type", r.ANY_QUALIFIED), ("status", r.choice("False", "True", "Unknown")))


def _failure_rules(spec: Object, path: str) -> Iterator[Cause]:
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        at, action = f"{path}.podFailurePolicy.rules[{index}]", rule.get("action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if not action:
            yield errors.required(f"{at}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]')
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield errors.invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set")
        yield from r.choice("Count", "FailIndex", "FailJob", "Ignore")(action, f"{at}.action")
        if codes is not None:
            yield from _exit_codes(codes, f"{at}.onExitCodes", spec)
        for number, pattern in enumerate(conditions):
            yield from _POD_CONDITION(pattern, f"{at}.onPodConditions[{number}]")
        if (codes is not None) == bool(conditions):
            both = "specifying both OnExitCodes and OnPodConditions is not supported"
            none = "specifying one of OnExitCodes and OnPodConditions is required"
            yield Cause("FieldValueInvalid", f"Invalid value: {both if conditions else none}", at)


def _restart_policy(spec: Object, path: str) -> Iterable[Cause]:
    policy, at = dig(spec, "template.spec.restartPolicy"), f"{path}.template.spec.restartPolicy"
    if policy == "Always":  # this is the default, so the policy counts as missing
        return [errors.required(at, 'valid values: "OnFailure", "Never"')]
    if spec.get("podFailurePolicy") and policy == "OnFailure":
        return [errors.invalid_value(at, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return r.choice("OnFailure", "Never")(policy, at)  # only under these policies can a Job end


#: A Job's spec, except its selector.
JOB_SPEC = r.Rules(
    *((key, r.NATURAL) for key in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
                                 "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes")),
    ("completionMode", r.choice("NonIndexed", INDEXED)),
    _INDEXES,
    _NEEDS_INDEXES,
    r.when(r.has("maxFailedIndexes"), ("backoffLimitPerIndex", r.present("when maxFailedIndexes is specified"))),
    r.when(r.filled("managedBy"), ("managedBy", domain_path_causes)),
    ("", _failure_rules),
    r.when(r.filled("podFailurePolicy"), ("podReplacementPolicy", r.choice("Failed"))),
    r.when(r.lacks("podFailurePolicy"), ("podReplacementPolicy", r.choice("Failed", "TerminatingOrFailed"))),
    ("template", lambda template, path: template_causes(template or {}, path)),
    ("", _restart_policy),
)


_STATUS = r.Rules(*((key, r.NATURAL) for key in ("active", "succeeded", "failed", "ready", "terminating")))
_TERMINAL = ("Complete", "Failed", "FailureTarget")
_EXCLUSIVE = (("Complete", "Failed"), ("Complete", "FailureTarget"), ("SuccessCriteriaMet", "Failed"),
              ("SuccessCriteriaMet", "FailureTarget"))


def job_status_causes(new: Object, old: Object) -> list[Cause]:
    spec, status, before = new["spec"], new.get("status") or {}, old.get("status") or {}
    now, then = true_conditions(status), true_conditions(before)
    changed = {key for key in status.keys() | before.keys() if status.get(key) != before.get(key)}
    causes = [*_STATUS(status, "status")]
    causes += _uncounted_causes(status.get("uncountedTerminatedPods") or {})
    causes += _index_causes(spec, status, changed)
    causes += _time_causes(status, changed, now, then)
    causes += _condition_causes(now, then)
    causes += _finished_causes(spec, status, changed, now, then)
    causes += _update_causes(spec, status, before)
    return causes


def _of_conditions(detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", "status.conditions")


def _condition_causes(now: set[str], then: set[str]) -> Iterator[Cause]:
    if "Failed" in now and "FailureTarget" not in now and (now ^ then) & {"Failed", "FailureTarget"}:
        yield _of_conditions("cannot set Failed=True condition without the FailureTarget=true condition")
    if "Complete" in now and "SuccessCriteriaMet" not in now and "Complete" not in then:
        yield _of_conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    for one, other in _EXCLUSIVE:
        if {one, other} <= now and (one == "SuccessCriteriaMet" or (now ^ then) & {one, other}):
            yield _of_conditions(f"cannot set {one}=True and {other}=true conditions")
    for kind in _TERMINAL:
        if kind in then - now:
            yield _of_conditions(f"cannot disable the terminal {kind}=True condition")
    if "SuccessCriteriaMet" in then - now:
        yield _of_conditions("cannot disable the SuccessCriteriaMet=True condition")


def _finished_causes(spec: Object, status: Object, changed: set[str], now: set[str], then: set[str]) -> Iterator[Cause]:
    ends = {"Complete", "Failed"}
    finished, newly = bool(now & ends), bool(now & ends) != bool(then & ends)
    if status.get("ready") is not None and status["ready"] > status.get("active", 0) and changed & {"ready", "active"}:
        yield errors.invalid_value("status.ready", status["ready"], "cannot set more ready pods than active")
    if not finished:
        return
    for key in ("active", "terminating"):
        if status.get(key, 0) > 0 and (newly or key in changed):
            yield errors.invalid_value(f"status.{key}", status[key], f"{key}>0 is invalid for finished job")
    no_pods = spec.get("suspend") and spec.get("completions") == 0
    if status.get("startTime") is None and (newly or "startTime" in changed) and not no_pods:
        yield errors.required("status.startTime", "startTime is required for finished job")
    pods = status.get("uncountedTerminatedPods") or {}
    if (pods.get("succeeded") or pods.get("failed")) and (newly or "uncountedTerminatedPods" in changed):
        value = {"Succeeded": pods.get("succeeded"), "Failed": pods.get("failed")}
        yield errors.invalid_value("status.uncountedTerminatedPods", value, "must be empty for finished job")


def _time_causes(status: Object, changed: set[str], now: set[str], then: set[str]) -> Iterator[Cause]:
    start, end = status.get("startTime"), status.get("completionTime")
    if ("Complete" in now) != ("Complete" in then) or "completionTime" in changed:
        if end is not None and "Complete" not in now:
            yield errors.invalid_value("status.completionTime", end,
                                       "cannot set completionTime when there is no Complete=True condition")
        if end is None and "Complete" in now:
            yield errors.required("status.completionTime", "completionTime is required for Complete jobs")
    if start is not None and end is not None and end < start and changed & {"startTime", "completionTime"}:
        yield errors.invalid_value("status.completionTime", end, "must be equal to or after `startTime`")


def _update_causes(spec: Object, status: Object, before: Object) -> Iterator[Cause]:
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for key in ("failed",) if elastic else ("failed", "succeeded"):
        if status.get(key, 0) < before.get(key, 0):
            yield errors.invalid_value(f"status.{key}", status.get(key, 0), f"cannot decrease the {key} counter")
    ends = status.get("completionTime"), before.get("completionTime")
    if None not in ends and ends[0] != ends[1]:
        yield errors.immutable("status.completionTime", ends[0])
    start, first = status.get("startTime"), before.get("startTime")
    if first is not None and start != first and not spec.get("suspend"):
        yield errors.invalid_value("status.startTime", start, "field is immutable for unsuspended job once set")


def _uncounted_causes(pods: Object) -> Iterator[Cause]:
    seen: set[str] = set()
    for key in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(key) or ()):
            at = f"status.uncountedTerminatedPods.{key}[{index}]"
            if not uid:
                yield errors.invalid_value(at, uid, "must not be empty")
            elif uid in seen:
                yield errors.duplicate(at, uid)
            seen.add(uid)


def _index_causes(spec: Object, status: Object, changed: set[str]) -> Iterator[Cause]:
    done, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completions = spec.get("completions")
    wrong = False
    given: list[tuple[str, Any, bool]] = [
        ("completedIndexes", done, True), ("failedIndexes", failed, spec.get("backoffLimitPerIndex") is not None)]
    for key, text, checked in given:
        if text and checked and completions is not None and (why := _format_error(text, completions)):
            wrong = True
            if key in changed:
                yield errors.invalid_value(f"status.{key}", text, f"error parsing {key}: {why}")
    if done and spec.get("completionMode") != "Indexed" and "completedIndexes" in changed:
        yield errors.invalid_value("status.completedIndexes", done,
                                   "cannot set non-empty completedIndexes when non-indexed completion mode")
    if failed is not None and spec.get("backoffLimitPerIndex") is None and "failedIndexes" in changed:
        yield errors.invalid_value("status.failedIndexes", failed,
                                   "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
    elif failed and done and not wrong and changed & {"completedIndexes", "failedIndexes"}:
        both = [max(first, low) for first, last in _intervals(failed) for low, high in _intervals(done)
                if first <= high and low <= last]
        if both:
            yield errors.invalid_value("status.failedIndexes", failed,
                                       f"failedIndexes and completedIndexes overlap at index: {min(both)}")


def _intervals(text: str) -> list[tuple[int, int]]:
    pairs = [part.split("-") for part in text.split(",")]
    return [(int(pair[0]), int(pair[-1])) for pair in pairs]


def _format_error(text: str, completions: int) -> str:
    """Why a text is not a list of increasing index intervals below `completions`; "" if it is."""
    previous: int | None = None
    for part in text.split(",") if text else ():
        numbers = part.split("-")
        if len(numbers) > 2:
            return (f"the fragment {errors.go_quoted(part)} violates the requirement that an index interval can have "
                    "at most two parts separated by '-'")
        for number in numbers:
            if not (number.isascii() and number.isdigit()):
                return f"cannot convert string to integer for index: {errors.go_quoted(number)}"
            if int(number) >= completions:
                return f"too large index: {errors.go_quoted(number)}"
            if previous is not None and int(number) <= previous:
                return f"non-increasing order, previous: {previous}, current: {int(number)}"
            previous = int(number)
    return ""


CONTROLLER_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_LABELS = {CONTROLLER_UID: "controller-uid", JOB_NAME: "job-name"}
_MAX_CRON_NAME = 52  # the controller appends eleven characters to name Jobs


class JobStrategy(BuiltinStrategy):
    """Jobs. Unless manualSelector is set, the selector is generated from the uid."""

    has_generation = True
    delete_warning = ("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
                      "remove them or set propagationPolicy=Orphan to suppress this warning")
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "status.successful": lambda obj: str((obj.get("status") or {}).get("succeeded", 0))}
    unsupported_field = 'field label "{}" not supported for Job'

    defaults = r.Defaults({
        "spec.template": {}, "spec.template.spec": {},
        "spec.completions": lambda spec: 1 if spec.get("parallelism") is None else None,
        "spec.parallelism": 1,
        "spec.backoffLimit": lambda spec: 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1,
        "spec.completionMode": "NonIndexed",
        "spec.suspend": False,
        "spec.manualSelector": False,
        "spec.podReplacementPolicy": lambda spec: "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed",
    }, zero={"spec.podFailurePolicy.rules[*].onPodConditions[*].status": "True"})

    def default(self, obj: Object) -> None:
        super().default(obj)
        default_pod_spec(obj["spec"]["template"]["spec"])
        _default_labels(obj)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        super().prepare_create(obj, ctx)
        if not obj["spec"].get("manualSelector"):
            self._generate_selector(obj["spec"], obj["metadata"])

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Give a Job without labels its template's labels; the real server adds this default when it reads the Job."""
        without = not obj["metadata"].get("labels")
        _default_labels(obj)
        return without

    @staticmethod
    def _generate_selector(spec: Object, metadata: Object) -> None:
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for key, value in ((CONTROLLER_UID, metadata.get("uid", "")), (JOB_NAME, metadata.get("name", ""))):
            for name in (key, _OLD_LABELS[key]):
                # A label that the client set keeps its value; validation refuses the label if the value is wrong.
                labels.setdefault(name, value)
        matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        if _OLD_LABELS[CONTROLLER_UID] not in matched:
            matched.setdefault(CONTROLLER_UID, metadata.get("uid", ""))

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Validate counts, template, and the restart policy, which must allow the Job to end."""
        return (_generated_selector_causes(obj) + list(JOB_SPEC(obj["spec"], "spec")) + _selector_causes(obj["spec"])
                + pod_name_causes(obj))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate an update. Selector, template and completionMode cannot change.

        An Indexed Job can change completions, but only together with parallelism.
        """
        if subresource == "status":
            return job_status_causes(new, old)
        spec, before = new["spec"], old["spec"]
        keys = ["selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy",
                "successPolicy"]
        if spec.get("suspend") and before.get("suspend"):
            keys.remove("template")  # a suspended Job may change the scheduling and resources in its template
            if _fixed_template(spec["template"]) != _fixed_template(before["template"]):
                return [errors.immutable("spec.template.spec", spec["template"].get("spec"))]
        causes = 2 * (list(JOB_SPEC(spec, "spec")) + _selector_causes(spec))  # the real server checks the spec twice
        if spec.get("completionMode") != INDEXED:
            keys.insert(0, "completions")
        elif spec.get("completions") not in (before.get("completions"), spec.get("parallelism")):
            causes.append(errors.invalid_value("spec.completions", spec.get("completions"),
                                               "can only be modified in tandem with spec.parallelism"))
        return causes + [errors.immutable(f"spec.{key}", spec.get(key)) for key in keys
                         if spec.get(key) != before.get(key)]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return _warnings(obj, old, obj["spec"], "spec")

    def default_orphans(self) -> bool:
        """True, because batch/v1 is older than garbage collection: a deletion without a policy orphans the Pods."""
        return True


def _fixed_template(template: Object) -> Object:
    """The part of a suspended Job's template that cannot change: everything except scheduling and resources."""
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
    """Give a Job without labels its template's labels. Both share one dict, as in the real server, so that labels
    generated for the template also become labels of the Job."""
    labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not obj.setdefault("metadata", {}).get("labels"):
        obj["metadata"]["labels"] = labels


def _generated_selector_causes(obj: Object) -> list[Cause]:
    """Check that a Job's template has the generated labels, and that its selector matches them.

    Returns a cause for each label that differs, and for a selector that does not match.
    """
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


def _schedule_causes(spec: Object, before: Object) -> list[Cause]:
    schedule = spec.get("schedule") or ""
    if not schedule:
        return [errors.required("spec.schedule")]
    found = schedule_errors(schedule)
    if "TZ" in schedule:
        if "TZ" not in (before.get("schedule") or ""):
            found.append("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        elif spec.get("timeZone") is not None:
            found.append("cannot use both timeZone field and TZ or CRON_TZ in schedule")
    return [errors.invalid_value("spec.schedule", schedule, why) for why in found]


class CronJobStrategy(BuiltinStrategy):
    has_generation = True
    defaults = r.Defaults({
        "spec.concurrencyPolicy": "Allow", "spec.suspend": False, "spec.successfulJobsHistoryLimit": 3,
        "spec.failedJobsHistoryLimit": 1, "spec.jobTemplate": {}, "spec.jobTemplate.spec": {},
        "spec.jobTemplate.spec.template": {}, "spec.jobTemplate.spec.template.spec": {}})
    rules = r.Rules(
        ("spec.concurrencyPolicy", r.choice("Allow", "Forbid", "Replace")),
        ("spec.jobTemplate.spec", JOB_SPEC),
        r.when(r.has("spec.jobTemplate.spec.selector"),
               ("spec.jobTemplate.spec.selector", r.invalid("`selector` will be auto-generated"))),
        ("spec.jobTemplate.spec.manualSelector", lambda given, path: (
            errors.not_supported(path, True, ("nil", "false")),) if given else ()),
        ("spec.successfulJobsHistoryLimit", r.NATURAL),
        ("spec.failedJobsHistoryLimit", r.NATURAL),
    )

    def default(self, obj: Object) -> None:
        super().default(obj)
        default_pod_spec(obj["spec"]["jobTemplate"]["spec"]["template"]["spec"])

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Validate the spec, and check that the name leaves room for the suffix that the Jobs' names get."""
        causes, name = self._causes(obj, {}), obj["metadata"].get("name", "")
        if len(name) > _MAX_CRON_NAME:
            causes.append(errors.invalid_value("metadata.name", name,
                                               f"must be no more than {_MAX_CRON_NAME} characters"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate as on create. An unchanged schedule or time zone may stay invalid."""
        return [] if subresource == "status" else self._causes(new, old["spec"])

    def _causes(self, obj: Object, before: Object) -> list[Cause]:
        spec = obj["spec"]
        causes = _schedule_causes(spec, before)
        causes += r.NATURAL(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
        if (zone := spec.get("timeZone")) is not None and zone != before.get("timeZone"):
            causes += [errors.invalid_value("spec.timeZone", zone, why) for why in time_zone_errors(zone)]
        return causes + list(self.rules(obj))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The template's warnings, and on update a warning for a schedule that contains a time zone.

        A create refuses such a schedule.
        """
        found = _warnings(obj, old, obj["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        if old is not None and "TZ" in obj["spec"].get("schedule", ""):
            found.append("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes."
                         "io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
        return found
