"""Writing back: what a view does not declare is never lost, and what was changed arrives."""
from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import WriteBackError
from kubectl_runtime.core.codec.writeback import merge
from tests.core.examples import Container, Endpoint, Port, Strategy, WidgetStatus, metadata, widget

KEYS = st.sampled_from("abcdef")
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xyz", max_size=2)
MAPS = st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(SCALARS, max_size=3),
                    max_leaves=12).flatmap(lambda value: st.dictionaries(KEYS, st.just(value) | SCALARS, max_size=4))


@st.composite
def shown(draw: st.DrawFn, received: Any) -> Any:
    """A part of `received`: the keys that some view declares."""
    if not isinstance(received, dict):
        return copy.deepcopy(received)
    return {key: draw(shown(value)) for key, value in received.items() if draw(st.booleans())}


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """What a reader may make of a view."""
    if not isinstance(value, dict) or draw(st.integers(0, 5)) == 0:
        return draw(st.just(value) | SCALARS)
    kept = {key: draw(changed(item)) for key, item in value.items() if draw(st.integers(0, 4))}
    return kept | draw(st.dictionaries(st.sampled_from("uvw"), SCALARS, max_size=2))


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict):
        return {place: leaf for key, item in value.items() for place, leaf in leaves(item, (*path, key)).items()}
    return {path: value}


def is_hidden(path: tuple[str, ...], view: Any) -> bool:
    """Whether the view lacks some key on the way to `path`."""
    for key in path:
        if not isinstance(view, dict) or key not in view:
            return True
        view = view[key]
    return False


def still_a_map(path: tuple[str, ...], base: Any, now: Any) -> bool:
    """Whether the reader left the maps on the way to `path`, as far as he saw them, maps."""
    for key in path:
        if not isinstance(base, dict) or key not in base:
            return isinstance(now, dict) or not isinstance(base, dict)
        if not isinstance(now, dict) or key not in now:
            return False
        base, now = base[key], now[key]
    return True


@given(MAPS)
def test_an_unchanged_view_changes_nothing(received: Any) -> None:
    assert merge(received, received, copy.deepcopy(received)) is received


@given(st.data(), MAPS)
def test_nothing_that_a_view_does_not_show_is_lost(data: st.DataObject, received: Any) -> None:
    base = data.draw(shown(received))
    now = data.draw(changed(base))
    before = copy.deepcopy((received, base, now))
    result = merge(received, base, now)
    assert (received, base, now) == before, "the arguments must stay as they are"
    kept = leaves(result)
    for path, leaf in leaves(received).items():
        if path and is_hidden(path, base) and still_a_map(path, base, now):
            assert kept.get(path, "lost") == leaf, path


@given(st.data(), MAPS)
def test_every_change_arrives(data: st.DataObject, received: Any) -> None:
    base = data.draw(shown(received))
    now = data.draw(changed(base))
    result = merge(received, base, now)
    for path, leaf in leaves(now).items():
        if leaf != {}:
            assert leaves(result).get(path, "missing") == leaf, path
    for path in leaves(base):
        if path and is_hidden(path, now) and still_a_map(path[:-1], base, now):
            assert path not in leaves(result), path


@given(st.data(), MAPS)
def test_a_view_that_shows_all_is_what_is_sent(data: st.DataObject, received: Any) -> None:
    now = data.draw(changed(received))
    assert merge(received, copy.deepcopy(received), now) == now


@given(st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 3)), unique_by=lambda item: item[0], max_size=5),
       st.permutations(list("abcdefg")), st.integers(0, 7))
def test_keyed_lists_keep_the_hidden_fields_of_every_item_that_stays(
        items: list[tuple[str, int, int]], order: list[str], count: int) -> None:
    received = [{"name": name, "image": str(image), "hidden": hidden} for name, image, hidden in items]
    obj = widget(spec={"containers": received})
    wanted = order[:count]
    held = {container.name: container for container in obj.spec.containers}
    obj.spec.containers = [held.get(name) or Container(name, "new") for name in wanted]
    sent = obj.to_dict()["spec"].get("containers", [])
    assert [item["name"] for item in sent] == wanted
    hidden = {item["name"]: item["hidden"] for item in received}
    assert all(item.get("hidden") == hidden.get(item["name"]) for item in sent)


def test_undeclared_fields_defaults_and_forms_of_dates_are_left_alone() -> None:
    spec = {"minReadySeconds": 1, "paused": True, "strategy": {"type": "Recreate", "unknown": {"deep": [1]}}}
    obj = widget(spec=spec, metadata=metadata(creationTimestamp="2026-01-01T00:00:00.000000+00:00", unknown=1))
    obj.spec.min_ready_seconds = 2
    obj.metadata.labels = {"a": "b"}
    content = obj.to_dict()
    assert content["spec"] == {**spec, "minReadySeconds": 2}
    assert content["metadata"] == {**metadata(creationTimestamp="2026-01-01T00:00:00.000000+00:00", unknown=1),
                                   "labels": {"a": "b"}}


def test_a_read_only_visit_sends_what_was_received() -> None:
    obj = widget(spec={"replicas": None, "strategy": None, "x": 1.0}, status={"readyReplicas": 1, "conditions": []})
    before = obj.to_dict()
    assert obj.spec.replicas == 1
    assert obj.status is not None
    _ = obj.metadata, obj["spec"]
    assert obj.to_dict() == before


def test_a_default_that_is_changed_is_sent_alone() -> None:
    obj = widget(spec={"x": 1})
    obj.spec.strategy.max_surge = "25%"
    assert obj.to_dict()["spec"] == {"x": 1, "strategy": {"maxSurge": "25%"}}


def test_a_replaced_part_keeps_what_it_did_not_show() -> None:
    obj = widget(spec={"strategy": {"type": "Recreate", "hidden": 1}})
    obj.spec.strategy = Strategy(type="RollingUpdate")
    assert obj.to_dict()["spec"]["strategy"] == {"type": "RollingUpdate", "hidden": 1}


def test_none_removes() -> None:
    obj = widget(status={"readyReplicas": 1, "podIP": "10.0.0.1", "hidden": 1})
    assert obj.status is not None
    obj.status.pod_ip = None
    assert obj.to_dict()["status"] == {"readyReplicas": 1, "hidden": 1}
    obj.status = None
    assert "status" not in obj.to_dict()


def test_a_status_is_added_under_wire_keys() -> None:
    obj = widget()
    obj.status = WidgetStatus(ready_replicas=2, end_points=[Endpoint("1.1.1.1")])
    assert obj.to_dict()["status"] == {"readyReplicas": 2, "endPoints": [{"ipAddress": "1.1.1.1", "portNumber": 80}],
                                       "byZone": {}}


def test_lists_of_scalars_may_change_their_length() -> None:
    obj = widget(spec={"args": ["a", "b"]}, metadata=metadata(finalizers=["x"]))
    obj.spec.args.append("c")
    obj.metadata.finalizers = ["x", "y"]
    content = obj.to_dict()
    assert (content["spec"]["args"], content["metadata"]["finalizers"]) == (["a", "b", "c"], ["x", "y"])


def test_a_list_without_keys_merges_by_position_while_its_length_stays() -> None:
    obj = widget(spec={"unkeyed": [{"name": "a", "hidden": 1}, {"name": "b", "hidden": 2}]})
    obj.spec.unkeyed[1].image = "new"
    assert obj.to_dict()["spec"]["unkeyed"] == [{"name": "a", "hidden": 1}, {"name": "b", "hidden": 2, "image": "new"}]


def test_an_item_that_is_added_to_a_list_without_keys_leaves_the_others_alone() -> None:
    obj = widget(spec={"unkeyed": [{"name": "a", "hidden": 1}]})
    obj.spec.unkeyed.insert(0, Container("b"))
    assert obj.to_dict()["spec"]["unkeyed"] == [{"name": "b", "image": "", "ports": []}, {"name": "a", "hidden": 1}]


def test_items_that_were_made_anew_are_refused_where_something_would_be_lost() -> None:
    obj = widget(spec={"unkeyed": [{"name": "a", "hidden": 1}]})
    obj.spec.unkeyed = [Container(container.name, "new") for container in obj.spec.unkeyed]
    with pytest.raises(WriteBackError, match="MapKeys") as caught:
        obj.to_dict()
    assert caught.value.path == "$.spec.unkeyed"


def test_a_list_without_keys_that_shows_all_may_change_its_length() -> None:
    obj = widget(spec={"unkeyed": [{"name": "a", "image": "i", "ports": []}]})
    obj.spec.unkeyed.append(Container("b", ports=[Port(80)]))
    assert len(obj.to_dict()["spec"]["unkeyed"]) == 2


def test_items_with_equal_keys_cannot_be_merged() -> None:
    obj = widget(spec={"containers": [{"name": "a", "hidden": 1}]})
    obj.spec.containers.append(Container("a"))
    with pytest.raises(WriteBackError, match="two items have the same name"):
        obj.to_dict()


def test_both_forms_are_sent_and_items_win() -> None:
    obj = widget(spec={"replicas": 1, "minReadySeconds": 1, "hidden": {"x": 1}})
    obj.spec.replicas = 2
    obj.spec.min_ready_seconds = 2
    obj["spec"]["minReadySeconds"] = 3
    obj["spec"]["hidden"]["y"] = 2
    obj["added"] = [1]
    content = obj.to_dict()
    assert content["spec"] == {"replicas": 2, "minReadySeconds": 3, "hidden": {"x": 1, "y": 2}}
    assert content["added"] == [1]


def test_true_and_one_are_different_changes() -> None:
    assert merge({"a": 1}, {"a": 1}, {"a": True})["a"] is True


@pytest.mark.parametrize(("before", "after", "sent"), [
    ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, True), ({"a": [0]}, {"a": [False]}, True), ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1, "b": {}}, {"b": {}, "a": 1}, False), ({"a": [None]}, {"a": [None]}, False), ({}, [], True)])
def test_what_is_equal_for_python_alone_was_changed_at_any_depth(before: Any, after: Any, sent: bool) -> None:
    """The API server tells true from 1. The order of keys is no change."""
    received = {"field": before, "hidden": 1}
    result = merge(received, {"field": before}, {"field": after})
    assert (result is not received) == sent
    assert repr(result["field"]) == repr(after if sent else before)
