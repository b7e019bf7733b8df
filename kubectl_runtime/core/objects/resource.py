"""`Resource`: an object of the API, read lazily from the bytes that were received.

    class Deployment(Resource, group="apps", version="v1", kind="Deployment"):
        spec: DeploymentSpec                       # a Struct or dataclass that names what the program reads, or a dict
        status: DeploymentStatus | None = None

Each declared attribute is a top-level key of the object (`string_data` is `stringData`) and is decoded when it is first
read, for this reader alone. Views may be changed: the store and other readers never see it, and `replace` sends it.
`obj["spec"]` is the same content as plain JSON values, under the wire's keys. The two forms are copies of their own;
changes of both are sent, and where both changed one value, that of `obj["…"]`; an item of a list is for one of them.

Objects are equal only to themselves, and their repr is their ref. One object belongs to one thread at a time.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, TypeVar

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.nearest import did_you_mean
from kubectl_runtime.core.base.wire import camel
from kubectl_runtime.core.codec.decode import decode_object
from kubectl_runtime.core.codec.encode import encode_plain, identified, new_object, written_back
from kubectl_runtime.core.codec.lineage import Kept
from kubectl_runtime.core.codec.record import Head, Record
from kubectl_runtime.core.codec.views import plain_object
from kubectl_runtime.core.codec.writeback import merge
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference
from kubectl_runtime.core.meta.models import to_model
from kubectl_runtime.core.objects import ownership
from kubectl_runtime.core.objects.declare import (
    Attribute,
    Declaring,
    attributes_of,
    bound_class,
    codecs_of,
    declare,
    is_bound,
)
from kubectl_runtime.core.objects.identity import Identity
from kubectl_runtime.core.objects.new_metadata import ARGUMENTS, new_metadata

M = TypeVar("M")
R = TypeVar("R", bound="Resource")
KEYWORDS = ("group", "version", "kind", "plural", "scope", "subresources")
"""What a resource class says of its kind."""


class _MadeHere(Head, frozen=True, gc=False, eq=False, kw_only=True):
    """The head of the bytes behind a new object's plain form; its metadata is in its view. A class, since copies and
    pickles keep it."""


class Resource(Identity, Declaring):
    """The base of every resource class: an object of a kind, whose top-level keys are attributes of the declared types.

    Class keywords: `group`, `version`, `kind`, `plural`, `namespaced`. What a class does not declare is kept:
    `obj["spec"]` has it, and writing back loses nothing. An object from a store is the reader's own: changing it
    changes no store. Its repr is its ref, never its content.

    >>> class DeploymentSpec(Struct):
    ...     replicas: int = 1
    >>> class Web(Resource, group="apps", version="v1", kind="Deployment", plural="deployments"):
    ...     spec: DeploymentSpec
    >>> web = Api.namespaced(client, Web, "default").get("web")
    >>> web.spec.replicas, web.name, web["spec"]["template"]["spec"]["containers"][0]["image"]
    (1, 'web', 'nginx')
    """

    __slots__ = ("_kept", "_plain", "_record", "_views")
    api_resource: ClassVar[ApiResource]
    subresources: ClassVar[tuple[str, ...] | None] = None
    """The names of the kind's subresources (`status`, `scale`); None when the class does not say."""

    def __init_subclass__(cls, *, group: str | None = None, version: str | None = None, kind: str | None = None,
                          plural: str | None = None, scope: Scope | None = None,
                          subresources: tuple[str, ...] | None = None, **more: Never) -> None:
        super().__init_subclass__()
        for name in more:
            raise TypeError(f"class {cls.__name__} has no keyword {name}={did_you_mean(name, KEYWORDS)}")
        declare(cls, group=group, version=version, kind=kind, plural=plural, scope=scope)
        if subresources is not None:
            cls.subresources = subresources

    def __init__(self, *, name: str | None = None, namespace: str | None = None, generate_name: str | None = None,
                 labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
                 owner_references: list[OwnerReference] | None = None, finalizers: list[str] | None = None,
                 metadata: ObjectMeta | None = None, **fields: Any) -> None:
        """A new object, not yet on the server. `fields` are the declared attributes of the class.

        Metadata comes as single arguments or as one `ObjectMeta`. Raises RequestError for an undeclared field and for
        metadata of the wrong type.
        """
        if not hasattr(type(self), "api_resource"):
            raise RequestError(f"{type(self).__name__} is bound to no kind: give its class group=, version= and kind=")
        self._record: Record | None = None
        self._plain: dict[str, Any] | None = None
        self._kept: dict[str, Kept] | None = None
        self._views: dict[str, Any] = {"metadata": metadata or new_metadata(
            type(self).__name__, name=name, namespace=namespace, generate_name=generate_name, labels=labels,
            annotations=annotations, finalizers=finalizers, owner_references=owner_references)}
        for field, value in fields.items():
            if not isinstance(getattr(type(self), field, None), Attribute):
                known = attributes_of(type(self))
                hint = did_you_mean(field, [*known, *ARGUMENTS])
                raise RequestError(f"{type(self).__name__} has no field {field!r}{hint}; "
                                   f"it declares {', '.join(known) or 'none'}")
            setattr(self, field, value)

    @classmethod
    def of(cls, resource: ApiResource) -> type[Self]:
        """This class bound to a kind that is known only at run time: the same class for the same resource.

        Raises RequestError when the class is of another kind already; of its own it may be of another version.
        """
        own: ApiResource | None = getattr(cls, "api_resource", None)
        if own is not None and (own.group, own.kind) != (resource.group, resource.kind):
            raise RequestError(f"{cls.__name__} is {own.kind} of {own.api_version}: it cannot be {resource.full_name}")
        return cls if own == resource else bound_class(cls, resource)

    def try_parse(self, kind: type[R]) -> R:
        """This object, with the reader's changes, as another class of its kind (or one without a kind).

        Raises RequestError when `kind` is of another group or kind, DecodeError for content that does not fit it.
        """
        cls = kind.of(self.api_resource)
        parsed = cls.from_record(self.to_record(named=False))
        parsed.validate()
        return parsed

    # Received objects

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """A reader of a stored `record`. Cheap: nothing is decoded."""
        self = cls.__new__(cls)
        self._record = record
        self._plain = None
        self._kept = None
        self._views = {}
        return self

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """A reader of one object's JSON, which may have no name yet. Raises DecodeError for bad metadata."""
        record = decode_object(raw, cls.api_resource, named=False)
        if (error := record.error) is not None:
            raise error
        return cls.from_record(record)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """A reader of an object given as plain JSON values, which are copied. Raises DecodeError."""
        return cls.from_bytes(encode_plain(content))

    @property
    def record(self) -> Record | None:
        """What was received; None for an object that was made here."""
        record = self._record
        return None if record is not None and type(record.head) is _MadeHere else record

    def to_record(self, *, partial: bool = False, named: bool = True) -> Record:
        """A record of the object as it is now, for stores: what was received, as long as nothing of it was looked at.

        `partial` marks that parts were taken away; `named`: it must have a name, as what is stored has.
        """
        received = self._record
        was_partial = received is not None and received.partial
        if received is not None and not self._views and self._plain is None:
            return received if was_partial or not partial else msgspec.structs.replace(received, partial=True)
        record = decode_object(self.to_bytes(), self.api_resource, named=named)
        return Record(record.head, record.resource, record.raw, partial=partial or was_partial, problem=record.problem)

    # Metadata

    def owner_ref(self, *, controller: bool = True, block_owner_deletion: bool = True) -> OwnerReference:
        """A reference that makes this object another's owner. Raises RequestError while it has no uid."""
        return ownership.owner_reference(self, controller=controller, block_owner_deletion=block_owner_deletion)

    def set_owner(self, owner: Resource, *, controller: bool = True, block_owner_deletion: bool = True) -> None:
        """Make `owner` own this object, replacing an earlier reference to it.

        An object without a namespace takes its owner's. Raises RequestError when the API forbids it, since the garbage
        collector would delete this object (an owner in another namespace, a namespaced owner of a cluster-scoped
        object), when another one controls it already, and for what is not an object.
        """
        ownership.set_owner(self, owner, controller=controller, block_owner_deletion=block_owner_deletion)

    # Content

    def _view(self, key: str) -> Any:
        views, record = self._views, self._record
        if key not in views:
            codec = codecs_of(type(self))[key]
            views[key] = view = codec.absent(self.ref) if record is None else codec.view_of(record)
            if record is not None and codec.lists is not None and (kept := codec.lists.items(view)):
                self._kept = {key: kept} if self._kept is None else {**self._kept, key: kept}
        return views[key]

    def _content(self) -> dict[str, Any]:
        """The object as plain JSON values, decoded once for this reader."""
        if self._plain is None:
            if self._record is None:  # from here on its views are changes to these bytes, as for a received object
                self._record = Record(_MadeHere(), self.api_resource, self.to_bytes())
            record = self._record
            self._plain = identified(plain_object(record.raw, record.enveloped, record.ref), record.resource)
        return self._plain

    def __getitem__(self, key: str) -> Any:
        return self._content()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._content()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._content()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._content()

    __iter__ = None
    """One object is one object, also to whoever takes one or many; the keys are those of `to_dict()`."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a top-level key, `obj[key]`, or `default` when it is absent. Raises DecodeError for bad
        content."""
        return self._content().get(key, default)

    def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
        """What would be sent: the object as received plus this reader's changes; always with apiVersion and kind.

        Without `defaults` an object that was made here leaves out what equals its class's default, at any depth.
        A new value each time. Raises WriteBackError when a change cannot be merged, DecodeError for bad content,
        RequestError for what JSON cannot carry.
        """
        codecs = codecs_of(type(self))
        if self._record is None:
            return new_object(self.api_resource, self._views, codecs, defaults=defaults)
        whole = written_back(self._record, codecs, self._views, self._plain, self._kept or {})
        if defaults or type(self._record.head) is not _MadeHere or self._plain is None:
            return whole
        # Nothing was changed in both forms in a way that cannot be merged, or `whole` would have been refused
        said = plain_object(self._record.raw, False, self.ref)
        sparse: dict[str, Any] = merge(new_object(self.api_resource, self._views, codecs, defaults=False),
                                       said, self._plain)
        return sparse

    def to_bytes(self) -> bytes:
        """`to_dict` as JSON."""
        return encode_plain(self.to_dict())

    def validate(self) -> None:
        """Decode everything the class declares, now. Raises DecodeError for the first that does not fit."""
        for key in codecs_of(type(self)):
            self._view(key)

    def model(self, model: type[M]) -> M:
        """This object as one of the official client's models (`obj.model(V1Pod)`). Raises DecodeError."""
        return to_model(self.to_dict(), model, self.ref)

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that `dynamic` bound to a kind has no name to be imported by; it is made again, or found.
        cls = type(self)
        base, resource = cls.__bases__[0], cls.api_resource
        made = (base, resource) if is_bound(cls, base, resource) else (cls, None)
        state = {"_record": self._record, "_plain": self._plain, "_views": dict(self._views), "_kept": self._kept}
        return _blank, made, (None, state)

    def __repr__(self) -> str:
        return f"<{self.ref}>"

    if not TYPE_CHECKING:  # type checkers must keep reporting unknown attributes

        def __getattr__(self, name: str) -> Any:
            snake = next((known for known in dir(type(self)) if camel(known) == name), None)
            if snake is not None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: attributes are written "
                                     f"{snake!r}, only keys as on the wire") from None
            raise AttributeError(self._undeclared(name)) from None

    @classmethod
    def _undeclared(cls, name: str) -> str:
        """What is said of an attribute that the class does not have."""
        near = did_you_mean(name, attributes_of(cls))
        return (f"{cls.__name__} declares no attribute {name!r}{near}: declare it in the class, "
                f"or use obj[{name!r}], which reads any key of the object")


def _blank(cls: type[Resource], bound_to: ApiResource | None) -> Resource:
    """An object without content, which pickle or copy then fills."""
    cls = cls if bound_to is None else bound_class(cls, bound_to)
    return cls.__new__(cls)
