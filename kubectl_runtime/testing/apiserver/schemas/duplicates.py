"""Duplicate keys of a JSON text, which decoders swallow: the server warns of them or refuses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


class _Pairs(dict[str, Any]):
    """An object with a key that came more than once: its members as they were written."""

    __slots__ = ("order",)
    order: list[tuple[str, Any]]


def _collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    found = _Pairs(pairs)
    found.order = pairs
    return found


def duplicate_fields(body: bytes) -> list[str]:
    """The paths of duplicate fields in order of appearance (``data.k``, ``data``); [] if the text is not JSON."""
    seen = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        result = _collect(pairs)
        seen = seen or isinstance(result, _Pairs)
        return result

    try:
        document = json.loads(body, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(_paths(document, ""))) if seen else []


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        prefix = path + "." if path else ""
        met: set[str] = set()
        for key, child in value.order if isinstance(value, _Pairs) else value.items():
            yield from _paths(child, prefix + key)
            if key in met:
                yield prefix + key
            met.add(key)
