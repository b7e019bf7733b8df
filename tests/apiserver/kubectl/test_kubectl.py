from __future__ import annotations

import json

import pytest
import yaml

pytestmark = pytest.mark.kubectl

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


def config_map(name, **data):
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def widget(name, **spec):
    return yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})


MAKERS = {"configmap": (config_map, {"size": "1"}, "data"), "widget": (widget, {"size": 1}, "spec")}


@pytest.fixture(scope="module", autouse=True)
def crd(kubectl):
    kubectl("create", "-f", "-", stdin=yaml.safe_dump(CRD))
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")


@pytest.fixture(params=sorted(MAKERS))
def kind(request):
    return request.param


@pytest.fixture
def manifest(kind):
    maker, content, _ = MAKERS[kind]
    return lambda name, **changes: maker(name, **{**content, **changes})


@pytest.fixture
def field(kind):
    """Where the content of the kind is."""
    return MAKERS[kind][2]


def test_api_resources_lists_built_in_kinds_and_the_crd(kubectl):
    found = kubectl("api-resources")
    for expected in ("configmaps", "deployments", "leases", "widgets", "customresourcedefinitions"):
        assert expected in found
    assert "wd" in found.split("widgets", 1)[1].split("\n", 1)[0]


def test_create_validates_and_get_shows_yaml_and_a_table(kubectl, kind, manifest, field):
    assert "created" in kubectl("create", "-f", "-", stdin=manifest("made"))
    assert str(yaml.safe_load(kubectl("get", kind, "made", "-o", "yaml"))[field]["size"]) == "1"
    header, row = kubectl("get", kind, "made", "-o", "wide").splitlines()
    assert header.split()[0] == "NAME"
    assert row.split()[0] == "made"
    assert header.split()[1:] == (["DATA", "AGE"] if kind == "configmap" else ["SIZE"])


def test_an_unknown_field_is_refused_by_name(kubectl, kind, manifest):
    result = kubectl.run("create", "-f", "-", stdin=manifest("strange") + "colour: red\n")
    assert result.returncode != 0
    assert 'unknown field "colour"' in result.stderr


def test_creating_twice_says_already_exists(kubectl, kind, manifest):
    kubectl("create", "-f", "-", stdin=manifest("twice"))
    result = kubectl.run("create", "-f", "-", stdin=manifest("twice"))
    assert result.returncode != 0
    assert "AlreadyExists" in result.stderr


def test_get_w_shows_changes_as_they_happen(kubectl, kind, manifest):
    kubectl("create", "-f", "-", stdin=manifest("watched"))
    process = kubectl.start("get", kind, "watched", "-w", "--output-watch-events")
    try:
        lines = iter(process.stdout.readline, "")
        assert next(lines).split()[0] == "EVENT"
        assert next(lines).split()[0] == "ADDED"
        kubectl("label", kind, "watched", "seen=yes")
        assert next(lines).split()[0] == "MODIFIED"
        kubectl("delete", kind, "watched")
        assert next(lines).split()[0] == "DELETED"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def test_label_adds_and_removes(kubectl, kind, manifest):
    kubectl("create", "-f", "-", stdin=manifest("labelled"))
    kubectl("label", kind, "labelled", "team=a")
    assert "labelled" in kubectl("get", kind, "-l", "team=a")
    kubectl("label", kind, "labelled", "team-")
    assert "labelled" not in kubectl("get", kind, "-l", "team=a")


def test_patch_merges_and_takes_json_patches(kubectl, kind, manifest, field):
    kubectl("create", "-f", "-", stdin=manifest("patched"))
    value = "2" if kind == "configmap" else 2
    kubectl("patch", kind, "patched", "--type=merge", "-p", json.dumps({field: {"size": value}}))
    assert kubectl("get", kind, "patched", "-o", f"jsonpath={{.{field}.size}}") == "2"
    value = "3" if kind == "configmap" else 3
    kubectl("patch", kind, "patched", "--type=json", "-p", json.dumps(
        [{"op": "test", "path": f"/{field}/size", "value": "2" if kind == "configmap" else 2},
         {"op": "replace", "path": f"/{field}/size", "value": value}]))
    assert kubectl("get", kind, "patched", "-o", f"jsonpath={{.{field}.size}}") == "3"


def test_server_side_apply_twice_changes_nothing_the_second_time(kubectl, kind, manifest):
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=manifest("applied"))
    before = kubectl("get", kind, "applied", "-o", "jsonpath={.metadata.resourceVersion}")
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=manifest("applied"))
    assert kubectl("get", kind, "applied", "-o", "jsonpath={.metadata.resourceVersion}") == before


def test_client_side_apply_updates(kubectl, kind, manifest, field):
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest("configured"))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest("configured"))
    value = "5" if kind == "configmap" else 5
    assert "configured" in kubectl("apply", "-f", "-", stdin=manifest("configured", size=value))
    assert kubectl("get", kind, "configured", "-o", f"jsonpath={{.{field}.size}}") == "5"


def test_delete_waits_until_it_is_gone(kubectl, kind, manifest):
    kubectl("create", "-f", "-", stdin=manifest("short-lived"))
    assert "deleted" in kubectl("delete", kind, "short-lived")
    assert "NotFound" in kubectl.run("get", kind, "short-lived").stderr


def test_wait_for_jsonpath(kubectl, kind, manifest, field):
    kubectl("create", "-f", "-", stdin=manifest("waited"))
    assert "condition met" in kubectl("wait", f"--for=jsonpath={{.{field}.size}}=1", f"{kind}/waited", "--timeout=10s")


def test_wait_for_condition_of_a_custom_resource(kubectl):
    kubectl("create", "-f", "-", stdin=widget("conditional", size=1))
    assert kubectl.run("wait", "--for=condition=Ready", "widget/conditional", "--timeout=1s").returncode != 0
    kubectl("patch", "widget", "conditional", "--subresource=status", "--type=merge", "-p",
            '{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}')
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "widget/conditional", "--timeout=10s")
    assert kubectl("get", "widget", "conditional", "-o", "jsonpath={.metadata.generation}") == "1"


def test_explain_knows_the_crd_and_built_in_kinds(kubectl):
    assert "size" in kubectl("explain", "widget.spec")
    assert "immutable" in kubectl("explain", "configmap")


@pytest.mark.parametrize("api_version", ["none.example.com/v1", "example.com/v1", "apps/v1"])
@pytest.mark.parametrize("verb", [("apply",), ("apply", "--server-side"), ("create",)])
def test_a_kind_that_is_not_installed_is_told_as_such(kubectl, verb, api_version):
    thing = yaml.safe_dump({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": "a"}})
    done = kubectl.run(*verb, "-f", "-", stdin=thing)
    assert done.returncode == 1
    assert f'no matches for kind "Thing" in version "{api_version}"' in done.stderr


def test_service_accounts_show_no_secrets(kubectl):
    kubectl("create", "serviceaccount", "robot")
    assert kubectl("get", "sa", "robot").split()[:2] == ["NAME", "AGE"]
    assert kubectl("get", "sa", "-A").split()[:3] == ["NAMESPACE", "NAME", "AGE"]
