"""Custom resources: from a class to a definition that the API server takes."""
from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.crd.customresource import CustomResource, PrinterColumn
from kubectl_runtime.crd.marks import OneOf
from kubectl_runtime.crd.schema import object_schema
from kubectl_runtime.schema.structural import apply_defaults, prune
from kubectl_runtime.schema.validation import schema_causes


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Port:
    name: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    node_port: int | None = None


class Limits(msgspec.Struct, rename="camel"):
    """How much."""

    max_size: int = 10
    hard: bool = True


class Spec(msgspec.Struct, rename="camel"):
    """What is wanted."""

    content: Annotated[str, msgspec.Meta(min_length=1, pattern="^[a-z]+$", description="The text.")]
    color: Color | None = None
    mode: Literal["fast", "slow"] = "fast"
    weight: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    ports: Annotated[list[Port], MapKeys("name")] = []
    limits: Limits = msgspec.field(default_factory=Limits)
    tags: set[str] = msgspec.field(default_factory=set)
    labels: dict[str, str] = {}
    anything: Any = None
    open: dict[str, Any] = {}
    target: int | str = 80
    when: datetime | None = None
    day: date | None = None
    blob: bytes = b""
    id: UUID | None = None
    matrix: list[list[int]] = []
    args: tuple[str, ...] = ("a", "b")


class Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0


class Generator(CustomResource, group="demo.example.com", version="v1", kind="Generator", short_names=("gen",),
                categories=["all"], printer_columns=(
                    PrinterColumn("Mode", ".spec.mode", description="how"),
                    PrinterColumn("Age", ".metadata.creationTimestamp", type="date", priority=1))):
    """Makes things.

    In two paragraphs.
    """

    spec: Spec
    status: Status | None = None


def schema_of(kind: type[CustomResource]) -> dict[str, Any]:
    schema: dict[str, Any] = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_the_definition() -> None:
    crd = Generator.crd()
    assert (crd["apiVersion"], crd["kind"], crd["metadata"]) == (
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", {"name": "generators.demo.example.com"})
    spec = crd["spec"]
    assert (spec["group"], spec["scope"]) == ("demo.example.com", "Namespaced")
    assert spec["names"] == {"kind": "Generator", "listKind": "GeneratorList", "plural": "generators",
                             "singular": "generator", "shortNames": ["gen"], "categories": ["all"]}
    version = spec["versions"][0]
    assert (version["name"], version["served"], version["storage"], version["subresources"]) == (
        "v1", True, True, {"status": {}})
    assert version["additionalPrinterColumns"] == [
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "description": "how"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1}]


def test_what_is_not_declared_is_left_out() -> None:
    class Bare(CustomResource, group="g.example.com", version="v1alpha1", kind="Bare", scope=Scope.CLUSTER):
        spec: dict[str, Any]

    crd = Bare.crd()
    assert crd["spec"]["scope"] == "Cluster"
    assert set(crd["spec"]["names"]) == {"kind", "listKind", "plural", "singular"}
    assert set(crd["spec"]["versions"][0]) == {"name", "served", "storage", "schema"}
    assert schema_of(Bare) == {"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


def test_the_root_schema() -> None:
    schema = schema_of(Generator)
    assert schema["description"] == "Makes things.\n\nIn two paragraphs."
    assert list(schema["properties"]) == ["spec", "status"]
    assert schema["required"] == ["spec"]


@pytest.mark.parametrize(("key", "expected"), [
    ("content", {"type": "string", "minLength": 1, "pattern": "^[a-z]+$", "description": "The text."}),
    ("color", {"type": "string", "allOf": [{"enum": ["red", "blue"]}], "nullable": True}),
    ("mode", {"type": "string", "enum": ["fast", "slow"], "default": "fast"}),
    ("weight", {"type": "number", "format": "double", "minimum": 0, "exclusiveMinimum": True, "maximum": 1,
                "exclusiveMaximum": True, "nullable": True}),
    ("limits", {"type": "object", "description": "How much.", "default": {"maxSize": 10, "hard": True}, "properties": {
        "maxSize": {"type": "integer", "format": "int64", "default": 10},
        "hard": {"type": "boolean", "default": True}}}),
    ("tags", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
    ("labels", {"type": "object", "additionalProperties": {"type": "string"}}),
    ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
    ("open", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ("target", {"x-kubernetes-int-or-string": True, "default": 80}),
    ("when", {"type": "string", "format": "date-time", "nullable": True}),
    ("day", {"type": "string", "format": "date", "nullable": True}),
    ("blob", {"type": "string", "anyOf": [{"format": "byte"}, {"maxLength": 0}], "default": ""}),
    ("id", {"type": "string", "format": "uuid", "nullable": True}),
    ("matrix", {"type": "array", "items": {"type": "array", "items": {"type": "integer", "format": "int64"}}}),
    ("args", {"type": "array", "items": {"type": "string"}, "default": ["a", "b"]}),
])
def test_schemas_of_types(key: str, expected: dict[str, Any]) -> None:
    assert schema_of(Generator)["properties"]["spec"]["properties"][key] == expected


def test_dataclasses_and_keyed_lists() -> None:
    spec = schema_of(Generator)["properties"]["spec"]
    assert spec["required"] == ["content"]
    assert spec["properties"]["ports"] == {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name", "port"], "properties": {
            "name": {"type": "string"},
            "port": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 65535},
            "nodePort": {"type": "integer", "format": "int64", "nullable": True}}}}


def unstructural(node: Any, path: str = "") -> Iterator[str]:
    """Where a schema breaks the rules that the API server has for structural schemas."""
    typed = "type" in node or node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
    if not typed:
        yield f"{path}: no type"
    yield from (f"{path}: {key}" for key in ("$ref", "title", "definitions", "uniqueItems", "patternProperties")
                if key in node)
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties and additionalProperties"
    for key, inner in node.get("properties", {}).items():
        yield from unstructural(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from unstructural(node[key], f"{path}[{key}]")


def test_the_schema_is_structural() -> None:
    assert list(unstructural(schema_of(Generator))) == []


def test_objects_written_by_the_class_fit_its_schema_and_nothing_is_pruned() -> None:
    spec = Spec("text", color=Color.RED, weight=0.5, ports=[Port("http", 80)], tags={"x"}, labels={"a": "b"},
                anything=[1], open={"deep": {"er": 1}}, target="50%", when=datetime(2026, 1, 1, tzinfo=UTC),
                day=date(2026, 1, 1), blob=b"\x00", id=UUID(int=1), matrix=[[1], [2]])
    content = Generator(name="a", spec=spec, status=Status(3)).to_dict()
    schema = schema_of(Generator)
    without_metadata = {key: content[key] for key in ("spec", "status")}
    assert schema_causes(without_metadata, schema) == []
    assert prune(content, schema) == []
    assert Generator.from_dict(content).spec == spec


def test_defaults_of_the_server_and_of_the_class_agree() -> None:
    content = {"metadata": {"name": "a"}, "spec": {"content": "text"}}
    mine = Generator.from_dict(content).spec
    apply_defaults(content, schema_of(Generator))
    assert Generator.from_dict(content).spec == mine
    assert content["spec"]["limits"] == {"maxSize": 10, "hard": True}  # type: ignore[index]


@pytest.mark.parametrize(("name", "spec"), [
    ("content", {}), ("content", {"content": "UPPER"}), ("color", {"content": "a", "color": "green"}),
    ("port", {"content": "a", "ports": [{"name": "x", "port": 0}]}), ("weight", {"content": "a", "weight": 1}),
])
def test_what_does_not_fit_is_refused_by_the_schema(name: str, spec: dict[str, Any]) -> None:
    assert name in str(schema_causes({"spec": spec}, schema_of(Generator)))


class Node_(msgspec.Struct):
    children: list[Node_] = []



@dataclass
class WithoutKey:
    ports: Annotated[list[Port], MapKeys("nodePort")] = field(default_factory=list)


@pytest.mark.parametrize(("hint", "message"), [
    (set[Port], r"Thing\.field: a set must hold scalars"),
    (set[int | None], r"Thing\.field: a set must hold scalars"),
    (list[complex], r"Thing\.field\[\]: complex"),
    (dict[str, object], r"Thing\.field\[…\]: object"),
    (str | float, r"Thing\.field: .*only the unions T \| None, int \| str"),
    (tuple[int, str], r"Thing\.field: a tuple of different types"),
    (Annotated[Port, OneOf("none")], r"Thing\.field: OneOf names none, which the type does not have"),
    (Literal["a", 1], r"Thing\.field: the values of an enum"),
    (Node_, r"Node_ contains itself \(Node_ -> Node_\)"),
    (Annotated[list[Port], MapKeys("missing")], r"Thing\.field: MapKeys names 'missing', which is no field"),
    (WithoutKey, r"WithoutKey\.ports: MapKeys names 'nodePort', so this field must be required or have a default"),
])
def test_types_without_a_schema_are_named_with_their_field(hint: Any, message: str) -> None:
    thing = type("Thing", (), {})
    with pytest.raises(TypeError, match=message):
        object_schema(thing, [("field", hint, None)])


@pytest.mark.parametrize(("hint", "default", "message"), [
    (float, float("inf"), "its default is inf"), (str, 5, "its default is a number where text is declared"),
    (int, "5", "its default is text where a number is declared"),
    (dict[str, str], {"a": {"b": 1}}, r"its default\.a is a map where text is declared"),
    (list[str], "a", "its default is text where a list is declared")])
def test_a_default_that_its_type_does_not_take_is_named_with_its_field(hint: Any, default: Any, message: str) -> None:
    thing = type("Thing", (), {})
    with pytest.raises(TypeError, match=rf"Thing\.field: {message}"):
        object_schema(thing, [("field", hint, default)])


@pytest.mark.parametrize("group", [None, "", "example"])
def test_a_custom_resource_needs_a_group_with_a_dot(group: str | None) -> None:
    with pytest.raises(TypeError, match="class Groupless: a custom resource needs a group="):
        class Groupless(CustomResource, group=group, version="v1", kind="Groupless"):
            spec: dict[str, Any]


def test_a_subclass_keeps_names_and_columns() -> None:
    class Newer(Generator, group="demo.example.com", version="v2", kind="Generator"):
        pass

    assert Newer.crd()["spec"]["names"]["shortNames"] == ["gen"]
    assert Newer.crd()["spec"]["versions"][0]["name"] == "v2"
