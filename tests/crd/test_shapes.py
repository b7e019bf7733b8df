"""Every shape of a type, against the embedded server with its checks on: the definition is taken, instances come back
as they were written and are read as the type says, and what does not fit is refused at its field."""
from __future__ import annotations

import enum
import itertools
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.metav1 import Condition, GoDuration
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.crd.compare import losses
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.marks import (
    EmbeddedResource,
    FieldSchema,
    ListType,
    MapType,
    OneOf,
    PreserveUnknownFields,
    Rule,
    rules,
)
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.testing import ApiServer


class Color(enum.Enum):
    DARK_RED = "dark-red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Port:
    name: str
    port: Annotated[int, Meta(ge=1, le=65535)] = 80


class Git(msgspec.Struct, tag="git", rename="camel"):
    """From a repository."""

    repo_url: str
    depth: int = 1


class Http(msgspec.Struct, tag="http", rename="camel"):
    """From a page."""

    url: str
    depth: int = 1


@dataclass
class Login:
    user_name: str
    pass_word: str = ""


class Svn(msgspec.Struct, tag="svn"):
    """A member with names that msgspec does not rename."""

    repo_url: str
    log_in: Login


class Source(msgspec.Struct, omit_defaults=True):
    git: str | None = None
    http: str | None = None


class Node(msgspec.Struct):
    name: str
    children: Annotated[list[Node], PreserveUnknownFields()] = []


@rules(Rule("self.low <= self.high", message="low is above high"))
class Range(msgspec.Struct):
    low: int
    high: int


class Defaults(msgspec.Struct, rename="camel"):
    max_size: int = 10
    hard: bool = True


AnyMap = dict[str, Any]
BYTE, AT = "aGk=", datetime(2026, 1, 1, tzinfo=UTC)
# hint, what is written, what is read (Same: the same), {what is refused: at which field below spec.value}
Same = object()
SHAPES: list[tuple[Any, Any, Any, list[tuple[Any, str]]]] = [
    (str, "x", Same, [(1, ""), (None, ""), ([], "")]), (int, 5, Same, [("5", ""), (1.5, ""), (2**63, "")]),
    (bool, True, Same, [("true", ""), (1, "")]), (float, 0.5, Same, [("x", "")]), (float, 2, 2.0, [(True, "")]),
    (bytes, BYTE, b"hi", [("!!", "")]), (bytes, "", b"", []),
    (datetime, "2026-01-01T00:00:00Z", AT, [("yesterday", "")]),
    (date, "2026-01-01", date(2026, 1, 1), [("2026-02-30", "")]),
    (timedelta, "PT1H", timedelta(hours=1), [("1h", "")]),
    (Quantity, "0.50", Quantity.parse("500m"), [("many", ""), (True, ""), ("1 Gi", ""), ("1Xi", "")]),
    (Quantity | None, 3, Quantity.parse(3), [(1.5, "")]),
    (dict[str, Quantity], {"memory": "1024Mi"}, {"memory": Quantity.parse("1Gi")}, [({"memory": ""}, ".memory")]),
    (GoDuration, "90m", GoDuration.parse("1h30m"), [("90", ""), (90, ""), ("PT1H", ""), ("", "")]),
    (list[GoDuration], ["1h", "-1.5s", "5\u00b5s", "0"],
     [GoDuration.parse(text) for text in ("1h", "-1.5s", "5us", "0s")], [(["1d"], "[0]")]),
    (Annotated[list[Condition], MapKeys("type")],
     [{"type": "Ready", "status": "True", "reason": "Done", "message": "all", "observedGeneration": 1,
       "lastTransitionTime": "2026-01-01T00:00:00Z"}],
     [Condition(type="Ready", status="True", reason="Done", message="all", last_transition_time=AT,
                observed_generation=1)],
     [([{"type": "Ready"}], "[0].status"), ([{"type": "Ready", "status": "true"}], "[0].status"),
      ([{"type": "is ready", "status": "True"}], "[0].type"),
      ([{"type": "Ready", "status": "True", "reason": "two words"}], "[0].reason"),
      ([{"type": "Ready", "status": "True"}] * 2, "[1]")]),
    (UUID, str(UUID(int=1)), UUID(int=1), [("1", "")]), (Any, {"a": [1, None]}, Same, []),
    (AnyMap, {"a": {"b": 1}}, Same, [([], "")]),
    (str | None, "x", Same, [(1, "")]), (int | None, None, Same, [("x", "")]), (list[int] | None, [1], Same, [(1, "")]),
    (Color, "dark-red", Color.DARK_RED, [("DARK_RED", "")]), (Level, 2, Level.HIGH, [(3, "")]),
    (Color | None, None, Same, [("red", "")]), (Literal["a", "b"], "a", Same, [("c", "")]),
    (Literal["a"] | None, "a", Same, [("", "")]), (Literal[1, 2], 1, Same, [(3, "")]),
    (Annotated[Color | None, Meta(description="which")], "blue", Color.BLUE, [("x", "")]),
    (int | str, "50%", Same, [(1.5, ""), ([], "")]), (int | str, 5, Same, []),
    (int | str | None, None, Same, [({}, "")]),
    (list[str], ["a"], Same, [([1], "[0]"), ("a", "")]), (list[list[int]], [[1], []], Same, [([["x"]], "[0][0]")]),
    (list[Port], [{"name": "a", "port": 1}], [Port("a", 1)], [([{"port": 1}], "[0].name")]),
    (tuple[int, ...], [1, 2], (1, 2), [(["x"], "[0]")]),
    (tuple[int, int], [1, 2], (1, 2), [([1], ""), ([1, 2, 3], "")]),
    (set[str], ["a", "b"], {"a", "b"}, [(["a", "a"], "[1]")]), (frozenset[int], [1], frozenset({1}), [([1, 1], "[1]")]),
    (dict[str, int], {"a": 1}, Same, [({"a": "x"}, ".a")]),
    (dict[str, list[int]], {"a": [1]}, Same, [({"a": [""]}, ".a[0]")]),
    (dict[str, Port], {"a": {"name": "n", "port": 2}}, {"a": Port("n", 2)},
     [({"a": {"name": "n", "port": 0}}, ".a.port")]),
    (dict[str, dict[str, str]], {"a": {"b": "c"}}, Same, [({"a": {"b": 1}}, ".a.b")]),
    (Annotated[int, Meta(ge=1, le=3)], 3, Same, [(0, ""), (4, "")]),
    (Annotated[int, Meta(gt=1, lt=3)], 2, Same, [(1, ""), (3, "")]),
    (Annotated[float, Meta(gt=0)], 0.1, Same, [(0, "")]),
    (Annotated[int, Meta(multiple_of=5)], 10, Same, [(7, "")]),
    (Annotated[str, Meta(min_length=1, max_length=2)], "ab", Same, [("", ""), ("abc", "")]),
    (Annotated[str, Meta(pattern="^[a-z]+$")], "ab", Same, [("A", ""), ("a\n", "")]),
    (Annotated[list[int], Meta(max_length=1)], [1], Same, [([1, 2], "")]),
    (Annotated[dict[str, int], Meta(min_length=1)], {"a": 1}, Same, [({}, "")]),
    (Annotated[str, Meta(extra_json_schema={"format": "ipv4"})], "10.0.0.1", Same, [("x", "")]),
    (list[Annotated[int, Meta(ge=0)]], [0], Same, [([-1], "[0]")]),
    (Annotated[list[Port], MapKeys("name")], [{"name": "a", "port": 1}], [Port("a", 1)],
     [([{"name": "a"}, {"name": "a"}], "[1]")]),
    (Annotated[list[str], ListType("set")], ["a"], Same, [(["a", "a"], "[1]")]),
    (Annotated[list[str], ListType("atomic")], ["a", "a"], Same, []),
    (Annotated[Defaults, MapType("atomic")], {"maxSize": 1, "hard": False}, Defaults(1, False),
     [({"hard": 1}, ".hard")]),
    (Port, {"name": "a", "port": 1}, Port("a", 1), [({}, ".name"), ({"name": "a", "port": 0}, ".port")]),
    (Port | None, None, Same, [({"name": 1}, ".name")]),
    (Defaults, {"maxSize": 3, "hard": True}, Defaults(3), [({"maxSize": "x"}, ".maxSize")]),
    (Git | Http, {"type": "git", "repoUrl": "u", "depth": 2}, Git("u", 2),
     [({"type": "svn"}, ".type"), ({"type": "git", "url": "u"}, ""), ({"url": "u"}, ".type")]),
    (Git | Http | None, {"type": "http", "url": "u"}, Http("u"), [({"type": "http"}, "")]),
    (list[Git | Http], [{"type": "http", "url": "u"}], [Http("u")], [([{"type": "http"}], "[0]")]),
    (Git | Svn, {"type": "svn", "repoUrl": "u", "logIn": {"userName": "n", "passWord": "p"}}, Svn("u", Login("n", "p")),
     [({"type": "svn", "repoUrl": "u", "logIn": {"passWord": "p"}}, ".logIn.userName"),
      ({"type": "svn", "logIn": {"userName": "n"}}, "")]),
    (Git, {"type": "git", "repoUrl": "u", "depth": 1}, Git("u"), [({"type": "http", "repoUrl": "u"}, ".type")]),
    (Annotated[Source, OneOf("git", "http")], {"git": "u"}, Source("u"), [({}, ""), ({"git": "u", "http": "u"}, "")]),
    (Node, {"name": "a", "children": [{"name": "b", "children": [{"name": "c", "children": []}]}]},
     Node("a", [Node("b", [Node("c")])]), [({"name": 1, "children": []}, ".name")]),
    (Annotated[AnyMap, PreserveUnknownFields()], {"a": 1}, Same, [("x", "")]),
    (Annotated[AnyMap, EmbeddedResource()], {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}},
     Same, [({"kind": "Pod"}, ".apiVersion")]),
    (Annotated[str | list[str], FieldSchema({"x-kubernetes-preserve-unknown-fields": True})], ["a"], Same, []),
    (Annotated[int | None, FieldSchema({"type": "integer", "maximum": 3}), Rule("self != 2")], 3, Same,
     [(4, ""), (2, ""), ("x", "")]),
    (Range, {"low": 1, "high": 2}, Range(1, 2), [({"low": 3, "high": 2}, "")]),
    (list[Range], [{"low": 1, "high": 2}], [Range(1, 2)], [([{"low": 3, "high": 2}], "[0]")]),
    (Annotated[int, Rule("self % 2 == 0", message="odd")], 2, Same, [(3, "")]),
    (Annotated[str, Rule("self.startsWith('a')"), Rule("self.size() < 3")], "ab", Same, [("b", ""), ("abc", "")]),
    (dict[str, Annotated[int, Rule("self > 0")]], {"a": 1}, Same, [({"a": 0}, "[a]")]),
    (Annotated[datetime, Rule("self < timestamp('2027-01-01T00:00:00Z')")], "2026-01-01T00:00:00Z", AT,
     [("2028-01-01T00:00:00Z", "")]),
]


def kind_of(hint: Any, number: int) -> type[CustomResource]:
    spec = msgspec.defstruct("Spec", [("value", hint)])
    return types.new_class(f"Shape{number}", (CustomResource,), {
        "group": "shapes.example.com", "version": "v1", "kind": f"Shape{number}"},
        lambda body: body.update({"__annotations__": {"spec": spec}, "__module__": __name__}))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        yield client


def served(client: Client, kind: type[CustomResource]) -> Api[Any]:
    """A CRD is answered before its kind is served."""
    stored = Api.all(client, CustomResourceDefinition).create(kind.crd())
    assert losses(stored.to_dict(), kind.crd()) == []  # an `apply_crd` of the same has nothing to warn of
    api, deadline, pause = Api.namespaced(client, kind, "default"), time.monotonic() + 20, threading.Event()
    while True:
        try:
            api.list()
        except KindNotServedError:
            assert time.monotonic() < deadline
            pause.wait(0.01)
        else:
            return api


def places(told: list[Any]) -> list[str]:
    """Where the faults are: what does not fit a junctor is named in the text only."""
    return [cause.message.split('"')[3] if "must validate" in cause.message else cause.field for cause in told]


@pytest.mark.parametrize(("number", "hint", "written", "read", "refused"),
                         [(number, *shape) for number, shape in enumerate(SHAPES)])
def test_a_shape_is_served_round_trips_and_refuses(client: Client, number: int, hint: Any, written: Any, read: Any,
                                                   refused: list[tuple[Any, str]]) -> None:
    kind = kind_of(hint, number)
    api, names = served(client, kind), (f"a{index}" for index in itertools.count())

    def content(value: Any) -> dict[str, Any]:
        return {"apiVersion": "shapes.example.com/v1", "kind": kind.__name__, "metadata": {"name": next(names)},
                "spec": {"value": value}}

    made = api.create(content(written))
    again = api.create(kind(name=next(names), spec=made.spec))  # as the class itself writes it
    assert again.spec == made.spec
    assert made["spec"] == {"value": written}
    assert made.spec.value == (written if read is Same else read)
    assert made.violations() == []
    assert api.replace(made)["spec"] == {"value": written}
    for value, field in refused:
        with pytest.raises(ApiError) as found:
            api.create(content(value))
        told = found.value.status.details.causes
        assert f"spec.value{field}" in places(told), (value, told)


def test_there_are_as_many_shapes_as_promised() -> None:
    assert len(SHAPES) >= 60


def test_what_must_be_there_and_may_be_null_is_written_as_null(client: Client) -> None:
    class Spec(msgspec.Struct):
        must: int | None
        may: int | None = None

    kind = types.new_class("Nullable", (CustomResource,), {"group": "shapes.example.com", "version": "v1",
                                                           "kind": "Nullable"}, lambda body: body.update(
        {"__annotations__": {"spec": Spec}, "__module__": __name__}))
    api = served(client, kind)
    obj = api.create(kind(name="a", spec=Spec(must=None)))
    assert obj["spec"] == {"must": None}
    obj.spec.must = 3
    obj.spec.may = 4
    obj = api.replace(obj)
    obj.spec.must, obj.spec.may = None, None
    assert api.replace(obj)["spec"] == {"must": None}
