"""`CustomResource`: a resource class of one's own kind, and the CustomResourceDefinition that makes a server know it.

    class Generator(CustomResource, group="demo.example.com", version="v1", kind="Generator", short_names=("gen",),
                    printer_columns=(PrinterColumn("Age", ".metadata.creationTimestamp", type="date"),)):
        \"\"\"What it is for: the description in the schema.\"\"\"
        spec: GeneratorSpec
        status: GeneratorStatus | None = None       # its presence turns the status subresource on

    Generator.crd()                                  the definition, as a dict to create or apply
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kubectl_runtime.core.codec.views import MISSING
from kubectl_runtime.core.objects.declare import attributes_of, hints_of
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.schema import object_schema


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`: its heading, and where in the object its value is. `priority` above 0: only wide."""

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As the definition carries it."""
        optional = {"description": self.description, "format": self.format, "priority": self.priority}
        return {"name": self.name, "type": self.type, "jsonPath": self.json_path,
                **{key: value for key, value in optional.items() if value}}


@dataclass(frozen=True, slots=True)
class CrdOptions:
    """What a definition says beyond kind, scope and schema."""

    singular: str | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    printer_columns: tuple[PrinterColumn, ...] = ()


class CustomResource(Resource):
    """The base of one's own kinds. Class keywords: those of `Resource`, and the ones of `CrdOptions`.

    The group must be a name of one's own with a dot in it, as the API asks; TypeError otherwise.
    """

    crd_options: ClassVar[CrdOptions] = CrdOptions()

    def __init_subclass__(cls, *, singular: str | None = None, short_names: Iterable[str] = (),
                          categories: Iterable[str] = (), printer_columns: Iterable[PrinterColumn] = (),
                          **more: Any) -> None:
        super().__init_subclass__(**more)
        if "api_resource" in cls.__dict__ and "." not in cls.api_resource.group:
            raise TypeError(f"class {cls.__name__}: a custom resource needs a group= with a dot in it, "
                            "such as 'example.com'")
        given = CrdOptions(singular, tuple(short_names), tuple(categories), tuple(printer_columns))
        if given != CrdOptions():
            cls.crd_options = given

    @classmethod
    def crd_name(cls) -> str:
        """`plural.group`."""
        return cls.api_resource.full_name

    @classmethod
    def crd(cls) -> dict[str, Any]:
        """The CustomResourceDefinition, with a structural schema made from the declared types; a new dict each time.

        Raises TypeError, naming class and field, for a type that has no schema.
        """
        resource = cls.api_resource
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": cls.crd_name()},
            "spec": {"group": resource.group, "scope": resource.scope.value, "names": cls._names(),
                     "versions": [cls._version()]},
        }

    @classmethod
    def _names(cls) -> dict[str, Any]:
        resource, options = cls.api_resource, cls.crd_options
        lists = {"shortNames": list(options.short_names), "categories": list(options.categories)}
        return {"kind": resource.kind, "listKind": f"{resource.kind}List", "plural": resource.plural,
                "singular": options.singular or resource.kind.lower(),
                **{key: value for key, value in lists.items() if value}}

    @classmethod
    def _version(cls) -> dict[str, Any]:
        version: dict[str, Any] = {"name": cls.api_resource.version, "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": cls._schema()}}
        if "status" in attributes_of(cls):
            version["subresources"] = {"status": {}}
        if columns := [column.to_dict() for column in cls.crd_options.printer_columns]:
            version["additionalPrinterColumns"] = columns
        return version

    @classmethod
    def _schema(cls) -> dict[str, Any]:
        """The root schema. The server adds apiVersion, kind and metadata; status is never required: it comes later."""
        hints = hints_of(cls)
        found = [(attribute.key, hints[name], attribute.default) for name, attribute in attributes_of(cls).items()]
        fields = [(key, hint, None if key == "status" and default is MISSING else default)
                  for key, hint, default in found]
        return object_schema(cls, fields)
