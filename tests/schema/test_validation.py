"""Validation of custom resources by the keywords of their schema, in the real server's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.schema.validation import schema_causes

SPEC: dict[str, Any] = {
    "s": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "ab"}, "b": {"type": "boolean"},
    "i": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": True},
    "m": {"type": "integer", "multipleOf": 3},
    "n": {"type": "number", "exclusiveMinimum": True, "minimum": 0}, "either": {"x-kubernetes-int-or-string": True},
    "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
    "o": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "string"}},
    "e": {"type": "string", "enum": ["a", "b"]}, "f": {"type": "integer", "enum": [1, 2]},
    "nullable": {"type": "string", "nullable": True},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
        "type": "object", "required": ["k"], "properties": {
            "k": {"type": "string"}, "v": {"type": "integer", "maximum": 3}}}},
    "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "one": {"oneOf": [{"minimum": 1}, {"minimum": 5}]},
    "no": {"not": {"enum": ["x"]}}, "all": {"allOf": [{"minimum": 1}]}, "few": {"type": "array", "maxItems": 1},
    "when": {"type": "string", "format": "date-time"}, "half": {"type": "integer", "format": "int64"},
    "blob": {"type": "string", "format": "byte"},
    "choice": {"type": "string", "enum": ["a", None], "nullable": True},
    "open": {"type": "string", "allOf": [{"enum": ["a"]}], "nullable": True},
}
SPEC["maps"] = {"type": "object", "additionalProperties": SPEC["map"]}
SCHEMA = {"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "properties": SPEC}}}


def found(spec: Any, old: Any = None) -> list[tuple[str, str]]:
    before = {} if old is None else {"old": {"spec": old}}
    return [(cause.field, cause.message) for cause in schema_causes({"spec": spec}, SCHEMA, **before)]


@pytest.mark.parametrize(("spec", "field", "message"), [
    ({"s": 1}, "spec.s", 'Invalid value: "integer": spec.s in body must be of type string: "integer"'),
    ({"o": []}, "spec.o", 'Invalid value: "array": spec.o in body must be of type object: "array"'),
    ({"b": "x"}, "spec.b", 'Invalid value: "string": spec.b in body must be of type boolean: "string"'),
    ({"l": ["ab", 5]}, "spec.l[1]", 'Invalid value: "integer": spec.l[1] in body must be of type string: "integer"'),
    ("text", "spec", 'Invalid value: "string": spec in body must be of type object: "string"'),
    ({"e": None}, "spec.e", 'Invalid value: "null": spec.e in body must be of type string: "null"'),
    ({"either": 5.5}, "spec.either", 'Invalid value: "number": spec.either in body must be of type integer,string: '
     '"number"'),
    ({"i": 0}, "spec.i", "Invalid value: 0: spec.i in body should be greater than or equal to 1"),
    ({"i": 10}, "spec.i", "Invalid value: 10: spec.i in body should be less than 10"),
    ({"n": 0}, "spec.n", "Invalid value: 0: spec.n in body should be greater than 0"),
    ({"m": 5}, "spec.m", "Invalid value: 5: spec.m in body should be a multiple of 3"),
    ({"s": "xyz"}, "spec.s", "Invalid value: \"xyz\": spec.s in body should match 'ab'"),
    ({"s": "abcdef"}, "spec.s", "Too long: may not be more than 5 bytes"),
    ({"l": []}, "spec.l", "Invalid value: 0: spec.l in body should have at least 1 items"),
    ({"l": ["1", "2", "3"]}, "spec.l", "Too many: 3: must have at most 2 items"),
    ({"o": {}}, "spec.o", "Invalid value: 0: spec.o in body should have at least 1 properties"),
    ({"o": {"a": "", "b": "", "c": ""}}, "spec.o", "Too many: 3: must have at most 2 items"),
    ({"e": "c"}, "spec.e", 'Unsupported value: "c": supported values: "a", "b"'),
    ({"f": 3}, "spec.f", 'Unsupported value: 3: supported values: "1", "2"'),
    ({"set": ["a", "a"]}, "spec.set[1]", 'Duplicate value: "a"'),
    ({"map": [{"k": "a"}, {"k": "a"}]}, "spec.map[1]", 'Duplicate value: {"k":"a"}'),
    ({"map": [{}]}, "spec.map[0].k", "Required value"),
    ({"any": True}, "<nil>", 'Invalid value: "": "spec.any" must validate at least one schema (anyOf)'),
    ({"any": True}, "spec.any", 'Invalid value: "boolean": spec.any in body must be of type string: "boolean"'),
    ({"one": 7}, "<nil>", 'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid '
     "alternatives"),
    ({"one": 0}, "<nil>", 'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none '
     "valid"),
    ({"one": 0}, "spec.one", "Invalid value: 0: spec.one in body should be greater than or equal to 1"),
    ({"no": "x"}, "<nil>", 'Invalid value: "": "spec.no" must not validate the schema (not)'),
    ({"all": 0}, "spec.all", "Invalid value: 0: spec.all in body should be greater than or equal to 1"),
    ({"all": 0}, "<nil>", 'Invalid value: "": "spec.all" must validate all the schemas (allOf). None validated'),
    ({"when": True}, "spec.when", 'Invalid value: "": spec.when in body must be of type date-time: ""'),
    ({"when": 1}, "spec.when", 'Invalid value: "int64": spec.when in body must be of type date-time: "int64"'),
    ({"half": 1.5}, "spec.half", 'Invalid value: "float64": spec.half in body must be of type int64: "float64"'),
    ({"half": "1"}, "spec.half", 'Invalid value: "string": spec.half in body must be of type integer: "string"'),
    ({"blob": ""}, "spec.blob", 'Invalid value: "": spec.blob in body must be of type byte: ""'),
    ({"choice": None}, "spec.choice", 'Unsupported value: null: supported values: "a", "null"'),
    ({"few": [1, 2]}, "spec.few", "Too many: 2: must have at most 1 item"),
    ({"m": 1, "i": 0}, "spec.i", "Invalid value: 0: spec.i in body should be greater than or equal to 1"),
    ({"maps": {"x": [{"k": "a"}] * 3}}, "spec.maps[x][1]", 'Duplicate value: {"k":"a"}'),
    ({"map": ["a", {"k": "a"}]}, "spec.map[0]", 'Invalid value: "a": must be an object for an array of list-type map'),
])
def test_each_keyword_has_its_message(spec: Any, field: str, message: str) -> None:
    assert (field, message) in found(spec)


def test_values_that_fit() -> None:
    assert found({"s": "äab", "b": True, "i": 1, "m": 6.0, "n": 0.5, "either": "5%", "l": ["x"], "o": {"a": "1"},
                  "e": "a", "f": 2, "nullable": None, "open": None,
                  "when": ["a real server takes it"], "set": ["a", "b"], "map": [{"k": "a", "v": 3}], "any": 5,
                  "one": 3}) == []
    assert [cause.field for cause in schema_causes({}, SCHEMA)] == ["spec"]
    assert schema_causes({"anything": 1}, None) == []


def test_what_is_there_three_times_is_told_once() -> None:
    assert len(found({"set": ["a", "a", "a"]})) == 1


def test_of_branches_that_do_not_fit_the_nearest_is_told() -> None:
    branches = [{"required": ["url"], "properties": {"kind": {"enum": ["http"]}}},
                {"required": ["repo"], "properties": {"kind": {"enum": ["git"]}, "depth": {"type": "integer"}}}]
    told = schema_causes({"kind": "git", "depth": 1}, {"oneOf": branches})
    assert [cause.field for cause in told] == ["<nil>", "repo"]


def test_an_object_in_which_something_was_there_twice_is_not_asked_again() -> None:
    old = {"set": ["a", "a"]}
    assert found({"set": ["a", "a", "b"]}, old) == []
    assert [field for field, _ in found({"set": ["b", "b"]}, {"set": ["b"]})] == ["spec.set[1]"]


def test_a_fraction_in_the_place_of_an_integer_is_named_twice() -> None:
    assert found({"m": 1.5})[:2] == [
        ("spec.m", 'Invalid value: "number": spec.m in body must be of type integer: "number"'),
        ("<nil>", 'Invalid value: "": Checked value must be of type integer (default format) in spec.m')]


def test_all_errors_come_at_once() -> None:
    assert {field for field, _ in found({"s": 1, "e": "z", "i": -1})} == {"spec.s", "spec.e", "spec.i"}


def test_what_is_unchanged_is_not_looked_at_again() -> None:
    old = {"i": 50, "map": [{"k": "a", "v": 9}, {"k": "b", "v": 1}]}
    assert found({"i": 50, "s": "ab", "map": [{"k": "b", "v": 2}, {"k": "a", "v": 9}]}, old) == []
    assert [field for field, _ in found({"i": 51, "map": [{"k": "a", "v": 8}]}, old)] == ["spec.i", "spec.map[0].v"]


values = st.recursive(st.none() | st.booleans() | st.integers(0, 12) | st.floats(0, 9) | st.text("ab", max_size=6),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(SPEC)), inner))


@given(st.dictionaries(st.sampled_from(sorted(SPEC)), values))
def test_an_unchanged_object_is_never_refused(spec: Any) -> None:
    found(spec)
    assert found(spec, spec) == []
