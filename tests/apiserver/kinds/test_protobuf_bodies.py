"""Objects in Kubernetes' protobuf encoding, as kubectl's typed clients send them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.kinds.typed.protobuf import MAGIC, ProtobufError, UnknownTypeError, decode_protobuf
from tests.apiserver.kinds.kindapi import Api


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value & (1 << 64) - 1)


def envelope(api_version: str, kind: str, body: bytes) -> bytes:
    return MAGIC + message(1, message(1, api_version) + message(2, kind)) + message(2, body)


def test_a_config_map_with_maps_and_bytes() -> None:
    body = message(1, message(1, "a")) + message(2, message(1, "k") + message(2, "v")) + message(
        3, message(1, "b") + message(2, b"\x00"))
    assert decode_protobuf(envelope("v1", "ConfigMap", body)) == {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"},
        "binaryData": {"b": "AA=="}}


def test_structs_that_only_json_flattens_times_and_quantities() -> None:
    volume = message(1, "v") + message(2, message(2, message(2, message(1, "1Gi"))))  # emptyDir.sizeLimit
    container = message(1, "m") + message(2, "i")
    body = message(1, message(1, "a") + message(8, integer(1, 1_704_067_200))) + message(
        2, message(1, volume) + message(2, container) + integer(4, 0))
    found = decode_protobuf(envelope("v1", "Pod", body))
    assert found["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert found["spec"]["volumes"] == [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]
    assert found["spec"]["containers"] == [{"name": "m", "image": "i"}]
    assert found["spec"]["terminationGracePeriodSeconds"] == 0


def test_numbers_or_texts_and_negative_numbers() -> None:
    port = integer(3, 80) + message(4, integer(1, 1) + message(3, "web"))
    service = decode_protobuf(envelope("v1", "Service", message(2, message(1, port))))
    assert service["spec"]["ports"] == [{"port": 80, "targetPort": "web"}]
    deployment = decode_protobuf(envelope("apps/v1", "Deployment", message(2, integer(1, -1))))
    assert deployment["spec"] == {"replicas": -1}


def test_lists_that_are_messages_of_their_own() -> None:
    extra = message(1, "scopes") + message(2, message(1, "a") + message(1, "b"))
    review = decode_protobuf(envelope("authorization.k8s.io/v1", "SubjectAccessReview", message(2, message(5, extra))))
    assert review["spec"]["extra"] == {"scopes": ["a", "b"]}


def test_unknown_fields_are_skipped() -> None:
    body = message(1, message(1, "a") + integer(999, 1)) + message(998, b"x")
    assert decode_protobuf(envelope("v1", "ConfigMap", body))["metadata"] == {"name": "a"}


def test_kinds_without_a_protobuf_form_are_told_apart() -> None:
    with pytest.raises(UnknownTypeError):
        decode_protobuf(envelope("example.com/v1", "Widget", b""))


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for data in (body, MAGIC + body, envelope("v1", "Pod", body)):
        with suppress(ProtobufError):
            assert isinstance(decode_protobuf(data), dict)


def test_the_server_reads_it_and_answers_in_json(api: Api) -> None:
    body = envelope("v1", "ServiceAccount", message(1, message(1, "robot")))
    answer = api("POST", "/api/v1/namespaces/default/serviceaccounts", body,
                 content_type="application/vnd.kubernetes.protobuf",
                 accept="application/vnd.kubernetes.protobuf,application/json")
    assert answer.status == 201
    assert answer.headers["content-type"] == "application/json"
    assert answer.body["metadata"]["name"] == "robot"
