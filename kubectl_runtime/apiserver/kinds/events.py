"""Events, which two groups serve: the same objects as core/v1 and as events.k8s.io/v1, stored in the form of core/v1.

Surprising truths, as recorded: a create through events.k8s.io is validated strictly, but its causes name some fields as
core/v1 does (``involvedObject.namespace``, ``message``) and print "" for the value; a create through core/v1 is hardly
validated; regarding another namespace is allowed, regarding none is not, except in the namespace default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.objectmeta.names import qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

# events.k8s.io/v1 -> core/v1, where the names differ.
_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: name for name, core in _RENAMED.items()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_WRITTEN_EMPTY = ("reportingComponent", "reportingInstance")  # core/v1 writes them always, the new group with a value


def _source(obj: Object) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


_BOTH = ("reason", "type")
_CORE_FIELDS = frozenset({*_BOTH, "reportingComponent", "source", *(f"involvedObject.{name}" for name in _REFERENCE)})
_NEW_FIELDS = frozenset({*_BOTH, "reportingController", *(f"regarding.{name}" for name in _REFERENCE)})


class EventStrategy(BuiltinStrategy):
    """Events of core/v1."""

    collects_dependents = False
    # An Event is stored once for both groups, so that its fields are kept under the names of both.
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        **{f"{head}.{name}": f"involvedObject.{name}"
           for name in _REFERENCE for head in ("involvedObject", "regarding")},
        "reason": "reason", "reportingComponent": "reportingComponent", "reportingController": "reportingComponent",
        "source": _source, "type": "type"}

    def selectable_field_names(self) -> frozenset[str]:
        """The names of core/v1."""
        return _CORE_FIELDS

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The namespace; more only for Events in the new style, which have an eventTime."""
        return _common_causes(obj, "reportingComponent")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """core/v1 lets anything change, for the sake of old clients."""
        return _common_causes(new, "reportingComponent")


class NewEventStrategy(EventStrategy):
    """Events of events.k8s.io/v1."""

    def selectable_field_names(self) -> frozenset[str]:
        """The names of events.k8s.io/v1."""
        return _NEW_FIELDS

    @property
    def converts(self) -> bool:
        """The stored form is core/v1's."""
        return True

    def to_storage(self, obj: Object, version: str) -> Object:
        """As core/v1."""
        stored = {_RENAMED.get(key, key): value for key, value in obj.items()}
        stored.update({key: stored.get(key, "") for key in _WRITTEN_EMPTY})
        return stored

    def from_storage(self, obj: Object, version: str) -> Object:
        """As events.k8s.io/v1, which writes a series whole."""
        shown = {_BACK.get(key, key): value for key, value in obj.items() if value or key not in _WRITTEN_EMPTY}
        if (series := shown.get("series")) is not None:
            shown["series"] = {"count": 0, "lastObservedTime": None, **series}
        return shown

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Everything that a new-style Event must have, and nothing of the old style."""
        causes = _common_causes(obj, "reportingController") + _series_causes(obj)
        if not obj.get("eventTime"):
            causes.append(errors.required("eventTime"))
        kind = obj.get("type") or ""
        if kind not in ("Normal", "Warning"):
            causes.append(errors.invalid_value("type", "", f"has invalid value: {kind}"))
        return causes + [errors.invalid_value(key, "", "needs to be unset")
                         for key in ("firstTimestamp", "lastTimestamp", "count", "source") if obj.get(key)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Only the series may change."""
        causes = _common_causes(new, "reportingController")
        if new.get("series") != old.get("series"):
            causes += _series_causes(new)
        keys = [key for key in {**old, **new} if key not in ("metadata", "series", "kind", "apiVersion")]
        names = {"reportingComponent": "reportingController"}
        keys += [key for key in keys if key == "reason"]  # surprising: the real server looks at it twice
        return causes + [errors.immutable(names.get(key, key), new.get(key))
                         for key in keys if (new.get(key) or None) != (old.get(key) or None)]


def _common_causes(obj: Object, controller_field: str) -> list[Cause]:
    """What both groups check: that the namespaces agree, and the fields of an Event with an eventTime."""
    regarded = (obj.get("involvedObject") or {}).get("namespace") or ""
    namespace = obj["metadata"].get("namespace", "")
    mismatch = [errors.invalid_value("involvedObject.namespace", regarded, "does not match event.namespace")]
    if not obj.get("eventTime"):
        agree = namespace in ("", "default") if not regarded else namespace == regarded
        return [] if agree else mismatch
    causes = [] if regarded or namespace in ("default", "kube-system") else mismatch
    controller = obj.get("reportingComponent") or ""
    if not controller:
        causes.append(errors.required(controller_field))
    causes += [errors.invalid_value(controller_field, controller, why) for why in qualified_name_errors(controller)]
    for key in ("reportingInstance", "action", "reason"):
        causes += _length_causes(obj.get(key) or "", key, 128, required=True)
    return causes + _length_causes(obj.get("message") or "", "message", 1024, required=False)


def _series_causes(obj: Object) -> list[Cause]:
    if (series := obj.get("series")) is None:
        return []
    causes = [errors.invalid_value("series.count", "", "should be at least 2")] if series.get("count", 0) < 2 else []
    return causes if series.get("lastObservedTime") else [*causes, errors.required("series.lastObservedTime")]


def _length_causes(text: str, path: str, limit: int, *, required: bool) -> list[Cause]:
    if required and not text:
        return [errors.required(path)]
    if len(text.encode()) > limit:
        return [errors.invalid_value(path, "", f"can have at most {limit} characters")]
    return []
