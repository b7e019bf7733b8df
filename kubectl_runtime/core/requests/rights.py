"""`Right`: what the server's authorizer is asked before it does what a `Request` says.

    rights_of(request)      the verb of RBAC on the resource; several where one request does several things:
                            an apply may create what is not there (patch and create); an object whose owner is blocked
                            by it needs update on the owner's finalizers, where an admission plugin asks for that
    foresee(place, verb…)   what a function of the library may go on to by itself, told to whoever records rights: the
                            finalizer that is added today is read live when the object is deleted
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kubectl_runtime.core.meta.gvk import plural_of, split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import Place, Request

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
"""How RBAC's verbs are usually written."""


class Right(msgspec.Struct, frozen=True, order=True):
    """A verb on a resource (`pods`, `pods/status`) of a group, in one namespace or, with None, everywhere; on the
    object of this name, or with the empty text on all of them."""

    group: str
    resource: str
    verb: str
    namespace: str | None = None
    name: str = ""


def rights_of(request: Request, plurals: Mapping[tuple[str, str], str] | None = None) -> Iterator[Right]:
    """The rights that a request needs; none for one that is about no kind. `plurals`: (group, kind) -> plural of kinds
    that may be owners, where it is not the usual one."""
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


hearers: list[Callable[[Right], object]] = []
"""Whom `foresee` tells; empty unless rights are recorded."""


def foresee(place: Place, *verbs: str, subresource: str | None = None) -> None:
    """Tell who records rights that what was called may need these, later if not now. Does not block; asks nobody."""
    for hear in tuple(hearers):
        name = f"{place.resource.plural}/{subresource}" if subresource else place.resource.plural
        for verb in verbs:
            hear(Right(place.resource.group, name, verb, place.namespace))


def _blocked_owners(body: bytes) -> Iterable[tuple[str, str]]:
    try:
        content = msgspec.json.decode(body)
    except DECODE_FAILURES:  # of a kind that has another form
        return ()
    metadata = content.get("metadata") if isinstance(content, dict) else None
    owners: list[Any] = (metadata or {}).get("ownerReferences") or []
    return [(split_api_version(owner["apiVersion"])[0], owner["kind"]) for owner in owners
            if owner.get("blockOwnerDeletion")]


def roles(rights: Iterable[Right]) -> dict[str | None, list[dict[str, Any]]]:
    """The rules of roles that grant these rights: namespace -> rules, None for those of a ClusterRole. One rule for
    each resource, and one for its objects that are named, sorted; what the ClusterRole grants is left out of the
    others, and what is granted on all objects out of the rules of single ones."""
    found = set(rights)
    left = [right for right in found if not any(wider in found for wider in _wider(right))]
    return {namespace: _rules([right for right in left if right.namespace == namespace])
            for namespace in sorted({right.namespace for right in left}, key=lambda name: name or "")}


def _wider(right: Right) -> Iterator[Right]:
    """What grants this right besides itself."""
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
