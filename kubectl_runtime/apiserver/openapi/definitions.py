"""Schemas for OpenAPI documents, from the definitions of the built-in kinds and from the schemas of CRDs.

The generated definitions lack enums, which `kubectl explain` shows; `ENUMS` has them. The defaults that a real server
writes at fields without a default of their own (`{}`, "" and 0) are left out.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubectl_runtime.apiserver.schemas import definition_names
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.schema.definitions import definitions, descriptions

# (values, the fields that take them), from the types marked `+enum` in k8s.io/api 1.36.2.
_ENUMS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("Equivalent", "Exact"),
     "admissionregistration.v1.MatchResources.matchPolicy admissionregistration.v1.MutatingWebhook.matchPolicy "
     "admissionregistration.v1.ValidatingWebhook.matchPolicy "
     "admissionregistration.v1alpha1.MatchResources.matchPolicy"),
    (("Fail", "Ignore"),
     "admissionregistration.v1.MutatingAdmissionPolicySpec.failurePolicy "
     "admissionregistration.v1.MutatingWebhook.failurePolicy "
     "admissionregistration.v1.ValidatingAdmissionPolicySpec.failurePolicy "
     "admissionregistration.v1.ValidatingWebhook.failurePolicy "
     "admissionregistration.v1alpha1.MutatingAdmissionPolicySpec.failurePolicy"),
    (("IfNeeded", "Never"),
     "admissionregistration.v1.MutatingAdmissionPolicySpec.reinvocationPolicy "
     "admissionregistration.v1.MutatingWebhook.reinvocationPolicy"),
    (("None", "NoneOnDryRun", "Some", "Unknown"),
     "admissionregistration.v1.MutatingWebhook.sideEffects admissionregistration.v1.ValidatingWebhook.sideEffects"),
    (("ApplyConfiguration", "JSONPatch"),
     "admissionregistration.v1.Mutation.patchType admissionregistration.v1alpha1.Mutation.patchType "
     "admissionregistration.v1beta1.Mutation.patchType"),
    (("*", "CONNECT", "CREATE", "DELETE", "UPDATE"), "admissionregistration.v1.RuleWithOperations.operations"),
    (("Audit", "Deny", "Warn"), "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions"),
    (("Allow", "Deny"), "admissionregistration.v1alpha1.ParamRef.parameterNotFoundAction"),
    (("OnDelete", "RollingUpdate"), "apps.v1.DaemonSetUpdateStrategy.type apps.v1.StatefulSetUpdateStrategy.type"),
    (("Recreate", "RollingUpdate"), "apps.v1.DeploymentStrategy.type"),
    (("OrderedReady", "Parallel"), "apps.v1.StatefulSetSpec.podManagementPolicy"),
    (("Allow", "Forbid", "Replace"), "batch.v1.CronJobSpec.concurrencyPolicy"),
    (("Indexed", "NonIndexed"), "batch.v1.JobSpec.completionMode"),
    (("Failed", "TerminatingOrFailed"), "batch.v1.JobSpec.podReplacementPolicy"),
    (("In", "NotIn"), "batch.v1.PodFailurePolicyOnExitCodesRequirement.operator"),
    (("Count", "FailIndex", "FailJob", "Ignore"), "batch.v1.PodFailurePolicyRule.action"),
    (("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
     "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system",
     "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc",
     "ocsp signing", "s/mime", "server auth", "signing", "timestamping"),
     "certificates.v1.CertificateSigningRequestSpec.usages"),
    (("Localhost", "RuntimeDefault", "Unconfined"), "core.v1.AppArmorProfile.type core.v1.SeccompProfile.type"),
    (("None", "ReadOnly", "ReadWrite"), "core.v1.AzureDiskVolumeSource.cachingMode"),
    (("Dedicated", "Managed", "Shared"), "core.v1.AzureDiskVolumeSource.kind"),
    (("Always", "IfNotPresent", "Never"),
     "core.v1.Container.imagePullPolicy core.v1.EphemeralContainer.imagePullPolicy "
     "core.v1.ImageVolumeSource.pullPolicy"),
    (("FallbackToLogsOnError", "File"),
     "core.v1.Container.terminationMessagePolicy core.v1.EphemeralContainer.terminationMessagePolicy"),
    (("SCTP", "TCP", "UDP"),
     "core.v1.ContainerPort.protocol core.v1.EndpointPort.protocol core.v1.PortStatus.protocol "
     "core.v1.ServicePort.protocol discovery.v1.EndpointPort.protocol networking.v1.IngressPortStatus.protocol "
     "networking.v1.NetworkPolicyPort.protocol"),
    (("SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT",
     "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX",
     "SIGRTMAX-1", "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13", "SIGRTMAX-14", "SIGRTMAX-2",
     "SIGRTMAX-3", "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8", "SIGRTMAX-9",
     "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14",
     "SIGRTMIN+15", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7",
     "SIGRTMIN+8", "SIGRTMIN+9", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP",
     "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ"),
     "core.v1.ContainerStatus.stopSignal core.v1.Lifecycle.stopSignal"),
    (("HTTP", "HTTPS"), "core.v1.HTTPGetAction.scheme"),
    (("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
     "core.v1.HostPathVolumeSource.type"),
    (("InProgress", "Infeasible", "Pending"), "core.v1.ModifyVolumeStatus.status"),
    (("Active", "Terminating"), "core.v1.NamespaceStatus.phase"),
    (("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"), "core.v1.NodeSelectorRequirement.operator"),
    (("Pending", "Running", "Terminated"), "core.v1.NodeStatus.phase"),
    (("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"),
     "core.v1.PersistentVolumeClaimSpec.accessModes core.v1.PersistentVolumeClaimStatus.accessModes "
     "core.v1.PersistentVolumeSpec.accessModes"),
    (("Block", "Filesystem"), "core.v1.PersistentVolumeClaimSpec.volumeMode core.v1.PersistentVolumeSpec.volumeMode"),
    (("Bound", "Lost", "Pending"), "core.v1.PersistentVolumeClaimStatus.phase"),
    (("Delete", "Recycle", "Retain"),
     "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy storage.v1.StorageClass.reclaimPolicy"),
    (("Available", "Bound", "Failed", "Pending", "Released"), "core.v1.PersistentVolumeStatus.phase"),
    (("Always", "OnRootMismatch"), "core.v1.PodSecurityContext.fsGroupChangePolicy"),
    (("Merge", "Strict"), "core.v1.PodSecurityContext.supplementalGroupsPolicy"),
    (("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"), "core.v1.PodSpec.dnsPolicy"),
    (("Never", "PreemptLowerPriority"),
     "core.v1.PodSpec.preemptionPolicy scheduling.v1.PriorityClass.preemptionPolicy"),
    (("Always", "Never", "OnFailure"), "core.v1.PodSpec.restartPolicy"),
    (("Failed", "Pending", "Running", "Succeeded", "Unknown"), "core.v1.PodStatus.phase"),
    (("BestEffort", "Burstable", "Guaranteed"), "core.v1.PodStatus.qosClass"),
    (("BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass",
     "Terminating", "VolumeAttributesClass"),
     "core.v1.ResourceQuotaSpec.scopes core.v1.ScopedResourceSelectorRequirement.scopeName"),
    (("DoesNotExist", "Exists", "In", "NotIn"), "core.v1.ScopedResourceSelectorRequirement.operator"),
    (("Default", "Unmasked"), "core.v1.SecurityContext.procMount"),
    (("Cluster", "Local"), "core.v1.ServiceSpec.externalTrafficPolicy core.v1.ServiceSpec.internalTrafficPolicy"),
    (("", "IPv4", "IPv6"), "core.v1.ServiceSpec.ipFamilies"),
    (("PreferDualStack", "RequireDualStack", "SingleStack"), "core.v1.ServiceSpec.ipFamilyPolicy"),
    (("ClientIP", "None"), "core.v1.ServiceSpec.sessionAffinity"),
    (("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"), "core.v1.ServiceSpec.type"),
    (("NoExecute", "NoSchedule", "PreferNoSchedule"), "core.v1.Taint.effect core.v1.Toleration.effect"),
    (("Equal", "Exists", "Gt", "Lt"), "core.v1.Toleration.operator"),
    (("Honor", "Ignore"),
     "core.v1.TopologySpreadConstraint.nodeAffinityPolicy core.v1.TopologySpreadConstraint.nodeTaintsPolicy"),
    (("DoNotSchedule", "ScheduleAnyway"), "core.v1.TopologySpreadConstraint.whenUnsatisfiable"),
    (("Bidirectional", "HostToContainer", "None"), "core.v1.VolumeMount.mountPropagation"),
    (("FQDN",), "discovery.v1.EndpointSlice.addressType"),
    (("Exact", "ImplementationSpecific", "Prefix"), "networking.v1.HTTPIngressPath.pathType"),
    (("Egress", "Ingress"), "networking.v1.NetworkPolicySpec.policyTypes"),
    (("AlwaysAllow", "IfHealthyBudget"), "policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy"),
    (("FromClaim", "FromClass"),
     "resource.v1.DeviceAllocationConfiguration.source resource.v1beta1.DeviceAllocationConfiguration.source "
     "resource.v1beta2.DeviceAllocationConfiguration.source"),
    (("All", "ExactCount"),
     "resource.v1.DeviceSubRequest.allocationMode resource.v1.ExactDeviceRequest.allocationMode "
     "resource.v1beta1.DeviceRequest.allocationMode resource.v1beta1.DeviceSubRequest.allocationMode "
     "resource.v1beta2.DeviceSubRequest.allocationMode resource.v1beta2.ExactDeviceRequest.allocationMode"),
    (("NoExecute", "NoSchedule", "None"),
     "resource.v1.DeviceTaint.effect resource.v1.DeviceToleration.effect resource.v1alpha3.DeviceTaint.effect "
     "resource.v1beta1.DeviceTaint.effect resource.v1beta1.DeviceToleration.effect "
     "resource.v1beta2.DeviceTaint.effect resource.v1beta2.DeviceToleration.effect"),
    (("Equal", "Exists"),
     "resource.v1.DeviceToleration.operator resource.v1beta1.DeviceToleration.operator "
     "resource.v1beta2.DeviceToleration.operator"),
    (("Pod", "PodGroup"),
     "scheduling.v1alpha2.PodGroupSpec.disruptionMode scheduling.v1alpha2.PodGroupTemplate.disruptionMode"),
    (("Immediate", "WaitForFirstConsumer"), "storage.v1.StorageClass.volumeBindingMode"),
)
ENUMS = {tuple(f"io.k8s.api.{place}".rsplit(".", 1)): values for values, places in _ENUMS for place in places.split()}


Object = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META, LIST_META = f"{META}.ObjectMeta", f"{META}.ListMeta"
STATUS, DELETE_OPTIONS, PATCH = f"{META}.Status", f"{META}.DeleteOptions", f"{META}.Patch"
ALWAYS = (STATUS, DELETE_OPTIONS, f"{META}.WatchEvent", f"{META}.APIResourceList", f"{META}.APIGroup")
V2_PREFIX, V3_PREFIX = "#/definitions/", "#/components/schemas/"

# Keywords that a schema may have in v3 and not in v2, where they are left out.
_ONLY_V3 = ("oneOf", "anyOf", "allOf", "not", "nullable", "default")
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = ("APIVersion defines the versioned schema of this representation of an object. Servers should convert "
                "recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
                f"{_CONVENTIONS}#resources")
_KIND = ("Kind is a string value representing the REST resource this object represents. Servers may infer this from "
         "the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
         f"{_CONVENTIONS}#types-kinds")
_METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
# Values that are texts or numbers, which v3 can express and v2 cannot.
_SEVERAL_TYPES = {"io.k8s.apimachinery.pkg.util.intstr.IntOrString": ("integer", "string"),
                  "io.k8s.apimachinery.pkg.api.resource.Quantity": ("string", "number")}


def name_of(resource_type: ServedResource) -> str:
    """The name of a type's schema: ``io.k8s.api.core.v1.Pod``, ``com.example.v1.Widget``."""
    if not resource_type.is_custom:
        return definition_names()[resource_type.group, resource_type.version, resource_type.kind]
    return ".".join([*reversed(resource_type.group.split(".")), resource_type.version, resource_type.kind])


def list_name_of(resource_type: ServedResource) -> str:
    """The name of the schema of the type's list."""
    return name_of(resource_type).rpartition(".")[0] + "." + resource_type.list_kind


def kind_name(group: str, version: str, kind: str) -> str:
    """The name of a built-in kind's schema; "" if it has none (``PodExecOptions``)."""
    return definition_names().get((group, version, kind), "")


def schemas(types: Iterable[ServedResource], prefix: str, extra: Iterable[str] = ()) -> Object:
    """The schemas of types and of all that they refer to, by name; references start with the prefix."""
    result: Object = {}
    wanted = [*ALWAYS, *(name for name in extra if name)]
    for resource_type in types:
        if resource_type.is_custom:
            result[name_of(resource_type)] = _custom(resource_type, prefix)
            result[list_name_of(resource_type)] = _custom_list(resource_type, prefix)
            wanted += [OBJECT_META, LIST_META]
        else:
            wanted += [name for name in (name_of(resource_type), list_name_of(resource_type)) if name in definitions()]
    for name in closure(wanted):
        result[name] = _builtin(name, prefix)
    result[PATCH] = {"description": "Patch names the type of the body of a PATCH request.", "type": "object"}
    return dict(sorted(result.items()))


def named(names: Iterable[str], prefix: str) -> Object:
    """The built-in schemas of these names and of all that they refer to."""
    return {name: _builtin(name, prefix) for name in sorted(closure(names))}


def closure(names: Iterable[str]) -> list[str]:
    """The names and all definitions that they refer to."""
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found and name in definitions():
            found[name] = None
            pending += references(definitions()[name])
    return list(found)


def references(node: Any) -> Iterator[str]:
    """The definitions that a node refers to."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):  # JSONSchemaProps has a property named $ref
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def reference(name: str, prefix: str) -> Object:
    """A reference to a schema."""
    return {"$ref": prefix + name}


def _builtin(name: str, prefix: str) -> Object:
    texts = descriptions().get(name, {})
    node: Object = _node(definitions()[name], prefix)
    if texts.get(""):
        node = {"description": texts[""], **node}
    if prefix == V3_PREFIX and name in _SEVERAL_TYPES:
        node = {**{key: value for key, value in node.items() if key != "type"},
                "oneOf": [{"type": kind} for kind in _SEVERAL_TYPES[name]]}
    for field, child in node.get("properties", {}).items():
        if (values := ENUMS.get((name, field))) is not None:
            child.get("items", child)["enum"] = list(values)
        if texts.get(field):
            node["properties"][field] = _described(child, texts[field], prefix)
    return node


def _described(node: Object, text: str, prefix: str) -> Object:
    """A described field. In v3 nothing may stand beside a reference, so the reference moves into an allOf."""
    if "$ref" in node and prefix == V3_PREFIX:
        return {"allOf": [{"$ref": node["$ref"]}], "description": text, **{key: value for key, value in node.items()
                                                                          if key != "$ref"}}
    return {"description": text, **node}


def _node(node: Any, prefix: str) -> Any:
    if isinstance(node, Mapping):
        return {key: prefix + value if key == "$ref" and isinstance(value, str) else _node(value, prefix)
                for key, value in node.items()}
    return [_node(item, prefix) for item in node] if isinstance(node, list) else node


def _gvk(resource_type: ServedResource, kind: str) -> list[Object]:
    return [{"group": resource_type.group, "kind": kind, "version": resource_type.version}]


def _type_meta() -> Object:
    return {"apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND}}


def _custom(resource_type: ServedResource, prefix: str) -> Object:
    declared = resource_type.schema.node if resource_type.schema else {"type": "object",
                                                                      "x-kubernetes-preserve-unknown-fields": True}
    node: Object = _for_v2(declared) if prefix == V2_PREFIX else _node(declared, prefix)
    metadata = _described(reference(OBJECT_META, prefix), _METADATA, prefix)
    properties = {**_type_meta(), **node.get("properties", {}), "metadata": metadata}
    return {**node, "properties": properties,
            "x-kubernetes-group-version-kind": _gvk(resource_type, resource_type.kind)}


def _custom_list(resource_type: ServedResource, prefix: str) -> Object:
    items = {"type": "array", "items": reference(name_of(resource_type), prefix),
             "description": f"List of {resource_type.plural}. More info: {_CONVENTIONS}"}
    metadata = _described(reference(LIST_META, prefix), _LIST_METADATA, prefix)
    return {"description": f"{resource_type.list_kind} is a list of {resource_type.kind}", "type": "object",
            "required": ["items"], "properties": {**_type_meta(), "items": items, "metadata": metadata},
            "x-kubernetes-group-version-kind": _gvk(resource_type, resource_type.list_kind)}


def _for_v2(node: Any) -> Any:
    if isinstance(node, list):
        return [_for_v2(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    result = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: _for_v2(child) for name, child in value.items()}
        elif key not in _ONLY_V3:
            result[key] = _for_v2(value)
    if node.get("nullable") or node.get("x-kubernetes-int-or-string"):
        result.pop("type", None)  # v2 has no null, so the type stays open
    return result
