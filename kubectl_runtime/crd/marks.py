"""What one adds to the types of a custom resource: rules, one-of, list and map types, fields that are left open.

    Annotated[int, Rule("self > 0", message="must be positive")]            a rule on a field
    @rules(Rule("self.low <= self.high"))                                   on a Struct or dataclass, above its class
    class Kind(CustomResource, ..., rules=(Rule("has(self.spec)"),))        on the whole object
    Annotated[Source, OneOf("git", "http")]                                 exactly one of these keys is there
    Annotated[list[str], ListType("atomic")]                                x-kubernetes-list-type (MapKeys says map)
    Annotated[Limits, MapType("atomic")]                                    x-kubernetes-map-type
    Annotated[list["Node"], PreserveUnknownFields()]                        not described: for recursive types
    Annotated[dict[str, Any], EmbeddedResource()]                           a whole Kubernetes object
    Annotated[str | list[str], FieldSchema({...})]                          a schema written by hand, for this field
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T", bound=type)
Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
_ATTRIBUTE = "__kubernetes_rules__"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in CEL (`x-kubernetes-validations`): `self` is the value, `oldSelf` the one before an update.

    A rule that names `oldSelf` is asked on updates only, unless `optional_old_self`: then it is an optional value.
    `message_expression` is CEL that gives the message; `field_path` (``.a.b``) says where below the rule's place the
    fault is shown.

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
        """The rule as the definition carries it."""
        given = {"rule": self.rule, "message": self.message, "messageExpression": self.message_expression,
                 "reason": self.reason, "fieldPath": self.field_path, "optionalOldSelf": self.optional_old_self}
        return {key: value for key, value in given.items() if value not in (None, "")}


def rules(*given: Rule) -> Callable[[T], T]:
    """Put rules on a Struct or dataclass: they are checked wherever the class is used. Subclasses have them too.

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
    """The rules that `rules` put on a class."""
    found: tuple[Rule, ...] = getattr(cls, _ATTRIBUTE, ())
    return found


class OneOf:
    """Marks a class of which exactly one of these keys (wire names) is set: a union that is told apart by its key.

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


@dataclass(frozen=True, slots=True)
class ListType:
    """How server-side apply takes a list: as one value (atomic), or as a set of scalars. `MapKeys` makes it a map.

    >>> class Zones(Struct):
    ...     names: Annotated[list[str], ListType("set")]
    """

    type: Literal["atomic", "set"]


@dataclass(frozen=True, slots=True)
class MapType:
    """How server-side apply takes an object: as one value (atomic), or field by field.

    >>> class SettingsSpec(Struct):
    ...     values: Annotated[dict[str, str], MapType("atomic")]
    """

    type: Literal["atomic", "granular"]


@dataclass(frozen=True, slots=True)
class PreserveUnknownFields:
    """Marks a field whose contents the schema does not describe: nothing in it is checked, nothing pruned.

    >>> class OpenSpec(Struct):
    ...     extra: Annotated[dict, PreserveUnknownFields()]
    """


class FieldSchema:
    """Marks a field with an OpenAPI schema of your own, which replaces the one made from the type: for types that have
    none, such as unions whose members cannot be told apart. It has to be structural, and to fit what the type reads and
    writes.

    >>> class PortSpec(Struct):
    ...     port: Annotated[int | str, FieldSchema({"x-kubernetes-int-or-string": True})]
    """

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __repr__(self) -> str:
        return f"FieldSchema({self.schema!r})"


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """Marks a field that holds a Kubernetes object with apiVersion, kind and metadata.

    >>> class TemplateSpec(Struct):
    ...     template: Annotated[dict, EmbeddedResource()]
    """
