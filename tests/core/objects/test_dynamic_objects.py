"""Objects without a class, objects of which only a part is held, and objects that do not decode."""
from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import PartialObjectError, RequestError
from kubectl_runtime.core.codec.jsonbytes import decode_event, decode_object
from kubectl_runtime.core.codec.views import Record, pruned, strip_managed_fields
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.partial import FieldsForm, InvalidObject, PartialObjectMeta, PartialView, dynamic
from kubectl_runtime.core.requests.params import plain_body, whole_body
from tests.core.examples import DEPLOYMENTS, PODS, Widget, encoded, event, metadata


class SpecView(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    priority: int = 0


class PodView(PartialView, frozen=True):
    spec: SpecView = SpecView()


def test_dynamic_gives_the_same_class_for_the_same_resource() -> None:
    assert dynamic(PODS) is dynamic(PODS)
    assert dynamic(PODS) is not dynamic(DEPLOYMENTS)
    assert dynamic(PODS).api_resource == PODS


def test_attributes_of_a_dynamic_object_are_its_keys() -> None:
    obj = dynamic(PODS).from_dict({"metadata": metadata(), "spec": {"nodeName": "n"}, "stringData": {"a": "b"}})
    assert (obj.name, obj.spec, obj.string_data, obj.kind) == ("a", {"nodeName": "n"}, {"a": "b"}, "Pod")
    obj.spec["nodeName"] = "m"
    obj.status = {"phase": "Running"}
    obj.metadata.labels = {"x": "y"}
    content = obj.to_dict()
    assert (content["spec"], content["status"], content["metadata"]["labels"]) == (
        {"nodeName": "m"}, {"phase": "Running"}, {"x": "y"})
    assert "hidden" not in obj
    with pytest.raises(AttributeError, match="no key 'hidden'"):
        _ = obj.hidden


def test_new_dynamic_objects_are_built_by_keyword() -> None:
    obj = dynamic(DEPLOYMENTS)(name="a", namespace="ns", spec={"replicas": 1}, binary_data=[1])
    assert obj.to_dict() == {"apiVersion": "apps/v1", "kind": "Deployment",
                             "metadata": {"name": "a", "namespace": "ns"}, "spec": {"replicas": 1}, "binaryData": [1]}
    assert copy.copy(obj).name == "a"


def test_a_record_of_fields_keeps_the_view_and_drops_the_bytes() -> None:
    form = FieldsForm(PODS, PodView)
    body = {"metadata": metadata(labels={"a": "b"}), "spec": {"nodeName": "n", "big": "x" * 1000}}
    kind, carried = form.decode_event(event("ADDED", body))
    assert kind == "ADDED"
    assert isinstance(carried, Record)
    for record in (carried, form.decode_object(encoded(body))):
        view = PodView.from_record(record)
        assert view is PodView.from_record(record)
        assert (view.name, view.namespace, dict(view.labels), view.spec.node_name) == ("a", "ns", {"a": "b"}, "n")
        assert (record.raw, record.partial, record.resource_version) == (b"", True, "5")
        with pytest.raises(AttributeError):
            view.spec = SpecView()  # type: ignore[misc]


def test_fields_of_pages_nulls_and_bookmarks() -> None:
    form = FieldsForm(PODS, PodView)
    page = encoded({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [
        {"metadata": metadata("a"), "spec": {"nodeName": None, "priority": 3}},
        {"metadata": metadata("b"), "spec": None}]})
    meta, records = form.decode_list(page)
    assert meta.resource_version == "9"
    assert [PodView.from_record(record).spec.priority for record in records] == [3, 0]
    assert form.decode_event(event("BOOKMARK", {"metadata": {"resourceVersion": "7"}})) == \
        decode_event(event("BOOKMARK", {"metadata": {"resourceVersion": "7"}}), PODS)


def test_fields_that_do_not_decode_make_an_invalid_record() -> None:
    record = FieldsForm(PODS, PodView).decode_object(encoded({"metadata": metadata(), "spec": {"priority": "high"}}))
    assert (record.valid, record.name, record.resource_version) == (False, "a", "5")
    with pytest.raises(DecodeError, match=r"\$\.spec\.priority"):
        PodView.from_record(record)


def test_a_fields_view_must_be_a_frozen_partial_view() -> None:
    class Thawed(msgspec.Struct):
        spec: dict[str, Any]

    with pytest.raises(RequestError, match="class Thawed"):
        FieldsForm(PODS, Thawed)  # type: ignore[type-var]


def test_partial_objects_cannot_replace_the_whole() -> None:
    form = FieldsForm(PODS, PodView)
    view = PodView.from_record(form.decode_object(encoded({"metadata": metadata()})))
    meta = PartialObjectMeta.of(PODS).from_dict({"metadata": metadata()})
    pruned = Widget.from_record(Widget.from_dict({"metadata": metadata()}).to_record(partial=True))
    for body, resource in ((view, PODS), (meta, PODS), (pruned, Widget.api_resource)):
        with pytest.raises(PartialObjectError, match="use patch or apply"):
            whole_body(body, resource)
    assert plain_body(meta)["kind"] == "Pod"


def test_partial_metadata_is_of_the_real_kind() -> None:
    raw = encoded({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata()})
    obj = PartialObjectMeta.of(DEPLOYMENTS).from_bytes(raw)
    with pytest.raises(AttributeError, match=r"only the metadata of this \w+ was read.*no 'status'"):
        assert obj.status
    with pytest.raises(AttributeError, match="the attribute is 'resource_version'"):
        assert obj.resourceVersion
    assert (obj.api_resource, str(obj.ref), obj["kind"]) == (DEPLOYMENTS, "Deployment.v1.apps/a.ns", "Deployment")


def test_an_invalid_object_says_what_is_known_and_raises_for_the_rest() -> None:
    obj = InvalidObject(decode_object(encoded({"metadata": metadata(labels=3), "spec": {}}), PODS))
    assert str(obj.ref) == "Pod.v1./a.ns"
    assert (obj.name, obj.namespace, obj.uid, obj.resource_version) == ("a", "ns", "u-1", "5")
    for read in (lambda: obj.labels, lambda: obj.spec, lambda: obj["spec"], lambda: obj.metadata):
        with pytest.raises(DecodeError, match=r"\$\.metadata\.labels"):
            read()
    assert obj.error is not obj.error, "a kept exception would keep its frames"
    assert repr(copy.copy(obj)) == "<invalid Pod.v1./a.ns>"


MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]


@pytest.mark.parametrize("meta", [
    {"name": "a", "managedFields": MANAGED},
    {"name": "a", "managedFields": MANAGED, "uid": "u"},
    {"managedFields": MANAGED, "name": "a"},
])
@pytest.mark.parametrize("enveloped", [True, False])
def test_managed_fields_are_cut_out_of_the_bytes(meta: dict[str, Any], enveloped: bool) -> None:
    body = {"metadata": meta, "spec": {"x": [1, "f:managedFields"]}}
    raw = msgspec.json.encode({"type": "ADDED", "object": body} if enveloped else body)
    record = decode_event(raw, PODS)[1] if enveloped else decode_object(raw, PODS)
    assert isinstance(record, Record)
    stripped = strip_managed_fields(record)
    assert not stripped.partial
    left = msgspec.json.decode(stripped.raw)
    expected = {**body, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
    assert (left["object"] if enveloped else left) == expected
    assert strip_managed_fields(stripped) is stripped


def test_managed_fields_that_are_not_certain_stay() -> None:
    twice = {"metadata": {"name": "a", "managedFields": []}, "spec": {"template": {"metadata": {"managedFields": []}}}}
    spaced = b'{"metadata":{"name":"a","managedFields" : [1]}}'
    for raw in (msgspec.json.encode(twice), spaced):
        record = decode_object(raw, PODS)
        assert strip_managed_fields(record) is record


def widget(**meta: Any) -> Widget:
    return Widget.from_dict({"metadata": {"name": "a", "managedFields": MANAGED, **meta}, "spec": {"size": 1}})


def test_pruning_with_a_function_leaves_what_it_left_and_marks_it_as_partial() -> None:
    record = pruned(widget(), lambda obj: obj["spec"].clear())
    assert record.partial
    assert msgspec.json.decode(record.raw)["spec"] == {}


def test_a_function_that_looks_at_nothing_costs_no_encoding() -> None:
    reader = widget()
    record = pruned(reader, lambda obj: None)
    assert record.partial
    assert record.raw is reader.record.raw  # type: ignore[union-attr]
    assert Widget.from_record(record).to_record() is record


def test_stripping_managed_fields_is_a_pruning_after_which_the_object_may_replace_the_whole() -> None:
    record = pruned(widget(), strip_managed_fields)
    assert b"managedFields" not in record.raw
    assert not record.partial
    changed = widget()
    changed["spec"]["size"] = 2
    record = pruned(changed, strip_managed_fields)
    assert (b"managedFields" in record.raw, msgspec.json.decode(record.raw)["spec"]) == (False, {"size": 2})


def test_an_object_that_did_not_decode_is_not_shown_to_the_function() -> None:
    record = decode_object(b'{"metadata":{"name":"a","labels":7}}', PODS)
    assert pruned(InvalidObject(record), lambda obj: 1 / 0) is record  # type: ignore[arg-type]
