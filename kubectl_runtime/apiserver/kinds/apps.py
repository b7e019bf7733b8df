"""Workloads: all kinds of the group apps, and the core kinds ReplicationController and PodTemplate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    AMOUNT_OR_PERCENT,
    BuiltinStrategy,
    amount_of,
    amount_or_percent_causes,
    dig,
    label_selector,
    put_default,
    selector_causes,
    selector_text,
)
from kubectl_runtime.apiserver.kinds.pod.pod_validation import template_causes
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import claim_causes
from kubectl_runtime.apiserver.kinds.pod.pods import default_pod_spec
from kubectl_runtime.apiserver.kinds.pod.warnings import claim_spec_warnings, name_warnings, template_warnings
from kubectl_runtime.apiserver.names import dns_label_errors
from kubectl_runtime.apiserver.query import LabelSelector
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.wire import decoded

_TEMPLATE: dict[str, Any] = {"spec.template": {}, "spec.template.spec": {}}
_COUNTS = tuple((f"status.{key}", r.NATURAL) for key in (
    "replicas", "updatedReplicas", "currentReplicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas",
    "unavailableReplicas", "observedGeneration", "collisionCount", "currentNumberScheduled", "numberMisscheduled",
    "desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"))
_COLLISIONS = ("status.collisionCount", r.Fixed(lambda path, count: errors.invalid_value(
    path, count or 0, "cannot be decremented"), changed=lambda count, before: (count or 0) < (before or 0)))


def _status(*counted: str) -> r.Rules:
    """Refuse negative counts, and counts (ready, updated, …) that exceed the number of replicas."""
    def no_more(obj: Object, path: str) -> Iterator[Cause]:
        status = obj.get("status") or {}
        yield from (errors.invalid_value(f"{path}status.{key}", status.get(key) or 0,
                                         "cannot be greater than status.replicas")
                    for key in counted if (status.get(key) or 0) > (status.get("replicas") or 0))
        if (available := status.get("availableReplicas") or 0) > (status.get("readyReplicas") or 0):
            yield errors.invalid_value(f"{path}status.availableReplicas", available,
                                       "cannot be greater than readyReplicas")

    return r.Rules(*_COUNTS, *([("", no_more)] if counted else []), _COLLISIONS)


def _selector(kind: str, *, required: bool = True, broken: str | None = "") -> tuple[r.Row, ...]:
    """The rows of a selector, and of the template's labels, which the selector must match.

    An invalid selector gets a further cause with the text `broken`; None adds no such cause.
    """
    def check(spec: Object, path: str) -> Iterator[Cause]:
        selector, at = spec.get("selector"), f"{path}.selector"
        wrong = selector_causes(selector, at)
        yield from wrong
        if selector is None and required:
            yield errors.required(at)
        elif selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield errors.invalid_value(at, selector, f"empty selector is invalid for {kind}")
        if not wrong:
            yield from _mismatch(spec, label_selector(selector))
        elif broken is not None:
            yield errors.invalid_value(at, selector, broken)

    return (("spec", check),)


def _mismatch(spec: Object, selector: LabelSelector | None) -> Iterator[Cause]:
    labels = dig(spec, "template.metadata.labels")
    if selector is None or not selector.matches(labels or {}):  # a missing selector selects nothing
        yield errors.invalid_value("spec.template.metadata.labels", labels,
                                   "`selector` does not match template `labels`")


def _template(pods_of: str) -> tuple[r.Row, ...]:
    """The rows of a Pod template whose restartPolicy must be Always."""
    return (
        ("spec.template", lambda template, path: template_causes(template or {}, path)),
        ("spec.template.spec.restartPolicy", r.choice("Always")),
        ("spec.template.spec.activeDeadlineSeconds", r.forbidden(
            f"activeDeadlineSeconds in {pods_of} is not Supported", empty=True)),
    )


class WorkloadStrategy(BuiltinStrategy):
    """The common part of Deployments, ReplicaSets, StatefulSets and DaemonSets."""

    has_generation = True
    names_hosts = True  # Pod names derive from this object's name, so the name should be a DNS label
    defaults = r.Defaults(_TEMPLATE)

    def default(self, obj: Object) -> None:
        super().default(obj)
        if (template := obj["spec"].get("template")) is not None:
            default_pod_spec(template["spec"])

    def blank_shown(self) -> Object:
        """The empty object in a watch bookmark. It has `replicas: 0` for the scalable kinds of the group apps."""
        shown = self.blank()
        if self.scale_paths() and self.type_name.startswith("apps."):
            shown["spec"]["replicas"] = 0
        return shown

    def scale_paths(self) -> tuple[str, str, str] | None:
        return "spec.replicas", "status.replicas", "spec.selector"

    def scale_selector(self, obj: Object, path: str) -> str:
        """The selector as text. (A ReplicationController's selector is a plain map.)"""
        selector = dig(obj, path) or {}
        if selector and not {"matchLabels", "matchExpressions"} & set(selector):
            selector = {"matchLabels": selector}
        return "" if (text := selector_text(selector)) == "<none>" else text

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The template's warnings if the spec changes, and a warning for a name that is not a good hostname."""
        if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
            return []
        names = name_warnings(obj["metadata"].get("name", "")) if old is None and self.names_hosts else []
        return names + template_warnings(obj["spec"].get("template") or {}, "spec.template.")


def _not_both_zero(rolling: Object, path: str) -> Iterator[Cause]:
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    if not amount_of(surge) and not amount_of(unavailable) and not _has_bad_amount(rolling):
        yield errors.invalid_value(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")


def _has_bad_amount(rolling: Object) -> bool:
    return bool(amount_or_percent_causes(rolling.get("maxUnavailable"), "", most_all=True)
                or amount_or_percent_causes(rolling.get("maxSurge"), ""))


def _rolling_by_default(update: Object) -> Object | None:
    return {} if update["type"] == "RollingUpdate" else None


def _shown_type(update: Object) -> Object:
    """An update strategy with an unknown type, as the real server prints its internal type."""
    return {"Type": update.get("type"), "RollingUpdate": None}


def _deadline(spec: Object, path: str) -> Iterator[Cause]:
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= least:
        yield errors.invalid_value(f"{path}.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


class DeploymentStrategy(WorkloadStrategy):
    """Deployments. By default they have one replica and a RollingUpdate with 25 % surge and 25 % unavailable."""

    status_keeps = ("labels",)
    defaults = r.Defaults({
        **_TEMPLATE, "spec.replicas": 1, "spec.strategy": {}, "spec.strategy.type": "RollingUpdate",
        "spec.strategy.rollingUpdate": _rolling_by_default,
        "spec.strategy.rollingUpdate.maxUnavailable": "25%", "spec.strategy.rollingUpdate.maxSurge": "25%",
        "spec.revisionHistoryLimit": 10, "spec.progressDeadlineSeconds": 600})
    rules = r.Rules(
        ("spec.replicas", r.NATURAL),
        *_selector("deployment", broken="invalid label selector"),
        *_template("ReplicaSet"),
        ("spec.minReadySeconds", r.NATURAL),
        ("spec.strategy", r.Rules(
            r.when(r.equals("type", "Recreate"), ("rollingUpdate", r.forbidden(
                "may not be specified when strategy `type` is 'Recreate'", empty=True))),
            r.when(r.equals("type", "RollingUpdate"), ("rollingUpdate", r.Rules(
                ("maxUnavailable", AMOUNT_OR_PERCENT),
                ("maxSurge", amount_or_percent_causes),
                ("", _not_both_zero)))),
            r.when(r.negated(r.equals("type", "Recreate", "RollingUpdate")), ("", lambda update, path: (
                errors.not_supported(path, _shown_type(update), ("Recreate", "RollingUpdate")),))),
        )),
        ("spec.revisionHistoryLimit", r.NATURAL),
        ("spec.progressDeadlineSeconds", r.NATURAL),
        ("spec", _deadline),
        ("spec.selector", r.FIXED),
    )
    status_rules = _status("updatedReplicas", "readyReplicas", "availableReplicas")

    def generation_part(self, obj: Object) -> Any:
        """The spec and the annotations. (The controller copies the annotations to ReplicaSets.)"""
        return obj.get("spec"), obj.get("metadata", {}).get("annotations")


class ReplicaSetStrategy(WorkloadStrategy):
    """ReplicaSets. By default they have one replica."""

    defaults = r.Defaults({**_TEMPLATE, "spec.replicas": 1})
    rules = r.Rules(
        ("spec.replicas", r.NATURAL),
        *_selector("deployment", broken="invalid label selector"),
        *_template("ReplicaSet"),
        ("spec.minReadySeconds", r.NATURAL),
        ("spec.selector", r.FIXED),
    )
    status_rules = _status("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class ReplicationControllerStrategy(WorkloadStrategy):
    """ReplicationControllers. Their selector is a map, defaults to the template's labels, and may change."""

    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "status.replicas": lambda obj: str((obj.get("status") or {}).get("replicas", 0))}
    defaults = r.Defaults({
        "spec.template.spec": {}, "spec.replicas": 1,
        "spec.selector": lambda spec: dig(spec, "template.metadata.labels") or None})
    rules = r.Rules(
        ("spec.replicas", r.NATURAL),
        ("spec.selector", r.REQUIRED),
        ("spec.template", r.present()),
        r.when(r.has("spec.template"),
               ("spec", lambda spec, _: _mismatch(spec, label_selector({"matchLabels": spec.get("selector") or {}}))),
               *_template("ReplicationController"),
               ("spec.minReadySeconds", r.NATURAL)),
    )
    status_rules = ReplicaSetStrategy.status_rules

    def default(self, obj: Object) -> None:
        """Fill in the kind's defaults, and give an object without labels the template's labels."""
        super().default(obj)
        if labels := dig(obj["spec"], "template.metadata.labels"):
            put_default(obj.setdefault("metadata", {}), "labels", dict(labels))

    def default_orphans(self) -> bool:
        """True, because ReplicationControllers are older than garbage collection: a deletion orphans by default."""
        return True


class PodTemplateStrategy(BuiltinStrategy):
    has_generation = True
    delete_returns_object = True
    generation_path = "template"
    rules = r.Rules(("template", template_causes))

    def default(self, obj: Object) -> None:
        default_pod_spec(obj.setdefault("template", {}).setdefault("spec", {}))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
            return []
        return template_warnings(obj["template"], "template.")


_MUTABLE = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy", "minReadySeconds")
_NOT_MUTABLE = (f"updates to statefulset spec for fields other than {', '.join(map(repr, _MUTABLE[:-1]))} "
                f"and '{_MUTABLE[-1]}' are forbidden")


def _with_claims(spec: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each error of the template. The volumes that volumeClaimTemplates add count as present."""
    template = dict(spec.get("template") or {})
    known = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    if known:
        claims = [{"name": name, "persistentVolumeClaim": {"claimName": "of-pod"}} for name in known]
        pod = template.get("spec") or {}
        others = [volume for volume in pod.get("volumes") or () if volume.get("name") not in known]
        template["spec"] = {**pod, "volumes": claims + others}
    yield from template_causes(template, f"{path}.template")


def _partition(update: Object, path: str) -> Iterator[Cause]:
    rolling = update.get("rollingUpdate")
    if update.get("type") == "OnDelete":
        if rolling is not None:
            yield errors.invalid_value(f"{path}.rollingUpdate",
                                       {"Partition": rolling.get("partition", 0), "MaxUnavailable": None},
                                       "only allowed for updateStrategy 'RollingUpdate'")
    elif update.get("type") != "RollingUpdate":
        yield errors.invalid_value(path, _shown_type(update), "must be 'RollingUpdate' or 'OnDelete'")
    else:
        yield from r.NATURAL((rolling or {}).get("partition"), f"{path}.rollingUpdate.partition")


class StatefulSetStrategy(WorkloadStrategy):
    """StatefulSets. By default Pods are ordered, updates are rolling, and claims are retained."""

    names_hosts = False
    name_errors = staticmethod(dns_label_errors)  # because Pods' hostnames contain the name
    dropped = ("spec.updateStrategy.rollingUpdate.maxUnavailable",)
    defaults = r.Defaults({
        **_TEMPLATE, "spec.podManagementPolicy": "OrderedReady",
        "spec.updateStrategy": {}, "spec.updateStrategy.type": "RollingUpdate",
        "spec.updateStrategy.rollingUpdate": _rolling_by_default,
        "spec.updateStrategy.rollingUpdate.partition": 0,
        "spec.persistentVolumeClaimRetentionPolicy": {},
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled": "Retain",
        "spec.replicas": 1, "spec.revisionHistoryLimit": 10,
        "spec.volumeClaimTemplates[*].spec": {}, "spec.volumeClaimTemplates[*].spec.volumeMode": "Filesystem",
        "spec.volumeClaimTemplates[*].status": {}, "spec.volumeClaimTemplates[*].status.phase": "Pending"})
    update_rules = r.Rules(
        ("spec.replicas", r.NATURAL),
        *_selector("statefulset"),
        ("spec", _with_claims),
        *_template("StatefulSet")[1:],
        ("spec.minReadySeconds", r.NATURAL),
        ("spec.podManagementPolicy", r.must(("OrderedReady", "Parallel").__contains__,
                                          "must be 'OrderedReady' or 'Parallel'", zero="")),
        ("spec.updateStrategy", _partition),
        *((f"spec.persistentVolumeClaimRetentionPolicy.{key}", r.choice("Retain", "Delete"))
          for key in ("whenDeleted", "whenScaled")),
        ("spec.ordinals.start", r.NATURAL),
        ("spec", r.Fixed(lambda path, _: errors.forbidden_field(path, _NOT_MUTABLE), of=lambda spec: {
            key: value for key, value in spec.items() if key not in _MUTABLE})),
    )
    rules = r.Rules(
        ("", update_rules),
        ("spec.serviceName", r.DNS_LABEL),
        ("spec.volumeClaimTemplates[*]", r.Rules(("spec", claim_causes))),
    )
    status_rules = _status("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")

    def default(self, obj: Object) -> None:
        super().default(obj)
        for claim in obj["spec"].get("volumeClaimTemplates") or ():
            claim.update(apiVersion="v1", kind="PersistentVolumeClaim")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found = super().warnings(obj, old)
        part = "" if old is None else ".Spec"  # the real server's path differs on update
        for index, claim in enumerate(obj["spec"].get("volumeClaimTemplates") or ()):
            found += claim_spec_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]{part}")
        if (obj["spec"].get("revisionHistoryLimit") or 0) < 0:
            found.append("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 "
                         "is recommended")
        return found


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _one_of_both(rolling: Object, path: str) -> Iterator[Cause]:
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    if amount_of(surge) and amount_of(unavailable):
        yield errors.invalid_value(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif not amount_of(surge) and not amount_of(unavailable):
        yield errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets. They have no replicas and no /scale. By default they update one Node at a time."""

    names_hosts = False
    defaults = r.Defaults({
        **_TEMPLATE, "spec.updateStrategy": {}, "spec.updateStrategy.type": "RollingUpdate",
        "spec.updateStrategy.rollingUpdate": lambda update: {"maxUnavailable": 1} if update["type"] == "RollingUpdate"
        else None,
        "spec.updateStrategy.rollingUpdate.maxSurge": 0,
        "spec.revisionHistoryLimit": 10})
    rules = r.Rules(
        ("spec.selector", r.FIXED),  # the real server makes this check first here, but not for Deployments
        *_selector("daemonset", required=False, broken=None),  # a missing selector is reported as a mismatch
        *_template("DaemonSet"),
        ("spec.minReadySeconds", r.NATURAL),
        ("spec.updateStrategy", r.Rules(
            r.when(r.equals("type", "RollingUpdate"), ("rollingUpdate", r.Rules(
                ("maxUnavailable", AMOUNT_OR_PERCENT),
                ("maxSurge", AMOUNT_OR_PERCENT),
                ("", _one_of_both)))),
            r.when(r.negated(r.equals("type", "OnDelete", "RollingUpdate")), ("", lambda update, path: (
                errors.not_supported(path, _shown_type(update), ("RollingUpdate", "OnDelete")),))),
        )),
        ("spec.revisionHistoryLimit", r.NATURAL),
    )
    status_rules = _status()

    def default(self, obj: Object) -> None:
        """Fill in the kind's defaults, and the template generation annotation, which replaces a former field."""
        super().default(obj)
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: annotations.get(TEMPLATE_GENERATION, "0")}
        update = obj["spec"]["updateStrategy"]
        if update["type"] == "RollingUpdate":
            put_default(update["rollingUpdate"], "maxUnavailable", 1)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the template generation of a new DaemonSet to 1."""
        super().prepare_create(obj, ctx)
        obj["metadata"]["annotations"][TEMPLATE_GENERATION] = "1"

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Increase the template generation if the template changes, whatever the client wrote."""
        super().prepare_update(new, old, subresource, ctx)
        before = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0"))
        changed = new["spec"].get("template") != old["spec"].get("template")
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = str(before + changed)

    def scale_paths(self) -> tuple[str, str, str] | None:
        """None, because DaemonSets have no /scale."""
        return None


class ControllerRevisionStrategy(BuiltinStrategy):
    """ControllerRevisions, whose data cannot change.

    The real server keeps the JSON text of `data` and compares texts. A patch writes the text without blanks. So if a
    revision was created with blanks in its data, every patch of the revision is refused.
    """

    rules = r.Rules(
        ("revision", r.NATURAL),
        ("data", r.present("data is mandatory")),
        r.when(r.has("data"), ("data", r.required("data must be a valid JSON object",
                                            unless=lambda data: isinstance(data, dict)))),
    )
    update_rules = r.Rules(("revision", r.NATURAL), ("data", r.FIXED))

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Keep the JSON text of `data` as the client sent it."""
        if (text := _spaced_data(ctx.sent)) is not None:
            obj["data"] = text
        return False

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Refuse a change of `data`. In a patch, equal data with a different text is refused too."""
        causes = super().validate_update(new, old, subresource, ctx)
        if not ctx.sent and _spaced_data(ctx.stored_bytes) is not None and new.get("data") == old.get("data"):
            causes.append(errors.immutable("data", new.get("data")))
        return causes


class _WithData(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw()


def _spaced_data(body: bytes) -> msgspec.Raw | None:
    """The JSON text of the field `data` in a JSON object, if it has blanks outside of strings; else None."""
    try:
        text = decoded(body, _WithData).data
    except msgspec.MsgspecError:
        return None
    return text if bytes(text) and msgspec.json.encode(msgspec.json.decode(text)) != bytes(text) else None
