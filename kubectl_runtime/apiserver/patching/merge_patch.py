"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.core.codec.jsonvalues import json_copy


def apply_merge_patch(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`current` with the patch merged in: null removes, objects merge, everything else replaces.

    Neither is changed, and the result shares nothing with them.
    Nulls in new objects vanish too, inside new lists as well (the real server prunes them there, the RFC does not).
    """
    return _merged(json_copy(current), patch)


def _merged(result: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            _merged(result[key], value)
        else:
            result[key] = _without_nulls(value)
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
