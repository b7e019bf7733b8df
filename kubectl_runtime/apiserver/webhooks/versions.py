"""An object of an operation in another version of its kind, for webhooks that ask for that, and back.

Where a webhook converts, it is asked; the cluster's lock is free meanwhile.
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.crds.instances import CustomStrategy
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.webhooks.admission_attributes import Attributes
from kubectl_runtime.core.codec.jsonvalues import json_copy

Object = dict[str, Any]


def as_version(obj: Object | None, asked: Attributes, target: ServedResource) -> Object | None:
    """The object as the target's version shows it; the same object where that is its own."""
    if obj is None or target is asked.resource or not asked.is_own_kind:
        return obj
    return between(obj, asked.resource, target)


def back(obj: Object, asked: Attributes, source: ServedResource) -> Object:
    """The reverse of `as_version`."""
    if source is asked.resource or not asked.is_own_kind:
        return obj
    return between(obj, source, asked.resource)


def between(obj: Object, source: ServedResource, target: ServedResource) -> Object:
    """A copy of an object of one version as another version of its kind shows it."""
    copy = json_copy(obj)
    if isinstance(target.strategy, CustomStrategy):
        try:
            (copy,) = target.strategy.converted([(_bare(copy), source.version)])
        except errors.StatusError as error:
            raise errors.internal(error.message) from None
    else:
        copy = target.strategy.from_storage(source.strategy.to_storage(copy, source.version), target.version)
    return {**copy, "kind": target.kind, "apiVersion": target.api_version}


def _bare(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
