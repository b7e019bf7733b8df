"""Validation of a Job's status as it is updated: only of what the update changes, as in the real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import non_negative, true_conditions
from kubectl_runtime.apiserver.strategy import Object

_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_TERMINAL = ("Complete", "Failed", "FailureTarget")
_EXCLUSIVE = (("Complete", "Failed"), ("Complete", "FailureTarget"), ("SuccessCriteriaMet", "Failed"),
              ("SuccessCriteriaMet", "FailureTarget"))


def job_status_causes(new: Object, old: Object) -> list[Cause]:
    """What is wrong with the status of ``new``, an update of ``old``."""
    spec, status, before = new["spec"], new.get("status") or {}, old.get("status") or {}
    now, then = true_conditions(status), true_conditions(before)
    changed = {key for key in status.keys() | before.keys() if status.get(key) != before.get(key)}
    causes = [cause for key in _COUNTS for cause in non_negative(status, key, "status")]
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
    """Why a list of indexes is not of increasing intervals below the number of completions, if it is not."""
    previous: int | None = None
    for part in text.split(","):
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
