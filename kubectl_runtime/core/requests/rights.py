"""`Right`: the RBAC permission that the API server checks before it executes a `Request`.

`rights_of(request)` lists the permissions of a request. A request may need several: an apply may create a missing
object (patch and create); an owner reference with blockOwnerDeletion needs update on the owner's finalizers if an
admission plugin checks that; the writer of a RoleBinding or ClusterRoleBinding needs `bind` on its role or all
permissions of the role. `foresee(place, verb…)` reports permissions that the library may need only later, so that
recorders of permissions do not miss them. For example, if an object gets a finalizer, the library will have to read the
object when it is deleted.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kubectl_runtime.core.meta.gvk import plural_of, split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import Place, Request

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind")
"""The usual order of RBAC's verbs."""
RBAC = "rbac.authorization.k8s.io"
BINDINGS = ("rolebindings", "clusterrolebindings")
ROLES = ("roles", "clusterroles")


class Right(msgspec.Struct, frozen=True, order=True):
    """A verb on a resource (`pods`, `pods/status`) of a group. `namespace` None means all namespaces, and an empty
    `name` all objects."""

    group: str
    resource: str
    verb: str
    namespace: str | None = None
    name: str = ""


def rights_of(request: Request, plurals: Mapping[tuple[str, str], str] | None = None) -> Iterator[Right]:
    """The permissions that a request needs; nothing for a request that is not about a kind, such as `/version`.
    `plurals`: (group, kind) -> plural, for kinds that may be owners and have an unusual plural."""
    resource = request.resource
    if resource is None:
        return
    name = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    verb = request.verb if request.verb in ORDER else _VERBS[request.method]
    yield Right(resource.group, name, verb, request.namespace)
    if request.verb == "apply" and not request.subresource:
        yield Right(resource.group, name, "create", request.namespace)
    if request.body is not None and b"blockOwnerDeletion" in request.body and not request.subresource:
        for group, kind in _blocked_owners(request.body):
            plural = (plurals or {}).get((group, kind)) or plural_of(kind)
            yield Right(group, f"{plural}/finalizers", "update", request.namespace)
    if (bind := bind_of(request)) is not None:
        yield bind


def bind_of(request: Request) -> Right | None:
    """The permission to bind the role that the request's body names; None if the body is not a binding with a role."""
    resource = request.resource
    if resource is None or resource.group != RBAC or resource.plural not in BINDINGS or request.body is None:
        return None
    role = _content(request.body).get("roleRef")
    if not isinstance(role, dict) or not isinstance(role.get("name"), str):
        return None
    plural = "clusterroles" if role.get("kind") == "ClusterRole" else "roles"
    return Right(RBAC, plural, "bind", request.namespace, role["name"])


listeners: list[Callable[[Right], object]] = []
"""The listeners of `foresee`; empty unless permissions are recorded."""


def foresee(place: Place, *verbs: str, subresource: str | None = None) -> None:
    """Notify `listeners` of permissions that the current call may need later. Does not block or call the server."""
    for listen in tuple(listeners):
        name = f"{place.resource.plural}/{subresource}" if subresource else place.resource.plural
        for verb in verbs:
            listen(Right(place.resource.group, name, verb, place.namespace))


def _blocked_owners(body: bytes) -> Iterable[tuple[str, str]]:
    metadata = _content(body).get("metadata")
    owners: list[Any] = (metadata or {}).get("ownerReferences") or []
    return [(split_api_version(owner["apiVersion"])[0], owner["kind"]) for owner in owners
            if owner.get("blockOwnerDeletion")]


def _content(body: bytes) -> dict[str, Any]:
    """The object in a body; empty if the body is not JSON, or a JSON patch."""
    try:
        content = msgspec.json.decode(body)
    except DECODE_FAILURES:
        return {}
    return content if isinstance(content, dict) else {}


def roles(rights: Iterable[Right]) -> dict[str | None, list[dict[str, Any]]]:
    """The rules of roles that grant these permissions: namespace -> rules; None -> the ClusterRole's rules. The
    rules are sorted. The permissions for all objects of a resource form one rule, and named objects of a resource share
    a rule if the verbs are the same. A Role leaves out permissions that the ClusterRole grants, and a rule for named
    objects leaves out permissions for all objects."""
    found = set(rights)
    left = [right for right in found if not any(wider in found for wider in _wider(right))]
    return {namespace: _rules([right for right in left if right.namespace == namespace])
            for namespace in sorted({right.namespace for right in left}, key=lambda name: name or "")}


def _wider(right: Right) -> Iterator[Right]:
    """The wider permissions that also grant this one."""
    for namespace in {right.namespace, None}:
        for name in {right.name, ""}:
            if (namespace, name) != (right.namespace, right.name):
                yield Right(right.group, right.resource, right.verb, namespace, name)


def _rules(rights: list[Right]) -> list[dict[str, Any]]:
    granted: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        granted.setdefault((right.group, right.resource, right.name), set()).add(right.verb)
    named: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    rules = []
    for (group, resource, name), found in sorted(granted.items()):
        verbs = tuple(sorted(found, key=ORDER.index))
        names = named.get((group, resource, verbs))
        if names is not None and name:
            names.append(name)
            continue
        rule: dict[str, Any] = {"apiGroups": [group], "resources": [resource]}
        if name:
            rule["resourceNames"] = named[group, resource, verbs] = [name]
        rules.append({**rule, "verbs": list(verbs)})
    return rules
