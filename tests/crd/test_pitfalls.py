"""What goes wrong elsewhere when schemas are made of types: it comes out as the API server takes it, or is refused when
the class is made, with the field and the remedy."""
from __future__ import annotations

import enum
import types
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta

from kubectl_runtime.cli.main import main
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import GoDuration
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.crd.customresource import CustomResource, PrinterColumn
from kubectl_runtime.crd.marks import OneOf, PreserveUnknownFields, Rule, ScaleSubresource
from kubectl_runtime.crd.schema import object_schema
from kubectl_runtime.schema.structural import structural_causes


class Mode(enum.Enum):
    """How it works.

    A_B is the usual one.
    """

    A_B = "a-b"
    OTHER = "other"


class Odd(enum.Enum):
    A = "a"
    ONE = 1


class Left(msgspec.Struct):
    value: int


class Right(msgspec.Struct):
    value: str


class Git(msgspec.Struct, tag="git"):
    """By git."""

    url: str
    depth: int = 1


class Http(msgspec.Struct, tag="http"):
    """By http."""

    url: str


class Svn(msgspec.Struct, tag="svn"):
    url: int


class Numbered(msgspec.Struct, tag=7, tag_field="kind"):
    url: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class InList(msgspec.Struct):
    children: list[InList]


class InMap(msgspec.Struct):
    children: dict[str, InMap]


class Chicken(msgspec.Struct):
    egg: Egg | None = None


@dataclass
class Egg:
    chicken: Chicken


class Tree(msgspec.Struct):
    name: str
    children: Annotated[dict[str, Tree], PreserveUnknownFields()] = {}


class Words(TypedDict):
    a: str


class Flattened(dict[str, str]):
    """A map with a field of its own, which no schema can say."""

    name: str


def schema_of(hint: Any, default: Any = msgspec.UNSET) -> dict[str, Any]:
    thing = type("Thing", (), {})
    found: dict[str, Any] = object_schema(thing, [("field", hint, default)])
    assert structural_causes(found) == []
    return found["properties"]["field"]  # type: ignore[no-any-return]


TEXT = "How it works.\n\nA_B is the usual one."


@pytest.mark.parametrize(("hint", "schema"), [
    (Mode, {"type": "string", "enum": ["a-b", "other"], "description": TEXT}),
    (Mode | None, {"type": "string", "allOf": [{"enum": ["a-b", "other"]}], "nullable": True, "description": TEXT}),
    (Annotated[Mode | None, Meta(description="of the field")],
     {"type": "string", "allOf": [{"enum": ["a-b", "other"]}], "nullable": True, "description": "of the field"}),
    (Literal["a", None], {"type": "string", "allOf": [{"enum": ["a"]}], "nullable": True}),
    (int | str | None, {"x-kubernetes-int-or-string": True, "nullable": True}),
    (Strict, {"type": "object", "properties": {"a": {"type": "integer", "format": "int64"}}, "required": ["a"]}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}),
    (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    (dict, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    (list[Any], {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}),
    (Git | Http, {"type": "object", "description": "git: By git.\n\nhttp: By http.", "required": ["type"],
        "properties": {"type": {"type": "string", "enum": ["git", "http"]}, "url": {"type": "string"},
                       "depth": {"type": "integer", "format": "int64"}}, "oneOf": [
            {"properties": {"type": {"enum": ["git"]}}, "required": ["type", "url"]},
            {"properties": {"type": {"enum": ["http"]}}, "required": ["type", "url"]}]}),
    (Tree, {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "children": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}})])
def test_types_that_others_stumble_over_come_out_structural(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_the_default_of_an_enum_is_its_value() -> None:
    assert schema_of(Mode, Mode.A_B)["default"] == "a-b"
    assert schema_of(Mode | None, Mode.OTHER)["default"] == "other"
    assert "default" not in schema_of(Mode | None, None)


def test_a_class_without_a_kind_has_no_definition_and_is_told_how_to_get_one() -> None:
    class Oven(CustomResource):
        spec: Left

    with pytest.raises(TypeError, match=r'class Oven is bound to no kind: .* class Oven\(CustomResource, group="'):
        Oven.crd()


def test_the_default_of_a_quantity_is_its_text() -> None:
    schema = object_schema(object, [("size", Quantity, Quantity("1024Mi")), ("every", GoDuration, GoDuration("90m"))])
    assert [each["default"] for each in schema["properties"].values()] == ["1Gi", "1h30m0s"]


@pytest.mark.parametrize("default", [object(), float("nan"), datetime(2026, 1, 1)])
def test_a_default_that_no_manifest_can_say_is_refused_with_its_field(default: Any) -> None:
    with pytest.raises(TypeError, match=r"Git\.depth: its default.* "):
        object_schema(Git, [("depth", Any, default)])


@pytest.mark.parametrize(("hint", "problem"), [
    (Left | Right, r"Thing\.field: .* has no structural schema; only the unions T \| None, int \| str"),
    (str | Left, "only the unions"), (str | list[str], "only the unions"), (bool | int, "only the unions"),
    (Git | Svn, r"Thing\.field: url is declared differently by Svn and another member of the union"),
    (Git | Numbered, "must have their tag in one field, not in kind, type: give them the same tag_field="),
    (Odd, "the values of an enum must all be text or all be integers"),
    (InList, r"InList contains itself \(InList -> InList\)"), (InMap, r"InMap contains itself \(InMap -> InMap\)"),
    (Chicken, r"Chicken contains itself \(Chicken -> Egg -> Chicken\): structural schemas cannot be recursive; mark "
              r"the field Annotated\[\.\.\., PreserveUnknownFields\(\)\]"),
    (Words, r"Thing\.field: Words is a map that declares fields \(a\)"),
    (Flattened, r"Thing\.field: Flattened is a map that declares fields \(name\); a schema has either fields or free "
                "keys: use a Struct or dataclass, with a dict as a field"),
    (object, "object has no structural schema"),
    (Annotated[Left, OneOf("none")], "OneOf names none, which the type does not have")])
def test_types_that_no_structural_schema_can_say_are_refused_with_the_reason(hint: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        schema_of(hint)


def kind(**options: Any) -> type[CustomResource]:
    return types.new_class("Sample", (CustomResource,), {
        "group": "pitfalls.example.com", "version": "v1", "kind": "Sample", **options},
        lambda body: body.update({"__annotations__": {"spec": Left, "status": "dict[str, Any] | None"},
                                  "__module__": __name__, "status": None}))


@pytest.mark.parametrize(("missing", "problem"), [
    ("group", "needs a group="), ("version", "version= is missing"), ("kind", "kind= is missing")])
def test_group_version_and_kind_are_needed(missing: str, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        kind(**{missing: None})


def version_of(**options: Any) -> dict[str, Any]:
    version: dict[str, Any] = kind(**options).crd()["spec"]["versions"][0]
    return version


def test_each_option_is_in_its_place() -> None:
    assert version_of(scale=ScaleSubresource(".spec.value", ".status.value", ".status.selector"))["subresources"] == {
        "status": {}, "scale": {"specReplicasPath": ".spec.value", "statusReplicasPath": ".status.value",
                                "labelSelectorPath": ".status.selector"}}
    column = PrinterColumn("Value", ".spec.value", "integer", "how much", "int32", 1)
    assert version_of(printer_columns=[column])["additionalPrinterColumns"] == [
        {"name": "Value", "type": "integer", "jsonPath": ".spec.value", "description": "how much", "format": "int32",
         "priority": 1}]
    assert (version_of(served=False)["served"], version_of(deprecated=True)["deprecated"]) == (False, True)
    assert "deprecationWarning" not in version_of(deprecated=True)
    names = kind(singular="one", plural="many", scope=Scope.CLUSTER).crd()["spec"]
    assert (names["names"]["singular"], names["names"]["plural"], names["scope"]) == ("one", "many", "Cluster")


def test_a_schema_by_hand_or_none_at_all_takes_the_place_of_the_types() -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert version_of(schema=anything)["schema"] == {"openAPIV3Schema": anything}
    by_hand = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [
        {"rule": "true"}]}}}
    assert version_of(schema=by_hand)["schema"] == {"openAPIV3Schema": by_hand}


class Wrong(msgspec.Struct):
    low: Annotated[int, Rule("self >")] = 0


def test_a_rule_that_does_not_compile_is_judged_before_objects_are() -> None:
    class Ranged(CustomResource, group="example.com", version="v1", kind="Ranged"):
        spec: Wrong

    for judge in (Ranged.crd, Ranged(name="a", spec=Wrong()).violations):
        with pytest.raises(TypeError, match="class Ranged: the API server would refuse its schema"):
            judge()


class Named(msgspec.Struct):
    names: Annotated[list[str], Rule("self.all(name, self.exists(other, other == name))")] = []


class Walked(CustomResource, group="example.com", version="v1", kind="Walked"):
    spec: Named


def test_the_command_warns_of_a_rule_that_costs_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", f"{__name__}:Walked"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("warning: walkeds.example.com v1: properties[spec].properties[names].x-kubernetes-"
                                  "validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of")
    assert "kind: CustomResourceDefinition" in printed.out
