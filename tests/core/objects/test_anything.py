"""`object` as a declared type is any JSON value, as `Any` is: strict type checkers want no `Any`."""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime import Resource
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.objects import PartialView
from tests.core.examples import encoded


class Spec(msgspec.Struct):
    one: object = None
    named: dict[str, object] = {}
    listed: list[object] = []


class Free(Resource, group="example.com", version="v1", kind="Free", plural="frees"):
    spec: Spec
    status: object


class View(PartialView, frozen=True):
    spec: dict[str, object]


CONTENT: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Free", "metadata": {"name": "a"},
                           "spec": {"one": {"x": [1]}, "named": {"q": [{"z": 1}]}, "listed": [1, "a"], "hidden": 1},
                           "status": {"a": 1}}


def test_anything_is_read_and_written_back() -> None:
    obj = Free.from_dict(CONTENT)
    assert (obj.spec.one, obj.spec.named, obj.spec.listed) == ({"x": [1]}, {"q": [{"z": 1}]}, [1, "a"])
    assert obj.status == {"a": 1}
    obj.spec.named["new"] = {"k": None}
    obj.status = ["s"]
    assert obj.to_dict() == {**CONTENT, "status": ["s"], "spec": {
        **CONTENT["spec"], "named": {"q": [{"z": 1}], "new": {"k": None}}}}


def test_where_nothing_was_said_it_is_none() -> None:
    assert Free.from_dict({"metadata": {"name": "a"}}).status is None


def test_views_hold_it_too() -> None:
    view = FieldsForm(Free.api_resource, View).decode_object(encoded(CONTENT)).view
    assert view.spec == CONTENT["spec"]
