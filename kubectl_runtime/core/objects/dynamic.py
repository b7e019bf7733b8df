"""Objects of kinds without a class: `DynamicObject`, whose attributes are the object's top-level keys."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.wire import camel
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.objects.declare import bound_class
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
        key = camel(name)
        if name.startswith("_") or key not in self:
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
