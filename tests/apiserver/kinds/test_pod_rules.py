"""Pods: defaults, admission, validation, what may change, subresources."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.kinds.pod.pods import pull_policy, quality_of_service
from tests.apiserver.kinds.kindapi import Api, Maker


@pytest.mark.parametrize(("image", "policy"), [
    ("app", "Always"), ("app:latest", "Always"), ("app:1", "IfNotPresent"), ("host:5000/app", "Always"),
    ("host:5000/app:1", "IfNotPresent"), ("app@sha256:00", "IfNotPresent"), ("app:latest@sha256:00", "Always"),
    ("", "IfNotPresent")])
def test_the_pull_policy_follows_from_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_probes_ports_volumes_and_env_get_their_defaults(api: Api, pod: Maker) -> None:
    container = {"name": "m", "image": "i:1", "ports": [{"containerPort": 80}],
                 "livenessProbe": {"httpGet": {"port": 80}},
                 "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
    volumes = [{"name": "e"}, {"name": "c", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/"}},
               {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    spec = api.made(pod(containers=[container], volumes=volumes))["spec"]
    made = spec["containers"][0]
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert made["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1,
                                     "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert spec["volumes"] == [
        {"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "h", "hostPath": {"path": "/", "type": ""}},
        {"name": "p", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}]


def test_requests_default_to_limits_and_decide_the_quality_of_service(api: Api, pod: Maker) -> None:
    container = {"name": "m", "image": "i",
                 "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
    made = api.made(pod(containers=[container]))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert made["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert quality_of_service({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}) == "Burstable"
    assert quality_of_service({"containers": [{"resources": {}}]}) == "BestEffort"


def test_the_priority_comes_from_the_class(api: Api, pod: Maker) -> None:
    api.made({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7,
              "preemptionPolicy": "Never"})
    spec = api.made(pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    refused = api.create(pod("b", priorityClassName="none"))
    assert refused.status == 403
    assert "no PriorityClass with name none was found" in refused.body["message"]


@pytest.mark.parametrize(("more", "field", "message"), [
    ({"containers": []}, "spec.containers", "Required value"),
    ({"dnsPolicy": "Odd"}, "spec.dnsPolicy", "Unsupported value"),
    ({"containers": [{"name": "m", "image": "i", "ports": [{"containerPort": 70000}]}]},
     "spec.containers[0].ports[0].containerPort", "must be between 1 and 65535, inclusive"),
    ({"containers": [{"name": "m", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
     "spec.containers[0].volumeMounts[0].name", 'Not found: "v"'),
    ({"containers": [{"name": "m", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}]},
     "spec.containers[0].resources.requests", "must be less than or equal to cpu limit of 1"),
    ({"containers": [{"name": "m", "image": "i", "env": [{"name": "A=B"}]}]}, "spec.containers[0].env[0].name",
     "a valid environment variable name"),
    ({"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name", "Duplicate value"),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "must be between 1 and"),
])
def test_what_is_wrong_with_a_pod_is_named(api: Api, pod: Maker, more: dict[str, object], field: str,
                                           message: str) -> None:
    refused = api.create(pod(**more))
    assert refused.status == 422
    assert [(field, True)] == [(name, message in text) for name, text in refused.causes()]


def test_images_and_additional_tolerations_may_change_the_rest_may_not(api: Api, pod: Maker) -> None:
    made = api.made(pod())
    containers = [{**made["spec"]["containers"][0], "image": "example/app:2"}]
    tolerations = [*made["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    changed = api.merge(made, {"spec": {"containers": containers, "tolerations": tolerations}})
    assert changed.status == 200
    assert changed.body["metadata"]["generation"] == 2
    refused = api.merge(made, {"spec": {"schedulerName": "other"}})
    assert refused.status == 422
    assert refused.causes()[0][0] == "spec"
    assert '+ "schedulerName": "other"' in refused.body["message"]


def test_a_pod_can_be_replaced_by_its_own_manifest(api: Api, pod: Maker) -> None:
    manifest = pod()
    made = api.made(manifest)
    replaced = api("PUT", api.path(made, made["metadata"]["name"]), manifest, content_type="application/json")
    assert replaced.status == 200
    assert replaced.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_status_cannot_change_the_spec_nor_the_spec_the_status(api: Api, pod: Maker) -> None:
    made = api.made(pod())
    by_status = api.merge(made, {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}, "status").body
    assert (by_status["status"]["phase"], by_status["spec"].get("nodeName")) == ("Running", None)
    by_spec = api.merge(made, {"status": {"phase": "Failed"}}).body
    assert by_spec["status"]["phase"] == "Running"


def test_ephemeral_containers_have_a_subresource_of_their_own(api: Api, pod: Maker) -> None:
    made = api.made(pod())
    added = api.merge(made, {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}], "nodeName": "n"}},
                      "ephemeralcontainers")
    assert added.status == 200, added.body
    assert added.body["spec"]["ephemeralContainers"][0]["name"] == "debug"
    assert "nodeName" not in added.body["spec"]


def test_a_pod_on_a_node_ends_gracefully(api: Api, pod: Maker) -> None:
    made = api.made(pod(nodeName="n"))
    answer = api("DELETE", api.path(made, "a"))
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api("GET", api.path(made, "a")).status == 200
