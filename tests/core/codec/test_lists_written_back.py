"""Writing lists back: in whatever shape they were received and whatever a reader did to them, no field that the view
does not declare is lost, moved or doubled; what cannot be told raises WriteBackError."""
from __future__ import annotations

import copy
import pickle
from typing import Annotated, Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import WriteBackError
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.codec.lineage import RecordLists
from kubectl_runtime.core.meta.metav1 import Part
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources import ClusterRole
from tests.thoroughness import examples


class Inner(Part):
    size: int = 0


class Item(Part):
    name: str = ""
    protocol: str = "TCP"
    size: int = 0
    inner: list[Inner] = msgspec.field(default_factory=list)


class Lists(Part):
    keyed: Annotated[list[Item], MapKeys("name")] = msgspec.field(default_factory=list)
    defaulted: Annotated[list[Item], MapKeys("name", "protocol")] = msgspec.field(default_factory=list)
    unkeyed: list[Item] = msgspec.field(default_factory=list)
    nested: dict[str, list[Item]] = msgspec.field(default_factory=dict)


class Thing(Resource, group="demo.example.com", version="v1", kind="Thing"):
    spec: Lists


KEYS = {"keyed": ("name",), "defaulted": ("name", "protocol"), "unkeyed": None, "nested": None}
SHOWN = ("name", "protocol", "size", "inner")


def thing(which: str, items: list[dict[str, Any]]) -> Thing:
    content = {"x": items} if which == "nested" else items
    return Thing.from_dict({"metadata": {"name": "a"}, "spec": {which: content}})


def held_list(obj: Thing, which: str) -> list[Item]:
    return obj.spec.nested["x"] if which == "nested" else getattr(obj.spec, which)  # type: ignore[no-any-return]


def sent_list(obj: Thing, which: str) -> list[dict[str, Any]]:
    sent = obj.to_dict()["spec"].get(which, {})
    return sent.get("x", []) if which == "nested" else sent or []


def visible(item: Item | dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(item, dict):
        inner = tuple(part.get("size", 0) for part in item.get("inner") or ())
        return item.get("name", ""), item.get("protocol", "TCP"), item.get("size", 0), inner
    return item.name, item.protocol, item.size, tuple(part.size for part in item.inner)


@st.composite
def received_items(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Keys absent, at their default, doubled; each hidden field has a value of its own."""
    items: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, 4))):
        item: dict[str, Any] = {}
        for key, values in (("name", "ab"), ("protocol", ("TCP", "UDP"))):
            if draw(st.booleans()):
                item[key] = draw(st.sampled_from(values))
        if draw(st.booleans()):
            item["size"] = draw(st.integers(0, 1))
        if draw(st.integers(0, 2)):
            item["hidden"] = 100 + index
        if draw(st.booleans()):
            item["inner"] = [{"size": size, **({"deep": 1000 + 10 * index + size} if draw(st.booleans()) else {})}
                             for size in range(draw(st.integers(0, 2)))]
        items.append(item)
    return items


CHANGES = ["reverse", "rotate", "remove", "grow", "rename", "add", "copy", "exchange", "renew", "twice", "rebuild",
           "inner"]


def change(data: st.DataObject, items: list[Item], kind: str) -> None:
    if kind == "reverse":
        items.reverse()
    elif kind == "add":
        items.insert(data.draw(st.integers(0, len(items))), Item(name=data.draw(st.sampled_from("abc")), size=7))
    elif kind == "rebuild":
        items[:] = copy.deepcopy(items)
    elif items:
        at = data.draw(st.integers(0, len(items) - 1))
        if kind == "rotate":
            items.append(items.pop(at))
        elif kind == "remove":
            del items[at]
        elif kind == "grow":
            items[at].size += 10
        elif kind == "rename":
            items[at].name = data.draw(st.sampled_from("abcd"))
        elif kind == "copy":
            items.append(copy.deepcopy(items[at]))
        elif kind == "exchange":
            items[at] = copy.deepcopy(items[at])
        elif kind == "renew":
            items[at] = Item(name=items[at].name, protocol=items[at].protocol, size=99)
        elif kind == "twice":
            items.append(items[at])
        else:
            items[at].inner.append(Inner(size=5))
            items[at].inner.reverse()


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(sorted(KEYS)), received_items(), st.lists(st.sampled_from(CHANGES), max_size=4))
def test_no_hidden_field_is_lost_moved_or_doubled(data: st.DataObject, which: str, received: list[dict[str, Any]],
                                                  changes: list[str]) -> None:
    obj = thing(which, received)
    items = held_list(obj, which) if received else []
    if not received:
        return
    originals = list(items)
    before = [visible(item) for item in originals]
    keys = KEYS[which]

    def key_of(item: Item) -> Any:
        return None if keys is None else tuple(getattr(item, key) for key in keys)

    keys_before = [key_of(item) for item in originals]
    for kind in changes:
        change(data, items, kind)
    try:
        sent = sent_list(obj, which)
    except WriteBackError:
        doubled = keys is not None and len({key_of(item) for item in items}) < len(items)
        assert doubled or any("hidden" in item or any("deep" in part for part in item.get("inner", ()))
                              for item in received), "refused though nothing is hidden"
        return
    assert [visible(item) for item in sent] == [visible(item) for item in items], "what the view says arrives"
    hidden = [item["hidden"] for item in sent if "hidden" in item]
    assert len(hidden) == len(set(hidden)), "doubled"
    places = {id(item): index for index, item in enumerate(originals)}
    unclaimed = []
    for item, wire in zip(items, sent, strict=True):
        place = places.pop(id(item), None)
        if place is not None:
            assert wire.get("hidden") == received[place].get("hidden"), "an object keeps what it hid"
            if visible(item) == before[place]:
                assert wire == received[place], "an unchanged item stays as it was received"
            kept = {part["deep"] for part in wire.get("inner", ()) if "deep" in part}
            assert kept == {part["deep"] for part in received[place].get("inner", ()) if "deep" in part}
        elif "hidden" in wire:
            origin = wire["hidden"] - 100
            same = visible(wire) == before[origin] or (keys is not None and key_of(item) == keys_before[origin])
            assert same, "moved to an item that is not known to be the same"
        else:
            unclaimed.append(item)
    lost = [index for index in places.values() if received[index].get("hidden") not in (None, *hidden)]
    for item in unclaimed:
        if any(visible(item) == before[index] for index in places.values() if index not in lost):
            continue  # it equals one that hid nothing
        assert all(keys is not None and key_of(item) != keys_before[index] for index in lost), (
            "an item without its hidden fields, though they may be its own")


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(sorted(KEYS)), received_items())
def test_a_list_that_is_only_looked_at_stays_as_it_was_received(which: str, received: list[dict[str, Any]]) -> None:
    obj = thing(which, received)
    _ = obj.spec
    assert obj.to_dict()["spec"] == thing(which, received).to_dict()["spec"]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.fixed_dictionaries({which: received_items() for which in ("keyed", "defaulted", "unkeyed")}),
       st.lists(st.tuples(st.sampled_from(("keyed", "defaulted", "unkeyed")),
                          st.sampled_from([*CHANGES, "exchange lists"])), max_size=3))
def test_what_did_not_change_makes_no_difference_to_what_is_sent(
        data: st.DataObject, received: dict[str, Any], changes: list[tuple[str, str]]) -> None:
    obj = Thing.from_dict({"metadata": {"name": "a"}, "spec": received})
    for which, kind in changes:
        if kind == "exchange lists":
            obj.spec.keyed, obj.spec.unkeyed = obj.spec.unkeyed, obj.spec.keyed
        else:
            change(data, getattr(obj.spec, which), kind)

    def sent() -> Any:
        try:
            return obj.to_dict()
        except WriteBackError as error:
            return str(error)

    with patch.object(RecordLists, "are_in_place", lambda *_: False):
        whole = sent()
    assert sent() == whole


class PortView(Part):
    port: int = 0
    protocol: str = "TCP"
    name: str | None = None


class ServiceView(Part):
    ports: Annotated[list[PortView], MapKeys("port", "protocol")] = msgspec.field(default_factory=list)


class PartOfService(Resource, version="v1", kind="Service"):
    spec: ServiceView


def part_of_service(*ports: dict[str, Any]) -> PartOfService:
    return PartOfService.from_dict({"metadata": {"name": "a"}, "spec": {"ports": list(ports)}})


def test_a_key_that_the_wire_left_out_is_the_default_of_the_view() -> None:
    obj = part_of_service({"port": 80, "appProtocol": "h2"})
    obj.spec.ports[0].name = "x"
    assert obj.to_dict()["spec"]["ports"] == [{"port": 80, "appProtocol": "h2", "name": "x"}]


def test_an_item_made_anew_is_told_by_its_key_though_the_wire_left_it_out() -> None:
    obj = part_of_service({"port": 80, "appProtocol": "h2"}, {"port": 81, "nodePort": 30001})
    obj.spec.ports = [PortView(port=81, name="b"), PortView(port=80, name="a")]
    assert obj.to_dict()["spec"]["ports"] == [{"port": 81, "nodePort": 30001, "name": "b"},
                                              {"port": 80, "appProtocol": "h2", "name": "a"}]


def test_items_with_equal_keys_that_were_received_can_be_changed_in_place() -> None:
    obj = part_of_service({"port": 80, "hidden": 1}, {"port": 80, "hidden": 2})
    obj.spec.ports[1].name = "b"
    obj.spec.ports.reverse()
    assert obj.to_dict()["spec"]["ports"] == [{"port": 80, "hidden": 2, "name": "b"}, {"port": 80, "hidden": 1}]


def test_a_renamed_item_keeps_what_it_hid() -> None:
    obj = part_of_service({"port": 80, "hidden": 1})
    obj.spec.ports[0].port = 81
    assert obj.to_dict()["spec"]["ports"] == [{"port": 81, "hidden": 1}]


def role(*rules: dict[str, Any]) -> ClusterRole:
    return ClusterRole.from_dict({"metadata": {"name": "a"}, "rules": list(rules)})


RULES = ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "new": 1},
         {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "new": 2},
         {"verbs": ["watch"], "apiGroups": [""], "resources": ["pods"]})


def test_a_rule_is_taken_out_of_a_list_that_hides_nothing() -> None:
    shown = [{key: value for key, value in rule.items() if key != "new"} for rule in RULES]
    obj = role(*shown)
    obj.rules.pop(0)
    assert obj.to_dict()["rules"] == shown[1:]


def test_rules_that_change_places_take_along_what_they_hide() -> None:
    obj = role(*RULES)
    obj.rules.reverse()
    obj.rules[0].verbs.append("get")
    assert obj.to_dict()["rules"] == [{**RULES[2], "verbs": ["watch", "get"]}, RULES[1], RULES[0]]


def test_a_rule_is_taken_out_and_the_others_keep_what_they_hide() -> None:
    obj = role(*RULES)
    del obj.rules[0]
    assert obj.to_dict()["rules"] == list(RULES[1:])


def test_an_equal_copy_is_taken_for_the_item_that_it_equals() -> None:
    obj = role(*RULES)
    obj.rules = [copy.deepcopy(rule) for rule in reversed(obj.rules)]
    assert obj.to_dict()["rules"] == list(reversed(RULES))


def test_items_stay_known_in_copies_and_in_another_process() -> None:
    obj = role(*RULES)
    obj.rules.reverse()
    for copied in (copy.deepcopy(obj), pickle.loads(pickle.dumps(obj))):
        copied.rules[2].verbs = ["patch"]
        assert copied.to_dict()["rules"][2] == {**RULES[0], "verbs": ["patch"]}


def test_an_object_that_stands_twice_and_hides_something_is_refused() -> None:
    obj = role(*RULES)
    obj.rules.append(obj.rules[0])
    with pytest.raises(WriteBackError, match=r"\$\.rules\[3\].*twice"):
        obj.to_dict()


def test_a_list_that_was_rearranged_in_the_view_is_not_changed_in_the_other_form_too() -> None:
    obj = role(*RULES)
    obj["rules"][0]["verbs"] = ["patch"]
    obj.rules[1].verbs = ["delete"]
    assert [rule["verbs"] for rule in obj.to_dict()["rules"]] == [["patch"], ["delete"], ["watch"]]
    obj.rules.reverse()
    with pytest.raises(WriteBackError, match="both"):
        obj.to_dict()


def test_new_items_are_sent_without_what_their_class_omits() -> None:
    obj = role(RULES[2])
    obj.rules.append(type(obj.rules[0])(verbs=["get"], resources=["pods"]))
    assert obj.to_dict()["rules"] == [RULES[2], {"verbs": ["get"], "resources": ["pods"]}]
