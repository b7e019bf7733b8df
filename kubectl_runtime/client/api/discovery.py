"""Discovery: the kinds that the server serves, by name, with their verbs and subresources.

Discovery sends one request to `/api` and one to `/apis` (aggregated discovery). A server without aggregated discovery
gets one request per group version. A group whose request fails or whose answer cannot be decoded is logged once, left
out, and requested again at the next refresh.

The answers are kept in memory for `TTL` on the client's clock. An unknown name causes one more request, because its CRD
may be new. The result classes are in client/server.py.
"""
from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from cachetools import TTLCache

from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.middleware import Answer
from kubectl_runtime.client.http.retry import unexpected_answer
from kubectl_runtime.client.server import (
    ApiGroup,
    ServedKind,
    aggregated,
    groups_of,
    kind_of,
    of_version,
    path_of,
    versions_in,
)
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, ForkSafeLock
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, split_api_version
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.request import Request, Retry, segment

T = TypeVar("T")
log = guarded_logger(__name__)

TTL = 300.0
"""Seconds for which the answers are used without a new request."""
GROUP_PATIENCE = 10.0
"""Seconds for the request about one group version, on servers without aggregated discovery: the extension API server
behind it may be gone."""
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Asked(Protocol):
    """The part of a `Client` that Discovery needs."""

    @property
    def config(self) -> Config:
        """How the server is reached; used in messages."""

    @property
    def clock(self) -> Clock:
        """The clock that measures how old the kept answers are."""

    def answer(self, request: Request, *, deadline: float | None = None) -> Answer:
        """Send the request and return its answer; blocks and raises like `Client.answer`."""


class Discovery:
    """The kinds that a client's server serves. Safe to use from any thread; blocks while it sends requests.

    >>> client.discovery.resolve("deploy").resource.kind
    'Deployment'
    >>> client.discovery.resolve("cm").resource.plural
    'configmaps'
    """

    def __init__(self, client: Asked) -> None:
        self._client = client
        self._lock = ForkSafeLock()
        self._found: TTLCache[str, tuple[ServedKind, ...]] = TTLCache(1, TTL, timer=client.clock.monotonic)
        self._failing: set[str] = set()
        self._deadline: float | None = None

    def within(self, deadline: float | None) -> Discovery:
        """A Discovery whose requests end at `deadline` on the client's clock. It shares this Discovery's kept
        results."""
        found = copy.copy(self)
        found._deadline = deadline
        return found

    def kinds(self, *, refresh: bool = False) -> tuple[ServedKind, ...]:
        """All kinds that the server serves: the core group first, then in the server's order of preference. They are
        requested at the first call and kept for some minutes; `refresh` requests them again.

        Raises ApiError or TransportError when the server does not answer at all, DecodeError when its answer is not a
        discovery document.
        """
        with self._lock:
            known = None if refresh else self._found.get("")
        if known is None:
            known = self._ask()
            with self._lock:
                self._found[""] = known
        return known

    def groups(self, *, refresh: bool = False) -> tuple[ApiGroup, ...]:
        """All groups that the server serves, with their kinds, versions and preferred version. Raises like `kinds`."""
        return groups_of(self.kinds(refresh=refresh))

    def resolve(self, name: str) -> ServedKind:
        """The kind called `name`: `pods`, `po`, `Deployment`, `deployments.apps`, `deployments.v1.apps`.

        If several kinds match, returns the first in the server's order, in the preferred version of its group, as
        kubectl does. Raises DiscoveryError, with similar names, when no kind matches.
        """
        wanted = name.lower()
        found = self._looked_up(lambda kinds: next((kind for kind in kinds if wanted in kind.names()), None))
        if found is not None:
            return found
        near = difflib.get_close_matches(wanted, {kind.resource.full_name for kind in self.kinds()} | {
            kind.resource.kind.lower() for kind in self.kinds()}, n=3)
        raise self._not_served(repr(name), near)

    def resolve_gvk(self, gvk: GroupVersionKind) -> ServedKind:
        """The kind in exactly this group and version. Raises DiscoveryError, which lists the versions that exist."""
        found = self._looked_up(lambda kinds: kind_of(kinds, gvk))
        if found is not None:
            return found
        others = [kind.resource.api_version for kind in self.kinds()
                  if (kind.resource.group, kind.resource.kind) == (gvk.group, gvk.kind)]
        raise self._not_served(f"{gvk.kind} in {gvk.api_version}", others, gvk.group)

    # The methods below always send new requests, and do not keep the results

    def pinned_group(self, api_version: str) -> tuple[ServedKind, ...]:
        """The kinds of one group version, from a new request. Raises DiscoveryError when it is not served."""
        try:
            return tuple(self._of_version(api_version))
        except ApiError as error:
            if error.is_not_found:
                raise self._not_served(api_version, (), split_api_version(api_version)[0]) from error
            raise

    def pinned_kind(self, gvk: GroupVersionKind) -> ServedKind:
        """One kind in exactly this version, from a new request. Raises DiscoveryError when it is not served."""
        found = kind_of(self.pinned_group(gvk.api_version), gvk)
        if found is None:
            raise self._not_served(f"{gvk.kind} in {gvk.api_version}", (), gvk.group)
        return found

    def group(self, name: str) -> ApiGroup:
        """One API group with all of its versions, read with one new request for the group and one for each version.
        With aggregated discovery, one request reads the whole core group. Raises DiscoveryError when there is no such
        group."""
        path = f"/apis/{segment(name, 'group')}" if name else "/api"
        try:
            answer = self._get(path)
        except ApiError as error:
            if error.is_not_found:
                raise self._not_served(f"group {name}", (), name) from error
            raise
        document = self._read(path, answer, aggregated)
        if document is not None:  # the aggregated document of /api has all kinds of the core group
            return ApiGroup(name, tuple(document[0]))
        versions = self._read(path, answer, versions_in)
        return ApiGroup(name, tuple(kind for version in versions for kind in self.pinned_group(version)))

    def _looked_up(self, find: Callable[[tuple[ServedKind, ...]], ServedKind | None]) -> ServedKind | None:
        """Search the kept answers; if nothing is found there, search the answers to a new request."""
        for refresh in (False, True):
            if (found := find(self.kinds(refresh=refresh))) is not None:
                return found
        return None

    def _not_served(self, what: str, near: Iterable[str], group: str | None = None) -> DiscoveryError:
        """The error for a kind that was not found in `group` (None: in any group)."""
        names = " or ".join(near)
        hint = f": did you mean {names}?" if names else ": is its CRD installed?"
        failing = sorted(version for version in [*self._failing]
                         if group in (None, version) or version.startswith(f"{group}/"))
        if failing:
            hint = (f", as far as is known: the discovery of {', '.join(failing)} fails now (kubectl get apiservices "
                    f"shows why){hint if names else ''}")
        return DiscoveryError(f"the server at {self._client.config.cluster_url} does not serve {what}{hint}")

    def served(self, resource: ApiResource) -> bool:
        """Whether the server serves exactly this resource: group, version and plural."""
        return self._looked_up(
            lambda kinds: next((kind for kind in kinds if kind.resource.gvr == resource.gvr), None)) is not None

    def _ask(self) -> tuple[ServedKind, ...]:
        found: list[ServedKind] = []
        problems: dict[str, str] = {}
        for path in ("/api", "/apis"):
            answer = self._get(path)
            document = self._read(path, answer, aggregated)
            if document is not None:
                kinds, faults = document
                found += kinds
                problems.update(faults)
                continue
            for version in self._read(path, answer, versions_in):  # a server without aggregated discovery
                try:
                    found += self._of_version(version, bounded=True)
                except KubeError as error:
                    problems[version] = f"skipped for now: {error}"
        before = frozenset(self._failing)
        for name, problem in problems.items():
            if name not in before:
                log.warning("discovery of %s failed: %s", name, problem)
        self._failing.clear()
        self._failing.update(problems)
        return tuple(found)

    def _of_version(self, api_version: str, *, bounded: bool = False) -> list[ServedKind]:
        """The kinds of one group version. `bounded`: make one attempt of at most `GROUP_PATIENCE`, because the other
        groups wait."""
        group, version = split_api_version(api_version)
        path = path_of(segment(group, "group") if group else "", segment(version, "version"))
        return self._read(path, self._get(path, bounded=bounded), lambda body: of_version(body, api_version))

    def _get(self, path: str, *, bounded: bool = False) -> Answer:
        deadline = self._deadline
        if bounded:
            patience = self._client.clock.monotonic() + GROUP_PATIENCE
            deadline = patience if deadline is None else min(deadline, patience)
        return self._client.answer(_request(path, Retry.NEVER if bounded else None), deadline=deadline)

    def _read(self, path: str, answer: Answer, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(answer.body)
        except DecodeError as error:
            request = _request(path)
            unexpected = unexpected_answer(request, answer.status, answer.headers, answer.body)
            raise unexpected or DecodeError(None, error.path, f"{request.operation}: {error.problem}") from None


def _request(path: str, retry: Retry | None = None) -> Request:
    return Request("GET", path, "get", None, f"discover {path}", headers=(("Accept", _AGGREGATED),), retry=retry)
