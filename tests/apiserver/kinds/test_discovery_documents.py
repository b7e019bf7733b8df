"""Discovery, health and OpenAPI."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.apiserver.kinds.kindapi import Api

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "properties": {"spec": {"type": "object", "nullable": True, "properties": {
                     "color": {"type": "string", "default": "red"}}}}}}, "subresources": {"status": {}}}]}}


@pytest.fixture
def with_crd(api: Api) -> Api:
    api.made(CRD)
    settle(api)
    assert api("GET", "/apis/example.com/v1").status == 200
    return api


def settle(api: Api) -> None:
    """Let the controller of CRDs do its steps."""
    for _ in range(10):
        api.clock.advance(1)
        api.core.tick()


def test_the_core_list_has_no_api_version(api: Api) -> None:
    assert "apiVersion" not in api("GET", "/api/v1").body
    assert api("GET", "/apis/apps/v1").body["apiVersion"] == "v1"


def test_groups_come_in_the_real_servers_order_custom_ones_last(with_crd: Api) -> None:
    names = [group["name"] for group in with_crd("GET", "/apis").body["groups"]]
    assert names[:4] == ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io"]
    assert names[-1] == "example.com"


def test_aggregated_discovery_has_an_etag(with_crd: Api) -> None:
    accept = AGGREGATED.format("v2")
    first = with_crd("GET", "/apis", accept=accept)
    assert first.headers["content-type"] == accept
    assert first.body["apiVersion"] == "apidiscovery.k8s.io/v2"
    again = with_crd("GET", "/apis", accept=accept, if_none_match=first.headers["etag"])
    assert (again.status, again.raw) == (304, b"")


def test_custom_resources_fill_in_the_kind_of_their_answers(with_crd: Api) -> None:
    items = with_crd("GET", "/apis", accept=AGGREGATED.format("v2")).body["items"]
    widget = items[-1]["versions"][0]["resources"][0]
    assert widget["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert widget["verbs"][:2] == ["delete", "deletecollection"]


def test_unknown_versions_of_builtin_groups_get_a_status_unknown_groups_text(with_crd: Api) -> None:
    assert with_crd("GET", "/apis/apps/v9").body["kind"] == "Status"
    for path in ("/apis/none", "/apis/none/v1", "/apis/example.com/v9"):
        assert with_crd("GET", path).body == "404 page not found\n"


@pytest.mark.parametrize("name", ["healthz", "livez", "readyz"])
def test_health_is_ok_and_can_be_verbose(api: Api, name: str) -> None:
    assert api("GET", f"/{name}").body == "ok"
    verbose = api("GET", f"/{name}", query={"verbose": "", "exclude": "log"}).body
    assert "[+]ping ok\n" in verbose
    assert "[+]log excluded: ok\n" in verbose
    assert verbose.endswith(f"{name} check passed\n")
    assert api("GET", f"/{name}/ping").body == "ok"
    assert api("GET", f"/{name}/nonsense").status == 404


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(child) for child in node.values()))
    return set().union(*(references(child) for child in node)) if isinstance(node, list) else set()


def test_every_document_of_v3_is_complete(with_crd: Api) -> None:
    paths = with_crd("GET", "/openapi/v3").body["paths"]
    for path, entry in paths.items():
        url, _, query = entry["serverRelativeURL"].partition("?")
        answer = with_crd("GET", url, query=dict([query.split("=")]))
        assert answer.headers["cache-control"] == "public, immutable"
        known = {f"#/components/schemas/{name}" for name in answer.body["components"].get("schemas", ())}
        assert references(answer.body) <= known, path


def test_kubectl_finds_the_query_parameters_of_a_kind(with_crd: Api) -> None:
    for path, kind in (("api/v1", "Pod"), ("apis/apps/v1", "Deployment"), ("apis/example.com/v1", "Widget")):
        document = with_crd("GET", f"/openapi/v3/{path}").body
        patches = [item["patch"] for item in document["paths"].values() if "patch" in item]
        found = next(operation for operation in patches if operation["x-kubernetes-group-version-kind"]["kind"] == kind)
        assert {"fieldValidation", "dryRun"} <= {parameter["name"] for parameter in found["parameters"]}


def test_schemas_of_custom_resources_are_in_both_documents(with_crd: Api) -> None:
    v3 = with_crd("GET", "/openapi/v3/apis/example.com/v1").body["components"]["schemas"]["com.example.v1.Widget"]
    assert v3["properties"]["spec"]["properties"]["color"]["default"] == "red"
    assert v3["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Widget", "version": "v1"}]
    v2 = with_crd("GET", "/openapi/v2").body
    spec = v2["definitions"]["com.example.v1.Widget"]["properties"]["spec"]
    assert "nullable" not in spec
    assert "type" not in spec
    assert {name.removeprefix("#/definitions/") for name in references(v2)} <= set(v2["definitions"])


def test_the_hash_of_a_document_follows_from_what_it_says(with_crd: Api) -> None:
    def hashes() -> dict[str, str]:
        entries = with_crd("GET", "/openapi/v3").body["paths"]
        return {path: entry["serverRelativeURL"] for path, entry in entries.items()}

    before = hashes()
    version = {**CRD["spec"]["versions"][0], "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    assert with_crd.merge(CRD, {"spec": {"versions": [version]}}).status == 200
    settle(with_crd)
    after = hashes()
    assert {path for path in before if before[path] != after[path]} == {"apis/example.com/v1"}


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """(number, value) of each field of a message: texts and messages as bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 2:
            length, at = varint(data, at)
            found.append((tag >> 3, data[at:at + length]))
            at += length
        elif tag & 7 == 1:
            found.append((tag >> 3, struct.unpack("<d", data[at:at + 8])[0]))
            at += 8
        else:
            number, at = varint(data, at)
            found.append((tag >> 3, number))
    return found


def named(data: bytes) -> tuple[str, bytes]:
    pair = dict(fields(data))
    return pair[1].decode(), pair.get(2, b"")


@pytest.mark.parametrize("accept", ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
                                    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"])
def test_the_document_of_v2_says_the_same_in_protobuf(with_crd: Api, accept: str) -> None:
    document = with_crd("GET", "/openapi/v2").body
    answer = with_crd("GET", "/openapi/v2", accept=accept)
    assert answer.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    message = dict(fields(answer.raw))
    assert message[1] == b"2.0"
    paths = dict(named(entry) for number, entry in fields(message[8]) if number == 2)
    assert paths.keys() == document["paths"].keys()
    definitions = dict(named(entry) for _, entry in fields(message[9]))
    assert definitions.keys() == document["definitions"].keys()
    patch = dict(fields(dict(fields(paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]))[8]))
    wanted = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert patch[5].decode() == wanted["operationId"]
    extensions = dict(named(entry) for number, entry in fields(
        dict(fields(paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]))[8]) if number == 13)
    kind = dict(fields(extensions["x-kubernetes-group-version-kind"]))[2]
    assert json.loads(kind) == wanted["x-kubernetes-group-version-kind"]
    pod, wanted = definitions["io.k8s.api.core.v1.PodSpec"], document["definitions"]["io.k8s.api.core.v1.PodSpec"]
    assert properties(pod).keys() == wanted["properties"].keys()
    assert dict(fields(properties(pod)["hostNetwork"]))[22] == b"\x0a\x07boolean"
    assert [value.decode() for number, value in fields(pod) if number == 19] == wanted["required"]


def properties(schema: bytes) -> dict[str, bytes]:
    return dict(named(entry) for _, entry in fields(dict(fields(schema))[25]))


def test_protobuf_of_v3_is_refused_and_not_pretended(api: Api) -> None:
    accept = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
    assert api("GET", "/openapi/v3/api/v1", accept=accept).status == 406
    assert api("GET", "/openapi/v2", accept=accept).status == 406


@pytest.mark.parametrize(("name", "wanted"), [
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", {"oneOf": [{"type": "integer"}, {"type": "string"}],
                                                         "format": "int-or-string"}),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"oneOf": [{"type": "string"}, {"type": "number"}]})])
def test_what_has_several_types_says_so_in_v3_and_is_a_text_in_v2(api, name, wanted):
    found = api("GET", "/openapi/v3/api/v1").body["components"]["schemas"][name]
    assert wanted.items() <= found.items()
    assert "type" not in found
    assert api("GET", "/openapi/v2").body["definitions"][name]["type"] == "string"


@pytest.mark.parametrize(("group", "name", "field", "values"), [
    ("api/v1", "io.k8s.api.core.v1.PodSpec", "restartPolicy", ["Always", "Never", "OnFailure"]),
    ("apis/apps/v1", "io.k8s.api.apps.v1.StatefulSetSpec", "podManagementPolicy", ["OrderedReady", "Parallel"]),
    ("apis/batch/v1", "io.k8s.api.batch.v1.CronJobSpec", "concurrencyPolicy", ["Allow", "Forbid", "Replace"])])
def test_fields_of_a_few_texts_list_them(api, group, name, field, values):
    schema = api("GET", f"/openapi/{'v3/' + group}").body["components"]["schemas"][name]
    assert schema["properties"][field]["enum"] == values


@pytest.mark.parametrize(("group", "name", "field", "values"), [
    ("api/v1", "core.v1.PersistentVolumeClaimSpec", "accessModes",
     ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
    ("apis/admissionregistration.k8s.io/v1", "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
     "validationActions", ["Audit", "Deny", "Warn"]),
    ("apis/networking.k8s.io/v1", "networking.v1.NetworkPolicySpec", "policyTypes", ["Egress", "Ingress"])])
def test_lists_of_a_few_texts_list_them_at_their_items(api, group, name, field, values):
    node = api("GET", f"/openapi/v3/{group}").body["components"]["schemas"][f"io.k8s.api.{name}"]["properties"][field]
    assert node["items"]["enum"] == values
    assert "enum" not in node


def test_every_enum_is_of_a_field_that_there_is():
    from kubectl_runtime.apiserver.openapi.definitions import enums
    from kubectl_runtime.schema.definitions import definitions

    assert [key for key in enums() if key[1] not in definitions()[key[0]]["properties"]] == []
    assert len(enums()) > 110


@pytest.mark.parametrize(("group", "name", "field", "text"), [
    ("api/v1", "core.v1.PodSpec", "restartPolicy",
     '\n\nPossible enum values:\n - `"Always"`\n - `"Never"`\n - `"OnFailure"`'),
    ("api/v1", "core.v1.ServiceSpec", "type", '\n - `"ClusterIP"` means a service will only be accessible inside the '
     "cluster, via the cluster IP.\n"),
    ("apis/batch/v1", "batch.v1.CronJobSpec", "concurrencyPolicy", '\n - `"Forbid"` forbids concurrent runs, skipping '
     "next run if previous hasn't finished yet.\n"),
    ("apis/admissionregistration.k8s.io/v1", "admissionregistration.v1.RuleWithOperations", "scope",
     '\n\nPossible enum values:\n - `"*"` means that all scopes are included.')])
def test_descriptions_say_what_each_value_means(api, group, name, field, text):
    node = api("GET", f"/openapi/v3/{group}").body["components"]["schemas"][f"io.k8s.api.{name}"]["properties"][field]
    assert text in node["description"]


@pytest.mark.parametrize(("group", "name", "field", "default"), [
    ("api/v1", "io.k8s.api.core.v1.Container", "name", ""), ("api/v1", "io.k8s.api.core.v1.Pod", "spec", {}),
    ("api/v1", "io.k8s.api.core.v1.PodList", "metadata", {}), ("api/v1", "io.k8s.api.core.v1.Container", "image", None),
    ("api/v1", "io.k8s.api.core.v1.ContainerPort", "containerPort", 0), ("api/v1", "io.k8s.api.core.v1.Container",
                                                                        "securityContext", None),
    ("api/v1", "io.k8s.api.core.v1.ContainerStatus", "ready", False), ("api/v1", "io.k8s.api.core.v1.RBDVolumeSource",
                                                                      "user", "admin"),
    ("api/v1", "io.k8s.api.core.v1.PodCondition", "lastProbeTime", None),
    ("apis/apps/v1", "io.k8s.api.apps.v1.DeploymentSpec", "template", {}),
    ("apis/apps/v1", "io.k8s.api.apps.v1.DeploymentSpec", "replicas", None)])
def test_fields_have_the_defaults_of_the_real_document(api, group, name, field, default):
    node = api("GET", f"/openapi/v3/{group}").body["components"]["schemas"][name]["properties"][field]
    assert node.get("default") == default
    assert "$ref" not in node or len(node) == 1


@pytest.mark.parametrize(("path", "operation", "kind"), [
    ("api", "getCoreAPIVersions", "APIVersions"), ("apis", "getAPIVersions", "APIGroupList"),
    ("apis/apps", "getAppsAPIGroup", "APIGroup"),
    ("apis/rbac.authorization.k8s.io", "getRbacAuthorizationAPIGroup", "APIGroup"),
    ("apis/flowcontrol.apiserver.k8s.io", "getFlowcontrolApiserverAPIGroup", "APIGroup"),
])
def test_groups_of_built_in_types_have_a_document(with_crd: Api, path: str, operation: str, kind: str) -> None:
    assert path in with_crd("GET", "/openapi/v3").body["paths"]
    document = with_crd("GET", f"/openapi/v3/{path}").body
    [(shown, item)] = document["paths"].items()
    assert (shown, item["get"]["operationId"]) == (f"/{path}/", operation)
    answer = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert answer == f"io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"
    assert answer in document["components"]["schemas"]


@pytest.mark.parametrize("path", ["apis/example.com", "apis/none.example.com", "api/v2", "apis/apps/v9"])
def test_other_paths_have_no_document(with_crd: Api, path: str) -> None:
    assert with_crd("GET", f"/openapi/v3/{path}").status == 404
    assert path not in with_crd("GET", "/openapi/v3").body["paths"]


@pytest.mark.parametrize(("path", "tag", "operation"), [
    ("api/v1", "core_v1", "listCoreV1NamespacedPod"),
    ("apis/rbac.authorization.k8s.io/v1", "rbacAuthorization_v1", "listRbacAuthorizationV1ClusterRole"),
    ("apis/example.com/v1", "exampleCom_v1", "listExampleComV1NamespacedWidget"),
])
def test_tags_and_operations_are_in_camel_case(with_crd: Api, path: str, tag: str, operation: str) -> None:
    operations = {found["operationId"]: found["tags"] for item in with_crd("GET", f"/openapi/v3/{path}").body[
        "paths"].values() for found in item.values() if isinstance(found, dict)}
    assert operations.get(operation) == [tag]
