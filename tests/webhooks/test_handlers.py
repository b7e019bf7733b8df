"""`Admission` and `AdmissionRequest`: what a user's class is given, and what becomes of what it does."""
from __future__ import annotations

import json
import logging
import threading
from typing import Any, Generic, TypeVar

import pytest

from kubectl_runtime import DecodeError, DynamicObject, RequestError, Resource
from kubectl_runtime.core.base.errors import StatusCause
from kubectl_runtime.core.objects.admission import AdmissionReview, UserInfo
from kubectl_runtime.objects import Object
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.schema.validation import Cause
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Denied, application
from tests.webhooks.hooks import Broken, Pod, PodSpec, Quota, Scales, everything
from tests.webhooks.reviews import encoded, patched, pod, response, review, stored

K = TypeVar("K", bound=Resource)


def request(body: bytes, kind: type[K]) -> AdmissionRequest[K]:
    asked = AdmissionReview.decode(body).request
    assert asked is not None
    return AdmissionRequest(asked, kind)


def answer(verb: str, body: bytes) -> dict[str, Any]:
    return response(application({"/broken": Broken()}).answer(f"/broken/{verb}", body)[1])


class Returning(Admission[Pod]):
    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        return self.returned  # type: ignore[no-any-return] # as a user might write it


async def nothing() -> None:
    """Is never awaited."""


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(("returned", "allowed"), [
    (None, True), (True, False), (False, False), (0, False), ("too many containers", False), ([], False),
    (ValueError("no"), False), (Denied("no"), False), (nothing, False)], ids=lambda value: type(value).__name__)
def test_what_may_be_meant_as_a_no_does_not_pass(
        returned: Any, allowed: bool, caplog: pytest.LogCaptureFixture) -> None:
    app = application({"/r": Returning(returned() if returned is nothing else returned)})
    said = response(app.answer("/r/validate", review(pod()))[1])
    assert said["allowed"] is allowed
    assert ("raise Denied to refuse it" in caplog.text) is not allowed


def test_a_request_says_who_wants_what() -> None:
    found = request(review(stored(pod()), stored(pod(), "40"), dry_run=True, sub="status"), Pod)
    assert (found.operation, found.name, found.namespace, found.sub_resource) == ("UPDATE", "web", "shop", "status")
    assert (found.dry_run, found.user.username, found.user.extra) == (
        True, "kubernetes-admin", {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab12"]})
    old = found.old
    assert old is not None
    assert (found.object.metadata.resource_version, old.metadata.resource_version) == ("41", "40")
    assert found.object is found.object
    assert repr(found) == "<UPDATE pods/status shop/web>"
    assert "hunter2" not in repr(found)


def test_the_object_of_a_deletion_is_the_one_that_goes() -> None:
    found = request(review(None, stored(pod())), Pod)
    assert found.object.name == "web"
    assert found.old is not None
    assert found.old is not found.object
    created = request(review(pod()), Pod)
    assert created.old is None
    with pytest.raises(RequestError, match="the CREATE request has no object"):
        _ = request(review(None, operation="CREATE"), Pod).object


def test_objects_are_read_when_they_are_asked_for() -> None:
    found = request(review({**pod(), "spec": "none"}, {**pod(), "metadata": 5}), Pod)
    with pytest.raises(DecodeError):
        _ = found.old
    assert found.object.name == "web"
    with pytest.raises(DecodeError, match=r"\$\.spec"):
        _ = found.object.spec


def test_an_object_of_another_kind_is_not_taken_for_ones_own() -> None:
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
    found = request(review(scale, resource=("", "v1", "pods")), Pod)
    with pytest.raises(RequestError, match="the object is a Scale of autoscaling/v1, not a Pod of v1"):
        _ = found.object


EXEC = {"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"], "container": "c0", "stdin": True}
SCALE = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web", "namespace": "shop"},
         "spec": {"replicas": 3}}
EVICTION = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "web", "namespace": "shop"}}


@pytest.mark.parametrize(("content", "sub", "operation", "value"), [
    (SCALE, "scale", "UPDATE", lambda obj: obj.spec["replicas"] == 3),
    (EXEC, "exec", "CONNECT", lambda obj: obj.command == ["sh"] and obj.stdin),
    (EVICTION, "eviction", "CREATE", lambda obj: obj.name == "web")])
def test_what_stands_below_a_subresource_is_read_as_what_it_is(
        content: dict[str, Any], sub: str, operation: str, value: Any) -> None:
    old = content if operation == "UPDATE" else None
    found = request(review(content, old, operation=operation, resource=("", "v1", "pods"), sub=sub, name="web",
                           namespace="shop"), Pod)
    shown: Any = found.object
    assert value(shown)
    assert shown.kind == content["kind"]
    assert found.review.object(DynamicObject).kind == content["kind"]


@pytest.mark.parametrize(("causes", "fields"), [
    ({"spec.containers": "at most five", "metadata.name": "too long"}, ["spec.containers", "metadata.name"]),
    ([Cause("FieldValueInvalid", "Invalid value: 5", "spec.size")], ["spec.size"]),
    ([StatusCause(reason="FieldValueRequired", message="missing", field="spec")], ["spec"]), ({}, [])])
def test_a_refusal_names_its_causes(causes: Any, fields: list[str]) -> None:
    class Refusing(Admission[Pod]):
        def validate(self, request: AdmissionRequest[Pod]) -> None:
            raise Denied("no", code=422, causes=causes)

    said = response(application({"/r": Refusing()}).answer("/r/validate", review(pod()))[1])
    told = said["status"].get("details", {}).get("causes", [])
    assert [cause["field"] for cause in told] == fields
    assert all(cause["message"] and cause["reason"] for cause in told)


@pytest.mark.parametrize("causes", [["spec"], {"spec": 5}, [("a", 5)], [None]])
def test_causes_that_are_none_are_refused(causes: Any) -> None:
    with pytest.raises(RequestError, match="causes= of a refusal"):
        Denied("no", causes=causes)


def test_classes_of_several_kinds_read_each_as_what_it_is() -> None:
    found = request(review(pod()), DynamicObject)
    assert (found.object.api_resource.kind, found.object.api_resource.plural) == ("Pod", "pods")
    assert found.object.api_resource.namespaced
    typed: AdmissionRequest[Any] = request(review(pod()), Object[PodSpec, dict])
    assert typed.object.spec.containers[0].name == "c0"
    assert not request(review({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "x"}}),
                       DynamicObject).object.api_resource.namespaced


def test_a_request_for_a_test_is_made_of_objects() -> None:
    made = AdmissionRequest.of(Pod(name="a", namespace="b", spec=PodSpec()), user="jo", dry_run=True)
    assert (made.operation, made.name, made.namespace, made.user.username, made.dry_run) == (
        "CREATE", "a", "b", "jo", True)
    assert AdmissionRequest.of(old=Pod(name="a", spec=PodSpec())).operation == "DELETE"
    changed = AdmissionRequest.of(Pod(name="a", spec=PodSpec()), old=Pod(name="a", spec=PodSpec(priority=3)),
                                  user=UserInfo(username="x", groups=("g",)))
    assert (changed.operation, changed.user.groups) == ("UPDATE", ("g",))
    Quota().validate(changed)
    assert changed.warnings() == ("the priority goes down",)
    with pytest.raises(RequestError, match="a request needs an object"):
        AdmissionRequest.of()


def test_warnings_come_once_in_one_line_each() -> None:
    found = request(review(pod()), Pod)
    for text in ("one", "two\nlines\r\n", "one", "", "  "):
        found.warn(text)
    assert found.warnings() == ("one", "two lines")


def test_warnings_are_cut_as_the_server_cuts_them() -> None:
    found = request(review(pod()), Pod)
    found.warn("a" * 4000)
    assert [len(text) for text in found.warnings()] == [4000]
    for number in range(30):
        found.warn(f"{number:03}" + "b" * 300)
    cut = found.warnings()
    assert [len(text) for text in cut] == [256] * 16
    assert sum(map(len, cut)) == 4096


def test_a_refusal_has_its_reason_its_code_and_kubernetes_word_for_it() -> None:
    found = response(everything().answer("/quota/validate", review(pod(containers=3)))[1])
    assert found["status"] == {"status": "Failure", "message": "3 containers; at most 2 are allowed",
                               "reason": "Forbidden", "code": 403}
    assert "auditAnnotations" not in found
    passed = response(everything().answer("/quota/validate", review(pod(containers=2)))[1])
    assert passed == {"uid": passed["uid"], "allowed": True, "auditAnnotations": {"containers": "2"}}


@pytest.mark.parametrize("name", ["unicode", "text"])
def test_what_cannot_be_sent_is_a_failure_and_answered_as_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = answer("validate", review(pod(name)))
    assert (found["allowed"], found["status"]["code"]) == (False, 500)
    assert f"given <CREATE pods shop/{name}>, raised" in caplog.text
    for wrong in (lambda: Denied(ValueError("x")), lambda: request(review(pod()), Pod).warn(5)):  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="must be a text, not"):
            wrong()


@pytest.mark.parametrize("code", [0, 200, 302, 399, 600, "403", None])
def test_a_refusal_with_a_code_that_is_none_is_a_mistake(code: Any) -> None:
    with pytest.raises(RequestError, match="400 to 599"):
        Denied("no", code=code)


@pytest.mark.parametrize("name", ["ValueError", "SystemExit", "other"])
def test_what_a_handler_raises_refuses_with_500_and_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = answer("validate", review(pod(name)))
    assert found["status"]["code"] == 500
    assert found["status"]["reason"] == "InternalError"
    assert found["warnings"] == ["about to fail"]
    assert "hunter2" not in json.dumps(found)
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info
    assert f"/broken/validate, given <CREATE pods shop/{name}>, raised" in record.getMessage()


def test_what_a_handler_always_raises_is_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    server = application({"/broken": Broken()})
    for _ in range(300):
        server.answer("/broken/validate", review(pod("ValueError")))
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [bool(record.exc_info) for record in errors] == [True] + [False] * 8


def test_an_object_that_the_handler_looked_up_is_not_the_fault_of_whoever_asks() -> None:
    class LooksUp(Admission[Pod]):
        def validate(self, request: AdmissionRequest[Pod]) -> None:
            _ = Pod.from_dict({**pod("other"), "spec": "none"}).spec

        def mutate(self, request: AdmissionRequest[Pod]) -> None:
            request.object.metadata.labels = {}

    app = application({"/looks": LooksUp()})
    assert response(app.answer("/looks/validate", review(pod()))[1])["status"]["code"] == 500
    # and what a deletion brings may be changed by whoever reads it
    assert response(app.answer("/looks/mutate", review(None, stored(pod())))[1])["allowed"]


@pytest.mark.parametrize(("name", "why"), [("dict", "mutate returned dict"), ("made", "newly made object")])
def test_what_mutate_must_not_return_is_refused(name: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    assert answer("mutate", review(pod(name)))["status"]["code"] == 500
    assert why in caplog.text



def test_a_deletion_has_nothing_to_change(caplog: pytest.LogCaptureFixture) -> None:
    assert answer("mutate", review(None, stored(pod("deleted"))))["status"]["code"] == 500
    assert "a DELETE has none that could be changed" in caplog.text


def test_a_change_that_is_not_returned_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert answer("mutate", review(pod("forgotten")))["allowed"]
    assert "return it" in caplog.text
    caplog.clear()
    assert answer("mutate", review(pod("untouched")))["allowed"]
    assert caplog.text == ""


def test_an_object_that_was_only_looked_at_is_not_changed() -> None:
    class Looks(Admission[Pod]):
        def mutate(self, request: AdmissionRequest[Pod]) -> Pod:
            _ = request.object.spec.containers, request.object.metadata, request.object["spec"]
            return request.object

    found = application({"/looks": Looks()}).answer("/looks/mutate", review(pod()))[1]
    assert patched(found) == []
    assert "patch" not in response(found)


def test_changes_of_both_forms_are_in_the_patch() -> None:
    class Both(Admission[Pod]):
        def mutate(self, request: AdmissionRequest[Pod]) -> Pod:
            request.object.spec.priority = 7
            request.object["spec"]["hostNetwork"] = False
            del request.object["spec"]["volumes"]
            return request.object

    found = patched(application({"/both": Both()}).answer("/both/mutate", review(pod()))[1])
    assert sorted((one["op"], one["path"], one.get("value")) for one in found) == [
        ("add", "/spec/hostNetwork", False), ("remove", "/spec/volumes", None), ("replace", "/spec/priority", 7)]


def test_a_log_handler_that_raises_ends_nothing() -> None:
    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    handler = Raises()
    logging.getLogger("kubectl_runtime").addHandler(handler)
    try:
        assert answer("validate", review(pod("ValueError")))["status"]["code"] == 500
    finally:
        logging.getLogger("kubectl_runtime").removeHandler(handler)


def test_one_instance_answers_many_at_once() -> None:
    app = application({"/quota": Quota()})
    found: list[tuple[int, str]] = []

    def ask(number: int) -> None:
        for _ in range(50):
            body = app.answer("/quota/validate", review(pod(containers=number), uid=f"u-{number}"))[1]
            found.append((number, response(body)["uid"] + str(response(body)["allowed"])))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(found) == {(number, f"u-{number}{number <= 2}") for number in range(1, 5)}
    assert len(found) == 200


def test_a_class_knows_its_kind_also_through_classes_between() -> None:
    class Base(Admission[K], Generic[K]):
        pass

    class Named(Base[ConfigMap]):
        pass

    class Further(Named):
        def validate(self, request: AdmissionRequest[ConfigMap]) -> None:
            """Nothing."""

    assert (Quota.kind(), Named.kind(), Further.kind()) == (Pod, ConfigMap, ConfigMap)
    assert (Quota.verbs(), Scales.verbs(), Named.verbs(), Further.verbs()) == (
        ("validate", "mutate"), ("validate",), (), ("validate",))
    with pytest.raises(TypeError, match="does not say which objects it reads"):
        Base.kind()


def test_the_kind_may_be_written_as_text() -> None:
    class Late(Admission["Namespace"]):
        pass

    assert Late.kind() is Namespace


def test_the_versions_of_reviews_are_echoed() -> None:
    """Behaviour 126 of kube-rs: a review decodes, its version is echoed, a policy's variables can be made of it."""
    for version in ("v1", "v1beta1"):
        body = everything().answer("/quota/validate", review(pod(), version=version))[1]
        assert json.loads(body)["apiVersion"] == f"admission.k8s.io/{version}"
    variables = request(review(pod(), stored(pod())), Pod).review.cel_variables()
    assert variables["object"] == pod()
    assert variables["oldObject"] == stored(pod())
    assert variables["request"]["userInfo"]["username"] == "kubernetes-admin"
    assert variables["request"]["dryRun"] is False


def test_a_body_with_what_json_allows_in_go_is_read() -> None:
    """A name with every plane of Unicode, null where a list may be, numbers at the edge of an int64."""
    found = pod("ä\U0001f600")
    found["metadata"]["annotations"] = None
    found["spec"]["terminationGracePeriodSeconds"] = 2**63 - 1
    body = everything().answer("/quota/mutate", encoded(json.loads(review(found))))[1]
    assert [one["path"] for one in patched(body)] == ["/spec/containers/0/image"]
