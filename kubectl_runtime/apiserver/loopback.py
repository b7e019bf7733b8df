"""Requests of the server to itself: controllers, and handlers that write a second object (an eviction updates a
budget), write as an administrator through the cluster's loopback, so that every rule holds for their writes."""

from __future__ import annotations

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.output.negotiation import encode
from kubectl_runtime.apiserver.storage import Cluster, ServedResource, Version
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object

_CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}


def path_of(resource_type: ServedResource, namespace: str, name: str = "", subresource: str = "") -> str:
    root = f"/apis/{resource_type.group}" if resource_type.group else "/api"
    scope = f"/namespaces/{namespace}" if resource_type.namespaced and namespace else ""
    return f"{root}/{resource_type.version}{scope}/{resource_type.plural}" + "".join(
        f"/{part}" for part in (name, subresource) if part)


def submit(cluster: Cluster, method: str, path: str, body: Object | None = None, *, agent: str) -> HttpResponse | None:
    """Make a request as a component of the cluster. Returns None if the server refused it (gone, conflict): the
    controller looks again anyway, or is asked to do so if a webhook refused the request."""
    request = HttpRequest(method, path, headers={
        "user-agent": agent, "content-type": _CONTENT_TYPES.get(method, "application/json")},
        body=encode(body) if body is not None else b"")
    try:
        return cluster.loopback(request, agent)
    except StatusError as error:
        cluster.turned_away += error.from_webhook
        return None


def served_type(cluster: Cluster, storage_key: str) -> ServedResource | None:
    """A served version of the type that is stored under a key."""
    return next(iter(cluster.registry.of_storage(storage_key)), None)


def delete(cluster: Cluster, resource_type: ServedResource | None, version: Version, *, agent: str,
           policy: str = "") -> None:
    """Delete an object if its uid is still the same and its type is served."""
    if resource_type is None:
        return
    options: Object = {"preconditions": {"uid": version.uid}}
    if policy:
        options["propagationPolicy"] = policy
    submit(cluster, "DELETE", path_of(resource_type, version.namespace, version.name), options, agent=agent)


def patch(cluster: Cluster, resource_type: ServedResource | None, version: Version, change: Object, *, agent: str,
          subresource: str = "") -> bool:
    """Merge a change into an object if its uid is still the same and its type is served. Returns whether the server
    accepted it."""
    if resource_type is None:
        return False
    change = {**change, "metadata": {**change.get("metadata", {}), "uid": version.uid}}
    path = path_of(resource_type, version.namespace, version.name, subresource)
    return submit(cluster, "PATCH", path, change, agent=agent) is not None
