"""Kinds that this server stores without acting on them: their creation is answered with a Warning that says so.

`WITHOUT_CONTROLLER`: what acts on a kind is a controller, which this server may run. `NEVER`: nothing here acts on it.
The guide "What the embedded server obeys" lists both.
"""
from __future__ import annotations

from collections.abc import Collection

WITHOUT_CONTROLLER: dict[tuple[str, str], str] = {
    ("apps", "Deployment"): "deployment", ("apps", "ReplicaSet"): "replicaset", ("apps", "StatefulSet"): "statefulset",
    ("apps", "DaemonSet"): "daemonset", ("batch", "Job"): "job", ("batch", "CronJob"): "cronjob",
    ("", "PersistentVolumeClaim"): "persistentvolume-binder", ("policy", "PodDisruptionBudget"): "disruption"}
NEVER: dict[tuple[str, str], str] = {
    ("", "ReplicationController"): "no Pod is made",
    ("autoscaling", "HorizontalPodAutoscaler"): "nothing is scaled",
    ("networking.k8s.io", "Ingress"): "no traffic is routed",
    ("networking.k8s.io", "NetworkPolicy"): "no traffic is filtered",
    ("certificates.k8s.io", "CertificateSigningRequest"): "nothing is signed",
    ("apiregistration.k8s.io", "APIService"): "no request is passed on",
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): "no request is queued",
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): "no request is queued",
    ("resource.k8s.io", "ResourceClaim"): "no device is allocated",
    ("resource.k8s.io", "ResourceClaimTemplate"): "no device is allocated",
    ("storage.k8s.io", "VolumeAttachment"): "no volume is attached"}


def warning(group: str, kind: str, controllers: Collection[str]) -> str:
    """What the creation of an object of a built-in kind is warned of; "" if the server acts on the kind."""
    if why := NEVER.get((group, kind)):
        return f"the embedded API server stores this {kind} without acting on it: {why}"
    wanted = WITHOUT_CONTROLLER.get((group, kind))
    if wanted is None or wanted in controllers:
        return ""
    return (f"the embedded API server stores this {kind} without acting on it: its controller does not run, "
            f'ApiServer(controllers=[..., "{wanted}"]) has it')
