"""The revisions of a Deployment: the ReplicaSet of its template, made or brought back, and the old ones that are too
many."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from kubectl_runtime.apiserver.controllers.claims import AGENT, owner_reference
from kubectl_runtime.apiserver.controllers.deployment_sets import (
    DEPLOYMENTS,
    HASH_LABEL,
    HISTORY,
    REVISION,
    Rollout,
    annotated_sizes,
    tell_scaled,
)
from kubectl_runtime.apiserver.controllers.deployment_status import NEVER, condition, set_condition
from kubectl_runtime.apiserver.controllers.replicasets import REPLICA_SETS
from kubectl_runtime.apiserver.controllers.rollout import DESIRED, MOST, new_replicas
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.loopback import delete, patch, path_of, served_type, submit
from kubectl_runtime.apiserver.output.negotiation import encode
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

_OWN = (REVISION, HISTORY, DESIRED, MOST, "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to")  # annotations that a ReplicaSet does not take over
_HASH_ALPHABET = "bcdf56789h"  # ten of the characters that generated names use


def template_hash(template: Object) -> str:
    """A short name for a Pod template; equal templates have equal ones."""
    digest = hashlib.sha256(encode(template)).digest()
    return "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest[:10])


def make_new(rollout: Rollout) -> bool:
    """Make the ReplicaSet of the template, or give the one there is the newest revision; whether something was
    written."""
    revision = max((found.revision for found in rollout.old), default=0) + 1
    notes = {key: value for key, value in (rollout.obj["metadata"].get("annotations") or {}).items() if key not in _OWN}
    if rollout.new is None:
        _create(rollout, revision, notes)
        return True
    new, cluster = rollout.new, rollout.cluster
    if new.revision < revision:
        notes[REVISION] = str(revision)
        if new.revision:
            notes[HISTORY] = ",".join(filter(None, (new.notes.get(HISTORY), str(new.revision))))
    change: Object = {}
    if any(new.notes.get(key) != value for key, value in notes.items()):
        change["metadata"] = {"annotations": notes}
    if new.obj["spec"].get("minReadySeconds", 0) != rollout.obj["spec"].get("minReadySeconds", 0):
        change["spec"] = {"minReadySeconds": rollout.obj["spec"].get("minReadySeconds", 0)}
    if change:
        patch(cluster, served_type(cluster, REPLICA_SETS), new.version, change, agent=AGENT)
        return True
    return _announce(rollout, new.revision, "FoundNewReplicaSet", f'Found new replica set "{new.version.name}"',
                     always=False)


def _create(rollout: Rollout, revision: int, notes: Object) -> None:
    cluster, spec, limits, owner = rollout.cluster, rollout.obj["spec"], rollout.limits, rollout.version
    template, name = spec["template"], template_hash(spec["template"])
    labels = {**(dig(template, "metadata.labels") or {}), HASH_LABEL: name}
    selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: name}}
    replicas = new_replicas(limits, 0, sum(found.replicas for found in rollout.old))
    kind = served_type(cluster, REPLICA_SETS)
    if kind is None:
        return
    made = submit(cluster, "POST", path_of(kind, owner.namespace), {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": f"{owner.name}-{name}", "labels": labels,
                     "annotations": {**notes, REVISION: str(revision), **annotated_sizes(limits)},
                     "ownerReferences": [owner_reference(owner, "Deployment")]},
        "spec": {"replicas": replicas, "selector": selector, "minReadySeconds": spec.get("minReadySeconds", 0),
                 "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}}},
        agent=AGENT)
    if made is None:
        return
    made_name = msgspec.json.decode(made.body)["metadata"]["name"]
    if replicas:
        tell_scaled(rollout, made_name, 0, replicas)
    _announce(rollout, revision, "NewReplicaSetCreated", f'Created new replica set "{made_name}"', always=True)


def _announce(rollout: Rollout, revision: int, reason: str, message: str, *, always: bool) -> bool:
    """Note the revision, and in the condition Progressing which ReplicaSet is the new one; whether that was written."""
    status: Object = {"conditions": dig(rollout.obj, "status.conditions") or []}
    told = rollout.obj["spec"].get("progressDeadlineSeconds", NEVER) != NEVER and (
        always or condition(status, "Progressing") is None)
    noted = dig(rollout.obj, "metadata.annotations") or {}
    if not told and noted.get(REVISION) == str(revision):
        return False
    if told:
        set_condition(status, "Progressing", "True", reason, message, format_time(rollout.cluster.clock.now()))
    patch(rollout.cluster, served_type(rollout.cluster, DEPLOYMENTS), rollout.version,
          {"metadata": {"annotations": {REVISION: str(revision)}}, "status": status}, agent=AGENT, subresource="status")
    return True


def clean_up(rollout: Rollout) -> None:
    """Delete the oldest ReplicaSets beyond revisionHistoryLimit, if they are empty."""
    limit = rollout.obj["spec"].get("revisionHistoryLimit")
    alive = sorted((found for found in rollout.old if not found.version.deleting), key=lambda found: found.revision)
    for found in alive[:max(0, len(alive) - limit)] if limit is not None else ():
        seen = dig(found.obj, "status.observedGeneration") or 0
        if found.replicas or dig(found.obj, "status.replicas") or seen < found.obj["metadata"].get("generation", 1):
            continue
        delete(rollout.cluster, served_type(rollout.cluster, REPLICA_SETS), found.version, agent=AGENT)
