"""Fields of built-in kinds that take one of a few texts, as OpenAPI documents list them (`kubectl explain` shows them).

The generated definitions do not have them. The list has the fields that people look up, and is not complete.
"""
from __future__ import annotations

_CORE, _APPS, _BATCH = "io.k8s.api.core.v1.", "io.k8s.api.apps.v1.", "io.k8s.api.batch.v1."
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL, _MESSAGES = ("Always", "IfNotPresent", "Never"), ("FallbackToLogsOnError", "File")
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_MODES, _TRAFFIC = ("Block", "Filesystem"), ("Cluster", "Local")

ENUMS: dict[tuple[str, str], tuple[str, ...]] = {
    (f"{_CORE}PodSpec", "restartPolicy"): ("Always", "Never", "OnFailure"),
    (f"{_CORE}PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    (f"{_CORE}PodSpec", "preemptionPolicy"): ("Never", "PreemptLowerPriority"),
    (f"{_CORE}PodStatus", "phase"): ("Failed", "Pending", "Running", "Succeeded", "Unknown"),
    (f"{_CORE}PodStatus", "qosClass"): ("BestEffort", "Burstable", "Guaranteed"),
    (f"{_CORE}Container", "imagePullPolicy"): _PULL, (f"{_CORE}EphemeralContainer", "imagePullPolicy"): _PULL,
    (f"{_CORE}Container", "terminationMessagePolicy"): _MESSAGES,
    (f"{_CORE}EphemeralContainer", "terminationMessagePolicy"): _MESSAGES,
    (f"{_CORE}ContainerPort", "protocol"): _PROTOCOLS, (f"{_CORE}ServicePort", "protocol"): _PROTOCOLS,
    (f"{_CORE}EndpointPort", "protocol"): _PROTOCOLS,
    (f"{_CORE}SecurityContext", "procMount"): ("Default", "Unmasked"),
    (f"{_CORE}SeccompProfile", "type"): ("Localhost", "RuntimeDefault", "Unconfined"),
    (f"{_CORE}HTTPGetAction", "scheme"): ("HTTP", "HTTPS"),
    (f"{_CORE}ServiceSpec", "type"): ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
    (f"{_CORE}ServiceSpec", "sessionAffinity"): ("ClientIP", "None"),
    (f"{_CORE}ServiceSpec", "internalTrafficPolicy"): _TRAFFIC,
    (f"{_CORE}ServiceSpec", "externalTrafficPolicy"): _TRAFFIC,
    (f"{_CORE}Taint", "effect"): _EFFECTS, (f"{_CORE}Toleration", "effect"): _EFFECTS,
    (f"{_CORE}NodeSelectorRequirement", "operator"): ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"),
    (f"{_CORE}TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    (f"{_CORE}TopologySpreadConstraint", "nodeAffinityPolicy"): ("Honor", "Ignore"),
    (f"{_CORE}TopologySpreadConstraint", "nodeTaintsPolicy"): ("Honor", "Ignore"),
    (f"{_CORE}NamespaceStatus", "phase"): ("Active", "Terminating"),
    (f"{_CORE}PersistentVolumeSpec", "persistentVolumeReclaimPolicy"): ("Delete", "Recycle", "Retain"),
    (f"{_CORE}PersistentVolumeSpec", "volumeMode"): _MODES,
    (f"{_CORE}PersistentVolumeStatus", "phase"): ("Available", "Bound", "Failed", "Pending", "Released"),
    (f"{_CORE}PersistentVolumeClaimSpec", "volumeMode"): _MODES,
    (f"{_CORE}PersistentVolumeClaimStatus", "phase"): ("Bound", "Lost", "Pending"),
    (f"{_APPS}DeploymentStrategy", "type"): ("Recreate", "RollingUpdate"),
    (f"{_APPS}DaemonSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    (f"{_APPS}StatefulSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    (f"{_APPS}StatefulSetSpec", "podManagementPolicy"): ("OrderedReady", "Parallel"),
    (f"{_BATCH}CronJobSpec", "concurrencyPolicy"): ("Allow", "Forbid", "Replace"),
    (f"{_BATCH}JobSpec", "completionMode"): ("Indexed", "NonIndexed"),
    (f"{_BATCH}JobSpec", "podReplacementPolicy"): ("Failed", "TerminatingOrFailed"),
    ("io.k8s.api.networking.v1.HTTPIngressPath", "pathType"): ("Exact", "ImplementationSpecific", "Prefix"),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", "protocol"): _PROTOCOLS,
}
