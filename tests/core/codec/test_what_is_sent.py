"""What bodies may hold: JSON as it is meant, or a RequestError that names the place."""
from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest

from kubectl_runtime import ObjectMeta, PartialObjectMeta, RequestError
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import Patch, PatchParams
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.errors import PartialObjectError
from kubectl_runtime.objects import GoDuration, Quantity
from kubectl_runtime.resources import ConfigMap, Deployment, Pod, Secret, Service
from kubectl_runtime.resources.apps_v1 import DeploymentSpec
from kubectl_runtime.resources.core_v1 import Container, PodSpec, ServicePort, ServiceSpec
from tests.core.examples import NODES, PODS, Widget, metadata, widget

PLACE = Place(ConfigMap.api_resource, "ns")
NAIVE = datetime(2026, 1, 1)
NAN, INF = float("nan"), float("inf")


class Loose(CustomResource, group="example.com", version="v1", kind="Loose"):
    spec: Any = None


@pytest.mark.parametrize("value", [NAN, INF, -INF, NAIVE, timedelta(seconds=5), b"x", object(), "\ud800"],
                         ids=lambda value: "an object" if type(value) is object else repr(value))
@pytest.mark.parametrize("wrap", [lambda value: {"r": value}, lambda value: {"l": [1, {"r": value}]},
                                  lambda value: ({"r": value},)], ids=["map", "list", "tuple"])
def test_what_json_cannot_carry_is_refused_in_every_body(value: Any, wrap: Any) -> None:
    body = {"metadata": {"name": "a"}, "spec": wrap(value)}
    for call in (lambda: build.create(PLACE, body), lambda: build.replace(PLACE, body),
                 lambda: build.patch(PLACE, "a", Patch.merge(body)),
                 lambda: build.patch(PLACE, "a", Patch.json([{"op": "add", "path": "/spec", "value": wrap(value)}])),
                 lambda: build.apply(PLACE, body, PatchParams.apply("m")),
                 lambda: build.create(PLACE, dynamic(PLACE.resource)(name="a", spec=wrap(value)))):
        with pytest.raises(RequestError):
            call()


@pytest.mark.parametrize("value", [NAN, -INF, b"x", NAIVE, timedelta(1), [NAN], (1, INF), {"a": NAN}])
def test_an_enum_hides_no_value_that_json_cannot_carry(value: Any) -> None:
    member = Enum("Kind", {"ONE": value}).ONE  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match=r"\$\.spec\.x"):
        Loose(name="a", spec={"x": member}).to_bytes()
    with pytest.raises(RequestError, match=r"\$\.spec\.x\[1\]"):
        Loose(name="a", spec={"x": [0, member]}).to_bytes()


def test_a_to_dict_of_a_subclass_is_checked_too() -> None:
    class Own(Loose, group="example.com", version="v1", kind="Own"):
        def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
            content = super().to_dict(defaults=defaults)
            content["spec"]["y"] = NAN
            return content

    with pytest.raises(RequestError, match=r"\$\.spec\.y is nan"):
        Own(name="a", spec={"x": 1}).to_bytes()


@pytest.mark.parametrize(("value", "path"), [
    ({"spec": {"r": NAN}}, r"\$\.spec\.r is nan"), ({"a": [0, {"b": INF}]}, r"\$\.a\[1\]\.b is inf"),
    ({"a": NAIVE}, r"\$\.a is a time without a time zone"), ({"a": [timedelta(5)]}, r"\$\.a\[0\] is a timedelta"),
    ({"data": {"p": b"x"}}, r"\$\.data\.p is bytes.*stringData"), ({"a": ["b", "\ud800"]}, r"\$\.a\[1\]: .*surrogates"),
    ({"a": {"b": {None: 1}}}, r"\$\.a\.b: a NoneType is neither a JSON value nor a JSON key"),
    ({"a": {"\ud800": 1}}, r"\$\.a: .*surrogates")])
def test_the_place_is_named(value: Any, path: str) -> None:
    with pytest.raises(RequestError, match=path):
        encode_plain(value)


def test_aware_times_enums_and_records_keep_their_json_form() -> None:
    class Size(msgspec.Struct):
        width: int = 1

    sent = encode_plain({"t": datetime(2026, 1, 1, tzinfo=UTC), "s": Size(), "n": None, "f": 1.5, "l": (1, True)})
    assert msgspec.json.decode(sent) == {"t": "2026-01-01T00:00:00Z", "s": {"width": 1}, "n": None, "f": 1.5,
                                         "l": [1, True]}


class Numbers(msgspec.Struct):
    ratio: float = 0.0
    since: datetime | None = None


class Sample(Resource, group="g.example.com", version="v1", kind="Sample"):
    spec: Numbers


@pytest.mark.parametrize(("spec", "path"), [
    (Numbers(ratio=NAN), r"\$\.spec\.ratio is nan"), (Numbers(since=NAIVE), r"\$\.spec\.since is a time without")])
def test_typed_objects_are_looked_at_too(spec: Numbers, path: str) -> None:
    with pytest.raises(RequestError, match=path):
        Sample(name="a", spec=spec).to_dict()
    received = Sample.from_dict({"metadata": metadata(), "spec": {}})
    received.spec = spec
    with pytest.raises(RequestError, match=path):
        received.to_dict()


class Free(Resource, group="g.example.com", version="v1", kind="Free"):
    spec: dict[str, Any]


def _endless() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["r"] = endless
    return endless


@pytest.mark.parametrize("value", [timedelta(seconds=5), b"x", bytearray(b"x"), memoryview(b"x"), time(1), NAIVE,
                                   Decimal("nan"), Decimal("inf"), {(1, 2): 3}, _endless()], ids=lambda value: type(
                                       value).__name__)
def test_where_a_class_declares_nothing_the_rules_are_those_of_dicts(value: Any) -> None:
    spec = {"l": [{"r": value}]}
    received = Free.from_dict({"metadata": metadata(), "spec": {}})
    received.spec["l"] = spec["l"]
    for made in (lambda: Free(name="a", spec=spec).to_dict(), received.to_dict, lambda: encode_plain(spec)):
        with pytest.raises(RequestError):
            made()


class Spans(msgspec.Struct):
    ttl: Annotated[timedelta, {"not": "hashable"}] = timedelta(seconds=5)
    raw: list[Annotated[bytes, {"not": "hashable"}]] = msgspec.field(default_factory=list)


class Declared(Resource, group="g.example.com", version="v1", kind="Declared"):
    spec: Spans


def test_what_a_class_declares_is_meant() -> None:
    assert Declared(name="a", spec=Spans(raw=[b"x"])).to_dict()["spec"] == {"ttl": "PT5S", "raw": ["eA=="]}


def test_quantities_and_durations_are_their_text_in_every_body() -> None:
    spec = {"memory": Quantity.parse("1Gi"), "every": [GoDuration.parse("90m")]}
    wanted = {"memory": "1Gi", "every": ["1h30m0s"]}
    assert msgspec.json.decode(encode_plain(spec)) == wanted == Free(name="a", spec=spec).to_dict()["spec"]


@pytest.mark.parametrize(("kind", "value"), [(Quantity, 1.5), (Quantity, None), (Quantity, True),
                                             (GoDuration, timedelta(5)), (GoDuration, True), (GoDuration, None)])
def test_what_neither_a_text_nor_a_whole_number_is_makes_no_quantity_and_no_duration(kind: Any, value: Any) -> None:
    with pytest.raises(RequestError, match=r"is not a (quantity|duration): give text such as"):
        kind(value)


def test_bytes_and_text_are_not_taken_for_each_other() -> None:
    with pytest.raises(RequestError, match=r"\$\.data\.p is bytes where text is declared: decode"):
        ConfigMap(name="a", data={"p": b"x"}).to_dict()
    with pytest.raises(RequestError, match=r"\$\.data\.p is text where bytes are declared.*string_data"):
        Secret(name="a", data={"p": "text"}).to_dict()
    sent = Secret(name="a", data={"p": b"text"}, string_data={"q": "text"}).to_dict()
    assert (sent["data"], sent["stringData"]) == ({"p": "dGV4dA=="}, {"q": "text"})


@pytest.mark.parametrize(("make", "said"), [
    (lambda: ConfigMap(name="a", data={"p": 5}), r"\$\.data\.p is a number where text is declared"),
    (lambda: ConfigMap(name="a", data={"p": 1.5}), r"\$\.data\.p is a number where text is declared"),
    (lambda: ConfigMap(name="a", data={"p": True}), r"\$\.data\.p is True where text is declared"),
    (lambda: ConfigMap(name="a", data={"p": {}}), r"\$\.data\.p is a map where text is declared"),
    (lambda: ConfigMap(name="a", data="p"), r"\$\.data is text where a map is declared"),
    (lambda: ConfigMap(name="a", data=["p"]), r"\$\.data is a list where a map is declared"),
    (lambda: ConfigMap(name="a", immutable="no"), r"\$\.immutable is text where True or False is declared"),
    (lambda: ConfigMap(name="a", immutable=1), r"\$\.immutable is a number where True or False is declared"),
    (lambda: Secret(name="a", data={"p": 5}), r"\$\.data\.p is a number where bytes is declared"),
    (lambda: Secret(name="a", string_data={"p": 5}), r"\$\.stringData\.p is a number where text is declared"),
    (lambda: Deployment(name="a", spec=DeploymentSpec(replicas="3")), r"spec\.replicas is text where a number"),
    (lambda: Pod(name="a", spec=PodSpec(containers=Container(name="a"))), r"containers is a Container where a list"),
    (lambda: Pod(name="a", spec=[PodSpec(containers=[])]), r"\$\.spec is a list where PodSpec is declared")])
def test_a_value_of_another_shape_than_is_declared_is_refused_with_its_place(make: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        make().to_dict()


def test_what_may_have_several_shapes_takes_each() -> None:
    for port in (80, "http"):
        spec = ServiceSpec(ports=[ServicePort(port=80, target_port=port)])
        assert Service(name="a", spec=spec).to_dict()["spec"]["ports"] == [{"port": 80, "targetPort": port}]


def test_a_changed_view_is_held_to_its_types_too() -> None:
    received = ConfigMap.from_dict({"metadata": metadata(), "data": {"p": "x"}})
    received.data["p"] = 5
    with pytest.raises(RequestError, match=r"\$\.data\.p is a number where text is declared"):
        received.to_dict()


@pytest.mark.parametrize("arguments", [
    {"name": 5}, {"namespace": b"x"}, {"generate_name": ["a"]}, {"labels": {"a": 1}}, {"labels": "a=b"},
    {"annotations": {1: "a"}}, {"finalizers": "a"}, {"owner_references": [object()]}])
def test_metadata_of_another_type_is_refused_by_the_name_of_its_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(arguments))):
        ConfigMap(**arguments)


def test_a_metadata_only_object_does_not_answer_for_what_it_does_not_hold() -> None:
    obj = PartialObjectMeta.of(PODS).from_dict({"metadata": metadata()})
    for read in (lambda: obj["spec"], lambda: obj.get("spec"), lambda: obj.get("data", {}), lambda: "spec" in obj):
        with pytest.raises(PartialObjectError, match=r"Pod\.v1\./a\.ns: only the metadata .* Api\.get reads the whole"):
            read()
    assert obj["metadata"]["name"] == obj.get("metadata")["name"] == "a"


@pytest.mark.parametrize("content", [{"metadata": {"generateName": "a-", "labels": {"x": "y"}}, "spec": {"x": 1}},
                                     {"metadata": {"labels": {"x": "y"}, "name": None}}])
def test_an_object_may_have_no_name_yet(content: dict[str, Any]) -> None:
    pod = dynamic(PODS).from_dict(content)
    assert (pod.name, pod.labels["x"]) == ("", "y")
    pod.metadata.name = "b"
    assert pod.to_dict()["metadata"] | {"name": "b"} == pod.to_dict()["metadata"]
    for nothing in ({}, {"metadata": {}}, {"metadata": None}):
        assert (Pod.from_dict(nothing).name, dict(Pod.from_dict(nothing).labels)) == ("", {})


def test_one_object_is_one_object() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(widget())  # type: ignore[call-overload]


def test_a_child_takes_the_namespace_of_its_owner() -> None:
    child = ConfigMap(name="c")
    child.set_owner(widget())
    assert child.namespace == "ns"
    with pytest.raises(RequestError, match="namespace 'ns'"):
        build.create(Place(ConfigMap.api_resource, "other"), child)
    node = dynamic(NODES).from_dict({"metadata": metadata(namespace=None)})
    other = ConfigMap(name="c")
    other.set_owner(node)
    assert other.namespace is None


@pytest.mark.parametrize("owner", [None, "a", {"metadata": {}}, ObjectMeta(name="a"), Widget])
def test_an_owner_is_an_object(owner: Any) -> None:
    with pytest.raises(RequestError, match=r"the owner of .* must be an object that the server returned, not"):
        ConfigMap(name="c").set_owner(owner)


def test_an_object_from_the_server_is_applied_without_what_is_the_servers() -> None:
    obj = Widget.from_dict({"metadata": metadata(managedFields=[{"manager": "x"}], generation=3),
                            "spec": {"replicas": 2}, "status": {"readyReplicas": 1}})
    obj.spec.replicas = 3
    request = build.apply(Place(Widget.api_resource, "ns"), obj, PatchParams.apply("m"))
    sent = msgspec.json.decode(request.body or b"")
    assert sorted(sent["metadata"]) == sorted({"name", "namespace", *metadata()} - {
        "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"})
    assert (sent["apiVersion"], sent["kind"], sent["spec"]["replicas"]) == ("demo.example.com/v1", "Widget", 3)
    assert dict(request.headers)["Content-Type"] == "application/apply-patch+yaml"


def test_an_object_from_a_list_is_applied_with_apiversion_kind_and_name() -> None:
    """List items come without apiVersion and kind."""
    item = Widget.from_bytes(b'{"metadata":{"name":"a","namespace":"ns","uid":"u"},"spec":{"replicas":1}}')
    for subresource, path in ((None, "widgets/a"), ("status", "widgets/a/status")):
        request = build.apply(Place(Widget.api_resource, "ns"), item, PatchParams.apply("m"), subresource=subresource)
        sent = msgspec.json.decode(request.body or b"")
        assert (sent["apiVersion"], sent["kind"], sent["metadata"]["name"]) == ("demo.example.com/v1", "Widget", "a")
        assert request.path.endswith(path)


