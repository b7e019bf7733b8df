"""The entries of ``metadata.managedFields``: read, written, told apart, capped.

An entry is identified by manager, operation and subresource, and for updates also by apiVersion: an applier has one
entry whatever the version it used last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from kubectl_runtime.apiserver.managedfields.fieldset import Fields, ordered, union

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATERS = 10
_ITEMS: dict[str, type] = {"k:": dict, "v:": object, "i:": int}
ANCIENT = "ancient-changes"

Identity = tuple[str, str, str, str]


class EntryError(ValueError):
    """An entry that the server cannot read; the whole list then counts as absent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; `time` is the RFC 3339 text or "", `fields` the set (never changed in place)."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: Fields

    @property
    def identity(self) -> Identity:
        """What tells the entry from others."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def with_fields(self, fields: Fields) -> Entry:
        """The entry with another set."""
        return replace(self, fields=fields)

    def title(self) -> str:
        """How messages name the manager: ``"beta"``, ``"kubectl-edit" with subresource "status" using v1``."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


Managed = dict[Identity, Entry]


def read(raw: Any) -> Managed:
    """The entries of a managedFields list; `EntryError` if one of them is malformed."""
    managed: Managed = {}
    for item in raw or ():
        entry = _read_entry(item)
        managed[entry.identity] = entry
    return managed


def read_or_empty(raw: Any) -> Managed:
    """The entries of a list, none if it is malformed."""
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
    """Whether a value is a set of paths: objects all the way down, with elements that say what they are."""
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
    """Whether a path element is that of a list item: keys, a value or a number, in JSON."""
    try:
        value = json.loads(key[2:])
    except ValueError:
        return False
    return isinstance(value, _ITEMS.get(key[:2], ()))


def is_reset(raw: Any) -> bool:
    """Whether a list asks to forget all managers: empty, or one empty entry."""
    return raw is not None and (raw == [] or (len(raw) == 1 and not any((raw[0] or {}).values())))


def write(found: Iterable[Entry]) -> list[dict[str, Any]]:
    """The managedFields list: by operation, time, manager, version and subresource."""
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
    """The entries that own something."""
    return {identity: entry for identity, entry in managed.items() if entry.fields}


def cap_updaters(managed: Managed) -> Managed:
    """At most `MAX_UPDATERS` entries of updates: the oldest ones of each version are joined as ``ancient-changes``."""
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
    """The oldest entries until as many were joined to an earlier one of their version as are too many."""
    versions: set[str] = set()
    for entry in updaters:
        if surplus == 0:
            return
        surplus -= entry.api_version in versions
        versions.add(entry.api_version)
        yield entry
