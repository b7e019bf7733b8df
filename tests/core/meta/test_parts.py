"""Parts of objects: wrong names are answered with the right one, wherever they are used."""
from __future__ import annotations

import copy
import pickle
import types
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError, nearest
from kubectl_runtime.core.meta.metav1 import Condition, ObjectMeta, Part
from kubectl_runtime.core.objects.resource import Resource


class Box(Part):
    image_pull_policy: str | None = None
    node_name: str | None = None


class Shelf(Resource, group="demo.example.com", version="v1", kind="Shelf"):
    spec: Box
    binary_data: dict[str, bytes]


@pytest.mark.parametrize("wrong", ["imagePullPolicy", "image_Pull_policy", "ImagePullPolicy", "image_pull_polcy"])
def test_a_part_made_read_or_set_with_a_wrong_name_names_the_right_one(wrong: str) -> None:
    told = rf"Box has no field '{wrong}' \(did you mean 'image_pull_policy'\?\)"
    with pytest.raises(TypeError, match=told):
        Box(**{wrong: "Always"})
    with pytest.raises(AttributeError, match=told):
        getattr(Box(), wrong)
    with pytest.raises(AttributeError, match=told):
        setattr(Box(), wrong, "Always")


def test_a_key_of_the_wire_is_told_from_other_mistakes() -> None:
    with pytest.raises(AttributeError, match="only the keys of plain values are camelCase"):
        _ = Box().nodeName  # type: ignore[attr-defined]
    with pytest.raises(AttributeError) as caught:
        _ = Box().entirely_else  # type: ignore[attr-defined]
    assert str(caught.value) == "Box has no field 'entirely_else'"


def test_frozen_parts_and_metadata_have_hints_too() -> None:
    with pytest.raises(TypeError, match="Condition has no field 'lastTransitionTime'"):
        Condition(lastTransitionTime=None)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="'owner_references'"):
        _ = ObjectMeta().ownerReferences  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="immutable"):
        Condition().type = "Ready"  # type: ignore[misc]


def test_other_mistakes_in_a_constructor_are_told_as_they_are() -> None:
    with pytest.raises(TypeError, match="Box: "):
        Box("Always", node_name="a", image_pull_policy="b")  # type: ignore[misc]


def test_a_part_is_made_by_a_class_statement() -> None:
    with pytest.raises(TypeError, match=r"Made: a part must be made by a class statement \(or types\.new_class\)"):
        msgspec.defstruct("Made", [("name", str, "")], bases=(Part,))
    made: Any = types.new_class("Made", (Part,), {"kw_only": True},
                                lambda namespace: namespace.update(__annotations__={"name": str}, name="a"))
    assert made().name == "a"


def test_parts_are_data() -> None:
    box = Box(node_name="a")
    assert copy.copy(box) == copy.deepcopy(box) == pickle.loads(pickle.dumps(box)) == box
    assert not hasattr(box, "__len__")


def test_wrong_fields_and_keywords_of_a_resource_class_name_the_right_one() -> None:
    arguments: dict[str, Any] = {"binaryData": {}}
    with pytest.raises(RequestError, match=r"no field 'binaryData' \(did you mean 'binary_data'\?\)"):
        Shelf(name="a", **arguments)
    with pytest.raises(AttributeError, match="did you mean 'spec'"):
        _ = Shelf(name="a", spec=Box()).sepc  # type: ignore[attr-defined]
    keywords: Any = {"grup": "demo.example.com"}
    with pytest.raises(TypeError, match=r"class Crate has no keyword grup= \(did you mean 'group'\?\)"):
        type(Resource)("Crate", (Resource,), {}, version="v1", kind="Crate", **keywords)


def test_an_own_view_with_a_name_that_its_base_uses_is_not_taken_for_it() -> None:
    """The annotations of a class are resolved where it was written."""
    from kubectl_runtime.resources.apps_v1 import Deployment, DeploymentSpec

    namespace: dict[str, Any] = {"__module__": __name__}
    mine = type(Deployment)("Mine", (Deployment,), namespace)
    globals()["DeploymentSpec"] = Box
    try:
        obj = mine.from_dict({"metadata": {"name": "a"}, "spec": {"replicas": 2}})
        assert type(obj.spec) is DeploymentSpec
    finally:
        del globals()["DeploymentSpec"]


def test_nothing_is_near_to_a_name_unlike_all() -> None:
    assert nearest("xyz", ["alpha", "beta"]) is None
    assert nearest("alpah", ["beta", "alpha"]) == "alpha"
