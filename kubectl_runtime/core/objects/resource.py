"""`Resource`: an object of the API, read lazily from the bytes that were received.

    class Deployment(Resource, group="apps", version="v1", kind="Deployment"):
        spec: DeploymentSpec                       # a Struct or dataclass that names what the program reads, or a dict
        status: DeploymentStatus | None = None

Each declared attribute is a top-level key of the object (`string_data` is `stringData`). An attribute is decoded into a
view when it is first read. A `Resource` is the reader's own copy, and so are its views. Views may be changed: `replace`
sends the changes, and the store and other readers never see them. `obj["spec"]` is the same content as plain JSON
values, under the wire's keys. The two forms are separate copies. Changes of both are sent; if both changed the same
value, the value in `obj["…"]` wins. Change an item of a list in one form only.

Objects are equal only to themselves, and their repr is their ref. One object belongs to one thread at a time.

`Identity` has the attributes that come from the head, which is the metadata that is decoded on arrival. `new_metadata`
checks the metadata arguments of a new object, so that errors name the argument. `applied_fields` extracts the fields
that a field manager has applied, with their current values, as client-go's `ExtractX` functions do. managedFields is a
tree (FieldsV1), in which the key `f:name` stands for a field; a list item is identified by its keys (`k:{"name":"x"}`),
its value (`v:"x"`) or its index (`i:0`). An empty tree means that the whole value is owned; the key `.` means the item
or map itself. A manager that applies again must send all fields that it wants to keep.
"""
from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, TypeVar

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import RequestError, UnknownFieldError, class_named, did_you_mean
from kubectl_runtime.core.base.guard import failed_attribute
from kubectl_runtime.core.base.plain import namespace_or_none
from kubectl_runtime.core.base.wire import camel, decoded
from kubectl_runtime.core.codec.jsonbytes import decode_object, encode_plain, identified, new_object, written_back
from kubectl_runtime.core.codec.lineage import Kept
from kubectl_runtime.core.codec.salvage import Seldom, seldom_of
from kubectl_runtime.core.codec.views import Head, Record, plain_object
from kubectl_runtime.core.codec.writeback import merge
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, ObjectRef, Scope
from kubectl_runtime.core.meta.metav1 import EditableMap, ObjectMeta, OwnerReference, ReadOnlyDict, parse_time
from kubectl_runtime.core.meta.models import to_model
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
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

_NO_MAP: Mapping[str, str] = ReadOnlyDict()


class Identity:
    """The part of `Resource` that needs no decoding: name, labels, owners and other metadata, mostly read-only. To
    change the metadata, use `metadata`, which is decoded when it is first read."""

    __slots__ = ()
    api_resource: ClassVar[ApiResource]
    _record: Record | None
    _views: dict[str, Any]

    def _head(self) -> Head | ObjectMeta:
        """The metadata view if it was decoded, since the view may have changes; otherwise the head decoded on
        arrival."""
        view: ObjectMeta | None = self._views.get("metadata")
        if view is not None:
            return view
        assert self._record is not None  # new objects always have the view
        return self._record.head

    def _seldom(self) -> Seldom | ObjectMeta:
        """Like `_head`, for metadata that is not decoded on arrival."""
        head = self._head()
        if isinstance(head, ObjectMeta):
            return head
        assert self._record is not None
        return seldom_of(self._record)

    @abstractmethod
    def _view(self, key: str) -> Any:
        """The view of one top-level key."""

    @property
    def metadata(self) -> ObjectMeta:
        """A mutable view of this object's metadata. Raises DecodeError."""
        found: ObjectMeta = self._view("metadata")
        return found

    @metadata.setter
    def metadata(self, value: ObjectMeta) -> None:
        self._views["metadata"] = _checked_metadata(type(self).__name__, value)

    @property
    def kind(self) -> str:
        """The kind's name, such as `Deployment`."""
        return self.api_resource.kind

    @property
    def api_version(self) -> str:
        """The kind's group and version, such as `apps/v1`."""
        return self.api_resource.api_version

    @property
    def name(self) -> str:
        """The object's name; empty if a new object has only `generate_name`."""
        return self._head().name or ""

    @property
    def name_any(self) -> str:
        """The name, or a new object's `generate_name`; empty if both are missing or the metadata cannot be read. For
        messages."""
        if name := self.name:
            return name
        try:
            return self._seldom().generate_name or ""
        except DecodeError:
            return ""

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object, and for a new object that has none yet."""
        return namespace_or_none(self._head().namespace)

    @property
    def uid(self) -> str:
        """The object's uid, which a later object of the same name does not have; empty for an object that was never on
        the server."""
        return self._head().uid or ""

    @property
    def resource_version(self) -> str:
        """The resourceVersion; empty for an object that was never on the server."""
        return self._head().resource_version or ""

    @property
    def generation(self) -> int | None:
        """The generation, which the server increases with each change of the spec; None for a new object, and for a
        kind without generations."""
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
    def labels(self) -> MutableMapping[str, str]:
        """The object's labels; empty when it has none. `obj.labels["tier"] = "web"` changes
        `metadata.labels` of this copy of the object, which `replace` sends; the store never sees the change."""
        head = self._head()
        found = head._labels if isinstance(head, Head) else head.labels
        return EditableMap(found or _NO_MAP, self, "labels")

    @property
    def annotations(self) -> MutableMapping[str, str]:
        """The object's annotations; empty when it has none. Change them like `labels`. Until the first change each
        access decodes the annotations, which takes a few µs. Raises DecodeError for malformed annotations."""
        return EditableMap(self._seldom().annotations or _NO_MAP, self, "annotations")

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """The owners of this object. To change them, edit `metadata.owner_references`, or add an owner with
        `set_owner`."""
        return tuple(self._head().owner_references or ())

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The finalizers: work that must be done before the object can be removed. To change them, edit
        `metadata.finalizers`. See also `finalizer`."""
        return tuple(self._head().finalizers or ())

    @property
    def ref(self) -> ObjectRef:
        """The identity of the object: kind, namespace and name, hashable."""
        return ObjectRef(self.api_resource, self.name, self.namespace)

    def object_ref(self) -> dict[str, str]:
        """A core ObjectReference to this object, as a dict of the known fields: apiVersion, kind, name, namespace, uid,
        resourceVersion. `fetch` and the Recorder accept the dict."""
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


def _assigning(name: str) -> Any:
    def assign(self: Identity, value: Any) -> None:
        made = new_metadata(type(self).__name__, **{**_NO_METADATA, name: value})
        setattr(self.metadata, name, getattr(made, name))

    return assign


if not TYPE_CHECKING:  # type checkers report that these are read-only; Python's own error only says "no setter"
    for _name in ("name", "namespace", "uid", "resource_version", "generation", "creation_timestamp",
                  "deletion_timestamp"):
        setattr(Identity, _name, getattr(Identity, _name).setter(
            _refusing(_name, f"change metadata.{_name}, which `replace` sends")))
    for _name in ("labels", "annotations", "owner_references", "finalizers"):
        setattr(Identity, _name, getattr(Identity, _name).setter(_assigning(_name)))
    for _name in ("kind", "api_version"):
        setattr(Identity, _name, getattr(Identity, _name).setter(
            _refusing(_name, "it belongs to the class: for another, use the class Kind.of(ApiResource(...))")))
    for _name in ("name_any", "ref"):
        setattr(Identity, _name, getattr(Identity, _name).setter(
            _refusing(_name, "it follows from metadata.name and metadata.namespace")))


ARGUMENTS = ("name", "namespace", "generate_name", "labels", "annotations", "owner_references", "finalizers",
             "metadata")
"""The metadata arguments of a new object, besides the attributes of its class."""


def new_metadata(kind: str, *, name: Any, namespace: Any, generate_name: Any, labels: Any, annotations: Any,
                 owner_references: Any, finalizers: Any) -> ObjectMeta:
    """The metadata of a new object, from `Resource`'s arguments. Raises RequestError, which names `kind` and the wrong
    argument."""
    for argument, value in (("name", name), ("namespace", namespace), ("generate_name", generate_name)):
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{kind}({argument}={value!r}): a {type(value).__name__} where text is expected")
    if owner_references is not None and not (isinstance(owner_references, list | tuple) and all(
            isinstance(reference, OwnerReference) for reference in owner_references)):
        raise RequestError(f"{kind}(owner_references=…): a list of OwnerReference is expected: call "
                           "obj.set_owner(owner), or pass [owner.owner_ref()]")
    if finalizers is not None and not (isinstance(finalizers, list | tuple) and all(
            isinstance(finalizer, str) for finalizer in finalizers)):
        raise RequestError(f"{kind}(finalizers=…): a list of texts is expected, not {type(finalizers).__name__}")
    return ObjectMeta(name=name, namespace=namespace, generate_name=generate_name,
                      labels=_texts(kind, "labels", labels), annotations=_texts(kind, "annotations", annotations),
                      finalizers=list(finalizers or ()), owner_references=list(owner_references or ()))


_NO_METADATA = dict.fromkeys(name for name in ARGUMENTS if name != "metadata")


def _checked_metadata(kind: str, given: Any) -> ObjectMeta:
    if not isinstance(given, ObjectMeta):
        raise RequestError(f"{kind}(metadata=…): an ObjectMeta is expected, not {class_named(given)}: give its fields "
                           f"as arguments, as in {kind}(name=..., labels=...), or read whole objects by from_dict")
    return given


def _texts(kind: str, argument: str, given: Any) -> dict[str, str]:
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise RequestError(f"{kind}({argument}=…): a map of texts is expected, not {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise RequestError(f"{kind}({argument}=…): the value of {key!r} is of type {type(value).__name__}: "
                               f"{argument} must be texts")
    return dict(given)


M = TypeVar("M")
R = TypeVar("R", bound="Resource")
KEYWORDS = ("group", "version", "kind", "plural", "scope", "subresources")
"""The class keywords of a resource class."""


class _MadeHere(Head, frozen=True, gc=False, eq=False, kw_only=True):
    """The empty head in the record of a new object whose plain form was read; the object's metadata is in its view.
    A class of its own, so that copies and pickles keep the distinction."""


class Resource(Identity, Declaring):
    """The base of every resource class: an object of a kind, whose top-level keys are attributes of the declared types.

    Class keywords: `group`, `version`, `kind`, `plural`, `scope`, `subresources`. Fields that a class does not declare
    are kept: `obj["spec"]` has them, and writing back loses nothing. An object from a store is the reader's own copy:
    changing the copy does not change the store. An object's repr shows its ref, never its content.

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
    """The names of the kind's subresources (`status`, `scale`); None when the class does not declare them."""

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

        Metadata is given as single arguments or as one `ObjectMeta`. Raises UnknownFieldError for an undeclared field,
        RequestError for metadata of the wrong type.
        """
        if not hasattr(type(self), "api_resource"):
            raise RequestError(f"{type(self).__name__} is bound to no kind: give its class group=, version= and kind=")
        self._record: Record | None = None
        self._plain: dict[str, Any] | None = None
        self._kept: dict[str, Kept] | None = None
        kind = type(self).__name__
        self._views: dict[str, Any] = {"metadata": new_metadata(
            kind, name=name, namespace=namespace, generate_name=generate_name, labels=labels, annotations=annotations,
            finalizers=finalizers, owner_references=owner_references) if metadata is None
            else _checked_metadata(kind, metadata)}
        for field, value in fields.items():
            if not isinstance(getattr(type(self), field, None), Attribute):
                known = attributes_of(type(self))
                hint = did_you_mean(field, [*known, *ARGUMENTS])
                raise UnknownFieldError(f"{kind} has no field {field!r}{hint}; "
                                        f"it declares {', '.join(known) or 'none'}")
            setattr(self, field, value)

    @classmethod
    def of(cls, resource: ApiResource) -> type[Self]:
        """This class bound to a kind that is known only at run time. Equal resources get the same class.

        Raises RequestError when the class has another kind already; another version of its own kind is allowed.
        """
        own: ApiResource | None = getattr(cls, "api_resource", None)
        if own is not None and (own.group, own.kind) != (resource.group, resource.kind):
            raise RequestError(f"{cls.__name__} is the class of {own.kind} in {own.api_version}, and cannot be "
                               f"the class of {resource.full_name}")
        return cls if own == resource else bound_class(cls, resource)

    def try_parse(self, kind: type[R]) -> R:
        """This object, with the reader's changes, as an instance of another class of its kind (or of a class without a
        kind).

        Raises RequestError when `kind` has another group or kind, and DecodeError for content that does not fit `kind`.
        """
        cls = kind.of(self.api_resource)
        parsed = cls.from_record(self.to_record(named=False))
        parsed.validate()
        return parsed

    # Received objects

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Make an object that reads a stored `record`. Cheap, since nothing is decoded yet."""
        self = cls.__new__(cls)
        _put_record(self, record)
        _put_views(self, {})
        return self

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Make an object from its JSON, which need not contain a name. A class without a kind (`DynamicObject`) is
        bound to the object's kind. Raises DecodeError for bad metadata, RequestError when no kind is known."""
        if not hasattr(cls, "api_resource"):
            return cls.of(_kind_in(cls, raw)).from_bytes(raw)
        record = decode_object(raw, cls.api_resource, named=False)
        if (error := record.error) is not None:
            raise error
        return cls.from_record(record)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make an object from plain JSON values, which are copied. Binds and raises like `from_bytes`."""
        return cls.from_bytes(encode_plain(content))

    @property
    def record(self) -> Record | None:
        """The received record; None for an object that this program created."""
        record = self._record
        return None if record is not None and type(record.head) is _MadeHere else record

    @property
    def made_of(self) -> Mapping[str, Any] | None:
        """The views of an object that this program created, until its plain form is read; None after that, and for a
        received object."""
        return self._views if self._record is None and self._plain is None else None

    @property
    def is_checked(self) -> bool:
        """Whether `to_dict` refuses values that JSON cannot carry: true for an object that this program created, unless
        its class has a `to_dict` of its own."""
        return self.made_of is not None and type(self).to_dict is Resource.to_dict

    def to_record(self, *, partial: bool = False, named: bool = True) -> Record:
        """A record of the current object, for stores: the received record while no attribute has been read.

        `partial` marks a record whose parts were removed. `named`: the object must have a name, as stored objects have.
        """
        received = self._record
        was_partial = received is not None and received.partial
        if received is not None and not self._views and self._plain is None:
            return received if was_partial or not partial else msgspec.structs.replace(received, partial=True)
        record = decode_object(self.to_bytes(), self.api_resource, named=named)
        return Record(record.head, record.resource, record.raw, partial=partial or was_partial, problem=record.problem)

    # Metadata

    def owner_ref(self, *, controller: bool = True, block_owner_deletion: bool = True) -> OwnerReference:
        """A reference to this object as an owner. Raises RequestError while it has no uid."""
        return ownership.owner_reference(self, controller=controller, block_owner_deletion=block_owner_deletion)

    def set_owner(self, owner: Resource, *, controller: bool = True, block_owner_deletion: bool = True) -> None:
        """Make `owner` own this object, replacing an earlier reference to it.

        An object without a namespace gets its owner's. Raises RequestError when the API forbids the reference (an owner
        in another namespace, a namespaced owner of a cluster-scoped object), since the garbage collector would delete
        this object. Also raises RequestError when another object controls this object already, and when `owner` is not
        an object.
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
            if self._record is None:
                # An object that this program created has no received bytes, so it is encoded now. Later changes in its
                # views and in its plain form are merged into the encoded bytes.
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
    """None makes objects not iterable, so that a single object is not mistaken for a list of objects. The keys are in
    `to_dict()`."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a top-level key, `obj[key]`, or `default` when it is absent. Raises DecodeError for bad
        content."""
        return self._content().get(key, default)

    def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
        """The object to send: as received, with this reader's changes; always with apiVersion and kind.

        Without `defaults` an object that this program created leaves out fields that equal their class's default, at
        any depth. Each call returns a new dict. Raises WriteBackError when a change cannot be merged, DecodeError for
        bad content, RequestError for values that JSON cannot carry.
        """
        codecs = codecs_of(type(self))
        if self._record is None:
            return new_object(self.api_resource, self._views, codecs, defaults=defaults)
        whole = written_back(self._record, codecs, self._views, self._plain, self._kept or {})
        if defaults or type(self._record.head) is not _MadeHere or self._plain is None:
            return whole
        # The changes in the plain form fit the changes in the views: otherwise `written_back` would have raised.
        said = plain_object(self._record.raw, False, self.ref)
        sparse: dict[str, Any] = merge(new_object(self.api_resource, self._views, codecs, defaults=False),
                                       said, self._plain)
        return sparse

    def to_bytes(self) -> bytes:
        """`to_dict` as JSON."""
        return encode_plain(self.to_dict(), checked=self.is_checked)

    def validate(self) -> None:
        """Decode all declared attributes now. Raises DecodeError for the first value that does not fit."""
        for key in codecs_of(type(self)):
            self._view(key)

    def model(self, model: type[M]) -> M:
        """This object as one of the official client's models (`obj.model(V1Pod)`). Raises DecodeError."""
        return to_model(self.to_dict(), model, self.ref)

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that `dynamic` bound to a kind cannot be imported by name: unpickling makes or finds the class.
        cls = type(self)
        base, resource = cls.__bases__[0], cls.api_resource
        made = (base, resource) if is_bound(cls, base, resource) else (cls, None)
        state = {"_record": self._record, "_plain": self._plain, "_views": dict(self._views), "_kept": self._kept}
        return _blank, made, (None, state)

    def __repr__(self) -> str:
        return f"<{self.ref}>"

    if not TYPE_CHECKING:  # type checkers must keep reporting unknown attributes

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                object.__setattr__(self, name, value)
            except AttributeError:
                if hasattr(type(self), name):
                    raise
                raise AttributeError(self._undeclared(name)) from None

        def __getattr__(self, name: str) -> Any:
            if name in _LATER:
                return None
            failed_attribute(self, name)
            snake = next((known for known in dir(type(self)) if camel(known) == name), None)
            if snake is not None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: the attribute is "
                                     f"{snake!r}; only the keys of plain values are camelCase") from None
            raise AttributeError(self._undeclared(name)) from None

    @classmethod
    def _undeclared(cls, name: str) -> str:
        """The message for an attribute that the class does not have."""
        near = did_you_mean(name, [*attributes_of(cls), *(known for known in dir(cls) if not known.startswith("_"))])
        return (f"{cls.__name__} declares no attribute {name!r}{near}: declare it in the class, "
                f"or use obj[{name!r}], which reads any key of the object")


def _kind_in(cls: type, raw: bytes) -> ApiResource:
    """The kind in an object's JSON. Raises RequestError."""
    try:
        named = decoded(raw, _Named)
    except DECODE_FAILURES:
        named = _Named()
    if not named.api_version or not named.kind:
        raise RequestError(f"{cls.__name__} is bound to no kind, and the object does not name its kind: give it "
                           f"apiVersion and kind, or use {cls.__name__}.of(ApiResource(...))")
    group, _, version = named.api_version.rpartition("/")
    return ApiResource.from_gvk(GroupVersionKind(group, version, named.kind))


class _Named(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_put_record = Resource.__dict__["_record"].__set__
_put_views = Resource.__dict__["_views"].__set__
_LATER = ("_kept", "_plain")
"""Attributes that are None until they are needed: most readers of records are short-lived and never set them."""


def _blank(cls: type[Resource], bound_to: ApiResource | None) -> Resource:
    """An object without content, which pickle or copy fills afterwards."""
    cls = cls if bound_to is None else bound_class(cls, bound_to)
    return cls.__new__(cls)


_NOTHING: Any = object()


def applied_fields(content: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any] | None:
    """The fields of an object that `manager` has applied (through `subresource`, if given) and still owns, as plain
    JSON values. None when the object was read without its managedFields.

    Dicts and lists are new down to the owned values, which are shared with `content`. Pure.
    """
    entries = (content.get("metadata") or {}).get("managedFields")
    if entries is None:
        return None
    for entry in entries:
        found = (entry.get("manager") or "", entry.get("operation"), entry.get("subresource") or "")
        if found == (manager, "Apply", subresource):
            owned = _of_map(entry.get("fieldsV1") or {}, content)
            return {} if owned is _NOTHING else owned
    return {}


def _owned(tree: Mapping[str, Any], value: Any) -> Any:
    if not tree or value is None or value is _NOTHING:
        return value
    if isinstance(value, dict):
        return _of_map(tree, value)
    return _of_list(tree, value) if isinstance(value, list) else value


def _of_map(tree: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    found = {}
    for key, below in tree.items():
        if key.startswith("f:"):
            owned = _owned(below, value.get(key[2:], _NOTHING))
            if owned is not _NOTHING:
                found[key[2:]] = owned
    return found if found or "." in tree else _NOTHING


def _of_list(tree: Mapping[str, Any], items: list[Any]) -> Any:
    selectors = [(key[0], json.loads(key[2:]), below) for key, below in tree.items() if key[:2] in ("k:", "v:", "i:")]
    found = []
    for place, item in enumerate(items):
        for kind, wanted, below in selectors:
            if kind == "k" and isinstance(item, dict) and wanted.items() <= item.items():
                owned = _owned(below, item)
                found.append({**wanted, **owned} if owned is not _NOTHING else dict(wanted))
            elif (kind == "v" and item == wanted) or (kind == "i" and place == wanted):
                found.append(_owned(below, item))
    return found if found or "." in tree else _NOTHING
