"""managedFields after creates and updates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubectl_runtime.apiserver.managedfields import ResetFields
from kubectl_runtime.apiserver.schemas import builtin, from_openapi
from tests.apiserver.managedfields.ownership import WIDGET, World, config_map, widget


def test_a_create_owns_what_it_sets_but_not_type_and_identity() -> None:
    world = config_map()
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "1"}
    world.update("golden", {"data": {"k": "v"}, "metadata": {
        "labels": {"l": "1"}, "finalizers": ["f"], "ownerReferences": [owner], "generateName": "x-", "uid": "2",
        "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3, "resourceVersion": "1"}})
    assert world.entries() == [{
        "manager": "golden", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:01Z",
        "fieldsType": "FieldsV1", "fieldsV1": {
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {"f:finalizers": {".": {}, 'v:"f"': {}}, "f:generateName": {},
                           "f:labels": {".": {}, "f:l": {}}, "f:ownerReferences": {".": {}, 'k:{"uid":"1"}': {}}}}}]
    assert list(world.entries()[0]["fieldsV1"]["f:metadata"]) == sorted(world.entries()[0]["fieldsV1"]["f:metadata"])


def test_an_object_without_content_has_no_managers() -> None:
    assert "managedFields" not in config_map().update("golden", {})["metadata"]


def test_what_an_empty_object_has_anyway_is_not_owned() -> None:
    blank = {"metadata": {}, "spec": {"containers": None}, "status": {}}
    pod = World(builtin("", "v1", "Pod"), "v1", "Pod", blank=blank)
    pod.update("golden", {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80}], "resources": {}}]},
                          "status": {}})
    assert pod.owned() == {"golden Update": {"f:spec": {"f:containers": {'k:{"name":"main"}': {
        ".": {}, "f:name": {}, "f:resources": {}, "f:ports": {
            ".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}}}}}}


def test_lists_of_each_type_and_values_without_schema() -> None:
    world = World()
    world.update("golden", widget(plain=["a"], set=["x"], map=[{"name": "q", "v": "1"}], open={"a": {"b": [1]}}, m={},
                                  atomic={"a": "1"}))
    assert world.owned() == {"golden Update": {"f:spec": {
        ".": {}, "f:atomic": {}, "f:m": {}, "f:map": {".": {}, 'k:{"name":"q"}': {".": {}, "f:name": {}, "f:v": {}}},
        "f:open": {".": {}, "f:a": {".": {}, "f:b": {}}}, "f:plain": {}, "f:set": {".": {}, 'v:"x"': {}}}}}


def test_sets_are_written_in_the_order_of_their_elements() -> None:
    world = World()
    world.update("golden", widget(set=["y", "x"], o={"b": "1", "a": "1"}, map=[{"v": "1", "name": "z"}, {"name": "a"}]))
    world.update("golden", widget(set=["y", "x"], n=1, o={"b": "2", "a": "1"}, m={"l": "1", "k": "1"}))
    fields = world.entries()[0]["fieldsV1"]
    assert msgspec.json.encode(fields) == msgspec.json.encode(fields, order="sorted")


def test_another_manager_takes_only_what_it_changes() -> None:
    world = config_map()
    world.update("golden", {"data": {"k": "v", "m": "1"}})
    world.update("other", {"data": {"k": "w", "m": "1", "l": "1"}})
    assert world.owned() == {"golden Update": {"f:data": {".": {}, "f:m": {}}},
                             "other Update": {"f:data": {"f:k": {}, "f:l": {}}}}
    assert world.times() == {"golden": 1, "other": 2}


def test_the_same_manager_extends_its_entry_and_everybody_loses_what_is_removed() -> None:
    world = config_map()
    world.update("golden", {"data": {"k": "v", "m": "1"}})
    world.update("golden", {"data": {"l": "1", "m": "1"}})
    assert world.owned() == {"golden Update": {"f:data": {".": {}, "f:l": {}, "f:m": {}}}}
    world.update("other", {"data": {"l": "2"}})
    assert world.owned() == {"golden Update": {"f:data": {}}, "other Update": {"f:data": {"f:l": {}}}}
    world.update("third", {})
    assert world.entries() == []


def test_an_update_that_changes_nothing_keeps_entries_and_times() -> None:
    world = config_map()
    first = world.update("golden", {"data": {"k": "v"}})
    assert world.update("other", {"data": {"k": "v"}}) == first


def test_only_removing_takes_nothing_and_so_moves_no_time() -> None:
    world = config_map()
    world.update("golden", {"data": {"k": "v"}})
    world.update("golden", {"data": {}})
    assert world.times() == {"golden": 1}
    assert world.owned() == {"golden Update": {"f:data": {}}}


def test_true_is_not_one() -> None:
    world = World()
    world.update("golden", widget(open={"x": 1, "y": {"z": [1]}}))
    world.update("other", widget(open={"x": True, "y": {"z": [True]}}))
    assert world.owned()["other Update"] == {"f:spec": {"f:open": {"f:x": {}, "f:y": {"f:z": {}}}}}


def test_sent_managed_fields_count_unless_they_are_malformed_or_of_a_subresource() -> None:
    world = config_map()
    world.update("golden", {"data": {"k": "v"}})
    kept = world.entries()
    world.update("golden", {"data": {"k": "v"}}, managed=[{"manager": "x", "operation": "Frob"}])
    assert world.entries() == kept
    world.update("golden", {"data": {"k": "v"}}, managed=[{**kept[0], "manager": "renamed"}], subresource="status")
    assert world.entries() == kept
    world.update("golden", {"data": {"k": "v"}}, managed=[{**kept[0], "manager": "renamed"}])
    assert world.owned() == {"renamed Update": {"f:data": {".": {}, "f:k": {}}}}


@pytest.mark.parametrize("reset", [[], [{}]])
def test_managers_can_be_reset_and_then_updates_are_not_tracked(reset: Any) -> None:
    world = config_map()
    world.update("golden", {"data": {"k": "v"}})
    world.update("golden", {"data": {"k": "w"}}, managed=reset)
    assert world.entries() == []
    world.update("golden", {"data": {"k": "x"}})
    assert world.entries() == []


def test_a_request_owns_only_what_it_can_write() -> None:
    world = World()
    world.update("golden", {"spec": {"n": 1}, "status": {"s": 1}}, reset=ResetFields(drop=(("status",),)))
    assert world.owned() == {"golden Update": {"f:spec": {".": {}, "f:n": {}}}}
    world.update("golden", {"spec": {"n": 2}, "status": {"s": 2}}, subresource="status",
                 reset=ResetFields(keep=("status",)))
    assert world.owned() == {"golden Update": {"f:spec": {".": {}, "f:n": {}}},
                             "golden Update status": {"f:status": {"f:s": {}}}}


def test_versions_are_entries_of_their_own_and_go_with_their_version() -> None:
    world = World(versions={"example.com/v1": WIDGET, "example.com/v2": WIDGET})
    world.update("golden", widget(n=1))
    world.api_version = "example.com/v2"
    world.update("golden", widget(n=1, o={"a": "1"}))
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in world.entries()] == [
        ("example.com/v1", {"f:spec": {".": {}, "f:n": {}}}),
        ("example.com/v2", {"f:spec": {"f:o": {".": {}, "f:a": {}}}})]
    world.versions = {"example.com/v2": WIDGET}
    world.update("golden", widget(n=2, o={"a": "1"}))
    assert [entry["apiVersion"] for entry in world.entries()] == ["example.com/v2"]


def test_a_list_that_became_atomic_is_owned_as_a_whole() -> None:
    world = World()
    world.update("golden", widget(set=["x"], n=1))
    world.schema = from_openapi({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "set": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}}}}})
    world.update("other", widget(set=["x"], n=2))
    assert world.owned()["golden Update"] == {"f:spec": {".": {}, "f:set": {}}}


def test_the_oldest_updaters_are_joined_beyond_ten() -> None:
    world = config_map()
    data: dict[str, str] = {}
    for number in range(12):
        data = {**data, f"k{number:02}": "v"}
        world.update(f"m{number:02}", {"data": data})
    managers = [entry["manager"] for entry in world.entries()]
    assert managers == ["ancient-changes", *(f"m{number:02}" for number in range(3, 12))]
    assert world.owned()["ancient-changes Update"] == {"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}}
    assert world.times()["ancient-changes"] == 3


def test_repeated_items_of_a_set_are_one_path() -> None:
    world = World()
    world.update("golden", widget(set=["x", "x"], map=[{"name": "a", "v": "1"}, {"name": "a", "v": "2"}]))
    assert world.owned()["golden Update"]["f:spec"]["f:map"] == {".": {}, 'k:{"name":"a"}': {}}
    world.update("other", widget(set=["x"], map=[{"name": "a", "v": "2"}]))
    assert world.owned()["other Update"] == {"f:spec": {"f:map": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:v": {}}},
                                                        "f:set": {'v:"x"': {}}}}


def test_an_empty_value_in_the_place_of_null_is_a_change_of_the_leaf() -> None:
    world = World()
    world.update("golden", widget(m=None))
    world.update("other", widget(m={}))
    assert world.owned()["other Update"] == {"f:spec": {"f:m": {}}}
    world.update("third", widget(m={"a": "1"}))
    assert world.owned()["third Update"] == {"f:spec": {"f:m": {"f:a": {}}}}


def test_a_scalar_in_the_place_of_a_map_without_schema() -> None:
    world = World()
    world.update("golden", widget(open={"x": {"a": 1}}))
    world.update("other", widget(open={"x": 5}))
    assert world.owned() == {"golden Update": {"f:spec": {".": {}, "f:open": {}}},
                             "other Update": {"f:spec": {"f:open": {"f:x": {}}}}}
    world.update("third", widget(open={"x": {"b": 1}}))
    assert world.owned()["third Update"] == {"f:spec": {"f:open": {"f:x": {".": {}, "f:b": {}}}}}
