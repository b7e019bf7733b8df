"""`fetch`: the object that a reference in another object names: an ObjectReference, or an OwnerReference."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import Duration, period_of
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, RequestError
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.meta.gvk import GroupVersionKind
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.objects.dynamic import DynamicObject

LEAST = 0.001
"""Seconds that the object itself is given when discovery has taken all the time."""


def fetch(client: Client, reference: OwnerReference | Mapping[str, Any], *, namespace: str | None = None,
          timeout: Duration | None = None) -> DynamicObject:
    """The object that `reference` names: an OwnerReference, or one as objects carry it (`apiVersion`, `kind`, `name`).

    `namespace`: where to look when the reference does not say: that of the object which has the reference. What the
    server serves is asked once and kept, and asked again for an unknown kind. Blocks as `Api.get`, at most
    `timeout` for both requests together. Raises DiscoveryError for a kind that is not served, RequestError for a
    reference without apiVersion, kind or name, and ApiError: also as not found when the reference has a uid and the
    object of that name has another.

    >>> reference = OwnerReference(api_version="apps/v1", kind="Deployment", name="web")
    >>> fetch(client, reference, namespace="default").spec["replicas"]
    1
    """
    if isinstance(reference, OwnerReference):
        api_version, kind, name, uid = reference.api_version, reference.kind, reference.name, reference.uid
    elif not isinstance(reference, Mapping):
        raise RequestError("fetch takes an OwnerReference, or a mapping with apiVersion, kind and name, not "
                           f"{type(reference).__name__}")
    else:
        api_version, kind, name, uid = (str(reference.get(key) or "") for key in ("apiVersion", "kind", "name", "uid"))
        namespace = reference.get("namespace") or namespace
    if not (api_version and kind and name):
        raise RequestError("a reference needs apiVersion, kind and name; this one has "
                           f"apiVersion={api_version!r}, kind={kind!r}, name={name!r}")
    deadline = None if timeout is None else client.clock.monotonic() + period_of("timeout", timeout)
    try:
        discovery = client.discovery.within(deadline)
        resource = discovery.resolve_gvk(GroupVersionKind.parse(api_version, kind)).resource
    except DiscoveryError as error:
        raise DiscoveryError(f"get {kind} {name}: {error}") from None
    api = Api.namespaced(client, resource, namespace) if resource.namespaced else Api.all(client, resource)
    left = None if deadline is None else max(deadline - client.clock.monotonic(), LEAST)
    found = api.get(name, timeout=left)
    if uid and found.uid != uid:
        raise ApiError(Status(status="Failure", code=404, reason="NotFound", message="the object that the reference "
                              "means is gone; another of that name has taken its place"), f"get {kind} {name}")
    return found
