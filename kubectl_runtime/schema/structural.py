"""Whether an OpenAPI v3 schema is structural, as the API server asks of a CustomResourceDefinition.

Structural means: every field and every item has a type of its own (or says int-or-string, or preserves unknown
fields), and what stands in `allOf`, `anyOf`, `oneOf` and `not` only narrows the values of fields that are declared
outside of them. The checks and their texts are those of apiextensions-apiserver (`ValidateStructural`): what must hold
at each place, and that nothing is declared in a junctor of the root alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kubectl_runtime.schema import causes
from kubectl_runtime.schema.causes import Cause

Node = Mapping[str, Any]
Level = Literal["root", "item", "field"]

JUNCTORS = ("allOf", "anyOf", "oneOf")
INT_OR_STRING, PRESERVE = "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
RULES = "x-kubernetes-validations"
_INT_OR_STRING_BRANCHES = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {"root": "must not be empty at the root", "item": "must not be empty for specified array items",
               "field": "must not be empty for specified object fields"}
_OWN_TO_THE_OUTSIDE = {
    "must be empty to be structural": ("type", "title", "description", "x-kubernetes-list-map-keys",
                                       RULES),
    "must be undefined to be structural": ("additionalProperties", "default", "x-kubernetes-list-type",
                                           "x-kubernetes-map-type"),
    "must be false to be structural": ("nullable", PRESERVE, EMBEDDED, INT_OR_STRING)}


def structural_causes(schema: Node, path: str = "") -> list[Cause]:
    """What keeps a schema from being structural; `path` is where it stands."""
    found = [*_invariants(schema, "root", path), *_completeness(schema, path)]
    return sorted(found, key=Cause.text)


def children(node: Node, path: str) -> Iterator[tuple[Node, Level, str]]:
    """(schema, level, path) of what a schema declares below itself: properties, additionalProperties and items."""
    for name, child in (node.get("properties") or {}).items():
        yield child, "field", f"{path}.properties[{name}]"
    if isinstance(extra := node.get("additionalProperties"), Mapping):
        yield extra, "field", f"{path}.additionalProperties"
    if isinstance(items := node.get("items"), Mapping):
        yield items, "item", f"{path}.items"


def branches(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    """(schema, path) of what stands in a schema's junctors."""
    for junctor in JUNCTORS:
        for index, branch in enumerate(node.get(junctor) or ()):
            yield branch, f"{path}.{junctor}[{index}]"
    if isinstance(negated := node.get("not"), Mapping):
        yield negated, f"{path}.not"


def declares_rules(schema: Node) -> bool:
    """Whether there are rules (rules.py), also in places where none may be."""
    below = (*(child for child, *_ in children(schema, "")), *(branch for branch, _ in branches(schema, "")))
    return bool(schema.get(RULES)) or any(map(declares_rules, below))


def _invariants(node: Node, level: Level, path: str) -> Iterator[Cause]:
    for child, below, place in children(node, path):
        yield from _invariants(child, below, place)
    skipped = _int_or_string_branch(node)
    for branch, place in branches(node, path):
        if skipped != "anyOf" or not place.startswith(f"{path}.anyOf"):
            yield from _branch_invariants(branch, place, skip_any_of=skipped == "allOf" and
                                          place == f"{path}.allOf[0]")
    kind, embedded = node.get("type") or "", bool(node.get(EMBEDDED))
    if embedded and kind != "object":
        yield wrong_type(f"{path}.type", kind, f"must be object if {EMBEDDED} is true")
    elif not kind and not node.get(INT_OR_STRING) and not node.get(PRESERVE):
        yield causes.required(f"{path}.type", _EMPTY_TYPE[level])
    if level == "root" and kind not in ("", "object"):
        yield causes.invalid_value(f"{path}.type", kind, "must be object at the root")
    if level == "root" and node.get("additionalProperties"):
        yield causes.forbidden_field(f"{path}.additionalProperties", "must not be used at the root")
    if embedded and node.get("additionalProperties"):
        yield causes.forbidden_field(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if embedded and not node.get(PRESERVE) and not node.get("properties"):
        yield causes.required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")
    if level == "root" or embedded:
        yield from _resource_field_causes(node.get("properties") or {}, f"{path}.properties")


def wrong_type(path: str, kind: str, detail: str) -> Cause:
    """The cause of a type that is missing or another one than it has to be."""
    return causes.invalid_value(path, kind, detail) if kind else causes.required(path, detail)


def _int_or_string_branch(node: Node) -> str:
    """The junctor that may name the two types of an int-or-string, said to be one or not: "anyOf", "allOf" (in its
    first branch), ""."""
    if node.get("anyOf") == _INT_OR_STRING_BRANCHES:
        return "anyOf"
    first = (node.get("allOf") or [{}])[0]
    return "allOf" if first.get("anyOf") == _INT_OR_STRING_BRANCHES else ""


def _branch_invariants(node: Node, path: str, *, skip_any_of: bool = False) -> Iterator[Cause]:
    for detail, keys in _OWN_TO_THE_OUTSIDE.items():
        for key in keys:
            if node.get(key) not in (None, "", False, []):
                yield causes.forbidden_field(f"{path}.{key}", detail)
    if "metadata" in (node.get("properties") or {}):
        yield causes.forbidden_field(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for child, _, place in children(node, path):
        if not place.endswith(".additionalProperties"):
            yield from _branch_invariants(child, place)
    for branch, place in branches(node, path):
        if not (skip_any_of and place.startswith(f"{path}.anyOf")):
            yield from _branch_invariants(branch, place)


def _resource_field_causes(properties: Node, path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if name in properties and properties[name].get("type") != "string":
            yield causes.invalid_value(f"{path}[{name}].type", properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    if metadata.get("type") != "object":
        yield causes.invalid_value(f"{path}[metadata].type", metadata.get("type", ""), "must be object")
    more = {key for key, value in metadata.items() if value not in (None, "", False, [], {})} - {"type", "default"}
    if not more <= {"properties"} or not (metadata.get("properties") or {}).keys() <= {"name", "generateName"}:
        yield causes.forbidden_field(f"{path}[metadata]", "must not specify anything other than name and generateName, "
                                     "but metadata is implicitly specified")


def _completeness(node: Node, path: str) -> Iterator[Cause]:
    """Only what stands in the junctors of the root is looked at, as the real server does."""
    for branch, place in branches(node, path):
        yield from _declared(branch, node, place, path)


def _declared(branch: Node, node: Node, path: str, outside: str) -> Iterator[Cause]:
    """Everything that a branch names is declared by the schema that it belongs to."""
    declared = {place.removeprefix(outside): child for child, _, place in children(node, outside)}
    for child, _, place in children(branch, path):
        key = place.removeprefix(path)
        if key == ".additionalProperties":
            continue
        if key in declared:
            yield from _declared(child, declared[key], place, outside + key)
        else:
            yield causes.required(outside + key, f"because it is defined in {place}")
    for inner, place in branches(branch, path):
        yield from _declared(inner, node, place, outside)
