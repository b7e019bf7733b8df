"""Random nested types: their schemas are structural, what they say is taken and kept whole, what they do not is refused
at its place."""
from __future__ import annotations

import copy
import dataclasses
import enum
import itertools
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from random import Random
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.marks import OneOf, PreserveUnknownFields
from kubectl_runtime.schema.structural import (
    apply_defaults,
    every_node,
    prune,
    schema_definition_causes,
    structural_causes,
)
from kubectl_runtime.schema.validation import Cause, schema_causes
from kubectl_runtime.testing import ApiServer
from tests.thoroughness import examples

Wrong = tuple[Any, str]
"""A value that does not fit, and where in it the fault is."""


@dataclass
class Shape:
    """A type, what makes values that it takes, and what makes values that it does not."""

    hint: Any
    value: Callable[[Random], Any]
    wrong: Callable[[Random], Wrong]
    optional: bool = False


class Color(enum.Enum):
    DARK_RED = "dark-red"
    BLUE = "blue"


def leaf(hint: Any, good: list[Any], bad: list[Any]) -> Callable[[Random], Shape]:
    return lambda _: Shape(hint, lambda draw: draw.choice(good), lambda draw: (draw.choice(bad), ""))


LEAVES = [
    leaf(str, ["", "x", "é"], [1, True, [], {}]), leaf(int, [0, -5, 2**40], ["1", 1.5, True, {}]),
    leaf(bool, [True, False], ["true", 1]), leaf(float, [0.5, -2.25], ["x", True]),
    leaf(bytes, ["aGk="], [1, "!"]), leaf(datetime, ["2026-01-01T00:00:00Z"], ["yesterday", 1]),
    leaf(date, ["2026-02-28"], ["2026-02-30"]), leaf(UUID, [str(UUID(int=1))], ["1"]),
    leaf(Literal["a", "b"], ["a", "b"], ["c", 1]), leaf(Literal[1, 2], [1, 2], [3]),
    leaf(Color, ["dark-red", "blue"], ["DARK_RED", "red"]), leaf(int | str, [1, "50%"], [1.5, [], {}]),
    leaf(Annotated[int, Meta(ge=1, lt=4)], [1, 3], [0, 4]),
    leaf(Annotated[str, Meta(pattern="^[a-z]+$", max_length=3)], ["ab"], ["abcd", "A"])]
SCALARS = LEAVES[:3]
_numbers = itertools.count()


def some_list(draw: Random, depth: int) -> Shape:
    item = some_shape(draw, depth - 1)

    def wrong(draw: Random) -> Wrong:
        value, at = item.wrong(draw)
        return [item.value(draw), value], f"[1]{at}"

    return Shape(list[item.hint], lambda draw: [item.value(draw) for _ in range(draw.randint(0, 3))], wrong)


def some_map(draw: Random, depth: int) -> Shape:
    item = some_shape(draw, depth - 1)

    def wrong(draw: Random) -> Wrong:
        value, at = item.wrong(draw)
        return {"a": item.value(draw), "b": value}, f".b{at}"

    return Shape(dict[str, item.hint], lambda draw: {key: item.value(draw) for key in draw.sample("abc", 2)}, wrong)


def some_set(draw: Random, _depth: int) -> Shape:
    item = draw.choice(SCALARS)(draw)
    return Shape(set[item.hint], lambda draw: [item.value(draw)], lambda draw: (
        [first := item.value(draw), first], "[1]"))


def some_optional(draw: Random, depth: int) -> Shape:
    inner = some_shape(draw, depth)
    while inner.optional:
        inner = some_shape(draw, depth)
    return Shape(inner.hint | None, lambda draw: inner.value(draw) if draw.random() < 0.7 else None, inner.wrong, True)


def fields_of(draw: Random, depth: int) -> dict[str, Shape]:
    names = draw.sample(["one", "two_words", "three"], draw.randint(1, 3))
    return {name: some_shape(draw, depth - 1) for name in names}


def key_of(name: str) -> str:
    return {"two_words": "twoWords"}.get(name, name)


def some_record(draw: Random, depth: int) -> Shape:
    fields = fields_of(draw, depth)
    defaults = {name for name, shape in fields.items() if shape.optional and draw.random() < 0.5}
    if draw.random() < 0.5:
        listed = [(name, shape.hint, *([None] if name in defaults else [])) for name, shape in fields.items()]
        hint: Any = msgspec.defstruct(f"Struct{next(_numbers)}", listed, rename="camel", kw_only=True)
    else:
        hint = dataclasses.make_dataclass(f"Data{next(_numbers)}", [
            (name, shape.hint, *([dataclasses.field(default=None)] if name in defaults else []))
            for name, shape in fields.items()], kw_only=True)
        hint.__module__ = __name__

    def value(draw: Random) -> Any:
        return {key_of(name): shape.value(draw) for name, shape in fields.items()
                if name not in defaults or draw.random() < 0.5}

    def wrong(draw: Random) -> Wrong:
        name = draw.choice(list(fields))
        whole = {key_of(other): shape.value(draw) for other, shape in fields.items()}
        if name not in defaults and draw.random() < 0.3:
            del whole[key_of(name)]
            return whole, f".{key_of(name)}"
        whole[key_of(name)], at = fields[name].wrong(draw)
        return whole, f".{key_of(name)}{at}"

    return Shape(hint, value, wrong)


def some_tagged(draw: Random, depth: int) -> Shape:
    inner = some_shape(draw, depth - 1)
    members = [msgspec.defstruct(f"Tag{next(_numbers)}", [(field, inner.hint)], tag=tag, rename="camel")
               for tag, field in (("first", "one"), ("second", "other"))]

    def value(draw: Random) -> Any:
        tag, field = draw.choice([("first", "one"), ("second", "other")])
        return {"type": tag, field: inner.value(draw)}

    def wrong(draw: Random) -> Wrong:
        bad, at = inner.wrong(draw)
        return draw.choice([({"type": "third", "one": inner.value(draw)}, ".type"),
                            ({"one": inner.value(draw)}, ".type"),
                            ({"type": "first", "other": inner.value(draw)}, ""),
                            ({"type": "first", "one": bad}, f".one{at}")])

    return Shape(members[0] | members[1], value, wrong)


def some_one_of(draw: Random, depth: int) -> Shape:
    inner = some_shape(draw, depth - 1)
    while inner.optional:
        inner = some_shape(draw, depth - 1)
    struct = msgspec.defstruct(f"One{next(_numbers)}", [("a", inner.hint | None, None), ("b", str | None, None)])
    return Shape(Annotated[struct, OneOf("a", "b")],
                 lambda draw: {"a": inner.value(draw)} if draw.random() < 0.5 else {"b": "x"},
                 lambda draw: draw.choice([({}, ""), ({"a": inner.value(draw), "b": "x"}, "")]))


def some_keyed(draw: Random, depth: int) -> Shape:
    inner = some_shape(draw, depth - 1)
    item = msgspec.defstruct(f"Item{next(_numbers)}", [("name", str), ("value", inner.hint)])

    def items(draw: Random, names: str) -> list[Any]:
        return [{"name": name, "value": inner.value(draw)} for name in names]

    return Shape(Annotated[list[item], MapKeys("name")], lambda draw: items(draw, "ab"),
                 lambda draw: (items(draw, "aba"), "[2]"))


def some_open(_draw: Random, _depth: int) -> Shape:
    return Shape(Annotated[dict[str, Any], PreserveUnknownFields()], lambda _: {"x": [1, {"y": None}]},
                 lambda _: ("x", ""))


CONTAINERS = [some_list, some_map, some_set, some_optional, some_record, some_record, some_tagged, some_one_of,
              some_keyed, some_open]


def some_shape(draw: Random, depth: int) -> Shape:
    if depth <= 0 or draw.random() < 0.3:
        return draw.choice(LEAVES)(draw)
    return draw.choice(CONTAINERS)(draw, depth)


def kind_of(hint: Any) -> type[CustomResource]:
    number = next(_numbers)
    spec = msgspec.defstruct(f"Spec{number}", [("value", hint)])
    return types.new_class(f"Random{number}", (CustomResource,), {
        "group": "random.example.com", "version": "v1", "kind": f"Random{number}"},
        lambda body: body.update({"__annotations__": {"spec": spec}, "__module__": __name__}))


def content(kind: type[CustomResource], value: Any) -> dict[str, Any]:
    return {"apiVersion": kind.api_resource.api_version, "kind": kind.api_resource.kind, "metadata": {"name": "a"},
            "spec": {"value": value}}


def place_of(cause: Cause) -> list[str]:
    """The ways to say where a fault is: what does not fit a junctor is named in the text only, and what is there twice
    has the keys of maps in brackets."""
    if "must validate" in cause.message:
        return [cause.message.split('"')[3]]
    return [cause.field, re.sub(r"\[([a-z]\w*)\]", r".\1", cause.field)]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_a_random_type_has_a_structural_schema_that_takes_its_values_and_no_others(seed: int) -> None:
    draw = Random(seed)
    shape = some_shape(draw, 4)
    kind = kind_of(shape.hint)
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert structural_causes(schema) == []
    for node, _ in every_node(schema):
        assert not node.keys() & {"$ref", "$schema", "definitions", "title", "const", "uniqueItems"}
        assert node.get("anyOf") in (None, [{"format": "byte"}, {"maxLength": 0}])
        assert node.get("default", "") is not None
        assert not ("properties" in node and "additionalProperties" in node)
        assert not str(node.get("format", "")).startswith("uint")
    assert schema_definition_causes(schema) == []
    for _ in range(8):
        obj = content(kind, shape.value(draw))
        assert schema_causes(obj, schema) == []
        whole = copy.deepcopy(obj)
        assert prune(whole, schema) == []
        apply_defaults(whole, schema)
        read = kind.from_dict(whole)
        again = kind(name="a", spec=read.spec).to_dict()
        assert schema_causes(again, schema) == []
        assert kind.from_dict(again).spec == read.spec
        assert read.to_dict() == whole  # what was looked at and not changed is written as it came
    for _ in range(8):
        value, at = shape.wrong(draw)
        told = schema_causes(content(kind, value), schema)
        assert any(f"spec.value{at}" in place_of(cause) for cause in told), (value, at, told)


def test_definitions_of_random_types_are_taken_by_the_server() -> None:
    with ApiServer() as server:
        for seed in range(40):
            server.load([kind_of(some_shape(Random(seed), 4).hint).crd()])
