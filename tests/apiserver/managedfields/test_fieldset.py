"""The algebra of field sets, checked against sets of paths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.managedfields.fieldset import (
    compare,
    contains,
    difference,
    intersection,
    only,
    ordered,
    path_text,
    paths,
    union,
    without,
)
from kubectl_runtime.apiserver.schemas import definition

Path = tuple[str, ...]
elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
path_sets = st.frozensets(st.lists(elements, min_size=1, max_size=4).map(tuple), max_size=8)


def build(members: frozenset[Path]) -> dict[str, Any]:
    """The set in FieldsV1 form."""
    root: dict[str, Any] = {}
    for path in members:
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _canonical(root)


def _canonical(node: dict[str, Any]) -> dict[str, Any]:
    return {key: {} if key == "." or list(child) == ["."] else _canonical(child) for key, child in node.items()}


@given(path_sets, path_sets)
def test_union_difference_and_intersection_are_those_of_sets(first: frozenset[Path], second: frozenset[Path]) -> None:
    a, b = build(first), build(second)
    assert frozenset(paths(union(a, b))) == first | second
    assert frozenset(paths(difference(a, b))) == first - second
    assert frozenset(paths(intersection(a, b))) == first & second
    assert (a, b) == (build(first), build(second))


@given(path_sets, path_sets)
def test_results_have_the_one_form_of_their_set(first: frozenset[Path], second: frozenset[Path]) -> None:
    a, b = build(first), build(second)
    assert union(a, b) == build(first | second)
    assert difference(a, b) == build(first - second)
    assert intersection(a, b) == build(first & second)


@given(path_sets, st.lists(elements, min_size=1, max_size=3).map(tuple))
def test_a_path_and_what_is_below_it_can_be_kept_or_left_out(members: frozenset[Path], path: Path) -> None:
    fields = build(members)
    below = {member for member in members if member[:len(path)] == path}
    assert frozenset(paths(only(fields, path))) == below
    assert without(fields, path) == build(members - below)
    assert contains(fields, path) == (path in members)


@given(path_sets)
def test_ordering_changes_nothing_but_the_order(members: frozenset[Path]) -> None:
    fields = build(members)
    assert ordered(fields) == fields
    assert list(ordered(fields)) == sorted(fields)


def test_paths_as_messages_show_them() -> None:
    assert path_text(("f:containers", 'k:{"name":"main"}', "f:image")) == '.containers[name="main"].image'
    assert path_text(("f:ports", 'k:{"port":80,"protocol":"TCP"}')) == '.ports[port=80,protocol="TCP"]'
    assert path_text(("f:metadata", "f:finalizers", 'v:"a/b"')) == '.metadata.finalizers[="a/b"]'
    assert path_text(("f:list", "i:3")) == ".list[3]"


@pytest.mark.parametrize("second", [
    [{"name": "a", "image": "x"}],  # repeated
    [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 1}]}],  # other fields
    [{"name": "a", "image": None}, {"name": "a"}],  # one identity twice
])
def test_a_list_that_was_added_before_has_paths_of_its_own(second: list[dict[str, Any]]) -> None:
    containers = definition("io.k8s.api.core.v1.PodSpec")
    first = [{"name": "a", "image": "x"}]
    before, _ = compare({}, {"containers": first}, containers)
    for old in ({}, {"containers": None}, {"containers": []}):
        changed, removed = compare(old, {"containers": second}, containers)
        assert removed == {}
        names = {f'k:{{"name":"{item["name"]}"}}' for item in second}
        assert set(changed["f:containers"]) == names | ({"."} if not old else set())
    assert compare({}, {"containers": first}, containers)[0] == before
