"""What an update keeps of an object's metadata, and what of it is no change."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def restore(meta: Object, before: Object) -> None:
    """What an update cannot change is put back silently; an end of life that it adds is not, and so refused."""
    meta.pop("selfLink", None)
    for key in ("creationTimestamp", "deletionTimestamp"):
        if key in before:
            meta[key] = before[key]
        elif meta.get(key) is None:
            meta.pop(key, None)
    for key in ("uid", "deletionGracePeriodSeconds"):
        if meta.get(key) in (None, "") and key in before:
            meta[key] = before[key]


def without_times(obj: Object) -> Object:
    """An object whose managers have no times: these alone are no change."""
    meta = obj["metadata"]
    entries = [{key: value for key, value in entry.items() if key != "time"}
               for entry in meta.get("managedFields") or ()]
    return {**obj, "metadata": {**meta, "managedFields": entries}}
