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
    return next((entry for entry in items_of(part_of(obj, "status"), "conditions") if entry.get("type") == kind), {})


def generation_of(obj: Any, entry: Mapping[str, Any]) -> int | None:
    """The generation that a condition of the object is about, as kubectl finds it: its own observedGeneration, or else
    that of the status; None where neither says. Raises DecodeError."""
    for part in (entry, part_of(obj, "status")):
        observed = part.get("observedGeneration")
        if isinstance(observed, int) and not isinstance(observed, bool):
            return observed
    return None


def is_current(obj: Any, entry: Mapping[str, Any]) -> bool:
    """Whether a condition of the object is about its present spec, as far as it says. Raises DecodeError."""
    observed = generation_of(obj, entry)
    return observed is None or observed >= (obj.generation or 0)


def holds(obj: Any, kind: str, status: str = "True") -> bool:
    """Whether the object's condition of this type has this status, for its present spec. Raises DecodeError."""
    entry = condition_of(obj, kind)
    return entry.get("status") == status and is_current(obj, entry)


def number_of(part: Mapping[str, Any], key: str, otherwise: int = 0) -> int:
    """The whole number under a key; `otherwise` when there is none."""
    value = part.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def items_of(part: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The list of maps under a key, an empty map for each entry that is not a map."""
    value = part.get(key)
    return [mapping(entry) for entry in value] if isinstance(value, list) else []
