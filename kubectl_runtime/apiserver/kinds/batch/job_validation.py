"""Validation of a Job's spec, of a Job itself and in the template of a CronJob."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import domain_path_causes, non_negative, one_of
from kubectl_runtime.apiserver.kinds.pod.pod_validation import template_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object

INDEXED = "Indexed"
MAX_INDEXED_PARALLELISM = 100_000
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
           "backoffLimitPerIndex", "maxFailedIndexes")
_ENDING = ("OnFailure", "Never")  # restart policies under which a Job can end
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_INDEXED_ONLY = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")


def job_spec_causes(spec: Object, path: str) -> list[Cause]:
    """What is wrong with a Job's spec, but for its selector."""
    causes = [cause for key in _COUNTS for cause in non_negative(spec, key, path)]
    causes += one_of(spec.get("completionMode"), ("NonIndexed", INDEXED), f"{path}.completionMode")
    causes += _indexed_causes(spec, path) if spec.get("completionMode") == INDEXED else _plain_causes(spec, path)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if manager := spec.get("managedBy"):
        causes += domain_path_causes(manager, f"{path}.managedBy")
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        causes += _failure_rule_causes(rule, f"{path}.podFailurePolicy.rules[{index}]", spec)
    replacement = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    causes += one_of(spec.get("podReplacementPolicy"), replacement, f"{path}.podReplacementPolicy")
    causes += template_causes(spec.get("template") or {}, f"{path}.template")
    return causes + _restart_causes(spec, f"{path}.template.spec.restartPolicy")


def pod_name_causes(obj: Object) -> list[Cause]:
    """The names of an Indexed Job's Pods are made of its own and the index, and have to be DNS labels."""
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != INDEXED or completions <= 0:
        return []
    pod = f"{name}-{completions - 1}"
    return [errors.invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {pod}")
            for _why in dns_label_errors(pod)]


def _plain_causes(spec: Object, path: str) -> list[Cause]:
    return [errors.invalid_value(f"{path}.{key}", spec[key], "requires indexed completion mode")
            for key in _INDEXED_ONLY if spec.get(key) is not None]


def _indexed_causes(spec: Object, path: str) -> list[Cause]:
    causes, completions, parallelism = [], spec.get("completions"), spec.get("parallelism") or 0
    if completions is None:
        causes.append(errors.required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism > MAX_INDEXED_PARALLELISM:
        causes.append(errors.invalid_value(f"{path}.parallelism", parallelism, "must be less than or equal to "
                                           f"{MAX_INDEXED_PARALLELISM} when completion mode is Indexed"))
    failed = spec.get("maxFailedIndexes")
    if failed is not None and completions is not None and failed > completions:
        causes.append(errors.invalid_value(f"{path}.maxFailedIndexes", failed,
                                           "must be less than or equal to completions"))
    if (policy := spec.get("successPolicy")) is not None:
        causes += _success_causes(policy, f"{path}.successPolicy.rules", completions or 0)
    return causes


def _success_causes(policy: Object, path: str, completions: int) -> list[Cause]:
    rules = policy.get("rules") or ()
    causes = [] if rules else [errors.required(path, "at least one rules must be specified when the successPolicy is "
                                                     "specified")]
    for index, rule in enumerate(rules):
        at, count, indexes = f"{path}[{index}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            causes.append(errors.required(at, "at least one of succeededCount or succeededIndexes must be specified"))
        if indexes is not None and (why := _index_error(indexes, completions)):
            causes.append(errors.invalid_value(f"{at}.succeededIndexes", indexes,
                                               f"error parsing succeededIndexes: {why}"))
        causes += non_negative(rule, "succeededCount", at)
        if count is not None and count > completions:
            causes.append(errors.invalid_value(f"{at}.succeededCount", count, f"must be less than or equal to "
                                               f"{completions} (the number of specified completions)"))
    return causes


def _index_error(text: str, completions: int) -> str:
    """Why a list of indexes (``0,3-5``) is none, "" if it is."""
    last = -1
    for interval in text.split(",") if text else ():
        parts = interval.split("-")
        if len(parts) > 2:
            return (f'the fragment "{interval}" violates the requirement that an index interval can have at most two '
                    "parts separated by '-'")
        for part in parts:
            if not part.isdecimal():
                return f'cannot convert string to integer for index: "{part}"'
            if int(part) >= completions:
                return f'too large index: "{part}"'
            if int(part) <= last:
                return f"non-increasing order, previous: {last}, current: {int(part)}"
            last = int(part)
    return ""


def _failure_rule_causes(rule: Object, path: str, spec: Object) -> Iterator[Cause]:
    action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if not action:
        yield errors.required(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]')
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield errors.invalid_value(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    else:
        yield from one_of(action, _ACTIONS, f"{path}.action")
    if codes is not None:
        yield from _exit_code_causes(codes, f"{path}.onExitCodes", spec)
    for index, pattern in enumerate(conditions):
        at, kind = f"{path}.onPodConditions[{index}]", pattern.get("type", "")
        yield from (errors.invalid_value(f"{at}.type", kind, why) for why in qualified_name_errors(kind))
        yield from one_of(pattern.get("status"), ("False", "True", "Unknown"), f"{at}.status")
    if codes is not None and conditions:
        yield Cause("FieldValueInvalid", "Invalid value: specifying both OnExitCodes and OnPodConditions is not "
                                         "supported", path)
    elif codes is None and not conditions:
        yield Cause("FieldValueInvalid", "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
                    path)


def _exit_code_causes(codes: Object, path: str, spec: Object) -> Iterator[Cause]:
    operator, values, name = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    yield from one_of(operator, ("In", "NotIn"), f"{path}.operator", required=True)
    pod = (spec.get("template") or {}).get("spec") or {}
    known = {entry.get("name") for key in ("containers", "initContainers") for entry in pod.get(key) or ()}
    if name is not None and name not in known:
        yield errors.invalid_value(f"{path}.containerName", name,
                                   "must be one of the container or initContainer names in the pod template")
    if not values:
        yield errors.invalid_value(f"{path}.values", values, "at least one value is required")
    elif len(values) > 255:
        yield errors.too_many(f"{path}.values", len(values), 255)
    if values != sorted(values):
        yield errors.invalid_value(f"{path}.values", values, "must be ordered")
    for index, value in enumerate(values):
        if value in values[:index]:
            yield errors.duplicate(f"{path}.values[{index}]", value)
        if operator == "In" and value == 0:
            yield errors.invalid_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator")


def _restart_causes(spec: Object, path: str) -> list[Cause]:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy == "Always":  # which is the default, so that it counts as left out
        return [errors.required(path, 'valid values: "OnFailure", "Never"')]
    if spec.get("podFailurePolicy") and policy == "OnFailure":
        return [errors.invalid_value(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return one_of(policy, _ENDING, path)
