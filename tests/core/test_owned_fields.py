"""What a manager has applied, taken out of an object by its managedFields."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.objects.resource import applied_fields


def obj(fields: Any, operation: str = "Apply", **content: Any) -> dict[str, Any]:
    entry = {"manager": "m", "operation": operation, "fieldsV1": fields}
    return {"metadata": {"name": "a", "managedFields": [{"manager": "n", "operation": "Apply"}, entry]}, **content}


CASES: dict[str, tuple[Any, Any, Any]] = {
    "a field": ({"f:a": {}}, {"a": 1, "b": 2}, {"a": 1}),
    "a whole map": ({"f:a": {}}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    "an entry of a map": ({"f:a": {"f:x": {}}}, {"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}),
    "a map whose entries are others'": ({"f:a": {".": {}, "f:gone": {}}}, {"a": {"y": 2}}, {"a": {}}),
    "a field that is gone": ({"f:a": {"f:x": {}}}, {"b": 1}, {}),
    "a null": ({"f:a": {"f:x": {}}}, {"a": None}, {"a": None}),
    "an item by its keys": (
        {"f:l": {'k:{"n":"1"}': {".": {}, "f:n": {}, "f:x": {}}}},
        {"l": [{"n": "0", "x": 0}, {"n": "1", "x": 1, "y": 2}]}, {"l": [{"n": "1", "x": 1}]}),
    "an item that is a number": ({"f:l": {"v:2": {}}}, {"l": [1, 2, 3]}, {"l": [2]}),
    "an item by its place": ({"f:l": {"i:1": {}}}, {"l": ["a", "b"]}, {"l": ["b"]}),
    "a whole list": ({"f:l": {}}, {"l": [1, 2]}, {"l": [1, 2]}),
    "items in the object's order": (
        {"f:l": {'k:{"n":2}': {"f:n": {}}, 'k:{"n":1}': {"f:n": {}}}}, {"l": [{"n": 1}, {"n": 2}]},
        {"l": [{"n": 1}, {"n": 2}]}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_owned_comes_out(case: str) -> None:
    fields, status, owned = CASES[case]
    found = applied_fields(obj({"f:status": fields}, status=status), "m")
    assert found == ({"status": owned} if owned else {})


def test_updates_other_subresources_and_strangers_do_not_count() -> None:
    assert applied_fields(obj({"f:data": {}}, "Update", data={"a": 1}), "m") == {}
    assert applied_fields(obj({"f:data": {}}, data={"a": 1}), "m", "status") == {}
    assert applied_fields(obj({"f:data": {}}, data={"a": 1}), "stranger") == {}


def test_an_object_without_managed_fields_does_not_say() -> None:
    assert applied_fields({"metadata": {"name": "a"}, "data": {"a": 1}}, "m") is None
