"""A Deployment and its ReplicaSets in the middle of a rollout, and how their sizes are changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.apiserver.controllers.claims import AGENT, claim
from kubectl_runtime.apiserver.controllers.event_recorder import tell
from kubectl_runtime.apiserver.controllers.replicasets import REPLICA_SETS
from kubectl_runtime.apiserver.controllers.rollout import DESIRED, MOST, Limits, Size, limits_of, proportional
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.loopback import patch, served_type
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version

Object = dict[str, Any]

DEPLOYMENTS = "apps/deployments"
COMPONENT = "deployment-controller"
REVISION, HISTORY = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
HASH_LABEL = "pod-template-hash"


@dataclass(slots=True)
class ReplicaSet:
    """A ReplicaSet and its object."""

    version: Version
    obj: Object

    @property
    def replicas(self) -> int:
        """By its spec."""
        return int(self.obj["spec"].get("replicas", 1))

    @property
    def notes(self) -> Object:
        """Its annotations."""
        return self.obj["metadata"].get("annotations") or {}

    @property
    def revision(self) -> int:
        """Of the Deployment's templates; 0 if it has none."""
        text = self.notes.get(REVISION, "")
        return int(text) if text.isdecimal() else 0

    @property
    def size(self) -> Size:
        """For the arithmetic of a rollout."""
        return Size(self.replicas, dig(self.obj, "status.availableReplicas") or 0, int(self.notes.get(MOST, 0)))


@dataclass(slots=True)
class Rollout:
    """A Deployment that is looked at, and its ReplicaSets: the one of its template, and the others, oldest first."""

    cluster: Cluster
    version: Version
    obj: Object
    limits: Limits
    new: ReplicaSet | None
    old: list[ReplicaSet] = field(default_factory=list)

    @property
    def sets(self) -> list[ReplicaSet]:
        """All of them."""
        return [*self.old, self.new] if self.new else self.old


def look(cluster: Cluster, version: Version) -> Rollout:
    """What there is of a Deployment, once its ReplicaSets are adopted and released."""
    obj = version.decode()
    found = [ReplicaSet(child, child.decode())
             for child in claim(cluster, version, "Deployment", obj["spec"]["selector"], REPLICA_SETS)]
    found.sort(key=lambda one: (one.obj["metadata"]["creationTimestamp"], one.version.name))
    new = next((one for one in found if _bare(one.obj["spec"]["template"]) == _bare(obj["spec"]["template"])), None)
    return Rollout(cluster, version, obj, limits_of(obj["spec"]), new, [one for one in found if one is not new])


def _bare(template: Object) -> Object:
    """A template without the label that tells the ReplicaSets apart."""
    labels = {key: value for key, value in (dig(template, "metadata.labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}


def annotated_sizes(limits: Limits) -> Object:
    """The annotations that tell for which size of the Deployment a ReplicaSet was scaled."""
    return {DESIRED: str(limits.replicas), MOST: str(limits.replicas + limits.surge if limits.replicas else 0)}


def scale(rollout: Rollout, found: ReplicaSet | None, replicas: int) -> bool:
    """Give a ReplicaSet a size; whether it had another one."""
    if found is None or found.replicas == replicas:
        return False
    return resize(rollout, found, replicas)


def resize(rollout: Rollout, found: ReplicaSet, replicas: int) -> bool:
    """Give a ReplicaSet a size, and the annotations of the Deployment's; whether anything changed."""
    sizes = annotated_sizes(rollout.limits)
    if found.replicas == replicas and all(found.notes.get(key) == value for key, value in sizes.items()):
        return False
    patch(rollout.cluster, served_type(rollout.cluster, REPLICA_SETS), found.version,
          {"metadata": {"annotations": sizes}, "spec": {"replicas": replicas}}, agent=AGENT)
    if found.replicas != replicas:
        tell_scaled(rollout, found.version.name, found.replicas, replicas)
    return True


def tell_scaled(rollout: Rollout, name: str, before: int, after: int) -> None:
    """Write the Event of a scaled ReplicaSet."""
    kind = served_type(rollout.cluster, DEPLOYMENTS)
    if kind is not None:
        tell(rollout.cluster, kind, rollout.version, "ScalingReplicaSet", (
            f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"),
            component=COMPONENT)


def scale_all(rollout: Rollout) -> bool:
    """Scale with the Deployment: its only ReplicaSet that has replicas, or several in proportion; whether any was."""
    active = [found for found in rollout.sets if found.replicas]
    if len(active) <= 1:
        latest = active[0] if active else rollout.new or next(reversed(rollout.old), None)
        return latest is not None and scale(rollout, latest, rollout.limits.replicas)
    if dig(rollout.obj, "spec.strategy.type") == "Recreate":
        return False
    active.sort(key=lambda found: -found.replicas)
    sizes = proportional(rollout.limits, {found.version.name: found.size for found in active})
    resized = [resize(rollout, found, sizes[found.version.name]) for found in active]  # all of them at once
    return any(resized)
