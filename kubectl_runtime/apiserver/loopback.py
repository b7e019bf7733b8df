"""Requests that the server makes to itself.

Controllers write through the cluster's loopback as an administrator, so that every rule holds for their writes.
Handlers that write a second object do the same (an eviction updates a PodDisruptionBudget).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.output.negotiation import encode
from kubectl_runtime.apiserver.storage import Cluster, ServedResource, Version
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object

MANAGER = "kube-controller-manager"  # the component that makes most requests
_CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}


def path_of(resource_type: ServedResource, namespace: str, name: str = "", subresource: str = "") -> str:
    root = f"/apis/{resource_type.group}" if resource_type.group else "/api"
    scope = f"/namespaces/{namespace}" if resource_type.namespaced and namespace else ""
    return f"{root}/{resource_type.version}{scope}/{resource_type.plural}" + "".join(
        f"/{part}" for part in (name, subresource) if part)


def submit(cluster: Cluster, method: str, path: str, body: Object | None = None, *,
           agent: str = MANAGER, refused: Callable[[StatusError], object] | None = None) -> HttpResponse | None:
    """Make a request as a component of the cluster. If the server refuses it, call `refused` and return None.

    Refusals by a webhook, policy or quota are counted, so that the core lets the calling controller try again later.
    Other refusals are not counted: after a conflict or for a missing object, the controller examines the object again
    anyway.
    """
    request = HttpRequest(method, path, headers={
        "user-agent": agent, "content-type": _CONTENT_TYPES.get(method, "application/json")},
        body=encode(body) if body is not None else b"")
    try:
        return cluster.loopback(request, agent)
    except StatusError as error:
        cluster.turned_away += error.from_webhook
        if refused is not None:
            refused(error)
        return None


def served_type(cluster: Cluster, storage_key: str) -> ServedResource | None:
    """A served version of the type that is stored under `storage_key`; None if no version is served."""
    return next(iter(cluster.registry.of_storage(storage_key)), None)


Kind = ServedResource | str | None  # a type or its storage key; None stands for a type that is not served


def type_of(cluster: Cluster, kind: Kind) -> ServedResource | None:
    """The served type of a `Kind`; None if the type is not served."""
    return served_type(cluster, kind) if isinstance(kind, str) else kind


def create(cluster: Cluster, kind: Kind, namespace: str, content: Object, *,
           refused: Callable[[StatusError], object] | None = None) -> Object | None:
    """Create an object; kind and apiVersion are added to `content`. Returns the created object.

    Returns None if the type is not served or the server refused the request; a refusal is passed to `refused`.
    """
    resource_type = type_of(cluster, kind)
    if resource_type is None:
        return None
    body = {"apiVersion": resource_type.api_version, "kind": resource_type.kind, **content}
    made = submit(cluster, "POST", path_of(resource_type, namespace), body, refused=refused)
    return None if made is None else msgspec.json.decode(made.body)


def delete(cluster: Cluster, kind: Kind, version: Version, *, agent: str = MANAGER, policy: str = "") -> None:
    """Delete an object if its uid is still the same and its type is served."""
    resource_type = type_of(cluster, kind)
    if resource_type is None:
        return
    options: Object = {"preconditions": {"uid": version.uid}}
    if policy:
        options["propagationPolicy"] = policy
    submit(cluster, "DELETE", path_of(resource_type, version.namespace, version.name), options, agent=agent)


def patch(cluster: Cluster, kind: Kind, version: Version, change: Object, *, agent: str = MANAGER,
          subresource: str = "") -> bool:
    """Merge a change into an object if its uid is unchanged and its type is served. Returns whether this succeeded."""
    resource_type = type_of(cluster, kind)
    if resource_type is None:
        return False
    change = {**change, "metadata": {**change.get("metadata", {}), "uid": version.uid}}
    path = path_of(resource_type, version.namespace, version.name, subresource)
    return submit(cluster, "PATCH", path, change, agent=agent) is not None


def patch_status(cluster: Cluster, kind: Kind, version: Version, status: Object) -> bool:
    """`patch` on the status subresource."""
    return patch(cluster, kind, version, {"status": status}, subresource="status")
