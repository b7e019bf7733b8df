"""Strategic merge patch by the schemas of built-in kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.patching import apply_merge_patch, apply_strategic_merge_patch
from kubectl_runtime.apiserver.schemas import builtin

POD = {"metadata": {"name": "a", "finalizers": ["one", "two"], "labels": {"x": "y"}},
       "spec": {"containers": [{"name": "main", "image": "i:1", "env": [{"name": "A", "value": "1"}], "args": ["x"]},
                               {"name": "side", "image": "s:1"}], "nodeSelector": {"a": "1"},
                "tolerations": [{"key": "k"}]}}


def patched(patch: dict[str, Any], current: dict[str, Any] = POD) -> dict[str, Any]:
    before = copy.deepcopy((current, patch))
    result = apply_strategic_merge_patch(current, patch, builtin("", "v1", "Pod"))
    assert (current, patch) == before
    return result


def containers(patch: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    result = patched({"spec": {"containers": patch, **more}})["spec"]["containers"]
    assert isinstance(result, list)
    return result


def test_containers_are_merged_by_name_and_new_ones_of_the_patch_come_first() -> None:
    result = containers([{"name": "new"}, {"name": "main", "env": [{"name": "B", "value": "2"}], "args": ["y"]}])
    assert [item["name"] for item in result] == ["new", "main", "side"]
    assert result[1] == {"name": "main", "image": "i:1", "args": ["y"],
                         "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}


def test_items_that_only_the_server_has_keep_their_place_before_patched_ones() -> None:
    assert [item["name"] for item in containers([{"name": "side", "image": "s:2"}])] == ["main", "side"]


def test_a_directive_deletes_an_item_or_replaces_the_list() -> None:
    assert containers([{"name": "main", "$patch": "delete"}]) == [{"name": "side", "image": "s:1"}]
    assert containers([{"name": "only"}, {"$patch": "replace"}]) == [{"name": "only"}]
    assert containers([{"name": "absent", "$patch": "delete"}]) == POD["spec"]["containers"]  # type: ignore[index]


def test_a_directive_replaces_or_empties_a_map() -> None:
    assert patched({"spec": {"nodeSelector": {"b": "2", "$patch": "replace"}}})["spec"]["nodeSelector"] == {"b": "2"}
    assert patched({"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}


def test_directives_in_what_is_new_leave_no_trace() -> None:
    result = patched({"spec": {"volumes": [{"name": "v"}, {"name": "w", "$patch": "delete"}]}})
    assert result["spec"]["volumes"] == [{"name": "v"}]


def test_scalars_are_merged_as_a_set_and_deleted_by_a_parallel_list() -> None:
    assert patched({"metadata": {"finalizers": ["three", "one"]}})["metadata"]["finalizers"] == ["three", "one", "two"]
    result = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["two"]}})
    assert result["metadata"] == {"name": "a", "finalizers": ["one"], "labels": {"x": "y"}}


def test_the_order_directive_orders_patched_and_kept_items() -> None:
    result = containers([{"name": "new"}], **{"$setElementOrder/containers": [
        {"name": "side"}, {"name": "new"}, {"name": "main"}]})
    assert [item["name"] for item in result] == ["side", "new", "main"]
    result = patched({"spec": {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}})
    assert [item["name"] for item in result["spec"]["containers"]] == ["side", "main"]


def test_retain_keys_drops_the_other_members() -> None:
    volume = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}]}}
    assert patched(patch, volume)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/"}}]


@pytest.mark.parametrize(("patch", "code"), [
    ({"metadata": {"$deleteFromPrimitiveList": ["x"]}}, 400),
    ({"metadata": {"$setElementOrderfinalizers": ["x"]}}, 400),
    ({"metadata": {"$retainKeys": ["name"], "labels": {"a": "b"}}}, 400),
    ({"metadata": {"finalizers": [["x"]]}}, 422),
    ({"metadata": {"labels": {"$patch": "frob"}}}, 500),
    ({"spec": {"containers": [{"image": "x"}]}}, 500),
    ({"spec": {"containers": ["x"]}}, 500),
    ({"spec": {"containers": [{"name": "main", "$patch": "merge"}]}}, 500),
    ({"spec": {"containers": [{"name": "b"}], "$setElementOrder/containers": [{"name": "a"}]}}, 500),
])
def test_malformed_patches_are_refused(patch: dict[str, Any], code: int) -> None:
    with pytest.raises(StatusError) as error:
        patched(patch)
    assert error.value.code == code


names = st.sampled_from("abcd")
items = st.fixed_dictionaries({"name": names}, optional={"image": st.sampled_from(["1", "2"])})
item_lists = st.lists(items, max_size=4, unique_by=lambda item: item["name"])


@given(item_lists, item_lists)
def test_a_second_time_changes_nothing(current: list[Any], patch: list[Any]) -> None:
    once = patched({"spec": {"containers": patch}}, {"spec": {"containers": current}})
    assert patched({"spec": {"containers": patch}}, once) == once
    merged = {item["name"]: item for item in once["spec"]["containers"]}
    assert set(merged) == {item["name"] for item in [*current, *patch]}
    assert all(merged[item["name"]].items() >= item.items() for item in patch)


@given(st.dictionaries(names, st.none() | st.sampled_from(["1", "2"])))
def test_maps_of_scalars_are_merged_as_by_a_merge_patch(patch: dict[str, Any]) -> None:
    wrapped = {"metadata": {"labels": patch}}
    current = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    assert patched(wrapped, current) == apply_merge_patch(current, wrapped)
