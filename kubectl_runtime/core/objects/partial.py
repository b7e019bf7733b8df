"""Objects of which only a part is held: declared fields, or metadata alone. They can be patched, never replaced.

    class PodView(PartialView, frozen=True):        FieldsForm(resource, PodView) decodes watch lines and pages into
        spec: PodSpecView | None = None             records whose `view` is a PodView; the bytes are dropped

    PartialObjectMeta.of(resource)                  the class of metadata-only objects of a kind

`InvalidObject`: stands in streams and stores for an object whose metadata did not decode.

Objects of kinds without a class: `DynamicObject`, whose attributes are the object's top-level keys.

Typed classes of a kind that is known only at run time.

    Object[WorkloadSpec, WorkloadStatus].of(resource)      spec and status typed, the rest as plain values
    class Workload(Resource):                               any further fields: a class without a kind of its own
        spec: WorkloadSpec
    Workload.of(resource)

`resource` comes from discovery, or is an ApiResource that was put together. What `of` gives is a resource class like
any other: `Api.namespaced(client, Workload.of(resource), "default")`.
"""
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import PartialObjectError, RequestError
from kubectl_runtime.core.base.interpreter import failed_attribute
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
    """All metadata that a view shows. Labels and annotations refuse to be changed."""

    @property
    def labels(self) -> dict[str, str] | None:
        """The object's labels, read-only and shared with other objects that have the same."""
        return self._labels

    _annotations: dict[str, str] | None = msgspec.field(name="annotations", default=None)

    @property
    def annotations(self) -> dict[str, str] | None:
        """The object's annotations, made read-only when they are looked at: the garbage collector passes over what is
        held."""
        return None if self._annotations is None else ReadOnlyDict(self._annotations)


class PartialView(msgspec.Struct, frozen=True, eq=False, kw_only=True, rename="camel"):
    """The base of classes that name the few fields of an object to keep; nothing else of it is kept. Immutable, so one
    instance serves every reader. Like all objects, views are equal only to themselves: compare their fields.

    Fields are the object's top-level keys, with frozen Structs or dataclasses as their types; absent keys need a
    default. Lists, dicts and sets anywhere in them raise TypeError when they are changed.

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
        """The view that `record` holds. Raises its DecodeError when there is none."""
        if isinstance(record.view, cls):
            return record.view
        raise record.error or RequestError(f"{record.ref} is not held as a {cls.__name__}")

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped one."""
        return namespace_or_none(self.metadata.namespace)

    @property
    def uid(self) -> str:
        """What tells the object from a namesake that was made later."""
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        """The version of the object that this is."""
        return self.metadata.resource_version

    @property
    def generation(self) -> int | None:
        """How often the spec was changed; None where the kind does not count."""
        return self.metadata.generation

    @property
    def deletion_timestamp(self) -> datetime | None:
        """When the object's deletion was requested. Raises ValueError for a text that is not a time of the API."""
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
        """Which objects own it."""
        return self.metadata.owner_references or ()

    @property
    def finalizers(self) -> tuple[str, ...]:
        """What has to be cleaned up before it can go."""
        return self.metadata.finalizers or ()

    def __repr__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<{type(self).__name__} {where}>"


V = TypeVar("V", bound=PartialView)
_OBJECT_EVENTS = frozenset(("ADDED", "MODIFIED", "DELETED"))


class FieldsForm(Generic[V]):
    """Decodes one kind into records that keep a view only. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, view: type[V]) -> None:
        """Raises RequestError when `view` is not a frozen PartialView, has a field of its own where each view has
        something, or holds records that could be changed."""
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
        """The record of one object's JSON, which holds its view. Raises DecodeError when it does not say which object
        it is."""
        try:
            view = self._object(raw)
            if view.metadata.name:
                return self._record(view)
        except DECODE_FAILURES:
            pass  # decoded again below, by those who can tell what is wrong
        return self._second_try(decode_object(bytes(raw), self.resource))

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The type of a line of a watch, and what it carries. Raises DecodeError for anything but an event."""
        try:
            event = self._event(line)
            if event.type in _OBJECT_EVENTS and event.object.metadata.name:
                return event.type, self._record(event.object)
        except DECODE_FAILURES:
            pass  # decoded again below, by those who can tell what is wrong
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
        """Once more without nulls; then a record that has the head, and a problem in place of the view."""
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
    """An object's metadata alone, as the server sends it when only that is asked for; `PartialObjectMeta.of(Kind)`
    gives a kind's class.

    >>> maps = Api.namespaced(client, ConfigMap, "default").with_metadata_only()
    >>> maps.get("settings").labels["app"]
    'web'
    """

    def __getitem__(self, key: str) -> Any:
        self._check_held(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a top-level key. Raises PartialObjectError for a key that is not held: the server may well have
        it."""
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
        return (f"only the metadata of this {cls.__name__} is held, as of all a controller owns: no {name!r}; "
                "Api.get reads the whole object")


def is_partial(body: object) -> bool:
    """Whether a body holds only a part of its object."""
    if isinstance(body, PartialView | PartialObjectMeta):
        return True
    return isinstance(body, Resource) and body.record is not None and body.record.partial


_UNKNOWN = Problem("$", "does not decode")


class InvalidObject:
    """Takes the place of an object whose metadata cannot be read, in lists and stores, so that it breaks nothing else.

    It has what is known (`ref`, `name`, `namespace`, `uid`, `resource_version`) and what is wrong (`error`). Everything
    else, content and other metadata, raises the DecodeError. Immutable, safe from any thread.

    >>> [each.ref for each in Api.all(client, ConfigMap).list() if isinstance(each, InvalidObject)]
    []
    """

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        """`record` is one with a `problem`."""
        self.record = record

    @property
    def ref(self) -> ObjectRef:
        """Which object it is, as far as that can be told."""
        return self.record.ref

    @property
    def api_resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.record.resource

    @property
    def name(self) -> str:
        """The object's name; empty when that cannot be read."""
        return self.record.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object, and when that cannot be read."""
        return self.record.namespace

    @property
    def uid(self) -> str:
        """The object's uid; empty when it could not be read."""
        return self.record.uid

    @property
    def resource_version(self) -> str:
        """The version of the object; empty when it could not be read."""
        return self.record.resource_version

    @property
    def error(self) -> DecodeError:
        """The DecodeError that says what is wrong with it; a new exception each time."""
        problem = self.record.problem or _UNKNOWN
        return DecodeError(self.ref, problem.path, problem.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return InvalidObject, (self.record,)

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for (copying, pickling) is simply not there
            raise AttributeError(name)
        raise self.error

    def __repr__(self) -> str:
        return f"<invalid {self.ref}>"


class DynamicObject(Resource):
    """An object of any kind, without a class for it: `obj.spec` is `obj["spec"]`, plain JSON values.

    Metadata is typed, as in every resource class. It has no kind of its own: `dynamic(api_resource)` makes the class
    for one.

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
    """The `DynamicObject` class bound to `resource`: the same one for the same resource. Safe from any thread.

    >>> Widget = dynamic(ApiResource("example.com", "v1", "Widget", "widgets"))
    >>> Widget(name="a", spec={"size": 3}).to_dict()["spec"]
    {'size': 3}
    """
    return bound_class(DynamicObject, resource)


S = TypeVar("S")
U = TypeVar("U")

if TYPE_CHECKING:

    class Object(Resource, Generic[S, U]):
        """An object whose spec is an `S` and whose status a `U`, of whatever kind."""

        spec: S = EMPTY
        status: U = EMPTY

else:

    class Object(Resource):
        """An object whose spec is an `S` and whose status a `U`, of whatever kind: `Object[S, U]` is a class, the same
        one for the same types.

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
            # Neither this class nor the bound one has a name to be imported by.
            parameters = next(types for types, made in _made.items() if isinstance(self, made))
            _, _, state = super().__reduce__()
            return _blank_object, (parameters, self.api_resource), state

    _made = {}


def _blank_object(parameters: tuple[Any, Any], resource: ApiResource) -> Resource:
    """An object without content, which pickle or copy then fills."""
    generic: Any = Object
    cls: Any = bound_class(generic[parameters], resource)
    made: Resource = cls.__new__(cls)
    return made
