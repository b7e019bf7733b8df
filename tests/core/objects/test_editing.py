"""Changing what is not there yet: labels and the like of new and of read objects, and what is said of mistakes."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubectl_runtime import Api, ApiResource, ObjectMeta, WatcherConfig, child_name, watch_store
from kubectl_runtime.core.base.errors import RequestError, UnknownFieldError
from kubectl_runtime.core.meta.metav1 import OwnerReference, Part
from kubectl_runtime.core.objects.partial import DynamicObject
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.objects import dynamic
from kubectl_runtime.resources import ConfigMap, Deployment
from kubectl_runtime.resources.core_v1 import Container
from kubectl_runtime.testing import ApiServer

OWNER = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid="u")
WITHOUT: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
WITH: dict[str, Any] = {**WITHOUT, "metadata": {"name": "a", "labels": {"x": "0", "z": "1"},
                                                "annotations": {"x": "0", "z": "1"}}}
NULL: dict[str, Any] = {**WITHOUT, "metadata": {"name": "a", "labels": None, "annotations": None, "finalizers": None}}
OBJECTS: dict[str, Callable[[], Any]] = {
    "new": lambda: ConfigMap(name="a"), "bare": lambda: ConfigMap.from_dict(WITHOUT),
    "with": lambda: ConfigMap.from_dict(WITH), "null": lambda: ConfigMap.from_dict(NULL),
    "dynamic": lambda: DynamicObject.from_dict(WITH), "meta": lambda: ConfigMap(metadata=ObjectMeta(name="a"))}


@pytest.mark.parametrize("key", ["labels", "annotations"])
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_labels_and_annotations_are_changed_as_a_dict_is(make: Callable[[], Any], key: str) -> None:
    obj = make()
    before = dict(getattr(obj, key))
    getattr(obj, key)["x"] = "y"
    getattr(obj, key).update(a="b")
    assert getattr(obj, key).setdefault("a", "c") == "b"
    assert getattr(obj, key) == {**before, "x": "y", "a": "b"} == getattr(obj.metadata, key)
    assert obj.to_dict()["metadata"][key] == {**before, "x": "y", "a": "b"}
    assert getattr(obj, key).pop("a") == "b"
    del getattr(obj, key)["x"]
    assert "x" not in (obj.to_dict()["metadata"].get(key) or {})
    setattr(obj, key, {"only": "1"})
    assert obj.to_dict()["metadata"][key] == {"only": "1"}


@pytest.mark.parametrize("key", ["labels", "annotations"])
def test_a_map_that_is_held_shows_its_own_change_and_unites(key: str) -> None:
    obj: Any = ConfigMap.from_dict(WITH)
    held = getattr(obj, key)
    held["x"] = "y"
    assert held == {"x": "y", "z": "1"}
    held |= {"w": "2"}
    if key == "labels":
        obj.labels |= {"v": "3"}
    else:
        obj.annotations |= {"v": "3"}
    assert obj.to_dict()["metadata"][key] == {"x": "y", "z": "1", "w": "2", "v": "3"}
    for taken in (copy.copy(held), copy.deepcopy(held), pickle.loads(pickle.dumps(held)), held.copy()):
        assert type(taken) is dict


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_the_collections_of_metadata_are_there_to_be_changed(make: Callable[[], Any]) -> None:
    obj = make()
    obj.metadata.labels["x"] = "y"
    obj.metadata.annotations["x"] = "y"
    obj.metadata.finalizers.append("example.com/a")
    obj.metadata.owner_references.append(OWNER)
    sent = obj.to_dict()["metadata"]
    assert sent["labels"]["x"] == sent["annotations"]["x"] == "y"
    assert sent["finalizers"] == ["example.com/a"]
    assert sent["ownerReferences"] == [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]
    obj.finalizers = [*obj.finalizers, "example.com/b"]
    assert obj.finalizers == ("example.com/a", "example.com/b")


@pytest.mark.parametrize("content", [WITHOUT, WITH, NULL])
def test_reading_what_is_absent_sends_nothing(content: dict[str, Any]) -> None:
    obj = ConfigMap.from_dict(content)
    for part in (obj, obj.metadata):
        assert not (dict(part.labels).get("q"), dict(part.annotations).get("q"), list(part.finalizers))[2]
        assert not part.owner_references
    assert obj.to_dict() == content
    new = ConfigMap(name="a")
    assert new.metadata.labels == {} == new.labels == new.metadata.annotations
    assert new.to_dict() == WITHOUT


def test_the_store_is_never_touched() -> None:
    with ApiServer() as server, server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        api.create(ConfigMap(name="a", labels={"app": "web"}, annotations={"n": "1"}))
        with watch_store(api, WatcherConfig()) as store:
            store.wait_until_ready(10)
            first, second = store.get("a", "default"), store.get("a", "default")
            assert first is not None
            assert second is not None
            first.labels["app"] = "db"
            first.annotations.clear()
            third = store.get("a", "default")
            assert third is not None
            assert second.labels == {"app": "web"} == third.labels
            assert second.annotations == {"n": "1"} == third.annotations
            assert api.replace(first).labels == {"app": "db"}
            assert api.get("a").annotations == {}
            partial: Any = api.with_metadata_only().get("a")
            partial.labels["x"] = "y"
            with pytest.raises(RequestError, match="patch"):
                api.replace(partial)


def test_a_changed_label_is_not_in_the_record_that_readers_share() -> None:
    record = ConfigMap.from_dict({"metadata": {"name": "a", "labels": {"app": "web"}}}).record
    first, second = ConfigMap.from_record(record), ConfigMap.from_record(record)
    held = first.labels
    held["app"] = "db"
    held |= {"tier": "x"}
    first.labels.pop("app")
    assert first.labels == {"tier": "x"} == held == first.metadata.labels
    assert second.labels == {"app": "web"} == record.head.labels == ConfigMap.from_record(record).metadata.labels
    shared: Any = record.head.labels
    with pytest.raises(TypeError):
        shared["app"] = "db"


def test_a_label_that_is_no_text_is_refused_with_its_place() -> None:
    obj: Any = ConfigMap(name="a")
    obj.labels["x"] = 5
    with pytest.raises(RequestError, match=r"metadata\.labels\.x is a number where text"):
        obj.to_dict()
    with pytest.raises(RequestError, match="labels must be texts"):
        obj.labels = {"x": 5}
    with pytest.raises(RequestError, match=r"finalizers=…\): a list of texts"):
        obj.finalizers = "example.com/a"


def test_kind_and_api_version() -> None:
    widget = dynamic(ApiResource("example.com", "v1", "Widget", "widgets"))(name="a")
    assert [(obj.kind, obj.api_version) for obj in (ConfigMap(name="a"), Deployment(name="a"), widget)] == [
        ("ConfigMap", "v1"), ("Deployment", "apps/v1"), ("Widget", "example.com/v1")]
    with pytest.raises(AttributeError, match="kind of a ConfigMap is read-only"):
        ConfigMap(name="a").kind = "Secret"  # type: ignore[misc]


def test_an_object_without_a_class_says_its_kind_itself() -> None:
    obj = DynamicObject.from_dict({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
                                   "spec": {"size": 3}})
    assert (obj.spec["size"], obj.kind, obj.ref.resource.plural) == (3, "Widget", "widgets")
    assert type(obj) is DynamicObject.of(obj.api_resource)
    assert DynamicObject.from_bytes(b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}').api_version == "v1"
    for content in ({}, {"kind": "Widget"}, {"apiVersion": 1, "kind": "x"}):
        with pytest.raises(RequestError, match="does not name its kind"):
            DynamicObject.from_dict(content)


class Size(msgspec.Struct):
    size: int = 1


class Box(CustomResource, group="example.com", version="v1", kind="Box"):
    spec: Size
    status: Size | None = None

    @property
    def doubled(self) -> int:
        return self.spec.sise * 2  # type: ignore[attr-defined, no-any-return]


class Boxed(Part):
    size: int = 1

    @property
    def doubled(self) -> int:
        return self.sise * 2  # type: ignore[attr-defined, no-any-return]


class Anything(DynamicObject):
    @property
    def doubled(self) -> Any:
        return self.spec.sise


def test_an_error_within_a_property_is_shown() -> None:
    with pytest.raises(AttributeError, match="'Size' object has no attribute 'sise'"):
        _ = Box(name="a", spec=Size()).doubled
    with pytest.raises(AttributeError, match=r"Boxed has no field 'sise' \(did you mean 'size'"):
        _ = Boxed().doubled
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'sise'"):
        _ = Anything.from_dict({"apiVersion": "a/v1", "kind": "B", "metadata": {}, "spec": {}}).doubled


def test_a_misspelt_attribute_is_answered_with_the_right_one() -> None:
    obj: Any = Box(name="a", spec=Size())
    for name, meant in (("sepc", "spec"), ("lables", "labels"), ("annotation", "annotations")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}' \(did you mean '{meant}'"):
            setattr(obj, name, 1)
        with pytest.raises(AttributeError, match=rf"no attribute '{name}' \(did you mean '{meant}'"):
            getattr(obj, name)
    read: Any = Box.from_dict(obj.to_dict())
    with pytest.raises(AttributeError, match="did you mean 'status'"):
        read.staus = None


@pytest.mark.parametrize(("make", "meant"), [
    (lambda: ConfigMap(dta={}), "data"), (lambda: Container(imagePullPolicy="x"), "image_pull_policy"),  # type: ignore[call-arg]
    (lambda: ObjectMeta(lables={}), "labels"), (lambda: Box(sepc=Size()), "spec")])  # type: ignore[call-arg]
def test_a_misspelt_keyword_is_one_class_of_error(make: Callable[[], Any], meant: str) -> None:
    with pytest.raises(UnknownFieldError, match=f"did you mean '{meant}'") as caught:
        make()
    assert isinstance(caught.value, RequestError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("metadata", [{"name": "q"}, "q", ConfigMap(name="q"), ObjectMeta])
def test_metadata_that_is_none_is_refused_when_it_is_given(metadata: Any) -> None:
    with pytest.raises(RequestError, match="an ObjectMeta is expected"):
        ConfigMap(metadata=metadata)
    obj = ConfigMap(name="a")
    with pytest.raises(RequestError, match="an ObjectMeta is expected"):
        obj.metadata = metadata


@pytest.mark.parametrize("owner", ["a", None, ConfigMap, {"metadata": {"name": "a"}}])
def test_the_owner_of_a_child_is_an_object(owner: Any) -> None:
    with pytest.raises(RequestError, match="the owner must be an object"):
        child_name(owner, "b")


@pytest.mark.parametrize("suffix", [None, 1, ["a"], ConfigMap(name="b")])
def test_the_suffix_of_a_child_is_a_text(suffix: Any) -> None:
    with pytest.raises(RequestError, match="the suffix must be a string"):
        child_name(ConfigMap(name="a"), suffix)


@pytest.mark.parametrize("version", ["1.0", "V1", "v1.0", "-v1", "v1-", "v_1", "a" * 64, "v1\n"])
def test_a_version_is_named_as_the_api_demands(version: str) -> None:
    with pytest.raises(TypeError, match="is not the name of an API version"):
        type("Odd", (Resource,), {}, group="example.com", version=version, kind="Odd")
