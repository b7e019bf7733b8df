"""No value of a Secret, and no token, comes into a recording; keys do."""
from __future__ import annotations

import json
from typing import Any

import pytest

from kubectl_runtime.runtime.flight.withheld import is_withheld, without_secrets

SECRET = "c2VjcmV0"

DOCUMENTS: list[Any] = [
    {"kind": "Secret", "data": {"p": SECRET}},
    {"kind": "Secret", "stringData": {"p": SECRET}},
    {"kind": "SecretList", "items": [{"data": {"p": SECRET}}, {"metadata": {"name": "a"}, "data": None}]},
    {"type": "MODIFIED", "object": {"kind": "Secret", "data": {"p": SECRET}}},
    [{"op": "replace", "path": "/data/p", "value": SECRET}],
    {"kind": "Status", "message": f'data["p"]: {SECRET} is wrong', "details": {"causes": [{"message": SECRET}]}},
    {"kind": "TokenRequest", "status": {"token": SECRET}},
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


def test_which_resources_are_meant() -> None:
    assert is_withheld("secrets")
    assert is_withheld("serviceaccounts", "token")
    assert not is_withheld("serviceaccounts")
    assert not is_withheld("secrets.example.com")
