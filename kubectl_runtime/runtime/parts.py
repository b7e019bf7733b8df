"""Parts of an object in its plain form, read without trust: what is absent, null or of another type is empty."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def part_of(obj: Any, key: str) -> Mapping[str, Any]:
    """The map under a top-level key of an object, or of None, which has none. Raises DecodeError."""
    return {} if obj is None else mapping(obj.get(key))


def condition_of(obj: Any, kind: str) -> Mapping[str, Any]:
    """The entry of this type in the object's `status.conditions`; empty when there is none. Raises DecodeError."""
    entries = part_of(obj, "status").get("conditions")
    return next((entry for entry in map(mapping, entries if isinstance(entries, list) else ())
                 if entry.get("type") == kind), {})
