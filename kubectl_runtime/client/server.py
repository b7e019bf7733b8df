"""How the documents of discovery say which kinds there are. Pure functions from bytes to values.

    aggregated(body)            APIGroupDiscoveryList: everything below /api or /apis in one document
    versions_in(body)           APIVersions, APIGroupList, APIGroup: the group versions, the preferred one of each group
                                first, each of which has a document of its own
    of_version(body, "apps/v1") APIResourceList: that document

Any other document raises DecodeError, which names the place. In the aggregated one each group is read alone: one
that does not decode is a problem of that group, and leaves the others as they are. What lacks a kind of its own (a
subresource that the server lists by itself) is left out, as by client-go.

What a server says it serves: kinds, and the groups they are in. Values; `discovery_documents` reads them.

The first version of a group is the preferred one. The most stable version of a kind is the first by priority (v1 before
v1beta1) of those that have it, whatever the server prefers.

What an API server says of itself.

What a 404 for a subresource means: there is no such object, or the kind does not have the subresource.

The server's answer names the object in both cases. Discovery can tell them apart, so it is asked, but only then.

`Refusals`: what a server was found not to do, remembered for an hour so that it is not asked each time.

`ServerWarnings`: what the API server says in `Warning` headers, each text once in a client's life.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from kubectl_runtime.client.http.retry import KindNotServedError, subresource_not_served
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import ForkSafeLock
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.gvk import (
    ApiResource,
    GroupVersionKind,
    Scope,
    join_api_version,
    split_api_version,
    version_priority,
)
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.requests.request import Request


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind of one version as the server describes it: its `resource`, verbs, short names and subresources.

    >>> client.discovery.resolve("deploy").short_names
    ('deploy',)
    """

    resource: ApiResource
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    singular: str = ""
    subresources: tuple[str, ...] = ()

    def supports(self, verb: str) -> bool:
        """Whether the server has `verb` (`list`, `watch`, `patch`) for it; not whether anybody may use it."""
        return verb in self.verbs

    def names(self) -> set[str]:
        """What the kind may be called, in lower case: plural, singular, kind, short names, each also with group and
        version."""
        resource = self.resource
        bare = {resource.plural, self.singular or resource.kind.lower(), resource.kind.lower(), *self.short_names}
        if not resource.group:
            return bare | {f"{name}.{resource.version}" for name in bare}
        return bare | {f"{name}.{suffix}" for name in bare
                       for suffix in (resource.group, f"{resource.version}.{resource.group}")}


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """The kinds of one API group; the core group has the empty name. Versions are in the server's order.

    >>> apps = client.discovery.group("apps")
    >>> apps.name, [kind.resource.kind for kind in apps.kinds][:2]
    ('apps', ['ControllerRevision', 'DaemonSet'])
    """

    name: str
    kinds: tuple[ServedKind, ...]

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that have kinds, the preferred one first."""
        return tuple(dict.fromkeys(kind.resource.version for kind in self.kinds))

    @property
    def preferred_version(self) -> str:
        """The version that the server prefers."""
        return self.versions[0]

    def versioned_resources(self, version: str) -> tuple[ServedKind, ...]:
        """The kinds of one version; none when the server does not serve it."""
        return tuple(kind for kind in self.kinds if kind.resource.version == version)

    def recommended_resources(self) -> tuple[ServedKind, ...]:
        """The kinds of the preferred version."""
        return self.versioned_resources(self.preferred_version)

    def recommended_kind(self, kind: str) -> ServedKind | None:
        """`kind` in the first version, by the server's preference, that has it."""
        return next((served for served in self.kinds if served.resource.kind == kind), None)

    def resources_by_stability(self) -> tuple[ServedKind, ...]:
        """Each kind once, in its most stable version: also those that the preferred version lacks."""
        best: dict[str, ServedKind] = {}
        for served in self.kinds:
            held = best.setdefault(served.resource.kind, served)
            if version_priority(served.resource.version) < version_priority(held.resource.version):
                best[served.resource.kind] = served
        return tuple(best.values())


def groups_of(kinds: tuple[ServedKind, ...]) -> tuple[ApiGroup, ...]:
    """The groups of these kinds, in their order."""
    found: dict[str, list[ServedKind]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.group, []).append(kind)
    return tuple(ApiGroup(name, tuple(members)) for name, members in found.items())


def kind_of(kinds: tuple[ServedKind, ...], gvk: GroupVersionKind) -> ServedKind | None:
    """The one of this group, version and kind."""
    return next((kind for kind in kinds if kind.resource.gvk == gvk), None)


def path_of(group: str, version: str) -> str:
    """Where the document of a version is."""
    return f"/apis/{join_api_version(group, version)}" if group else f"/api/{version}"


class _Subresource(msgspec.Struct):
    subresource: str


class _ResponseKind(msgspec.Struct):
    kind: str | None = None


class _Entry(msgspec.Struct, rename="camel"):
    resource: str
    response_kind: _ResponseKind | None = None
    scope: Scope | None = None
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    singular_resource: str | None = None
    subresources: list[_Subresource] | None = None


class _Version(msgspec.Struct):
    version: str
    resources: list[_Entry] | None = None
    freshness: str | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None


class _Group(msgspec.Struct):
    metadata: _Metadata | None = None
    versions: list[_Version] | None = None


class _GroupName(msgspec.Struct):
    metadata: _Metadata | None = None


class _Aggregated(msgspec.Struct):
    kind: str | None = None
    items: list[msgspec.Raw] | None = None


class _GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _ListedGroup(msgspec.Struct, rename="camel"):
    versions: list[str | _GroupVersion] | msgspec.UnsetType | None = msgspec.UNSET
    preferred_version: _GroupVersion | None = None

    def in_order(self) -> list[str]:
        preferred = self.preferred_version.group_version if self.preferred_version is not None else None
        found = [version if isinstance(version, str) else version.group_version for version in self.versions or ()]
        return sorted(found, key=lambda version: version != preferred)


class _Versions(_ListedGroup):
    groups: list[_ListedGroup] | msgspec.UnsetType | None = msgspec.UNSET


class _Listed(msgspec.Struct, rename="camel"):
    name: str
    kind: str
    namespaced: bool | None = None
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    singular_name: str | None = None


class _Listing(msgspec.Struct):
    resources: list[_Listed] | msgspec.UnsetType | None = msgspec.UNSET


def aggregated(body: bytes) -> tuple[list[ServedKind], Mapping[str, str]] | None:
    """The kinds of an aggregated document, and what is wrong with which of its groups; None for another document.
    Raises DecodeError for a body that is not a JSON object."""
    document = _decoded(body, _Aggregated)
    if document.kind != "APIGroupDiscoveryList":
        return None
    found: list[ServedKind] = []
    problems: dict[str, str] = {}
    for index, item in enumerate(document.items or ()):
        try:
            group = _decoded(item, _Group, f"$.items[{index}]")
        except DecodeError as error:
            problems[_group_name(item) or f"the group at $.items[{index}]"] = f"it is left out for now: {error.problem}"
            continue
        name = (group.metadata.name if group.metadata is not None else None) or ""
        for version in group.versions or ():
            if version.freshness == "Stale":  # the server behind it does not answer the API server
                problems[f"{name}/{version.version}"] = "its server does not answer; this is what it served before"
            found += _kinds(name, version)
    return found, problems


def _kinds(group: str, version: _Version) -> list[ServedKind]:
    return [
        ServedKind(ApiResource(group, version.version, entry.response_kind.kind, entry.resource,
                               entry.scope or Scope.NAMESPACED),
                   tuple(entry.verbs or ()), tuple(entry.short_names or ()), entry.singular_resource or "",
                   tuple(sub.subresource for sub in entry.subresources or ()))
        for entry in version.resources or () if entry.response_kind is not None and entry.response_kind.kind]


def _group_name(item: msgspec.Raw) -> str:
    try:
        metadata = decoded(item, _GroupName).metadata
    except DECODE_FAILURES:
        return ""
    return (metadata.name if metadata is not None else None) or ""


def versions_in(body: bytes) -> list[str]:
    """The group versions of `/api`, `/apis` or one group, in the server's order. Raises DecodeError."""
    document: _Versions = _decoded(body, _Versions)
    if document.groups is not msgspec.UNSET:
        return [version for group in document.groups or () for version in group.in_order()]
    if document.versions is not msgspec.UNSET:
        return document.in_order()
    raise DecodeError(None, "$", "no document of discovery: it has neither items nor groups nor versions")


def of_version(body: bytes, api_version: str) -> list[ServedKind]:
    """The kinds of one group version. Raises DecodeError."""
    document = _decoded(body, _Listing)
    if document.resources is msgspec.UNSET:
        raise DecodeError(None, "$.resources", "no document of discovery: it has no resources")
    group, version = split_api_version(api_version)
    entries = document.resources or []
    subresources: dict[str, list[str]] = {}
    for entry in entries:
        plural, slash, subresource = entry.name.partition("/")
        if slash:
            subresources.setdefault(plural, []).append(subresource)
    return [
        ServedKind(ApiResource(group, version, entry.kind, entry.name,
                               Scope.NAMESPACED if entry.namespaced else Scope.CLUSTER),
                   tuple(entry.verbs or ()), tuple(entry.short_names or ()), entry.singular_name or "",
                   tuple(subresources.get(entry.name, ())))
        for entry in entries if "/" not in entry.name]


def _decoded(body: bytes | msgspec.Raw, kind: type[Any], at: str = "$") -> Any:
    try:
        return decoded(body, kind)
    except DECODE_FAILURES as error:
        raise DecodeError(None, *problem_of(error, at=at)) from None


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `/version`: `major`, `minor` and `git_version`, as texts; what is not told is empty."""

    major: str = ""
    minor: str = ""
    git_version: str = ""

    @classmethod
    def decoded(cls, body: bytes, server: str) -> ServerVersion:
        """The version in an answer's `body`. Raises DecodeError, which names the `server`, for anything else."""
        try:
            return decoded(body, cls)
        except DECODE_FAILURES as error:
            path, problem = problem_of(error)
            raise DecodeError(None, path, f"the answer of {server} to /version cannot be read: {problem}") from None


log = guarded_logger(__name__)


def explained(discover: Callable[[], Iterable[ServedKind]], request: Request, error: ApiError) -> ApiError:
    """The error to raise for `error`, which answered `request`: a KindNotServedError for a 404 that means that the kind
    does not have the subresource, or else `error` itself.

    `discover` says what is served (`Discovery.kinds`). Blocks while it asks. When asking fails, `error` is returned.
    """
    resource = request.resource
    if (error.code != HTTPStatus.NOT_FOUND or resource is None or request.subresource is None
            or isinstance(error, KindNotServedError)):
        return error
    try:
        kinds = discover()
    except KubeError as failure:
        log.debug("%s: whether the subresource is served is not known: %s", request.operation, failure)
        return error
    for kind in kinds:
        if kind.resource.gvr == resource.gvr and request.subresource not in kind.subresources:
            return subresource_not_served(request, resource, error)
    return error


REMEMBERED_SECONDS = 3600.0
"""Long enough to cost nothing, short enough to notice that the server was upgraded."""


class Refusals:
    """What the server has refused lately, so that it is not asked again for an hour. One for each client. Safe to use
    from any thread; times are of one clock."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def note(self, what: Hashable, now: float) -> None:
        """`what` was refused."""
        self._until[what] = now + REMEMBERED_SECONDS

    def holds(self, what: Hashable, now: float) -> bool:
        """Whether `what` was refused within the last hour."""
        return now < self._until.get(what, float("-inf"))


_WARNING = r'299 \S+ "((?:[^"\\]|\\.)*)"'
_REMEMBERED = 1000


class ServerWarnings:
    """Logs the warnings that the server sends with its answers, each text once. Safe to use from any thread, and after
    a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._told: set[str] = set()

    def tell(self, header: str, operation: str) -> None:
        """Log the warnings in `header`, which came with the answer to `operation`, that were not logged before. After a
        thousand texts, which memory bears, one more line says that further ones are not shown."""
        for text in re.findall(_WARNING, header):
            with self._lock:
                number = len(self._told)
                known = text in self._told or number > _REMEMBERED
                if not known:
                    self._told.add(text)
            if not known and number < _REMEMBERED:
                log.warning("%s: the API server warns: %s", operation, text.replace('\\"', '"'))
            elif not known:
                log.warning("%s: the API server has given %d different warnings; further ones are not shown",
                            operation, number)
