"""Metadata that is decoded when it is read."""
from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kubectl_runtime import DecodeError
from kubectl_runtime.core.codec.jsonbytes import decode_event, decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.resources import Pod


def record_of(enveloped: bool, **metadata: Any) -> Record:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns", **metadata}}
    if not enveloped:
        return decode_object(json.dumps(obj).encode(), Pod.api_resource)
    carried = decode_event(json.dumps({"type": "ADDED", "object": obj}).encode(), Pod.api_resource)[1]
    assert isinstance(carried, Record)
    return carried


@pytest.mark.parametrize("enveloped", [False, True])
def test_annotations_and_the_time_of_creation_are_read_from_the_bytes(enveloped: bool) -> None:
    pod = Pod.from_record(record_of(enveloped, annotations={"c": "d"}, creationTimestamp="2026-01-01T00:00:00Z"))
    assert pod.annotations == {"c": "d"}
    assert pod.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    bare = Pod.from_record(record_of(enveloped))
    assert (bare.annotations, bare.creation_timestamp) == ({}, None)


@pytest.mark.parametrize("enveloped", [False, True])
def test_nulls_among_them_count_as_absent(enveloped: bool) -> None:
    pod = Pod.from_record(record_of(enveloped, annotations={"c": "d", "e": None}, creationTimestamp=None, labels=None))
    assert (pod.annotations, pod.creation_timestamp) == ({"c": "d"}, None)


@pytest.mark.parametrize("enveloped", [False, True])
@pytest.mark.parametrize("annotations", [{"c": 1}, ["c"], "c"])
def test_what_are_no_annotations_is_said_to_who_reads_them_and_hides_nothing_else(
        enveloped: bool, annotations: object) -> None:
    record = record_of(enveloped, annotations=annotations, labels={"a": "b"})
    assert record.valid
    pod = Pod.from_record(record)
    assert pod.labels == {"a": "b"}
    with pytest.raises(DecodeError, match=r"Pod\.v1\./a\.ns: \$\.metadata\.annotations"):
        _ = pod.annotations


def test_changes_of_the_metadata_are_read_as_changed() -> None:
    pod = Pod.from_record(record_of(True, annotations={"c": "d"}))
    pod.metadata.annotations = {"e": "f"}
    assert pod.annotations == {"e": "f"}


@pytest.mark.parametrize("enveloped", [False, True])
def test_no_byte_of_an_annotation_is_replaced(enveloped: bool) -> None:
    begin, end = (b'{"type":"ADDED","object":', b"}") if enveloped else (b"", b"")
    raw = begin + b'{"metadata":{"name":"a","annotations":{"c":"\xff"},"labels":{"e":"f"}}}' + end
    record = decode_event(raw, Pod.api_resource)[1] if enveloped else decode_object(raw, Pod.api_resource)
    assert isinstance(record, Record)
    pod = Pod.from_record(record)
    assert pod.labels == {"e": "f"}
    with pytest.raises(DecodeError, match="UTF-8"):
        _ = pod.annotations


def test_metadata_that_is_null_is_empty() -> None:
    pod = Pod.from_bytes(b'{"metadata":null,"spec":{"nodeName":"n"}}')
    assert (pod.name, pod.labels, pod.annotations, pod.creation_timestamp) == ("", {}, {}, None)
    pod.metadata.name = "a"
    assert pod.to_dict()["metadata"] == {"name": "a"}
