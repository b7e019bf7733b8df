"""The kinds of apps/v1, and ReplicationController: replicas of a pod template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import (
    BuiltinStrategy,
    dig,
    immutable_causes,
    label_selector,
    non_negative,
    one_of,
    put_default,
    selector_causes,
    selector_text,
)
from kubectl_runtime.testing.apiserver.kinds.pod_warnings import claim_spec_warnings, name_warnings, template_warnings
from kubectl_runtime.testing.apiserver.kinds.podspec import default_pod_spec
from kubectl_runtime.testing.apiserver.kinds.podspec_validation import template_causes
from kubectl_runtime.testing.apiserver.names import dns_label_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_MISMATCH = "`selector` does not match template `labels`"


class WorkloadStrategy(BuiltinStrategy):
    """What Deployments, ReplicaSets, StatefulSets and DaemonSets share."""

    has_status = True
    has_generation = True
    empty_selector = "empty selector is invalid for deployment"
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
        causes = non_negative(spec, "replicas", "spec") + _selector_causes(spec, self.empty_selector)
        causes += pod_template_causes(spec, ("Always",))
        return causes + non_negative(spec, "minReadySeconds", "spec") + self.own_causes(spec)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """What a create checks, and the selector does not change."""
        if subresource == "status":
            return []
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


def _selector_causes(spec: Object, when_empty: str) -> list[Cause]:
    selector = spec.get("selector")
    if selector is None:
        return [errors.required("spec.selector")]
    causes = selector_causes(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(errors.invalid_value("spec.selector", selector, when_empty))
    return causes


def pod_template_causes(spec: Object, restart_policies: Sequence[str]) -> list[Cause]:
    """Whether the selector matches the template, what is wrong with the template, and its restart policy."""
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    selector = label_selector(spec.get("selector"))
    causes = []
    if selector is None or not selector.matches(labels or {}):  # no selector selects nothing, which is refused too
        causes.append(errors.invalid_value("spec.template.metadata.labels", labels, _MISMATCH))
    causes += template_causes(template, "spec.template")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in restart_policies:
        causes.append(errors.not_supported("spec.template.spec.restartPolicy", policy, restart_policies))
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
        strategy = spec["strategy"]
        causes = one_of(strategy.get("type"), ("Recreate", "RollingUpdate"), "spec.strategy.type")
        rolling = strategy.get("rollingUpdate")
        if strategy.get("type") == "Recreate" and rolling is not None:
            causes.append(errors.forbidden_field("spec.strategy.rollingUpdate",
                                                 "may not be specified when strategy `type` is 'Recreate'"))
        elif rolling and all(rolling.get(key) in (0, "0%") for key in ("maxSurge", "maxUnavailable")):
            causes.append(errors.invalid_value("spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"],
                                               "may not be 0 when `maxSurge` is 0"))
        causes += non_negative(spec, "revisionHistoryLimit", "spec")
        deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
        if deadline is not None:
            causes += non_negative(spec, "progressDeadlineSeconds", "spec")
            if deadline <= least:
                causes.append(errors.invalid_value("spec.progressDeadlineSeconds", deadline,
                                                   "must be greater than minReadySeconds"))
        return causes


class ReplicaSetStrategy(WorkloadStrategy):
    """ReplicaSets."""

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
        return causes + pod_template_causes({**spec, "selector": {"matchLabels": selector}}, ("Always",))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation: the selector may change."""
        return [] if subresource == "status" else self.validate_create(new, ctx)


class StatefulSetStrategy(WorkloadStrategy):
    """StatefulSets."""

    empty_selector = "empty selector is invalid for statefulset"
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

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A DNS label: its Pods are named after it."""
        return dns_label_errors(name, prefix=prefix)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Most of the spec is fixed."""
        if subresource == "status":
            return []
        causes = self.validate_create(new, ctx)
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

    def own_causes(self, spec: Object) -> list[Cause]:
        """Policies."""
        return (one_of(spec.get("podManagementPolicy"), ("OrderedReady", "Parallel"), "spec.podManagementPolicy")
                + one_of(spec["updateStrategy"].get("type"), ("OnDelete", "RollingUpdate"), "spec.updateStrategy.type"))


def _drop_max_unavailable(obj: Object) -> None:
    (obj["spec"]["updateStrategy"].get("rollingUpdate") or {}).pop("maxUnavailable", None)


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets: no replicas, no scale."""

    names_hosts = False
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

    def scale_paths(self) -> tuple[str, str, str] | None:
        """It has none."""
        return None


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
