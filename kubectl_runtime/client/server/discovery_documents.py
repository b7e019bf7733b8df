"""How the documents of discovery say which kinds there are. Pure functions from bytes to values.

    aggregated(body)            APIGroupDiscoveryList: everything below /api or /apis in one document
    versions_in(body)           APIVersions, APIGroupList, APIGroup: the group versions, the preferred one of each group
                                first, each of which has a document of its own
    of_version(body, "apps/v1") APIResourceList: that document

Any other document raises DecodeError, which names the place. In the aggregated one each group is read alone: one
that does not decode is a problem of that group, and leaves the others as they are. What lacks a kind of its own (a
subresource that the server lists by itself) is left out, as by client-go.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubectl_runtime.client.server.served_kinds import ServedKind
from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.meta.gvk import ApiResource, Scope, split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of


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
