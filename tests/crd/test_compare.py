"""What one definition takes away from another: what is narrower is found; without losses all is taken as before."""
from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from kubectl_runtime.crd.compare import losses
from kubectl_runtime.schema.structural import prune_value
from kubectl_runtime.schema.validation import schema_causes

Schema = dict[str, Any]
OPEN = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"


def crd(schema: Schema | None = None, **versions: dict[str, Any]) -> dict[str, Any]:
    """A definition; versions as v1={"storage": True}, one v1 if none are given."""
    listed = [{"name": name, "served": True, "storage": False, **more} for name, more in versions.items()]
    only = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"versions": listed or [only]}}


def at_x(old: Schema, new: Schema) -> list[str]:
    """What is told of a field x that has these schemas."""
    whole = [{"type": "object", "properties": {"x": schema}} for schema in (old, new)]
    return [str(loss).removeprefix("spec.versions[v1].x") for loss in losses(crd(whole[0]), crd(whole[1]))]


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
OBJECT = {"type": "object", "properties": {"a": TEXT, "b": NUMBER}}


@pytest.mark.parametrize(("old", "new", "told"), [
    (TEXT, NUMBER, ": the type is integer, and was string"), ({OPEN: True}, TEXT, ": the type is string, and was not "
                                                                                  "given"),
    ({INT_OR_STRING: True}, NUMBER, ": the type is integer, and was int-or-string"),
    ({**TEXT, "nullable": True}, TEXT, ": null is no longer accepted"),
    ({**TEXT, "enum": ["a", "b"]}, {**TEXT, "enum": ["b", "c"]}, ': "a" is no longer accepted'),
    ({**TEXT, "enum": ["a", "b", "c"]}, {**TEXT, "enum": ["c"]}, ': "a", "b" are no longer accepted'),
    (TEXT, {**TEXT, "enum": ["a"]}, ': only "a" are accepted now'),
    (NUMBER, {**NUMBER, "maximum": 3}, ": maximum is 3, and was none"),
    ({**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2}, ": minimum is 2, and was 1"),
    ({**NUMBER, "maximum": 3}, {**NUMBER, "maximum": 3, "exclusiveMaximum": True},
     ": maximum is 3, exclusive, and was 3"),
    (TEXT, {**TEXT, "pattern": "^a"}, ': pattern is "^a", and was none'),
    ({**TEXT, "format": "ipv4"}, {**TEXT, "format": "ipv6"}, ': format is "ipv6", and was "ipv4"'),
    (OBJECT, {"type": "object", "properties": {"a": TEXT}}, ".b: is gone: it is pruned from every object that is "
                                                            "written"),
    (OBJECT, {**OBJECT, "required": ["a"]}, ".a: is required now"),
    ({"type": "array", "items": OBJECT}, {"type": "array", "items": {**OBJECT, "required": ["a"]}},
     "[].a: is required now"),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
     ": the list is a set now, so its items must be unique"),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object"}, ": undeclared keys are pruned now"),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "additionalProperties": NUMBER},
     "[*]: the type is integer, and was string"),
    ({"type": "object", OPEN: True}, {"type": "object"}, ": unknown fields are pruned now"),
    ({"type": "object", OPEN: True}, {**OBJECT, "properties": {"a": TEXT}, OPEN: True},
     ".a: the type is string, and was not given"),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "properties": {"a": NUMBER}, OPEN: True},
     ".a: the type is integer, and was string"),
    (OBJECT, {**OBJECT, "x-kubernetes-embedded-resource": True},
     ": it must now be a whole object, with apiVersion and kind"),
    (NUMBER, {**NUMBER, "maximum": 4294967295}, ": maximum is 4294967295, and was none"),
    (OBJECT, {**OBJECT, "oneOf": [{"required": ["a"]}]}, ": oneOf is new, and may refuse what was accepted"),
    (TEXT, {**TEXT, "x-kubernetes-validations": [{"rule": "self != ''"}]}, """: the rule "self != ''" is new"""),
])
def test_what_is_narrower_is_told_with_its_place(old: Schema, new: Schema, told: str) -> None:
    assert at_x(old, new) == [told]
    assert at_x(old, old) == []
    assert at_x(new, new) == []


@pytest.mark.parametrize(("old", "new"), [
    ({**TEXT, "enum": ["a", None], "nullable": True}, {**TEXT, "allOf": [{"enum": ["a"]}], "nullable": True}),
    ({**TEXT, "format": "byte"}, {**TEXT, "anyOf": [{"format": "byte"}, {"maxLength": 0}]}),
    (NUMBER, {"type": "number"}), (TEXT, {INT_OR_STRING: True}), (TEXT, {OPEN: True}),
    (TEXT, {**TEXT, "nullable": True}), ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["a", "b"]}),
    ({**TEXT, "enum": ["a"]}, TEXT), ({**NUMBER, "maximum": 3}, {**NUMBER, "maximum": 4}),
    ({"type": "object", "properties": {"a": TEXT}}, OBJECT), (OBJECT, {"type": "object", OPEN: True}),
    (OBJECT, {**OBJECT, "required": ["c"], "properties": {**OBJECT["properties"], "c": {**TEXT, "default": "x"}}}),
    ({**OBJECT, "required": ["a"]}, OBJECT), ({**TEXT, "pattern": "^a"}, TEXT),
    ({**TEXT, "x-kubernetes-validations": [{"rule": "true"}]}, TEXT), (TEXT, {**TEXT, "default": "x"})])
def test_what_is_as_wide_or_wider_is_no_loss(old: Schema, new: Schema) -> None:
    assert at_x(old, new) == []


STORED, UNSTORED = {"storage": True}, {"storage": False}


@pytest.mark.parametrize(("old", "new", "told"), [
    (crd(v1=UNSTORED, v2=STORED), crd(v1=STORED), [
        ("downgrade", "spec.versions: v2 exists, but the newest version of the new definition is v1"),
        ("downgrade", "spec.versions: objects are stored as v2, and would be as v1"),
        ("stored version", "spec.versions[v2]: is gone, but objects are stored in it: keep it, write every object "
                           "again, and take it out of status.storedVersions first")]),
    (crd(v1=UNSTORED, v2=STORED), crd(v1=STORED, v2=UNSTORED), [
        ("downgrade", "spec.versions: objects are stored as v2, and would be as v1")]),
    (crd(v1=STORED, v2alpha1=UNSTORED), crd(v1=STORED), [
        ("downgrade", "spec.versions: v2alpha1 exists, but the newest version of the new definition is v1"),
        ("version", "spec.versions[v2alpha1]: is gone, and was served")]),
    (crd(v1beta1=UNSTORED, v1=STORED), crd(v1=STORED), [
        ("version", "spec.versions[v1beta1]: is gone, and was served")]),
    (crd(v1=UNSTORED, v2=STORED), crd(v1={"served": False}, v2=STORED), [
        ("version", "spec.versions[v1]: is no longer served")]),
    (crd(v1={"storage": True, "subresources": {"status": {}, "scale": {}}}), crd(v1=STORED), [
        ("subresource", "spec.versions[v1].subresources.status: is gone"),
        ("subresource", "spec.versions[v1].subresources.scale: is gone")]),
    (crd(v1alpha1=STORED), crd(v1=STORED, v1alpha1=UNSTORED), []), (crd(odd=STORED), crd(odd=UNSTORED, v1=STORED), [])])
def test_versions_that_go_and_definitions_that_go_back(old: Any, new: Any, told: list[tuple[str, str]]) -> None:
    assert [(loss.kind, str(loss)) for loss in losses(old, new)] == told


def test_a_version_in_which_objects_are_stored_still_is_told_so() -> None:
    old = {**crd(v1=UNSTORED, v2=STORED), "status": {"storedVersions": ["v1", "v2"]}}
    assert [loss.kind for loss in losses(old, crd(v2=STORED))] == ["stored version"]


# --- a definition without losses takes and keeps whatever the old one did ---


def some_schema(draw: random.Random, depth: int = 2) -> Schema:
    deeper = ["object", "map", "array"] * 2 if depth else []
    kind = draw.choice(["integer", "number", "string", "boolean", "either", "open", *deeper])
    if kind in ("either", "open"):
        return {INT_OR_STRING if kind == "either" else OPEN: True}
    schema: Schema = {"type": "object" if kind == "map" else kind}
    if kind == "map":
        schema["additionalProperties"] = some_schema(draw, depth - 1)
    elif kind == "object":
        schema["properties"] = {name: some_schema(draw, depth - 1) for name in draw.sample("xyz", draw.randint(1, 2))}
    elif kind == "array":
        schema["items"] = some_schema(draw, depth - 1)
    numbers = {"minimum": draw.randint(0, 2), "maximum": draw.randint(1, 3), "exclusiveMinimum": True,
               "exclusiveMaximum": True}
    options: dict[str, Schema] = {
        "integer": numbers, "number": numbers, "object": {"required": [draw.choice("xyz")], OPEN: True},
        "string": {"enum": draw.sample(["a", "b", "ab"], 2), "maxLength": 1, "minLength": 1, "pattern": "^a"},
        "array": {"maxItems": draw.randint(0, 2), "x-kubernetes-list-type": draw.choice(["set", "atomic"])}}
    chosen = {**options.get(kind, {}), "nullable": True}
    return schema | {key: value for key, value in chosen.items() if draw.random() < 0.3}


def some_value(draw: random.Random, schema: Schema) -> Any:
    """One that the schema may take: it knows of its types only."""
    kind = draw.choice(["integer", "string"]) if INT_OR_STRING in schema else schema.get("type") or draw.choice(
        ["integer", "string", "object"])
    if draw.random() < 0.1:
        return None
    if kind == "object":
        known, extra = schema.get("properties", {}), schema.get("additionalProperties", {OPEN: True})
        return {name: some_value(draw, known.get(name, extra)) for name in draw.sample("xyz", draw.randint(0, 3))}
    if kind == "array":
        return [some_value(draw, schema["items"]) for _ in range(draw.randint(0, 3))]
    return draw.choice({"string": ["", "a", "b", "ab"], "boolean": [True, False]}.get(kind, [0, 1, 2, 3]))


def changed(draw: random.Random, schema: Schema) -> Schema:
    """The schema with one place of it another one, or one keyword dropped."""
    new = copy.deepcopy(schema)
    here = new
    while below := [*here.get("properties", {}).values(), *(here[key] for key in ("items", "additionalProperties")
                                                            if key in here)]:
        if draw.random() < 0.4:
            break
        here = draw.choice(below)
    optional = sorted(here.keys() - {"type", "properties", "items", "additionalProperties", OPEN, INT_OR_STRING})
    if optional and draw.random() < 0.5:
        del here[draw.choice(optional)]
    else:
        other = some_schema(draw, 1)
        here.clear()
        here.update(other)
    return new


def kept_whole(value: Any, schema: Schema) -> bool:
    return not schema_causes(value, schema) and prune_value(copy.deepcopy(value), schema) == []


@pytest.mark.parametrize("seed", range(20))
def test_without_losses_every_value_is_taken_and_kept_as_before(seed: int) -> None:
    draw, compared, taken = random.Random(seed), 0, 0
    while compared < 50:
        old = some_schema(draw)
        new = changed(draw, old)
        if at_x(old, new):
            continue
        compared += 1
        for value in (some_value(draw, old) for _ in range(20)):
            if kept_whole(value, old):
                taken += 1
                assert kept_whole(value, new), (old, new, value)
    assert taken > 100  # or it has shown nothing
