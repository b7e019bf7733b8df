"""Which resource classes there are, and what their fields are: the built-in kinds and the parts of them.

They are made of three things that the package holds already, each generated from the pinned inputs or checked against a
real server: the OpenAPI definitions (schema/definitions.json.gz), the Go declarations (kinds/typed/types.json.gz) and
the table of served kinds (kinds/catalog.py). What a field's absence is follows from its Go declaration:

=====================  ===============================================================================================
Go                     Python
=====================  ===============================================================================================
pointer, bytes         ``T | None = None``; where the API requires it ``T``, empty
list, map              an empty one
struct by value        an empty one of its class
bool, int by value     ``False``, ``0``
string by value        ``""`` where it is required or only stands in a status, else ``str | None = None``
MicroTime              text that may be None: it must keep its six digits, and is null even where it is required
=====================  ===============================================================================================

Conditions extend `Condition`; embedded metadata is `TemplateMeta`. `KEPT` holds what was promised before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.apiserver.schemas import list_relationship
from kubectl_runtime.apiserver.storage import ServedResource
from tests.tools.generators.gotypes import shorten

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CORE = "io.k8s.api.core.v1."
METAV1 = "kubectl_runtime.core.meta.metav1"

# Types that the library has by hand: definition -> (module, name).
BY_HAND = {
    META + "ObjectMeta": (METAV1, "TemplateMeta"),
    META + "Condition": (METAV1, "Condition"),
    META + "LabelSelector": (METAV1, "LabelSelector"),
    META + "LabelSelectorRequirement": (METAV1, "LabelSelectorRequirement"),
    META + "OwnerReference": (METAV1, "OwnerReference"),
}
PLAIN = {  # no record, or a record that is any object
    META + "Time": "datetime",
    META + "MicroTime": "str",
    META + "Duration": "str",
    META + "FieldsV1": "dict[str, Any]",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "QuantityText",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int | str",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "Any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "Any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray":
        "JSONSchemaProps | list[JSONSchemaProps]",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "JSONSchemaProps | bool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray":
        "JSONSchemaProps | list[str]",
}
FROZEN = {CORE + "ObjectReference", "io.k8s.api.rbac.v1.RoleRef", "io.k8s.api.rbac.v1.Subject"}
# Lists whose items are told apart by a key all the same, though server-side apply takes them as a whole.
UNIQUE_THOUGH_ATOMIC = {"conditions": "type", "containerStatuses": "name", "initContainerStatuses": "name",
                        "ephemeralContainerStatuses": "name"}
# (definition, field) -> what the classes promised before they were generated; `META` stands for every definition.
KEPT = {
    **{(CORE + "ObjectReference", name): ("str", '""') for name in (
        "apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath")},
    (CORE + "PodStatus", "podIP"): ("str | None", "None"),
    (CORE + "PodStatus", "hostIP"): ("str | None", "None"),
    (CORE + "Event", "count"): ("int | None", "None"),
    (META, "observedGeneration"): ("int | None", "None"),
    (CORE + "Container", "command"): ("list[str] | None", "None"),
    (CORE + "Container", "args"): ("list[str] | None", "None"),
}
# A kind inside another one's spec: the part that says the same of it.
EMBEDDED = {CORE + "PersistentVolumeClaim": CORE + "PersistentVolumeClaimTemplate"}
# Where a pointer is required, or a value of its own kind of emptiness: what stands for one that was not given.
REQUIRED = {"str": '""', "QuantityText": '""', "bytes": 'b""', "int | str": "0"}
# What would hide a word of Python, or a type that the annotations below it name.
KEYWORDS = {"bool", "bytes", "continue", "dict", "except", "float", "from", "global", "in", "int", "list", "not", "str"}
OF_CONDITION = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}


def snake(key: str) -> str:
    """``podIPs`` -> ``pod_ips``; ``x-kubernetes-map-type`` -> ``x_kubernetes_map_type``."""
    word = re.sub(r"([A-Z]{2,})s(?=$|[A-Z])", lambda found: found[1].capitalize() + "s", key)
    word = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", word))
    name = word.replace("-", "_").strip("$").lower()
    return f"{name}_" if name in KEYWORDS else name


def module_of(group: str, version: str) -> str:
    """``rbac_v1`` for ``rbac.authorization.k8s.io/v1``; the core group is ``core``."""
    return f"{(group or 'core').split('.')[0]}_{version}"


@dataclass
class Class:
    """A class to be written."""

    definition: str
    name: str
    kind: ServedResource | None
    node: dict[str, Any]
    go: dict[str, str]
    needs: list[str] = field(default_factory=list)
    """Definitions whose classes must stand before it."""

    @property
    def properties(self) -> list[str]:
        """The fields that it declares itself, in Go's order."""
        if self.kind is not None:
            inherited = {"apiVersion", "kind", "metadata"}
        else:
            inherited = OF_CONDITION if self.is_condition else set()
        return [key for key in self.go if key in self.node["properties"] and key not in inherited]

    @property
    def is_condition(self) -> bool:
        """Whether it extends `Condition`."""
        return self.kind is None and self.name.endswith("Condition") and {
            "type", "status", "lastTransitionTime"} <= self.node["properties"].keys()


class Classes:
    """All of them."""

    def __init__(self, schemas: tuple[Mapping[str, dict[str, Any]], Mapping[str, dict[str, str]]],
                 go: Mapping[str, dict[str, str]], kinds: Iterable[ServedResource]) -> None:
        """`schemas` and `go`: the content of the data files, as `definitions` and `gotypes` make it."""
        self.definitions, self.descriptions = schemas
        self.go = go
        self.kinds = {self._definition_of(kind): kind for kind in kinds}
        self.homes = {name: module_of(kind.group, kind.version) for name, kind in self.kinds.items()}
        """Definition -> module. A type lives in the module of its own group, or else where it is used."""
        self.groups = {definition.rpartition(".")[0]: home for definition, home in self.homes.items()}
        self.known: dict[str, Class] = {}
        self.said: set[str] = set()
        """Definitions that are reached from elsewhere than from a status."""
        for name in self.kinds:
            self._add(name)
        for name in self.kinds:
            for key, child in self.definitions[name].get("properties", {}).items():
                if key != "status":
                    self._mark_said(child)

    def _definition_of(self, kind: ServedResource) -> str:
        wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        return next(name for name, node in self.definitions.items()
                    if wanted in node.get("x-kubernetes-group-version-kind", ()))

    def parts_of(self, classes: Iterable[Class]) -> dict[str, set[str]]:
        """Module of parts -> the names that these classes use of it."""
        found: dict[str, set[str]] = {}
        for cls in classes:
            for key in cls.properties:
                for reference in references(cls.node["properties"][key]):
                    if reference in self.known:
                        found.setdefault(f"{self.homes[reference]}_parts", set()).add(self.known[reference].name)
        return found

    def _add(self, name: str, user: str = "") -> None:
        if name in self.known or name in BY_HAND or name in PLAIN:
            return
        node = self.definitions[name]
        if not node.get("properties"):
            return
        self.homes[name] = home = self.groups.get(name.rpartition(".")[0], user)
        self.known[name] = Class(name, name.rpartition(".")[2], self.kinds.get(name), node, self.go[shorten(name)])
        for child in node["properties"].values():
            for reference in references(child):
                if reference.startswith("io.k8s.apiextensions-apiserver") and "JSONSchemaPropsOr" in reference:
                    self._add(reference.rpartition(".")[0] + ".JSONSchemaProps", home)
                self._add(reference, home)

    def _mark_said(self, node: dict[str, Any]) -> None:
        for reference in references(node):
            if reference in self.known and reference not in self.said:
                self.said.add(reference)
                for child in self.known[reference].node["properties"].values():
                    self._mark_said(child)

    def _type(self, node: dict[str, Any], go: str) -> str:
        if reference := node.get("$ref"):
            if reference in PLAIN:
                return "str" if "MicroTime" in go else PLAIN[reference]
            if reference in BY_HAND:
                return BY_HAND[reference][1]
            reference = EMBEDDED.get(reference, reference)
            return self.known[reference].name if reference in self.known else "dict[str, Any]"
        kind = node.get("type")
        if kind == "array":
            return f"list[{self._type(node['items'], go)}]"
        if kind == "object":
            extra = node.get("additionalProperties")
            return f"dict[str, {self._type(extra, go)}]" if isinstance(extra, dict) and extra else "dict[str, Any]"
        if kind == "string":
            formats = {"date-time": "str" if "MicroTime" in go else "datetime", "byte": "bytes",
                       "int-or-string": "int | str"}
            return formats.get(node.get("format", ""), "str")
        return {"integer": "int", "number": "float", "boolean": "bool"}.get(kind or "", "Any")

    def field(self, owner: Class, key: str) -> tuple[str, str]:
        """The annotation and the default of one field."""
        node = owner.node["properties"][key]
        if kept := KEPT.get((owner.definition, key)) or KEPT.get((META, key)):
            return kept
        flags = owner.go[key].partition("@")[0]
        pointer, base = "*" in flags[:2], flags.lstrip("*!")
        hint = self._type(node, base)
        if hint.startswith(("list[", "dict[")) and not pointer:
            return self._marked(owner, key, node, hint), "[]" if hint[0] == "l" else "{}"
        if "default" in node and hint == "str" and node["default"]:
            return hint, f'"{node["default"]}"'
        if hint == "Any":
            return hint, "None"
        if hint in ("bool", "int", "float") and not pointer:
            required = key in owner.node.get("required", ())
            return f"Sent[{hint}]" if required else hint, {"bool": "False", "int": "0", "float": "0.0"}[hint]
        if hint in ("str", "QuantityText") and base != "MicroTime" and not pointer and (
                key in owner.node.get("required", ()) or "!" in flags[:2]
                or (owner.kind is None and owner.definition not in self.said)):
            return hint, '""'
        reference = node.get("$ref", "")
        required = key in owner.node.get("required", ())
        if required and hint in REQUIRED and base != "MicroTime":
            return hint, REQUIRED[hint]
        if (required or not pointer) and (reference in self.known or reference in BY_HAND):
            return hint, f"msgspec.field(default_factory={hint})"
        return f"{hint} | None", "None"

    def _marked(self, owner: Class, key: str, node: dict[str, Any], hint: str) -> str:
        if node.get("type") != "array" or not node["items"].get("$ref"):
            return hint
        list_type, keys = list_relationship(node)
        if list_type == "atomic" and key in UNIQUE_THOUGH_ATOMIC:
            keys = (UNIQUE_THOUGH_ATOMIC[key],)
        if list_type != "map" and key not in UNIQUE_THOUGH_ATOMIC:
            return hint
        names = ", ".join(f'"{name}"' for name in keys)
        return f"Annotated[{hint}, MapKeys({names})]"


def references(node: dict[str, Any]) -> Iterator[str]:
    """The definitions that a field's node refers to."""
    if reference := node.get("$ref"):
        yield EMBEDDED.get(reference, reference)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from references(node[key])
