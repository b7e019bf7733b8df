"""What rules cost: python tests/benchmarks/rules.py [INSTANCES] -> one JSON line.

Instances of a custom resource as a server validates them, by the schema alone and with five rules on it: `app` has some
twenty fields, `small` five. Times of the processor, the best of five, in µs for an instance; both ways are measured in
turns, so that a busy machine does not favour one. The ratio is to be at most 5.
"""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from kubectl_runtime.schema.rules import Rules, checked_after, rules_of
from kubectl_runtime.schema.validation import NOTHING, schema_causes

TEXT, NUMBER = {"type": "string", "maxLength": 63}, {"type": "integer", "format": "int32", "minimum": 0}


def rule(text: str, message: str) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, "message": message}]}


NAME_RULE = rule("self.metadata.name.size() < 64", "too long")
APP: dict[str, Any] = {"type": "object", "required": ["spec"], **NAME_RULE, "properties": {"spec": {
    "type": "object", "required": ["image"], **rule("self.minReplicas <= self.maxReplicas", "min above max"),
    "properties": {
        "image": {**TEXT, "pattern": "^[a-z0-9./:-]+$", **rule("!self.endsWith(':latest')", "say a version")},
        "minReplicas": NUMBER, "maxReplicas": NUMBER, "paused": {"type": "boolean"},
        "strategy": {"type": "string", "enum": ["Recreate", "RollingUpdate"]},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "resources": {"type": "object", **rule("self.requests <= self.limits", "requests above limits"),
                      "properties": {"requests": NUMBER, "limits": NUMBER}},
        "ports": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "map",
                  "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name", "port"],
                  "properties": {"name": TEXT, "port": {**NUMBER, "maximum": 65535},
                                 "protocol": {"type": "string", "enum": ["TCP", "UDP"]}}}},
        "env": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
            "name": TEXT, "value": {"type": "string"}}}},
        "schedule": {"type": "object", "properties": {"cron": TEXT, "zone": TEXT, "suspend": {"type": "boolean"}},
                     **rule("!has(self.suspend) || has(self.cron)", "nothing to suspend")}}}}}
SMALL: dict[str, Any] = {"type": "object", **NAME_RULE, "properties": {"spec": {
    "type": "object", "required": ["size"], **rule("self.size <= self.most", "above the most"), "properties": {
        "size": {"type": "integer", **rule("self > 0", "positive")}, "most": {"type": "integer"},
        "text": {"type": "string", **rule("self.size() < 20", "too long")}, "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, **rule("self.all(tag, tag != '')", "an empty one")}}}}}
"""A rule for nearly every field, of the cheapest types: what rules cost most beside."""


def app(number: int) -> dict[str, Any]:
    return {"image": f"registry.example.com/app:1.{number}", "minReplicas": 1, "maxReplicas": 3 + number % 5,
            "paused": False, "strategy": "RollingUpdate",
            "labels": {"app": f"app-{number}", "team": "a", "tier": "b"}, "resources": {"requests": 100, "limits": 200},
            "ports": [{"name": name, "port": 8000 + number % 100, "protocol": "TCP"} for name in ("http", "admin")],
            "env": [{"name": f"VAR_{index}", "value": f"value-{number}"} for index in range(6)],
            "schedule": {"cron": "0 0 * * *", "zone": "Europe/Berlin", "suspend": False}}


def small(number: int) -> dict[str, Any]:
    return {"size": 1, "most": 1 + number, "text": "text", "note": "note", "tags": ["a", "b"]}


def figures(schema: dict[str, Any], spec: Callable[[int], dict[str, Any]], count: int) -> dict[str, float]:
    rules = rules_of(schema)
    assert rules is not None
    instances = [{"apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": f"app-{number}"},
                  "spec": spec(number)} for number in range(count)]

    def check(rules: Rules | None) -> float:
        start = time.process_time()
        for obj in instances:
            assert not checked_after(schema_causes(obj, schema), rules, obj, NOTHING)
        return time.process_time() - start

    alone, both = float("inf"), float("inf")
    for _ in range(5):
        alone, both = min(alone, check(None)), min(both, check(rules))
    return {"schema_us": round(alone / count * 1e6, 1), "schema_and_rules_us": round(both / count * 1e6, 1),
            "seconds": round(both, 2), "ratio": round(both / alone, 2)}


def main(count: int) -> None:
    print(json.dumps({"instances": count, "app": figures(APP, app, count), "small": figures(SMALL, small, count)}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
