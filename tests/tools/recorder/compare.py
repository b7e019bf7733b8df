"""Compares an answer with the recorded one and tells every difference as a line with a JSON pointer."""

from __future__ import annotations

import copy
import json
from typing import Any


def blank(value: Any, pointer: str | list[str]) -> None:
    """Blank what a JSON pointer (in which * stands for every key or index) points at."""
    head, *rest = pointer if isinstance(pointer, list) else [
        part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    keys: list[Any] = [*range(len(value))] if isinstance(value, list) else [*value] if isinstance(value, dict) else []
    for key in [key for key in keys if head in ("*", str(key))]:
        if rest:
            blank(value[key], rest)
        else:
            value[key] = "$ignored"


def comparable(answer: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that a step compares."""
    answer = copy.deepcopy(answer)
    for status in [answer.get("body")] + [event.get("object") for event in answer.get("events", [])]:
        if not isinstance(status, dict) or status.get("kind") != "Status":
            continue
        causes = (status.get("details") or {}).get("causes") or []
        # no order: Go maps
        causes.sort(key=lambda cause: [cause.get(key, "") for key in ("field", "reason", "message")])
        for part in [] if step.get("compareMessage") else [status, *causes]:
            part.pop("message", None)
    for pointer in step.get("ignore", []):
        blank(answer, pointer)
    return answer


def differences(expected: Any, actual: Any, mode: str = "full", at: str = "") -> list[str]:
    """The differences between two JSON values as lines of text; in mode "contains" the actual one may have more."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        extra = [] if mode == "contains" else [key for key in actual if key not in expected]
        return [line for key in expected for line in (
            differences(expected[key], actual[key], mode, f"{at}/{key}") if key in actual
            else [f"{at}/{key}: expected {json.dumps(expected[key])}, got nothing"])
        ] + [f"{at}/{key}: expected nothing, got {json.dumps(actual[key])}" for key in extra]
    if isinstance(expected, list) and isinstance(actual, list):
        if mode == "contains":
            return [f"{at}: expected an item like {json.dumps(item)}, got {json.dumps(actual)}"
                    for item in expected if all(differences(item, other, mode) for other in actual)]
        lines = [line for index, (one, other) in enumerate(zip(expected, actual, strict=False))
                 for line in differences(one, other, mode, f"{at}/{index}")]
        lines += [f"{at}/{i}: expected {json.dumps(expected[i])}, got nothing"
                  for i in range(len(actual), len(expected))]
        lines += [f"{at}/{i}: expected nothing, got {json.dumps(actual[i])}" for i in range(len(expected), len(actual))]
        return lines
    same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
    return [] if same else [f"{at}: expected {json.dumps(expected)}, got {json.dumps(actual)}"]
