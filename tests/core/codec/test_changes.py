"""Which fields of two views differ, and what becomes of the others."""
from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from kubectl_runtime.core.base.plain import to_plain
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.codec.writeback import SAME, changes


class View(msgspec.Struct):
    one: Any = None
    other: Any = None


@pytest.mark.parametrize(("before", "after"), [
    (None, float("nan")), ("YQ==", b"a"), (1, True), (1, 1.0), ([], None), ("a", "b"), ({"a": [1]}, {"a": [1, 2]})])
def test_fields_differ_that_json_or_python_alone_would_call_equal(before: Any, after: Any) -> None:
    assert changes(View(before, "x"), View(after, "x"), in_place=True) == {"one": None}
    assert changes(View(before, "x"), View(before, "x"), in_place=True) == SAME


def test_what_is_no_struct_or_cannot_be_compared_is_wanted_whole() -> None:
    assert changes({"a": 1}, {"a": 1}, in_place=True) == SAME
    unlike = (({"a": 1}, {"a": 2}), (View(1), {"one": 1}), (View(object()), View(1)), (View(2**70), View(1)))
    for before, after in unlike:
        assert changes(before, after, in_place=True) is None


def test_records_are_looked_into_and_the_items_of_lists_only_where_they_are_in_place() -> None:
    before = View(View(1, 2), [View("a", 1), View("b", 2)])
    after = View(View(1, 3), [View("a", 1), View("b", 3)])
    assert changes(before, after, in_place=True) == {"one": {"other": None}, "other": [SAME, {"other": None}]}
    assert changes(before, after, in_place=False) == {"one": {"other": None}, "other": None}
    assert changes(View([View(1)]), View([View(2), View(3)]), in_place=True) == {"one": None}
    assert changes(View([View(1)]), View([{"one": 1}]), in_place=True) == {"one": None}


class Port(msgspec.Struct, rename="camel"):
    container_port: int = 0
    host_port: int | None = None
    name: str = ""


class Ports(msgspec.Struct):
    ports: Annotated[list[Port], MapKeys("containerPort")] = []
    more: int = 0


def test_only_what_is_wanted_becomes_plain_with_the_keys_that_tell_items_apart() -> None:
    value = Ports(ports=[Port(80, name="web"), Port(81, 8081)], more=3)
    assert to_plain(value, only={"ports": [SAME, {"host_port": None}]}) == {
        "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}
    assert to_plain(value, only={"more": None}) == {"more": 3}
    assert to_plain(value, only=SAME) == {}
