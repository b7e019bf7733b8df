"""Marks for the types of a custom resource, and the class keywords of its definition.

    Annotated[int, Rule("self > 0", message="must be positive")]            a rule on a field
    @rules(Rule("self.low <= self.high"))                                   on a Struct or dataclass, as a decorator
    class Kind(CustomResource, ..., rules=(Rule("has(self.spec)"),))        on the whole object
    Annotated[Source, OneOf("git", "http")]                                 exactly one of these keys is set
    Annotated[list[str], ListType("atomic")]                                x-kubernetes-list-type (map: MapKeys)
    Annotated[Limits, MapType("atomic")]                                    x-kubernetes-map-type
    Annotated[list["Node"], PreserveUnknownFields()]                        no schema, for recursive types
    Annotated[dict[str, Any], EmbeddedResource()]                           a whole Kubernetes object
    Annotated[str | list[str], FieldSchema({...})]                          a schema written by hand, for this field
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T", bound=type)
Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
_ATTRIBUTE = "__kubernetes_rules__"
_RULES = "x-kubernetes-validations"


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule (`x-kubernetes-validations`): `self` is the value, `oldSelf` the value before an update.

    A rule that uses `oldSelf` is evaluated only on updates, unless `optional_old_self` makes `oldSelf` an optional
    value. `message_expression` is CEL that evaluates to the message. `field_path` (``.a.b``) is the path that the
    error names, relative to the value that the rule is on.

    >>> class Sized(Struct):
    ...     size: Annotated[int, Rule("self >= oldSelf", message="it may only grow")]
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: Reason | None = None
    field_path: str = ""
    optional_old_self: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON, in the form that definitions use."""
        given = {"rule": self.rule, "message": self.message, "messageExpression": self.message_expression,
                 "reason": self.reason, "fieldPath": self.field_path, "optionalOldSelf": self.optional_old_self}
        return {key: value for key, value in given.items() if value not in (None, "")}

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        schema = handler(core)
        return {**schema, _RULES: [*schema.get(_RULES, ()), self.to_dict()]}


def rules(*given: Rule) -> Callable[[T], T]:
    """Add rules to a Struct or dataclass: they are checked wherever the class is used. Subclasses inherit them.

    >>> @rules(Rule("self.low <= self.high", message="low is above high"))
    ... class Range(Struct):
    ...     low: int
    ...     high: int
    """
    def decorate(cls: T) -> T:
        setattr(cls, _ATTRIBUTE, (*rules_on(cls), *given))
        return cls
    return decorate


def rules_on(cls: type) -> tuple[Rule, ...]:
    """The rules that `rules` added to a class."""
    found: tuple[Rule, ...] = getattr(cls, _ATTRIBUTE, ())
    return found


class OneOf:
    """Marks an object in which exactly one of these keys (wire names) must be set: a union without a tag field.

    >>> class SourceSpec(Struct):
    ...     git: str | None = None
    ...     http: str | None = None
    >>> class FetchSpec(Struct):
    ...     source: Annotated[SourceSpec, OneOf("git", "http")]
    """

    __slots__ = ("keys",)

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"OneOf{self.keys!r}"


class ListType(msgspec.Struct, frozen=True):
    """How server-side apply merges a list: as one value (atomic), or as a set of scalars. `MapKeys` makes a list a map.

    >>> class Zones(Struct):
    ...     names: Annotated[list[str], ListType("set")]
    """

    type: Literal["atomic", "set"]

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "x-kubernetes-list-type": self.type}


class MapType(msgspec.Struct, frozen=True):
    """How server-side apply merges an object: as one value (atomic), or field by field.

    >>> class SettingsSpec(Struct):
    ...     values: Annotated[dict[str, str], MapType("atomic")]
    """

    type: Literal["atomic", "granular"]

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "x-kubernetes-map-type": self.type}


class PreserveUnknownFields(msgspec.Struct, frozen=True):
    """Marks a field whose contents the schema does not describe: they are neither validated nor pruned.

    >>> class OpenSpec(Struct):
    ...     extra: Annotated[dict, PreserveUnknownFields()]
    """


class FieldSchema:
    """Marks a field with your own OpenAPI schema in place of the derived one: for types without a schema, such as
    unions whose members cannot be distinguished. The schema must be structural, and must match what the type reads and
    writes.

    >>> class PortSpec(Struct):
    ...     port: Annotated[int | str, FieldSchema({"x-kubernetes-int-or-string": True})]
    """

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __repr__(self) -> str:
        return f"FieldSchema({self.schema!r})"

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"x-kubernetes-field-schema": dict(self.schema)}


class EmbeddedResource(msgspec.Struct, frozen=True):
    """Marks a field that holds a Kubernetes object with apiVersion, kind and metadata.

    >>> class TemplateSpec(Struct):
    ...     template: Annotated[dict, EmbeddedResource()]
    """

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "x-kubernetes-embedded-resource": True}


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of `kubectl get`: its heading, and the path of its value in the object. With `priority` above 0 it is
    shown only by `-o wide`.

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
        """The column as JSON, in the form that definitions use."""
        optional = {"description": self.description, "format": self.format, "priority": self.priority}
        return {"name": self.name, "type": self.type, "jsonPath": self.json_path,
                **{key: value for key, value in optional.items() if value}}


class ScaleSubresource(msgspec.Struct, frozen=True):
    """The paths for `kubectl scale`: the desired and the current number of replicas and, for autoscalers, the selector.

    >>> ScaleSubresource(".spec.replicas", ".status.replicas").spec_replicas_path
    '.spec.replicas'
    """

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The subresource as JSON, in the form that definitions use."""
        selector = {"labelSelectorPath": self.label_selector_path} if self.label_selector_path else {}
        return {"specReplicasPath": self.spec_replicas_path, "statusReplicasPath": self.status_replicas_path,
                **selector}


class CrdOptions(msgspec.Struct, frozen=True):
    """The class keywords that describe a custom resource's definition.

    `deprecated` is True, or the warning that clients receive. `annotations` and `labels` are set on the definition and
    on objects that `new` makes. `doc` replaces the docstring as the description. `schema` is a handwritten
    openAPIV3Schema that replaces the derived schema. It cannot be combined with `rules`: write the validation rules
    into the schema.

    Two keywords apply to fields whose types are parts of built-in kinds, such as `PodTemplateSpec`. `describe_parts`
    adds upstream's descriptions (250 KB for a Pod template). Without `embedded_metadata` the schema does not describe
    the metadata of templates, and the server drops their labels and annotations.
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
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] | None = None
    describe_parts: bool = False
    embedded_metadata: bool = True

    def version_parts(self) -> dict[str, Any]:
        """The columns, selectable fields and deprecation, as JSON fields of the definition's version."""
        columns = [column.to_dict() for column in self.printer_columns]
        selectable = [{"jsonPath": path} for path in self.selectable_fields]
        warning = {"deprecationWarning": self.deprecated} if isinstance(self.deprecated, str) else {}
        return {**({"deprecated": True} if self.deprecated else {}), **warning,
                **({"additionalPrinterColumns": columns} if columns else {}),
                **({"selectableFields": selectable} if selectable else {})}


OPTIONS = CrdOptions.__struct_fields__
_KIND = ("group", "version", "kind", "plural", "scope")
_LISTS = frozenset({"short_names", "categories", "printer_columns", "selectable_fields", "rules"})


def options_of(cls: type, given: Mapping[str, Any]) -> CrdOptions:
    """Make the options from class keywords. Raises TypeError if a keyword that needs a tuple is a str, and if
    `rules` and `schema` are combined."""
    for name in _LISTS & given.keys():
        if isinstance(given[name], str):
            raise TypeError(f"class {cls.__name__}: {name}= must be a tuple, not a str; "
                            f"write {name}=({given[name]!r},)")
    values: dict[str, Any] = {name: tuple(value) if name in _LISTS else value for name, value in given.items()}
    found = CrdOptions(**values)
    if found.schema is not None and found.rules:
        raise TypeError(f"class {cls.__name__}: rules= cannot be combined with schema=; write them into the schema as "
                        "x-kubernetes-validations")
    return found


def check_keywords(cls: type, given: Iterable[str]) -> None:
    """Raise TypeError, with the nearest valid keyword, for an unknown class keyword."""
    for name in given:
        if name not in (*OPTIONS, *_KIND):
            import difflib  # imported here because only errors need it

            near = difflib.get_close_matches(name, (*OPTIONS, *_KIND), 1)
            hint = f"; did you mean {near[0]}=?" if near else f"; the keywords are {', '.join((*_KIND, *OPTIONS))}"
            raise TypeError(f"class {cls.__name__}: a custom resource has no keyword {name}={hint}")
