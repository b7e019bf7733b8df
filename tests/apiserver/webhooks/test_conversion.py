"""Conversion webhooks: reads, writes, lists and watches of custom resources in a version that is not the stored one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime.apiserver.wire import HttpRequest
from tests.apiserver.webhooks.hooked import Hooked, set_to

Object = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLACE = "https://convert.test/widgets"
FAILED = "conversion webhook for example.com/{}, Kind=Widget "


class Widgets(Hooked):
    """Widgets, whose `spec.size` of v1 is `spec.length` in v2; stored as v1, converted by `convert`."""

    def __init__(self, storage: str = "v1", **options: Any) -> None:
        super().__init__(**options)
        self.conversions: list[Object] = []
        self.convert: Callable[[Object, str], Any] = between
        self.respond: Callable[[Object, list[Any]], Object] = respond
        self.server.mount_webhook(PLACE, self._converts)
        created = self("POST", DEFINITIONS, definition(storage))
        assert created.status == 201, created.body

    def path(self, version: str, name: str = "", subresource: str = "") -> str:
        return "/".join(filter(None, (f"/apis/example.com/{version}/namespaces/default/widgets", name, subresource)))

    def make(self, version: str, name: str = "a", **spec: Any) -> Any:
        return self("POST", self.path(version), {"apiVersion": f"example.com/{version}", "kind": "Widget",
                                                 "metadata": {"name": name}, "spec": spec})

    def _converts(self, environ: Object, start_response: Any) -> list[bytes]:
        review = json.loads(environ["wsgi.input"].read())
        self.conversions.append(review)
        wanted = review["request"]["desiredAPIVersion"]
        found = [self.convert(obj, wanted) for obj in review["request"]["objects"]]
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self.respond(review, found)).encode()]


def definition(storage: str = "v1", *, url: str = PLACE, **conversion: Any) -> Object:
    integer = {"type": "integer"}

    def version(name: str, field: str) -> Object:
        spec = {"type": "object", "properties": {field: integer, "color": {"type": "string"}}}
        return {"name": name, "served": True, "storage": name == storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec, "status": {"type": "object", "properties": {"seen": integer}}}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": f".spec.{field}",
                                                         "statusReplicasPath": ".status.seen"}}}

    webhook = {"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"], **conversion}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                     "versions": [version("v1", "size"), version("v2", "length")],
                     "conversion": {"strategy": "Webhook", "webhook": webhook}}}


def between(obj: Object, wanted: str) -> Object:
    """An object in the other version."""
    names = ("size", "length") if wanted.endswith("v2") else ("length", "size")
    spec = dict(obj.get("spec") or {})
    if names[0] in spec:
        spec[names[1]] = spec.pop(names[0])
    return {**obj, "apiVersion": wanted, "spec": spec}


def respond(review: Object, objects: list[Any]) -> Object:
    """The answer to a review."""
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}}


@pytest.fixture
def api() -> Widgets:
    return Widgets()


def test_the_stored_version_is_read_and_written_without_a_webhook(api: Widgets) -> None:
    api.respond = lambda *_: {"response": None}
    api.make("v1", size=1)
    assert api("GET", api.path("v1", "a")).body["spec"] == {"size": 1}
    assert api.merge(api.path("v1", "a"), {"spec": {"size": 2}}).status == 200
    assert api("GET", api.path("v1")).body["items"][0]["spec"] == {"size": 2}
    assert api("DELETE", api.path("v1", "a")).status == 200
    assert [review["request"]["desiredAPIVersion"] for review in api.conversions] == ["example.com/v2"] * 2  # the cache


def test_another_version_is_written_as_the_stored_one_and_read_back(api: Widgets) -> None:
    made = api.make("v2", length=3)
    assert (made.status, made.body["apiVersion"], made.body["spec"]) == (201, "example.com/v2", {"length": 3})
    assert api("GET", api.path("v1", "a")).body["spec"] == {"size": 3}
    assert api("GET", api.path("v2", "a")).body["spec"] == {"length": 3}
    written = api.conversions[0]
    assert (written["kind"], written["apiVersion"]) == ("ConversionReview", "apiextensions.k8s.io/v1")
    assert written["request"]["desiredAPIVersion"] == "example.com/v1"
    (sent,) = written["request"]["objects"]
    assert (sent["apiVersion"], sent["kind"], sent["spec"]) == ("example.com/v2", "Widget", {"length": 3})
    assert "resourceVersion" not in sent["metadata"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_updates_patches_and_applies_are_in_the_version_of_the_request(api: Widgets, version: str) -> None:
    field = "size" if version == "v1" else "length"
    api.make("v1", size=1, color="red")
    current = api("GET", api.path(version, "a")).body
    current["spec"][field] = 2
    assert api("PUT", api.path(version, "a"), current).body["spec"] == {field: 2, "color": "red"}
    assert api.merge(api.path(version, "a"), {"spec": {field: 3}}).body["spec"] == {field: 3, "color": "red"}
    applied = api("PATCH", api.path(version, "a"), {
        "apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"color": "blue"}},
        [("fieldManager", "me"), ("force", "true")], content_type="application/apply-patch+yaml")
    assert applied.body["spec"] == {field: 3, "color": "blue"}
    assert api("GET", api.path("v1", "a")).body["spec"] == {"size": 3, "color": "blue"}
    assert api("GET", api.path("v1", "a")).body["metadata"]["generation"] == 4


def test_status_and_scale_are_converted_too(api: Widgets) -> None:
    api.make("v1", size=1)
    assert api.merge(api.path("v2", "a", "status"), {"status": {"seen": 1}}).body["status"] == {"seen": 1}
    assert api("GET", api.path("v2", "a", "scale")).body["spec"] == {"replicas": 1}
    assert api.merge(api.path("v2", "a", "scale"), {"spec": {"replicas": 5}}).body["spec"] == {"replicas": 5}
    assert api("GET", api.path("v1", "a")).body["spec"] == {"size": 5}


def test_a_list_is_converted_in_one_review(api: Widgets) -> None:
    for number, name in enumerate("abc"):
        api.make("v1", name, size=number)
    api.conversions.clear()
    items = api("GET", api.path("v2")).body["items"]
    assert [(item["apiVersion"], item["metadata"]["name"], item["spec"]) for item in items] == [
        ("example.com/v2", name, {"length": number}) for number, name in enumerate("abc")]
    (review,) = api.conversions
    assert len(review["request"]["objects"]) == 3
    assert api("GET", "/apis/example.com/v2/namespaces/none/widgets").body["items"] == []
    assert len(api.conversions) == 1


@pytest.mark.parametrize("accept", ["Table", "PartialObjectMetadataList"])
def test_other_forms_of_a_list_are_made_of_converted_objects(api: Widgets, accept: str) -> None:
    api.make("v1", size=1)
    api.convert = lambda obj, wanted: {**between(obj, wanted), "metadata": {**obj["metadata"],
                                                                            "labels": {"converted": "yes"}}}
    answer = api("GET", api.path("v2"), accept=f"application/json;as={accept};g=meta.k8s.io;v=v1").body
    found = answer["rows"][0]["object"] if accept == "Table" else answer["items"][0]
    assert found["metadata"]["labels"] == {"converted": "yes"}


def watch(api: Widgets, version: str, **query: str) -> Any:
    response = api.server.core.handle(HttpRequest(
        "GET", api.path(version), [("watch", "true"), *query.items()], {}, b""))
    assert response.stream is not None, response.body
    return response.stream


def events(stream: Any) -> list[tuple[str, Any]]:
    lines = []
    while chunk := stream.poll():
        lines += [json.loads(line) for line in chunk.splitlines()]
    return [(line["type"], line["object"].get("spec")) for line in lines]


def test_a_watch_shows_its_version(api: Widgets) -> None:
    api.make("v1", "a", size=1)
    stream = watch(api, "v2")
    assert events(stream) == [("ADDED", {"length": 1})]
    api.make("v2", "b", length=2)
    api.merge(api.path("v1", "a"), {"spec": {"size": 3}})
    api("DELETE", api.path("v1", "a"))
    assert events(stream) == [("ADDED", {"length": 2}), ("MODIFIED", {"length": 3}), ("DELETED", {"length": 3})]


def test_a_watch_ends_when_an_object_cannot_be_converted(api: Widgets, caplog: pytest.LogCaptureFixture) -> None:
    stream, stored = watch(api, "v2"), watch(api, "v1")
    api.make("v1", "a", size=1)
    assert events(stream) == [("ADDED", {"length": 1})]
    api.respond = lambda *_: {"response": None}
    api.make("v1", "b", size=2)
    assert (events(stream), stream.closed) == ([], True)
    assert "ending a watch of widgets.example.com in v2: conversion webhook for example.com/v1" in caplog.text
    assert (len(events(stored)), stored.closed) == (2, False)
    again = api("GET", api.path("v2"), None, [("watch", "true")])
    assert again.status == 500
    api.respond = respond
    assert events(watch(api, "v2")) == [("ADDED", {"length": 1}), ("ADDED", {"length": 2})]


@pytest.mark.parametrize("first", ["write", "list", "get", "watch"])
def test_a_list_is_answered_from_the_cache_while_the_webhook_fails(api: Widgets, first: str) -> None:
    api.make("v1", "a", size=1)
    if first == "watch":
        assert events(watch(api, "v2")) == [("ADDED", {"length": 1})]
    elif first != "write":
        api("GET", api.path("v2", "a" if first == "get" else ""))
    api.respond = lambda *_: {"response": None}
    items = api("GET", api.path("v2")).body["items"]
    assert [(item["apiVersion"], item["spec"]) for item in items] == [("example.com/v2", {"length": 1})]
    assert events(watch(api, "v2")) == [("ADDED", {"length": 1})]
    assert api("GET", api.path("v2", "a")).status == 500  # which a real server reads from etcd
    api.merge(api.path("v1", "a"), {"spec": {"size": 2}})
    assert api("GET", api.path("v2")).status == 500  # this state was never converted
    api.respond = respond
    assert api("GET", api.path("v2")).body["items"][0]["spec"] == {"length": 2}


def test_what_is_written_while_the_webhook_fails_is_not_tried_again_until_it_is_read(api: Widgets) -> None:
    api.respond = lambda *_: {"response": None}
    for name in "abc":
        api.make("v1", name, size=1)
    assert len(api.conversions) == 3
    api.respond = respond
    api.make("v1", "d", size=1)
    api.respond = lambda *_: {"response": None}
    assert api("GET", api.path("v2")).status == 500
    assert [item["metadata"]["name"] for item in api("GET", api.path("v2"), None, [
        ("fieldSelector", "metadata.name=d")]).body["items"]] == ["d"]


def test_the_cache_of_a_list_ends_with_the_definition(api: Widgets) -> None:
    api.make("v1", "a", size=1)
    assert api("GET", api.path("v2")).status == 200
    changed = definition(conversionReviewVersions=["v1", "v1beta1"])
    api.merge(f"{DEFINITIONS}/widgets.example.com", {"spec": changed["spec"]})
    api.respond = lambda *_: {"response": None}
    assert api("GET", api.path("v2")).status == 500


def test_what_is_preserved_is_put_back_and_labels_and_annotations_may_change(api: Widgets) -> None:
    api.make("v1", size=1)
    before = api("GET", api.path("v1", "a")).body["metadata"]

    def convert(obj: Object, wanted: str) -> Object:
        meta = {"name": "a", "namespace": "default", "uid": obj["metadata"]["uid"], "labels": {"l": "1"},
                "annotations": {"a": "2"}, "generation": 99, "finalizers": ["x"]}
        return {**between(obj, wanted), "metadata": meta}

    api.convert = convert
    assert api("GET", api.path("v2", "a")).body["metadata"] == {**before, "labels": {"l": "1"},
                                                                "annotations": {"a": "2"}}


def test_fields_that_the_version_does_not_have_are_pruned(api: Widgets) -> None:
    api.make("v1", size=1)
    api.convert = lambda obj, wanted: {**between(obj, wanted), "extra": 1}
    assert "extra" not in api("GET", api.path("v2", "a")).body


def changed(**fields: Any) -> Callable[[Object, str], Object]:
    return lambda obj, wanted: {**between(obj, wanted), **fields}


def renamed(**fields: Any) -> Callable[[Object, str], Object]:
    return lambda obj, wanted: {**between(obj, wanted), "metadata": {**obj["metadata"], **fields}}


@pytest.mark.parametrize(("convert", "why"), [
    (changed(apiVersion="example.com/v3"),
     "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)"),
    (changed(kind="Gadget"), "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)"),
    (changed(metadata=None), "returned invalid object: must have the same name: a != "),
    (renamed(name="b"), "returned invalid object: must have the same name: a != b"),
    (renamed(namespace=""), "returned invalid object: must have the same namespace: default != "),
    (renamed(uid="x"), "returned invalid object: must have the same UID: OWN != x"),
    (renamed(labels={"a b": "c"}), "returned invalid metadata: metadata.labels: Invalid value: \"a b\": "),
    (renamed(labels={"a": 1}),
     "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object"),
    (renamed(annotations=[]),
     "returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object"),
    (lambda *_: "text", "returned invalid object at index 0: "),
])
def test_an_object_that_is_another_one_is_refused(api: Widgets, convert: Any, why: str) -> None:
    uid = api.make("v1", size=1).body["metadata"]["uid"]
    api.convert = convert
    refused = api("GET", api.path("v2", "a"))
    assert refused.status == 500
    assert refused.body["message"].startswith(FAILED.format("v1") + why.replace("OWN", uid))
    assert "reason" not in refused.body


@pytest.mark.parametrize(("answer", "why"), [
    (lambda review, objects: respond(review, []), "returned 0 objects, expected 1"),
    (lambda review, objects: {}, "failed: expected webhook response of apiextensions.k8s.io/v1, "
                                 "Kind=ConversionReview, got /, Kind="),
    (lambda review, objects: {**respond(review, objects), "response": None}, "failed: no response provided"),
    (lambda review, objects: {**respond(review, objects), "response": {
        "uid": "x", "result": {"status": "Success"}}}, 'failed: expected response.uid="'),
    (lambda review, objects: {**respond(review, objects), "response": {
        "uid": review["request"]["uid"], "result": {"status": "Failure", "message": "too old"}}}, "failed: too old"),
    (lambda review, objects: {**respond(review, objects), "response": {
        "uid": review["request"]["uid"], "result": {"status": "Failure"}}},
     "failed: response.result.status was 'Failure', not 'Success'"),
])
def test_a_review_that_says_no_is_refused(api: Widgets, answer: Any, why: str) -> None:
    api.respond = answer
    api.make("v1", size=1)
    refused = api("GET", api.path("v2", "a"))
    assert refused.body["message"].startswith(FAILED.format("v1") + why)
    assert api("GET", api.path("v2")).body["message"].startswith(FAILED.format("v1") + why)


def test_in_a_list_the_wrong_object_is_named_by_its_place(api: Widgets) -> None:
    api.convert = lambda obj, wanted: between(obj, wanted if obj["metadata"]["name"] == "a" else "example.com/v3")
    for name in "ab":
        api.make("v1", name, size=1)
    assert api("GET", api.path("v2")).body["message"] == (
        FAILED.format("v1") + "returned invalid converted object at index 1: invalid groupVersion (expected "
                              "example.com/v2, received example.com/v3)")


def test_nothing_is_written_or_deleted_when_the_webhook_fails(api: Widgets) -> None:
    api.make("v1", size=1, color="red")
    before = api("GET", api.path("v1", "a")).body
    api.respond = lambda *_: {"response": None}
    message = api.make("v2", "b", length=1).body["message"]
    assert message.startswith(FAILED.format("v2") + "failed: ")
    for write in (lambda: api.merge(api.path("v2", "a"), {"spec": {"length": 2}}),
                  lambda: api("PUT", api.path("v2", "a"), {**before, "apiVersion": "example.com/v2"}),
                  lambda: api("DELETE", api.path("v2", "a")), lambda: api("DELETE", api.path("v2")),
                  lambda: api.merge(api.path("v2", "a", "status"), {"status": {"seen": 1}})):
        assert write().body["message"].startswith(FAILED.format("v1") + "failed: ")
    assert api("GET", api.path("v1")).body["items"] == [before]


def test_a_dry_run_does_not_convert_what_it_does_not_store(api: Widgets) -> None:
    dry = api("POST", api.path("v2"), {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "a"},
                                       "spec": {"length": 1}}, [("dryRun", "All")])
    assert (dry.status, dry.body["spec"], api.conversions) == (201, {"length": 1}, [])


def test_what_was_stored_stays_as_it_is_until_it_is_written_again(api: Widgets) -> None:
    made = api.make("v1", size=1).body
    api.conversions.clear()
    current = api("GET", f"{DEFINITIONS}/widgets.example.com").body
    for version in current["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    assert api("PUT", f"{DEFINITIONS}/widgets.example.com", current).status == 200
    assert api("GET", api.path("v1", "a")).body == made
    assert api.conversions == []
    assert api("GET", api.path("v2", "a")).body["spec"] == {"length": 1}
    assert len(api.conversions) == 1
    again = api("PUT", api.path("v1", "a"), made).body  # an update that changes nothing stores it as v2
    assert again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert again["metadata"]["generation"] == 1
    api.conversions.clear()
    assert api("GET", api.path("v2", "a")).body["spec"] == {"length": 1}
    assert api.conversions == []


def test_snapshots_remember_as_what_objects_are_stored(api: Widgets) -> None:
    api.make("v1", size=1)
    state = api.server.snapshot()
    api("DELETE", api.path("v1", "a"))
    api.server.restore(state)
    assert api("GET", api.path("v2", "a")).body["spec"] == {"length": 1}


def test_a_definition_that_changes_its_webhook_is_served_anew(api: Widgets) -> None:
    api.make("v1", size=1)
    stream = watch(api, "v2")
    events(stream)
    assert api.merge(f"{DEFINITIONS}/widgets.example.com", {"spec": {"conversion": {"webhook": {"clientConfig": {
        "url": "https://other.test/"}}}}}).status == 200
    assert (events(stream), stream.closed) == ([], True)

    def other(_environ: Object, start_response: Any) -> list[bytes]:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"later"]

    api.server.mount_webhook("https://other.test", other)
    assert api("GET", api.path("v2", "a")).body["message"] == (
        FAILED.format("v1") + "failed: the server is currently unable to handle the request")


def test_v1beta1_is_spoken_where_it_comes_first() -> None:
    api = Widgets()
    changes = {"spec": {"conversion": {"webhook": {"conversionReviewVersions": ["v2", "v1beta1"]}}}}
    api.merge(f"{DEFINITIONS}/widgets.example.com", changes)
    api.respond = lambda review, objects: {"response": {**respond(review, objects)["response"], "uid": ""}}
    assert api.make("v2", length=1).body["spec"] == {"length": 1}
    assert api.conversions[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"


def test_a_write_that_was_overtaken_while_it_was_converted_begins_anew(api: Widgets) -> None:
    api.make("v1", size=1)
    left = [True]

    def convert(obj: Object, wanted: str) -> Object:
        if wanted == "example.com/v1" and left:
            left.pop()
            assert api.merge(api.path("v1", "a"), {"spec": {"color": "blue"}}).status == 200
        return between(obj, wanted)

    api.convert = convert
    assert api.merge(api.path("v2", "a"), {"spec": {"length": 7}}).body["spec"] == {"length": 7, "color": "blue"}
    left.append(True)
    put = api("GET", api.path("v2", "a")).body
    assert api("PUT", api.path("v2", "a"), {**put, "spec": {"length": 8}}).status == 200  # the blue was there already
    left.append(True)
    api.convert = lambda obj, wanted: (left and wanted.endswith("v1") and left.pop()
                                       and api.merge(api.path("v1", "a"), {"spec": {"color": "red"}}),
                                       between(obj, wanted))[1]
    put = api("GET", api.path("v2", "a")).body
    assert api("PUT", api.path("v2", "a"), {**put, "spec": {"length": 9}}).status == 409


def test_an_object_that_came_while_another_of_its_name_was_converted_is_in_the_way(api: Widgets) -> None:
    left = [True]

    def convert(obj: Object, wanted: str) -> Object:
        if left:
            left.pop()
            api.make("v1", "a", size=1)
        return between(obj, wanted)

    api.convert = convert
    assert api.make("v2", "a", length=2).status == 409
    assert api("GET", api.path("v1", "a")).body["spec"] == {"size": 1}


def test_admission_webhooks_are_shown_the_version_that_their_rule_names(api: Widgets) -> None:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["widgets"], "operations": ["*"]}
    api.hook("m", lambda _: set_to("/spec/length", 9), mutating=True, rules=[rule])
    api.hook("v", rules=[rule])
    made = api.make("v1", size=1)
    assert made.body["spec"] == {"size": 9}
    assert [asked["object"]["spec"] for asked in api.asked()] == [{"length": 1}, {"length": 9}]
    api.respond = lambda *_: {"response": None}
    refused = api.make("v1", "b", size=1)
    assert refused.body["message"].startswith("Internal error occurred: " + FAILED.format("v1") + "failed: ")


def test_a_definition_that_goes_needs_no_webhook_for_its_instances(api: Widgets) -> None:
    api.make("v1", size=1)
    api.respond = lambda *_: {"response": None}
    assert api("DELETE", f"{DEFINITIONS}/widgets.example.com").status == 200
    assert api("GET", f"{DEFINITIONS}/widgets.example.com").status == 404


def test_without_a_webhook_versions_differ_by_their_schemas_only() -> None:
    api = Widgets()
    api.merge(f"{DEFINITIONS}/widgets.example.com", {"spec": {"conversion": {"strategy": "None", "webhook": None}}})
    api.make("v1", size=1, color="red")
    assert api("GET", api.path("v2", "a")).body["spec"] == {"color": "red"}
    assert api.make("v2", "b", length=1, color="blue").body["spec"] == {"color": "blue"}
    assert api.conversions == []
