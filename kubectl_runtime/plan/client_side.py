"""What `kubectl apply` removes: fields that it applied before and that the file no longer names.

`kubectl apply` without `--server-side` writes as an updater, and keeps its last file in an annotation. A server-side
apply by another manager would leave all of this updater's fields. `taken_over` therefore rewrites the managers of such
an object, as `kubectl apply --server-side` does when it first meets the object:

| fields | manager afterwards |
|---|---|
| that the updater owns and the last file names | `kubectl`, as an applier, and no longer the updater |
| that the last file names and the new file does not, with everything below | `kubectl` alone |
| all others, for example defaults | as before |

The next server-side apply as `kubectl` then removes the same fields as `kubectl apply`. A field that the new file gives
as null counts as one that the last file names and the new file does not. If the annotation is redacted, all fields of
the updater count as named by the last file, except `data` if the new file has `stringData`. Items of lists are removed
only if no other manager owns them. In an item of a list of a custom resource all fields count as named, since
`kubectl apply` replaces these lists.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from kubectl_runtime.apiserver.managedfields.entries import APPLY, UPDATE, Entry, read_or_empty, write
from kubectl_runtime.apiserver.managedfields.fieldset import SELF, Fields, contains, difference, paths, union, without
from kubectl_runtime.apiserver.managedfields.manager import LAST_APPLIED
from kubectl_runtime.apiserver.storage import Cluster, ServedResource
from kubectl_runtime.core.codec.views import without_nulls
from kubectl_runtime.plan.stored import Object

KUBECTL = "kubectl"
"""The field manager of `kubectl apply --server-side`."""
_ANNOTATION: Fields = {"f:metadata": {"f:annotations": {"f:" + LAST_APPLIED: {}}}}
_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""The metadata that `kubectl apply` changes."""
_ANNOTATION_PATH = ("f:metadata", "f:annotations", "f:" + LAST_APPLIED)


def kubectl_apply(api: Any, cluster: Cluster, kind: ServedResource, file: Object) -> None:
    """Apply an object of `kind` through `api` as `kubectl apply` does; take over fields of other managers. The managers
    are rewritten in the storage of `cluster`, because admission must only see the new object. Raises ApiError and
    RequestError."""
    found = api.get_opt(file["metadata"]["name"])
    if found is not None:
        live = found.to_dict()
        managers = taken_over(live, file, strategic=not kind.is_custom)
        if managers is not None:
            _rewrite(cluster, kind, live["metadata"], managers)
        file = without_nulls(file, lists=not kind.is_custom)
    api.apply(file, field_manager=KUBECTL, force=True)


def _rewrite(cluster: Cluster, kind: ServedResource, metadata: Object, managers: list[dict[str, Any]]) -> None:
    """Replace the managedFields of a stored object."""
    with cluster.locked():
        stored = cluster.storage.get(kind.storage, metadata.get("namespace", ""), metadata["name"])
        if stored is not None:
            obj = stored.decode()
            cluster.storage.put(kind.storage, {**obj, "metadata": {**obj["metadata"], "managedFields": managers}},
                                stored.fields, stored_as=stored.stored_as)


def taken_over(live: Object, file: Object, *, strategic: bool) -> list[dict[str, Any]] | None:
    """The managedFields with which a server-side apply of `file` removes what `kubectl apply` would remove; None if
    `live` was not made by `kubectl apply` without `--server-side`. `strategic`: whether `kubectl apply` merges lists of
    this kind by the keys of their items."""
    managed = read_or_empty(live["metadata"].get("managedFields"))
    updaters = [entry for entry in managed.values() if entry.operation == UPDATE and not entry.subresource
                and contains(entry.fields, _ANNOTATION_PATH)]
    if not updaters:
        return None
    last = _last_file(live)
    new = _content(without_nulls(file, lists=strategic))
    left = union(_left_out(last or {}, new), _left_out(_content(file), new))
    owned = left
    for updater in updaters:
        if updater.api_version == updaters[0].api_version:
            if last is not None:
                named = _named(updater.fields, last, new, items=strategic)
            else:
                named = without(updater.fields, ("f:data",)) if "stringData" in new else updater.fields
            owned = union(owned, named)
            managed[updater.identity] = updater.with_fields(union(difference(updater.fields, named), _ANNOTATION))
    managed = {identity: entry.with_fields(reduce(without, paths(left), entry.fields))
               for identity, entry in managed.items()}
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
    metadata = file.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    kept = {key: metadata[key] for key in _METADATA if key in metadata}
    return {**{key: value for key, value in file.items() if key not in ("apiVersion", "kind", "status")},
            "metadata": {**kept, "annotations": metadata.get("annotations") or {}}}


def _left_out(last: Mapping[str, Any], new: Mapping[str, Any]) -> Fields:
    """The fields of maps that `last` has and `new` does not."""
    found: Fields = {}
    for key, value in last.items():
        if key not in new:
            found["f:" + key] = {}
        elif isinstance(value, dict) and isinstance(new[key], dict) and (below := _left_out(value, new[key])):
            found["f:" + key] = below
    return found


def _named(fields: Fields, last: Mapping[str, Any], new: Mapping[str, Any], *, items: bool) -> Fields:
    """The fields that `last` names. What `new` does not name is included with everything below, and so are the items of
    lists unless `items`."""
    found: Fields = {}
    for key, below in fields.items():
        if key == SELF:
            found[key] = below
        elif key.startswith("f:") and (name := key[2:]) in last:
            rest = _named_below(below, last[name], new.get(name), items=items)
            if rest or not below:
                found[key] = rest
    return found


def _named_below(below: Fields, last: Any, new: Any, *, items: bool) -> Fields:
    if isinstance(last, dict) and isinstance(new, dict):
        return _named(below, last, new, items=items)
    if not (items and isinstance(last, list) and isinstance(new, list)):
        return below
    found: Fields = {}
    for key, inner in below.items():
        if not key.startswith("k:"):
            found[key] = inner
        elif (before := _item(last, keys := json.loads(key[2:]))) is not None:
            after = _item(new, keys)
            found[key] = inner if after is None else _named(inner, {**keys, **before}, {**keys, **after}, items=items)
    return found


def _item(items: list[Any], keys: Mapping[str, Any]) -> Object | None:
    """The item of a list that has these keys; an item may leave out keys, which then have their defaults."""
    fitting = [item for item in items if isinstance(item, dict)
               and all(item.get(key, value) == value for key, value in keys.items())]
    return max(fitting, key=lambda item: len(keys.keys() & item.keys()), default=None)
