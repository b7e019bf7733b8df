"""What a kube-apiserver 1.36 refuses in a schema, in its words, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.schema.structural import schema_definition_causes, structural_causes

Schema = dict[str, Any]
UNDECLARED: Schema = {"anyOf": [{"properties": {"a": {"minimum": 1}}}]}
SPEC: Schema = {"type": "object", "properties": {
    "seen": {"type": "integer"},
    "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}}


def told(schema: Schema) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in schema_definition_causes(schema, "s")]


def test_only_the_junctors_of_the_root_may_name_nothing_that_is_not_declared() -> None:
    assert told({"type": "object", **UNDECLARED}) == [
        ("s.properties[a]", "Required value: because it is defined in s.anyOf[0].properties[a]")]
    assert told({"type": "object", "properties": {"spec": {"type": "object", **UNDECLARED}}}) == []


def test_what_is_not_structural_is_told_all_at_once_and_sorted() -> None:
    found = structural_causes({"type": "object", "properties": {"spec": {}}, **UNDECLARED}, "s")
    assert [cause.field for cause in found] == ["s.properties[a]", "s.properties[spec].type"]


def test_the_root_cannot_be_null() -> None:
    assert told({"type": "object", "nullable": True}) == [
        ("s.nullable", "Forbidden: nullable cannot be true at the root")]


@pytest.mark.parametrize(("default", "field", "message"), [
    (1.5, "", 'Invalid value: "number":  in body must be of type object: "number"'),
    ({"seen": "x"}, ".seen", 'Invalid value: "string": seen in body must be of type integer: "string"'),
    ({"one": {}}, "", 'Invalid value: "": "one" must validate one and only one schema (oneOf). Found none valid'),
    ({"y": 1, "z": 2}, "", 'Invalid value: {"y":1,"z":2}: must not have unknown fields')])
def test_a_default_is_looked_at_on_its_own(default: Any, field: str, message: str) -> None:
    found = told({"type": "object", "properties": {"spec": {**SPEC, "default": default}}})
    assert found[0] == (f"s.properties[spec].default{field}", message)


def test_what_a_default_has_twice_is_not_looked_at() -> None:
    assert told({"type": "object", "properties": {"spec": {**SPEC, "default": {"names": ["a", "a"]}}}}) == []
