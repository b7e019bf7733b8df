"""StatefulSets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.apps.workloads import WorkloadStrategy
from kubectl_runtime.apiserver.kinds.base import label_causes, non_negative, one_of, put_default
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import claim_causes
from kubectl_runtime.apiserver.kinds.pod.warnings import claim_spec_warnings
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


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
