"""Copies of JSON values; several times faster than `copy.deepcopy`, since there are no cycles and no other types."""

from __future__ import annotations

from typing import Any


def json_copy(value: Any) -> Any:
    """A copy that shares no dict and no list with the value."""
    if isinstance(value, dict):
        return {key: json_copy(child) if isinstance(child, dict | list) else child for key, child in value.items()}
    if isinstance(value, list):
        return [json_copy(item) for item in value]
    return value
