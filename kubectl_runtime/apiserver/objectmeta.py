"""Rules for the ``metadata`` of every kind: validation, cleaning of input, and fields that an update cannot change."""
from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.names import (
    MAX_ANNOTATIONS,
    NameErrors,
    dns_subdomain_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.strategy import WHOLE, MetadataChecks, Strategy
from kubectl_runtime.apiserver.wire import Object

STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_IMMUTABLE = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
MAX_MANAGER = 128  # bytes
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_DUPLICATE_OWNERS = (".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references "
                     "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
                     "duplicate UID(s) observed: ")


def validate_create(metadata: Object, strategy: Strategy) -> list[Cause]:
    """Return a cause for each error of a new object's metadata.

    Generic name checks run only if all other checks pass.
    """
    checks = strategy.metadata_checks
    if not checks.on_create:
        return _whole(metadata, path_segment_errors)
    causes = _whole(metadata, strategy.validate_name) + _plain_finalizers(metadata, checks)
    return causes or _names(metadata, path_segment_errors)


def validate_update(new: Object, old: Object, strategy: Strategy, subresource: str) -> list[Cause]:
    """Return a cause for each error of updated metadata: an invalid value, or a forbidden change.

    A cause is repeated if the real server repeats it.
    """
    causes = _whole(new, path_segment_errors) + _change(new, old)
    checks = strategy.metadata_checks
    for check in checks.of_update(subresource):
        causes += _whole(new, strategy.validate_name) if check == WHOLE else _change(new, old)
        causes += _plain_finalizers(new, checks)
    return causes


def _whole(metadata: Object, name_errors: NameErrors) -> list[Cause]:
    """All problems of metadata, without comparing it to an older state."""
    causes = _names(metadata, name_errors)
    if metadata.get("generation", 0) < 0:
        causes.append(errors.invalid_value("metadata.generation", metadata["generation"],
                                           "must be greater than or equal to 0"))
    return causes + _parts(metadata) + _finalizers(metadata.get("finalizers") or [])


def _names(metadata: Object, name_errors: NameErrors) -> list[Cause]:
    causes = []
    if prefix := metadata.get("generateName"):
        causes += [errors.invalid_value("metadata.generateName", prefix, error)
                   for error in name_errors(prefix, prefix=True)]
    if name := metadata.get("name"):
        causes += [errors.invalid_value("metadata.name", name, error) for error in name_errors(name)]
    else:
        causes.append(errors.required("metadata.name", "name or generateName is required"))
    return causes


def _parts(metadata: Object) -> list[Cause]:
    return (label_causes(metadata.get("labels") or {}) + annotation_causes(metadata.get("annotations") or {})
            + _owners(metadata.get("ownerReferences") or []) + _managers(metadata.get("managedFields") or ()))


def _managers(entries: Iterable[Object]) -> list[Cause]:
    return [cause for index, entry in enumerate(entries)
            for cause in manager_causes(entry.get("manager") or "", f"metadata.managedFields[{index}].manager")]


def manager_causes(manager: str, field: str) -> list[Cause]:
    causes = [errors.too_long(field, MAX_MANAGER)] if len(manager.encode()) > MAX_MANAGER else []
    return causes if manager.isprintable() else causes + [
        errors.invalid_value(field, manager, f"invalid character U+{ord(character):04X} (at position {index})")
        for index, character in enumerate(manager) if not character.isprintable()]


def label_causes(labels: Object) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        causes += [errors.invalid_value("metadata.labels", key, error) for error in qualified_name_errors(key)]
        causes += [errors.invalid_value("metadata.labels", value, error) for error in label_value_errors(value)]
    return causes


def annotation_causes(annotations: Object) -> list[Cause]:
    causes = [errors.invalid_value("metadata.annotations", key, error)
              for key in annotations for error in qualified_name_errors(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS:
        causes.append(errors.too_long("metadata.annotations", MAX_ANNOTATIONS))
    return causes


def _owners(owners: list[Object]) -> list[Cause]:
    causes: list[Cause] = []
    at = "metadata.ownerReferences"
    for owner in owners:
        version = owner.get("apiVersion") or ""
        if not version.rpartition("/")[2] or version.count("/") > 1:
            causes.append(errors.invalid_value(f"{at}.apiVersion", version, "version must not be empty"))
        elif version in ("v1", "/v1") and owner.get("kind") == "Event":
            causes.append(errors.invalid_value(at, owner, "/v1, Kind=Event is disallowed from being an owner"))
        causes += [errors.invalid_value(f"{at}.{key}", owner.get(key) or "", "must not be empty")
                   for key in ("kind", "name", "uid") if not owner.get(key)]
    controllers = [owner_text(owner) for owner in owners if owner.get("controller")]
    return causes + [errors.invalid_value(at, owners, "Only one reference can have Controller set to true. Found "
                                          f'"true" in references for {controllers[0]} and {other}')
                     for other in controllers[1:]]


def owner_text(owner: Object) -> str:
    """An owner as messages name it."""
    return f"{owner.get('kind', '')}/{owner.get('name', '')}"


def _finalizers(finalizers: list[str]) -> list[Cause]:
    causes = [errors.invalid_value("metadata.finalizers", name, error)
              for name in finalizers for error in qualified_name_errors(name)]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        causes.append(errors.invalid_value("metadata.finalizers", finalizers,
                                           f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"))
    return causes


def collector_finalizers(before: list[str], policy: str, *, orphans: bool = False) -> list[str]:
    """An object's finalizers after a delete request.

    The propagation policy ("" for none) decides which of the garbage collector's finalizers the object has. `orphans`
    must be true for kinds whose dependents are orphaned by default.
    """
    orphan = policy == "Orphan" or (not policy and (ORPHAN in before or (orphans and FOREGROUND not in before)))
    foreground = policy == "Foreground" or (not policy and FOREGROUND in before)
    after = [name for name in before if name not in (ORPHAN, FOREGROUND)]
    after += [name for name, wanted in ((ORPHAN, orphan), (FOREGROUND, foreground)) if wanted]
    return before if set(after) == set(before) else after


def _plain_finalizers(metadata: Object, checks: MetadataChecks) -> list[Cause]:
    """Causes for finalizers without a domain if the kind refuses them; custom resources get a warning instead."""
    if not checks.qualified_finalizers:
        return []
    return [errors.invalid_value(f"metadata.finalizers[{index}]", name,
                                 "name is neither a standard finalizer name nor is it fully qualified")
            for index, name in enumerate(metadata.get("finalizers") or ())
            if "/" not in name and name not in STANDARD_FINALIZERS]


def _change(new: Object, old: Object) -> list[Cause]:
    causes = []
    if "deletionTimestamp" in old:
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            listed = ", ".join(json.dumps(name) for name in added)
            causes.append(errors.forbidden_field("metadata.finalizers",
                                                 "no new finalizers can be added if the object is being "
                                                 f"deleted, found new finalizers []string{{{listed}}}"))
    causes += [errors.immutable(f"metadata.{key}", new.get(key, "")) for key in _IMMUTABLE
               if new.get(key) != old.get(key)]
    return causes + _parts(new)


def warnings(metadata: Object, old: Object | None, resource_type: ServedResource) -> list[str]:
    """Warnings about finalizers without a domain that this write adds to a custom resource."""
    if not resource_type.is_custom:
        return []
    known = set((old or {}).get("finalizers") or ())
    texts = []
    for name in metadata.get("finalizers") or ():
        if "/" in name or name in known or name in STANDARD_FINALIZERS:
            continue
        how = " including a path (/)" if "." in name and not dns_subdomain_errors(name) else ""
        texts.append(f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{how} '
                     'to avoid accidental '
                     "conflicts with other finalizer writers")
    return texts


def tidy_owners(metadata: Object, *, patched: bool = False) -> list[str]:
    """Drop repeated owner references. Returns the warning about them, if any.

    For a patch (`patched`) the warning says "after mutating admission happens", as on the real server.
    """
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return []
    kept: dict[bytes, Object] = {}
    dropped: list[str] = []
    for owner in owners:
        same = msgspec.json.encode(owner, order="sorted")
        if same in kept:
            dropped.append(owner.get("uid", ""))
        kept.setdefault(same, owner)
    if not dropped:
        return []
    metadata["ownerReferences"] = list(kept.values())
    when = " after mutating admission happens" if patched else ""
    return [_DUPLICATE_OWNERS.format(when=when) + ", ".join(dropped)]


def restore(meta: Object, before: Object) -> None:
    """Silently restore the fields that an update cannot change.

    A deletionTimestamp that a client adds stays in place, because validation must refuse it.
    """
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
    """The object without the times in managedFields. An update that changes only these times counts as no change."""
    meta = obj["metadata"]
    entries = [{key: value for key, value in entry.items() if key != "time"}
               for entry in meta.get("managedFields") or ()]
    return {**obj, "metadata": {**meta, "managedFields": entries}}
