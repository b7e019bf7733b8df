"""`ObjectRef`: which object. The key of stores, queues and logs."""
from __future__ import annotations

import msgspec

from kubectl_runtime.core.base.keys import Key, key_of, namespace_or_none
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, Scope, api_resource_of


class ObjectRef(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The identity of an object: group, kind, namespace and name are compared; version and plural are only carried.

    A cluster-scoped object has no namespace, which is None (an empty one means the same). Immutable and hashable.

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
        """Namespace and name: what tells the object from the others of its kind."""
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
        return not self == other  # a Struct has one of its own, which compares all fields

    def __hash__(self) -> int:
        return hash((self.name, self.namespace or None, self.resource.kind))

    def canonical(self, resource: ApiResource) -> ObjectRef:
        """The same object as a ref of `resource`, which has the same group and kind: its version, and no namespace when
        the kind is cluster-scoped (an owner reference of a namespaced child says nothing of its owner's scope)."""
        namespace = self.namespace if resource.scope is Scope.NAMESPACED else None
        if self.resource is resource and self.namespace == namespace:
            return self
        return ObjectRef(resource, self.name, namespace)

    def __str__(self) -> str:
        """`Pod.v1./my-pod.my-namespace`, as kube-rs writes it."""
        where = f"{self.name}.{self.namespace}" if self.namespace else self.name
        return f"{self.resource.kind}.{self.resource.version}.{self.resource.group}/{where}"

    __repr__ = __str__
