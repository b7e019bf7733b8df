"""JSON patch as the API server applies it, its leniencies included."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.patching import apply_json_patch
from kubectl_runtime.apiserver.patching.json_patch import MAX_OPERATIONS

CURRENT = {"metadata": {"finalizers": ["one", "two"], "labels": {"a/b": "1", "m~n": "2"}}, "data": {"k": "v", "l": "w"}}

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab~/", max_size=3)
keys = st.text("ab~/", min_size=1, max_size=3)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
                      max_leaves=8)
documents = st.dictionaries(keys, values, max_size=4)


def pointer(*tokens: str) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def test_every_operation_in_one_patch() -> None:
    result = apply_json_patch(CURRENT, [
        {"op": "add", "path": "/data/m", "value": "1"}, {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "remove", "path": "/data/l"}, {"op": "copy", "from": "/data/k", "path": "/data/c"},
        {"op": "move", "from": "/data/m", "path": "/data/n"}, {"op": "test", "path": "/data/c", "value": "2"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "three"},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "zero"}])
    assert result["data"] == {"k": "2", "c": "2", "n": "1"}
    assert result["metadata"]["finalizers"] == ["zero", "one", "two", "three"]


@pytest.mark.parametrize("operation", [
    {"op": "test", "path": "/data/none", "value": None},
    {"op": "test", "path": "/data/none"},
    {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
    {"op": "test", "path": "/metadata/labels/m~0n", "value": "2"},
    {"op": "test", "path": "ignored/data/k", "value": "v"},
    {"op": "test", "path": "", "value": CURRENT},
    {"op": "test", "path": "/metadata/finalizers/-1", "value": "two"},
])
def test_tests_that_hold(operation: dict[str, Any]) -> None:
    assert apply_json_patch(CURRENT, [operation]) == CURRENT


@pytest.mark.parametrize("operation", [
    {"op": "test", "path": "/data/k", "value": "other"}, {"op": "test", "path": "/data/none", "value": "x"},
    {"op": "test", "path": "/metadata/finalizers/7", "value": None},
    {"op": "test", "path": "/data/k/deep", "value": "v"},
    {"op": "remove", "path": "/data/none"}, {"op": "add", "path": "/none/deep", "value": "1"},
    {"op": "remove", "path": "/metadata/finalizers/7"}, {"op": "add", "path": "data", "value": "1"},
    {"op": "add", "path": "/metadata/finalizers/7", "value": "x"}, {"op": "add", "path": "", "value": {}},
    {"op": "replace", "path": "/metadata/finalizers/2", "value": "x"}, {"op": "replace", "path": "", "value": []},
    {"op": "replace", "path": "/metadata/finalizers/x", "value": "x"}, {"op": "frob", "path": "/data/k"},
    {"op": "add", "value": "x"}, {"op": "move", "from": "/data/none", "path": "/data/x"}, {"path": "/data"}, None,
    {"op": "copy", "from": "/none/x", "path": "/data/x"},
    {"op": "add", "path": "/metadata/finalizers/0x1", "value": ""},
])
def test_what_does_not_apply_is_422_without_a_word_of_explanation(operation: Any) -> None:
    before = copy.deepcopy(CURRENT)
    with pytest.raises(StatusError) as error:
        apply_json_patch(CURRENT, [operation])
    assert (error.value.code, error.value.reason) == (422, "Invalid")
    assert error.value.message == "the server rejected our request due to an error in our request"
    assert before == CURRENT


def test_what_the_rfc_forbids_and_the_server_accepts() -> None:
    result = apply_json_patch(CURRENT, [
        {"op": "replace", "path": "/data/new", "value": "1"}, {"op": "add", "path": "/data/null"},
        {"op": "copy", "from": "/data/gone", "path": "/data/copied"},
        {"op": "add", "path": "/metadata/finalizers/-1", "value": "end"}])
    assert result["data"] == {"k": "v", "l": "w", "new": "1", "null": None, "copied": None}
    assert result["metadata"]["finalizers"] == ["one", "two", "end"]


def test_true_is_not_one() -> None:
    for value, other in ((True, 1), (1, True), (0, False), ({"a": 1}, {"a": True}), ([1], [1.0])):
        with pytest.raises(StatusError):
            apply_json_patch({"x": value}, [{"op": "test", "path": "/x", "value": other}])


def test_the_whole_document_can_be_replaced() -> None:
    assert apply_json_patch(CURRENT, [{"op": "replace", "path": "", "value": {"a": 1}}]) == {"a": 1}


def test_too_many_operations_are_413() -> None:
    with pytest.raises(StatusError) as error:
        apply_json_patch({}, [{"op": "test", "path": "/a"}] * (MAX_OPERATIONS + 1))
    assert error.value.code == 413
    assert error.value.message == ("Request entity too large: The allowed maximum operations in a JSON patch is "
                                   "10000, got 10001")


def test_copies_that_double_each_time_are_refused_before_they_fill_the_memory() -> None:
    grow = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(StatusError) as error:
        apply_json_patch({"a": {"b": "x" * 1000}}, grow)
    assert (error.value.code, error.value.message) == (
        422, "the server rejected our request due to an error in our request")
    megabyte = {"a": "x" * (1 << 20)}
    copies = [{"op": "copy", "from": "/a", "path": f"/{number}"} for number in range(3)]
    assert len(apply_json_patch(megabyte, copies[:2])) == 3
    with pytest.raises(StatusError):
        apply_json_patch(megabyte, copies)


@given(documents, keys, scalars)
def test_add_then_remove_gives_the_document_back(document: dict[str, Any], key: str, value: Any) -> None:
    document.pop(key, None)
    added = apply_json_patch(document, [{"op": "add", "path": pointer(key), "value": value}])
    assert added == {**document, key: value}
    assert apply_json_patch(added, [{"op": "test", "path": pointer(key), "value": value},
                                    {"op": "remove", "path": pointer(key)}]) == document


@given(documents)
def test_every_member_passes_a_test_against_itself(document: dict[str, Any]) -> None:
    operations = [{"op": "test", "path": pointer(key), "value": value} for key, value in document.items()]
    assert apply_json_patch(document, operations) == document


@given(documents, keys, keys)
def test_moving_there_and_back_changes_nothing(document: dict[str, Any], key: str, target: str) -> None:
    document = {**document, key: "here"}
    if key != target:
        document.pop(target, None)
    moved = apply_json_patch(document, [{"op": "move", "from": pointer(key), "path": pointer(target)}])
    assert apply_json_patch(moved, [{"op": "move", "from": pointer(target), "path": pointer(key)}]) == document
