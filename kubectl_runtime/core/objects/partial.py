"""Partial objects, invalid objects, and classes of kinds that are known only at run time.

    # The fields of a Pod to keep. FieldsForm(resource, PodView) decodes watch lines and pages into records whose
    # `view` is a PodView, and drops the bytes.
    class PodView(PartialView, frozen=True):
        spec: PodSpecView | None = None

    # The class of metadata-only objects of a kind.
    PartialObjectMeta.of(resource)

    # A class with a typed spec and status; other top-level keys are plain values.
    Object[WorkloadSpec, WorkloadStatus].of(resource)

    # A class that types any top-level keys. It has no kind of its own; `of` binds it to a kind.
    class Workload(Resource):
        spec: WorkloadSpec
    Workload.of(resource)

A partial object holds only declared fields, or only metadata. It can be patched, never replaced. In streams and stores,
an `InvalidObject` takes the place of an object whose metadata did not decode. A `DynamicObject` has the object's
top-level keys as attributes. `resource` comes from discovery, or is an ApiResource that the program makes. The result
of `of` is a resource class like any other: `Api.namespaced(client, Workload.of(resource), "default")`.
"""
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import PartialObjectError, RequestError
from kubectl_runtime.core.base.guard import failed_attribute
from kubectl_runtime.core.base.plain import namespace_or_none
from kubectl_runtime.core.base.wire import camel, converted, decoder_of, field_types
from kubectl_runtime.core.codec.jsonbytes import Carried, decode_event, decode_object, share, split_page
from kubectl_runtime.core.codec.views import Head, Record, plain_object, without_nulls
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.metav1 import ListMeta, OwnerReference, ReadOnlyDict, ReadOnlyMap, parse_time
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, Problem, problem_of
from kubectl_runtime.core.objects.declare import EMPTY, ResourceMeta, bound_class
from kubectl_runtime.core.objects.frozen import frozen, must_freeze
from kubectl_runtime.core.objects.resource import Resource

_NO_MAP: Mapping[str, str] = ReadOnlyMap({})
_HELD = frozenset(("apiVersion", "kind", "metadata"))


class HeldHead(Head, frozen=True, gc=False, eq=False, kw_only=True):
    """The metadata of a view. Labels and annotations are read-only."""

    @property
    def labels(self) -> dict[str, str] | None:
        """The object's labels, read-only and shared with other objects that have equal labels."""
        return self._labels

    _annotations: dict[str, str] | None = msgspec.field(name="annotations", default=None)

    @property
    def annotations(self) -> dict[str, str] | None:
        """The object's annotations, read-only. They are wrapped on each access, and stored as a plain dict, which the
        garbage collector does not track."""
        return None if self._annotations is None else ReadOnlyDict(self._annotations)


class PartialView(msgspec.Struct, frozen=True, eq=False, kw_only=True, rename="camel"):
    """The base of classes that declare which fields of an object are kept; the rest is dropped. Immutable, so one
    instance serves every reader. Like all objects, views are equal only to themselves: compare their fields.

    Fields are the object's top-level keys, with frozen Structs or dataclasses as their types. A key that may be
    absent needs a default. Lists, dicts and sets anywhere in a view are read-only: a change raises TypeError.

    >>> class Colors(Struct, frozen=True):
    ...     color: str = ""
    >>> class Settings(PartialView):
    ...     data: Colors = Colors()
    >>> with watch_store(Api.all(client, ConfigMap), WatcherConfig(fields=Settings)) as settings:
    ...     settings.wait_until_ready(10)
    ...     settings.get("settings", "default").data.color
    'blue'
    """

    metadata: HeldHead

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The view in `record`. Raises the record's DecodeError when the view did not decode."""
        if isinstance(record.view, cls):
            return record.view
        raise record.error or RequestError(f"{record.ref} is not held as a {cls.__name__}")

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object."""
        return namespace_or_none(self.metadata.namespace)

    @property
    def uid(self) -> str:
        """The object's uid, which a later object of the same name does not have."""
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion."""
        return self.metadata.resource_version

    @property
    def generation(self) -> int | None:
        """The generation, which the server increases with each spec change; None for a kind without generations."""
        return self.metadata.generation

    @property
    def deletion_timestamp(self) -> datetime | None:
        """When the deletion was requested; None if it was not. Raises ValueError for a text that is not a time."""
        text = self.metadata.deletion_timestamp
        return parse_time(text) if text else None

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels, read-only."""
        labels = self.metadata._labels
        return ReadOnlyMap(labels) if labels else _NO_MAP

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations, read-only."""
        annotations = self.metadata._annotations
        return ReadOnlyMap(annotations) if annotations else _NO_MAP

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """The owners of the object."""
        return self.metadata.owner_references or ()

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The finalizers: work that must be done before the object can be removed."""
        return self.metadata.finalizers or ()

    def __repr__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<{type(self).__name__} {where}>"


V = TypeVar("V", bound=PartialView)
_OBJECT_EVENTS = frozenset(("ADDED", "MODIFIED", "DELETED"))


class FieldsForm(Generic[V]):
    """Decodes one kind into records that keep only a view. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, view: type[V]) -> None:
        """Raises RequestError when `view` is not a frozen PartialView, declares a field that every view already has as
        an attribute, or contains mutable records."""
        if not (isinstance(view, type) and issubclass(view, PartialView) and view.__struct_config__.frozen):
            raise RequestError(f"fields={view!r}: declare `class {getattr(view, '__name__', 'MyView')}"
                               "(PartialView, frozen=True)` with the fields to keep")
        for field in msgspec.structs.fields(view):
            if hasattr(PartialView, field.name) and field.type is not HeldHead:
                raise RequestError(f"fields={view.__name__}: every view has {field.name!r} already; choose "
                                   "another name")
        self._freezes = True in [must_freeze(hint, f"fields={view.__name__}: {name}")
                                 for name, hint in field_types(view).items() if name != "metadata"]
        self.resource = resource
        self.view = view
        event: Any = msgspec.defstruct("_Event", [("type", str), ("object", view)])
        self._event = decoder_of(event)
        self._object = decoder_of(view)

    def decode_object(self, raw: bytes | msgspec.Raw) -> Record:
        """The record of one object's JSON, with its view. Raises DecodeError when the JSON does not identify an object.
        """
        try:
            view = self._object(raw)
            if view.metadata.name:
                return self._record(view)
        except DECODE_FAILURES:
            pass  # decoded again below, with a description of the problem
        return self._second_try(decode_object(bytes(raw), self.resource))

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The type of a watch line, and its content. Raises DecodeError for anything but an event."""
        try:
            event = self._event(line)
            if event.type in _OBJECT_EVENTS and event.object.metadata.name:
                return event.type, self._record(event.object)
        except DECODE_FAILURES:
            pass  # decoded again below, with a description of the problem
        kind, carried = decode_event(line, self.resource)
        return kind, self._second_try(carried) if isinstance(carried, Record) else carried

    def decode_list(self, page: bytes) -> tuple[ListMeta, list[Record]]:
        """The metadata of a page of a list, and a record for each item. Raises DecodeError for anything else."""
        metadata, items = split_page(page, self.resource)
        return metadata, [self.decode_object(item) for item in items]

    def _record(self, view: V) -> Record:
        share(view.metadata)
        if self._freezes:
            frozen(view)
        return Record(view.metadata, self.resource, b"", partial=True, view=view)

    def _second_try(self, record: Record) -> Record:
        """Decode once more without nulls; if that fails, a record with the head, and a problem in place of the view."""
        problem = record.problem
        if problem is None:
            try:
                plain = without_nulls(plain_object(record.raw, record.enveloped, record.ref))
                return self._record(converted(plain, self.view))
            except DECODE_FAILURES as error:
                problem = Problem(*problem_of(error))
            except DecodeError as error:
                problem = Problem(error.path, error.problem)
        return Record(record.head, record.resource, b"", partial=True, problem=problem)


class PartialObjectMeta(Resource):
    """An object's metadata alone, as the server sends it for a metadata-only request; `PartialObjectMeta.of(Kind)`
    is the class for a kind.

    >>> maps = Api.namespaced(client, ConfigMap, "default").with_metadata_only()
    >>> maps.get("settings").labels["app"]
    'web'
    """

    def __getitem__(self, key: str) -> Any:
        self._check_held(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a top-level key. Raises PartialObjectError for a key that was not read: the object on the server
        may have the key."""
        self._check_held(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._check_held(key)
        return super().__contains__(key)

    def _check_held(self, key: object) -> None:
        if key not in _HELD:
            raise PartialObjectError(f"{self.ref}: {self._undeclared(str(key))}")

    @classmethod
    def _undeclared(cls, name: str) -> str:
        return (f"only the metadata of this {cls.__name__} was read, as for all objects that a controller owns: it has "
                f"no {name!r}; Api.get reads the whole object")


def is_partial(body: object) -> bool:
    """Whether `body` holds only a part of its object."""
    if isinstance(body, PartialView | PartialObjectMeta):
        return True
    return isinstance(body, Resource) and body.record is not None and body.record.partial


_UNKNOWN = Problem("$", "does not decode")


class InvalidObject:
    """Takes the place, in lists and stores, of an object whose metadata cannot be read, so that other objects are not
    affected.

    An InvalidObject has the known identity (`ref`, `name`, `namespace`, `uid`, `resource_version`) and the problem
    (`error`). Reading anything else, content or other metadata, raises the DecodeError. Immutable, safe from any
    thread.

    >>> [each.ref for each in Api.all(client, ConfigMap).list() if isinstance(each, InvalidObject)]
    []
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        """`record` must have a `problem`."""
        self._record = record

    @property
    def record(self) -> Record:
        """The object's bytes as received, with its decoded head and its problem."""
        return self._record

    @property
    def ref(self) -> ObjectRef:
        """The identity of the object, as far as it could be read."""
        return self.record.ref

    @property
    def api_resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.record.resource

    @property
    def name(self) -> str:
        """The object's name; empty when it could not be read."""
        return self.record.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object, and when it could not be read."""
        return self.record.namespace

    @property
    def uid(self) -> str:
        """The object's uid; empty when it could not be read."""
        return self.record.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion; empty when it could not be read."""
        return self.record.resource_version

    @property
    def error(self) -> DecodeError:
        """The DecodeError that describes the problem; a new exception each time."""
        problem = self.record.problem or _UNKNOWN
        return DecodeError(self.ref, problem.path, problem.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return InvalidObject, (self.record,)

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # attributes that Python itself looks up (copying, pickling) do not exist
            raise AttributeError(name)
        raise self.error

    def __repr__(self) -> str:
        return f"<invalid {self.ref}>"


class DynamicObject(Resource):
    """An object of any kind, without a class for it: `obj.spec` is `obj["spec"]`, plain JSON values.

    Metadata is typed, as in every resource class. `dynamic(api_resource)` makes the class for a kind.

    >>> Widget = dynamic(ApiResource("example.com", "v1", "Widget", "widgets"))
    >>> widget = Widget(name="a", spec={"size": 3})
    >>> widget.spec["size"], widget["spec"], widget.name
    (3, {'size': 3}, 'a')
    """

    def __init__(self, **arguments: Any) -> None:
        """A new object: metadata arguments as for `Resource`, and any other top-level keys as plain values."""
        fields = {name: arguments.pop(name) for name in list(arguments) if name not in _METADATA}
        super().__init__(**arguments)
        for name, value in fields.items():
            self[camel(name)] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]  # hidden from type checkers there
        failed_attribute(self, name)
        key = camel(name)
        if key not in self:
            raise AttributeError(f"{type(self).__name__} has no key {key!r}")
        return self[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            self[camel(name)] = value


_METADATA = frozenset(("name", "namespace", "generate_name", "labels", "annotations", "owner_references", "finalizers",
                       "metadata"))

def dynamic(resource: ApiResource) -> type[DynamicObject]:
    """The `DynamicObject` class bound to `resource`: the same class for the same resource. Safe from any thread.

    >>> Widget = dynamic(ApiResource("example.com", "v1", "Widget", "widgets"))
    >>> Widget(name="a", spec={"size": 3}).to_dict()["spec"]
    {'size': 3}
    """
    return bound_class(DynamicObject, resource)


S = TypeVar("S")
U = TypeVar("U")

if TYPE_CHECKING:

    class Object(Resource, Generic[S, U]):
        """An object of any kind whose spec is an `S` and whose status is a `U`."""

        spec: S = EMPTY
        status: U = EMPTY

else:

    class Object(Resource):
        """An object of any kind whose spec is an `S` and whose status is a `U`: `Object[S, U]` is a class, the same
        class for the same types.

        >>> class Size(Struct):
        ...     size: int = 1
        >>> widgets = ApiResource("example.com", "v1", "Widget", "widgets")
        >>> Widget = Object[Size, dict].of(widgets)
        >>> Widget(name="a", spec=Size(3)).spec.size
        3
        """

        def __class_getitem__(cls, parameters):
            if not isinstance(parameters, tuple) or len(parameters) != 2 or cls is not Object:
                raise TypeError("Object[Spec, Status] takes two types")
            made = _made.get(parameters)
            if made is None:
                named = ", ".join(getattr(part, "__name__", str(part)) for part in parameters)
                namespace = {"__annotations__": dict(zip(("spec", "status"), parameters, strict=True)),
                             "__module__": __name__, "__doc__": cls.__doc__}
                made = _made.setdefault(parameters, ResourceMeta(f"Object[{named}]", (Object,), namespace))
            return made

        def __reduce__(self):
            # Neither this class nor the bound class can be imported by name.
            parameters = next(types for types, made in _made.items() if isinstance(self, made))
            _, _, state = super().__reduce__()
            return _blank_object, (parameters, self.api_resource), state

    _made = {}


def _blank_object(parameters: tuple[Any, Any], resource: ApiResource) -> Resource:
    """An object without content, which pickle or copy fills afterwards."""
    generic: Any = Object
    cls: Any = bound_class(generic[parameters], resource)
    made: Resource = cls.__new__(cls)
    return made
