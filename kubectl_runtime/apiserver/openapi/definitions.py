"""Schemas for OpenAPI documents, from the definitions of the built-in kinds and from the schemas of CRDs.

The generated definitions lack enums, which `kubectl explain` shows. The table of enums has the commonly used fields and
is not complete.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubectl_runtime.apiserver.schemas import definition_names
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.schema.definitions import definitions, descriptions

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
            child["enum"] = list(values)
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
