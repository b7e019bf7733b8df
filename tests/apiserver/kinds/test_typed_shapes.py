"""The shape that built-in objects get: what a Go struct makes of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import BodyDecodeError
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.kinds.typed.decode import types

NAMES = st.sampled_from(["metadata", "spec", "status", "containers", "name", "labels", "data", "x"])
JSON = st.recursive(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
                    max_leaves=12)


def shaped(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    typed.decode(kind, obj)
    return obj


def test_empty_optional_fields_go_and_structs_stay() -> None:
    obj = shaped("core.v1.Pod", {
        "metadata": {"labels": {}, "annotations": None, "name": "a"},
        "spec": {"containers": [{"name": "m", "stdin": False, "args": []}], "hostNetwork": False}})
    assert obj == {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "m", "resources": {}}]}, "status": {}}


def test_pointers_keep_zero_values() -> None:
    spec = shaped("apps.v1.Deployment", {"spec": {"replicas": 0, "revisionHistoryLimit": None}})["spec"]
    assert spec["replicas"] == 0
    assert "revisionHistoryLimit" not in spec


def test_required_fields_are_written_with_their_zero_value() -> None:
    status = typed.blank("core.v1.Node")["status"]
    assert status["nodeInfo"]["machineID"] == ""
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert typed.blank("rbac.v1.Role") == {"metadata": {}, "rules": None}


def test_times_that_are_no_pointers_are_written_as_null() -> None:
    obj = shaped("core.v1.Pod", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert obj["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}]


def test_fields_come_in_the_order_of_the_go_struct_and_keys_in_that_of_texts() -> None:
    obj = shaped("core.v1.ConfigMap", {"data": {"b": "1", "a": "2"}, "metadata": {"namespace": "n", "name": "a"},
                                       "kind": "ConfigMap", "apiVersion": "v1"})
    assert list(obj) == ["kind", "apiVersion", "metadata", "data"]
    assert list(obj["metadata"]) == ["name", "namespace"]
    assert list(obj["data"]) == ["a", "b"]


def test_unknown_fields_are_dropped_and_named_in_order() -> None:
    obj = {"metadata": {"wrong": 1}, "spec": {"containers": [{"name": "a"}, {"name": "b", "x": {}}]}, "bogus": True}
    assert typed.decode("core.v1.Pod", obj) == ["metadata.wrong", "spec.containers[1].x", "bogus"]
    assert "bogus" not in obj


def test_quantities_and_times_get_their_canonical_form() -> None:
    limits = {"cpu": 0.5, "memory": "1024Mi"}
    obj = shaped("core.v1.Pod", {"metadata": {"creationTimestamp": "2024-01-01T02:00:00.5+02:00"},
                                 "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}})
    assert obj["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert obj["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi"}


def test_null_values_of_maps_become_zero_values() -> None:
    assert shaped("core.v1.ConfigMap", {"data": {"k": None}})["data"] == {"k": ""}


@pytest.mark.parametrize(("kind", "obj", "message"), [
    ("core.v1.ConfigMap", {"data": {"k": 1}},
     "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ("core.v1.Pod", {"spec": {"containers": [{"name": True}]}},
     "json: cannot unmarshal bool into Go struct field Container.spec.containers.name of type string"),
    ("core.v1.Pod", {"spec": {"containers": {}}},
     "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
    ("core.v1.Pod", {"spec": {"restartPolicy": 1}},
     "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
    ("apps.v1.Deployment", {"spec": {"replicas": 1.5}},
     "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
    ("apps.v1.Deployment", {"spec": {"replicas": 2**40}},
     f"json: cannot unmarshal number {2**40} into Go struct field DeploymentSpec.spec.replicas of type int32"),
    ("core.v1.Secret", {"data": {"k": "!!"}}, "illegal base64 data at input byte 0"),
    ("core.v1.ConfigMap", [], "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
])
def test_wrong_json_types_are_refused_in_the_words_of_go(kind: str, obj: Any, message: str) -> None:
    with pytest.raises(BodyDecodeError) as raised:
        typed.decode(kind, obj)
    assert str(raised.value) == message


def test_schemas_of_crds_keep_what_may_stand_in_the_place_of_a_schema() -> None:
    schema = {"type": "object", "additionalProperties": True, "properties": {"a": {
        "type": "array", "items": {"type": "string", "description": ""}}}}
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    found = shaped("apiextensions.v1.CustomResourceDefinition", crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert found["additionalProperties"] is True
    assert found["properties"]["a"]["items"] == {"type": "string"}


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data", "x"]), JSON, max_size=4))
def test_any_json_is_shaped_or_refused_and_shaping_twice_changes_nothing(obj: dict[str, Any]) -> None:
    try:
        typed.decode("core.v1.Pod", obj)
    except BodyDecodeError:
        return
    again = {**obj}
    assert typed.decode("core.v1.Pod", again) == []
    assert again == obj


def test_every_declared_type_compiles_and_has_a_blank_form() -> None:
    for name in types():
        blank = typed.blank(name)
        again = {**blank}
        assert typed.decode(name, again) == []
        assert again == blank, name


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"not": schema}
    with pytest.raises(BodyDecodeError, match="exceeded max depth"):
        typed.decode("apiextensions.v1.JSONSchemaProps", schema)


@pytest.mark.parametrize("change", ["value", "order", "unknown"])
def test_a_list_that_was_decoded_before_is_shaped_afresh(change: str) -> None:
    def containers() -> list[dict[str, Any]]:
        return [{"name": "a", "image": "x", "env": [{"name": "E", "value": ""}], "ports": []}]

    first: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": containers()}}
    assert typed.decode("core.v1.Pod", first) == []
    first["spec"]["containers"][0]["env"].append("the caller's change")
    other = containers()
    if change == "value":
        other[0]["env"][0]["value"] = "1"
    elif change == "order":
        other[0] = dict(reversed(other[0].items()))
    else:
        other[0]["colour"] = 1
    for _ in range(2):
        again: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": json.loads(json.dumps(other))}}
        assert typed.decode("core.v1.Pod", again) == (["spec.containers[0].colour"] if change == "unknown" else [])
        assert again["spec"]["containers"] == [{
            "name": "a", "image": "x", "env": [{"name": "E", **({"value": "1"} if change == "value" else {})}],
            "resources": {}}]
        assert list(again["spec"]["containers"][0]) == ["name", "image", "env", "resources"]


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_a_list_that_differs_only_in_the_type_of_a_value_is_checked(value: object) -> None:
    def pod(priority: object) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": priority}]}]}}

    typed.decode("core.v1.Pod", pod(1))
    if value is None:
        other = pod(None)
        typed.decode("core.v1.Pod", other)
        assert other["spec"]["containers"][0]["ports"] == [{"containerPort": 0}]
        return
    with pytest.raises(BodyDecodeError):
        typed.decode("core.v1.Pod", pod(value))


@pytest.mark.parametrize(("kind", "path", "given_map"), [
    ("core.v1.ConfigMap", ("data",), {"z": "1", "a": "2", "Z": "3", "é": "4"}),
    ("core.v1.Pod", ("metadata", "labels"), {"b": "", "a/b": "1", "a": "2"}),
    ("core.v1.Secret", ("data",), {"y": "eA==", "x": "eA=="}),
    ("core.v1.Pod", ("spec", "overhead"), {"memory": "1Gi", "cpu": "1000m"}),
])
def test_maps_are_in_the_order_of_their_keys(kind: str, path: tuple[str, ...], given_map: dict[str, str]) -> None:
    obj: dict[str, Any] = {path[-1]: dict(given_map)}
    for name in reversed(path[:-1]):
        obj = {name: obj}
    found: Any = shaped(kind, obj)
    for name in path:
        found = found[name]
    assert list(found) == sorted(given_map)
