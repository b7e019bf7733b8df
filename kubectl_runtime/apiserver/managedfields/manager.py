"""`update` and `apply`: the effect of a write on an object and on its ``metadata.managedFields``.

- Update (create, PUT, patches): the writer owns the fields that it added or changed, and keeps the fields that it owned
  before. Other managers lose the changed fields, and all managers lose removed fields. The time of the writer's entry
  changes only if the writer gained a field or changed a value.
- Apply (server-side apply): the configuration is merged into the object. Fields that the applier applied before and no
  longer applies are removed unless another manager owns them. A value that differs from another manager's value is a
  conflict.

If an object's managers were reset, an update adds no manager, and the first apply gives all existing fields to the
manager ``before-first-apply``. All functions are pure: arguments are never changed, but the result may share parts with
them.

The managedFields of a Scale contain the managers that own the object's field `replicas`. A write to the Scale changes
the managedFields of the object. The following surprising details of the real server are kept on purpose. Any write to
/scale splits the managedFields entry of an updater that owns the field `replicas`. The new part has no time, like every
entry that is read from a Scale. Both parts then have the same identity, so that the next write reads only the last
part, and the field has no owner.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.errors import Cause, StatusError, bad_request
from kubectl_runtime.apiserver.managedfields import entries
from kubectl_runtime.apiserver.managedfields.entries import (
    APPLY,
    NO_RESET,
    UPDATE,
    Entry,
    Identity,
    Managed,
    ResetFields,
    Target,
    conversion_error,
    known_versions,
    strip,
    take_over,
)
from kubectl_runtime.apiserver.managedfields.fieldset import (
    Fields,
    compare,
    contains,
    difference,
    intersection,
    ordered,
    path_text,
    paths,
    union,
    without,
)
from kubectl_runtime.apiserver.managedfields.typed_merge import field_set, merge, named_members, remove, typed_errors
from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import equal_json
from kubectl_runtime.core.meta.metav1 import format_time


def prune(merged: Object, managed: Managed, last: Entry | None, target: Target) -> Object:
    """`merged` without the paths that the applier owned in its entry `last` and that no entry of `managed` owns now.

    An item or struct that still contains owned fields stays. If the API version of `last` is no longer served, nothing
    is removed.
    """
    schema = target.schema_of(last.api_version) if last else None
    if last is None or schema is None or not last.fields:
        return merged
    now = managed[last.identity]
    if now.api_version == last.api_version and not difference(last.fields, now.fields):
        return merged  # all paths of `last` are applied again
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
    """`merged` without the paths that `pruned` lacks. Paths in `owned` stay."""
    everything = named_members(field_set(merged, schema), schema)
    remaining = named_members(field_set(pruned, schema), schema)
    kept = union(remaining, named_members(owned, schema))
    result: Object = remove(merged, difference(everything, kept), schema) or {}
    return result


BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def update(old: Object | None, new: Object, *, manager: str, api_version: str, schema: Schema, now: datetime,
           subresource: str = "", blank: Object | None = None, reset: ResetFields = NO_RESET,
           versions: Mapping[str, Schema] | None = None) -> Object:
    """`new` with its managedFields after a create (`old` is None) or an update by `manager`.

    Both objects are in the request's version; `new` is the client's object or the result of a patch, with defaults.
    `blank` is the empty object of the kind. A create does not own fields whose values are the same in `blank`. `reset`
    contains the paths that this request cannot write. `versions` maps the other served apiVersions to their schemas;
    None if they all have the fields of `schema`. If `new` has readable managedFields and the request is not for a
    subresource, the entries of `new` are updated, otherwise the entries of `old`.
    """
    target = Target(api_version, schema, versions, reset)
    content = _without_managed_fields(new)
    managed = _chosen_entries(old, new, subresource)
    if not managed and old is not None:
        return content
    live = _without_managed_fields(old) if old is not None else blank or {}
    writer = Entry(manager or "unknown", UPDATE, api_version, subresource, format_time(now), {})
    return _with_managed_fields(content, _updated(live, content, managed, writer, target))


def _updated(live: Object, new: Object, managed: Managed, writer: Entry, target: Target) -> Managed:
    """The entries after an update; no entries if the versions cannot be compared, which the real server only logs."""
    if conversion_error(live, new, managed, target):
        return {}
    changed, removed = compare(live, new, target.schema)
    managed = {identity: entry for identity, entry in managed.items()
               if entry.fields and target.schema_of(entry.api_version)}
    if managed and (changed or removed):
        managed, _ = take_over(live, new, known_versions(managed, target), target, changes=(changed, removed))
    taken = strip(target.reset.apply(changed))
    if not taken:
        return managed
    previous = managed.get(writer.identity)
    fields = taken
    if previous is not None:
        fields = ordered(union(taken, previous.fields)) if difference(taken, previous.fields) else previous.fields
    return entries.cap_updaters({**managed, writer.identity: writer.with_fields(fields)})


def apply(old: Object | None, applied: Object, *, manager: str, force: bool, api_version: str, schema: Schema,
          now: datetime, subresource: str = "", blank: Object | None = None, reset: ResetFields = NO_RESET,
          versions: Mapping[str, Schema] | None = None) -> Object:
    """The object, with managedFields, after `manager` applied a configuration to `old` (None if it does not exist).

    `applied` is the configuration as sent. The result still has to be decoded, defaulted and validated. The other
    arguments are as for `update`. An apply that changes no value keeps the time of the applier's entry; a new entry
    has no time in this case. Raises StatusError 400 if the configuration has managedFields, and 500 (as the real server
    does) if it does not fit the schema. Unless `force`, raises 409 with a FieldManagerConflict cause for each path that
    another manager owns with another value.
    """
    target = Target(api_version, schema, versions, reset)
    if (applied.get("metadata") or {}).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    applied = _without_managed_fields(applied)
    if errors := typed_errors(applied, schema):
        raise StatusError(500, "", f"failed to create typed patch object ({title(applied)}): {errors}")
    empty = {**(blank or {}), "apiVersion": applied["apiVersion"], "kind": applied["kind"]}
    live = _without_managed_fields(old) if old is not None else empty
    managed = entries.read_or_empty((old or {}).get("metadata", {}).get("managedFields"))
    if not managed:
        first = Entry(BEFORE_FIRST_APPLY, UPDATE, api_version, subresource, format_time(now), {})
        managed = _updated(empty, live, {}, first, target)
    writer = Entry(manager, APPLY, api_version, subresource, format_time(now), {})
    try:
        result, managed = _applied(live, applied, managed, writer, target, force=force)
    except _Conflicts as conflicts:
        allowed = _client_side_applied(live, target) if manager == "kubectl" else None
        remaining = conflicts.without(allowed) if allowed is not None else conflicts
        if remaining.found:
            raise remaining.status() from None
        result, managed = _applied(live, applied, managed, writer, target, force=True)
    if manager == "kubectl":
        result = _with_last_applied(result, applied)
    return _with_managed_fields(result, managed)


def _applied(live: Object, applied: Object, managed: Managed, writer: Entry, target: Target, *, force: bool,
             ) -> tuple[Object, Managed]:
    """Returns (the object, its entries) after an apply."""
    managed = known_versions(managed, target)
    last = managed.get(writer.identity)
    fields = target.reset.apply(field_set(applied, target.schema))
    managed[writer.identity] = writer.with_fields(fields)
    merged = merge(live, applied, target.schema)
    result = prune(merged, managed, last, target)
    if why := conversion_error(live, result, managed, target, writer.identity):
        raise StatusError(500, "", why)
    managed, conflicts = take_over(live, result, managed, target, writer=writer.identity)
    if conflicts and not force:
        raise _Conflicts([(managed_by, path) for managed_by, taken in _named(conflicts) for path in paths(taken)])
    unchanged = equal_json(live, result)
    managed.pop(writer.identity, None)
    if own := strip(fields):
        time = (last.time if last else "") if unchanged else writer.time
        managed[writer.identity] = replace(writer, time=time, fields=ordered(own))
    return (live if unchanged else result), managed


def _named(conflicts: dict[Identity, Fields]) -> list[tuple[str, Fields]]:
    titled = [(Entry(name, operation, version, subresource, "", {}).title(), fields)
              for (name, operation, version, subresource), fields in conflicts.items()]
    return sorted(titled, key=lambda item: item[0])


class _Conflicts(Exception):
    """The paths that other managers own with other values, as sorted pairs (title of the manager, path)."""

    def __init__(self, found: list[tuple[str, tuple[str, ...]]]) -> None:
        super().__init__()
        self.found = found

    def without(self, allowed: Fields) -> _Conflicts:
        """The conflicts without those at `allowed` paths."""
        return _Conflicts([(title, path) for title, path in self.found if not contains(allowed, path)])

    def status(self) -> StatusError:
        """The 409 that lists the conflicts."""
        causes = [Cause("FieldManagerConflict", f"conflict with {title}", path_text(path))
                  for title, path in self.found]
        if len(causes) == 1:
            return StatusError(409, "Conflict", f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}",
                               causes=causes)
        lines: list[str] = []
        for index, (title, path) in enumerate(self.found):
            if index == 0 or self.found[index - 1][0] != title:
                lines.append(f"conflicts with {title}:")
            lines.append(f"- {path_text(path)}")
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
        return StatusError(409, "Conflict", message, causes=causes)


def _client_side_applied(live: Object, target: Target) -> Fields | None:
    """The unchanged fields that `kubectl apply` has set, which kubectl's server-side apply may take over."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        configuration = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(configuration, dict) or configuration.get("apiVersion") != target.api_version:
        return None
    if typed_errors(configuration, target.schema):
        return None
    changed, removed = compare(configuration, live, target.schema)
    return difference(difference(field_set(configuration, target.schema), changed), removed)


def _with_last_applied(result: Object, applied: Object) -> Object:
    """Update the last-applied annotation, if the object has one, after kubectl's server-side apply."""
    metadata = result.get("metadata") or {}
    if not (metadata.get("annotations") or {}).get(LAST_APPLIED):
        return result
    configuration = dict(applied)
    if annotations := (applied.get("metadata") or {}).get("annotations"):
        kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        configuration["metadata"] = {**applied["metadata"], "annotations": kept}
    text = json.dumps(configuration, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return {**result, "metadata": {**metadata, "annotations": {**metadata["annotations"], LAST_APPLIED: text}}}


def _chosen_entries(old: Object | None, new: Object, subresource: str) -> Managed:
    """The entries that an update changes. They are read from the old object if the request is for a subresource or has
    no readable entries, otherwise from the request. No entries if the request resets them."""
    if not subresource:
        sent = (new.get("metadata") or {}).get("managedFields")
        if entries.is_reset(sent):
            return {}
        managed = entries.read_or_empty(sent)
        if managed:
            return managed
    return entries.read_or_empty((old or {}).get("metadata", {}).get("managedFields"))


def _without_managed_fields(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _with_managed_fields(obj: Object, managed: Managed) -> Object:
    if not managed:
        return obj
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": entries.write(managed.values())}}


def title(applied: Object) -> str:
    """The name of a configuration in messages: ``namespace/name; group/version, Kind=Kind``."""
    metadata = applied.get("metadata") or {}
    api_version = applied["apiVersion"]
    kind = f"{api_version if '/' in api_version else '/' + api_version}, Kind={applied['kind']}"
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {kind}"


SCALE = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
ReplicasPaths = Mapping[str, tuple[str, ...]]  # path elements of the replicas field, by apiVersion


def to_scale(raw: Any, replicas: ReplicasPaths) -> list[dict[str, Any]]:
    """The object's entries that own the replicas, converted to entries of a Scale."""
    return entries.write([Entry(entry.manager, entry.operation, SCALE, entry.subresource, entry.time, _set(_REPLICAS))
                          for entry in entries.read_or_empty(raw).values() if _owns(entry, replicas)])


def to_object(raw: Any, raw_scale: Any, api_version: str, replicas: ReplicasPaths) -> list[dict[str, Any]]:
    """The entries of an object after a write to its Scale.

    `raw` are the object's entries before the write, `raw_scale` the Scale's entries after it.
    """
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
