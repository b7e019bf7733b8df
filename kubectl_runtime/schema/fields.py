"""From a path to the part of a structural schema that it leads to."""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]


def resolve_field(path: str, schema: Node) -> tuple[Node | None, str]:
    """The schema that a path (``.spec.color``) of a selectable field leads to, or None and why there is none."""
    if path[0] not in ".[":
        return None, f"expected [ or . but got: {path.partition('.')[0]}"
    if "[" in path:
        return None, "array notation is not allowed"
    found: Any = schema
    for part in path[1:].split("."):
        found = (found.get("properties") or {}).get(part) or found.get("additionalProperties")
        if not isinstance(found, dict):
            return None, "does not refer to a valid field"
    return found, ""
