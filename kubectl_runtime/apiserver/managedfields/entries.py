"""The entries of ``metadata.managedFields``: reading, writing, identity, limits, and how changes move ownership.

An entry is identified by manager, operation and subresource; an Update entry also by apiVersion.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from kubectl_runtime.apiserver.managedfields.fieldset import (
    SELF,
    Fields,
    compare,
    difference,
    intersection,
    only,
    ordered,
    union,
    without,
)
from kubectl_runtime.apiserver.managedfields.typed_merge import typed_errors
from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.wire import Object

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATERS = 10
_ITEMS: dict[str, type] = {"k:": dict, "v:": object, "i:": int}
ANCIENT = "ancient-changes"

Identity = tuple[str, str, str, str]


class EntryError(ValueError):
    """An entry is malformed. The server then treats the whole managedFields list as absent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; `time` is in RFC 3339 or "", `fields` is the set of owned paths (never changed in place)."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: Fields

    @property
    def identity(self) -> Identity:
        """The parts that identify the entry."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def with_fields(self, fields: Fields) -> Entry:
        """A copy of the entry with other `fields`."""
        return replace(self, fields=fields)

    def title(self) -> str:
        """The manager as messages name it: ``"beta"``, ``"kubectl-edit" with subresource "status" using v1``."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


Managed = dict[Identity, Entry]


def read(raw: Any) -> Managed:
    """The entries of a managedFields list. Raises `EntryError` if an entry is malformed."""
    managed: Managed = {}
    for item in raw or ():
        entry = _read_entry(item)
        managed[entry.identity] = entry
    return managed


def read_or_empty(raw: Any) -> Managed:
    """The entries of a managedFields list; empty if the list is malformed."""
    try:
        return read(raw)
    except EntryError:
        return {}


def _read_entry(item: Any) -> Entry:
    if not isinstance(item, dict) or item.get("operation") not in (APPLY, UPDATE):
        raise EntryError("operation must be `Apply` or `Update`")
    if not item.get("apiVersion"):
        raise EntryError("apiVersion must not be empty")
    if item.get("fieldsType") != "FieldsV1":
        raise EntryError("fieldsType must be FieldsV1")
    if not _is_set(item.get("fieldsV1") or {}):
        raise EntryError("fieldsV1 must be a set of fields")
    return Entry(item.get("manager") or "", item["operation"], item["apiVersion"], item.get("subresource") or "",
                 item.get("time") or "", item.get("fieldsV1") or {})


def _is_set(node: Any) -> bool:
    """Whether a value is a valid set of paths: nested objects whose keys are valid path elements."""
    if not isinstance(node, dict):
        return False
    for key, child in node.items():
        if key[:2] != "f:" and key != "." and not _is_item(key):
            return False
        if child != {} and not _is_set(child):
            return False
    return True


@lru_cache(4096)
def _is_item(key: str) -> bool:
    """Whether a path element identifies a list item by keys, by value or by index, in JSON."""
    try:
        value = json.loads(key[2:])
    except ValueError:
        return False
    return isinstance(value, _ITEMS.get(key[:2], ()))


def is_reset(raw: Any) -> bool:
    """Whether a managedFields list resets all managers: an empty list, or a list with one empty entry."""
    return raw is not None and (raw == [] or (len(raw) == 1 and not any((raw[0] or {}).values())))


def write(found: Iterable[Entry]) -> list[dict[str, Any]]:
    """The managedFields list, sorted by operation, time, manager, version and subresource."""
    return [_write_entry(entry) for entry in sorted(found, key=_rank)]


def _rank(entry: Entry) -> tuple[str, ...]:
    return (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource)


def _write_entry(entry: Entry) -> dict[str, Any]:
    item: dict[str, Any] = {"manager": entry.manager} if entry.manager else {}
    item |= {"operation": entry.operation, "apiVersion": entry.api_version}
    if entry.time:
        item["time"] = entry.time
    item["fieldsType"] = "FieldsV1"
    item["fieldsV1"] = entry.fields
    if entry.subresource:
        item["subresource"] = entry.subresource
    return item


def drop_empty(managed: Managed) -> Managed:
    """The entries that own at least one field."""
    return {identity: entry for identity, entry in managed.items() if entry.fields}


def cap_updaters(managed: Managed) -> Managed:
    """At most `MAX_UPDATERS` Update entries: the oldest of each version are joined as ``ancient-changes``."""
    updaters = sorted((entry for entry in managed.values() if entry.operation == UPDATE), key=_rank)
    surplus = len(updaters) - MAX_UPDATERS
    if surplus <= 0:
        return managed
    result = dict(managed)
    firsts: dict[str, Entry] = {}
    for entry in _while_surplus(updaters, surplus):
        first = firsts.get(entry.api_version)
        if first is None:
            firsts[entry.api_version] = entry
            continue
        bucket = Entry(ANCIENT, UPDATE, entry.api_version, "", entry.time, {})
        joined = result.get(bucket.identity) or result.pop(first.identity)
        result.pop(entry.identity, None)
        result[bucket.identity] = replace(bucket, fields=ordered(union(joined.fields, entry.fields)))
    return result


def _while_surplus(updaters: list[Entry], surplus: int) -> Iterable[Entry]:
    """Yield entries, oldest first, until `surplus` of them have the same API version as an earlier entry."""
    versions: set[str] = set()
    for entry in updaters:
        if surplus == 0:
            return
        surplus -= entry.api_version in versions
        versions.add(entry.api_version)
        yield entry


NEVER_OWNED = ("f:apiVersion", "f:kind")
NEVER_OWNED_METADATA = frozenset({
    SELF, "f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName", "f:generation",
    "f:managedFields", "f:resourceVersion"})


@dataclass(frozen=True, slots=True)
class ResetFields:
    """The paths that a request cannot write, and therefore does not own, whatever its body contains.

    `drop` are paths that are removed with everything below them (``("status",)`` on the main resource of a kind with
    /status). If `keep` is set, only this path remains (``("status",)`` on /status).
    """

    drop: tuple[tuple[str, ...], ...] = ()
    keep: tuple[str, ...] = ()

    def apply(self, fields: Fields) -> Fields:
        """The set without the paths that the request cannot write."""
        for path in self.drop:
            fields = without(fields, tuple("f:" + name for name in path))
        return only(fields, tuple("f:" + name for name in self.keep)) if self.keep else fields


NO_RESET = ResetFields()
ALL_BUT_STATUS = ResetFields(keep=("status",))
STATUS = ResetFields(drop=(("status",),))


def reset_for(subresource: str, *, has_status: bool) -> ResetFields:
    """The `ResetFields` for requests to an object (`subresource` is ""), or to one of its subresources. `has_status`:
    whether the kind has /status."""
    if subresource == "status":
        return ALL_BUT_STATUS
    return STATUS if has_status else NO_RESET


@dataclass(frozen=True, slots=True)
class Target:
    """The kind that is written: the request's version and schema, and the schemas of the other served versions.

    An entry of a version that is no longer served is dropped at the next change. `versions` is None if all
    versions of the kind have the same fields as `schema` (as far as ownership needs them).
    """

    api_version: str
    schema: Schema
    versions: Mapping[str, Schema] | None = None
    reset: ResetFields = NO_RESET

    def schema_of(self, api_version: str) -> Schema | None:
        """The schema of a version, or None if the version is not served."""
        if api_version == self.api_version:
            return self.schema
        return self.versions.get(api_version) if self.versions else None


def strip(fields: Fields) -> Fields:
    """The set without the paths that never have an owner, such as apiVersion, kind, metadata itself, name and uid."""
    result = {key: node for key, node in fields.items() if key not in NEVER_OWNED}
    if "f:metadata" in result:
        metadata = {key: node for key, node in result["f:metadata"].items() if key not in NEVER_OWNED_METADATA}
        if metadata:
            result["f:metadata"] = metadata
        else:
            del result["f:metadata"]
    return result


def known_versions(managed: Managed, target: Target) -> Managed:
    """The entries of served versions, without paths below fields that are leaves in the current schema."""
    result = {}
    for identity, entry in managed.items():
        schema = target.schema_of(entry.api_version)
        if schema is not None:
            result[identity] = entry.with_fields(_collapse(entry.fields, schema))
    return result


def _collapse(fields: Fields, schema: Schema) -> Fields:
    result: Fields = {}
    for key, node in fields.items():
        below = None
        if node:
            below = schema.field(key[2:]) if key.startswith("f:") else schema.element
        result[key] = node if below is None else {} if below.leaf else _collapse(node, below)
    return result


def conversion_error(old: Object, new: Object, managed: Managed, target: Target, writer: Identity | None = None) -> str:
    """Why the objects cannot be compared in the API versions of the other managers; "" if they can.

    Converting a custom resource here changes only the apiVersion, so a field that is unknown in one of the versions
    cannot be compared.
    """
    for version in {entry.api_version for identity, entry in managed.items() if identity != writer}:
        schema = target.schema_of(version)
        if version == target.api_version or schema is None or schema.name:  # only built-in kinds have named schemas
            continue
        for what, obj in (("old", old), ("new", new)):
            if found := typed_errors(obj, schema):
                return f"failed to convert {what} object: {found}"
    return ""


def take_over(old: Object, new: Object, managed: Managed, target: Target, *, writer: Identity | None = None,
              changes: tuple[Fields, Fields] | None = None) -> tuple[Managed, dict[Identity, Fields]]:
    """Take the changed and removed paths away from the other managers.

    Returns (the remaining entries, the paths that each other manager lost because their value changed). The entry with
    the identity `writer`, if given, is not touched. Entries that no longer own any path are dropped. `changes` is the
    comparison of both objects in the request's version, if the caller already has it.
    """
    by_version: dict[str, tuple[Fields, Fields]] = {}
    if changes is not None:
        by_version[target.api_version] = (target.reset.apply(changes[0]), target.reset.apply(changes[1]))
    result: Managed = {}
    conflicts: dict[Identity, Fields] = {}
    for identity, entry in managed.items():
        if identity == writer:
            result[identity] = entry
            continue
        found = by_version.get(entry.api_version)
        if found is None:
            schema = target.schema_of(entry.api_version)
            if schema is None:
                continue
            changed, removed = compare(old, new, schema)
            found = (target.reset.apply(changed), target.reset.apply(removed))
            by_version[entry.api_version] = found
        taken = intersection(entry.fields, found[0])
        if taken:
            conflicts[identity] = taken
        result[identity] = _less(_less(entry, taken), found[1])
    return drop_empty(result), conflicts


def _less(entry: Entry, fields: Fields) -> Entry:
    return entry.with_fields(difference(entry.fields, fields)) if fields else entry
