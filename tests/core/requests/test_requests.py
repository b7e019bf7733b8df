"""What goes over the wire for each verb."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.requests import pods
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import (
    DeleteParams,
    GetParams,
    ListParams,
    Patch,
    PatchParams,
    PostParams,
    Preconditions,
    WatchParams,
    pointer,
)
from kubectl_runtime.core.requests.pods import AttachParams, LogParams
from kubectl_runtime.core.requests.request import METADATA, METADATA_LIST, Place, Request, Retry
from tests.core.examples import DEPLOYMENTS, NODES, PODS, Widget, metadata, widget

CLUSTER_ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Scope.CLUSTER)
PLACE = Place(PODS, "ns")
WIDGETS = Place(Widget.api_resource, "ns")


def query(request: Request) -> dict[str, str]:
    return dict(request.query)


def header(request: Request, name: str) -> str | None:
    return dict(request.headers).get(name)


def body(request: Request) -> Any:
    return msgspec.json.decode(request.body or b"null")


@pytest.mark.parametrize(("place", "name", "subresource", "path"), [
    (Place(PODS, "ns"), "a", None, "/api/v1/namespaces/ns/pods/a"),
    (Place(PODS), None, None, "/api/v1/pods"),
    (Place(DEPLOYMENTS, "ns"), "a", "scale", "/apis/apps/v1/namespaces/ns/deployments/a/scale"),
    (Place(NODES), "n", "status", "/api/v1/nodes/n/status"),
    (Place(CLUSTER_ROLES), "system:foo:bar", None,
     "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:foo:bar"),
    (Place(PODS, "ns"), "a.b.c", None, "/api/v1/namespaces/ns/pods/a.b.c"),
    (Place(CLUSTER_ROLES), "50?#ü", None, "/apis/rbac.authorization.k8s.io/v1/clusterroles/50%3F%23%C3%BC"),
])
def test_paths(place: Place, name: str | None, subresource: str | None, path: str) -> None:
    assert place.path(name, subresource) == path


def test_operations_are_said_in_words() -> None:
    assert build.get(PLACE, "a").operation == "get pods ns/a"
    assert build.get(Place(DEPLOYMENTS, "ns"), "a",
                        subresource="scale").operation == "get deployments.apps/scale ns/a"
    assert build.list_(Place(PODS)).operation == "list pods in all namespaces"
    assert build.list_(Place(NODES)).operation == "list nodes"


def test_a_namespace_on_a_cluster_scoped_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="cluster-scoped"):
        Place(NODES, "ns")
    with pytest.raises(RequestError, match="empty"):
        Place(PODS, "")


@pytest.mark.parametrize("bad", ["..", ".", "a/b", "a%2fb", "a%b", "../../nodes"])
def test_no_segment_of_a_path_can_lead_elsewhere(bad: str) -> None:
    """A path that a proxy or the server would normalise reads another namespace than the one that was named."""
    for place in (lambda: Place(PODS, bad), lambda: Place(ApiResource("", "v1", "Pod", bad)),
                  lambda: Place(ApiResource("", bad, "Pod", "pods")),
                  lambda: Place(ApiResource(bad, "v1", "Pod", "pods"))):
        with pytest.raises(RequestError, match="would change the path"):
            place()
    for call in (lambda: build.get(PLACE, bad), lambda: build.get(PLACE, "a", subresource=bad),
                 lambda: build.delete(PLACE, bad), lambda: build.patch(PLACE, bad, Patch.merge({})),
                 lambda: build.patch(PLACE, "a", Patch.merge({}), subresource=bad),
                 lambda: build.create(PLACE, {}, name="a", subresource=bad),
                 lambda: build.create(PLACE, {}, name=bad, subresource="eviction"),
                 lambda: build.replace(PLACE, {"metadata": {"name": bad}}),
                 lambda: build.apply(PLACE, {"metadata": {"name": bad}}, PatchParams.apply("m"))):
        with pytest.raises(RequestError, match=r"ns/.*would change the path"):
            call()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb", None, 5, "\ud800"])
def test_what_cannot_be_a_name_is_refused_before_any_request(name: str) -> None:
    for verb in (build.get, build.delete):
        with pytest.raises(RequestError):
            verb(PLACE, name)
    with pytest.raises(RequestError):
        build.patch(PLACE, name, Patch.merge({}))


def test_what_is_no_parameters_is_named() -> None:
    with pytest.raises(RequestError, match=r"GetParams\(…\) is expected, not 'default'"):
        build.get(PLACE, "a", "default")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"ListParams\(…\) is expected, not 'a=b'"):
        build.list_(PLACE, "a=b")  # type: ignore[arg-type]


def test_an_object_of_a_namespaced_kind_needs_a_namespace() -> None:
    for verb in (lambda: build.get(Place(PODS), "a"),
                  lambda: build.create(Place(PODS), {"metadata": {"name": "a"}})):
        with pytest.raises(RequestError, match="a namespace is required"):
            verb()


def test_get() -> None:
    request = build.get(PLACE, "a", GetParams(resource_version="0"))
    assert (request.method, request.verb, request.target, request.body, request.retry) == (
        "GET", "get", "/api/v1/namespaces/ns/pods/a?resourceVersion=0", None, Retry.SAFE)
    assert header(request, "Accept") == "application/json"


def test_a_plain_list_says_nothing_of_versions() -> None:
    request = build.list_(PLACE)
    assert (request.query, request.verb) == ((), "list")


def test_a_list_from_the_cache_has_version_0_and_no_limit() -> None:
    assert query(build.list_(PLACE, ListParams(limit=5).match_any())) == {
        "resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}


def test_a_list_at_a_version_is_exact() -> None:
    assert query(build.list_(PLACE, ListParams(limit=5).at("20"))) == {
        "limit": "5", "resourceVersion": "20", "resourceVersionMatch": "Exact"}


def test_a_following_page_has_no_version_of_its_own() -> None:
    assert query(build.list_(PLACE, ListParams(limit=5).at("20").page("tok"))) == {"limit": "5", "continue": "tok"}
    assert query(build.list_(PLACE, ListParams(limit=5).match_any().page("tok"))) == {"limit": "5",
                                                                                         "continue": "tok"}


def test_selectors_and_timeouts_of_lists() -> None:
    params = ListParams(label_selector=Selector.labels(app="web") & Selector.is_in("tier", ["a", "b"]),
                        field_selector="spec.nodeName=n", timeout=timedelta(seconds=30))
    request = build.list_(PLACE, params)
    assert query(request) == {"labelSelector": "app=web,tier in (a,b)", "fieldSelector": "spec.nodeName=n",
                              "timeoutSeconds": "30"}
    assert "labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29" in request.target


@pytest.mark.parametrize("build", [
    lambda: ListParams(resource_version_match="Exact"),
    lambda: ListParams(resource_version="", resource_version_match="NotOlderThan"),
    lambda: ListParams(resource_version="0", resource_version_match="Exact"),
    lambda: ListParams(resource_version="1", resource_version_match="Newer"),  # type: ignore[arg-type]
    lambda: ListParams(limit=0),
    lambda: ListParams(limit="5"),  # type: ignore[arg-type]
    lambda: ListParams(limit=True),
    lambda: ListParams(timeout=0),
    lambda: WatchParams(timeout=-1),
    lambda: WatchParams(bookmarks=False, send_initial_events=True),
    lambda: PostParams(field_manager="x" * 129),
    lambda: PostParams(field_manager="a\nb"),
    lambda: PatchParams(field_validation="strict"),  # type: ignore[arg-type]
    lambda: PatchParams.apply(""),
    lambda: DeleteParams(propagation_policy="Later"),  # type: ignore[arg-type]
    lambda: DeleteParams(grace_period_seconds=-1),
])
def test_options_that_make_no_sense_are_refused(build: Any) -> None:
    with pytest.raises(RequestError):
        build()


def test_watch() -> None:
    request = build.watch(PLACE, WatchParams(timeout=400, label_selector="app=web"), "17")
    assert query(request) == {"watch": "true", "labelSelector": "app=web", "timeoutSeconds": "400",
                              "resourceVersion": "17"}
    assert header(request, "Accept-Encoding") == "identity"


def test_a_streaming_list_asks_for_initial_events() -> None:
    request = build.watch(PLACE, WatchParams(send_initial_events=True))
    assert query(request) == {"watch": "true", "allowWatchBookmarks": "true", "sendInitialEvents": "true",
                              "resourceVersionMatch": "NotOlderThan"}


@pytest.mark.parametrize(("bookmarks", "asked"), [(None, None), (False, None), (True, "true")])
def test_bookmarks_come_where_they_are_asked_for(bookmarks: bool | None, asked: str | None) -> None:
    assert query(build.watch(PLACE, WatchParams(bookmarks=bookmarks))).get("allowWatchBookmarks") == asked


def test_metadata_is_asked_for_by_the_accept_header() -> None:
    place = Place(PODS, "ns", metadata_only=True)
    assert header(build.get(place, "a"), "Accept") == METADATA
    assert header(build.list_(place), "Accept") == METADATA_LIST
    assert header(build.watch(place), "Accept") == METADATA
    patch = build.patch(place, "a", Patch.merge({"metadata": {"labels": {"a": "b"}}}))
    assert (header(patch, "Accept"), header(patch, "Content-Type")) == (METADATA, "application/merge-patch+json")


def test_create() -> None:
    request = build.create(PLACE, {"metadata": {"name": "a"}},
                              PostParams(dry_run=True, field_manager="m", field_validation="Strict"))
    assert (request.method, request.path, request.name, request.retry) == (
        "POST", "/api/v1/namespaces/ns/pods", "a", Retry.SAFE), "a dry run"
    assert query(request) == {"dryRun": "All", "fieldManager": "m", "fieldValidation": "Strict"}
    assert body(request) == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}


def test_create_takes_a_generated_name_but_not_none() -> None:
    assert build.create(PLACE, {"metadata": {"generateName": "a-"}}).name is None
    with pytest.raises(RequestError, match="neither a name nor a generateName"):
        build.create(PLACE, {})


@pytest.mark.parametrize("content", [
    {"kind": "Service", "metadata": {"name": "a"}},
    {"apiVersion": "v2", "metadata": {"name": "a"}},
    {"metadata": {"name": "a", "namespace": "other"}},
    {"metadata": "a"},
])
def test_a_body_that_is_of_something_else_is_refused(content: dict[str, Any]) -> None:
    for verb in (build.create, build.replace):
        with pytest.raises(RequestError):
            verb(PLACE, content)
    with pytest.raises(RequestError):
        build.patch(PLACE, "a", Patch.apply(content), PatchParams.apply("m"))


def test_replace_sends_the_version_that_guards_it() -> None:
    obj = widget(spec={"replicas": 1, "hidden": 2})
    obj.spec.replicas = 3
    request = build.replace(WIDGETS, obj, PostParams(field_manager="m"))
    assert (request.method, request.path, request.retry) == (
        "PUT", "/apis/demo.example.com/v1/namespaces/ns/widgets/a", Retry.UNSENT_ONLY)
    assert body(request)["metadata"]["resourceVersion"] == "5"
    assert body(request)["spec"] == {"replicas": 3, "hidden": 2}


def test_replace_of_a_status_goes_to_its_path() -> None:
    request = build.replace(WIDGETS, widget(status={"readyReplicas": 1}), subresource="status")
    assert request.path.endswith("/widgets/a/status")
    assert body(request)["kind"] == "Widget"


def test_replace_checks_the_name() -> None:
    with pytest.raises(RequestError, match="named 'a'"):
        build.replace(WIDGETS, widget("a"), name="b")


def test_apply_identifies_the_object_and_leaves_out_what_is_the_servers() -> None:
    bare = Widget.from_dict({"metadata": metadata(managedFields=[{"manager": "x"}], generateName="a-",
                                                  creationTimestamp="2026-01-01T00:00:00Z", selfLink="/a",
                                                  deletionTimestamp="2026-01-01T00:00:00Z",
                                                  deletionGracePeriodSeconds=30,
                                                  generation=3, labels={"a": "b"}), "spec": {"replicas": 2}})
    request = build.patch(WIDGETS, "a", Patch.apply(bare), PatchParams.apply("mgr").forced())
    assert (request.method, request.verb, request.retry) == ("PATCH", "apply", Retry.SAFE)
    assert header(request, "Content-Type") == "application/apply-patch+yaml"
    assert query(request) == {"fieldManager": "mgr", "force": "true"}
    assert body(request) == {"apiVersion": "demo.example.com/v1", "kind": "Widget", "spec": {"replicas": 2},
                             "metadata": {"name": "a", "namespace": "ns", "labels": {"a": "b"}}}


def test_apply_to_the_status_goes_to_its_path_with_its_own_body() -> None:
    obj = Widget(name="a", namespace="ns")
    obj["status"] = {"readyReplicas": 1}
    request = build.patch(WIDGETS, "a", Patch.apply(obj), PatchParams.apply("mgr"), subresource="status")
    assert request.path.endswith("/widgets/a/status")
    assert body(request)["status"] == {"readyReplicas": 1}


def test_apply_without_a_manager_is_refused() -> None:
    with pytest.raises(RequestError, match="field_manager"):
        build.patch(PLACE, "a", Patch.apply({}))


def test_a_patch_says_of_which_kind_it_is() -> None:
    with pytest.raises(RequestError, match=r"patch pods ns/a: a Patch is expected, not dict: use Patch\.merge"):
        build.patch(PLACE, "a", {"data": {}})  # type: ignore[arg-type]


def test_force_is_for_apply_only() -> None:
    with pytest.raises(RequestError, match="force"):
        build.patch(PLACE, "a", Patch.merge({}), PatchParams(force=True))


def test_apply_to_another_name_is_refused() -> None:
    with pytest.raises(RequestError, match="name is 'b'"):
        build.patch(PLACE, "a", Patch.apply({"metadata": {"name": "b"}}), PatchParams.apply("m"))


@pytest.mark.parametrize(("patch", "content_type"), [
    (Patch.merge({"spec": {}}), "application/merge-patch+json"),
    (Patch.merge({"metadata": {"resourceVersion": "5"}}), "application/merge-patch+json"),
    (Patch.strategic({"spec": {}}), "application/strategic-merge-patch+json"),
    (Patch.json([{"op": "remove", "path": "/a"}]), "application/json-patch+json"),
    (Patch.json([{"op": "test", "path": "/a", "value": 1}]), "application/json-patch+json"),
])
def test_patches_have_their_content_types_and_are_sent_once_unless_dry(patch: Patch, content_type: str) -> None:
    request = build.patch(PLACE, "a", patch, PatchParams(field_manager="m"))
    assert (header(request, "Content-Type"), request.retry, query(request)) == (
        content_type, Retry.UNSENT_ONLY, {"fieldManager": "m"})
    assert body(request) == patch.body
    assert build.patch(PLACE, "a", patch, PatchParams(dry_run=True)).retry is Retry.SAFE


UID = Preconditions(uid="u")
REVIEWS = Place(ApiResource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", Scope.CLUSTER))
RAW = "/apis/demo.example.com/v1/namespaces/ns/widgets/a"
APPLIES = (("Content-type", "application/apply-patch+yaml"),)


@pytest.mark.parametrize(("request_", "again"), [
    (build.delete(PLACE, "a"), False),
    (build.delete(PLACE, "a", DeleteParams(preconditions=UID)), True),
    (build.delete(PLACE, "a", DeleteParams(preconditions=Preconditions(uid="u", resource_version="5"))), False),
    (build.delete(PLACE, "a", DeleteParams(preconditions=Preconditions(resource_version="5"))), False),
    (build.delete(PLACE, "a", DeleteParams(dry_run=True)), True),
    (build.delete_collection(PLACE), False),
    (build.delete_collection(PLACE, DeleteParams(preconditions=UID)), False),
    (build.delete_collection(PLACE, DeleteParams(dry_run=True)), True),
    (pods.eviction(PLACE, "a", DeleteParams(preconditions=UID)), False),
    (pods.eviction(PLACE, "a", DeleteParams(dry_run=True)), True),
    (pods.exec_(PLACE, "a", ["ls"], AttachParams()), False),
    (pods.log(PLACE, "a", LogParams()), True),
    (build.create(REVIEWS, {"spec": {}}), True),
    (build.apply(PLACE, {"metadata": {"name": "a"}}, PatchParams.apply("m")), True),
    (build.apply(PLACE, {"metadata": {"resourceVersion": "5"}}, PatchParams.apply("m"), name="a", subresource="odd"),
     False),
    (Request("POST", RAW, "create", None), False),
    (Request("POST", RAW, "create", None, retry=Retry.SAFE), True),
    (Request("PUT", RAW, "update", None, query=(("dryRun", "All"),)), True),
    (Request("DELETE", RAW, "delete", None, body=b'{"preconditions": {"uid": "u"}}'), True),
    (Request("DELETE", RAW, "delete", None, body=b"preconditions: {uid: u}"), False),
    (Request("PATCH", RAW, "patch", None, headers=APPLIES, body=b'{"kind": "Widget"}'), True),
    (Request("PATCH", RAW, "patch", None, headers=APPLIES, body=b"kind: Widget"), False),
    (Request("PATCH", RAW, "patch", None, body=b'{"kind": "Widget"}'), False),
    (Request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", "create", None), True),
    (Request("GET", RAW, "get", None), True),
], ids=lambda value: f"{value.method} {value.verb}" if isinstance(value, Request) else str(value))
def test_only_what_has_the_same_effect_twice_may_be_sent_again(request_: Request, again: bool) -> None:
    assert request_.retry is (Retry.SAFE if again else Retry.UNSENT_ONLY)


def test_a_json_patch_is_a_list() -> None:
    for wrong in ({"op": "add"}, "text"):
        with pytest.raises(RequestError):
            Patch.json(wrong)  # type: ignore[arg-type]


def test_pointers_are_escaped_in_the_right_order() -> None:
    assert pointer("metadata", "labels", "app.kubernetes.io/name") == "/metadata/labels/app.kubernetes.io~1name"
    assert pointer("metadata", "annotations", "a~b/c", 0) == "/metadata/annotations/a~0b~1c/0"


@pytest.mark.parametrize(("params", "options"), [
    (None, None),
    (DeleteParams(), None),
    (DeleteParams.background(), {"propagationPolicy": "Background"}),
    (DeleteParams.foreground(), {"propagationPolicy": "Foreground"}),
    (DeleteParams.orphan(), {"propagationPolicy": "Orphan"}),
    (DeleteParams(dry_run=True, grace_period_seconds=0, preconditions=Preconditions(uid="u", resource_version="5")),
     {"dryRun": ["All"], "gracePeriodSeconds": 0, "preconditions": {"uid": "u", "resourceVersion": "5"}}),
])
def test_delete(params: DeleteParams | None, options: dict[str, Any] | None) -> None:
    request = build.delete(PLACE, "a", params)
    sent = None if options is None else {"kind": "DeleteOptions", "apiVersion": "v1", **options}
    assert (request.method, request.path, body(request)) == ("DELETE", "/api/v1/namespaces/ns/pods/a", sent)


def test_delete_collection_sends_the_whole_selection() -> None:
    request = build.delete_collection(PLACE, DeleteParams.background(), ListParams(label_selector="a=b", limit=3))
    assert (request.verb, request.path, query(request)) == (
        "deletecollection", "/api/v1/namespaces/ns/pods", {"labelSelector": "a=b", "limit": "3"})
    assert body(request) == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}


@pytest.mark.parametrize("selection", [{}, {"app": "web"}, "app=web", "", PLACE])
def test_delete_collection_takes_nothing_else_for_a_selection_least_of_all_for_everything(selection: Any) -> None:
    with pytest.raises(RequestError, match="ListParams"):
        build.delete_collection(PLACE, None, selection)


def test_subresources_have_bodies_of_their_own() -> None:
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}}
    place = Place(DEPLOYMENTS, "ns")
    assert body(build.replace(place, scale, subresource="scale")) == scale
    assert body(build.patch(place, "a", Patch.merge({"spec": {"replicas": 3}}), subresource="scale")) == {
        "spec": {"replicas": 3}}
    eviction = build.create(PLACE, {"kind": "Eviction"}, name="a", subresource="eviction")
    assert (eviction.path, eviction.retry) == ("/api/v1/namespaces/ns/pods/a/eviction", Retry.UNSENT_ONLY)


def test_no_repr_shows_a_body() -> None:
    secret = {"metadata": {"name": "a"}, "data": {"k": "hunter2"}}
    assert "hunter2" not in repr(build.create(PLACE, secret)) + repr(Patch.merge(secret))


def test_values_that_json_cannot_carry_are_refused() -> None:
    with pytest.raises(RequestError, match="not a JSON value"):
        build.create(PLACE, {"metadata": {"name": "a"}, "data": object()})


def test_a_place_without_a_namespace_says_what_to_take() -> None:
    with pytest.raises(RequestError, match=r"Pod: no namespace was given .*: name one, or use Api\.all for all"):
        Place(PODS, "")


@pytest.mark.parametrize("body", ["text", b"bytes", [{"op": "add"}], None, 5])
def test_a_merge_patch_is_a_map(body) -> None:
    for make, kind in ((Patch.merge, "merge"), (Patch.strategic, "strategic merge")):
        with pytest.raises(RequestError, match=f"a {kind} patch must be a map"):
            make(body)
