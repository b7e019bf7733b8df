"""Typed classes of kinds that are known only at run time."""
from __future__ import annotations

import copy
import json
import pickle

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.partial import DynamicObject, Object, dynamic
from kubectl_runtime.core.objects.resource import Resource
from tests.core.examples import DEPLOYMENTS, NODES, Strategy, Widget, widget


class Spec(msgspec.Struct, rename="camel"):
    min_ready_seconds: int = 0
    strategy: Strategy = msgspec.field(default_factory=Strategy)


class Status(msgspec.Struct, rename="camel"):
    ready_replicas: int = 0


class Workload(Resource):
    spec: Spec


CONTENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "ns"},
           "spec": {"minReadySeconds": 3, "hidden": 1}, "status": {"readyReplicas": 2}, "more": {"x": 1}}


def test_spec_and_status_are_typed_and_the_rest_stays() -> None:
    obj = Object[Spec, Status].of(DEPLOYMENTS).from_dict(CONTENT)
    assert (obj.spec.min_ready_seconds, obj.status.ready_replicas) == (3, 2)
    assert obj.ref.resource is DEPLOYMENTS
    obj.spec.min_ready_seconds = 4
    assert obj.to_dict() == {**CONTENT, "spec": {"minReadySeconds": 4, "hidden": 1}}


def test_the_same_types_and_kind_give_the_same_class() -> None:
    assert Object[Spec, Status] is Object[Spec, Status]
    assert Object[Spec, Status].of(DEPLOYMENTS) is Object[Spec, Status].of(DEPLOYMENTS)
    assert Object[Spec, Status].of(DEPLOYMENTS) is not Object[Spec, Status].of(NODES)
    assert Object[Spec, Status] is not Object[Status, Spec]
    with pytest.raises(TypeError, match="two types"):
        Object[Spec]  # type: ignore[misc]


def test_half_typed_objects_are_data() -> None:
    obj = Object[Spec, Status].of(DEPLOYMENTS).from_dict(CONTENT)
    obj.spec.min_ready_seconds = 5
    for copied in (copy.deepcopy(obj), pickle.loads(pickle.dumps(obj))):
        assert type(copied) is type(obj)
        assert copied.to_dict() == obj.to_dict()


def test_any_class_without_a_kind_can_be_bound_to_one() -> None:
    bound = Workload.of(DEPLOYMENTS)
    assert bound is Workload.of(DEPLOYMENTS)
    assert bound.from_dict(CONTENT).spec.min_ready_seconds == 3
    assert bound(name="a", spec=Spec(min_ready_seconds=1)).to_dict()["kind"] == "Deployment"
    assert DynamicObject.of(DEPLOYMENTS) is dynamic(DEPLOYMENTS)


def test_a_class_with_a_kind_is_bound_to_other_versions_of_it_only() -> None:
    resource = Widget.api_resource
    assert Widget.of(resource) is Widget
    assert Widget.of(resource.with_version("v2")).api_resource.version == "v2"
    with pytest.raises(RequestError, match=r"cannot be the class of deployments\.apps"):
        Widget.of(DEPLOYMENTS)


def test_a_dynamic_object_is_parsed_with_its_changes() -> None:
    obj = dynamic(DEPLOYMENTS).from_dict(CONTENT)
    obj.spec["minReadySeconds"] = 7
    parsed = obj.try_parse(Workload)
    assert (parsed.spec.min_ready_seconds, parsed.name) == (7, "a")
    obj.spec["minReadySeconds"] = "seven"
    with pytest.raises(DecodeError, match=r"\$\.spec\.minReadySeconds"):
        obj.try_parse(Workload)
    with pytest.raises(RequestError, match="cannot be"):
        obj.try_parse(Widget)


def test_what_was_received_is_parsed_without_being_encoded_again() -> None:
    obj = dynamic(Widget.api_resource).from_record(widget().to_record())
    assert obj.try_parse(Widget).record is obj.record


def test_an_object_names_itself_for_messages_and_references() -> None:
    assert Widget(generate_name="a-", spec=Spec()).name_any == "a-"  # type: ignore[call-arg]
    assert Widget(name="b", generate_name="a-", spec=Spec()).name_any == "b"  # type: ignore[call-arg]
    new = {"metadata": {"generateName": "g-", "labels": None}}
    for kind in (Widget, DynamicObject.of(DEPLOYMENTS)):
        for received in (kind.from_dict(new), kind.from_bytes(json.dumps(new).encode())):
            assert (received.name_any, received.name, received.metadata.generate_name) == ("g-", "", "g-")
            received.metadata.generate_name = "h-"
            assert received.name_any == "h-"
            received.metadata.name = "a"
            assert received.name_any == "a"
    assert Widget.from_dict({"metadata": {"name": "n", "generateName": "g-"}}).name_any == "n"
    assert Widget.from_dict({"metadata": None}).name_any == Widget.from_dict({}).name_any == ""
    assert Widget.from_dict({"metadata": {"generateName": 5}}).name_any == ""
    assert widget().object_ref() == {"apiVersion": "demo.example.com/v1", "kind": "Widget", "name": "a",
                                     "namespace": "ns", "uid": "u-1", "resourceVersion": "5"}
