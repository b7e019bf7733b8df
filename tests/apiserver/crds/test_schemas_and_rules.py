"""CustomResourceDefinitions with schemas and rules, and their instances, through the server's own API."""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.testing import ApiServer
from tests.apiserver.kinds.kindapi import Answer
from tests.apiserver.kinds.kindapi import Api as KindApi

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/rules.example.com/v1/namespaces/default/things"
Thing = dynamic(ApiResource.from_gvk(GroupVersionKind("rules.example.com", "v1", "Thing")))


def definition(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {"spec": spec, **({"status": status} if status else {})}
    version = {"name": "v1", "served": True, "storage": True,
               "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
               **({"subresources": {"status": {}}} if status else {})}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.rules.example.com"},
            "spec": {"group": "rules.example.com", "scope": "Namespaced", "versions": [version],
                     "names": {"kind": "Thing", "plural": "things"}}}


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        yield client


def served(client: Client, crd: dict[str, Any]) -> Api[Any]:
    Api.all(client, CustomResourceDefinition).create(crd)
    api, deadline, pause = Api.namespaced(client, Thing, "default"), time.monotonic() + 20, threading.Event()
    while True:
        try:
            api.list()
        except KindNotServedError:
            assert time.monotonic() < deadline
            pause.wait(0.01)
        else:
            return api


def refusal(write: Any) -> list[tuple[str, str]]:
    with pytest.raises(ApiError) as found:
        write()
    assert found.value.status.code == 422
    return [(cause.field, cause.message) for cause in found.value.status.details.causes]


def thing(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "rules.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(("node", "field"), [
    ({"type": "string", "pattern": "^(?=a).*$"}, "properties[x].pattern"), ({}, "properties[x].type"),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
     "properties[x].items.x-kubernetes-map-type"),
    ({"type": "string", "default": 1}, "properties[x].default"),
    ({"type": "object", "properties": {"a": TEXT}, "default": {"b": 1}}, "properties[x].default"),
    ({"type": "object", "x-kubernetes-embedded-resource": True}, "properties[x].properties"),
    ({**INTEGER, "x-kubernetes-validations": [{"rule": "self.isSemver()"}]},
     "properties[x].x-kubernetes-validations[0].rule")])
def test_a_definition_that_cannot_hold_is_refused_at_its_field(client: Client, node: dict[str, Any],
                                                               field: str) -> None:
    api = Api.all(client, CustomResourceDefinition)
    causes = refusal(lambda: api.create(definition({"type": "object", "properties": {"x": node}})))
    assert [found for found, _ in causes] == [f"spec.validation.openAPIV3Schema.properties[spec].{field}"]


def test_a_rule_holds_creates_updates_and_the_status(client: Client) -> None:
    spec = {"type": "object", "properties": {"size": {**INTEGER, "x-kubernetes-validations": [
        {"rule": "self >= oldSelf", "message": "only grows"}]}}}
    status = {"type": "object", "properties": {"seen": {**INTEGER, "x-kubernetes-validations": [{"rule": "self > 0"}]}}}
    api = served(client, definition(spec, status))
    made = api.create(thing({"size": 3}))
    made["spec"]["size"] = 2
    assert refusal(lambda: api.replace(made)) == [("spec.size", "Invalid value: 2: only grows")]
    made["spec"]["size"] = 4
    made = api.replace(made)
    made["status"] = {"seen": 0}
    assert refusal(lambda: api.replace_status(made)) == [("status.seen", "Invalid value: 0: failed rule: self > 0")]


def test_a_rule_that_comes_later_leaves_what_is_stored_alone_until_it_changes(client: Client) -> None:
    spec: dict[str, Any] = {"type": "object", "properties": {"size": INTEGER, "note": TEXT}}
    api = served(client, definition(spec))
    api.create(thing({"size": 9}))
    spec["properties"]["size"] = {**INTEGER, "x-kubernetes-validations": [{"rule": "self < 5"}]}
    crds = Api.all(client, CustomResourceDefinition)
    crd = crds.get("things.rules.example.com")
    crd["spec"]["versions"] = definition(spec)["spec"]["versions"]
    crds.replace(crd)
    held = api.get("a")
    held["spec"]["note"] = "n"
    deadline = time.monotonic() + 20
    while "spec.size" not in str(_try(api, thing({"size": 9}))) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert api.replace(held)["spec"] == {"size": 9, "note": "n"}
    assert refusal(lambda: api.create({**thing({"size": 9}), "metadata": {"name": "b"}}))[0][0] == "spec.size"


def _try(api: Api[Any], body: dict[str, Any]) -> str:
    try:
        api.create({**body, "metadata": {"generateName": "c-"}})
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("node", "value", "told"), [
    ({**INTEGER, "format": "int32"}, 2**31, [
        ("<nil>", 'Invalid value: "": Checked value must be of type integer with format int32 in spec.x')]),
    ({**INTEGER, "format": "int32"}, -2**31 - 1, [
        ("<nil>", 'Invalid value: "": Checked value must be of type integer with format int32 in spec.x')]),
    ({**INTEGER, "format": "int32", "maximum": 4294967295}, 1, [
        ("<nil>", 'Invalid value: "": Maximum boundary value must be of type integer with format int32 in spec.x')]),
    ({**INTEGER, "format": "int64"}, 2**63, [
        ("spec.x", 'Invalid value: "float64": spec.x in body must be of type int64: "float64"'),
        ("<nil>", 'Invalid value: "": Checked value must be of type integer with format int64 in spec.x')]),
    ({**INTEGER, "format": "int64"}, 2**63 - 1, []), ({**INTEGER, "format": "int32"}, -2**31, []),
    ({**INTEGER, "maximum": 4294967295}, 4294967295, [])])
def test_integers_have_to_fit_their_format(client: Client, node: dict[str, Any], value: int,
                                           told: list[tuple[str, str]]) -> None:
    api = served(client, definition({"type": "object", "properties": {"x": node}}))
    if told:
        assert refusal(lambda: api.create(thing({"x": value}))) == told
    else:
        assert api.create(thing({"x": value}))["spec"] == {"x": value}


@pytest.mark.parametrize("pattern", ["^(?=a).*$", "(?<!b)c", r"(a)\1", "a(?!b)", "(?>a)b", "a++"])
def test_a_pattern_that_re2_does_not_know_is_refused(client: Client, pattern: str) -> None:
    crds = Api.all(client, CustomResourceDefinition)
    [(field, message)] = refusal(lambda: crds.create(definition({"type": "object", "properties": {
        "x": {"type": "array", "items": {"type": "string", "pattern": pattern}}}})))
    assert field == "spec.validation.openAPIV3Schema.properties[spec].properties[x].items.pattern"
    assert "must be a valid regular expression, but isn't: error parsing regexp:" in message


@pytest.mark.parametrize(("items", "accepted"), [
    ({"type": "object", "properties": {"a": TEXT}}, False), ({"type": "array", "items": TEXT}, True),
    ({"type": "object", "properties": {"a": TEXT}, "x-kubernetes-map-type": "granular"}, False),
    ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, False), ({**TEXT, "nullable": True}, False),
    ({"type": "object", "properties": {"a": TEXT}, "x-kubernetes-map-type": "atomic"}, True), (TEXT, True)])
def test_a_set_holds_what_can_be_compared_as_a_whole(client: Client, items: dict[str, Any], accepted: bool) -> None:
    crd = definition({"type": "object", "properties": {
        "x": {"type": "array", "x-kubernetes-list-type": "set", "items": items}}})
    crds = Api.all(client, CustomResourceDefinition)
    if accepted:
        assert crds.create(crd).name == "things.rules.example.com"
    else:
        [(field, _)] = refusal(lambda: crds.create(crd))
        assert field.startswith("spec.validation.openAPIV3Schema.properties[spec].properties[x].items.")


def test_a_patch_does_not_make_another_kind_of_an_object_and_of_a_status_its_kind_does_not_count(
        client: Client) -> None:
    api = served(client, definition({"type": "object"}, {"type": "object", "properties": {"seen": INTEGER}}))
    api.create({"metadata": {"name": "a"}, "spec": {}})
    foreign = {"kind": "Other", "apiVersion": "x/v1"}
    with pytest.raises(ApiError) as found:
        api.patch("a", Patch.merge(foreign))
    assert [(cause.field, cause.message) for cause in found.value.status.details.causes] == [
        ("kind", 'Invalid value: "Other": must be Thing'),
        ("apiVersion", 'Invalid value: "x/v1": must be rules.example.com/v1')]
    assert found.value.status.message.startswith('Other.x "a" is invalid')
    written = api.patch_status("a", Patch.merge({**foreign, "status": {"seen": 3}}))
    assert (written.kind, written.api_version, written["status"]) == ("Thing", "rules.example.com/v1", {"seen": 3})


def test_a_status_is_looked_at_on_its_own(client: Client) -> None:
    api = served(client, definition({"type": "object"}, {"type": "object", "properties": {"seen": INTEGER}}))
    api.create({"metadata": {"name": "a"}, "spec": {}})
    assert refusal(lambda: api.patch_status("a", Patch.merge({"status": {"seen": "x"}}))) == [
        ("status.seen", 'Invalid value: "string": seen in body must be of type integer: "string"')]


NUMBERS = {"type": "object", "x-kubernetes-validations": [{"rule": "self.free != 'x'"}], "properties": {
    "ruled": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 9"}]},
    "whole": INTEGER, "number": {"type": "number"}, "free": TEXT,
    "plain": {"type": "array", "items": INTEGER},
    "list": {"type": "array", "items": INTEGER, "maxItems": 9,
             "x-kubernetes-validations": [{"rule": "self.exists(n, n == 1)", "message": "has one"}]},
    "either": {"x-kubernetes-int-or-string": True,
               "x-kubernetes-validations": [{"rule": "type(self) != int || self > 0"}]},
    "object": {"type": "object", "properties": {"a": INTEGER, "b": INTEGER},
               "x-kubernetes-validations": [{"rule": "self.a > 0"}, {"rule": "self.b > 0"}]}}}


class Sender:
    """A server core with a definition, which takes bodies as text."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.core = KindApi()
        assert self.core("POST", DEFINITIONS, definition(spec)).status == 201
        while (due := self.core.core.next_wakeup()) is not None and due <= self.core.clock.monotonic():
            self.core.core.tick()

    def __call__(self, fields: str, method: str = "POST", media: str = "application/json", name: str = "a") -> Answer:
        body = (f'{{"apiVersion": "rules.example.com/v1", "kind": "Thing", "metadata": {{"name": "{name}"}}, '
                f'"spec": {{"free": "y", {fields}}}}}')
        path = THINGS if method == "POST" else f"{THINGS}/{name}"
        return self.core(method, path, body.encode(), query={"fieldManager": "me"}, content_type=media)


@pytest.mark.parametrize(("fields", "messages"), [
    ('"ruled": 1.0', {"spec.ruled": 'Invalid value: "integer": invalid data, expected int, got float64 evaluating '
                                    "rule: self < 9"}),
    ('"ruled": 1e0', {"spec.ruled": 'Invalid value: "integer": invalid data, expected int, got float64 evaluating '
                                    "rule: self < 9"}),
    ('"list": [2, 1.0]', {"spec.list": 'Invalid value: "array": invalid data, expected int, got float64 evaluating '
                                       "rule: has one"}),
    ('"either": 1.0', {"spec.either": 'Invalid value: "": invalid data, expected XIntOrString value to be either a '
                                      "string or integer evaluating rule: type(self) != int || self > 0"}),
    ('"object": {"a": 1.0, "b": 1}', {"spec.object": 'Invalid value: "object": invalid data, expected int, got float64 '
                                                     "evaluating rule: self.a > 0"}),
])
def test_a_rule_takes_no_float_for_an_integer(fields: str, messages: dict[str, str]) -> None:
    refused = Sender(NUMBERS)(fields)
    assert refused.status == 422
    assert dict(refused.causes()) == messages


@pytest.mark.parametrize(("field", "sent", "answered"), [
    ("whole", "1.0", "1"), ("number", "1.0", "1"), ("number", "1e3", "1000"), ("number", "1.50", "1.5"),
    ("number", str(2 ** 70), "1.1805916207174113e+21"), ("number", str(2 ** 64), "18446744073709552000"),
    ("number", "1e21", "1e+21"), ("number", str(2 ** 63 - 1), str(2 ** 63 - 1)), ("plain", "[1.0, 2]", "[1, 2]"),
])
def test_numbers_are_answered_as_the_server_writes_them(field: str, sent: str, answered: str) -> None:
    send, fields = Sender(NUMBERS), f'"{field}": {sent}'
    patch = "application/merge-patch+json"
    for answer in (send(fields), send.core("GET", f"{THINGS}/a"), send(fields, "PATCH", patch)):
        assert answer.status in (200, 201)
        assert str(answer.body["spec"][field]) == answered


@pytest.mark.parametrize("fields", ['"ruled": 1.0', '"list": [1.0]', '"either": 2.0'])
def test_yaml_has_no_float_that_is_whole(fields: str) -> None:
    send = Sender(NUMBERS)
    assert send(fields, "PATCH", "application/apply-patch+yaml").status == 201
    assert send(fields, media="application/yaml", name="b").status == 201


def costly(longest: int | None = None, **limits: int) -> dict[str, Any]:
    items = TEXT if longest is None else {**TEXT, "maxLength": longest}
    names = {"type": "array", "items": items, **limits, "x-kubernetes-validations": [
        {"rule": "self.all(a, self.exists_one(b, a == b))", "message": "twice"}]}
    return {"type": "object", "properties": {"names": names}}


def spec_of(crd: dict[str, Any]) -> dict[str, Any]:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]  # type: ignore[no-any-return]


def test_a_definition_whose_rules_cost_too_much_is_refused_until_its_lists_are_limited(client: Client) -> None:
    definitions = Api.all(client, CustomResourceDefinition)
    rule = "spec.validation.openAPIV3Schema.properties[spec].properties[names].x-kubernetes-validations[0].rule"
    found = refusal(lambda: definitions.create(definition(costly())))
    assert [field for field, _ in found] == [rule, rule, "spec.validation.openAPIV3Schema"]
    assert "estimated rule cost exceeds budget by factor of more than 100x" in found[0][1]
    definitions.create(definition(costly(63, maxItems=9)))
    assert len(refusal(lambda: definitions.patch("things.rules.example.com", Patch.json([{"op": "replace", "path": (
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec"), "value": costly()}])))) == 3


def test_a_stored_schema_may_keep_a_rule_that_costs_too_much_alone_but_not_all_together() -> None:
    label = Patch.merge({"metadata": {"labels": {"a": "b"}}})
    with ApiServer() as server, server.client() as client:
        definitions = Api.all(client, CustomResourceDefinition)
        definitions.create(definition(costly(63, maxItems=9)))
        stored = definitions.get("things.rules.example.com").to_dict()
        spec_of(stored)["spec"] = costly(100, maxItems=1000)
        stored["metadata"].pop("resourceVersion")
        [(_, why)] = refusal(lambda: definitions.patch("things.rules.example.com", Patch.merge(stored)))
        assert "estimated rule cost exceeds budget by factor of" in why
        server.implant([stored])
        assert definitions.patch("things.rules.example.com", label).labels == {"a": "b"}
        spec_of(stored)["spec"] = costly()
        server.implant([stored])
        assert len(refusal(lambda: definitions.patch("things.rules.example.com", label))) == 2
