"""Models of pydantic, classes of attrs and generic Structs as specs: class, definition, server, reading, write-back."""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, computed_field, field_validator
from pydantic.alias_generators import to_camel

from kubectl_runtime import Action, Context, Controller
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import PatchParams
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.marks import FieldSchema, ListType, Rule, rules
from kubectl_runtime.crd.schema import schema_of
from kubectl_runtime.resources.core_v1 import PodTemplateSpec
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.schema.structural import schema_definition_causes
from kubectl_runtime.testing import ApiServer, Simulation

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Port(BaseModel):
    name: str
    port: int = Field(80, ge=1, le=65535)


class Scalars(BaseModel):
    text: str
    count: int
    share: float = 0.5
    on: bool = True


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    min_size: int = 1
    max_size: int | None = None


class Nested(BaseModel):
    port: Port
    more: list[Port] = []
    by_name: dict[str, Port] = {}


class Keyed(BaseModel):
    ports: Annotated[list[Port], MapKeys("name")] = []


class Limited(BaseModel):
    name: str = Field(min_length=2, max_length=5, pattern="^[a-z]+$")
    size: int = Field(gt=0, lt=10, multiple_of=3)
    items: list[int] = Field(default=[1], max_length=3)


class Enums(BaseModel):
    color: Color = Color.RED
    level: Level = Level.LOW
    mode: Literal["fast", "slow"] = "fast"


class Times(BaseModel):
    when: datetime
    pause: timedelta = timedelta(seconds=5)
    id: UUID | None = None


class Money(BaseModel):
    price: Decimal = Decimal("1.50")
    least: Decimal | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []
    owner: str


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []


class Box(BaseModel, Generic[T]):
    value: T
    others: list[T] = []


class Names(RootModel[list[str]]):
    pass


class Sizes(RootModel[dict[str, int]]):
    pass


class WithRoots(BaseModel):
    names: Names = Names([])
    sizes: Sizes | None = None


class IntOrString(BaseModel):
    port: int | str = 80
    maybe: int | str | None = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    size: int = 1


class Anything(BaseModel):
    values: dict[str, Any] = {}
    one: Any = None


class Collections(BaseModel):
    names: set[str] = set()
    pair: tuple[int, int] = (1, 2)
    many: tuple[str, ...] = ()


class Ruled(BaseModel):
    low: Annotated[int, Rule("self >= 0", message="too low")] = 0
    zones: Annotated[list[str], ListType("set")] = []


@rules(Rule("self.low <= self.high", message="low is above high"))
class Ranged(BaseModel):
    low: int = 0
    high: int = 1


class ByHand(BaseModel):
    one_or_many: Annotated[str | list[str], FieldSchema({"x-kubernetes-preserve-unknown-fields": True})] = ""


class Computed(BaseModel):
    size: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> int:
        return self.size * 2


class Base(BaseModel):
    size: int = 1


class Derived(Base):
    """A size with a name."""

    name: str = "a"


class Aliased(BaseModel):
    from_: str = Field("x", alias="from")
    deep: Port | None = Field(None, alias="portOf", description="Where.")


class Optionals(BaseModel):
    a: int | None = None
    b: str | None = "b"
    c: Color | None = None


class Templated(BaseModel):
    template: PodTemplateSpec
    memory: Quantity = Quantity("1Gi")


class Deep(BaseModel):
    boxes: list[Box[Port]] = []
    table: dict[str, list[Cat]] = {}


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int
    mode: Literal[1, 2] = 1


class Normalized(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


CASES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (Scalars, {"text": "a", "count": 2}, {"text": 5}),
    (Camel, {"minSize": 3, "maxSize": 4}, {"minSize": "x"}),
    (Nested, {"port": {"name": "a"}, "more": [{"name": "b", "port": 1}], "by_name": {"c": {"name": "c"}}},
     {"port": {"name": "a", "port": 0}}),
    (Keyed, {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}, {"ports": [{"port": 1}]}),
    (Limited, {"name": "abc", "size": 9, "items": [1, 2]}, {"name": "abc", "size": 10}),
    (Enums, {"color": "blue", "level": 2, "mode": "slow"}, {"color": "green"}),
    (Times, {"when": "2024-01-01T00:00:00Z", "pause": "PT7S", "id": str(UUID(int=7))}, {"when": "yesterday"}),
    (Money, {"price": "12.30", "least": "0.1"}, {"price": "much"}),
    (Pet, {"pet": {"kind": "dog", "owner": "o", "tricks": ["sit"]}}, {"pet": {"kind": "dog", "tricks": ["sit"]}}),
    (Pets, {"pets": [{"kind": "cat", "lives": 8}, {"kind": "dog", "owner": "o"}]}, {"pets": [{"kind": "cow"}]}),
    (Box[int], {"value": 3, "others": [4]}, {"value": "x"}),
    (Box[Port], {"value": {"name": "a"}}, {"value": {"port": 1}}),
    (Names, ["a", "b"], [1]),  # type: ignore[list-item]
    (WithRoots, {"names": ["a"], "sizes": {"a": 1}}, {"sizes": {"a": "x"}}),
    (IntOrString, {"port": "50%", "maybe": 3}, {"port": [1]}),
    (Open, {"size": 2, "unknown": {"a": 1}}, {"size": "x"}),
    (Anything, {"values": {"a": {"b": [1]}}, "one": [1]}, {"values": 1}),
    (Collections, {"names": ["a"], "pair": [3, 4], "many": ["x"]}, {"pair": [1]}),
    (Ruled, {"low": 1, "zones": ["a"]}, {"low": -1}),
    (Ranged, {"low": 1, "high": 2}, {"low": 3, "high": 2}),
    (ByHand, {"one_or_many": ["a", "b"]}, {"one_or_many": 5}),
    (Computed, {"size": 3}, {"size": "x"}),
    (Derived, {"size": 3, "name": "n"}, {"name": 1}),
    (Aliased, {"from": "y", "portOf": {"name": "a"}}, {"portOf": {}}),
    (Optionals, {"a": 1, "c": "red"}, {"c": "green"}),
    (Templated, {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
        {"name": "a", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}]}}, "memory": "2Gi"},
     {"template": {"spec": {"containers": [{"name": 5}]}}}),
    (Forbidding, {"size": 1, "mode": 2}, {"size": 1, "mode": 3}),
    (Normalized, {"name": "web"}, {"name": 5}),
    (Box[Box[int]], {"value": {"value": 1}, "others": [{"value": 2, "others": [3]}]}, {"value": {"value": "x"}}),
    (Deep, {"boxes": [{"value": {"name": "a"}}], "table": {"a": [{"lives": 1}]}}, {"boxes": [{}]}),
]
IDS = [getattr(case[0], "__name__", str(case[0])).replace("[", "-").replace("]", "") for case in CASES]


def made(model: Any, number: int) -> type[CustomResource]:
    return type(f"Model{number}", (CustomResource,), {"__annotations__": {"spec": model, "status": Base | None},
                                                      "status": None, "__module__": __name__},
                group="models.example.com", version="v1", kind=f"Model{number}")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as found:
        yield found


@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_a_model_goes_to_the_server_and_comes_back(client: Client, number: int) -> None:
    model, content, wrong = CASES[number]
    kind: Any = made(model, number)
    apply_crd(client, kind)
    api = Api.namespaced(client, kind, "default")
    spec = model.model_validate(content)
    created = api.create(kind(name="a", spec=spec))
    assert type(created.spec) is model
    assert created.spec == spec
    read = api.get("a")
    assert read.to_dict() == api.get("a").to_dict()
    assert created["spec"] == read["spec"]
    read.labels["x"] = "y"
    assert api.replace(read)["spec"] == created["spec"]
    if model is not ByHand:
        with pytest.raises(ApiError) as refused:
            api.create({"metadata": {"name": "b"}, "spec": wrong})
        assert refused.value.status.code == 422
    if not any("rule" in str(mark) for mark in (schema_of(model, "s"),)):
        with pytest.raises(DecodeError, match=r"\$\.spec") as failed:
            kind.from_dict({"metadata": {"name": "b"}, "spec": wrong}).validate()
        assert failed.value.path.startswith("$.spec")


def written_back(simulation: Simulation, client: Client, number: int, seen: dict[int, Any]) -> None:
    """A controller that writes the spec of its objects back, with a label, and reports their size."""
    kind: Any = made(CASES[number][0], number)
    apply_crd(client, kind)

    def reconcile(obj: Any, ctx: Context[None]) -> Action:
        seen[number] = obj.spec
        if "seen" not in obj.labels:
            obj.labels["seen"] = "yes"
            obj.spec = obj.spec.model_copy(deep=True)
            obj = ctx.api(kind).replace(obj)
        ctx.report(obj, size=7)
        return Action.await_change()

    simulation.start(Controller(Api.all(client, kind)), reconcile)


def test_models_are_reconciled_and_written_back_as_they_were() -> None:
    assert len(CASES) >= 30
    seen: dict[int, Any] = {}
    with Simulation(0) as simulation:
        server = simulation.serve()
        client = simulation.client(server)
        for number in range(len(CASES)):
            written_back(simulation, client, number, seen)
        sent = {}
        for number, (model, content, _) in enumerate(CASES):
            api = Api.namespaced(client, made(model, number), "default")
            extra = {"newer": {"a": 1}} if isinstance(content, dict) and model is Open else {}
            given = {**content, **extra} if isinstance(content, dict) else content
            if model is Normalized:
                given = {"name": "WEB"}
            sent[number] = api.create({"metadata": {"name": "a"}, "spec": given})["spec"]
        simulation.settle(5)
        for number, (model, content, _) in enumerate(CASES):
            left = Api.namespaced(client, made(model, number), "default").get("a")
            assert type(seen[number]) is model
            assert seen[number] == model.model_validate(content) or model is Open
            assert (left["spec"], left.labels, left.status.size) == (sent[number], {"seen": "yes"}, 7), model


class Node(BaseModel):
    children: list[Node] = []


class Untagged(BaseModel):
    either: Port | Scalars


class Number(BaseModel):
    either: float | str = 0.5


class Textual(BaseModel):
    either: list[str] | str


class Mixed(BaseModel):
    pair: tuple[int, str]


class ModelSet(BaseModel):
    matrix: set[tuple[int, int]]


class Nothing(BaseModel):
    nothing: None = None


class TwoNames(BaseModel):
    size: int = Field(1, validation_alias=AliasChoices("size", "Size"))


class OtherName(BaseModel):
    size: int = Field(1, serialization_alias="siZe")


class Cow(BaseModel):
    kind: Literal["cow"] = "cow"
    lives: str = ""


class Clash(BaseModel):
    pet: Annotated[Cat | Cow, Field(discriminator="kind")]


class KeyPattern(BaseModel):
    sizes: dict[Annotated[str, Field(pattern="^a")], int]


class Callback(BaseModel):
    call: Callable[[], int] = int


@pytest.mark.parametrize(("model", "field", "why"), [
    (Node, r"spec\.children", "contains itself"), (Untagged, "spec.either", "a union of"),
    (Number, "spec.either", "a union of number, string"),
    (Textual, "spec.either", "a union of array, string"), (Mixed, "spec.pair", "a tuple of different types"),
    (ModelSet, "spec.matrix", "a set must hold scalars"), (Nothing, "spec.nothing", "null alone"),
    (TwoNames, "spec.size", "under the same key"), (OtherName, "spec.size", "under the same key"),
    (Clash, "spec.pet", "lives is declared differently"), (KeyPattern, "spec.sizes", "patternProperties|propertyNames"),
    (Callback, "spec", "has no schema")])
def test_what_has_no_structural_schema_is_refused_with_its_field(model: Any, field: str, why: str) -> None:
    with pytest.raises(TypeError, match=f"{field}.*({why})"):
        made(model, 99)


def test_schemas_are_structural_and_as_declared() -> None:
    for model, _, _ in CASES:
        schema = {"type": "object", "properties": {"spec": schema_of(model, "spec")}}
        assert [cause.text() for cause in schema_definition_causes(schema)] == [], model
    assert schema_of(Limited, "s") == {
        "type": "object", "required": ["name", "size"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
            "size": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 10, "exclusiveMaximum": True,
                     "multipleOf": 3},
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3, "default": [1]}}}
    assert schema_of(Pet, "s")["properties"]["pet"] == {
        "type": "object", "required": ["kind"], "properties": {
            "kind": {"type": "string", "enum": ["cat", "dog"]}, "lives": {"type": "integer"},
            "tricks": {"type": "array", "items": {"type": "string"}}, "owner": {"type": "string"}},
        "oneOf": [{"properties": {"kind": {"enum": ["cat"]}}, "required": ["kind"]},
                  {"properties": {"kind": {"enum": ["dog"]}}, "required": ["kind", "owner"]}]}
    assert schema_of(Keyed, "s")["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["name"]
    assert "doubled" not in schema_of(Computed, "s")["properties"]


class Thing(CustomResource, group="models.example.com", version="v1", kind="Thing"):
    spec: Nested
    status: Base | None = None


def test_writing_back_loses_nothing_that_the_model_does_not_declare() -> None:
    content = {"apiVersion": "models.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {
        "port": {"name": "a", "new": 1}, "newer": {"x": 1}, "more": [{"name": "b", "new": 2}, {"name": "c"}]},
        "status": {"size": 1, "new": [1]}}
    obj = Thing.from_dict(content)
    assert obj.spec.port.port == 80
    assert obj.to_dict() == content
    obj.spec.port.port = 8080
    assert obj.status is not None
    obj.status.size = 2
    assert obj.to_dict() == {**content, "spec": {**content["spec"], "port": {"name": "a", "new": 1, "port": 8080}},
                             "status": {"size": 2, "new": [1]}}


def test_errors_name_the_place_and_never_the_value() -> None:
    obj = Thing.from_dict({"metadata": {"name": "a"}, "spec": {"port": {"name": "a", "port": "geheim"}, "more": [{}]}})
    with pytest.raises(DecodeError, match=r"valid integer.* \(and 1 more\)") as error:
        _ = obj.spec
    assert error.value.path == "$.spec.port.port"
    assert "geheim" not in str(error.value)
    new = Thing(name="a", spec=Nested(port=Port(name="a")))
    new.spec.port.port = "geheim"  # type: ignore[assignment]
    with pytest.raises(RequestError, match=r"\$\.spec: a Nested has a value") as refused:
        new.to_dict()
    assert "geheim" not in str(refused.value)


class Ratios(BaseModel):
    one: float = 0.0
    some: list[float] = []
    named: dict[str, float] = {}


class Rated(CustomResource, group="models.example.com", version="v1", kind="Rated"):
    spec: Ratios


@pytest.mark.parametrize(("spec", "path"), [
    (Ratios(one=float("nan")), r"\$\.spec\.one is nan"), (Ratios(some=[0, float("inf")]), r"\.some\[1\] is inf"),
    (Ratios(named={"a": float("-inf")}), r"\$\.spec\.named\.a is -inf")])
def test_numbers_that_json_cannot_carry_are_refused_before_anything_is_sent(spec: Ratios, path: str) -> None:
    place = Place(Rated.api_resource, "ns")
    new, received = Rated(name="a", spec=spec), Rated.from_dict({"metadata": {"name": "a"}, "spec": {}})
    received.spec = spec
    for made in (new.to_bytes, received.to_bytes, lambda: build.create(place, new),
                 lambda: build.apply(place, received, PatchParams.apply("m"))):
        with pytest.raises(RequestError, match=path):
            made()


def test_computed_fields_and_defaults_are_not_sent_where_they_should_not_be() -> None:
    class Sized(CustomResource, group="models.example.com", version="v1", kind="Sized"):
        spec: Computed

    obj = Sized(name="a", spec=Computed(size=1))
    assert obj.to_dict()["spec"] == {"size": 1}
    assert obj.to_dict(defaults=False).get("spec", {}) == {}


@attrs.define
class Rung:
    step_size: int
    note: str | None = None


@attrs.define
class Ladder:
    first_rung: Rung
    rungs: list[Rung] = attrs.field(factory=list)
    max_load: int = 100


class Crate(msgspec.Struct, Generic[T], rename="camel"):
    first_item: T
    items: list[T] = []
    by_name: dict[str, T] = {}


class Shelf(msgspec.Struct):
    texts: Crate[str]
    rungs: Crate[Port2]


class Port2(msgspec.Struct):
    port: int = 1


@pytest.mark.parametrize(("hint", "content", "wrong", "path"), [
    (Ladder, {"firstRung": {"stepSize": 3}, "rungs": [{"stepSize": 1, "note": "n"}], "maxLoad": 5},
     {"firstRung": {"stepSize": "x"}}, "firstRung.stepSize"),
    (Crate[int], {"firstItem": 1, "items": [2], "byName": {"a": 3}}, {"firstItem": "x"}, "firstItem"),
    (Shelf, {"texts": {"firstItem": "a"}, "rungs": {"firstItem": {"port": 2}, "items": [{"port": 3}, {}]}},
     {"texts": {"firstItem": "a"}, "rungs": {"firstItem": 1}}, "rungs.firstItem")])
def test_attrs_classes_and_generic_structs(hint: Any, content: Any, wrong: Any, path: str) -> None:
    kind: Any = made(hint, 98)
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["type"] == "object"
    whole = {"apiVersion": "models.example.com/v1", "kind": "Model98", "metadata": {"name": "a"},
             "spec": {**content, "unknown": 1}}
    obj = kind.from_dict(whole)
    assert obj.violations() == []
    assert obj.to_dict() == whole
    kept = obj.spec
    obj.spec = kept
    assert obj.to_dict() == whole
    new = kind(name="a", spec=kind.from_dict(whole).spec).to_dict()["spec"]
    assert kind.from_dict({**whole, "spec": new}).spec == kept
    bad = kind.from_dict({**whole, "spec": wrong})
    assert next(cause.field for cause in bad.violations()) == f"spec.{path}"
    with pytest.raises(DecodeError):
        _ = bad.spec


def test_changes_of_attrs_and_of_generic_structs_are_written_back() -> None:
    kind: Any = made(Shelf, 97)
    obj = kind.from_dict({"metadata": {"name": "a"}, "spec": {"texts": {"firstItem": "a"}, "rungs": {
        "firstItem": {"port": 2, "x": 1}, "items": [{"port": 3, "x": 2}]}}})
    obj.spec.rungs.items[0].port = 4
    assert obj.to_dict()["spec"]["rungs"] == {"firstItem": {"port": 2, "x": 1}, "items": [{"port": 4, "x": 2}]}
    ladder = made(Ladder, 96)
    read: Any = ladder.from_dict({"metadata": {"name": "a"}, "spec": {"firstRung": {"stepSize": 3, "x": 1}}})
    read.spec.first_rung.step_size = 4
    assert read.to_dict()["spec"] == {"firstRung": {"stepSize": 4, "x": 1}}


def test_times_are_sent_as_texts_of_the_api() -> None:
    class Timed(CustomResource, group="models.example.com", version="v1", kind="Timed"):
        spec: Times

    sent = Timed(name="a", spec=Times(when=datetime(2024, 1, 1, tzinfo=UTC))).to_dict()["spec"]
    assert sent == {"when": "2024-01-01T00:00:00Z", "pause": "PT5S"}
