"""What `kubectl apply` removes: fields that it applied before and that the file no longer names.

`kubectl apply` without `--server-side` writes as an updater, and keeps its last file in an annotation. A server-side
apply by another manager would leave all of this updater's fields. `taken_over` therefore rewrites the managers of such
an object, as `kubectl apply --server-side` does when it first meets the object:

| fields | manager afterwards |
|---|---|
| that the updater owns and the last file names | `kubectl`, as an applier, and no longer the updater |
| that the last file names and the new file does not, with everything below | `kubectl` alone |
| all others, for example defaults | as before |

The next server-side apply as `kubectl` then removes the same fields as `kubectl apply`. If the annotation is redacted,
all fields of the updater count as named by the last file. Items of lists are removed only if no other manager owns
them.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubectl_runtime.apiserver.managedfields.entries import APPLY, UPDATE, Entry, read_or_empty, write
from kubectl_runtime.apiserver.managedfields.fieldset import SELF, Fields, contains, difference, union
from kubectl_runtime.apiserver.managedfields.manager import LAST_APPLIED
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.plan.stored import Object

KUBECTL = "kubectl"
"""The field manager of `kubectl apply --server-side`."""
_ANNOTATION: Fields = {"f:metadata": {"f:annotations": {"f:" + LAST_APPLIED: {}}}}
_ANNOTATION_PATH = ("f:metadata", "f:annotations", "f:" + LAST_APPLIED)


def kubectl_apply(api: Any, file: Object) -> None:
    """Apply an object through `api` as `kubectl apply` does; take over fields of other managers. Raises ApiError and
    RequestError."""
    name = file["metadata"]["name"]
    live = api.get_opt(name)
    managers = None if live is None else taken_over(live.to_dict(), file)
    if managers is not None:
        api.patch(name, Patch.merge({"metadata": {"managedFields": managers}}), field_manager=KUBECTL)
    api.apply(file, field_manager=KUBECTL, force=True)


def taken_over(live: Object, file: Object) -> list[dict[str, Any]] | None:
    """The managedFields with which a server-side apply of `file` removes what `kubectl apply` would remove; None if
    `live` was not made by `kubectl apply` without `--server-side`."""
    managed = read_or_empty(live["metadata"].get("managedFields"))
    updaters = [entry for entry in managed.values() if entry.operation == UPDATE and not entry.subresource
                and contains(entry.fields, _ANNOTATION_PATH)]
    if not updaters:
        return None
    last = _last_file(live)
    left = {} if last is None else _left_out(last, _content(file))
    owned = left
    for updater in updaters:
        if updater.api_version == updaters[0].api_version:
            named = updater.fields if last is None else _named(updater.fields, last)
            owned = union(owned, named)
            managed[updater.identity] = updater.with_fields(union(difference(updater.fields, named), _ANNOTATION))
    managed = {identity: entry.with_fields(_without(entry.fields, left)) for identity, entry in managed.items()}
    applier = Entry(KUBECTL, APPLY, updaters[0].api_version, "", updaters[0].time, {})
    applier = managed.get(applier.identity, applier)
    managed[applier.identity] = replace(applier, fields=union(applier.fields, owned))
    return write(entry for entry in managed.values() if entry.fields)


def _last_file(live: Object) -> Object | None:
    """The content of the file that was applied last; None if the annotation is redacted or damaged."""
    try:
        last = json.loads(live["metadata"]["annotations"][LAST_APPLIED])
    except (KeyError, TypeError, ValueError):
        return None
    return _content(last) if isinstance(last, dict) and last.get("apiVersion") == live["apiVersion"] else None


def _content(file: Object) -> Object:
    """A file without the fields that no apply changes. A file always names the annotations, since kubectl adds one."""
    metadata = file.get("metadata") or {}
    kept = {key: metadata[key] or {} for key in ("labels", "annotations") if key in metadata}
    return {**{key: value for key, value in file.items() if key not in ("apiVersion", "kind", "status")},
            "metadata": {"annotations": {}, **kept}}


def _left_out(last: Mapping[str, Any], new: Mapping[str, Any]) -> Fields:
    """The fields of maps that `last` has and `new` does not."""
    found: Fields = {}
    for key, value in last.items():
        if key not in new:
            found["f:" + key] = {}
        elif isinstance(value, dict) and isinstance(new[key], dict) and (below := _left_out(value, new[key])):
            found["f:" + key] = below
    return found


def _named(fields: Fields, file: Mapping[str, Any]) -> Fields:
    """The fields that the file names. Items of a list that it names are included."""
    found: Fields = {}
    for key, below in fields.items():
        if key == SELF:
            found[key] = below
        elif key.startswith("f:") and (name := key[2:]) in file:
            part = file[name]
            rest = _named(below, part) if below and isinstance(part, dict) else below
            if rest or not below:
                found[key] = rest
    return found


def _without(fields: Fields, left: Fields) -> Fields:
    """The fields without those of `left` and everything below them."""
    found: Fields = {}
    for key, below in fields.items():
        if key not in left:
            found[key] = below
        elif left[key] and (not below or (rest := _without(below, left[key]))):
            found[key] = below and rest
    return found
