"""What belongs to one holder of an object: nothing that he does to his copy is seen in another one."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import RequestError, dynamic
from kubectl_runtime.resources import ConfigMap


COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))]


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
