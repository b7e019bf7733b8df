"""When an object is ready: what is still missing, by what its status says."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.kubectl.readiness import gone, is_active, is_established, missing_of
from kubectl_runtime.runtime import conditions
from kubectl_runtime.runtime.conditions import NeverReady

GROUPS = {"Deployment": "apps", "StatefulSet": "apps", "DaemonSet": "apps", "ReplicaSet": "apps", "Job": "batch",
          "ReplicationController": "", "Pod": ""}
UNSEEN = "its controller has not seen the latest change"


def condition(kind: str, status: str, reason: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason}]}


def missing(kind: str, spec: Any, status: Any, generation: int = 1) -> str:
    gvk = GroupVersionKind(GROUPS[kind], "v1", kind)
    rule = missing_of(gvk, {})
    assert rule is not None
    obj = dynamic(ApiResource.from_gvk(gvk)).from_dict({
        "metadata": {"name": "a", "uid": "u", "generation": generation}, "spec": spec, "status": status})
    return rule(obj)


ROLLED_OUT = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
REVISED = {"observedGeneration": 1, "readyReplicas": 3, "updatedReplicas": 1, "updateRevision": "b",
           "currentRevision": "a"}


@pytest.mark.parametrize(("kind", "spec", "status", "said"), [
    ("Deployment", {"replicas": 3}, ROLLED_OUT, ""),
    ("Deployment", {"replicas": 3}, None, UNSEEN),
    ("Deployment", {"replicas": 3}, {**ROLLED_OUT, "observedGeneration": 0}, UNSEEN),
    ("Deployment", {"replicas": 4}, ROLLED_OUT, "3 of 4 replicas are updated"),
    ("Deployment", {"replicas": 3}, {**ROLLED_OUT, "replicas": 4}, "1 old replicas are still there"),
    ("Deployment", {"replicas": 3}, {**ROLLED_OUT, "availableReplicas": None}, "0 of 3 updated replicas are available"),
    ("Deployment", {"replicas": 4, "paused": True}, ROLLED_OUT, ""),
    ("Deployment", {}, {"observedGeneration": 1}, "0 of 1 replicas are updated"),
    ("Deployment", {"replicas": 0}, {"observedGeneration": 1}, ""),
    ("StatefulSet", {"replicas": 3}, {**REVISED, "currentRevision": "b"}, ""),
    ("StatefulSet", {"replicas": 3}, REVISED, "1 of 3 replicas are updated"),
    ("StatefulSet", {"replicas": 4}, REVISED, "3 of 4 replicas are ready"),
    ("StatefulSet", {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}, REVISED, ""),
    ("StatefulSet", {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}, REVISED, ""),
    ("StatefulSet", {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 1}}}, REVISED,
     "1 of 2 replicas are updated"),
    ("DaemonSet", {}, {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                       "numberAvailable": 2}, ""),
    ("DaemonSet", {}, {"observedGeneration": 1}, ""),
    ("DaemonSet", {}, {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1},
     "1 of 2 Pods are updated"),
    ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}},
     {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 1}, "1 of 2 Pods are available"),
    ("ReplicaSet", {"replicas": 2}, {"observedGeneration": 1, "readyReplicas": 2}, ""),
    ("ReplicaSet", {"replicas": 2}, {"observedGeneration": 1}, "0 of 2 replicas are ready"),
    ("ReplicationController", {}, {"observedGeneration": 1}, "0 of 1 replicas are ready"),
    ("Job", {}, condition("Complete", "True"), ""),
    ("Job", {}, {"active": 2, "failed": 1}, "it is not complete: 2 active, 0 succeeded, 1 failed"),
    ("Job", {"suspend": True}, {}, ""),
    ("Pod", {}, condition("Ready", "True"), ""),
    ("Pod", {}, {"phase": "Succeeded", **condition("Ready", "False")}, ""),
    ("Pod", {}, {"phase": "Running", **condition("Ready", "False")}, "it is Running and not ready"),
    ("Pod", {}, {}, "it is Pending and not ready"),
])
def test_what_is_missing(kind: str, spec: Any, status: Any, said: str) -> None:
    assert missing(kind, spec, status) == said


@pytest.mark.parametrize(("kind", "status", "said"), [
    ("Deployment", {**ROLLED_OUT, **condition("Progressing", "False", "ProgressDeadlineExceeded")}, "exceeded its"),
    ("Job", condition("Failed", "True", "DeadlineExceeded"), "the Job failed: DeadlineExceeded"),
    ("Pod", {"phase": "Failed", "reason": "Evicted"}, "the Pod failed: Evicted"),
])
def test_what_has_failed_for_good_is_raised(kind: str, status: Any, said: str) -> None:
    with pytest.raises(NeverReady, match=said):
        missing(kind, {}, status)


@pytest.mark.parametrize(("kind", "wanted", "status", "said"), [
    ("Job", conditions.is_job_completed, condition("Failed", "True", "DeadlineExceeded"), "DeadlineExceeded"),
    ("Deployment", conditions.is_deployment_completed, condition("Progressing", "False", "ProgressDeadlineExceeded"),
     "exceeded its"),
    ("Job", conditions.all_of(conditions.is_created, conditions.is_job_completed), condition("Failed", "True"),
     "the Job failed")])
def test_so_it_is_where_the_condition_is_the_callers(kind: str, wanted: Any, status: Any, said: str) -> None:
    gvk = GroupVersionKind(GROUPS[kind], "v1", kind)
    rule = missing_of(gvk, {kind: wanted})
    assert rule is not None
    obj = dynamic(ApiResource.from_gvk(gvk)).from_dict({"metadata": {"name": "a"}, "status": status})
    with pytest.raises(NeverReady, match=said):
        rule(obj)
    assert rule(None)


def test_a_failure_before_the_latest_change_is_not_held_against_it() -> None:
    before = {**ROLLED_OUT, **condition("Progressing", "False", "ProgressDeadlineExceeded")}
    assert missing("Deployment", {}, before, generation=2) == UNSEEN


@pytest.mark.parametrize("kind", GROUPS)
def test_what_does_not_exist_or_says_nonsense_is_not_ready(kind: str) -> None:
    rule = missing_of(GroupVersionKind(GROUPS[kind], "v1", kind), {})
    assert rule is not None
    assert rule(None) == "it does not exist"
    for nonsense in ("nonsense", {"observedGeneration": "1", "replicas": "3"}, {"observedGeneration": []},
                     {"observedGeneration": 1, "readyReplicas": "3", "updatedReplicas": [], "replicas": {}}):
        said = missing(kind, {"replicas": None, "updateStrategy": {"rollingUpdate": {"partition": "1"}}}, nonsense)
        assert said or (kind == "DaemonSet" and "replicas" in nonsense)  # which wants none on any node


def test_other_kinds_are_waited_for_only_if_asked() -> None:
    gvk = GroupVersionKind("example.com", "v1", "Widget")
    assert missing_of(gvk, {}) is None
    for name in ("Widget", "Widget.example.com"):
        rule = missing_of(gvk, {name: lambda obj: obj is not None})
        assert rule is not None
        assert "the lambda in test_readiness.py" in rule(None)
        assert rule(object()) == ""
    assert missing_of(gvk, {"Widget.example.org": lambda obj: True}) is None


def test_namespaces_definitions_and_ends() -> None:
    held = dynamic(ApiResource("", "v1", "ConfigMap", "configmaps")).from_dict({
        "metadata": {"name": "a", "uid": "u", "finalizers": ["x", "y"]},
        "status": {"phase": "Terminating", "conditions": [
            {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "False"}]}})
    assert (is_active(held), is_active(None)) == ("its phase is Terminating", "it does not exist")
    assert (is_established(held), is_established(None)) == ("it is not established", "it does not exist")
    assert (gone("u")(held), gone("other")(held), gone("u")(None)) == ("it waits for its finalizers x, y", "", "")
