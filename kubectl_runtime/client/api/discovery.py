"""What the server serves: kinds by name, with their verbs and subresources.

One request each to `/api` and `/apis` (aggregated discovery); a server without it is asked group by group. A group
that fails, or whose description is none, is reported once, left out, and asked again at the next refresh. What was
found is kept for `TTL` on the client's clock; a name that is not in it is looked up once more at the server, since CRDs
come and go. Nothing is kept on disk.
"""
from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Protocol, TypeVar

from cachetools import TTLCache

from kubectl_runtime.client.api.served_kinds import ServedKind, aggregated, of_version, versions_in
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.failures import unexpected_answer
from kubectl_runtime.client.http.middleware import Answer
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import DiscoveryError, KubeError
from kubectl_runtime.core.base.forks import ForkSafeLock
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.names import segment
from kubectl_runtime.core.requests.request import Request

T = TypeVar("T")
log = guarded_logger(__name__)

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
        self._failing: frozenset[str] = frozenset()

    def kinds(self, *, refresh: bool = False) -> tuple[ServedKind, ...]:
        """All of them: the core group first, then in the server's order, which is its preference.

        Raises ApiError or TransportError when the server does not answer at all, DecodeError when its answer is no
        document of discovery.
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
        problems: dict[str, str] = {}
        for path in ("/api", "/apis"):
            answer = self._get(path)
            document = self._read(path, answer, aggregated)
            if document is not None:
                kinds, faults = document
                found += kinds
                problems.update(faults)
                continue
            for version in self._read(path, answer, versions_in):  # a server that does not aggregate
                try:
                    found += self._of_version(version)
                except KubeError as error:
                    problems[version] = f"it is left out for now: {error}"
        before, self._failing = self._failing, frozenset(problems)
        for name, problem in problems.items():
            if name not in before:
                log.warning("discovery of %s failed: %s", name, problem)
        return tuple(found)

    def _of_version(self, api_version: str) -> list[ServedKind]:
        root = "/apis" if "/" in api_version else "/api"
        path = "/".join((root, *(segment(part, "group version") for part in api_version.split("/"))))
        return self._read(path, self._get(path), lambda body: of_version(body, api_version))

    def _get(self, path: str) -> Answer:
        return self._client.answer(_request(path))

    def _read(self, path: str, answer: Answer, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(answer.body)
        except DecodeError as error:
            request = _request(path)
            unexpected = unexpected_answer(request, answer.status, answer.headers, answer.body)
            raise unexpected or DecodeError(None, error.path, f"{request.operation}: {error.problem}") from None


def _request(path: str) -> Request:
    return Request("GET", path, "get", None, f"discover {path}", headers=(("Accept", _AGGREGATED),))
