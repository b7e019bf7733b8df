"""What an API server offers: discovery documents and their kinds, its version, its warnings.

- `aggregated`, `versions_in` and `of_version` decode discovery documents; they are pure functions that raise
  DecodeError for any other document. In an aggregated document each group is decoded on its own: a group that fails is
  reported as a problem, and the other groups are kept. A subresource that is listed without its kind is left out, as
  client-go does.
- `ServedKind` and `ApiGroup` are the results. The first version of a group is the preferred one. The most stable
  version of a kind is the first by priority (v1 before v1beta1), whatever the server prefers.
- `explained` decides what a 404 or 405 means: the object does not exist, or the kind lacks the subresource or the verb.
  The answer does not distinguish these causes, so discovery is consulted, in this case only.
- `Refusals` remembers for an hour which features a server has refused, so that they are not tried each time.
- `ServerWarnings` logs the `Warning` headers of answers, each text once per client.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from kubectl_runtime.client.http.retry import KindNotServedError, subresource_not_served
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import ForkSafeLock
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


class ServedKind(msgspec.Struct, frozen=True):
    """One kind in one version as the server describes it: its `resource`, verbs, short names and subresources.

    >>> client.discovery.resolve("deploy").short_names
    ('deploy',)
    """

    resource: ApiResource
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    singular: str = ""
    subresources: tuple[str, ...] = ()

    def supports(self, verb: str) -> bool:
        """Whether the server supports `verb` (`list`, `watch`, `patch`) for the kind; permissions are not checked."""
        return verb in self.verbs

    def names(self) -> set[str]:
        """All names of the kind, in lower case: plural, singular, kind and short names, each also with group and
        version."""
        resource = self.resource
        bare = {resource.plural, self.singular or resource.kind.lower(), resource.kind.lower(), *self.short_names}
        if not resource.group:
            return bare | {f"{name}.{resource.version}" for name in bare}
        return bare | {f"{name}.{suffix}" for name in bare
                       for suffix in (resource.group, f"{resource.version}.{resource.group}")}


class ApiGroup(msgspec.Struct, frozen=True):
    """The kinds of one API group; the core group has the empty name. Versions are in the server's order.

    >>> apps = client.discovery.group("apps")
    >>> apps.name, [kind.resource.kind for kind in apps.kinds][:2]
    ('apps', ['ControllerRevision', 'DaemonSet'])
    """

    name: str
    kinds: tuple[ServedKind, ...]

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that have kinds, the preferred version first."""
        return tuple(dict.fromkeys(kind.resource.version for kind in self.kinds))

    @property
    def preferred_version(self) -> str:
        """The version that the server prefers."""
        return self.versions[0]

    def versioned_resources(self, version: str) -> tuple[ServedKind, ...]:
        """The kinds of one version; empty when the server does not serve it."""
        return tuple(kind for kind in self.kinds if kind.resource.version == version)

    def recommended_resources(self) -> tuple[ServedKind, ...]:
        """The kinds of the preferred version."""
        return self.versioned_resources(self.preferred_version)

    def recommended_kind(self, kind: str) -> ServedKind | None:
        """`kind` in the server's preferred version among those that have this kind; None if no version has it."""
        return next((served for served in self.kinds if served.resource.kind == kind), None)

    def resources_by_stability(self) -> tuple[ServedKind, ...]:
        """Each kind once, in its most stable version; kinds that the preferred version lacks are included."""
        best: dict[str, ServedKind] = {}
        for served in self.kinds:
            held = best.setdefault(served.resource.kind, served)
            if version_priority(served.resource.version) < version_priority(held.resource.version):
                best[served.resource.kind] = served
        return tuple(best.values())


def groups_of(kinds: tuple[ServedKind, ...]) -> tuple[ApiGroup, ...]:
    """The groups of these kinds, in the order in which they first appear."""
    found: dict[str, list[ServedKind]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.group, []).append(kind)
    return tuple(ApiGroup(name, tuple(members)) for name, members in found.items())


def kind_of(kinds: tuple[ServedKind, ...], gvk: GroupVersionKind) -> ServedKind | None:
    """The kind with this group, version and name."""
    return next((kind for kind in kinds if kind.resource.gvk == gvk), None)


def path_of(group: str, version: str) -> str:
    """The path of a version's discovery document."""
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
    """The kinds in an aggregated document, and the problem of each group that failed; None for any other document.
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
            problems[_group_name(item) or f"the group at $.items[{index}]"] = f"skipped for now: {error.problem}"
            continue
        name = (group.metadata.name if group.metadata is not None else None) or ""
        for version in group.versions or ():
            if version.freshness == "Stale":  # the API server cannot reach the server behind this version
                problems[f"{name}/{version.version}"] = "its server does not answer; using its earlier kinds"
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
    """The group versions in the document of `/api`, `/apis` or one group, in the server's order. Raises DecodeError."""
    document: _Versions = _decoded(body, _Versions)
    if document.groups is not msgspec.UNSET:
        return [version for group in document.groups or () for version in group.in_order()]
    if document.versions is not msgspec.UNSET:
        return document.in_order()
    raise DecodeError(None, "$", "not a discovery document: it has neither items nor groups nor versions")


def of_version(body: bytes, api_version: str) -> list[ServedKind]:
    """The kinds in the document of one group version. Raises DecodeError."""
    document = _decoded(body, _Listing)
    if document.resources is msgspec.UNSET:
        raise DecodeError(None, "$.resources", "not a discovery document: it has no resources")
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
    """The answer to `/version`: `major`, `minor` and `git_version`, as text; empty if the answer lacks them."""

    major: str = ""
    minor: str = ""
    git_version: str = ""

    @classmethod
    def decoded(cls, body: bytes, server: str) -> ServerVersion:
        """The version in an answer's `body`. Raises DecodeError, which names `server`, for anything else."""
        try:
            return decoded(body, cls)
        except DECODE_FAILURES as error:
            path, problem = problem_of(error)
            raise DecodeError(None, path, f"the answer of {server} to /version cannot be read: {problem}") from None


log = guarded_logger(__name__)


def explained(discover: Callable[[], Iterable[ServedKind]], request: Request, error: ApiError) -> ApiError:
    """The error to raise in place of `error`, which answered `request`: a KindNotServedError for a 404 if the kind
    lacks the subresource, an error that names the kind's verbs if the kind lacks the request's verb, otherwise `error`
    itself.

    `discover` returns the served kinds (`Discovery.kinds`) and may block. If `discover` fails, `error` is returned.
    """
    resource = request.resource
    if resource is None or not _may_be_explained(request, resource, error):
        return error
    try:
        kinds = discover()
    except KubeError as failure:
        log.debug("%s: cannot find out whether the subresource is served: %s", request.operation, failure)
        return error
    for kind in kinds:
        if kind.resource.gvr == resource.gvr:
            if request.subresource is None:
                return _without_the_verb(request, kind, error)
            if request.subresource not in kind.subresources:
                return subresource_not_served(request, resource, error)
    return error


def _may_be_explained(request: Request, resource: ApiResource, error: ApiError) -> bool:
    """Whether discovery may explain the error better. Every served kind has a path for lists in a namespace, so a 404
    to such a list means that the kind is not served. A kind that can only be created, such as Binding, has no paths for
    single objects and for all namespaces, so a 404 for such a path proves nothing."""
    if request.subresource is not None:
        return error.code == HTTPStatus.NOT_FOUND and not isinstance(error, KindNotServedError)
    return error.code == HTTPStatus.METHOD_NOT_ALLOWED or (isinstance(error, KindNotServedError) and not (
        request.verb in ("list", "watch") and (request.namespace or not resource.namespaced)))


_PARTICIPLES = {"get": "read", "deletecollection": "deleted as a collection", "list": "listed", "watch": "watched",
                "create": "created", "update": "replaced", "patch": "patched", "delete": "deleted"}


def _without_the_verb(request: Request, kind: ServedKind, error: ApiError) -> ApiError:
    """Return an error that names the kind's verbs if the kind lacks the requested verb: a review, for example, can only
    be created."""
    verb = {"replace": "update", "apply": "patch"}.get(request.verb, request.verb)
    if verb in kind.verbs:
        return error
    message = (f"{kind.resource.full_name} in {kind.resource.api_version} cannot be {_PARTICIPLES.get(verb, verb)}: "
               f"its verbs are {', '.join(kind.verbs) or 'none'}")
    return type(error)(msgspec.structs.replace(error.status, message=message), request.operation)


REMEMBERED_SECONDS = 3600.0
"""Seconds for which a refusal is remembered: long enough to save requests, short enough to notice a server upgrade."""


class Refusals:
    """The features that the server has refused recently, so that they are not tried again for an hour. Each client has
    one. Safe to use from any thread; all times must come from one clock."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def note(self, what: Hashable, now: float) -> None:
        """Remember for an hour that the server has refused the feature `what`."""
        self._until[what] = now + REMEMBERED_SECONDS

    def holds(self, what: Hashable, now: float) -> bool:
        """Whether the server has refused the feature `what` within the last hour."""
        return now < self._until.get(what, float("-inf"))


_WARNING = r'299 \S+ "((?:[^"\\]|\\.)*)"'
_REMEMBERED = 1000


class ServerWarnings:
    """Logs the warnings in the server's answers, each text once. Safe to use from any thread, and after a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._told: set[str] = set()

    def tell(self, header: str, operation: str) -> None:
        """Log the warnings in `header`, from the answer to `operation`, that were not logged before. To bound the
        memory, only a thousand different texts are logged; one last message says that further warnings are not
        logged."""
        for text in re.findall(_WARNING, header):
            with self._lock:
                number = len(self._told)
                known = text in self._told or number > _REMEMBERED
                if not known:
                    self._told.add(text)
            if not known and number < _REMEMBERED:
                log.warning("%s: the API server warns: %s", operation, text.replace('\\"', '"'))
            elif not known:
                log.warning("%s: the API server has sent %d different warnings; further warnings are not logged",
                            operation, number)
