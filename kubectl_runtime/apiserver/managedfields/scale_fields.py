"""managedFields across /scale: a Scale shows who owns the replicas, and what a write does to that goes back to the
object.

Surprising truths of the real server, kept on purpose: the entry of an updater that owns the replicas is split by any
write to /scale, and its new part, like every entry that comes back from a Scale, has no time. The two parts then have
one identity, so that the next write knows the last of them only, and nobody owns the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.apiserver.managedfields import entries
from kubectl_runtime.apiserver.managedfields.entries import Entry, Identity
from kubectl_runtime.apiserver.managedfields.fieldset import Fields, contains, without

SCALE = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
ReplicasPaths = Mapping[str, tuple[str, ...]]  # apiVersion -> the path of the replicas, as elements of a set


def to_scale(raw: Any, replicas: ReplicasPaths) -> list[dict[str, Any]]:
    """The entries of an object that own its replicas, as entries of a Scale."""
    return entries.write([Entry(entry.manager, entry.operation, SCALE, entry.subresource, entry.time, _set(_REPLICAS))
                          for entry in entries.read_or_empty(raw).values() if _owns(entry, replicas)])


def to_object(raw: Any, raw_scale: Any, api_version: str, replicas: ReplicasPaths) -> list[dict[str, Any]]:
    """The entries of an object (`raw`) after a write to its Scale, which has the entries `raw_scale` now."""
    of_scale = {entry.identity: entry for entry in entries.read_or_empty(raw_scale).values()
                if contains(entry.fields, _REPLICAS)}
    kept: list[Entry] = []
    times: dict[Identity, str] = {}
    for entry in entries.read_or_empty(raw).values():
        if entry.api_version not in replicas:
            continue
        times[entry.identity] = entry.time
        fields = entry.fields
        if _owns(entry, replicas) and of_scale.pop(entry.identity, None) is None:
            fields = without(fields, replicas[entry.api_version])
        if fields:
            kept.append(entry.with_fields(fields))
    for identity, entry in of_scale.items():
        kept.append(Entry(entry.manager, entry.operation, api_version, entry.subresource, times.get(identity, ""),
                          _set(replicas[api_version])))
    return entries.write(kept)


def _owns(entry: Entry, replicas: ReplicasPaths) -> bool:
    return entry.api_version in replicas and contains(entry.fields, replicas[entry.api_version])


def _set(path: tuple[str, ...]) -> Fields:
    fields: Fields = {}
    for element in reversed(path):
        fields = {element: fields}
    return fields
