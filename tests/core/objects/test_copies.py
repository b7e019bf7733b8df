"""What belongs to one holder of an object: nothing that he does to his copy is seen in another one."""
from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import RequestError
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.objects import PartialView, dynamic
from kubectl_runtime.resources import ConfigMap, Pod


class Nothing(PartialView, frozen=True):
    """Metadata alone."""


FORM = FieldsForm(Pod.api_resource, Nothing)
COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))]


def views(**metadata: Any) -> list[Nothing]:
    """Of two objects that say the same of themselves but for their names."""
    raws = [json.dumps({"metadata": {"name": name, **metadata}}).encode() for name in "ab"]
    return [FORM.decode_object(raw).view for raw in raws]


@pytest.mark.parametrize("take", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copy_of_an_object_that_was_made_here_was_made_here(take: Callable[[ConfigMap], ConfigMap]) -> None:
    made = ConfigMap(name="a", data={"k": "v"})
    assert made["data"] == {"k": "v"}
    taken = take(made)
    assert made.record is taken.record is None
    assert taken.to_dict() == made.to_dict()
    assert taken.to_dict(defaults=False) == made.to_dict(defaults=False)


@pytest.mark.parametrize("received", [True, False], ids=["received", "new"])
@pytest.mark.parametrize("defaults", [True, False])
def test_what_an_object_would_send_is_a_new_value_each_time(received: bool, defaults: bool) -> None:
    kind = dynamic(ConfigMap.api_resource)
    content: dict[str, Any] = {"x": {"items": [{"a": 1}], "texts": ["t"]}}
    obj = kind.from_dict({"metadata": {"name": "a"}, **content}) if received else kind(name="a", **content)
    obj["x"]["items"].append({"b": [2]})
    obj["x"]["texts"].append("u")
    obj["y"] = {"c": [{"d": 3}]}
    obj["z"] = ["e"]
    first = obj.to_dict(defaults=defaults)
    said = copy.deepcopy(first)
    assert said == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                    "x": {"items": [{"a": 1}, {"b": [2]}], "texts": ["t", "u"]}, "y": {"c": [{"d": 3}]}, "z": ["e"]}
    for item in first["x"]["items"]:
        item.clear()
    for changed in (first["x"]["items"], first["x"]["texts"], first["y"]["c"][0], first["y"]["c"], first["z"]):
        changed.clear()
    assert obj.to_dict(defaults=defaults) == said


def test_what_stands_within_itself_is_refused_when_it_is_sent() -> None:
    obj = dynamic(ConfigMap.api_resource).from_dict({"metadata": {"name": "a"}})
    within: dict[str, Any] = {}
    obj["x"] = within["x"] = within
    with pytest.raises(RequestError, match="not a JSON value"):
        obj.to_bytes()


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("content", [{}, {"app": "web"}], ids=["empty", "some"])
def test_nobody_can_change_what_views_hold_and_share(part: str, content: dict[str, str]) -> None:
    one, other = views(**{part: content})
    held: Any = getattr(one.metadata, part)
    for change in (lambda: held.update(tier="back"), lambda: held.__setitem__("tier", "back"), held.clear,
                   lambda: held.__ior__({"tier": "back"}), lambda: held.pop("app", None), held.popitem,
                   lambda: held.setdefault("tier"), lambda: held.__delitem__("app")):
        with pytest.raises(TypeError, match=r"change a copy, such as dict\(obj\.labels\)"):
            change()
    assert getattr(one, part) == getattr(other, part) == getattr(views(**{part: content})[0], part) == content


@pytest.mark.parametrize("take", COPIES[1:], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_view_is_ones_own(take: Callable[[Nothing], Nothing]) -> None:
    one, other = views(labels={"app": "web"}, annotations={"note": "n"})
    taken = take(one)
    assert (taken.name, taken.labels, taken.annotations) == ("a", {"app": "web"}, {"note": "n"})
    assert taken.metadata.labels is not None
    taken.metadata.labels["tier"] = "back"
    assert (one.labels, other.labels, one.annotations) == ({"app": "web"}, {"app": "web"}, {"note": "n"})


class Data(PartialView, frozen=True):
    data: dict[str, str] | None = None


def test_objects_and_views_are_equal_only_to_themselves_and_can_stand_in_a_set() -> None:
    raw = b'{"metadata":{"name":"a"},"data":{"k":"v"}}'
    form = FieldsForm(ConfigMap.api_resource, Data)
    objects = [ConfigMap.from_bytes(raw), ConfigMap.from_bytes(raw), form.decode_object(raw).view,
               form.decode_object(raw).view]
    assert len(set(objects)) == len(objects)
    assert [obj == other for obj in objects for other in objects].count(True) == len(objects)
    for obj in objects:
        assert copy.deepcopy(obj) != obj
        assert obj.data == {"k": "v"}
        assert obj in set(objects)
