"""Names of types (group, version, kind, plural, scope), the order of API versions, and `ObjectRef`.

Two keys sort versions, best first, with `sorted` or `min`:

    by priority      which a client should use     v10 v2 v1 v11beta2 v10beta3 v3beta1 v12alpha1 v11alpha2 foo1 foo10
    by generation    which is the newest           v12alpha1 v11beta2 v11alpha2 v10 v10beta3 v3beta1 v2 v1 foo1 foo10

Versions whose names do not follow Kubernetes' pattern (`v1`, `v1beta2`, `v1alpha3`) come last, in alphabetical order.
Servers list the versions of custom resources by priority.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key, key_of, namespace_or_none


class Scope(Enum):
    """The scope of a kind: its objects are in namespaces (`Scope.NAMESPACED`) or cluster-scoped (`Scope.CLUSTER`).

    >>> Node.api_resource.scope
    <Scope.CLUSTER: 'Cluster'>
    """

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


class GroupVersionKind(msgspec.Struct, frozen=True):
    """A kind in one version of its API group; the core group is the empty string.

    >>> GroupVersionKind("apps", "v1", "Deployment").api_version
    'apps/v1'
    """

    group: str
    version: str
    kind: str

    @classmethod
    def parse(cls, api_version: str, kind: str) -> GroupVersionKind:
        """The kind from an object's `apiVersion` and `kind`. Raises RequestError when `api_version` has more than one
        slash."""
        group, version = split_api_version(api_version)
        return cls(group, version, kind)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> GroupVersionKind:
        """The kind of an object, from its `apiVersion` and `kind`. Raises RequestError when one of them is missing or
        malformed."""
        api_version, kind = content.get("apiVersion"), content.get("kind")
        if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
            raise RequestError(f"an object needs apiVersion and kind; this object has {api_version!r} "
                               f"and {kind!r}")
        return cls.parse(api_version, kind)

    @property
    def api_version(self) -> str:
        """Group and version as in objects: `apps/v1`, or `v1` in the core group."""
        return join_api_version(self.group, self.version)


class GroupVersionResource(msgspec.Struct, frozen=True):
    """A resource (the plural name) in one version of its API group, as in paths and admission reviews.

    >>> GroupVersionResource("apps", "v1", "deployments").resource
    'deployments'
    """

    group: str
    version: str
    resource: str

    @classmethod
    def parse(cls, api_version: str, resource: str) -> GroupVersionResource:
        """The resource from an `apiVersion` and a plural. Raises RequestError when `api_version` has more than one
        slash."""
        group, version = split_api_version(api_version)
        return cls(group, version, resource)

    @property
    def api_version(self) -> str:
        """Group and version as in objects: `apps/v1`, or `v1` in the core group."""
        return join_api_version(self.group, self.version)


class ApiResource(msgspec.Struct, frozen=True):
    """Group, version, kind, plural and scope of a kind: the data that a client needs. `kind` arguments take an
    ApiResource or a resource class.

    >>> backups = ApiResource("example.com", "v1", "Backup", "backups")
    >>> backups.api_version, backups.full_name
    ('example.com/v1', 'backups.example.com')
    >>> Api.all(client, backups)
    <Api ...>
    """

    group: str
    version: str
    kind: str
    plural: str
    scope: Scope = Scope.NAMESPACED

    def __post_init__(self) -> None:
        for name in ("group", "version", "kind", "plural"):
            if not isinstance(getattr(self, name), str):
                raise RequestError(f"the {name} of an ApiResource must be text, not {getattr(self, name)!r}")
        if not self.kind or "\0" in self.kind:
            raise RequestError(f"the kind of an ApiResource must be a name such as Pod, not {self.kind!r}")
        if not isinstance(self.scope, Scope):
            raise RequestError(f"the scope of {self.full_name} must be Scope.NAMESPACED or Scope.CLUSTER, "
                               f"not {self.scope!r}")

    @classmethod
    def from_gvk(cls, gvk: GroupVersionKind, *, plural: str | None = None,
                 scope: Scope = Scope.NAMESPACED) -> ApiResource:
        """The resource of a kind; without `plural`, `plural_of` guesses the plural."""
        return cls(gvk.group, gvk.version, gvk.kind, plural or plural_of(gvk.kind), scope)

    @property
    def api_version(self) -> str:
        """Group and version as in objects: `apps/v1`, or `v1` in the core group."""
        return join_api_version(self.group, self.version)

    @property
    def gvk(self) -> GroupVersionKind:
        """Group, version and kind, without plural and scope."""
        return GroupVersionKind(self.group, self.version, self.kind)

    @property
    def gvr(self) -> GroupVersionResource:
        """Group, version and plural, without kind and scope."""
        return GroupVersionResource(self.group, self.version, self.plural)

    @property
    def namespaced(self) -> bool:
        """Whether the kind's objects are in namespaces."""
        return self.scope is Scope.NAMESPACED

    @property
    def full_name(self) -> str:
        """`plural.group`, as CRDs and kubectl write it; only the plural in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def with_version(self, version: str) -> ApiResource:
        """The same kind in another version of its group."""
        return msgspec.structs.replace(self, version=version)


class HasApiResource(Protocol):
    """A class that has an `ApiResource`, such as every resource class."""

    api_resource: ApiResource


def api_resource_of(kind: HasApiResource | ApiResource) -> ApiResource:
    """The `ApiResource` of a resource class, or `kind` itself."""
    if isinstance(kind, ApiResource):
        return kind
    found = getattr(kind, "api_resource", None)
    if isinstance(found, ApiResource) and isinstance(kind, type):
        return found
    its_own = getattr(kind, "resource", None)
    if isinstance(its_own, ApiResource):  # `kind` is an Api or an ObjectRef
        raise RequestError(f"the kind {its_own.kind} itself is expected, not {type(kind).__name__}: as in "
                           f"reads({its_own.kind}) or ctx.read({its_own.kind}, name)")
    raise RequestError(f"{kind!r} is neither an ApiResource nor a resource class, "
                       "which is a subclass of Resource with group=, version= and kind=")


def split_api_version(api_version: str) -> tuple[str, str]:
    """`apps/v1` -> (`apps`, `v1`); `v1` -> ("", `v1`). Raises RequestError for a second slash, an empty version, or a
    value that is not text."""
    if not isinstance(api_version, str):
        raise RequestError(f"an apiVersion must be text such as 'apps/v1', not {api_version!r}")
    group, _, version = api_version.rpartition("/")
    if "/" in group or not version:
        raise RequestError(f"malformed apiVersion {api_version!r}: expected 'version' or 'group/version'")
    return group, version


def join_api_version(group: str, version: str) -> str:
    """The `apiVersion` of a group and version."""
    return f"{group}/{version}" if group else version


_IRREGULAR = {
    "endpoints": "endpoints", "endpointslices": "endpointslices", "nodemetrics": "nodes", "podmetrics": "pods"}


def plural_of(kind: str) -> str:
    """The usual plural of a kind, in lower case, by kube-rs's rules (English, with exceptions)."""
    name = kind.lower()
    if name in _IRREGULAR:
        return _IRREGULAR[name]
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return name + "es"
    if name.endswith("y") and len(name) > 1 and name[-2] not in "aeiou":
        return name[:-1] + "ies"
    return name + "s"


_RULE = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGES = {"": 0, "beta": 1, "alpha": 2}
_OTHER = len(_STAGES)


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A sort key for the order by priority: stable before beta before alpha, then the higher numbers.

    >>> sorted(["v1", "v2beta1", "v2", "v10alpha1"], key=version_priority)
    ['v2', 'v1', 'v2beta1', 'v10alpha1']
    """
    found = _RULE.fullmatch(version)
    if found is None:
        return _OTHER, 0, 0, version
    return _STAGES[found[2] or ""], -int(found[1]), -int(found[3] or 0), version


def version_generation(version: str) -> tuple[int, int, int, int, str]:
    """A sort key for the order by generation: the higher number, then stable before beta before alpha.

    >>> sorted(["v1", "v2beta1", "v2", "v10alpha1"], key=version_generation)
    ['v10alpha1', 'v2', 'v2beta1', 'v1']
    """
    stage, number, minor, text = version_priority(version)
    return int(stage == _OTHER), number, stage, minor, text


class ObjectRef(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The identity of an object. Group, kind, namespace and name are compared; version and plural are not.

    The namespace of a cluster-scoped object is None (an empty string means the same). Immutable and hashable.

    >>> ref = Api.namespaced(client, ConfigMap, "default").get("settings").ref
    >>> str(ref), ref.namespace, ref.name
    ('ConfigMap.v1./settings.default', 'default', 'settings')
    """

    resource: ApiResource
    name: str
    namespace: str | None = None

    @classmethod
    def of(cls, kind: HasApiResource | ApiResource, name: str, namespace: str | None = None) -> ObjectRef:
        """The ref of an object: `ObjectRef.of(ConfigMap, "a", "default")`. Raises RequestError when `kind` is neither a
        resource class nor an ApiResource."""
        return cls(api_resource_of(kind), name, namespace_or_none(namespace))

    @property
    def key(self) -> Key:
        """Namespace and name: the identity of the object in its kind."""
        return key_of(self.namespace, self.name)

    @property
    def kind(self) -> str:
        """The kind's name, such as `Pod`."""
        return self.resource.kind

    @property
    def group(self) -> str:
        """The kind's API group; empty for the core group."""
        return self.resource.group

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectRef):
            return NotImplemented
        return self.name == other.name and (self.namespace or None) == (other.namespace or None) and (
            self.resource is other.resource
            or (self.resource.kind == other.resource.kind and self.resource.group == other.resource.group))

    def __ne__(self, other: object) -> bool:
        return not self == other  # needed because a Struct's own method compares all fields

    def __hash__(self) -> int:
        return hash((self.name, self.namespace or None, self.resource.kind))

    def canonical(self, resource: ApiResource) -> ObjectRef:
        """The same object as a ref of `resource`, which must have the same group and kind. If the kind is
        cluster-scoped, the namespace is dropped: a ref made from an owner reference may have the child's namespace,
        because an owner reference does not say whether its owner is cluster-scoped."""
        namespace = self.namespace if resource.scope is Scope.NAMESPACED else None
        if self.resource is resource and self.namespace == namespace:
            return self
        return ObjectRef(resource, self.name, namespace)

    def __str__(self) -> str:
        """`Pod.v1./my-pod.my-namespace`, as kube-rs writes it."""
        where = f"{self.name}.{self.namespace}" if self.namespace else self.name
        return f"{self.resource.kind}.{self.resource.version}.{self.resource.group}/{where}"

    __repr__ = __str__
