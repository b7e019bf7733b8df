"""From a path to the part of a structural schema that it leads to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Node = dict[str, Any]

_PATH_PART = re.compile(r"\.([A-Za-z_][\w-]*)|\['((?:[^'\\]|\\.)+)'\]")


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


def leads_somewhere(path: str, node: Mapping[str, Any]) -> bool:
    """Whether the `fieldPath` of a rule, ``.a.b`` or ``.a['b']``, is that of a field below a schema."""
    found: Any = node
    parts = list(_PATH_PART.finditer(path))
    if "".join(part[0] for part in parts) != path:
        return False
    for part in parts:
        name = part[1] or part[2].replace("\\'", "'")
        found = (found.get("properties") or {}).get(name) or found.get("additionalProperties")
        if not isinstance(found, Mapping):
            return False
    return True
