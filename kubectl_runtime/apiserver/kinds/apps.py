"""Deployments, ReplicaSets, ReplicationControllers, PodTemplates: replicas of a pod template.

StatefulSets.

DaemonSets.

ControllerRevisions: their data is fixed.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    amount_of,
    amount_or_percent_causes,
    dig,
    immutable_causes,
    label_causes,
    label_selector,
    non_negative,
    one_of,
    put_default,
    selector_causes,
    selector_text,
)
from kubectl_runtime.apiserver.kinds.pod.pod_defaults import default_pod_spec
from kubectl_runtime.apiserver.kinds.pod.pod_validation import template_causes
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import claim_causes
from kubectl_runtime.apiserver.kinds.pod.warnings import claim_spec_warnings, name_warnings, template_warnings
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

_MISMATCH = "`selector` does not match template `labels`"


class WorkloadStrategy(BuiltinStrategy):
    """What Deployments, ReplicaSets, StatefulSets and DaemonSets share."""

    has_status = True
    has_generation = True
    empty_selector = "empty selector is invalid for deployment"
    selector_required = True
    counted: ClassVar[Sequence[str]] = ("updatedReplicas", "readyReplicas", "availableReplicas")  # parts of replicas
    broken_selector: ClassVar[str | None] = "invalid label selector"  # said of the selector beside its details
    pods_of = "ReplicaSet"  # whose Pods they are, as a message says it
    names_hosts = True  # whether the names of Pods are made of this object's, so that it should be a DNS label
    immutable: ClassVar[Sequence[str]] = ("selector",)

    def default(self, obj: Object) -> None:
        """The template's defaults; subclasses add the kind's own."""
        default_pod_spec(obj["spec"].setdefault("template", {}).setdefault("spec", {}))

    def blank_shown(self) -> Object:
        """Bookmarks of those kinds of apps that scale say that they have no replicas."""
        shown = self.blank()
        if self.scale_paths() and self.type_name.startswith("apps."):
            shown["spec"]["replicas"] = 0
        return shown

    def scale_paths(self) -> tuple[str, str, str] | None:
        """Replicas and selector."""
        return "spec.replicas", "status.replicas", "spec.selector"

    def scale_selector(self, obj: Object, path: str) -> str:
        """The selector as text; a ReplicationController's is a plain map."""
        selector = dig(obj, path) or {}
        if selector and not {"matchLabels", "matchExpressions"} & set(selector):
            selector = {"matchLabels": selector}
        return "" if (text := selector_text(selector)) == "<none>" else text

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Replicas, selector, template and the kind's own fields."""
        spec = obj["spec"]
        causes = non_negative(spec, "replicas", "spec") + self.selector_and_template_causes(spec)
        return causes + non_negative(spec, "minReadySeconds", "spec") + self.own_causes(spec)

    def selector_and_template_causes(self, spec: Object) -> list[Cause]:
        """The selector, and the template that must match it unless the selector is no good itself."""
        selector = spec.get("selector")
        broken = selector_causes(selector or {}, "spec.selector")
        causes = list(broken)
        if selector is None and self.selector_required:
            causes.append(errors.required("spec.selector"))
        elif selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(errors.invalid_value("spec.selector", selector, self.empty_selector))
        if broken and self.broken_selector is not None:
            causes.append(errors.invalid_value("spec.selector", selector, self.broken_selector))
        elif not broken:
            causes += mismatch_causes(spec)
        return causes + template_rules(self.template_of(spec), ("Always",), self.pods_of)

    def template_of(self, spec: Object) -> Object:
        """The template with what the controller will add."""
        template: Object = spec.get("template") or {}
        return template

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """What a create checks, and the selector does not change."""
        if subresource == "status":
            return replica_status_causes(new.get("status") or {}, old.get("status") or {}, self.counted)
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], self.immutable)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Those of the template, when the spec changes; a name that makes no good hostname."""
        if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
            return []
        names = name_warnings(obj["metadata"].get("name", "")) if old is None and self.names_hosts else []
        return names + template_warnings(obj["spec"].get("template") or {}, "spec.template.")

    def own_causes(self, spec: Object) -> list[Cause]:
        """What is wrong with fields that only this kind has."""
        return []


_COUNTS = ("replicas", "updatedReplicas", "currentReplicas", "readyReplicas", "availableReplicas",
           "fullyLabeledReplicas", "unavailableReplicas", "observedGeneration", "collisionCount",
           "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
           "updatedNumberScheduled", "numberAvailable", "numberUnavailable")


def replica_status_causes(status: Object, before: Object, counted: Sequence[str]) -> list[Cause]:
    """Counts are not negative, and of all replicas no more can be ready than there are."""
    causes = [cause for key in _COUNTS for cause in non_negative(status, key, "status")]
    total = status.get("replicas") or 0
    causes += [errors.invalid_value(f"status.{key}", status.get(key) or 0, "cannot be greater than status.replicas")
               for key in counted if (status.get(key) or 0) > total]
    ready, available = status.get("readyReplicas") or 0, status.get("availableReplicas") or 0
    if counted and available > ready:
        causes.append(errors.invalid_value("status.availableReplicas", available,
                                           "cannot be greater than readyReplicas"))
    if (status.get("collisionCount") or 0) < (before.get("collisionCount") or 0):
        causes.append(errors.invalid_value("status.collisionCount", status.get("collisionCount") or 0,
                                           "cannot be decremented"))
    return causes


def mismatch_causes(spec: Object) -> list[Cause]:
    """Whether the selector matches the template."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    selector = label_selector(spec.get("selector"))
    if selector is None or not selector.matches(labels or {}):  # no selector selects nothing, which is refused too
        return [errors.invalid_value("spec.template.metadata.labels", labels, _MISMATCH)]
    return []


def template_rules(template: Object, restart_policies: Sequence[str], pods_of: str) -> list[Cause]:
    """What is wrong with the template of Pods that always run."""
    causes = template_causes(template, "spec.template")
    spec = template.get("spec") or {}
    policy = spec.get("restartPolicy")
    if policy not in restart_policies:
        causes.append(errors.not_supported("spec.template.spec.restartPolicy", policy, restart_policies))
    if spec.get("activeDeadlineSeconds") is not None:
        causes.append(errors.forbidden_field("spec.template.spec.activeDeadlineSeconds",
                                             f"activeDeadlineSeconds in {pods_of} is not Supported"))
    return causes


class DeploymentStrategy(WorkloadStrategy):
    """Deployments."""

    status_keeps = ("labels",)

    def default(self, obj: Object) -> None:
        """One replica, a rolling update by quarters."""
        super().default(obj)
        spec = obj["spec"]
        put_default(spec, "replicas", 1)
        strategy = spec.setdefault("strategy", {})
        put_default(strategy, "type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            put_default(strategy, "rollingUpdate", {})
            put_default(strategy["rollingUpdate"], "maxUnavailable", "25%")
            put_default(strategy["rollingUpdate"], "maxSurge", "25%")
        put_default(spec, "revisionHistoryLimit", 10)
        put_default(spec, "progressDeadlineSeconds", 600)

    def generation_part(self, obj: Object) -> Any:
        """A Deployment's annotations raise its generation too: its controller copies them to ReplicaSets."""
        return obj.get("spec"), obj.get("metadata", {}).get("annotations")

    def own_causes(self, spec: Object) -> list[Cause]:
        """The update strategy and the deadlines."""
        causes = _strategy_causes(spec["strategy"], "spec.strategy")
        causes += non_negative(spec, "revisionHistoryLimit", "spec")
        deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
        if deadline is not None:
            causes += non_negative(spec, "progressDeadlineSeconds", "spec")
            if deadline <= least:
                causes.append(errors.invalid_value("spec.progressDeadlineSeconds", deadline,
                                                   "must be greater than minReadySeconds"))
        return causes


def _strategy_causes(strategy: Object, path: str) -> list[Cause]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate") or {}
    if kind == "Recreate":
        return [] if strategy.get("rollingUpdate") is None else [
            errors.forbidden_field(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        return [errors.not_supported(path, {"Type": kind, "RollingUpdate": None}, ("Recreate", "RollingUpdate"))]
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    at = f"{path}.rollingUpdate"
    causes = amount_or_percent_causes(unavailable, f"{at}.maxUnavailable", most_all=True)
    causes += amount_or_percent_causes(surge, f"{at}.maxSurge")
    if not causes and not amount_of(surge) and not amount_of(unavailable):
        causes.append(errors.invalid_value(f"{at}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes


class ReplicaSetStrategy(WorkloadStrategy):
    """ReplicaSets."""

    counted: ClassVar[Sequence[str]] = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")

    def default(self, obj: Object) -> None:
        """One replica."""
        super().default(obj)
        put_default(obj["spec"], "replicas", 1)


class ReplicationControllerStrategy(ReplicaSetStrategy):
    """ReplicationControllers: their selector is a map and defaults to the template's labels."""

    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "status.replicas": lambda obj: str((obj.get("status") or {}).get("replicas", 0))}

    def default(self, obj: Object) -> None:
        """Labels and selector from the template."""
        spec = obj["spec"]
        if spec.get("template") is not None:
            super().default(obj)
        put_default(spec, "replicas", 1)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if labels:
            put_default(spec, "selector", dict(labels))
            put_default(obj.setdefault("metadata", {}), "labels", dict(labels))

    def default_orphans(self) -> bool:
        """The API of v1 is older than garbage collection: deleting orphans, unless told otherwise."""
        return True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Selector and template."""
        spec = obj["spec"]
        selector = spec.get("selector") or {}
        causes = non_negative(spec, "replicas", "spec")
        if not selector:
            causes.append(errors.required("spec.selector"))
        if spec.get("template") is None:
            return [*causes, errors.required("spec.template")]
        causes += mismatch_causes({**spec, "selector": {"matchLabels": selector}})
        causes += template_rules(spec["template"], ("Always",), "ReplicationController")
        return causes + non_negative(spec, "minReadySeconds", "spec")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation: the selector may change."""
        if subresource == "status":
            return replica_status_causes(new.get("status") or {}, old.get("status") or {}, self.counted)
        return self.validate_create(new, ctx)


class PodTemplateStrategy(BuiltinStrategy):
    """PodTemplates."""

    has_generation = True
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """The template's."""
        default_pod_spec(obj.setdefault("template", {}).setdefault("spec", {}))

    def generation_part(self, obj: Object) -> Any:
        """The template."""
        return obj.get("template")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Those of a template that changed."""
        if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
            return []
        return template_warnings(obj["template"], "template.")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The template."""
        return template_causes(obj["template"], "template")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class StatefulSetStrategy(WorkloadStrategy):
    """StatefulSets."""

    empty_selector = "empty selector is invalid for statefulset"
    broken_selector = ""
    counted: ClassVar[Sequence[str]] = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    pods_of = "StatefulSet"
    names_hosts = False
    immutable: ClassVar[Sequence[str]] = ()
    mutable = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
               "persistentVolumeClaimRetentionPolicy", "minReadySeconds")

    def default(self, obj: Object) -> None:
        """Ordered pods, a rolling update, volumes that stay."""
        super().default(obj)
        spec = obj["spec"]
        put_default(spec, "podManagementPolicy", "OrderedReady")
        update = spec.setdefault("updateStrategy", {})
        put_default(update, "type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            put_default(update, "rollingUpdate", {})
            put_default(update["rollingUpdate"], "partition", 0)
        put_default(spec, "persistentVolumeClaimRetentionPolicy", {})
        put_default(spec["persistentVolumeClaimRetentionPolicy"], "whenDeleted", "Retain")
        put_default(spec["persistentVolumeClaimRetentionPolicy"], "whenScaled", "Retain")
        put_default(spec, "replicas", 1)
        put_default(spec, "revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.update(apiVersion="v1", kind="PersistentVolumeClaim")
            put_default(claim.setdefault("spec", {}), "volumeMode", "Filesystem")
            put_default(claim.setdefault("status", {}), "phase", "Pending")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """A field of a feature that is off goes."""
        super().prepare_create(obj, ctx)
        _drop_max_unavailable(obj)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        super().prepare_update(new, old, subresource, ctx)
        _drop_max_unavailable(new)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Most of the spec is fixed."""
        if subresource == "status":
            return super().validate_update(new, old, subresource, ctx)
        causes = super().validate_create(new, ctx)
        rest = [{key: value for key, value in obj["spec"].items() if key not in self.mutable} for obj in (new, old)]
        if rest[0] != rest[1]:
            names = ", ".join(f"'{name}'" for name in self.mutable[:-1])
            causes.append(errors.forbidden_field("spec", "updates to statefulset spec for fields other than "
                                                 f"{names} and '{self.mutable[-1]}' are forbidden"))
        return causes

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Those of the claims too."""
        found = super().warnings(obj, old)
        part = "" if old is None else ".Spec"  # surprising: the real server's path differs at updates
        for index, claim in enumerate(obj["spec"].get("volumeClaimTemplates") or ()):
            found += claim_spec_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]{part}")
        if (obj["spec"].get("revisionHistoryLimit") or 0) < 0:
            found.append("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 "
                         "is recommended")
        return found

    def template_of(self, spec: Object) -> Object:
        """The template with the volumes that the claims become."""
        template = dict(spec.get("template") or {})
        known = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
        if known:
            claims = [{"name": name, "persistentVolumeClaim": {"claimName": "of-pod"}} for name in known]
            pod = template.get("spec") or {}
            others = [volume for volume in pod.get("volumes") or () if volume.get("name") not in known]
            template["spec"] = {**pod, "volumes": claims + others}
        return template

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A DNS label, since Pods get it as their hostname."""
        return dns_label_errors(name, prefix=prefix)

    def own_causes(self, spec: Object) -> list[Cause]:
        """Policies, the update strategy, the service and the claims."""
        policy = spec.get("podManagementPolicy")
        causes = [] if policy in ("OrderedReady", "Parallel") else [
            errors.invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")]
        causes += _update_causes(spec["updateStrategy"], "spec.updateStrategy")
        for key, value in spec["persistentVolumeClaimRetentionPolicy"].items():
            causes += one_of(value, ("Retain", "Delete"), f"spec.persistentVolumeClaimRetentionPolicy.{key}")
        causes += non_negative(spec.get("ordinals") or {}, "start", "spec.ordinals")
        return causes

    def _first_causes(self, spec: Object) -> list[Cause]:
        """What is checked at creation only, since it never changes."""
        causes = label_causes(spec["serviceName"], "spec.serviceName") if spec.get("serviceName") else []
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            causes += claim_causes(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
        return causes

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """As of other workloads; the service and the claims."""
        return super().validate_create(obj, ctx) + self._first_causes(obj["spec"])


def _update_causes(update: Object, path: str) -> list[Cause]:
    kind, rolling = update.get("type"), update.get("rollingUpdate")
    if kind == "OnDelete":
        shown = {"Partition": (rolling or {}).get("partition", 0), "MaxUnavailable": None}
        return [] if rolling is None else [
            errors.invalid_value(f"{path}.rollingUpdate", shown, "only allowed for updateStrategy 'RollingUpdate'")]
    if kind != "RollingUpdate":
        return [errors.invalid_value(path, {"Type": kind, "RollingUpdate": None},
                                     "must be 'RollingUpdate' or 'OnDelete'")]
    return non_negative(rolling or {}, "partition", f"{path}.rollingUpdate")


def _drop_max_unavailable(obj: Object) -> None:
    (obj["spec"]["updateStrategy"].get("rollingUpdate") or {}).pop("maxUnavailable", None)


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets: no replicas, no scale."""

    names_hosts = False
    selector_required = False  # its lack shows in the template, which nothing matches
    broken_selector = None
    counted = ()
    pods_of = "DaemonSet"
    empty_selector = "empty selector is invalid for daemonset"

    def default(self, obj: Object) -> None:
        """A rolling update, one node at a time; the annotation in which a former field lives on."""
        super().default(obj)
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: annotations.get(TEMPLATE_GENERATION, "0")}
        spec = obj["spec"]
        update = spec.setdefault("updateStrategy", {})
        put_default(update, "type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            put_default(update, "rollingUpdate", {})
            put_default(update["rollingUpdate"], "maxUnavailable", 1)
        if update.get("rollingUpdate") is not None:
            put_default(update["rollingUpdate"], "maxSurge", 0)
        put_default(spec, "revisionHistoryLimit", 10)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The first template."""
        super().prepare_create(obj, ctx)
        obj["metadata"]["annotations"][TEMPLATE_GENERATION] = "1"

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The generation of the template rises with it, whatever the client wrote."""
        super().prepare_update(new, old, subresource, ctx)
        before = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0"))
        changed = new["spec"].get("template") != old["spec"].get("template")
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = str(before + changed)

    def own_causes(self, spec: Object) -> list[Cause]:
        """The update strategy."""
        return _daemon_set_update_causes(spec["updateStrategy"], "spec.updateStrategy") + non_negative(
            spec, "revisionHistoryLimit", "spec")

    def scale_paths(self) -> tuple[str, str, str] | None:
        """It has none."""
        return None


def _daemon_set_update_causes(update: Object, path: str) -> list[Cause]:
    kind, rolling = update.get("type"), update.get("rollingUpdate") or {}
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [errors.not_supported(path, {"Type": kind, "RollingUpdate": None}, ("RollingUpdate", "OnDelete"))]
    surge, unavailable, at = rolling.get("maxSurge"), rolling.get("maxUnavailable"), f"{path}.rollingUpdate"
    causes = amount_or_percent_causes(unavailable, f"{at}.maxUnavailable", most_all=True)
    causes += amount_or_percent_causes(surge, f"{at}.maxSurge", most_all=True)
    if amount_of(surge) and amount_of(unavailable):
        causes.append(errors.invalid_value(f"{at}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not amount_of(surge) and not amount_of(unavailable):
        causes.append(errors.required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


class ControllerRevisionStrategy(BuiltinStrategy):
    """ControllerRevisions: their data is fixed."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """There is data, and a number."""
        data, revision = obj.get("data"), obj.get("revision") or 0
        causes = [] if revision >= 0 else [errors.invalid_value("revision", revision, NOT_NEGATIVE)]
        if data is None:
            return [*causes, errors.required("data", "data is mandatory")]
        return causes if isinstance(data, dict) else [
            *causes, errors.required("data", "data must be a valid JSON object")]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Data stays."""
        return [] if new.get("data") == old.get("data") else [errors.immutable("data", new.get("data"))]
