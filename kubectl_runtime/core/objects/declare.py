"""Gives a resource class its kind and its attributes, when `class Pod(Resource, version="v1", kind="Pod")` is executed.

Defining a class is cheap: only the names of its attributes are read. The declared types are resolved when an attribute
is first read, so they may be defined later in the module than the class.
"""
from __future__ import annotations

import builtins
import functools
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import InitVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kubectl_runtime.core.base.wire import annotations_of, building, camel
from kubectl_runtime.core.codec.views import MISSING, ViewCodec
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, Scope
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference

R = TypeVar("R")
EMPTY: Any = MISSING
"""The default of an attribute that constructors may omit. An omitted attribute reads as its type's empty form."""


_VERSION = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
"""A DNS label (RFC 1035), the form that the API requires for version names."""


class HasViews(Protocol):
    """The methods of a resource that an `Attribute` calls: they read and replace top-level keys as views."""

    _views: dict[str, Any]

    def _view(self, key: str) -> Any: ...


class Attribute:
    """A declared top-level key of a resource class. Reading it decodes a view; assigning to it replaces the view."""

    __slots__ = ("default", "key", "name")

    def __init__(self, name: str, default: Any) -> None:
        self.name = name
        self.key = camel(name)
        self.default = default

    def __get__(self, obj: HasViews | None, owner: type) -> Any:
        if obj is None:
            return self
        key = self.key
        views = obj._views
        return views[key] if key in views else obj._view(key)

    def __set__(self, obj: HasViews, value: Any) -> None:
        obj._views[self.key] = value


class ResourceMeta(type):
    """The metaclass of resource classes. It gives each resource class empty slots: objects stay small, and assigning to
    an undeclared attribute is an error."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> ResourceMeta:
        namespace.setdefault("__slots__", ())
        return super().__new__(mcs, name, bases, namespace, **keywords)


if TYPE_CHECKING:
    # For type checkers a resource class is a dataclass: its constructor takes the declared attributes and requires
    # those without a default. The metaclass is hidden here: if type checkers saw it, they would not check the class
    # keywords.
    @typing.dataclass_transform(kw_only_default=True, eq_default=False)
    class _Declaring: ...

    class Declaring(_Declaring):
        """The arguments of every constructor besides the attributes: metadata, as single arguments or as a whole."""

        name: InitVar[str | None] = None
        namespace: InitVar[str | None] = None
        generate_name: InitVar[str | None] = None
        labels: InitVar[Mapping[str, str] | None] = None
        annotations: InitVar[Mapping[str, str] | None] = None
        owner_references: InitVar[list[OwnerReference] | None] = None
        finalizers: InitVar[list[str] | None] = None
        metadata: InitVar[ObjectMeta | None] = None
else:

    class Declaring(metaclass=ResourceMeta):
        """The base class of resource classes."""


def declare(cls: type, *, group: str | None, version: str | None, kind: str | None, plural: str | None,
            scope: Scope | None) -> None:
    """Bind `cls` to its kind, if one is given, and turn its annotations into attributes. Raises TypeError."""
    given = (group, version, kind, plural, scope)
    if any(value is not None for value in given):
        cls.api_resource = _resource(cls, *given)  # type: ignore[attr-defined]  # declared by Resource
    for name, annotation in annotations_of(cls).items():
        if name.startswith("_") or _is_class_variable(annotation):
            continue
        if any(name in base.__dict__ and not isinstance(base.__dict__[name], Attribute) for base in cls.__mro__[1:]):
            raise TypeError(f"{cls.__name__}.{name}: every resource has {name!r} already; choose another name")
        default = cls.__dict__.get(name, MISSING)
        if default is not MISSING:
            delattr(cls, name)  # so that the attributes have the order of their annotations
        setattr(cls, name, Attribute(name, default))


def _resource(cls: type, group: str | None, version: str | None, kind: str | None, *names: Any) -> ApiResource:
    plural, scope = names
    if not version or not kind:
        missing = "version" if not version else "kind"
        raise TypeError(f"class {cls.__name__}: {missing}= is missing; a kind needs group=, version= and kind=")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise TypeError(f"class {cls.__name__}: version={version!r} is not the name of an API version, such as 'v1' or "
                        "'v1alpha1': lower case letters, digits and '-', beginning with a letter")
    return ApiResource.from_gvk(GroupVersionKind(group or "", version, kind), plural=plural,
                                scope=scope or Scope.NAMESPACED)


def _is_class_variable(annotation: Any) -> bool:
    text = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(text, str):
        return text.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


_codecs: dict[type, dict[str, ViewCodec]] = {}
_bound: dict[tuple[type, ApiResource], Any] = {}
"""Filled without a lock: if two threads each make a class for the same key, `setdefault` gives both threads the first
class."""


def attributes_of(cls: type) -> dict[str, Attribute]:
    """Attribute name -> attribute; the attributes of base classes come first."""
    return {name: value for base in reversed(cls.__mro__) for name, value in base.__dict__.items()
            if isinstance(value, Attribute)}


def hints_of(cls: type) -> dict[str, Any]:
    """Attribute name -> declared type. Raises TypeError when a type cannot be resolved."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = {name: value for name, value in annotations_of(base).items()
               if isinstance(base.__dict__.get(name), Attribute)}
        if not own:
            continue
        try:
            found |= _resolved(own, base)
        except NameError as error:
            raise TypeError(f"{cls.__name__}: {error}; its attributes' types must be visible at module level") from None
    return {name: found[name] for name in attributes_of(cls)}


def _resolved(annotations: dict[str, Any], cls: type) -> dict[str, Any]:
    """The types in annotations. Names are looked up in the module of the class, in Python's builtins, in the class,
    then among the module's lazy imports. Raises NameError."""
    module = sys.modules.get(cls.__module__)
    # A plain dict: from Python 3.14 on typing copies it, so that a subclass's `__missing__` would be lost.
    names = {**vars(builtins), **(vars(module) if module is not None else {})}
    holder = types.SimpleNamespace(__annotations__=annotations)
    while True:
        try:
            return typing.get_type_hints(holder, dict(vars(cls)), names, include_extras=True)
        except NameError as error:
            name = error.name or ""
            on_demand = getattr(module, name, MISSING)
            if on_demand is MISSING or name in names:
                raise
            names[name] = on_demand


def codecs_of(cls: type) -> dict[str, ViewCodec]:
    """Wire key -> codec, `metadata` included. Built on first use; safe from any thread."""
    found = _codecs.get(cls)
    return _built_codecs(cls) if found is None else found


def _built_codecs(cls: type) -> dict[str, ViewCodec]:
    hints = hints_of(cls)  # outside the lock: resolving types may import modules
    with building.alone():  # workers that start together need the same codecs; one of them makes them
        if (found := _codecs.get(cls)) is not None:
            return found
        codecs = {"metadata": _metadata_codec()}
        for name, attribute in attributes_of(cls).items():
            codecs[attribute.key] = ViewCodec(attribute.key, hints[name], attribute.default)
        return _codecs.setdefault(cls, codecs)


@functools.cache
def _metadata_codec() -> ViewCodec:
    return ViewCodec("metadata", ObjectMeta)


def is_bound(cls: type, base: type, resource: ApiResource) -> bool:
    """Whether `cls` is the result of `bound_class(base, resource)`."""
    return _bound.get((base, resource)) is cls


def bound_class(base: type[R], resource: ApiResource) -> type[R]:
    """The subclass of `base` for `resource`: the same class for the same resource. Safe from any thread."""
    bound: type[R] | None = _bound.get((base, resource))
    if bound is None:
        made = ResourceMeta(resource.kind, (base,), {"api_resource": resource, "__module__": base.__module__})
        bound = _bound.setdefault((base, resource), made)
    return bound
