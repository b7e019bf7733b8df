"""Stored objects as a version of their type shows them: the one way from a `Version` to what a client sees.

Where a webhook converts, a call blocks until it has answered, and raises StatusError if it fails; a lock that the
thread holds is free meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.storage.storage import Version

Object = dict[str, Any]


def is_as_stored(resource_type: ServedResource, version: Version) -> bool:
    """Whether the stored bytes are those that are shown."""
    return not resource_type.strategy.converts and version.stored_as in ("", resource_type.version)


def shown_objects(resource_type: ServedResource, versions: Sequence[Version]) -> list[Object]:
    """The objects, decoded, without kind and apiVersion."""
    decoded = [version.decode() for version in versions]
    stale = [index for index, version in enumerate(versions) if not is_as_stored(resource_type, version)]
    if stale:
        found = resource_type.strategy.all_from_storage([(decoded[index], versions[index].stored_as)
                                                         for index in stale], resource_type.version)
        for index, obj in zip(stale, found, strict=True):
            decoded[index] = obj
    return decoded


def shown_object(resource_type: ServedResource, version: Version) -> Object:
    """One object with kind and apiVersion."""
    obj = version.decode() if is_as_stored(resource_type, version) else shown_objects(resource_type, [version])[0]
    return {"kind": resource_type.kind, "apiVersion": resource_type.api_version, **obj}
