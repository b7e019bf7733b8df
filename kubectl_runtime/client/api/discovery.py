"""What the server serves: kinds by name, with their verbs and subresources.

One request each to `/api` and `/apis` (aggregated discovery); a server without it is asked group by group, and a group
that fails is reported once, left out, and asked again at the next refresh. What was found is kept for `TTL` on the
client's clock; a name that is not in it is looked up once more at the server, since CRDs come and go. Nothing is kept
on disk. What the values say is in client/server/served_kinds.py.
"""
from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
from cachetools import TTLCache

from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.failures import unexpected_answer
from kubectl_runtime.client.http.middleware import Answer
from kubectl_runtime.client.server.served_kinds import (
    ApiGroup,
    ServedKind,
    aggregated_kinds,
    group_versions,
    groups_of,
    kind_of,
    listed_kinds,
    path_of,
    versions_of,
)
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, KubeError
from kubectl_runtime.core.base.forks import ForkSafeLock
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, split_api_version
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.request import Request

log = logging.getLogger(__name__)

TTL = 300.0
"""Seconds that what was found is used without asking again."""
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


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

    def groups(self, *, refresh: bool = False) -> tuple[ApiGroup, ...]:
        """The same by group: which versions there are, which is preferred, which kinds are in them."""
        return groups_of(self.kinds(refresh=refresh))

    def resolve(self, name: str) -> ServedKind:
        """The kind called `name`: `pods`, `po`, `Deployment`, `deployments.apps`, `deployments.v1.apps`.

        Of several the first in the server's order, as for kubectl: in the preferred version of its group. Raises
        DiscoveryError, with the nearest names, when the server serves none.
        """
        wanted = name.lower()
        found = self._looked_up(lambda kinds: next((kind for kind in kinds if wanted in kind.names()), None))
        if found is not None:
            return found
        near = difflib.get_close_matches(wanted, {kind.resource.full_name for kind in self.kinds()} | {
            kind.resource.kind.lower() for kind in self.kinds()}, n=3)
        raise self._not_served(repr(name), near)

    def resolve_gvk(self, gvk: GroupVersionKind) -> ServedKind:
        """The kind of exactly this group and version. Raises DiscoveryError, with the versions that there are."""
        found = self._looked_up(lambda kinds: kind_of(kinds, gvk))
        if found is not None:
            return found
        others = [kind.resource.api_version for kind in self.kinds()
                  if (kind.resource.group, kind.resource.kind) == (gvk.group, gvk.kind)]
        raise self._not_served(f"{gvk.kind} in {gvk.api_version}", others)

    # One request each, and nothing is kept

    def pinned_group(self, api_version: str) -> tuple[ServedKind, ...]:
        """The kinds of one version of a group, asked for now. Raises DiscoveryError when it is not served."""
        group, version = split_api_version(api_version)
        try:
            return tuple(listed_kinds(self._get(path_of(group, version)), api_version))
        except ApiError as error:
            if error.is_not_found:
                raise self._not_served(api_version, ()) from error
            raise

    def pinned_kind(self, gvk: GroupVersionKind) -> ServedKind:
        """One kind, asked for now. Raises DiscoveryError when it is not served."""
        found = kind_of(self.pinned_group(gvk.api_version), gvk)
        if found is None:
            raise self._not_served(f"{gvk.kind} in {gvk.api_version}", ())
        return found

    def group(self, name: str) -> ApiGroup:
        """One group, asked for now: one request, and one for each of its versions. Raises DiscoveryError."""
        try:
            document = self._get(f"/apis/{name}" if name else "/api")
        except ApiError as error:
            if error.is_not_found:
                raise self._not_served(f"group {name}", ()) from error
            raise
        if document.get("kind") == "APIGroupDiscoveryList":  # the core group's, in one go
            return ApiGroup(name, tuple(aggregated_kinds(document)))
        versions = versions_of(document) if name else group_versions(document)
        return ApiGroup(name, tuple(kind for version in versions for kind in self.pinned_group(version)))

    def _looked_up(self, find: Callable[[tuple[ServedKind, ...]], ServedKind | None]) -> ServedKind | None:
        """In what is known, then once more in what the server says now."""
        for refresh in (False, True):
            if (found := find(self.kinds(refresh=refresh))) is not None:
                return found
        return None

    def _not_served(self, what: str, near: Iterable[str]) -> DiscoveryError:
        names = " or ".join(near)
        hint = f": did you mean {names}?" if names else ": is its CRD installed?"
        return DiscoveryError(f"the server at {self._client.config.cluster_url} does not serve {what}{hint}")

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
                found += aggregated_kinds(document)
            else:
                for version in group_versions(document):
                    found += self._of_version(version)
        return tuple(found)

    def _of_version(self, api_version: str) -> list[ServedKind]:
        try:
            found = listed_kinds(self._get(path_of(*split_api_version(api_version))), api_version)
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
