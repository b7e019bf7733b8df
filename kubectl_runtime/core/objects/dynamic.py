"""Objects of kinds without a class: `DynamicObject`, whose attributes are the object's top-level keys.

Typed classes of a kind that is known only at run time.

    Object[WorkloadSpec, WorkloadStatus].of(resource)      spec and status typed, the rest as plain values
    class Workload(Resource):                               any further fields: a class without a kind of its own
        spec: WorkloadSpec
    Workload.of(resource)

`resource` comes from discovery, or is an ApiResource that was put together. What `of` gives is a resource class like
any other: `Api.namespaced(client, Workload.of(resource), "default")`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubectl_runtime.core.base.interpreter import failed_attribute
from kubectl_runtime.core.base.wire import camel
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.objects.declare import EMPTY, ResourceMeta, bound_class
from kubectl_runtime.core.objects.resource import Resource


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
