"""Removal by omission: what an applier applied before and does not apply now goes, unless somebody else owns it."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.managedfields.entries import Entry, Managed
from kubectl_runtime.apiserver.managedfields.fieldset import Fields, difference, intersection, union
from kubectl_runtime.apiserver.managedfields.tracking import Target
from kubectl_runtime.apiserver.managedfields.typed_merge import field_set, named_members, remove
from kubectl_runtime.apiserver.schemas import Schema

Object = dict[str, Any]


def prune(merged: Object, managed: Managed, last: Entry | None, target: Target) -> Object:
    """`merged` without the paths of the applier's last set that no entry of `managed` (its new one included) owns.

    An item or struct that still holds something somebody owns stays. A last set of a version that is not served any
    more removes nothing.
    """
    schema = target.schema_of(last.api_version) if last else None
    if last is None or schema is None or not last.fields:
        return merged
    now = managed[last.identity]
    if now.api_version == last.api_version and not difference(last.fields, now.fields):
        return merged  # all that was applied before is applied again
    previous = named_members(last.fields, schema)
    pruned = remove(merged, previous, schema) or {}
    versions = [last.api_version, *({entry.api_version for entry in managed.values()} - {last.api_version})]
    for version in versions:
        of_version = target.schema_of(version)
        owned: Fields = {}
        for entry in managed.values():
            if entry.api_version == version:
                owned = union(owned, entry.fields)
        if of_version is not None:
            pruned = _add_back_owned(merged, pruned, owned, of_version)
    everything = named_members(field_set(merged, schema), schema)
    remaining = named_members(field_set(pruned, schema), schema)
    result: Object = remove(merged, intersection(difference(everything, remaining), previous), schema) or {}
    return result


def _add_back_owned(merged: Object, pruned: Object, owned: Fields, schema: Schema) -> Object:
    """`merged` less what is missing in `pruned` and owned by none of the managers of a version."""
    everything = named_members(field_set(merged, schema), schema)
    remaining = named_members(field_set(pruned, schema), schema)
    kept = union(remaining, named_members(owned, schema))
    result: Object = remove(merged, difference(everything, kept), schema) or {}
    return result
