"""Who loses what when an object changes, and which paths are nobody's: the part that updates and applies share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.managedfields.entries import Entry, Identity, Managed, drop_empty
from kubectl_runtime.apiserver.managedfields.fieldset import (
    SELF,
    Fields,
    compare,
    difference,
    intersection,
    only,
    without,
)
from kubectl_runtime.apiserver.managedfields.typed_merge import typed_errors
from kubectl_runtime.apiserver.schemas import Schema

Object = dict[str, Any]
NEVER_OWNED = ("f:apiVersion", "f:kind")
NEVER_OWNED_METADATA = frozenset({
    SELF, "f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid", "f:clusterName", "f:generation",
    "f:managedFields", "f:resourceVersion"})


@dataclass(frozen=True, slots=True)
class ResetFields:
    """The paths that a request cannot write, whatever its body says: they are owned by nobody for it.

    `drop` are paths that are left out with all below them (``("status",)`` on the main resource of a kind with
    /status); `keep`, if set, is the only path that counts (``("status",)`` on /status).
    """

    drop: tuple[tuple[str, ...], ...] = ()
    keep: tuple[str, ...] = ()

    def apply(self, fields: Fields) -> Fields:
        """A set without what the request cannot write."""
        for path in self.drop:
            fields = without(fields, tuple("f:" + name for name in path))
        return only(fields, tuple("f:" + name for name in self.keep)) if self.keep else fields


NO_RESET = ResetFields()
ALL_BUT_STATUS = ResetFields(keep=("status",))
STATUS = ResetFields(drop=(("status",),))


def reset_for(subresource: str, *, has_status: bool) -> ResetFields:
    """What a request to the main resource or to a subresource cannot write, for a kind with or without /status."""
    if subresource == "status":
        return ALL_BUT_STATUS
    return STATUS if has_status else NO_RESET


@dataclass(frozen=True, slots=True)
class Target:
    """The kind that is written: the request's version and schema, and the schemas of the other served versions.

    An entry of a version that is not served any more is dropped at the next change. `versions` is None for kinds whose
    versions all have the fields of `schema`, as far as ownership goes.
    """

    api_version: str
    schema: Schema
    versions: Mapping[str, Schema] | None = None
    reset: ResetFields = NO_RESET

    def schema_of(self, api_version: str) -> Schema | None:
        """The schema of a version, None if it is not served."""
        if api_version == self.api_version:
            return self.schema
        return self.versions.get(api_version) if self.versions else None


def strip(fields: Fields) -> Fields:
    """A set without the paths that nobody owns: type, name, uid and the like; metadata itself too."""
    result = {key: node for key, node in fields.items() if key not in NEVER_OWNED}
    if "f:metadata" in result:
        metadata = {key: node for key, node in result["f:metadata"].items() if key not in NEVER_OWNED_METADATA}
        if metadata:
            result["f:metadata"] = metadata
        else:
            del result["f:metadata"]
    return result


def known_versions(managed: Managed, target: Target) -> Managed:
    """The entries of served versions, brought to today's schema: below what is one value now, nothing is owned."""
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
    """Why the objects cannot be compared in the versions of the other managers; "" if they can.

    Versions of a custom resource are converted by name only: a field that one of them does not know has no place there.
    """
    for version in {entry.api_version for identity, entry in managed.items() if identity != writer}:
        schema = target.schema_of(version)
        if version == target.api_version or schema is None or schema.name:  # built-in kinds, which have names, convert
            continue
        for what, obj in (("old", old), ("new", new)):
            if found := typed_errors(obj, schema):
                return f"failed to convert {what} object: {found}"
    return ""


def take_over(old: Object, new: Object, managed: Managed, target: Target, *, writer: Identity | None = None,
              changes: tuple[Fields, Fields] | None = None) -> tuple[Managed, dict[Identity, Fields]]:
    """(entries less what the change took from them, what was taken from each other manager by value).

    The writer's own entry (None: there is none) is not touched. Entries that own nothing any more are gone. `changes`
    is the comparison of the two objects in the request's version, if the caller has it.
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
