"""What a CustomResource class says of its definition beyond kind, scope and types: the class keywords."""
from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from kubectl_runtime.crd.marks import Rule


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`: its heading, and where in the object its value is. `priority` above 0: only wide.

    >>> class OvenSpec(Struct):
    ...     degrees: int
    >>> class Oven(CustomResource, group="bakery.example.com", version="v1", kind="Oven",
    ...            printer_columns=(PrinterColumn("Degrees", ".spec.degrees", type="integer"),)):
    ...     spec: OvenSpec
    """

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The column as the definition carries it."""
        optional = {"description": self.description, "format": self.format, "priority": self.priority}
        return {"name": self.name, "type": self.type, "jsonPath": self.json_path,
                **{key: value for key, value in optional.items() if value}}


@dataclass(frozen=True, slots=True)
class ScaleSubresource:
    """Where `kubectl scale` finds the wanted number, the present one and, for autoscalers, the label selector.

    >>> ScaleSubresource(".spec.replicas", ".status.replicas").spec_replicas_path
    '.spec.replicas'
    """

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The subresource as the definition carries it."""
        selector = {"labelSelectorPath": self.label_selector_path} if self.label_selector_path else {}
        return {"specReplicasPath": self.spec_replicas_path, "statusReplicasPath": self.status_replicas_path,
                **selector}


@dataclass(frozen=True, slots=True)
class CrdOptions:
    """The class keywords; what is not given is left out of the definition.

    `deprecated` is True, or the warning that clients get. `annotations` and `labels` are the definition's, and those of
    objects that `new` makes. `doc` takes the place of the docstring as the description. `schema` is an
    openAPIV3Schema written by hand, in the place of the one made of the types; it carries its rules itself.
    """

    singular: str | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    printer_columns: tuple[PrinterColumn, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    scale: ScaleSubresource | None = None
    served: bool = True
    storage: bool = True
    deprecated: bool | str = False
    doc: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] | None = None

    def version_parts(self) -> dict[str, Any]:
        """What stands in the version beside its schema and subresources."""
        columns = [column.to_dict() for column in self.printer_columns]
        selectable = [{"jsonPath": path} for path in self.selectable_fields]
        warning = {"deprecationWarning": self.deprecated} if isinstance(self.deprecated, str) else {}
        return {**({"deprecated": True} if self.deprecated else {}), **warning,
                **({"additionalPrinterColumns": columns} if columns else {}),
                **({"selectableFields": selectable} if selectable else {})}


OPTIONS = tuple(option.name for option in fields(CrdOptions))
_KIND = ("group", "version", "kind", "plural", "scope")
_LISTS = frozenset({"short_names", "categories", "printer_columns", "selectable_fields", "rules"})


def options_of(cls: type, given: Mapping[str, Any]) -> CrdOptions:
    """The options of class keywords. TypeError for a text where several are wanted, and for options that contradict."""
    for name in _LISTS & given.keys():
        if isinstance(given[name], str):
            raise TypeError(f"class {cls.__name__}: {name}= takes several; write {name}=({given[name]!r},)")
    values: dict[str, Any] = {name: tuple(value) if name in _LISTS else value for name, value in given.items()}
    found = CrdOptions(**values)
    if found.schema is not None and found.rules:
        raise TypeError(f"class {cls.__name__}: rules= has no place beside schema=; write them into the schema as "
                        "x-kubernetes-validations")
    return found


def check_keywords(cls: type, given: Iterable[str]) -> None:
    """TypeError, with the nearest right one, for a class keyword that there is not."""
    for name in given:
        if name not in (*OPTIONS, *_KIND):
            near = difflib.get_close_matches(name, (*OPTIONS, *_KIND), 1)
            hint = f"; did you mean {near[0]}=?" if near else f"; there are {', '.join((*_KIND, *OPTIONS))}"
            raise TypeError(f"class {cls.__name__}: a custom resource has no keyword {name}={hint}")
