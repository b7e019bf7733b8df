"""Events. core/v1 and events.k8s.io/v1 serve the same objects, which are stored as core/v1.

As in the real server, a create through events.k8s.io is validated strictly, but some of its causes name fields of
core/v1 (``involvedObject.namespace``, ``message``) and have "" as the value. A create through core/v1 is hardly
validated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

# Fields whose names differ: events.k8s.io/v1 -> core/v1.
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
_WRITTEN_EMPTY = ("reportingComponent", "reportingInstance")  # core/v1 writes these fields even if empty


def _source(obj: Object) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


_BOTH = ("reason", "type")
_CORE_FIELDS = frozenset({*_BOTH, "reportingComponent", "source", *(f"involvedObject.{name}" for name in _REFERENCE)})
_NEW_FIELDS = frozenset({*_BOTH, "reportingController", *(f"regarding.{name}" for name in _REFERENCE)})


def _namespace(obj: Object, path: str) -> list[Cause]:
    """Return a cause if an Event is in a wrong namespace.

    The Event must be in its object's namespace, except that an Event with an eventTime may regard an object in another
    namespace. An Event about an object without a namespace is allowed only in some namespaces.
    """
    regarded, namespace = (obj.get("involvedObject") or {}).get("namespace") or "", obj["metadata"].get("namespace", "")
    if obj.get("eventTime"):
        agree = bool(regarded) or namespace in ("default", "kube-system")
    else:
        agree = namespace == regarded if regarded else namespace in ("", "default")
    return [] if agree else [errors.invalid_value(f"{path}involvedObject.namespace", regarded,
                                                  "does not match event.namespace")]


def _at_most(limit: int) -> r.Check:
    return r.must(lambda text: len(text.encode()) <= limit, f"can have at most {limit} characters", shown="")


def _common(controller: str) -> tuple[r.Row | r.When, ...]:
    """The rows that both groups share. `controller` is the group's name for the field reportingController."""
    def named(obj: Object, path: str) -> list[Cause]:
        given, at = obj.get("reportingComponent"), path + controller
        return [*r.REQUIRED(given, at), *r.ANY_QUALIFIED(given, at)]

    return (
        ("", _namespace),
        r.when(r.filled("eventTime"),
               ("", named),
               *((key, r.REQUIRED, _at_most(128)) for key in ("reportingInstance", "action", "reason")),
               ("message", _at_most(1024))),
    )


_SERIES = r.Rules(
    ("count", r.must(lambda count: count >= 2, "should be at least 2", zero=0, shown="")),
    ("lastObservedTime", r.REQUIRED),
)


class EventStrategy(BuiltinStrategy):
    """Events of core/v1."""

    collects_dependents = False
    # An Event is stored once for both groups, so it has the selectable fields of both.
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        **{f"{head}.{name}": f"involvedObject.{name}"
           for name in _REFERENCE for head in ("involvedObject", "regarding")},
        "reason": "reason", "reportingComponent": "reportingComponent", "reportingController": "reportingComponent",
        "source": _source, "type": "type"}

    def selectable_field_names(self) -> frozenset[str]:
        return _CORE_FIELDS

    rules = r.Rules(*_common("reportingComponent"))


class NewEventStrategy(EventStrategy):
    """Events of events.k8s.io/v1."""

    def selectable_field_names(self) -> frozenset[str]:
        return _NEW_FIELDS

    @property
    def converts(self) -> bool:
        """True, because Events are stored as core/v1."""
        return True

    def to_storage(self, obj: Object, version: str) -> Object:
        """The object as core/v1."""
        stored = {_RENAMED.get(key, key): value for key, value in obj.items()}
        stored.update({key: stored.get(key, "") for key in _WRITTEN_EMPTY})
        return stored

    def from_storage(self, obj: Object, version: str) -> Object:
        """The object as events.k8s.io/v1. Missing fields of `series` are added."""
        shown = {_BACK.get(key, key): value for key, value in obj.items() if value or key not in _WRITTEN_EMPTY}
        if (series := shown.get("series")) is not None:
            shown["series"] = {"count": 0, "lastObservedTime": None, **series}
        return shown

    rules = r.Rules(
        *_common("reportingController"),
        ("series", _SERIES),
        ("eventTime", r.REQUIRED),
        ("type", lambda kind, path: () if kind in ("Normal", "Warning") else (
            errors.invalid_value(path, "", f"has invalid value: {kind or ''}"),)),
        *(r.when(r.filled(key), (key, r.invalid("needs to be unset", shown="")))
          for key in ("firstTimestamp", "lastTimestamp", "count", "source")),
    )
    update_rules = r.Rules(*_common("reportingController"))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate an update. Only the series may change."""
        causes = super().validate_update(new, old, subresource, ctx)
        if new.get("series") != old.get("series"):
            causes += _SERIES(new.get("series"), "series")
        keys = [key for key in {**old, **new} if key not in ("metadata", "series", "kind", "apiVersion")]
        names = {"reportingComponent": "reportingController"}
        keys += [key for key in keys if key == "reason"]  # the real server checks `reason` twice
        return causes + [errors.immutable(names.get(key, key), new.get(key))
                         for key in keys if (new.get(key) or None) != (old.get(key) or None)]
