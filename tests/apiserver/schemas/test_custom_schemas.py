"""Schemas of custom resources: the shape of each kind of node."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.schemas import from_openapi

PRESERVE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {
    "spec": {"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "required": ["port"], "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}},
        "plain": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}},
        "either": {"x-kubernetes-int-or-string": True},
        "open": {**PRESERVE, "properties": {"closed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {
            "spec": {"type": "object"}}},
        "d": {"type": "string", "default": "dflt"},
        "nested": {"type": "object", "properties": {"d": {"type": "integer", "default": 1}}},
        "whole": {"type": "object", "default": {"x": 5}, "properties": {"d": {"type": "integer", "default": 1},
                                                                     "x": {"type": "integer"}}},
        "nullable": {"type": "string", "nullable": True, "default": "n"},
    }}}}


def test_the_shape_of_each_kind_of_node() -> None:
    root = from_openapi(SCHEMA)
    spec = root.field("spec")
    assert spec is not None
    assert {name: field.kind for name, field in spec.fields.items()} == {
        "set": "list", "map": "list", "plain": "list", "atomic": "struct", "labels": "map", "either": "any",
        "open": "struct", "template": "struct", "d": "scalar", "nested": "struct", "whole": "struct",
        "nullable": "scalar"}
    assert {name for name, field in spec.fields.items() if field.leaf} == {"plain", "atomic", "d", "nullable"}
    assert spec.fields["map"].map_keys == ("port", "protocol")
    assert root.fields["metadata"].fields["finalizers"].list_type == "set"
    assert root.field("bogus") is None
    assert spec.fields["template"].fields["metadata"] is root.fields["metadata"]


def test_unknown_fields_are_declared_below_preserve_unknown_fields() -> None:
    spec = from_openapi({"type": "object", "properties": {"spec": PRESERVE}}).fields["spec"]
    below = spec.field("anything")
    assert below is not None
    assert below.kind == "any"
    assert below.field("deeper") is below
    everything = from_openapi(None)
    assert (everything.field("spec") or spec).kind == "any"
    assert everything.fields["metadata"].kind == "struct"
