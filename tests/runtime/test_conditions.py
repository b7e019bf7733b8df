"""The conditions that one waits for: each with an object that is so, one that is not yet, and none."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.resources import CustomResourceDefinition, Deployment, Ingress, Job, Pod, Service, StatefulSet
from kubectl_runtime.runtime import conditions
from kubectl_runtime.runtime.conditions import Condition, name_of
from kubectl_runtime.runtime.wait import last_seen


def obj_of(kind: Any, status: Any = None, spec: Any = None, **metadata: Any) -> Any:
    return kind.from_dict({"metadata": {"name": "a", "uid": "u", **metadata}, "spec": spec, "status": status})


def with_condition(kind: Any, name: str, status: str, reason: str = "", **more: Any) -> Any:
    entries = [{"type": "Other", "status": "True"}, {"type": name, "status": status, "reason": reason}]
    return obj_of(kind, {"conditions": entries, **more}, generation=2)


def addresses(kind: Any, *entries: dict[str, str], spec: Any = None) -> Any:
    return obj_of(kind, {"loadBalancer": {"ingress": list(entries)}}, spec)


def with_ready(observed: int | None) -> Any:
    entry = {"type": "Ready", "status": "True", "observedGeneration": observed}
    return obj_of(Pod, {"conditions": [entry]}, generation=2)


BALANCED = {"type": "LoadBalancer"}
CASES: dict[str, tuple[Condition, list[Any], list[Any]]] = {
    "a CRD that is established": (
        conditions.is_crd_established,
        [with_condition(CustomResourceDefinition, "Established", "True")],
        [with_condition(CustomResourceDefinition, "Established", "False"), obj_of(CustomResourceDefinition)]),
    "a Pod that runs": (
        conditions.is_pod_running,
        [obj_of(Pod, {"phase": "Running"})],
        [obj_of(Pod, {"phase": "Pending"}), obj_of(Pod)]),
    "a Job that is complete": (
        conditions.is_job_completed,
        [with_condition(Job, "Complete", "True")],
        [with_condition(Job, "Complete", "False"), with_condition(Job, "Failed", "True"),
         obj_of(Job, {"conditions": None})]),
    "a Deployment that is rolled out": (
        conditions.is_deployment_completed,
        [with_condition(Deployment, "Progressing", "True", "NewReplicaSetAvailable"),
         with_condition(Deployment, "Progressing", "True", "NewReplicaSetAvailable", observedGeneration=2)],
        [with_condition(Deployment, "Progressing", "True", "ReplicaSetUpdated"),
         with_condition(Deployment, "Progressing", "False", "NewReplicaSetAvailable"), obj_of(Deployment),
         with_condition(Deployment, "Progressing", "True", "NewReplicaSetAvailable", observedGeneration=1)]),
    "a Service that is provisioned": (
        conditions.is_service_loadbalancer_provisioned,
        [addresses(Service, {"ip": "10.0.0.1"}, spec=BALANCED), addresses(Service, {"hostname": "h"}, spec=BALANCED),
         obj_of(Service, spec={"type": "ClusterIP"})],
        [addresses(Service, spec=BALANCED), addresses(Service, {"ip": "10.0.0.1"}, {}, spec=BALANCED),
         obj_of(Service, spec=BALANCED), obj_of(Service, {"loadBalancer": None}, BALANCED)]),
    "an Ingress that is provisioned": (
        conditions.is_ingress_provisioned,
        [addresses(Ingress, {"ip": "10.0.0.1"}), addresses(Ingress, {"hostname": "h"})],
        [addresses(Ingress), addresses(Ingress, {"ip": ""}), obj_of(Ingress), obj_of(Ingress, {"loadBalancer": {}})]),
    "what is Ready": (
        conditions.has("Ready"),
        [with_condition(Pod, "Ready", "True"), with_ready(2), with_ready(None)],
        [with_condition(Pod, "Ready", "False"), with_condition(Pod, "Ready", ""), with_ready(1), obj_of(Pod)]),
    "what has failed to be": (
        conditions.has("Ready", "False"),
        [with_condition(Pod, "Ready", "False")],
        [with_condition(Pod, "Ready", "True"), with_condition(Pod, "ready", "False"), obj_of(Pod)]),
    "anything that exists": (conditions.is_created, [obj_of(Pod)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_so_not_yet_and_not_of_what_is_missing(case: str) -> None:
    condition, so, not_yet = CASES[case]
    assert [condition(obj) for obj in so] == [True] * len(so)
    assert [condition(obj) for obj in not_yet] == [False] * len(not_yet)
    assert condition(None) is False


@pytest.mark.parametrize("case", CASES)
def test_it_reads_objects_without_a_class_as_well(case: str) -> None:
    condition, so, not_yet = CASES[case]
    for obj in so + not_yet:
        assert condition(dynamic(obj.api_resource).from_dict(obj.to_dict())) == condition(obj)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("status", [
    5, "text", [], {"conditions": {"a": 1}}, {"conditions": [None, "text"]}, {"loadBalancer": {"ingress": 5}},
    {"loadBalancer": {"ingress": [None]}}, {"phase": {}}, {"observedGeneration": "1"}, {"observedGeneration": []}])
def test_nonsense_is_not_so_and_ends_no_wait(case: str, status: Any) -> None:
    obj = dynamic(ApiResource("", "v1", "Any", "anys")).from_dict({
        "metadata": {"name": "a", "uid": "u", "generation": 2}, "spec": BALANCED, "status": status})
    assert CASES[case][0](obj) is (CASES[case][0] is conditions.is_created)


def test_ready_is_a_workload_that_is_as_its_spec_says() -> None:
    conditions_of = {"conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}
    two = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, **conditions_of}
    scaled = obj_of(Deployment, two, {"replicas": 3}, generation=2)
    assert conditions.is_deployment_completed(scaled), "Progressing does not speak of scaling"
    assert [conditions.is_ready(obj) for obj in (
        scaled, obj_of(Deployment, two, {"replicas": 2}, generation=2),
        obj_of(Deployment, two, {"replicas": 2}, generation=3),
        obj_of(StatefulSet, {"observedGeneration": 1, "readyReplicas": 1}, {"replicas": 1}, generation=1),
        obj_of(StatefulSet, {"observedGeneration": 1}, {"replicas": 1}, generation=1),
        obj_of(Pod, {"phase": "Running"}), with_condition(Pod, "Ready", "True"),
        with_condition(Job, "Complete", "True"), None)] == [False, True, False, True, False, False, True, True, False]


def test_what_cannot_become_ready_ends_the_wait_and_so_does_a_kind_of_which_nothing_is_known() -> None:
    with pytest.raises(KubeError, match="the Job failed"):
        conditions.is_ready(with_condition(Job, "Failed", "True"))
    with pytest.raises(RequestError, match=r'is_ready knows Deployment, .*, not Service: use has\("Ready"\)'):
        conditions.is_ready(obj_of(Service))


def test_deleted_is_what_is_missing_or_another_one_of_the_same_name() -> None:
    deleted = conditions.is_deleted("u")
    assert [deleted(None), deleted(obj_of(Pod, uid="v")), deleted(obj_of(Pod))] == [True, True, False]
    for no_uid in ("", None, obj_of(Pod)):  # the last: a wait for `is_deleted` instead of `is_deleted(uid)`
        with pytest.raises(RequestError, match="needs the uid"):
            conditions.is_deleted(no_uid)  # type: ignore[arg-type]


def lagging(kind: Any, name: str, own: int | None, of_status: int | None, **entry: Any) -> Any:
    condition = {"type": name, "status": "True", **entry}
    status: dict[str, Any] = {"conditions": [condition]}
    if own is not None:
        condition["observedGeneration"] = own
    if of_status is not None:
        status["observedGeneration"] = of_status
    return obj_of(kind, status, generation=2)


@pytest.mark.parametrize(("own", "of_status", "so"), [
    (None, None, True), (None, 1, False), (None, 2, True), (1, 2, False), (2, 1, True), (1, None, False),
    (3, None, True), ("1", 1, False)])
@pytest.mark.parametrize(("condition", "kind", "name", "entry"), [
    (conditions.has("Available"), Deployment, "Available", {}), (conditions.is_job_completed, Job, "Complete", {}),
    (conditions.has("Ready", "False"), Pod, "Ready", {"status": "False"}),
    (conditions.is_crd_established, CustomResourceDefinition, "Established", {}),
    (conditions.is_deployment_completed, Deployment, "Progressing", {"reason": "NewReplicaSetAvailable"})])
def test_a_condition_of_an_earlier_spec_does_not_count_as_kubectl_has_it(
        condition: Any, kind: Any, name: str, entry: Any, own: Any, of_status: int | None, so: bool) -> None:
    obj = lagging(kind, name, own, of_status, **entry)
    assert condition(obj) is so
    text = last_seen(obj, True)
    assert ("of generation 1, not yet 2" in text) is not so


FAILED_JOB = with_condition(Job, "Failed", "True", "BackoffLimitExceeded")
STUCK = with_condition(Deployment, "Progressing", "False", "ProgressDeadlineExceeded", observedGeneration=2)
TAKEN = with_condition(CustomResourceDefinition, "NamesAccepted", "False", "ListKindConflict")


@pytest.mark.parametrize(("condition", "obj", "said"), [
    (conditions.is_job_completed, FAILED_JOB, "the Job failed: BackoffLimitExceeded"),
    (conditions.is_deployment_completed, STUCK, "progress deadline"),
    (conditions.is_crd_established, TAKEN, "its names are taken: ListKindConflict"),
    (conditions.all_of(conditions.is_created, conditions.is_job_completed), FAILED_JOB, "the Job failed"),
    (conditions.any_of(conditions.is_job_completed, conditions.is_job_completed), FAILED_JOB, "the Job failed")])
def test_what_has_failed_for_good_can_no_longer_become_so(condition: Any, obj: Any, said: str) -> None:
    assert condition(obj) is False
    assert said in conditions.why_never(condition, obj)


class Odd:
    """A condition that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, obj: Any) -> bool:
        return False


@pytest.mark.parametrize(("condition", "obj"), [
    (conditions.is_job_completed, with_condition(Job, "Failed", "False")), (conditions.is_job_completed, obj_of(Job)),
    (conditions.is_deployment_completed, lagging(Deployment, "Progressing", None, 1, status="False",
                                                 reason="ProgressDeadlineExceeded")),
    (conditions.is_crd_established, obj_of(CustomResourceDefinition)), (conditions.is_job_completed, None),
    (conditions.any_of(conditions.is_job_completed, conditions.has("Failed")), FAILED_JOB),
    (conditions.not_(conditions.is_job_completed), FAILED_JOB), (Odd(), FAILED_JOB),
    (conditions.has("Complete"), FAILED_JOB)])
def test_what_may_still_become_so_is_waited_for(condition: Any, obj: Any) -> None:
    assert conditions.why_never(condition, obj) == ""


def test_conditions_combine() -> None:
    running, created = conditions.is_pod_running, conditions.is_created
    pending = obj_of(Pod, {"phase": "Pending"})
    assert conditions.all_of(created, conditions.not_(running))(pending)
    assert not conditions.all_of(created, running)(pending)
    assert conditions.any_of(running, created)(pending)
    assert not conditions.any_of(running, created)(None)
    assert conditions.not_(running)(None)


def test_what_is_no_condition_cannot_be_combined() -> None:
    """An object, above all: a wait for `not_` instead of `not_(condition)` would end at once."""
    for combine in (conditions.all_of, conditions.any_of, conditions.not_):
        for no_condition in (obj_of(Pod), None, [conditions.is_created]):
            with pytest.raises(RequestError, match="functions from an object"):
                combine(no_condition)  # type: ignore[operator]


def test_what_is_no_type_and_status_of_a_condition_is_refused() -> None:
    """An object, above all: a wait for `has` instead of `has("Ready")` would end at once."""
    for arguments in ((obj_of(Pod),), ("",), ("Ready", True), ("Ready", "true"), ("Ready", [])):
        with pytest.raises(RequestError, match="type of a condition"):
            conditions.has(*arguments)  # type: ignore[arg-type]


def test_each_has_a_name_that_messages_can_use() -> None:
    combined = conditions.all_of(conditions.is_created, conditions.not_(conditions.is_deleted("u")))
    assert name_of(combined) == str(combined) == "all_of(is_created, not_(is_deleted(u)))"
    assert [str(conditions.has("Ready")), str(conditions.has("Ready", "False"))] == ["has(Ready)", "has(Ready, False)"]
    assert name_of(lambda _: True).startswith("the lambda in test_conditions.py, line ")
    assert name_of(Ready()) == "Ready"


class Ready:
    """A condition that is an object of a class of its own."""

    def __call__(self, obj: Any) -> bool:
        return obj is not None
