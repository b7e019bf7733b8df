"""`Identity`: what every resource object says of itself, read-only, from the head that was decoded on arrival."""
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from kubectl_runtime.core.base.keys import namespace_or_none
from kubectl_runtime.core.codec.record import Head, Record
from kubectl_runtime.core.codec.seldom import Seldom, seldom_of
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference, parse_time
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.read_only import ReadOnlyMap
from kubectl_runtime.core.meta.refs import ObjectRef

_NO_MAP: Mapping[str, str] = ReadOnlyMap({})


class Identity:
    """The part of `Resource` that costs no decoding: name, labels, owners and the other metadata, to read. Only
    `metadata` is decoded; whoever wants to change something, changes that."""

    __slots__ = ()
    api_resource: ClassVar[ApiResource]
    _record: Record | None
    _views: dict[str, Any]

    def _head(self) -> Head | ObjectMeta:
        """The metadata view if this reader has one, since it may be changed; else what was decoded on arrival."""
        view: ObjectMeta | None = self._views.get("metadata")
        if view is not None:
            return view
        assert self._record is not None  # objects made here always have the view
        return self._record.head

    def _seldom(self) -> Seldom | ObjectMeta:
        """As `_head`, for what is not decoded on arrival."""
        head = self._head()
        if isinstance(head, ObjectMeta):
            return head
        assert self._record is not None
        return seldom_of(self._record)

    @abstractmethod
    def _view(self, key: str) -> Any:
        """What is shown of one top-level key."""

    @property
    def metadata(self) -> ObjectMeta:
        """A mutable view of the metadata, for this reader. Raises DecodeError."""
        found: ObjectMeta = self._view("metadata")
        return found

    @metadata.setter
    def metadata(self, value: ObjectMeta) -> None:
        self._views["metadata"] = value

    @property
    def name(self) -> str:
        """The object's name; empty while a new object has only `generate_name`."""
        return self._head().name or ""

    @property
    def name_any(self) -> str:
        """The name, or while a new object has none its `generate_name`; empty without either, and where the metadata
        cannot be read. For messages."""
        if name := self.name:
            return name
        try:
            return self._seldom().generate_name or ""
        except DecodeError:
            return ""

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped one, and for a new object that has none yet."""
        return namespace_or_none(self._head().namespace)

    @property
    def uid(self) -> str:
        """What tells the object from a namesake that was made later; empty for an object that was never on the
        server."""
        return self._head().uid or ""

    @property
    def resource_version(self) -> str:
        """The version of the object that this is; empty for an object that was never on the server."""
        return self._head().resource_version or ""

    @property
    def generation(self) -> int | None:
        """How often the spec was changed; None where the kind does not count, and for a new object."""
        return self._head().generation

    @property
    def creation_timestamp(self) -> datetime | None:
        """When the object was created, in UTC; None for an object that was never on the server. Raises DecodeError for
        a text that is not a time."""
        return self._time(self._seldom().creation_timestamp, "creationTimestamp")

    @property
    def deletion_timestamp(self) -> datetime | None:
        """When the object's deletion was requested, in UTC; None if it was not. The object stays until its finalizers
        are gone. Raises DecodeError for a text that is not a time."""
        return self._time(self._head().deletion_timestamp, "deletionTimestamp")

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels, read-only; empty when it has none. To change them, change `metadata.labels`."""
        head = self._head()
        found = head._labels if isinstance(head, Head) else head.labels
        return ReadOnlyMap(found) if found else _NO_MAP

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations, read-only; empty when it has none. To change them, change
        `metadata.annotations`. Decoded at each call, in some µs. Raises DecodeError for what are not annotations."""
        found = self._seldom().annotations
        return ReadOnlyMap(found) if found else _NO_MAP

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """Which objects own this one; read-only. `set_owner` adds one."""
        return tuple(self._head().owner_references or ())

    @property
    def finalizers(self) -> tuple[str, ...]:
        """What has to be done before the object can go; read-only. See `finalizer`."""
        return tuple(self._head().finalizers or ())

    @property
    def ref(self) -> ObjectRef:
        """Which object it is: kind, namespace and name, hashable."""
        return ObjectRef(self.api_resource, self.name, self.namespace)

    def object_ref(self) -> dict[str, str]:
        """A core ObjectReference to this object as other objects carry it, with what is known of it: apiVersion, kind,
        name, namespace, uid, resourceVersion. `fetch` and the Recorder take it."""
        resource = self.api_resource
        found = {"apiVersion": resource.api_version, "kind": resource.kind, "name": self.name,
                 "namespace": self.namespace or "", "uid": self.uid, "resourceVersion": self.resource_version}
        return {key: value for key, value in found.items() if value}

    def _time(self, value: datetime | str | None, key: str) -> datetime | None:
        if not isinstance(value, str):
            return value
        try:
            return parse_time(value)
        except ValueError:
            path = f"$.metadata.{key}"
            raise DecodeError(self.ref, path, f"{path} is not an RFC 3339 time") from None


def _refusing(name: str, remedy: str) -> Any:
    def refuse(self: Identity, _: object) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} is read-only: {remedy}")

    return refuse


if not TYPE_CHECKING:  # type checkers say that these are read-only; Python by itself only that there is no setter
    for _name in ("name", "namespace", "labels", "annotations", "owner_references", "finalizers", "uid",
                  "resource_version", "generation", "creation_timestamp", "deletion_timestamp"):
        setattr(Identity, _name, getattr(Identity, _name).setter(
            _refusing(_name, f"change metadata.{_name}, which `replace` sends")))
    for _name in ("name_any", "ref"):
        setattr(Identity, _name, getattr(Identity, _name).setter(
            _refusing(_name, "it follows from metadata.name and metadata.namespace")))
