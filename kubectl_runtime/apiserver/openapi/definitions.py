"""Schemas for OpenAPI documents, from the definitions of the built-in kinds and from the schemas of CRDs.

The generated definitions lack the enums that `kubectl explain` shows. enums.json.gz contains them with their texts,
taken from the documents of a kube-apiserver 1.36, as a list of [values, text, fields]. The definitions also lack most
defaults. Fields that are always written (`kinds.typed`) default to Go's zero values; `_DEFAULTS` contains the other
known defaults.
"""
from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubectl_runtime.apiserver.kinds.typed.decode import types
from kubectl_runtime.apiserver.schemas import definition_names
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.schema.definitions import definitions, descriptions

# Defaults from the `+default` markers of k8s.io/api that are missing in the definitions.
_DEFAULTS: dict[str, Any] = {
    "ScaleSpec.replicas": 0, "ReplicationControllerSpec.minReadySeconds": 0, "ReplicationControllerSpec.replicas": 1,
    "AzureDiskVolumeSource.readOnly": False, "AzureDiskVolumeSource.cachingMode": "ReadWrite",
    "AzureDiskVolumeSource.fsType": "ext4", "AzureDiskVolumeSource.kind": "Shared", "FileKeySelector.optional": False,
    "DeviceToleration.operator": "Equal", "GRPCAction.service": "",
    **{f"ConfigMap{kind}.name": "" for kind in ("EnvSource", "KeySelector", "Projection", "VolumeSource")},
    **{f"Secret{kind}.name": "" for kind in ("EnvSource", "KeySelector", "Projection")},
    "LocalObjectReference.name": "",
    **{f"{kind}VolumeSource.{field}": value for prefix in ("", "Persistent") for kind, field, value in (
        (f"ISCSI{prefix}", "iscsiInterface", "default"), (f"RBD{prefix}", "keyring", "/etc/ceph/keyring"),
        (f"RBD{prefix}", "pool", "rbd"), (f"RBD{prefix}", "user", "admin"), (f"ScaleIO{prefix}", "fsType", "xfs"),
        (f"ScaleIO{prefix}", "storageMode", "ThinProvisioned"))}}
_ZERO: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}


@cache
def enums() -> Mapping[tuple[str, str], tuple[list[str], str]]:
    """The enum values of fields and the text about them, by (definition, field). Callers must not change the result."""
    data = resources.files(__package__).joinpath("enums.json.gz").read_bytes()
    found: list[tuple[list[str], str, list[str]]] = msgspec.json.decode(gzip.decompress(data))
    return {(name, field): (values, text) for values, text, places in found for name, _, field in
            (place.rpartition(".") for place in places)}


def _zero_default(name: str, field: str, node: Object) -> Any:
    """Go's zero value as the default of a field that is always written; None for other fields."""
    short = name.rpartition(".pkg.apis.")[2] or name
    spec = types().get(short.removeprefix("io.k8s.api."), {}).get(field, "").rpartition("@")[0]
    kind = spec.lstrip("*!")
    if "$ref" in node:
        is_struct = kind.startswith(".") if spec else str(node["$ref"]).endswith(LIST_META)
        return {} if is_struct and "*" not in spec else None
    required = field in definitions()[name].get("required", ())
    always = spec.startswith("!") and kind != "bytes" if spec else required
    return _ZERO.get(node.get("type", "")) if always else None

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META, LIST_META = f"{META}.ObjectMeta", f"{META}.ListMeta"
STATUS, DELETE_OPTIONS, PATCH = f"{META}.Status", f"{META}.DeleteOptions", f"{META}.Patch"
ALWAYS = (STATUS, DELETE_OPTIONS, f"{META}.WatchEvent", f"{META}.APIResourceList", f"{META}.APIGroup")
V2_PREFIX, V3_PREFIX = "#/definitions/", "#/components/schemas/"

# Keywords that only v3 schemas may have; v2 leaves them out.
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
# Types that allow strings and numbers, which only v3 can express.
_SEVERAL_TYPES = {"io.k8s.apimachinery.pkg.util.intstr.IntOrString": ("integer", "string"),
                  "io.k8s.apimachinery.pkg.api.resource.Quantity": ("string", "number")}


def name_of(resource_type: ServedResource) -> str:
    """The name of a type's schema: ``io.k8s.api.core.v1.Pod``, ``com.example.v1.Widget``."""
    if not resource_type.is_custom:
        return definition_names()[resource_type.group, resource_type.version, resource_type.kind]
    return ".".join([*reversed(resource_type.group.split(".")), resource_type.version, resource_type.kind])


def list_name_of(resource_type: ServedResource) -> str:
    return name_of(resource_type).rpartition(".")[0] + "." + resource_type.list_kind


def kind_name(group: str, version: str, kind: str) -> str:
    """The name of a built-in kind's schema; "" if it has none (``PodExecOptions``)."""
    return definition_names().get((group, version, kind), "")


def schemas(types: Iterable[ServedResource], prefix: str, extra: Iterable[str] = ()) -> Object:
    """The schemas of types and of everything that they refer to, by name. References start with `prefix`."""
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
    """The built-in schemas with these names and all schemas that they refer to."""
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
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):  # a value that is no string describes a property named $ref
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
        values, text = enums().get((name, field), ((), ""))
        if values:
            child.get("items", child)["enum"] = list(values)
        described = texts.get(field, "") + (f"\n\nPossible enum values:{text}" if text else "")
        if prefix == V3_PREFIX and "default" not in child:
            default = _DEFAULTS.get(f"{name.rpartition('.')[2]}.{field}", _zero_default(name, field, child))
            if default is not None:
                child["default"] = default
        node["properties"][field] = _described(child, described, prefix)
    return node


def _described(node: Object, text: str, prefix: str) -> Object:
    """Add a description to a field. v3 allows no other key beside a reference, so the reference moves into an allOf."""
    described = {"description": text} if text else {}
    if "$ref" in node and len(node) + len(described) > 1 and prefix == V3_PREFIX:
        return {"allOf": [{"$ref": node["$ref"]}], **described, **{key: value for key, value in node.items()
                                                                  if key != "$ref"}}
    return {**described, **node}


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
        result.pop("type", None)  # v2 cannot express null or several types, so the type is left out
    return result
