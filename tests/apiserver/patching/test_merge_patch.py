"""Merge patches, and the bodies that patches come in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.patching import apply_merge_patch
from kubectl_runtime.apiserver.patching.json_patch import (
    read_configuration,
    read_json_patch,
    read_merge_patch,
    read_strategic_merge_patch,
)

keys = st.text("abc", max_size=2)
values = st.recursive(st.none() | st.integers(0, 3) | keys,
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
                      max_leaves=10)
objects = st.dictionaries(keys, values, max_size=4)


def test_null_removes_objects_merge_and_the_rest_replaces() -> None:
    current = {"data": {"k": "v", "l": "w"}, "list": [1, 2], "scalar": 1}
    patch = {"data": {"k": "new", "l": None, "gone": None}, "list": [3],
             "scalar": {"a": None, "b": [{"c": None}, None]}}
    assert apply_merge_patch(current, patch) == {"data": {"k": "new"}, "list": [3], "scalar": {"b": [{}, None]}}


@given(objects, objects)
def test_a_second_time_changes_nothing_and_the_arguments_stay(current: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((current, patch))
    once = apply_merge_patch(current, patch)
    assert apply_merge_patch(once, patch) == once
    assert (current, patch) == before


@given(objects, objects)
def test_no_null_of_the_patch_arrives_in_an_object(current: dict[str, Any], patch: dict[str, Any]) -> None:
    result = apply_merge_patch({}, patch)
    assert _nulls_in_objects(result) == 0
    removed = {key for key, value in patch.items() if value is None}
    assert set(apply_merge_patch(current, patch)) == (set(current) | set(patch)) - removed


def _nulls_in_objects(value: Any) -> int:
    if isinstance(value, dict):
        return sum(child is None for child in value.values()) + sum(map(_nulls_in_objects, value.values()))
    return sum(map(_nulls_in_objects, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize(("read", "body", "message"), [
    (read_merge_patch, b"{bad", "error decoding patch: invalid character 'b' looking for beginning of object key "
     "string"),
    (read_merge_patch, b"", "error decoding patch: unexpected end of JSON input"),
    (read_merge_patch, b"[]", "error decoding patch: json: cannot unmarshal array into Go value of type "
     "map[string]interface {}"),
    (read_merge_patch, b"null", "Invalid JSON Patch"),
    (read_strategic_merge_patch, b'"x"', "error decoding patch: json: cannot unmarshal string into Go value of type "
     "map[string]interface {}"),
    (read_json_patch, b'{"op": "add"}', "error decoding patch: json: cannot unmarshal object into Go value of type "
     "[]handlers.jsonPatchOp"),
    (read_json_patch, b"[", "error decoding patch: unexpected end of JSON input"),
    (read_json_patch, b'[{"op": 5}]', "error decoding patch: json: cannot unmarshal number into Go struct field "
     "jsonPatchOp.op of type string"),
    (read_json_patch, b"[5]", "error decoding patch: json: cannot unmarshal number into Go value of type "
     "handlers.jsonPatchOp"),
])
def test_malformed_patches_are_400_in_the_decoders_words(read: Callable[[bytes], Any], body: bytes,
                                                         message: str) -> None:
    with pytest.raises(StatusError) as error:
        read(body)
    assert (error.value.code, error.value.reason, error.value.message) == (400, "BadRequest", message)


def test_null_is_an_empty_json_patch_and_an_empty_strategic_patch() -> None:
    assert read_json_patch(b"null")[0] == []
    assert read_strategic_merge_patch(b"null")[0] == {}


@pytest.mark.parametrize(("body", "message"), [
    (b'{"metadata": {}}', "invalid object type: /, Kind="),
    (b"", "invalid object type: /, Kind="),
    (b"apiVersion: v1", "invalid object type: /v1, Kind="),
    (b"kind: ConfigMap", "invalid object type: /, Kind=ConfigMap"),
    (b"apiVersion: apps/v1\nkind: ConfigMap", "invalid object type: apps/v1, Kind=ConfigMap"),
    (b"- a", "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go "
     "value of type map[string]interface {}"),
])
def test_a_configuration_of_another_type_is_400(body: bytes, message: str) -> None:
    with pytest.raises(StatusError) as error:
        read_configuration(body, "v1", "ConfigMap")
    assert (error.value.code, error.value.message) == (400, message)


def test_a_configuration_that_is_not_yaml_is_400() -> None:
    with pytest.raises(StatusError, match="error decoding YAML: error converting YAML to JSON"):
        read_configuration(b"a: b: c", "v1", "ConfigMap")


def test_the_first_document_of_a_yaml_text_counts() -> None:
    body = b"---\napiVersion: v1\nkind: ConfigMap\n---\nx: 1\n"
    assert read_configuration(body, "v1", "ConfigMap")[0] == {"apiVersion": "v1", "kind": "ConfigMap"}
