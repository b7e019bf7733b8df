"""What the server serves: kinds by name, with their verbs and subresources.

One request each to `/api` and `/apis` (aggregated discovery); a server without it is asked group by group, and a group
that fails is reported once, left out, and asked again at the next refresh. What was found is kept for `TTL` on the
client's clock; a name that is not in it is looked up once more at the server, since CRDs come and go. Nothing is kept
on disk.
"""
from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from cachetools import TTLCache

from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.failures import unexpected_answer
from kubectl_runtime.client.http.middleware import Answer
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import DiscoveryError, KubeError
from kubectl_runtime.core.base.forks import ForkSafeLock
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.meta.gvk import ApiResource, Scope, split_api_version
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.request import Request

log = guarded_logger(__name__)

TTL = 300.0
"""Seconds that what was found is used without asking again."""
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind of one version, as the server describes it."""

    resource: ApiResource
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    singular: str = ""
    subresources: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """What it may be called, lower case: plural, singular, kind, short names, each also with group and version."""
        resource = self.resource
        bare = {resource.plural, self.singular or resource.kind.lower(), resource.kind.lower(), *self.short_names}
        if not resource.group:
            return bare | {f"{name}.{resource.version}" for name in bare}
        return bare | {f"{name}.{suffix}" for name in bare
                       for suffix in (resource.group, f"{resource.version}.{resource.group}")}


class Asked(Protocol):
    """What is asked of a `Client`."""

    @property
    def config(self) -> Config: ...
    @property
    def clock(self) -> Clock: ...
    def answer(self, request: Request) -> Answer: ...


class Discovery:
    """The kinds that a client's server serves. Safe to use from any thread; blocks while it asks the server."""

    def __init__(self, client: Asked) -> None:
        self._client = client
        self._lock = ForkSafeLock()
        self._found: TTLCache[str, tuple[ServedKind, ...]] = TTLCache(1, TTL, timer=client.clock.monotonic)
        self._failing: set[str] = set()

    def kinds(self, *, refresh: bool = False) -> tuple[ServedKind, ...]:
        """All of them: the core group first, then in the server's order, which is its preference.

        Raises ApiError or TransportError when the server does not answer at all.
        """
        with self._lock:
            known = None if refresh else self._found.get("")
        if known is None:
            known = self._ask()
            with self._lock:
                self._found[""] = known
        return known

    def resolve(self, name: str) -> ServedKind:
        """The kind called `name`: `pods`, `po`, `Deployment`, `deployments.apps`, `deployments.v1.apps`.

        Raises DiscoveryError, with the nearest names, when the server serves none.
        """
        wanted = name.lower()
        for refresh in (False, True):
            found = next((kind for kind in self.kinds(refresh=refresh) if wanted in kind.names()), None)
            if found is not None:
                return found
        near = difflib.get_close_matches(wanted, {kind.resource.full_name for kind in self.kinds()} | {
            kind.resource.kind.lower() for kind in self.kinds()}, n=3)
        hint = f": did you mean {' or '.join(near)}?" if near else ": is its CRD installed?"
        raise DiscoveryError(f"the server at {self._client.config.cluster_url} does not serve {name!r}{hint}")

    def served(self, resource: ApiResource) -> bool:
        """Whether the server serves exactly this resource: group, version and plural."""
        key = (resource.group, resource.version, resource.plural)
        return any(key == (kind.resource.group, kind.resource.version, kind.resource.plural)
                   for refresh in (False, True) for kind in self.kinds(refresh=refresh))

    def _ask(self) -> tuple[ServedKind, ...]:
        found: list[ServedKind] = []
        for path in ("/api", "/apis"):
            document = self._get(path)
            if document.get("kind") == "APIGroupDiscoveryList":
                found += _aggregated(document)
            else:
                for version in _group_versions(document):
                    found += self._of_version(version)
        return tuple(found)

    def _of_version(self, api_version: str) -> list[ServedKind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            found = _legacy(self._get(path), api_version)
        except KubeError as error:
            if api_version not in self._failing:
                log.warning("discovery of %s failed, it is left out for now: %s", api_version, error)
                self._failing.add(api_version)
            return []
        self._failing.discard(api_version)
        return found

    def _get(self, path: str) -> dict[str, Any]:
        request = Request("GET", path, "get", None, f"discover {path}", headers=(("Accept", _AGGREGATED),))
        answer = self._client.answer(request)
        try:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError) as error:
            unexpected = unexpected_answer(request, answer.status, answer.headers, answer.body)
            raise unexpected or DecodeError(
                None, "$", f"discover {path}: the answer is no discovery document: {error}") from None


def _group_versions(document: dict[str, Any]) -> list[str]:
    if "groups" not in document:
        return [str(version) for version in document.get("versions") or ()]
    return [str(version["groupVersion"]) for group in document["groups"] or ()
            for version in group.get("versions") or ()]


def _aggregated(document: dict[str, Any]) -> list[ServedKind]:
    return [
        ServedKind(
            ApiResource(group["metadata"].get("name", ""), version["version"], entry["responseKind"]["kind"],
                        entry["resource"], Scope(entry.get("scope", "Namespaced"))),
            tuple(entry.get("verbs") or ()), tuple(entry.get("shortNames") or ()), entry.get("singularResource") or "",
            tuple(sub["subresource"] for sub in entry.get("subresources") or ()))
        for group in document.get("items") or () for version in group.get("versions") or ()
        for entry in version.get("resources") or () if entry.get("responseKind")]


def _legacy(document: dict[str, Any], api_version: str) -> list[ServedKind]:
    group, version = split_api_version(api_version)
    entries = document.get("resources") or []
    subresources: dict[str, list[str]] = {}
    for entry in entries:
        plural, slash, subresource = entry["name"].partition("/")
        if slash:
            subresources.setdefault(plural, []).append(subresource)
    return [
        ServedKind(ApiResource(group, version, entry["kind"], entry["name"],
                               Scope.NAMESPACED if entry.get("namespaced") else Scope.CLUSTER),
                   tuple(entry.get("verbs") or ()), tuple(entry.get("shortNames") or ()),
                   entry.get("singularName") or "", tuple(subresources.get(entry["name"], ())))
        for entry in entries if "/" not in entry["name"]]
