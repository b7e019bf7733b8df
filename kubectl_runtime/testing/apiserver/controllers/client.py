"""How controllers write: through the handlers, as an administrator, so that every rule holds for them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.context import RequestContext, User
from kubectl_runtime.testing.apiserver.handlers.dispatch import handle_resource
from kubectl_runtime.testing.apiserver.output.negotiation import Media, encode
from kubectl_runtime.testing.apiserver.registry import ResourceType
from kubectl_runtime.testing.apiserver.route import parse
from kubectl_runtime.testing.apiserver.storage import Version
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

Object = dict[str, Any]

_CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}


def path_of(resource_type: ResourceType, namespace: str, name: str = "", subresource: str = "") -> str:
    """The path of a collection, an object or a subresource."""
    root = f"/apis/{resource_type.group}" if resource_type.group else "/api"
    scope = f"/namespaces/{namespace}" if resource_type.namespaced and namespace else ""
    return f"{root}/{resource_type.version}{scope}/{resource_type.plural}" + "".join(
        f"/{part}" for part in (name, subresource) if part)


def submit(core: ApiCore, method: str, path: str, body: Object | None = None, *, agent: str) -> HttpResponse | None:
    """Make a request as a controller; None if the server refused it (gone, conflict): the controller looks again
    anyway."""
    request = HttpRequest(method, path, headers={
        "user-agent": agent, "content-type": _CONTENT_TYPES.get(method, "application/json")},
        body=encode(body) if body is not None else b"")
    info = parse(request)
    resource_type = core.registry.get(info.group, info.version, info.resource)
    if resource_type is None:
        return None
    user = User(f"system:{agent}", groups=("system:masters", "system:authenticated"))
    ctx = RequestContext(core, request, info, resource_type, Media(), user, core.clock.now())
    try:
        return handle_resource(ctx)
    except errors.StatusError:
        return None


def served_type(core: ApiCore, storage_key: str) -> ResourceType | None:
    """A served version of the type that is stored under a key."""
    return next(iter(core.registry.of_storage(storage_key)), None)


def delete(core: ApiCore, resource_type: ResourceType | None, version: Version, *, agent: str,
           policy: str = "") -> None:
    """Delete an object if it is still the same one (and its type is served)."""
    if resource_type is None:
        return
    options: Object = {"preconditions": {"uid": version.uid}}
    if policy:
        options["propagationPolicy"] = policy
    submit(core, "DELETE", path_of(resource_type, version.namespace, version.name), options, agent=agent)


def patch(core: ApiCore, resource_type: ResourceType | None, version: Version, change: Object, *, agent: str,
          subresource: str = "") -> None:
    """Merge a change into an object if it is still the same one (and its type is served)."""
    if resource_type is None:
        return
    change = {**change, "metadata": {**change.get("metadata", {}), "uid": version.uid}}
    submit(core, "PATCH", path_of(resource_type, version.namespace, version.name, subresource), change, agent=agent)
