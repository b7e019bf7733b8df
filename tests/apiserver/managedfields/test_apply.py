"""Server-side apply: merging, removal by omission, sharing, conflicts."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.managedfields import ResetFields
from kubectl_runtime.apiserver.managedfields.fieldset import all_paths, difference
from kubectl_runtime.apiserver.managedfields.manager import LAST_APPLIED
from kubectl_runtime.apiserver.schemas import builtin
from tests.apiserver.managedfields.ownership import WIDGET, World, config_map, widget


def data(**entries: str) -> dict[str, Any]:
    return {"data": entries}


def conflict(world: World, manager: str, content: dict[str, Any]) -> StatusError:
    """The conflict of an apply, which leaves everything as it was."""
    before = copy.deepcopy(world.obj)
    with pytest.raises(StatusError) as error:
        world.apply(manager, content)
    assert (error.value.code, error.value.reason) == (409, "Conflict")
    assert world.obj == before
    return error.value


def test_the_first_apply_creates_and_owns_leaves_but_not_structs() -> None:
    world = World()
    world.apply("alpha", widget(o={"a": "1"}, m={"x": "1"}, open={"m": {"a": 1}, "l": [1]}, map=[{"name": "x"}]))
    assert world.owned() == {"alpha Apply": {"f:spec": {
        "f:o": {"f:a": {}}, "f:m": {"f:x": {}}, "f:open": {"f:m": {".": {}, "f:a": {}}, "f:l": {}},
        "f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}}}}}}
    assert world.obj is not None
    assert (world.obj["apiVersion"], world.obj["kind"]) == ("example.com/v1", "Widget")


def test_the_same_again_changes_nothing_not_even_the_time() -> None:
    world = config_map()
    first = world.apply("alpha", data(k="v"))
    assert world.apply("alpha", data(k="v")) == first
    world.apply("alpha", data(k="w"))
    assert world.times() == {"alpha": 3}


def test_what_is_no_longer_applied_goes_unless_somebody_else_owns_it() -> None:
    world = config_map()
    world.apply("alpha", {**data(k="v", l="1"), "metadata": {"labels": {"x": "y"}}})
    world.apply("beta", data(k="v"))
    world.apply("alpha", data(l="1"))
    assert (world.obj or {})["metadata"].get("labels") is None
    assert world.content() == data(k="v", l="1")
    world.apply("beta", {})
    assert world.content() == data(l="1")
    world.apply("alpha", {})
    assert world.content() == {}
    assert world.entries() == []


def test_an_equal_value_is_shared_and_then_a_change_conflicts_for_either() -> None:
    world = config_map()
    world.apply("alpha", data(k="v"))
    world.apply("beta", data(k="v"))
    assert world.owned() == {"alpha Apply": {"f:data": {"f:k": {}}}, "beta Apply": {"f:data": {"f:k": {}}}}
    assert world.times() == {"alpha": 1, "beta": None}
    error = conflict(world, "alpha", data(k="w"))
    assert error.message == 'Apply failed with 1 conflict: conflict with "beta": .data.k'
    assert error.to_status()["details"] == {"causes": [
        {"reason": "FieldManagerConflict", "message": 'conflict with "beta"', "field": ".data.k"}]}
    world.apply("alpha", {})
    world.apply("beta", data(k="w"))
    assert world.content() == data(k="w")


def test_several_conflicts_are_listed_by_manager() -> None:
    world = config_map()
    world.apply("zeta", data(k="v", l="1"))
    world.update("other", {**data(k="v", l="1", m="1")})
    error = conflict(world, "beta", data(k="w", l="2", m="2"))
    assert error.message == ('Apply failed with 3 conflicts: conflicts with "other" using v1:\n- .data.m\n'
                             'conflicts with "zeta":\n- .data.k\n- .data.l')
    assert [cause.field for cause in error.causes] == [".data.m", ".data.k", ".data.l"]


@pytest.mark.parametrize(("first", "second", "fields"), [
    ({"metadata": {"labels": {"l": "1"}}, "spec": {"n": 1}, "status": {"s": 1}},
     {"metadata": {"labels": {"l": "2"}}, "spec": {"n": 2}, "status": {"s": 2}},
     [".metadata.labels.l", ".spec.n", ".status.s"]),
    (widget(map=[{"name": "a", "v": "1"}], n=1, plain=["a"], o={"a": "1"}),
     widget(map=[{"name": "a", "v": "2"}], n=2, plain=["b"], o={"a": "2"}),
     [".spec.n", ".spec.plain", '.spec.map[name="a"].v', ".spec.o.a"]),
    (widget(atomic={"a": "1"}, m={"z": "1"}, open={"b": {"c": 1}, "d": 1}),
     widget(atomic={"a": "2"}, m={"z": "2"}, open={"b": {"c": 2}, "d": 2}),
     [".spec.atomic", ".spec.m.z", ".spec.open.d", ".spec.open.b.c"]),
])
def test_conflicts_at_each_level_come_before_what_lies_deeper(
        first: dict[str, Any], second: dict[str, Any], fields: list[str]) -> None:
    world = World()
    world.apply("alpha", first)
    error = conflict(world, "beta", second)
    assert [cause.field for cause in error.causes] == fields
    assert error.message.splitlines()[1:] == [f"- {field}" for field in fields]


def test_force_takes_the_field_over() -> None:
    world = config_map()
    world.apply("alpha", data(k="v", l="1"))
    world.apply("beta", data(k="w"), force=True)
    assert world.owned() == {"alpha Apply": {"f:data": {"f:l": {}}}, "beta Apply": {"f:data": {"f:k": {}}}}
    world.apply("beta", data(k="w", l="2"), force=True)
    assert world.owned() == {"beta Apply": {"f:data": {"f:k": {}, "f:l": {}}}}


def test_an_update_takes_over_and_the_old_value_conflicts_with_it() -> None:
    world = config_map()
    world.apply("alpha", data(k="v"))
    world.update("tool", data(k="w"))
    assert world.owned() == {"tool Update": {"f:data": {"f:k": {}}}}
    error = conflict(world, "alpha", data(k="v"))
    assert error.causes[0].message == 'conflict with "tool" using v1'
    world.apply("alpha", data(k="w"))
    assert world.times() == {"alpha": None, "tool": 2}


def test_a_conflict_names_the_subresource() -> None:
    world = World()
    world.update("tool", widget(n=1))
    world.update("tool", {**widget(n=1), "status": {"ready": True}}, subresource="status")
    error = conflict(world, "alpha", {"status": {"ready": False}})
    assert error.causes[0].message == 'conflict with "tool" with subresource "status" using example.com/v1'


def test_lists_are_merged_by_key_in_the_order_of_the_applied_items() -> None:
    world = World()
    world.apply("alpha", widget(map=[{"name": "b", "v": "1"}, {"name": "a", "v": "1"}]))
    world.apply("beta", widget(map=[{"name": "c", "w": "2"}, {"name": "a", "w": "2"}]))
    assert world.content() == widget(map=[{"name": "b", "v": "1"}, {"name": "c", "w": "2"},
                                          {"name": "a", "v": "1", "w": "2"}])
    world.apply("alpha", widget(map=[{"name": "a", "v": "9"}]))
    assert world.content() == widget(map=[{"name": "c", "w": "2"}, {"name": "a", "v": "9", "w": "2"}])


def test_sets_are_merged_and_atomic_values_conflict_as_a_whole() -> None:
    world = World()
    world.apply("alpha", widget(set=["a", "b"], plain=["a"], atomic={"a": "1"}))
    world.apply("beta", widget(set=["c", "a"]))
    assert world.content()["spec"]["set"] == ["c", "a", "b"]
    world.apply("alpha", widget(set=["b"], plain=["a"], atomic={"a": "1"}))
    assert world.content()["spec"]["set"] == ["c", "a", "b"]
    world.apply("beta", {})
    assert world.content()["spec"]["set"] == ["b"]
    assert conflict(world, "beta", widget(plain=["b"])).causes[0].field == ".spec.plain"
    assert conflict(world, "beta", widget(atomic={"b": "2"})).causes[0].field == ".spec.atomic"
    world.apply("beta", widget(atomic={"b": "2"}), force=True)
    assert world.content()["spec"]["atomic"] == {"b": "2"}


def test_an_empty_map_is_owned_and_keeps_what_others_have_in_it() -> None:
    world = World()
    world.apply("alpha", widget(o={"a": "1"}, m={"x": "1"}))
    world.apply("beta", widget(o={"b": "2"}, m={"y": "2"}))
    world.apply("alpha", widget(o={}, m={}))
    assert world.owned()["alpha Apply"] == {"f:spec": {"f:m": {}, "f:o": {}}}
    assert world.content() == widget(o={"b": "2"}, m={"y": "2"})


def test_an_item_goes_with_what_updates_put_into_it_but_not_if_another_applier_has_it() -> None:
    world = World()
    world.apply("alpha", widget(n=1, map=[{"name": "a", "v": "1"}, {"name": "b", "v": "1"}]))
    world.update("tool", widget(n=1, map=[{"name": "a", "v": "1", "w": "2"}, {"name": "b", "v": "1"}]))
    world.apply("beta", widget(map=[{"name": "b", "w": "2"}]))
    world.apply("alpha", widget(n=1))
    assert world.content() == widget(n=1, map=[{"name": "b", "w": "2"}])
    assert world.owned().keys() == {"alpha Apply", "beta Apply"}


def test_an_object_without_managers_belongs_to_nobody_known_until_the_first_apply() -> None:
    world = config_map()
    world.update("golden", data(k="v"))
    world.update("golden", data(k="v"), managed=[{}])
    world.apply("alpha", data(l="1"))
    assert world.owned() == {"alpha Apply": {"f:data": {"f:l": {}}},
                             "before-first-apply Update": {"f:data": {".": {}, "f:k": {}}}}
    assert world.content() == data(k="v", l="1")


def test_status_is_an_entry_of_its_own_and_the_spec_in_it_is_nobodys() -> None:
    world = World()
    world.apply("alpha", widget(n=1), reset=ResetFields(drop=(("status",),)))
    world.apply("alpha", {**widget(n=9), "status": {"ready": True}}, subresource="status",
                reset=ResetFields(keep=("status",)))
    assert world.owned() == {"alpha Apply": {"f:spec": {"f:n": {}}},
                             "alpha Apply status": {"f:status": {"f:ready": {}}}}


def test_an_applier_has_one_entry_whatever_version_it_used() -> None:
    world = World(versions={"example.com/v1": WIDGET, "example.com/v2": WIDGET})
    world.apply("alpha", widget(n=1, o={"a": "1"}))
    world.api_version = "example.com/v2"
    world.apply("alpha", widget(n=1))
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in world.entries()] == [
        ("example.com/v2", {"f:spec": {"f:n": {}}})]
    assert world.content()["spec"].get("o") is None


@pytest.mark.parametrize(("content", "message"), [
    ({"bogus": 1}, ".bogus: field not declared in schema"),
    (widget(nope=1), ".spec.nope: field not declared in schema"),
    (widget(plain="x"), ".spec.plain: expected list, got &{x}"),
    (widget(o="x"), ".spec.o: expected map, got &{x}"),
    (widget(o={"a": 1}), ".spec.o.a: expected string, got &value.valueUnstructured{Value:1}"),
    (widget(o={"a": ["b"]}), '.spec.o.a: expected string, got &value.valueUnstructured{Value:[]interface {}{"b"}}'),
    (widget(n="x"), ".spec.n: expected numeric (int or float), got string"),
    (widget(map=[{"name": "x"}, {"name": "x"}]), '.spec.map: duplicate entries for key [name="x"]'),
    (widget(set=["x", "x"]), '.spec.set: duplicate entries for key [="x"]'),
    (widget(set=[{}]), ".spec.set: element 0: associative list without keys has an element that's a map type"),
    (widget(map=[{"v": "1"}]), '.spec.map: element 0: associative list with keys has an element that omits all key '
     'fields ["name"] (and doesn\'t have default values for any key fields)'),
    (widget(map=[{"name": "a", "v": 1}]), '.spec.map[name="a"].v: expected string, got '
     "&value.valueUnstructured{Value:1}"),
    (widget(o={"a": 1}, n="x"), "errors:\n  .spec.n: expected numeric (int or float), got string\n  .spec.o.a: "
     "expected string, got &value.valueUnstructured{Value:1}"),
])
def test_a_configuration_that_does_not_fit_is_500_without_a_reason(content: dict[str, Any], message: str) -> None:
    with pytest.raises(StatusError) as error:
        World().apply("alpha", content)
    assert (error.value.code, error.value.reason) == (500, "")
    assert error.value.message == f"failed to create typed patch object (/a; example.com/v1, Kind=Widget): {message}"


def test_managed_fields_in_a_configuration_are_refused_but_null_is_fine() -> None:
    for sent in ([], [{}]):
        with pytest.raises(StatusError, match=r"metadata\.managedFields must be nil") as error:
            config_map().apply("alpha", {"metadata": {"managedFields": sent}})
        assert error.value.code == 400
    assert "managedFields" not in config_map().apply("alpha", {"metadata": {"managedFields": None}})["metadata"]


def test_a_container_port_without_protocol_is_the_tcp_port() -> None:
    pod = World(builtin("", "v1", "Pod"), "v1", "Pod", blank={"metadata": {}, "spec": {"containers": None}})
    pod.update("golden", {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}})
    pod.apply("alpha", {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]}})
    assert pod.content()["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]


def test_kubectl_takes_over_what_its_client_side_apply_set() -> None:
    configuration = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **data(k="v", l="1")}
    annotations = {LAST_APPLIED: json.dumps(configuration)}
    world = config_map()
    world.update("kubectl-client-side-apply", {**data(k="v", l="changed"), "metadata": {"annotations": annotations}})
    assert conflict(world, "other", data(k="w")).causes[0].field == ".data.k"
    assert [cause.field for cause in conflict(world, "kubectl", data(k="w", l="2")).causes] == [".data.l"]
    result = world.apply("kubectl", data(k="w"))
    assert result["data"] == {"k": "w", "l": "changed"}
    assert json.loads(result["metadata"]["annotations"][LAST_APPLIED])["data"] == {"k": "w"}


managers = st.sampled_from(["alpha", "beta", "gamma"])
words = st.sampled_from(["x", "y", "z"])
items = st.fixed_dictionaries({"name": words}, optional={"v": words, "w": words})
# Without empty maps and lists: where one owner left nothing but {}, the real server (and this) finds null or nothing
# the next time, so that neither of the properties below holds for them.
maps = st.dictionaries(words, words, min_size=1, max_size=3)
specs = st.fixed_dictionaries({"n": st.integers(0, 2)}, optional={
    "o": st.fixed_dictionaries({"a": words}, optional={"b": words}), "m": maps,
    "set": st.lists(words, unique=True, min_size=1, max_size=3), "plain": st.lists(words, max_size=2),
    "map": st.lists(items, unique_by=lambda item: item["name"], min_size=1, max_size=3),
    "atomic": st.fixed_dictionaries({"a": words}),
    "open": st.dictionaries(words, maps | words | st.lists(words), min_size=1, max_size=2)})
histories = st.lists(st.tuples(managers, st.booleans(), specs), max_size=6)


def after(history: list[tuple[str, bool, dict[str, Any]]]) -> World:
    """A world after some forced applies and updates."""
    world = World()
    for manager, applies, spec in history:
        if applies:
            world.apply(manager, {"spec": spec}, force=True)
        else:
            world.update(manager, {"spec": copy.deepcopy(spec)})
    return world


@given(histories, managers, specs)
def test_applying_twice_is_applying_once(history: Any, manager: str, spec: dict[str, Any]) -> None:
    world = after(history)
    once = world.apply(manager, {"spec": spec}, force=True)
    before = copy.deepcopy(once)
    assert world.apply(manager, {"spec": spec}) == once == before


@given(specs, managers)
def test_every_owned_path_is_a_path_of_the_object(spec: dict[str, Any], manager: str) -> None:
    world = after([("alpha", True, spec), (manager, False, {**spec, "n": 3}), ("beta", True, {"n": 4})])
    existing = all_paths(world.content(), WIDGET)
    for fields in world.owned().values():
        assert not difference(fields, existing)


@given(histories, managers, specs)
def test_after_an_apply_the_object_has_every_value_of_the_configuration(
        history: Any, manager: str, spec: dict[str, Any]) -> None:
    world = after(history)
    world.apply(manager, {"spec": spec}, force=True)
    found = world.content().get("spec") or {}
    for key in ("o", "m"):
        assert (found.get(key) or {}).items() >= spec.get(key, {}).items()
    for key in ("plain", "atomic"):
        assert key not in spec or found[key] == spec[key]
    assert set(found.get("set") or []) >= set(spec.get("set", []))
    by_name = {item["name"]: item for item in found.get("map") or []}
    assert all(by_name[item["name"]].items() >= item.items() for item in spec.get("map", []))


@given(histories, managers, specs)
def test_an_apply_without_force_takes_nothing_from_appliers(history: Any, manager: str, spec: dict[str, Any]) -> None:
    world = after([("alpha", True, {"n": 0}), *history])
    before = world.owned()
    with contextlib.suppress(StatusError):
        world.apply(manager, {"spec": spec})
    appliers = {title for title in before if title.endswith("Apply")} - {f"{manager} Apply"}
    assert {title: world.owned().get(title) for title in appliers} == {title: before[title] for title in appliers}


@given(specs)
def test_giving_everything_up_leaves_nothing_behind(spec: dict[str, Any]) -> None:
    world = World()
    world.apply("alpha", {"spec": spec})
    world.apply("alpha", {})
    assert world.entries() == []
    assert not any((world.content().get("spec") or {}).values())
