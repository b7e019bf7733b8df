"""No value of a Secret, and no token, comes into a recording; keys do."""
from __future__ import annotations

import json
from typing import Any

import pytest

from kubectl_runtime.runtime.recording import is_withheld, without_secrets

SECRET = "c2VjcmV0"

DOCUMENTS: list[Any] = [
    {"kind": "Secret", "data": {"p": SECRET}},
    {"kind": "Secret", "stringData": {"p": SECRET}},
    {"kind": "SecretList", "items": [{"data": {"p": SECRET}}, {"metadata": {"name": "a"}, "data": None}]},
    {"type": "MODIFIED", "object": {"kind": "Secret", "data": {"p": SECRET}}},
    [{"op": "replace", "path": "/data/p", "value": SECRET}],
    {"kind": "Status", "message": f'data["p"]: {SECRET} is wrong', "details": {"causes": [{"message": SECRET}]}},
    {"kind": "TokenRequest", "status": {"token": SECRET}},
    {"kind": "TokenReview", "spec": {"token": SECRET, "audiences": ["a"]}, "status": {"authenticated": True}},
    {"spec": {"token": SECRET}}, {"kind": "ExecCredential", "status": {"token": SECRET, "clientKeyData": SECRET}},
    {"kind": "Table", "rows": [{"cells": ["a"], "object": {"kind": "PartialObjectMetadata", "metadata": {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}}}}]},
    {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}}},
    {"data": SECRET}, {"data": [SECRET]}, {"stringData": SECRET}, {"data": {"p": {"deep": SECRET}}},
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_values_are_withheld(document: Any) -> None:
    cleaned = without_secrets(json.dumps(document).encode())
    assert SECRET.encode() not in cleaned
    json.loads(cleaned)


@pytest.mark.parametrize("document", [SECRET.encode(), b'{"data": {"p": "c2VjcmV0"', b"\xff" + SECRET.encode(), b"",
                                      b"[" * 5000 + SECRET.encode()])
def test_what_is_no_json_is_withheld_whole(document: bytes) -> None:
    assert without_secrets(document) == b'"withheld"'


def test_keys_and_what_is_no_secret_stay() -> None:
    cleaned = json.loads(without_secrets(json.dumps({
        "kind": "Secret", "metadata": {"name": "a", "labels": {"x": "y"}}, "type": "Opaque",
        "data": {"p": SECRET, "q": None}}).encode()))
    assert cleaned == {"kind": "Secret", "metadata": {"name": "a", "labels": {"x": "y"}}, "type": "Opaque",
                       "data": {"p": "d2l0aGhlbGQ=", "q": None}}


SECRET_OBJECT = {"kind": "Secret", "apiVersion": "v1", "data": {"p": SECRET}}


@pytest.mark.parametrize("document", [
    SECRET_OBJECT, {"kind": "List", "items": [{"kind": "ConfigMap", "data": {"a": "b"}}, SECRET_OBJECT]},
    {"kind": "List", "items": [{"kind": "SecretList", "items": [{"data": {"p": SECRET}}]}]},
    {"type": "ADDED", "object": {"kind": "Bundle", "spec": {"resources": [{"manifest": SECRET_OBJECT}]}}},
    {"kind": "AdmissionReview", "request": {"object": {"kind": "TokenReview", "spec": {"token": SECRET}}}},
    [{"op": "add", "path": "/spec/template", "value": SECRET_OBJECT}],
    {"kind": "Bundle", "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(
        {"kind": "Bundle", "spec": {"manifest": SECRET_OBJECT}})}}}])
def test_what_another_resource_holds_of_a_secret_is_withheld(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document).replace("Secret", "\\u0053ecret").replace(
            "Token", "T\\u006fken")):
        cleaned = without_secrets(text.encode(), withheld=False)
        assert SECRET.encode() not in cleaned
        json.loads(cleaned)


@pytest.mark.parametrize("document", [
    b'{"kind":"ConfigMap", "data":{"p":"c2VjcmV0"}}', b'{"kind":"SecretStore","spec":{"token":"name"}}',
    b'"Secret" in a log line', b'{"kind": "Pod", "spec": {"volumes": [{"secret": {"secretName": "a"}}]}}', b"",
    b'{"kind":["Secret"],"data":{"a":"b"}}'])
def test_what_holds_no_secret_stays(document: bytes) -> None:
    found = without_secrets(document, withheld=False)
    assert found == document or json.loads(found) == json.loads(document)


def test_which_resources_are_meant() -> None:
    assert is_withheld("tokenreviews.authentication.k8s.io")
    assert not is_withheld("tokenreviews.example.com")
    assert is_withheld("secrets")
    assert is_withheld("serviceaccounts", "token")
    assert not is_withheld("serviceaccounts")
    assert not is_withheld("secrets.example.com")


@pytest.mark.parametrize("document", [
    b'{"a":' * 5000 + b'{"kind":"Secret","data":{"p":"aHVudGVyMg=="}}' + b"}" * 5000,
    b'\xef\xbb\xbf{"kind":"Secret","data":{"p":"aHVudGVyMg=="}}',
    b'{"kind":"Secret","data":{"p":"aHVudGVyMg=="}',
    b'{"kind":"ExecCredential","status":{"token":"aHVudGVyMg=="}}\n{}',
    b'{"kind":"TokenReview","spec":{"token":"aHVudGVyMg==", "x": "\xff"}}}',
], ids=["deep", "mark", "cut", "two", "bytes"])
def test_what_names_a_kind_that_is_withheld_and_cannot_be_read_is_withheld_whole(document: bytes) -> None:
    for withheld in (False, True):
        assert b"aHVudGVyMg" not in without_secrets(document, withheld=withheld)
    assert without_secrets(b'{"kind":"ConfigMap"', withheld=False) == b'{"kind":"ConfigMap"'
