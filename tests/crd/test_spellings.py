"""Enums that may be null, bytes that may be empty: valid for a real server, and known again by readers of schemas."""
from __future__ import annotations

from typing import Any, Literal

import pytest

from kubectl_runtime.crd.codegen import module_of
from kubectl_runtime.crd.schema import object_schema
from kubectl_runtime.schema.structural import schema_definition_causes
from kubectl_runtime.schema.validation import schema_causes

CHOICE = Literal["a", "b"] | None


def schema_of(hint: Any, default: Any = None) -> dict[str, Any]:
    return object_schema(type("Thing", (), {}), [("field", hint, default)])


@pytest.mark.parametrize(("hint", "taken", "refused"), [
    (CHOICE, [None, "a"], ["", "c", 1]), (Literal[1, 2] | None, [None, 2], [3, "1"]),
    (bytes, ["", "aGk="], ["!", "aGk", 1, None]), (bytes | None, ["", None], ["!"])])
def test_a_null_and_an_empty_text_are_taken_and_nothing_else(hint: Any, taken: list[Any], refused: list[Any]) -> None:
    schema = schema_of(hint)
    assert [value for value in taken if schema_causes({"field": value}, schema)] == []
    assert [value for value in refused if not schema_causes({"field": value}, schema)] == []


def test_an_empty_default_of_bytes_is_a_valid_one() -> None:
    assert schema_definition_causes(schema_of(bytes, b"")) == []


def test_codegen_knows_them_again() -> None:
    spec = {"type": "object", "properties": {"color": schema_of(CHOICE)["properties"]["field"],
                                             "blob": schema_of(bytes)["properties"]["field"]}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": spec}}}}
    text = module_of([{"kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
        "versions": [version]}}], strict_enums=True)
    assert 'color: Literal["a", "b"] | None = None' in text
    assert "blob: bytes | None = None" in text
