"""The OpenAPI definitions of the built-in kinds, restored from what the package kubernetes-validate holds.

The package stores each Kubernetes version's OpenAPI v2 definitions as JSON schemas made for validating manifests. The
generator takes back what was changed for that purpose (``null`` among the types, enums of ``kind`` and
``apiVersion``, the ``oneOf`` of quantities), so that what comes out are the definitions of the API again. The content
of definitions.json.gz is two JSON documents, one a line:

1. ``{name: definition}`` without descriptions; a ``$ref`` is the bare name of another definition;
2. ``{name: {"": description, field: description}}``.
"""

from __future__ import annotations

from typing import Any

REF = "#/$defs/"

# Types whose OpenAPI form does not survive in the source: a string that may also be written as a number.
RESTORED: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
}

# Defaults of fields that are keys of list maps: OpenAPI v2 has no defaults, and an item that leaves its key out is
# identified by the default. (``+default`` markers of k8s.io/api; zero values of required keys follow from `required`.)
KEY_DEFAULTS = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.LocalObjectReference": {"name": ""},
}


def clean(node: dict[str, Any]) -> dict[str, Any]:
    """One schema node as it was in the OpenAPI document, without descriptions."""
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("description", "enum"):
            continue
        if key == "type":
            result[key] = next(kind for kind in value if kind != "null") if isinstance(value, list) else value
        elif key == "$ref":
            result[key] = value.removeprefix(REF)
        elif key == "properties":
            result[key] = {name: clean(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            result[key] = clean(value)
        else:
            result[key] = value
    return result


def definition(name: str, node: dict[str, Any]) -> dict[str, Any]:
    """A whole definition: cleaned, restored where the source lost its form, with the defaults of list keys."""
    result = RESTORED.get(name) or clean(node)
    for field, default in KEY_DEFAULTS.get(name, {}).items():
        result["properties"][field]["default"] = default
    return result


def descriptions(node: dict[str, Any]) -> dict[str, str]:
    """The descriptions of a definition (under "") and of its fields."""
    texts = {name: child["description"] for name, child in node.get("properties", {}).items() if "description" in child}
    return {"": node.get("description", ""), **texts}


def documents(source: dict[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, str]]]:
    """The two documents that are made of the source's definitions by name."""
    names = sorted(source)
    return ({name: definition(name, source[name]) for name in names},
            {name: descriptions(source[name]) for name in names})
