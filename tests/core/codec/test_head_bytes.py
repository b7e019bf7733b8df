"""A head that is read from the beginning of an object is the one that all of its bytes say."""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime import ApiResource, DecodeError
from kubectl_runtime.core.codec import jsonbytes
from kubectl_runtime.core.codec.jsonbytes import decode_event, decode_object
from kubectl_runtime.core.codec.views import Head, Record
from kubectl_runtime.resources import Pod
from tests.thoroughness import examples

RESOURCE = Pod.api_resource
LONG = {"long": "x" * jsonbytes.LONG}


def encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def heads(obj: dict[str, Any]) -> tuple[Head, Head]:
    """As an object, and as what an event carries."""
    carried = decode_event(encoded({"type": "ADDED", "object": obj}), RESOURCE)[1]
    assert isinstance(carried, Record)
    return decode_object(encoded(obj), RESOURCE).head, carried.head


texts = st.text(st.sampled_from('a],}"\\:{['), max_size=8) | st.sampled_from(
    ["x]},", ',"managedFields":[', ',"managedFields":[]},"a', ']},"spec":{'])
values: st.SearchStrategy[Any] = st.recursive(
    texts | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6)
entries = st.dictionaries(st.sampled_from(["manager", "fieldsV1", "x"]) | texts, values, max_size=3)
managed = st.fixed_dictionaries({"managedFields": st.lists(entries, max_size=3)})
metadata_parts = [st.fixed_dictionaries({"name": st.just("a")}), st.fixed_dictionaries({"uid": st.just("u")}),
                  st.fixed_dictionaries({"labels": st.dictionaries(texts, texts, max_size=2)}),
                  st.fixed_dictionaries({"finalizers": st.lists(texts, min_size=1, max_size=2)}), managed]


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """Keys in any order, and managedFields anywhere."""
    metadata: dict[str, Any] = {}
    for part in draw(st.permutations(metadata_parts)):
        metadata |= draw(part)
    others = {"spec": draw(managed | st.dictionaries(texts, values, max_size=2)), "status": draw(values), "z": LONG,
              "template": {"metadata": draw(managed), "spec": 1}}
    return {key: metadata if key == "metadata" else others[key]
            for key in draw(st.permutations(["metadata", *others]))}


@settings(max_examples=examples(1000))
@given(objects())
def test_any_order_of_keys_gives_the_same_head(obj: dict[str, Any]) -> None:
    metadata = obj["metadata"]
    for head in heads(obj):
        assert (head.name, head.uid) == ("a", "u")
        assert (head.labels, head.finalizers) == (metadata["labels"], tuple(metadata["finalizers"]))


@pytest.mark.parametrize("entry", [
    {"manager": "m[1]"}, {"manager": ']},"b'}, {"manager": "]},b"}, {"f": {"": []}, "manager": "m"}, {"f": [1]}])
def test_brackets_among_the_managed_fields_hide_nothing(entry: dict[str, Any]) -> None:
    obj = {"metadata": {"name": "a", "managedFields": [entry], "uid": "u", "finalizers": ["f"]}, "z": LONG}
    assert [(head.uid, head.finalizers) for head in heads(obj)] == [("u", ("f",))] * 2


def pod(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", **metadata, "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": LONG, "status": {}}


def test_what_the_api_server_writes_is_read_as_far_as_its_managed_fields() -> None:
    read = jsonbytes.head_of(encoded(pod(labels={"a": "b"})), RESOURCE)
    begun = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}}
    assert json.loads(read) == begun
    line = encoded({"type": "ADDED", "object": pod(labels={"a": "b"})})
    assert json.loads(jsonbytes.head_of(line, RESOURCE, b"}}}")) == {"type": "ADDED", "object": begun}


@pytest.mark.parametrize("change", [
    {"metadata": {"managedFields": [{"a": {}}], "name": "a"}},
    {"metadata": {"name": "a"}},
    {"metadata": {"name": "a", "managedFields": [{"v:": [1]}]}},
])
def test_where_it_is_not_certain_all_is_read(change: dict[str, Any]) -> None:
    raw = encoded({**change, "spec": LONG})
    assert jsonbytes.head_of(raw, RESOURCE) is raw
    assert decode_object(raw, RESOURCE).name == "a"


def test_small_objects_and_custom_resources_are_not_searched() -> None:
    small, large = encoded({**pod(), "spec": {}}), encoded(pod())
    assert jsonbytes.head_of(small, RESOURCE) is small
    assert jsonbytes.head_of(large, ApiResource("example.com", "v1", "Web", "webs")) is large


def test_broken_json_behind_the_head_is_an_error_of_who_reads_it() -> None:
    raw = encoded(pod()).replace(b'"spec":{', b'"spec":{{')
    record = decode_object(raw, RESOURCE)
    assert record.valid
    assert Pod.from_record(record).name == "a"
    with pytest.raises(DecodeError, match=r"Pod\.v1\./a"):
        _ = Pod.from_record(record).spec
    with pytest.raises(DecodeError, match=r"Pod\.v1\./a"):
        _ = Pod.from_record(record)["status"]


def test_managed_fields_of_something_else_hide_no_metadata_behind_them() -> None:
    raw = encoded({"kind": "Pod", "data": {"x": 1, "managedFields": [{"a": 1}]},
                   "metadata": {"name": "a", "labels": {"b": "c"}}, "spec": LONG})
    for named in (True, False):
        head = decode_object(raw, RESOURCE, named=named).head
        assert (head.name, head.labels) == ("a", {"b": "c"})
