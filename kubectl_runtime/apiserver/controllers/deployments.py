"""Deployments make a ReplicaSet for each version of their template and shift the replicas from the old to the new one.

==================  ================================================================================================
a Deployment        what one look at it does
==================  ================================================================================================
paused              scales its ReplicaSets with its own size; no new ReplicaSet
of another size     scales the ReplicaSets (several ones in proportion), then tells the status
RollingUpdate       one step: makes or scales up the new ReplicaSet, else scales the old ones down, else cleans up
Recreate            scales the old ones down, waits for their Pods to end, then makes the new ReplicaSet
==================  ================================================================================================

Each change comes back here. No Pod runs unless a test says so, hence most rollouts wait for availability.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.controllers.claims import AGENT
from kubectl_runtime.apiserver.controllers.deployment_revisions import clean_up, make_new
from kubectl_runtime.apiserver.controllers.deployment_sets import DEPLOYMENTS, Rollout, look, scale, scale_all
from kubectl_runtime.apiserver.controllers.deployment_status import (
    NEVER,
    change_of,
    complete,
    condition,
    counted,
    differs,
    set_condition,
    tell_progress,
)
from kubectl_runtime.apiserver.controllers.queue import KeyQueue
from kubectl_runtime.apiserver.controllers.replicasets import PODS, REPLICA_SETS
from kubectl_runtime.apiserver.controllers.rollout import DESIRED, new_replicas, old_replicas
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.loopback import patch, served_type
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

_PATIENCE = 2.0  # seconds; creation times are whole ones


class DeploymentController(KeyQueue):
    """See the module."""

    name = "deployment"
    storage = DEPLOYMENTS
    kind = "Deployment"
    children = (REPLICA_SETS,)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Do one step of the rollout."""
        rollout = look(cluster, version)
        spec = rollout.obj["spec"]
        if version.deleting:
            self._tell(rollout, progress=False)
        elif _note_pause(rollout):
            return  # its write comes back here
        elif spec.get("paused") or any(found.replicas and found.notes.get(DESIRED, str(rollout.limits.replicas)) != str(
                rollout.limits.replicas) for found in rollout.sets):
            if not scale_all(rollout):
                if spec.get("paused"):
                    clean_up(rollout)
                self._tell(rollout, progress=False)
        elif not (self._recreate(rollout) if dig(spec, "strategy.type") == "Recreate" else _roll(rollout)):
            if _just_made(rollout):
                self.look_later(cluster, version, _PATIENCE)
                return
            status, _ = self._tell(rollout, progress=True)
            if complete(rollout.obj, status):
                clean_up(rollout)

    def _recreate(self, rollout: Rollout) -> bool:
        """One step without surge; whether something was written that comes back here."""
        scaled = [scale(rollout, found, 0) for found in rollout.old]  # all of them at once
        if any(scaled):
            return True
        if _old_pods_run(rollout):
            self.look_later(rollout.cluster, rollout.version, 1.0)  # Pods are no children of the Deployment
            return False
        if rollout.new is None and self._tell(rollout, progress=True)[1]:
            return True  # that nothing is updated is told before there is something
        return make_new(rollout) or scale(rollout, rollout.new, rollout.limits.replicas)

    def _tell(self, rollout: Rollout, *, progress: bool) -> tuple[Object, bool]:
        """Write the status if it changed; the status, and whether it did."""
        cluster, deployment = rollout.cluster, rollout.obj
        now, newest = cluster.clock.now(), rollout.new.obj if rollout.new else None
        status = counted(deployment, [found.obj for found in rollout.sets], newest, rollout.limits, format_time(now))
        if progress and (wait := tell_progress(deployment, status, newest, now)) is not None:
            self.look_later(cluster, rollout.version, wait)
        changed = differs(status, deployment.get("status") or {})
        if changed:
            patch(cluster, served_type(cluster, DEPLOYMENTS), rollout.version, {"status": change_of(status)},
                  agent=AGENT, subresource="status")
        return status, changed


def _just_made(rollout: Rollout) -> bool:
    """Whether the newest ReplicaSet is so new that its own controller may not have seen it: its counts are to come.

    The real controller stumbles over its own write then, so that it tells the status only when it looks again.
    """
    if rollout.new is None or dig(rollout.new.obj, "status.observedGeneration"):
        return False
    made = datetime.fromisoformat(rollout.new.obj["metadata"]["creationTimestamp"])
    return (rollout.cluster.clock.now() - made).total_seconds() < _PATIENCE


def _note_pause(rollout: Rollout) -> bool:
    """Tell in the condition Progressing that the rollout is paused, or goes on; whether that was written."""
    spec, status = rollout.obj["spec"], {"conditions": dig(rollout.obj, "status.conditions") or []}
    if spec.get("progressDeadlineSeconds", NEVER) == NEVER:
        return False
    known = condition(status, "Progressing")
    paused = bool(known and known["reason"] == "DeploymentPaused")
    if (known and known["reason"] == "ProgressDeadlineExceeded") or paused == bool(spec.get("paused")):
        return False
    told = ("DeploymentResumed", "Deployment is resumed") if paused else ("DeploymentPaused", "Deployment is paused")
    set_condition(status, "Progressing", "Unknown", *told, format_time(rollout.cluster.clock.now()))
    patch(rollout.cluster, served_type(rollout.cluster, DEPLOYMENTS), rollout.version, {"status": status}, agent=AGENT,
          subresource="status")
    return True


def _roll(rollout: Rollout) -> bool:
    """One step of a rolling update; whether something was written that comes back here."""
    if make_new(rollout):
        return True
    new = rollout.new
    assert new is not None
    others = sum(found.replicas for found in rollout.old)
    if scale(rollout, new, new_replicas(rollout.limits, new.replicas, others)):
        return True
    by_name = {found.version.name: found for found in rollout.old}
    steps = old_replicas(rollout.limits, new.size, {name: found.size for name, found in by_name.items()})
    for name, size in steps.items():
        scale(rollout, by_name[name], size)
    return bool(steps)


def _old_pods_run(rollout: Rollout) -> bool:
    owners = {found.version.uid for found in rollout.old}
    pods = rollout.cluster.storage.bucket(PODS).scan(rollout.version.namespace)
    return any(owner.get("uid") in owners for pod in pods
               for owner in pod.owners if dig(pod.decode(), "status.phase") not in ("Succeeded", "Failed"))
