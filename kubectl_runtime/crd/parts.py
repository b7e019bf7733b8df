"""Structural schemas of the built-in kinds' parts, such as PodSpec, as controller-gen writes them.

- a field that is a pointer, list or map is not required; list types and map keys are those of upstream
- a field with `+default` has that default (`GO_DEFAULTS`); no other field has a default
- Quantity and IntOrString are `anyOf` integer and string, with `x-kubernetes-int-or-string`
- ObjectMeta within a part has labels, annotations, finalizers, name and namespace, or nothing without `Style.metadata`
- a list of type map becomes atomic if its items may omit a map key, because in a CustomResourceDefinition the server
  accepts only map keys that are required or have a default (this concerns five lists, all in statuses)
- JSON, RawExtension and FieldsV1 preserve unknown fields; so does JSONSchemaProps, which contains itself

Descriptions are left out unless `Style.descriptions` is set. A Pod template's descriptions take 250 KB.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.metav1 import ObjectMeta, TemplateMeta
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.schema.definitions import OBJECT_META, QUANTITY, RAW_EXTENSION, definitions, descriptions

Schema = dict[str, Any]

CORE, META = "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

_NAMED_LOCALLY = ("LocalObjectReference", "ConfigMapKeySelector", "SecretKeySelector", "ConfigMapEnvSource",
                  "SecretEnvSource", "ConfigMapProjection", "SecretProjection", "ConfigMapVolumeSource")
_ISCSI = {"iscsiInterface": "default"}
_RBD = {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}
_SCALE_IO = {"storageMode": "ThinProvisioned", "fsType": "xfs"}
GO_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    **{CORE + name: {"name": ""} for name in _NAMED_LOCALLY},
    CORE + "ContainerPort": {"protocol": "TCP"},
    CORE + "ServicePort": {"protocol": "TCP"},
    CORE + "GRPCAction": {"service": ""},
    CORE + "FileKeySelector": {"optional": False},
    CORE + "ISCSIVolumeSource": _ISCSI,
    CORE + "ISCSIPersistentVolumeSource": _ISCSI,
    CORE + "RBDVolumeSource": _RBD,
    CORE + "RBDPersistentVolumeSource": _RBD,
    CORE + "ScaleIOVolumeSource": _SCALE_IO,
    CORE + "ScaleIOPersistentVolumeSource": {**_SCALE_IO},
    CORE + "AzureDiskVolumeSource": {"fsType": "ext4", "readOnly": False},
    CORE + "ReplicationControllerSpec": {"replicas": 1, "minReadySeconds": 0},
    "io.k8s.api.autoscaling.v1.ScaleSpec": {"replicas": 0},
    "io.k8s.api.resource.v1.DeviceToleration": {"operator": "Equal"},
}
"""The `+default` markers of the Go types in k8s.io/api, release 1.36. The markers of inlined structs are included;
references (``+default=ref(…)``) are left out, because controller-gen does not follow them. `python -m
tests.tools.generate` compares this table with the Go sources.

The published OpenAPI is not used for defaults, because it lists the defaults '', 0 and {} for every field that is not
a pointer and has no `omitempty`. In a custom resource such defaults would make `required` meaningless.
"""
ATOMIC = frozenset(CORE + name for name in _NAMED_LOCALLY)
"""Structs that controller-gen writes as atomic because they inline LocalObjectReference. OpenAPI marks only some."""

_INT_OR_STRING: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
QUANTITY_START = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
"""How the pattern of a quantity begins, both in this library's schemas and in those of controller-gen."""
_QUANTITY_PATTERN = QUANTITY_START + r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_EMBEDDED_META: Schema = {"type": "object", "properties": {
    "annotations": _TEXTS, "finalizers": {"type": "array", "items": {"type": "string"}}, "labels": _TEXTS,
    "name": {"type": "string"}, "namespace": {"type": "string"}}}
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_SPECIAL: Mapping[str, Schema] = {
    QUANTITY: {**_INT_OR_STRING, "pattern": _QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    RAW_EXTENSION: {"type": "object", _PRESERVE: True},
    META + "FieldsV1": {"type": "object", _PRESERVE: True},
    META + "Time": {"type": "string", "format": "date-time"},
    META + "MicroTime": {"type": "string", "format": "date-time"},
    META + "Duration": {"type": "string"},
    EXTENSIONS + "JSON": {_PRESERVE: True},
    EXTENSIONS + "JSONSchemaProps": {"type": "object", _PRESERVE: True},
    EXTENSIONS + "JSONSchemaPropsOrArray": {_PRESERVE: True},
    EXTENSIONS + "JSONSchemaPropsOrBool": {_PRESERVE: True},
    EXTENSIONS + "JSONSchemaPropsOrStringArray": {_PRESERVE: True},
}
_KEPT = ("type", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


class Style(msgspec.Struct, frozen=True):
    """How parts are written: with or without upstream's descriptions, and with or without embedded metadata."""

    descriptions: bool = False
    metadata: bool = True


PLAIN = Style()


def part_name(cls: type) -> str | None:
    """The name of the API definition that this class is generated from; None for any other class."""
    if cls in (ObjectMeta, TemplateMeta):
        return OBJECT_META
    package, _, module = cls.__module__.rpartition(".")
    if cls.__module__ == ObjectMeta.__module__:
        name = META + cls.__name__
        return name if name in definitions() else None
    if package != "kubectl_runtime.resources" or issubclass(cls, Resource):
        return None
    home, name = module.removesuffix("_parts"), META + cls.__name__
    return _names().get((home, cls.__name__)) or (name if name in definitions() else None)


@cache
def _names() -> Mapping[tuple[str, str], str]:
    """(module, class) -> definition."""
    found = {}
    for name in definitions():
        *_, group, version, cls = name.split(".")
        found[f"{group}_{version}", cls] = name
    return found


def part_schema(name: str, style: Style = PLAIN) -> Schema:
    """Return the structural schema of a definition. Every call returns new dicts and lists."""
    special = _SPECIAL.get(name) if name != OBJECT_META else _EMBEDDED_META if style.metadata else {"type": "object"}
    if special is not None:
        return json_copy(special)
    node, texts = definitions()[name], descriptions().get(name, {}) if style.descriptions else {}
    defaults = GO_DEFAULTS.get(name, {})
    schema: Schema = {**({"description": texts[""]} if texts.get("") else {}), **_node(node, style)}
    for key, child in (node.get("properties") or {}).items():
        described = {"description": texts[key]} if texts.get(key) else {}
        default = {"default": defaults[key]} if key in defaults else {}
        schema.setdefault("properties", {})[key] = {**_node(child, style), **described, **default}
    if required := node.get("required"):
        schema["required"] = list(required)
    if name in ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _node(node: Mapping[str, Any], style: Style) -> Schema:
    own = {key: json_copy(node[key]) for key in _KEPT if key in node}
    if reference := node.get("$ref"):
        return {**part_schema(reference, style), **own}
    if node.get("format") == "int-or-string":
        return json_copy(_INT_OR_STRING)
    if isinstance(items := node.get("items"), Mapping):
        own["items"] = inner = _node(items, style)
        if not all(key in inner.get("required", ()) or "default" in inner["properties"][key]
                   for key in own.get("x-kubernetes-list-map-keys", ())):
            del own["x-kubernetes-list-map-keys"]
            own["x-kubernetes-list-type"] = "atomic"
    if isinstance(extra := node.get("additionalProperties"), Mapping):
        own["additionalProperties"] = _node(extra, style)
    elif own.get("type") != "array":
        own.pop("x-kubernetes-list-type", None)  # upstream also marks bytes fields, because bytes are a list in Go
    if not own or (own == {"type": "object"} and not node.get("properties")):
        return {**own, _PRESERVE: True}
    return own
