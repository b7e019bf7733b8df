"""Rules for ``metadata`` that hold for every kind: what is checked on create and update, and what is tidied on the way
in."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.names import (
    MAX_ANNOTATIONS,
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)
from kubectl_runtime.testing.apiserver.registry import ResourceType

Object = dict[str, Any]

STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
DUPLICATE_OWNERS = (".metadata.ownerReferences contains duplicate entries; API server dedups owner references in "
                    "1.20+, and may reject such requests as early as 1.24; please fix your requests; "
                    "duplicate UID(s) observed: ")


def timestamp(moment: datetime) -> str:
    """A date as Kubernetes writes it: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def validate(metadata: Object, resource_type: ResourceType) -> list[Cause]:
    """The causes that refuse an object's metadata on create."""
    strategy = resource_type.strategy
    causes = []
    if prefix := metadata.get("generateName"):
        causes += [errors.invalid_value("metadata.generateName", prefix, error)
                   for error in strategy.validate_name(prefix, prefix=True)]
    if name := metadata.get("name"):
        causes += [errors.invalid_value("metadata.name", name, error) for error in strategy.validate_name(name)]
    else:
        causes.append(errors.required("metadata.name", "name or generateName is required"))
    if metadata.get("generation", 0) < 0:
        causes.append(errors.invalid_value("metadata.generation", metadata["generation"],
                                           "must be greater than or equal to 0"))
    return causes + validate_common(metadata, resource_type)


def validate_common(metadata: Object, resource_type: ResourceType, *, times: int = 1,
                    finalizers: int = 1) -> list[Cause]:
    """The causes in labels, annotations and owner references, so many times, and in finalizers, so many times."""
    return times * (_labels(metadata.get("labels") or {}) + _annotations(metadata.get("annotations") or {})
                    + _owners(metadata.get("ownerReferences") or [])
                    ) + finalizers * _finalizers(metadata.get("finalizers") or [], resource_type)


def _labels(labels: Object) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        causes += [errors.invalid_value("metadata.labels", key, error) for error in qualified_name_errors(key)]
        causes += [errors.invalid_value("metadata.labels", value, error) for error in label_value_errors(value)]
    return causes


def _annotations(annotations: Object) -> list[Cause]:
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
        if not version or version.count("/") > 1:
            causes.append(errors.invalid_value(f"{at}.apiVersion", version, "version must not be empty"))
        elif version == "v1" and owner.get("kind") == "Event":
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


def _finalizers(finalizers: list[str], resource_type: ResourceType) -> list[Cause]:
    causes = []
    for index, name in enumerate(finalizers):
        found = [errors.invalid_value("metadata.finalizers", name, error) for error in qualified_name_errors(name)]
        # Custom resources may have plain names for their finalizers: they get a warning instead.
        if not resource_type.is_custom and "/" not in name and name not in STANDARD_FINALIZERS:
            found.append(errors.invalid_value(f"metadata.finalizers[{index}]", name,
                                              "name is neither a standard finalizer name nor is it fully qualified"))
        causes += found
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        causes.append(errors.invalid_value("metadata.finalizers", finalizers,
                                           f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"))
    return causes


def collector_finalizers(before: list[str], policy: str, *, orphans: bool = False) -> list[str]:
    """The finalizers after a propagation policy ("": none was named) has added or removed the collector's own.

    `orphans` is for kinds whose dependents are orphaned unless the client says otherwise.
    """
    orphan = policy == "Orphan" or (not policy and (ORPHAN in before or (orphans and FOREGROUND not in before)))
    foreground = policy == "Foreground" or (not policy and FOREGROUND in before)
    after = [name for name in before if name not in (ORPHAN, FOREGROUND)]
    after += [name for name, wanted in ((ORPHAN, orphan), (FOREGROUND, foreground)) if wanted]
    return before if set(after) == set(before) else after


def validate_update(new: Object, old: Object) -> list[Cause]:
    """The causes that refuse a change of metadata, without those of `validate_common`."""
    causes = []
    grace = "deletionGracePeriodSeconds"
    if grace in new and new[grace] != old.get(grace):
        causes.append(errors.immutable(f"metadata.{grace}", new[grace]))
    if "deletionTimestamp" in new and "deletionTimestamp" not in old:
        causes.append(errors.immutable("metadata.deletionTimestamp", new["deletionTimestamp"]))
    if "deletionTimestamp" in old:
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            listed = ", ".join(json.dumps(name) for name in added)
            causes.append(errors.forbidden_field("metadata.finalizers",
                                                 "no new finalizers can be added if the object is being "
                                                 f"deleted, found new finalizers []string{{{listed}}}"))
    causes += [errors.immutable(f"metadata.{key}", new.get(key, "")) for key in ("name", "namespace", "uid")
               if new.get(key, "") != old.get(key, "")]
    return causes


def warnings(metadata: Object, old: Object | None, resource_type: ResourceType) -> list[str]:
    """Warnings about finalizers of custom resources that are new with this write."""
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


def tidy_owners(metadata: Object) -> list[str]:
    """Drop owner references that occur twice; returns the warning about it, if any."""
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return []
    kept: list[Object] = []
    dropped: list[str] = []
    for owner in owners:
        if owner in kept:
            dropped.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if not dropped:
        return []
    metadata["ownerReferences"] = kept
    return [DUPLICATE_OWNERS + ", ".join(dropped)]
