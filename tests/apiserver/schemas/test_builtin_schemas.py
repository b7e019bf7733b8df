"""The schemas of the built-in kinds: what is in the data file and how a Schema shows it."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.schemas import Schema, builtin, definition, definition_names
from kubectl_runtime.schema.definitions import definitions, descriptions


def at(schema: Schema | None, *path: str) -> Schema:
    for name in path:
        assert schema is not None
        schema = schema.element if name == "[]" else schema.field(name)
    assert schema is not None
    return schema


POD = builtin("", "v1", "Pod")


def test_lists_by_key_sets_and_atomic_lists() -> None:
    containers = at(POD, "spec", "containers")
    assert (containers.kind, containers.list_type, containers.map_keys) == ("list", "map", ("name",))
    assert not containers.leaf
    assert containers.patch_merge_key == "name"
    assert at(POD, "metadata", "finalizers").list_type == "set"
    assert at(POD, "metadata", "ownerReferences").map_keys == ("uid",)
    assert at(containers, "[]", "args").leaf
    assert at(containers, "[]", "ports").map_keys == ("containerPort", "protocol")


def test_defaults_that_identify_list_items() -> None:
    port = at(POD, "spec", "containers", "[]", "ports", "[]")
    assert port.fields["protocol"].default == "TCP"
    assert at(builtin("", "v1", "Service"), "spec", "ports", "[]").fields["protocol"].default == "TCP"
    assert at(POD, "spec", "containers", "[]").fields["name"].default == ""
    assert at(POD, "spec", "containers", "[]").fields["image"].default is None


def test_scalars_by_what_they_take() -> None:
    assert at(builtin("", "v1", "ConfigMap"), "data", "any key").scalar == "string"
    assert at(POD, "spec", "hostNetwork").scalar == "boolean"
    assert at(POD, "spec", "priority").scalar == "numeric"
    assert at(POD, "metadata", "creationTimestamp").scalar == "untyped"
    limits = at(POD, "spec", "containers", "[]", "resources", "limits")
    assert (limits.kind, at(limits, "cpu").scalar) == ("map", "untyped")
    probe_port = at(POD, "spec", "containers", "[]", "livenessProbe", "httpGet", "port")
    assert (probe_port.scalar, probe_port.int_or_string) == ("untyped", True)


def test_atomic_maps_and_retained_keys() -> None:
    deployment = builtin("apps", "v1", "Deployment")
    assert at(deployment, "spec", "selector").leaf
    assert at(deployment, "spec", "strategy").patch_strategy == "retainKeys"
    assert at(POD, "spec", "volumes").patch_strategy == "merge,retainKeys"


def test_undeclared_fields_have_no_schema() -> None:
    assert POD.field("bogus") is None
    assert at(POD, "spec").field("bogus") is None


def test_recursive_definitions_are_built_step_by_step() -> None:
    crd = builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    schema = at(crd, "spec", "versions", "[]", "schema", "openAPIV3Schema")
    assert at(schema, "properties", "a", "properties", "b", "type").scalar == "string"


def test_the_same_schema_every_time_and_an_error_for_an_unknown_kind() -> None:
    assert builtin("", "v1", "Pod") is POD
    with pytest.raises(KeyError):
        builtin("", "v1", "Pot")


def test_the_data_is_openapi_again() -> None:
    nodes = definitions()
    assert len(nodes) > 700
    assert ("batch", "v1", "CronJob") in definition_names()
    assert nodes["io.k8s.api.core.v1.Pod"]["properties"]["spec"] == {"$ref": "io.k8s.api.core.v1.PodSpec"}
    assert nodes["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {"type": "string"}
    for node in nodes.values():
        assert not isinstance(node.get("type"), list)
        assert "description" not in node
    assert all(reference in nodes for node in nodes.values() for reference in _references(node))
    assert descriptions()["io.k8s.api.core.v1.Pod"][""].startswith("Pod is a collection of containers")
    assert definition("io.k8s.api.core.v1.PodSpec").required == {"containers"}


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [reference for child in node.values() for reference in _references(child)]
    return [reference for child in node for reference in _references(child)] if isinstance(node, list) else []
