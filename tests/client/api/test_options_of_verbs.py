"""The keywords of the verbs: what they send, what they refuse, and how long a verb may take."""
from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from kubectl_runtime import (
    Api,
    ApiResource,
    Client,
    Config,
    LeaderElection,
    ListParams,
    Patch,
    PatchParams,
    RequestError,
    RequestTimeout,
)
from kubectl_runtime.api import Namespaces
from kubectl_runtime.client.api.entry import Entry
from kubectl_runtime.client.http.retry import UnexpectedAnswer
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.errors import KindNotServedError
from kubectl_runtime.kinds import Scope
from kubectl_runtime.manager.elector import elect
from kubectl_runtime.params import DeleteParams, PostParams, Preconditions, WatchParams
from kubectl_runtime.resources import ConfigMap, Deployment, Pod, Secret
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says, status

BODY = {"metadata": {"name": "a"}}
MERGE = Patch.merge({"data": {"k": "v"}})
Use = Callable[[Api[Any]], Any]


def sent(use: Use, answer: dict[str, Any] | None = None, kind: Any = ConfigMap, **defaults: Any) -> Received:
    with WireServer(answering(says(200, answer or config_map()))) as server, server.client(client=defaults) as client:
        use(Api.namespaced(client, kind, "default"))
    return server.requests[0]


def query(request: Received) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(request.target).query).items()}


WRITES: dict[str, Use] = {
    "create": lambda api: api.create(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "replace": lambda api: api.replace(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "patch": lambda api: api.patch("a", MERGE, field_manager="m", field_validation="Strict", dry_run=True),
    "apply": lambda api: api.apply(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "replace_status": lambda api: api.replace_status(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "patch_status": lambda api: api.patch_status("a", MERGE, field_manager="m", field_validation="Strict",
                                                 dry_run=True),
    "apply_status": lambda api: api.apply_status(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "replace_scale": lambda api: api.replace_scale("a", BODY, field_manager="m", field_validation="Strict",
                                                   dry_run=True),
    "patch_scale": lambda api: api.patch_scale("a", MERGE, field_manager="m", field_validation="Strict", dry_run=True),
    "apply_scale": lambda api: api.apply_scale(BODY, field_manager="m", field_validation="Strict", dry_run=True),
    "create_subresource": lambda api: api.create_subresource("a", "eviction", {}, field_manager="m",
                                                             field_validation="Strict", dry_run=True),
}


@pytest.mark.parametrize("use", WRITES.values(), ids=WRITES)
def test_every_write_takes_its_options_as_keywords(use: Use) -> None:
    assert query(sent(use)) == {"fieldManager": "m", "fieldValidation": "Strict", "dryRun": "All"}


DEFAULTS: dict[str, Any] = {"field_manager": "mine", "field_validation": "Warn", "dry_run": True}
BARE: dict[str, Use] = {
    "create": lambda api: api.create(BODY),
    "replace": lambda api: api.replace(BODY),
    "patch": lambda api: api.patch("a", MERGE),
    "patch_apply": lambda api: api.patch("a", Patch.apply(BODY)),
    "apply": lambda api: api.apply(BODY),
    "replace_status": lambda api: api.replace_status(BODY),
    "patch_status": lambda api: api.patch_status("a", MERGE),
    "apply_status": lambda api: api.apply_status(BODY),
    "replace_scale": lambda api: api.replace_scale("a", BODY),
    "patch_scale": lambda api: api.patch_scale("a", MERGE),
    "apply_scale": lambda api: api.apply_scale(BODY),
    "scale": lambda api: api.scale("a", 3),
    "create_subresource": lambda api: api.create_subresource("a", "binding", {}),
    "replace_subresource": lambda api: api.replace_subresource("a", "approval", {}),
    "patch_subresource": lambda api: api.patch_subresource("a", "approval", MERGE),
    "params": lambda api: api.create(BODY, PostParams()),
    "patch_params": lambda api: api.patch("a", MERGE, PatchParams()),
    "entry": lambda api: Entry(api, "a", None).or_insert(lambda: ConfigMap(name="a")).commit(),
    "with_layer": lambda api: Api.namespaced(api.client.with_layer(lambda send: send), ConfigMap,
                                             "default").apply(BODY),
}


@pytest.mark.parametrize("use", BARE.values(), ids=BARE)
def test_every_write_says_what_its_client_says(use: Use) -> None:
    assert query(sent(use, **DEFAULTS)) == {"fieldManager": "mine", "fieldValidation": "Warn", "dryRun": "All"}


@pytest.mark.parametrize("use", WRITES.values(), ids=WRITES)
def test_what_a_verb_says_counts_before_what_its_client_says(use: Use) -> None:
    assert query(sent(use, **DEFAULTS)) == {"fieldManager": "m", "fieldValidation": "Strict", "dryRun": "All"}


@pytest.mark.parametrize(("use", "kind"), [
    (lambda api: api.restart("a"), Deployment), (lambda api: api.apply(BODY, field_validation="Ignore"), ConfigMap),
    (lambda api: api.patch("a", MERGE, PatchParams(field_validation="Ignore")), ConfigMap)])
def test_each_option_is_a_default_of_its_own(use: Use, kind: Any) -> None:
    assert query(sent(use, kind=kind, field_manager="mine")).get("fieldManager") == "mine"
    found = query(sent(use, kind=kind, field_manager="mine", field_validation="Strict"))
    assert found["fieldValidation"] == ("Strict" if kind is Deployment else "Ignore")
    assert "dryRun" not in found


@pytest.mark.parametrize("use", [
    lambda api: api.delete("a"), lambda api: api.delete("a", dry_run=False),
    lambda api: api.delete("a", DeleteParams()), lambda api: api.delete_collection(),
    lambda api: api.delete("a", preconditions=Preconditions(uid="u"))])
def test_a_client_of_dry_runs_deletes_nothing(use: Use) -> None:
    request = sent(use, {**EMPTY_LIST, **BODY}, **DEFAULTS)
    assert json.loads(request.body)["dryRun"] == ["All"]
    assert query(request) == {}


def test_a_client_of_dry_runs_evicts_nothing() -> None:
    request = sent(lambda api: api.evict("a"), kind=Pod, dry_run=True)
    assert "All" in json.dumps(json.loads(request.body)) + request.target


def test_reads_say_nothing_of_writes() -> None:
    for use in (lambda api: api.get("a"), lambda api: api.list(), lambda api: api.get_scale("a")):
        request = sent(use, {**EMPTY_LIST, **BODY}, **DEFAULTS)
        assert not {"fieldManager", "fieldValidation", "dryRun"} & query(request).keys()


@pytest.mark.parametrize(("option", "value"), [
    ("field_manager", 5), ("field_manager", "x" * 129), ("field_manager", "a\nb"), ("field_validation", "strict"),
    ("dry_run", "false"), ("dry_run", None)])
def test_a_client_refuses_options_that_its_writes_could_not_have(option: str, value: Any) -> None:
    with pytest.raises(RequestError, match=option):
        Client(Config(cluster_url="http://127.0.0.1:1"), **{option: value})


def test_an_apply_without_a_manager_says_where_one_may_be_said() -> None:
    with pytest.raises(RequestError, match="here or for all writes of the Client; "
                                           "a controller's runs use the controller's name"):
        sent(lambda api: api.apply(BODY))


def test_a_lease_cannot_be_held_by_dry_runs() -> None:
    with Client(Config(cluster_url="http://127.0.0.1:1"), dry_run=True) as client:
        with pytest.raises(RequestError, match="dry runs"), elect(client, LeaderElection("a", "default")):
            pass


def test_force_is_a_query_parameter_of_an_apply() -> None:
    assert query(sent(lambda api: api.patch("a", Patch.apply(BODY), field_manager="m", force=True)))["force"] == "true"
    request = sent(lambda api: api.apply_scale(BODY, field_manager="m", force=True))
    assert query(request)["force"] == "true"
    assert json.loads(request.body) == {"metadata": {"name": "a", "namespace": "default"},
                                        "apiVersion": "autoscaling/v1", "kind": "Scale"}


def test_a_delete_carries_whole_delete_options() -> None:
    request = sent(lambda api: api.delete("a", propagation_policy="Foreground", grace_period_seconds=0, dry_run=True,
                                          preconditions=Preconditions(uid="u")))
    assert json.loads(request.body) == {
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "gracePeriodSeconds": 0,
        "dryRun": ["All"], "preconditions": {"uid": "u"}}


BOTH: dict[str, Use] = {
    "create": lambda api: api.create(BODY, PostParams(dry_run=True), field_manager="m"),
    "replace": lambda api: api.replace(BODY, PostParams(), dry_run=True),
    "patch": lambda api: api.patch("a", MERGE, PatchParams(), force=True),
    "patch_status": lambda api: api.patch_status("a", MERGE, PatchParams(), field_validation="Warn"),
    "delete": lambda api: api.delete("a", DeleteParams(), grace_period_seconds=0),
    "delete_collection": lambda api: api.delete_collection(DeleteParams(), propagation_policy="Orphan"),
    "text for a flag": lambda api: api.create(BODY, dry_run="false"),
    "text for force": lambda api: api.apply(BODY, field_manager="m", force="yes"),
    "a choice that is none": lambda api: api.create(BODY, field_validation="strict"),
    "no manager": lambda api: api.apply(BODY, field_manager=""),
    "a manager of 200 characters": lambda api: api.apply(BODY, field_manager="m" * 200),
    "preconditions as a dict": lambda api: api.delete("a", preconditions={"uid": "u"}),
    "no seconds": lambda api: api.get("a", timeout=0),
    "negative seconds": lambda api: api.list(timeout=-1),
    "text for seconds": lambda api: api.delete("a", timeout="5"),
    "another kind": lambda api: api.create(Pod(name="a")),
    "another kind to patch with": lambda api: api.patch("a", Patch.merge(Pod(name="a"))),
}


@pytest.mark.parametrize("use", BOTH.values(), ids=BOTH)
def test_options_that_contradict_or_are_none_are_refused_before_anything_is_sent(use: Use) -> None:
    with WireServer(answering(says(200, config_map()))) as server, server.client() as client:
        with pytest.raises(RequestError):
            use(Api.namespaced(client, ConfigMap, "default"))
        assert server.requests == []


TIMED: dict[str, Use] = {
    "get": lambda api: api.get("a", timeout=0.05),
    "get_opt": lambda api: api.get_opt("a", timeout=timedelta(milliseconds=50)),
    "list": lambda api: api.list(timeout=0.05),
    "pages": lambda api: list(api.pages(timeout=0.05)),
    "list_all": lambda api: list(api.list_all(timeout=0.05)),
    "create": lambda api: api.create(BODY, timeout=0.05),
    "replace": lambda api: api.replace(BODY, timeout=0.05),
    "patch": lambda api: api.patch("a", MERGE, timeout=0.05),
    "apply": lambda api: api.apply(BODY, field_manager="m", timeout=0.05),
    "delete": lambda api: api.delete("a", timeout=0.05),
    "delete_collection": lambda api: api.delete_collection(timeout=0.05),
    "get_status": lambda api: api.get_status("a", timeout=0.05),
    "patch_status": lambda api: api.patch_status("a", MERGE, timeout=0.05),
    "apply_status": lambda api: api.apply_status(BODY, field_manager="m", timeout=0.05),
    "get_scale": lambda api: api.get_scale("a", timeout=0.05),
    "replace_scale": lambda api: api.replace_scale("a", BODY, timeout=0.05),
    "create_subresource": lambda api: api.create_subresource("a", "eviction", {}, timeout=0.05),
}


def test_every_verb_ends_when_its_timeout_is_over() -> None:
    def silent(peer: Peer) -> None:
        peer.receive()
        peer.hold()

    with WireServer(silent) as server, server.client() as client:
        for use in TIMED.values():
            with pytest.raises(RequestTimeout):
                use(Api.namespaced(client, ConfigMap, "default"))


class Part(msgspec.Struct):
    on: bool = False
    size: int = 3


class Spec(msgspec.Struct):
    replicas: int = 1
    parts: list[Part] = []
    part: Part | None = None
    text: str = ""
    seconds: float = 30.0
    flag: int = 1


class Thing(Resource, group="g.example.com", version="v1", kind="Thing"):
    spec: Spec


def test_an_apply_leaves_out_the_defaults_of_the_class_at_every_depth() -> None:
    thing = Thing(name="a", spec=Spec(replicas=2, parts=[Part(on=True), Part()], part=Part(size=4)))
    sparse = sent(lambda api: api.apply(thing, field_manager="m"), kind=Thing)
    assert json.loads(sparse.body)["spec"] == {"replicas": 2, "parts": [{"on": True}, {}], "part": {"size": 4}}
    whole = {"replicas": 2, "parts": [{"on": True, "size": 3}, {"on": False, "size": 3}],
             "part": {"on": False, "size": 4}, "text": "", "seconds": 30.0, "flag": 1}
    for use in (lambda api: api.apply(thing, field_manager="m", defaults=True), lambda api: api.create(thing),
                lambda api: api.replace(thing)):
        assert json.loads(sent(use, kind=Thing).body)["spec"] == whole


def test_a_whole_number_is_the_default_of_a_float_and_true_is_no_one() -> None:
    thing = Thing(name="a", spec=Spec(seconds=30, flag=True))
    applied = sent(lambda api: api.apply(thing, field_manager="m"), kind=Thing)
    assert json.loads(applied.body)["spec"] == {"flag": True}


def test_a_dict_owns_a_default_and_so_does_what_was_set_by_its_key() -> None:
    spec = {"replicas": 1}
    as_dict = sent(lambda api: api.apply({"metadata": {"name": "a"}, "spec": spec}, field_manager="m"), kind=Thing)
    assert json.loads(as_dict.body)["spec"] == spec
    thing = Thing(name="a", spec=Spec(replicas=2))
    thing["spec"]["extra"] = True
    applied = sent(lambda api: api.apply(thing, field_manager="m"), kind=Thing)
    assert json.loads(applied.body)["spec"] == {"replicas": 2, "extra": True}


def test_an_object_stands_for_its_name() -> None:
    obj = ConfigMap.from_dict(config_map("a"))
    path = "/api/v1/namespaces/default/configmaps/a"
    for use in (lambda api: api.get(obj), lambda api: api.get(obj.ref), lambda api: api.delete(obj),
                lambda api: api.patch(obj, MERGE)):
        assert urlsplit(sent(use).target).path == path


@pytest.mark.parametrize("named", [
    Pod(name="a", namespace="default"), ConfigMap(name="a", namespace="other"), {"metadata": {"name": "a"}}, None, 5,
    ConfigMap(generate_name="a-")])
def test_what_is_no_name_here_is_refused(named: Any) -> None:
    for use in (lambda api: api.get(named), lambda api: api.delete(named), lambda api: api.patch(named, MERGE)):
        with pytest.raises(RequestError):
            sent(use)


REVIEW = ApiResource("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
                     Scope.CLUSTER)


def test_a_review_is_created_without_a_name() -> None:
    answer = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
              "metadata": {"creationTimestamp": None}, "spec": {}, "status": {"allowed": True}}
    with WireServer(answering(says(201, answer))) as server, server.client() as client:
        found = Api.all(client, REVIEW).create({"spec": {"resourceAttributes": {"verb": "get"}}})
    assert found.status == {"allowed": True}
    assert json.loads(server.requests[0].body)["kind"] == "SelfSubjectAccessReview"


PAGE = b"<!doctype html><html><head><title>Log in</title></head></html>"


@pytest.mark.parametrize(("use", "words"), [
    (lambda api: api.get("a"), "get configmaps default/a"), (lambda api: api.list(), "list configmaps default"),
    (lambda api: api.create(BODY), "create configmaps default/a"),
    (lambda api: api.delete("a"), "delete configmaps default/a"),
    (lambda api: list(api.watch()), "watch configmaps default"),
    (lambda api: api.get_scale("a"), "get configmaps/scale default/a")])
def test_a_web_page_that_says_all_is_well_is_told_from_an_answer(use: Use, words: str) -> None:
    with WireServer(answering(says(200, PAGE, kind="text/html; charset=utf-8"))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer) as error:
            use(Api.namespaced(client, ConfigMap, "default"))
    for part in (words, "HTTP 200", "text/html", "<!doctype html>", "proxy"):
        assert part in str(error.value)


@pytest.mark.parametrize("use", [lambda client: client.server_version(), lambda client: client.discovery.kinds()])
def test_so_it_is_where_no_kind_is_asked_for(use: Callable[[Client], object]) -> None:
    with WireServer(answering(says(200, PAGE, kind="text/html"))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer) as error:
            use(client)
    assert "text/html" in str(error.value)


@pytest.mark.parametrize("use", [lambda pods: pods.logs("a"), lambda pods: pods.log_stream("a"),
                                 lambda pods: pods.evict("a")])
def test_a_web_page_is_no_log_and_no_eviction(use: Callable[[Api[Pod]], object]) -> None:
    with WireServer(answering(says(200, PAGE, kind="text/html; charset=utf-8"))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer, match=r"pods/.* default/a: .* begins with '<!doctype html>"):
            use(Api.namespaced(client, Pod, "default"))


def test_what_a_container_writes_may_look_like_a_web_page() -> None:
    with WireServer(answering(says(200, PAGE, kind="text/plain"))) as server, server.client() as client:
        assert Api.namespaced(client, Pod, "default").logs("a") == PAGE


@pytest.mark.parametrize("kind", ["", "application/json"])
def test_an_eviction_is_answered_by_an_object(kind: str) -> None:
    with WireServer(answering(says(200, PAGE, kind=kind))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer, match="no Kubernetes API server answered"):
            Api.namespaced(client, Pod, "default").evict("a")


def test_a_page_that_says_it_is_json_is_told_by_its_bytes() -> None:
    with WireServer(answering(says(200, PAGE, kind="application/json"))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer, match="application/json, which begins with '<!doctype html>"):
            Api.namespaced(client, ConfigMap, "default").get("a")


def test_a_page_without_a_content_type_is_told_by_its_bytes() -> None:
    with WireServer(answering(says(200, PAGE, kind=""))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer, match="without content type, which begins with '<!doctype html>"):
            Api.namespaced(client, ConfigMap, "default").get("a")


@pytest.mark.parametrize("use", [lambda api: api.get("a"), lambda api: api.list(),
                                 lambda api: api.create({"metadata": {"name": "a"}})])
def test_no_byte_is_shown_of_what_may_be_a_secret(use: Use) -> None:
    content = b"apiVersion: v1\ndata: {password: Z2VoZWlt}\n"
    with WireServer(answering(says(200, content, kind="application/yaml"))) as server, server.client() as client:
        with pytest.raises(UnexpectedAnswer, match="application/yaml, which has 42 bytes") as error:
            use(Api.namespaced(client, Secret, "default"))
    assert "Z2VoZWlt" not in str(error.value)


def test_a_missing_subresource_is_told_from_a_missing_object() -> None:
    missing = status(404, "NotFound", 'deployments.apps "a" not found', details={"name": "a", "kind": "deployments"})

    def served(subresources: list[str]) -> Callable[[Peer, Received], None]:
        def answer(peer: Peer, request: Received) -> None:
            if "deployments" in request.target:
                peer.answer(404, missing)
                return
            resource = {"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
                        "verbs": ["get"], "subresources": [{"subresource": name} for name in subresources]}
            groups = [] if request.target == "/api" else [
                {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [resource]}]}]
            peer.answer(200, {"kind": "APIGroupDiscoveryList", "items": groups})

        return answer

    for subresources, kind in ((["scale"], True), (["scale", "status"], False)):
        with WireServer(answering(served(subresources))) as server, server.client() as client:
            api = Api.namespaced(client, Deployment, "default")
            with pytest.raises(Exception, match=r"patch deployments\.apps/status default/a") as error:
                api.patch_status("a", Patch.merge({"status": {}}))
        assert isinstance(error.value, KindNotServedError) is kind
        assert ("the subresource 'status'" in str(error.value)) is kind


def test_pages_have_a_timeout_each() -> None:
    page = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [config_map()]}
    with WireServer(answering(says(200, {**page, "metadata": {"continue": "t"}}), says(200, page))) as server:
        with server.client() as client:
            found = list(Api.namespaced(client, ConfigMap, "default").pages(ListParams(limit=1), timeout=30))
    assert [len(each) for each in found] == [1, 1]


EMPTY_LIST = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []}
CHOICE = {"label_selector": {"app": "web"}, "field_selector": "metadata.name=a"}
LISTS: dict[str, Use] = {
    "list": lambda api: api.list(**CHOICE, limit=7, resource_version="5", resource_version_match="NotOlderThan"),
    "list_page": lambda api: api.list_page(**CHOICE, limit=7, resource_version="5",
                                           resource_version_match="NotOlderThan"),
    "pages": lambda api: list(api.pages(**CHOICE, limit=7, resource_version="5",
                                        resource_version_match="NotOlderThan")),
    "list_all": lambda api: list(api.list_all(**CHOICE, limit=7, resource_version="5",
                                              resource_version_match="NotOlderThan")),
}
SELECTED = {"labelSelector": "app=web", "fieldSelector": "metadata.name=a"}


@pytest.mark.parametrize("use", LISTS.values(), ids=LISTS)
def test_every_list_takes_its_options_as_keywords(use: Use) -> None:
    assert query(sent(use, EMPTY_LIST)) == {**SELECTED, "limit": "7", "resourceVersion": "5",
                                            "resourceVersionMatch": "NotOlderThan"}


def test_a_page_follows_another_by_its_token() -> None:
    assert query(sent(lambda api: api.list(continue_token="t"), EMPTY_LIST)) == {"continue": "t"}


def test_several_namespaces_are_listed_by_keywords() -> None:
    several = sent(lambda api: list(Api.namespaces(api.client, ConfigMap, ["a"]).list_all(**CHOICE)), EMPTY_LIST)
    assert query(several) == {**SELECTED, "limit": "500"}


def test_a_watch_takes_its_options_as_keywords() -> None:
    found = query(sent(lambda api: list(api.watch(**CHOICE, send_initial_events=True)), EMPTY_LIST))
    assert {key: found[key] for key in ("labelSelector", "fieldSelector", "sendInitialEvents")} == {
        **SELECTED, "sendInitialEvents": "true"}
    assert query(sent(lambda api: list(api.watch(bookmarks=True)), EMPTY_LIST))["allowWatchBookmarks"] == "true"
    with pytest.raises(RequestError, match="send_initial_events needs bookmarks"):
        sent(lambda api: list(api.watch(send_initial_events=True, bookmarks=False)), EMPTY_LIST)


def test_a_collection_is_deleted_by_keywords() -> None:
    request = sent(lambda api: api.delete_collection(**CHOICE, dry_run=True), EMPTY_LIST)
    assert query(request) == SELECTED


@pytest.mark.parametrize("use", [
    lambda api: api.list(ListParams(limit=1), label_selector="a=b"),
    lambda api: list(api.list_all(ListParams(limit=1), label_selector="a=b")),
    lambda api: list(api.watch(WatchParams(), label_selector="a=b")),
    lambda api: api.delete_collection(selection=ListParams(), label_selector="a=b")])
def test_options_of_a_list_are_given_in_one_way(use: Use) -> None:
    with pytest.raises(RequestError, match=r"= and label_selector= are both given: put the options all into "
                                           r"(List|Watch)Params"):
        sent(use, EMPTY_LIST)


def options(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_what_one_verb_takes_its_siblings_take() -> None:
    verbs = {name: options(verb) for name, verb in inspect.getmembers(Api, inspect.isfunction) if name[0] != "_"}
    calls = {name: taken for name, taken in verbs.items() if name not in ("with_fields", "with_metadata_only")}
    assert [name for name, taken in calls.items() if "timeout" not in taken] == []
    assert [name for name, taken in calls.items() if "field_manager" in taken and "dry_run" not in taken] == []
    assert options(Namespaces.list_all) == options(Api.list_all)
