"""What a server says it serves: kinds, and the groups they are in. Values; `discovery_documents` reads them.

The first version of a group is the preferred one. The most stable version of a kind is the first by priority (v1 before
v1beta1) of those that have it, whatever the server prefers.
"""
from __future__ import annotations

from dataclasses import dataclass

from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, join_api_version
from kubectl_runtime.core.meta.versions import version_priority


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
