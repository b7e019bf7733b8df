"""Pruning and defaulting of custom resources by their schema."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.schema.structural import apply_defaults, prune

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


def test_pruning_drops_what_is_not_declared_and_names_it() -> None:
    obj = {"apiVersion": "v", "kind": "K", "metadata": {"name": "a", "wrong": 1}, "bogus": 1,
           "spec": {"x": 1, "plain": [{"a": "1", "b": 2}], "open": {"y": {"z": 1}, "closed": {"a": "1", "b": 2}},
                    "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {},
                                 "spec": {}},
                    "labels": {"k": "v"}, "atomic": {"b": 1}}}
    assert prune(obj, SCHEMA) == ["bogus", "spec.atomic.b", "spec.open.closed.b", "spec.plain[0].b",
                                  "spec.template.status", "spec.x"]
    assert obj == {"apiVersion": "v", "kind": "K", "metadata": {"name": "a", "wrong": 1},
                   "spec": {"plain": [{"a": "1"}], "open": {"y": {"z": 1}, "closed": {"a": "1"}},
                            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
                            "labels": {"k": "v"}, "atomic": {}}}


def test_without_a_schema_nothing_is_pruned() -> None:
    obj = {"spec": {"a": 1}}
    assert prune(obj, None) == []
    apply_defaults(obj, None)
    assert obj == {"spec": {"a": 1}}


def test_defaults_need_their_parent_or_its_default() -> None:
    missing: dict[str, Any] = {}
    apply_defaults(missing, SCHEMA)
    assert missing == {}
    empty: dict[str, Any] = {"spec": {}}
    apply_defaults(empty, SCHEMA)
    assert empty == {"spec": {"d": "dflt", "whole": {"x": 5, "d": 1}, "nullable": "n"}}
    nested: dict[str, Any] = {"spec": {"nested": {}, "map": [{"port": 1}]}}
    apply_defaults(nested, SCHEMA)
    assert nested["spec"]["nested"] == {"d": 1}
    assert nested["spec"]["map"] == [{"port": 1, "protocol": "TCP"}]


def test_a_null_that_is_not_allowed_counts_as_missing() -> None:
    obj: dict[str, Any] = {"spec": {"d": None, "set": None, "nullable": None, "labels": {"k": None}}}
    apply_defaults(obj, SCHEMA)
    assert obj["spec"] == {"d": "dflt", "nullable": None, "labels": {"k": "d"}, "whole": {"x": 5, "d": 1}}


names = st.sampled_from(["spec", "set", "plain", "a", "d", "open", "nested", "x"])
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=2),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))


@given(values)
def test_pruning_and_defaulting_are_done_once(value: Any) -> None:
    obj = {"spec": copy.deepcopy(value)}
    prune(obj, SCHEMA)
    apply_defaults(obj, SCHEMA)
    before = copy.deepcopy(obj)
    assert prune(obj, SCHEMA) == []
    apply_defaults(obj, SCHEMA)
    assert obj == before
