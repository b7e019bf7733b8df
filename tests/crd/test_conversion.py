"""Objects of one kind between its versions: by the shortest way, with the metadata that the server insists on."""
from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import assume, find, given
from hypothesis import strategies as st
from msgspec import Meta

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.crd.conversion import Conversion, ConversionError
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.testing.generated import objects_of


class SpecV1(msgspec.Struct, rename="camel"):
    host_port: str


class SpecV2(msgspec.Struct, rename="camel"):
    host: str
    port: int = 80


class WidgetV1(CustomResource, group="demo.example.com", version="v1", kind="Widget", storage=False):
    spec: SpecV1
    status: dict[str, Any] | None = None


class WidgetV2(CustomResource, group="demo.example.com", version="v2", kind="Widget"):
    spec: SpecV2
    status: dict[str, Any] | None = None


class Other(CustomResource, group="demo.example.com", version="v2", kind="Other"):
    spec: SpecV2


def to_v2(old: WidgetV1) -> WidgetV2:
    host, _, port = old.spec.host_port.partition(":")
    return WidgetV2(spec=SpecV2(host, int(port or 80)), status=old.status)


def to_v1(new: WidgetV2) -> WidgetV1:
    return WidgetV1(spec=SpecV1(f"{new.spec.host}:{new.spec.port}"), status=new.status)


TYPED = Conversion({(WidgetV1, WidgetV2): to_v2, (WidgetV2, WidgetV1): to_v1})
METADATA = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "m"},
            "managedFields": [{"manager": "x"}], "finalizers": ["example.com/f"]}


def content(version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"demo.example.com/{version}", "kind": "Widget", "metadata": dict(METADATA), "spec": spec}


def test_a_dict_is_converted_by_typed_functions_and_its_metadata_is_carried_over() -> None:
    given_ = content(hostPort="x.org:8080")
    assert TYPED.convert(given_, "v2") == content("v2", host="x.org", port=8080)
    assert given_ == content(hostPort="x.org:8080")


def test_an_object_is_converted_to_an_object_of_the_other_class() -> None:
    made = TYPED.convert(WidgetV1(name="a", labels={"l": "m"}, spec=SpecV1("x.org"), status={"s": 1}), WidgetV2)
    assert isinstance(made, WidgetV2)
    assert (made.name, dict(made.labels), made.spec, made.status) == ("a", {"l": "m"}, SpecV2("x.org"), {"s": 1})


@given(st.text("abc.-", min_size=1), st.integers(0, 65535))
def test_there_and_back_is_the_same(host: str, port: int) -> None:
    there = TYPED.convert(content("v2", host=host, port=port), "v1")
    assert TYPED.convert(there, "v2") == content("v2", host=host, port=port)


def step(name: str) -> Any:
    def convert(obj: dict[str, Any]) -> dict[str, Any]:
        obj["spec"]["way"] = [*obj["spec"].get("way", ()), name]
        return obj
    return convert


def test_where_no_function_leads_straight_the_shortest_chain_does() -> None:
    pairs = [("v1", "v2"), ("v2", "v3"), ("v3", "v4"), ("v1", "v3"), ("v4", "v1")]
    chain = Conversion({pair: step("-".join(pair)) for pair in pairs})
    assert chain.convert(content("v1"), "v4")["spec"] == {"way": ["v1-v3", "v3-v4"]}
    assert chain.convert(content("v2"), "v1") == content("v1", way=["v2-v3", "v3-v4", "v4-v1"])
    assert chain.convert(content("v2"), "v2") == content("v2")
    assert chain.way("v2", "v1") == ("v2", "v3", "v4", "v1")
    assert chain.versions == ("v1", "v2", "v3", "v4")


@given(st.sets(st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda pair: pair[0] != pair[1]), min_size=1))
def test_a_way_is_made_of_steps_and_no_way_is_shorter(pairs: set[tuple[int, int]]) -> None:
    chain = Conversion({(f"v{old}", f"v{new}"): step("") for old, new in sorted(pairs)})
    distance = {name: {name: 0} for name in chain.versions}
    for known in distance.values():  # by the length of the way, one longer each time
        for length in range(len(chain.versions)):
            for old, new in pairs:
                if known.get(f"v{old}") == length:
                    known.setdefault(f"v{new}", length + 1)
    for old in chain.versions:
        for new in chain.versions:
            way = chain.way(old, new)
            assert (None if way is None else len(way) - 1) == distance[old].get(new)
            assert way is None or all((int(a[1:]), int(b[1:])) in pairs for a, b in itertools.pairwise(way))
    assert set(chain.missing()) == {(old, new) for old in chain.versions for new in chain.versions
                                    if new not in distance[old]}


def test_the_pairs_that_nothing_leads_between_are_told() -> None:
    assert Conversion({("v1", "v2"): step("")}).missing() == [("v2", "v1")]
    assert TYPED.missing() == []


def renamed(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "name": "b"}}


def failing(_obj: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no port")


def test_a_function_that_returns_no_metadata_keeps_all_of_it() -> None:
    only_spec = Conversion({("v1", "v2"): lambda obj: {"spec": obj["spec"]}, ("v2", "v3"): lambda obj: {"spec": {}}})
    made = only_spec.convert({"apiVersion": "x.org/v1", "kind": "W", "metadata": METADATA, "spec": {"a": 1}}, "v3")
    assert made == {"apiVersion": "x.org/v3", "kind": "W", "metadata": METADATA, "spec": {}}


def test_an_object_that_is_made_with_the_name_alone_keeps_the_rest_of_the_metadata() -> None:
    named = Conversion({(WidgetV1, WidgetV2): lambda old: WidgetV2(name=old.name, spec=SpecV2(old.spec.host_port))})
    made = named.convert(WidgetV1(name="a", labels={"l": "m"}, annotations={"n": "o"}, spec=SpecV1("x.org")), WidgetV2)
    assert (dict(made.labels), dict(made.annotations)) == ({"l": "m"}, {"n": "o"})


def test_an_object_without_a_kind_cannot_be_converted() -> None:
    with pytest.raises(ConversionError, match="from v1 to v2: the object has no kind"):
        Conversion({("v1", "v2"): lambda obj: obj}).convert({"apiVersion": "x.org/v1"}, "v2")


def test_labels_and_annotations_may_change_and_nothing_else_of_the_metadata() -> None:
    def noted(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "metadata": {"labels": {"new": "l"}, "annotations": {"old": "value"}}}

    made = Conversion({("v1", "v2"): noted}).convert(content(), "v2")["metadata"]
    assert made == {**METADATA, "labels": {"new": "l"}, "annotations": {"old": "value"}}
    with pytest.raises(ConversionError, match=r"^convert Widget a from v1 to v2: the function changed metadata.name; "):
        Conversion({("v1", "v2"): renamed}).convert(content(), "v2")


@pytest.mark.parametrize(("function", "problem"), [
    (failing, "convert Widget a from v1 to v2: ValueError: no port"),
    (lambda obj: None, "convert Widget a from v1 to v2: the function returned NoneType, not an object")])
def test_what_a_function_does_wrong_is_told_with_its_step(function: Any, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        Conversion({("v1", "v2"): function, ("v2", "v3"): step("")}).convert(content(), "v3")


def test_a_typed_function_that_returns_another_class_is_told() -> None:
    wrong: Any = Conversion({(WidgetV1, WidgetV2): lambda old: old})
    with pytest.raises(ConversionError, match="the function returned WidgetV1, not WidgetV2"):
        wrong.convert(content(hostPort="a"), "v2")


@pytest.mark.parametrize(("version", "wanted"), [("v1", "v9"), ("v0", "v2")])
def test_where_no_functions_lead_that_is_told_with_those_there_are(version: str, wanted: str) -> None:
    with pytest.raises(ConversionError, match=f"from {version} to {wanted}: no functions lead there; the steps are "
                                              "v1 -> v2, v2 -> v1"):
        TYPED.convert(content(version), wanted)


@pytest.mark.parametrize(("functions", "problem"), [
    ({}, "needs functions"), ({("v1", "v1"): step("")}, "leads nowhere"),
    ({(WidgetV1, "v2"): step("")}, "must name both versions by class or both by name"),
    ({(WidgetV1, WidgetV2): to_v2, ("v1", "v2"): step("")}, "is given twice"),
    ({(WidgetV1, Other): to_v2}, "a Conversion is for the versions of one kind")])
def test_what_makes_no_conversion_is_refused(functions: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        Conversion(functions)


class OvenSpecV1(msgspec.Struct, rename="camel"):
    temperature: str
    replicas: int = 1


class OvenSpec(msgspec.Struct, rename="camel"):
    degrees: Annotated[int, Meta(ge=50, le=300)]
    fuel: Literal["wood", "gas"] = "wood"
    replicas: int = 1
    breads: list[str] = []


class OvenStatus(msgspec.Struct, rename="camel"):
    replicas: int = 0
    note: str = ""


class OvenV1(CustomResource, group="demo.example.com", version="v1", kind="Oven", storage=False):
    spec: OvenSpecV1
    status: OvenStatus | None = None


class Oven(CustomResource, group="demo.example.com", version="v2", kind="Oven"):
    spec: OvenSpec
    status: OvenStatus | None = None


BAKERY = Conversion({  # as people write it: without the status, and without what the other version has not
    (OvenV1, Oven): lambda old: Oven(spec=OvenSpec(int(old.spec.temperature.removesuffix("C")),
                                                   replicas=old.spec.replicas)),
    (Oven, OvenV1): lambda new: OvenV1(spec=OvenSpecV1(f"{new.spec.degrees}C", new.spec.replicas))})
GAS = {"apiVersion": "demo.example.com/v2", "kind": "Oven", "metadata": {"name": "a", "labels": {"l": "m"}},
       "spec": {"degrees": 220, "fuel": "gas", "breads": ["rye"], "replicas": 2},
       "status": {"replicas": 2, "note": "hot"}}


def test_what_one_version_has_not_comes_back_after_a_write_through_it() -> None:
    old = BAKERY.convert(GAS, "v1")
    assert old["spec"] == {"temperature": "220C", "replicas": 2}
    assert old["status"] == GAS["status"]
    old["metadata"]["labels"]["x"] = "y"
    old["spec"]["replicas"] = 3
    new = BAKERY.convert(old, "v2")
    assert new == {**GAS, "metadata": {"name": "a", "labels": {"l": "m", "x": "y"}},
                   "spec": {**GAS["spec"], "replicas": 3}}


def test_what_was_changed_since_is_not_overwritten() -> None:
    steps = Conversion({("v1", "v2"): lambda obj: {**obj, "spec": {"size": f"{obj['spec']['size']}.0"}},
                        ("v2", "v1"): lambda obj: {**obj, "spec": {"size": int(float(obj["spec"]["size"]))}}})
    whole = {**content("v2"), "spec": {"size": "3.5"}}
    old = steps.convert(whole, "v1")
    assert old["spec"] == {"size": 3}
    assert steps.convert(old, "v2")["spec"] == {"size": "3.5"}
    old["spec"]["size"] = 7
    assert steps.convert(old, "v2")["spec"] == {"size": "7.0"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v2": 5}', '{"v2": [[["metadata", "name"], "a", "b"]]}',
                                  '{"v2": [[["spec", "degrees", "x"], null, 1]]}', '{"v2": [[[], 1, 2]]}'])
def test_an_annotation_that_somebody_changed_does_no_harm(text: str) -> None:
    old = BAKERY.convert(GAS, "v1")
    old["metadata"]["annotations"]["demo.example.com/conversion-kept"] = text
    new = BAKERY.convert(old, "v2")
    assert new["metadata"] == {"name": "a", "labels": {"l": "m"}}
    assert new["spec"]["degrees"] == 220


def test_without_keeping_nothing_is_annotated() -> None:
    bare = Conversion({(OvenV1, Oven): lambda old: Oven(spec=OvenSpec(int(old.spec.temperature[:-1]))),
                       (Oven, OvenV1): lambda new: OvenV1(spec=OvenSpecV1(f"{new.spec.degrees}C"))}, keep=False)
    assert "annotations" not in bare.convert(GAS, "v1")["metadata"]
    with pytest.raises(ConversionError, match=r"v2 -> v1 -> v2: spec\.fuel of Oven differs"):
        bare.check([GAS])


def test_a_chain_keeps_what_each_version_has_of_its_own() -> None:
    steps = {(one, other): lambda obj: {**obj, "spec": {"x": obj["spec"].get("x", 0)}} for one, other in (
        ("v1", "v2"), ("v2", "v1"), ("v2", "v3"), ("v3", "v2"))}
    chain = Conversion(steps)
    there = chain.convert({**content("v3"), "spec": {"x": 1, "only3": True}}, "v1")
    there["spec"]["only1"] = 1
    middle = chain.convert(there, "v2")
    assert middle["spec"] == {"x": 1}
    assert chain.convert(middle, "v3")["spec"] == {"x": 1, "only3": True}
    assert chain.convert(middle, "v1")["spec"] == {"x": 1, "only1": 1}


@given(st.one_of(objects_of(OvenV1), objects_of(Oven)))
def test_generated_objects_of_both_versions_come_back_as_they_were(obj: Any) -> None:
    assume(not isinstance(obj, OvenV1) or re.fullmatch(r"\d{2,3}C", obj.spec.temperature))
    assert set(BAKERY.check([obj])) <= {f"v2 -> v1 -> v2: spec.{name}" for name in ("fuel", "breads")} | {
        "v1 -> v2 -> v1: spec.temperature"}


def test_check_tells_what_the_functions_do_not_carry() -> None:
    assert BAKERY.check([GAS, Oven(name="b", spec=OvenSpec(100))]) == [
        "v2 -> v1 -> v2: spec.fuel", "v2 -> v1 -> v2: spec.breads"]


def test_the_strategy_makes_what_the_definition_takes() -> None:
    found = find(objects_of(Oven), lambda oven: oven.spec.fuel == "gas" and len(oven.spec.breads) > 1)
    assert found.violations() == []
    assert (found.name, found.api_version) == ("generated", "demo.example.com/v2")
