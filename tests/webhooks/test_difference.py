"""The patch between two objects: applied to the first it gives the second, whatever they are."""
from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.core.codec.jsonbytes import same_json
from kubectl_runtime.webhooks.answering import patch_between
from tests.thoroughness import examples

KEYS = st.sampled_from(["a", "b", "", "a/b", "~", "~1", "0", "-", "ä"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "1"]) | st.sampled_from([0.0, 1.0, 1.5]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@settings(max_examples=examples(150), deadline=None)
@given(OBJECTS, OBJECTS)
def test_the_patch_leads_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    first, second = deepcopy(before), deepcopy(after)
    operations = patch_between(before, after)
    assert (before, after) == (first, second)
    assert same_json(jsonpatch.apply_patch(before, operations), after)
    assert (operations == []) is same_json(before, after)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2), max_size=7), st.randoms())
def test_lists_that_are_shuffled_come_out_in_their_order(items: list[Any], rng: Any) -> None:
    moved = [dict(item) for item in items]
    rng.shuffle(moved)
    after = {"list": moved[rng.randrange(0, 2):]}
    assert jsonpatch.apply_patch({"list": items}, patch_between({"list": items}, after)) == after


@pytest.mark.parametrize(("before", "after"), [
    ({"a": 1}, {"a": True}), ({"a": 0}, {"a": False}), ({"a": 1}, {"a": 1.0}), ({"a": None}, {}),
    ({"a": [1]}, {"a": [True]}), ({"a": {"b": 1}}, {"a": {"b": 1.0}})])
def test_what_python_takes_for_equal_is_told_apart(before: dict[str, Any], after: dict[str, Any]) -> None:
    operations = patch_between(before, after)
    assert operations
    assert same_json(jsonpatch.apply_patch(before, operations), after)


def test_the_order_of_keys_is_no_change() -> None:
    assert patch_between({"a": {"x": 1, "y": 2}, "b": 1}, {"b": 1, "a": {"y": 2, "x": 1}}) == []


def test_each_change_is_an_operation_of_its_own() -> None:
    before = {"spec": {"a": 1, "gone": 2, "list": [{"x": 1, "hidden": [1]}, {"x": 2}], "same": 3}, "status": {}}
    after = {"spec": {"a": 5, "n/w": 4, "list": [{"x": 9, "hidden": [1]}, {"x": 2}], "same": 3}, "status": {}}
    assert patch_between(before, after) == [
        {"op": "replace", "path": "/spec/a", "value": 5}, {"op": "remove", "path": "/spec/gone"},
        {"op": "replace", "path": "/spec/list/0/x", "value": 9}, {"op": "add", "path": "/spec/n~1w", "value": 4}]


def test_an_item_that_is_inserted_leaves_those_before_it_alone() -> None:
    items = [{"name": str(number), "much": ["more"] * 5} for number in range(4)]
    before, after = {"spec": {"a/b": items}}, {"spec": {"a/b": [*items[:2], {"name": "new"}, *items[2:]]}}
    for one, other in ((before, after), (after, before)):
        operations = patch_between(one, other)
        assert jsonpatch.apply_patch(one, operations) == other
        assert all(operation["path"].startswith(("/spec/a~1b/2", "/spec/a~1b/3", "/spec/a~1b/4"))
                   for operation in operations)


def test_a_patch_that_leads_elsewhere_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        patch = [{"op": "replace", "path": "/0", "value": 99}]  # noqa: RUF012

    monkeypatch.setattr(jsonpatch, "make_patch", lambda *_: Wrong)
    assert patch_between({"a": {"b": [1, 2]}}, {"a": {"b": [1, 2, 3]}}) == [
        {"op": "replace", "path": "/a/b", "value": [1, 2, 3]}]
