"""Resource objects: lazy, private to their reader, honest about what does not decode."""
from __future__ import annotations

import copy
import enum
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.jsonbytes import decode_event, decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.resource import Resource
from tests.core.examples import (
    PODS,
    Cluster,
    Endpoint,
    Widget,
    WidgetSpec,
    WidgetStatus,
    encoded,
    event,
    metadata,
    widget,
)


def test_a_class_knows_its_kind() -> None:
    resource = Widget.api_resource
    assert (resource.api_version, resource.kind, resource.plural, resource.scope) == (
        "demo.example.com/v1", "Widget", "widgets", Scope.NAMESPACED)
    assert not Cluster.api_resource.namespaced


def test_plural_and_scope_can_be_given() -> None:
    class Odd(Resource, group="g", version="v1", kind="Odd", plural="oddities", scope=Scope.CLUSTER):
        pass

    assert (Odd.api_resource.plural, Odd.api_resource.scope) == ("oddities", Scope.CLUSTER)


def test_a_kind_that_is_given_in_part_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Half: kind= is missing"):
        class Half(Resource, group="g", version="v1"):
            pass


def test_an_attribute_that_every_resource_has_cannot_be_declared_again() -> None:
    with pytest.raises(TypeError, match=r"Bad\.labels"):
        class Bad(Resource, version="v1", kind="Bad"):
            labels: dict[str, str]  # type: ignore[assignment]


def test_a_subclass_inherits_kind_and_attributes() -> None:
    class Better(Widget):
        more: dict[str, Any]

    obj = Better(name="a", spec=WidgetSpec(replicas=2), more={"x": 1})
    assert obj.to_dict()["spec"]["replicas"] == 2
    assert obj.to_dict()["more"] == {"x": 1}
    assert Better.api_resource is Widget.api_resource


def test_metadata_is_read_from_the_head() -> None:
    obj = widget(metadata=metadata(generation=2, labels={"a": "b"}, annotations={"c": "d"}, finalizers=["f"],
                                   creationTimestamp="2026-01-01T00:00:00Z"))
    assert (obj.name, obj.namespace, obj.uid, obj.resource_version, obj.generation) == ("a", "ns", "u-1", "5", 2)
    assert (dict(obj.labels), dict(obj.annotations), obj.finalizers) == ({"a": "b"}, {"c": "d"}, ("f",))
    assert obj.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert obj.deletion_timestamp is None
    assert str(obj.ref) == "Widget.v1.demo.example.com/a.ns"


def test_absent_collections_are_empty() -> None:
    obj = widget(metadata={"name": "a", "labels": None})
    assert (dict(obj.labels), dict(obj.annotations), obj.owner_references, obj.finalizers) == ({}, {}, (), ())


def test_a_bad_time_raises_when_it_is_read() -> None:
    obj = widget(metadata=metadata(deletionTimestamp="yesterday"))
    with pytest.raises(DecodeError, match=r"\$\.metadata\.deletionTimestamp"):
        _ = obj.deletion_timestamp


def test_typed_views_of_structs_and_dataclasses() -> None:
    obj = widget(spec={"replicas": 3, "minReadySeconds": 4, "unknown": 1},
                 status={"readyReplicas": 2, "podIP": "10.0.0.1",
                         "endPoints": [{"ipAddress": "1.1.1.1", "portNumber": 8}],
                         "byZone": {"zone_a": {"ipAddress": "2.2.2.2"}}})
    assert (obj.spec.replicas, obj.spec.min_ready_seconds) == (3, 4)
    assert obj.status == WidgetStatus(2, "10.0.0.1", [Endpoint("1.1.1.1", 8)], {"zone_a": Endpoint("2.2.2.2")})


def test_views_of_watch_lines_and_of_list_items_look_the_same() -> None:
    body = {"metadata": metadata(), "spec": {"replicas": 3}}
    carried = decode_event(event("ADDED", body), Widget.api_resource)[1]
    assert isinstance(carried, Record)
    item = decode_object(encoded(body), Widget.api_resource)
    for obj in (Widget.from_record(carried), Widget.from_record(item)):
        assert obj.spec.replicas == 3
        assert (obj["kind"], obj["apiVersion"]) == ("Widget", "demo.example.com/v1")
        assert obj.to_dict()["kind"] == "Widget"


def test_metadata_answers_keep_the_real_kind() -> None:
    raw = encoded({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata()})
    assert Widget.from_bytes(raw).to_dict()["kind"] == "Widget"


def test_what_a_reader_changes_is_seen_by_nobody_else() -> None:
    record = widget(spec={"replicas": 3}, extraData={"a": {"b": 1}}, metadata=metadata(labels={"x": "y"})).record
    assert record is not None
    first, second = Widget.from_record(record), Widget.from_record(record)
    first.spec.replicas = 9
    first.extra_data["a"]["b"] = 9
    first["spec"]["replicas"] = 8
    assert first.metadata.labels is not None
    first.metadata.labels["x"] = "z"
    third = Widget.from_record(record)
    for obj in (second, third):
        assert (obj.spec.replicas, obj.extra_data, obj["spec"]["replicas"]) == (3, {"a": {"b": 1}}, 3)
        assert (obj.metadata.labels, dict(obj.labels)) == ({"x": "y"}, {"x": "y"})


def test_a_reader_sees_its_own_changes_of_metadata() -> None:
    obj = widget()
    obj.metadata.labels = {"a": "b"}
    assert dict(obj.labels) == {"a": "b"}


def test_absent_keys_give_none_or_an_empty_value_that_can_be_filled() -> None:
    obj = widget()
    assert obj.status is None
    assert obj.spec == WidgetSpec()
    obj.extra_data["k"] = "v"
    assert obj.to_dict()["extraData"] == {"k": "v"}


def test_nulls_below_a_view_count_as_absent() -> None:
    obj = widget(spec={"replicas": None, "containers": None, "strategy": {"type": None}}, status=None)
    assert obj.spec == WidgetSpec()
    assert obj.status is None
    assert obj.to_dict()["spec"] == {"replicas": None, "containers": None, "strategy": {"type": None}}


def test_a_body_that_does_not_decode_raises_on_access_with_ref_and_path() -> None:
    carried = decode_event(event("ADDED", {"metadata": metadata(), "spec": {"replicas": "three"}}),
                           Widget.api_resource)[1]
    assert isinstance(carried, Record)
    obj = Widget.from_record(carried)
    assert obj.name == "a"
    with pytest.raises(DecodeError) as caught:
        _ = obj.spec
    assert caught.value.path == "$.spec.replicas"
    assert caught.value.ref == obj.ref
    assert "three" not in str(caught.value)
    with pytest.raises(DecodeError):
        obj.validate()
    assert obj["spec"] == {"replicas": "three"}


def test_a_required_field_that_is_missing_says_where() -> None:
    obj = widget(spec={"containers": [{"image": "x"}]})
    with pytest.raises(DecodeError) as caught:
        _ = obj.spec
    assert caught.value.path == "$.spec.containers[0]"


@pytest.mark.parametrize("spec", [b"[" * 100_000 + b"]" * 100_000, b'"\xff"', b'{"replicas": \xff}', b'{"a":"\xff"}'])
def test_hostile_content_raises_decode_errors_only(spec: bytes) -> None:
    record = decode_object(b'{"metadata":{"name":"a"},"spec":' + spec + b"}", Widget.api_resource)
    obj = Widget.from_record(record)
    for read in (lambda: obj.spec, lambda: obj["spec"], obj.to_dict):
        try:
            read()
        except DecodeError as error:
            assert error.ref == obj.ref  # noqa: PT017 - not every part of every input is bad


def test_item_access_speaks_the_wires_language() -> None:
    obj = widget(spec={"replicas": 3})
    assert obj["metadata"]["resourceVersion"] == "5"
    assert obj.get("nothing", 7) == 7
    assert "spec" in obj
    assert "status" not in obj
    assert set(obj.to_dict()) == {"apiVersion", "kind", "metadata", "spec"}
    with pytest.raises(KeyError):
        _ = obj["nothing"]


def test_undeclared_attributes_are_errors_that_help() -> None:
    obj = widget(data={"a": 1})
    with pytest.raises(AttributeError, match=r"declare it in the class, or use obj\['data'\]"):
        _ = obj.data  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        obj.data = {}  # type: ignore[attr-defined]


def test_new_objects_are_built_by_keyword() -> None:
    obj = Widget(name="n", namespace="ns", labels={"a": "b"}, annotations={"c": "d"}, finalizers=["f"],
                 owner_references=[OwnerReference(api_version="v1", kind="K", name="o", uid="u")],
                 spec=WidgetSpec(replicas=2), extra_data={"k": 1})
    assert obj.record is None
    content = obj.to_dict()
    assert list(content)[:3] == ["apiVersion", "kind", "metadata"]
    assert content["metadata"] == {
        "name": "n", "namespace": "ns", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u"}]}
    assert content["spec"]["replicas"] == 2
    assert content["extraData"] == {"k": 1}
    assert "status" not in content


def test_a_new_object_takes_a_whole_metadata() -> None:
    obj = Widget(metadata=ObjectMeta(generate_name="w-"))
    assert obj.to_dict()["metadata"] == {"generateName": "w-"}
    assert obj.name == ""


def test_a_new_object_with_an_undeclared_field_is_refused() -> None:
    told = r"no field 'sepc' \(did you mean 'spec'\?\); it declares spec, status, extra_data"
    with pytest.raises(RequestError, match=told):
        Widget(name="a", sepc={})
    with pytest.raises(RequestError, match=r"no field 'nmae' \(did you mean 'name'\?\)"):
        Widget(nmae="a")


def test_both_forms_of_a_new_object_are_sent() -> None:
    obj = Widget(name="n", spec=WidgetSpec(replicas=2))
    obj["spec"]["replicas"] = 3
    obj["other"] = True
    obj.spec.min_ready_seconds = 7
    obj.metadata.labels = {"a": "b"}
    content = obj.to_dict()
    assert (content["spec"]["replicas"], content["spec"]["minReadySeconds"], content["other"]) == (3, 7, True)
    assert content["metadata"]["labels"] == {"a": "b"}
    assert obj.record is None


def test_a_class_without_a_kind_cannot_be_built() -> None:
    class Loose(Resource):
        pass

    with pytest.raises(RequestError, match="bound to no kind"):
        Loose(name="a")


def test_bad_metadata_raises_from_bytes() -> None:
    with pytest.raises(DecodeError, match=r"\$\.metadata\.labels"):
        Widget.from_dict({"metadata": {"name": "a", "labels": "x"}})


def test_repr_is_the_ref_and_equality_is_identity() -> None:
    obj, other = widget(spec={"secret": "hunter2"}), widget(spec={"secret": "hunter2"})
    assert repr(obj) == "<Widget.v1.demo.example.com/a.ns>"
    assert obj != other
    assert len({obj, other}) == 2


def test_objects_can_be_copied() -> None:
    obj = widget(spec={"replicas": 3})
    obj.spec.replicas = 4
    twin = copy.deepcopy(obj)
    twin.spec.replicas = 5
    assert (obj.spec.replicas, twin.spec.replicas, twin.name) == (4, 5, "a")


def test_records_of_changed_objects_are_for_stores() -> None:
    obj = widget(spec={"replicas": 3, "other": 1})
    del obj["spec"]["other"]
    record = obj.to_record(partial=True)
    assert record.partial
    assert Widget.from_record(record)["spec"] == {"replicas": 3}
    assert Widget.from_record(record).to_record().partial


def test_owner_references_carry_what_the_garbage_collector_needs() -> None:
    owner = widget("owner")
    reference = owner.owner_ref()
    assert (reference.api_version, reference.kind, reference.name, reference.uid, reference.controller,
            reference.block_owner_deletion) == ("demo.example.com/v1", "Widget", "owner", "u-1", True, True)
    assert owner.owner_ref(controller=False, block_owner_deletion=False).controller is None


def test_an_object_without_uid_cannot_own() -> None:
    with pytest.raises(RequestError, match="no uid"):
        Widget(name="a").owner_ref()


def test_set_owner_adds_once_and_replaces() -> None:
    child, owner = Widget(name="c", namespace="ns"), widget("owner")
    child.set_owner(owner, controller=False)
    child.set_owner(owner)
    assert [(ref.name, ref.controller) for ref in child.owner_references] == [("owner", True)]


def test_an_owner_in_another_namespace_is_refused_before_any_request() -> None:
    with pytest.raises(RequestError, match="namespace"):
        Widget(name="c", namespace="other").set_owner(widget("owner"))
    with pytest.raises(RequestError, match="cluster-scoped"):
        Cluster(name="c").set_owner(widget("owner"))


def test_a_cluster_scoped_owner_may_own_anything() -> None:
    owner = Cluster.from_dict({"metadata": {"name": "o", "uid": "u"}})
    for child in (Widget(name="c", namespace="ns"), Cluster(name="c")):
        child.set_owner(owner)
        assert child.owner_references[0].name == "o"


def test_an_object_has_one_controller() -> None:
    child = widget("c", metadata=metadata("c", ownerReferences=[
        {"apiVersion": "v1", "kind": "K", "name": "first", "uid": "u-9", "controller": True}]))
    with pytest.raises(RequestError, match="already controlled by K first"):
        child.set_owner(widget("owner"))
    child.set_owner(widget("owner"), controller=False)
    assert len(child.owner_references) == 2


def test_a_type_that_cannot_be_resolved_is_named() -> None:
    class Hidden:
        pass

    class Local(Resource, version="v1", kind="Local"):
        spec: Hidden

    obj = Local.from_record(decode_object(encoded({"metadata": metadata()}), PODS))
    with pytest.raises(TypeError, match="Local: name 'Hidden' is not defined"):
        _ = obj.spec


class Plain(msgspec.Struct):
    """A Struct that renames nothing is written with camelCase keys all the same."""

    some_flag: bool = False
    inner_list: list[Plain] = []


class Outer(msgspec.Struct, rename="camel"):
    by_name: dict[str, Plain] = {}
    maybe: Plain | None = None


class Renamed(Resource, version="v1", kind="Renamed"):
    spec: Outer


def test_structs_without_names_of_their_own_use_camel_case_keys() -> None:
    spec = {"byName": {"snake_key": {"someFlag": True, "innerList": [{"someFlag": True}]}}, "maybe": {"someFlag": True}}
    obj = Renamed.from_dict({"metadata": metadata(), "spec": spec})
    assert obj.spec.by_name["snake_key"].inner_list[0].some_flag
    assert obj.spec.maybe == Plain(some_flag=True)
    obj.spec.by_name["snake_key"].inner_list[0].some_flag = False
    assert obj.to_dict()["spec"]["byName"]["snake_key"]["innerList"] == [{"someFlag": False}]


class Shade(enum.Enum):
    DARK = "dark"


class Name(str):
    __slots__ = ()


def test_enums_and_subclasses_of_text_are_written_as_json() -> None:
    obj = Widget(name="a", extra_data={"shade": Shade.DARK, "name": Name("n"), "at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert obj.to_dict()["extraData"] == {"shade": "dark", "name": "n", "at": "2026-01-01T00:00:00Z"}
    with pytest.raises(RequestError, match="a value of type Hidden cannot be sent as JSON"):
        Widget(name="a", extra_data={"x": type("Hidden", (), {})()}).to_dict()


def test_a_name_as_on_the_wire_is_answered_with_the_attribute() -> None:
    obj = Widget(name="a")
    with pytest.raises(AttributeError,
                       match="no attribute 'resourceVersion': the attribute is 'resource_version'"):
        obj.resourceVersion  # type: ignore[attr-defined]  # noqa: B018 - reading it is the test
    with pytest.raises(AttributeError, match=r"declares no attribute 'sizes'.*obj\['sizes'\]"):
        obj.sizes  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["name", "namespace", "uid", "resource_version",
                                  "generation", "creation_timestamp", "deletion_timestamp"])
def test_what_an_object_says_of_itself_is_changed_in_its_metadata(name: str) -> None:
    obj: Any = Widget(name="a")
    with pytest.raises(AttributeError, match=rf"^{name} of a Widget is read-only: change metadata\.{name}, which"):
        setattr(obj, name, "x")
    setattr(obj.metadata, name, getattr(obj.metadata, name))  # so there is one
    assert obj.name == "a"


def test_what_follows_from_the_metadata_is_read_only() -> None:
    obj: Any = Widget(name="a")
    for name in ("ref", "name_any"):
        with pytest.raises(AttributeError, match=r"follows from metadata\.name"):
            setattr(obj, name, "x")
