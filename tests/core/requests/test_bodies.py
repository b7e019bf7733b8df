"""Whatever a write is given: dicts, resource objects, the official client's models and foreign ones."""
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client as official

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.params import plain_body
from kubectl_runtime.resources import Deployment, Lease, Pod
from tests.core.examples import encoded, metadata

DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment",
    "metadata": {"name": "a", "labels": {"x": "y"}, "creationTimestamp": "2026-01-01T00:00:00.000000Z"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"x": "y"}},
             "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
             "template": {"metadata": {"labels": {"x": "y"}}, "spec": {
                 "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostIP": "1.1.1.1"}]}]}}}}


def test_official_models_are_written_under_wire_keys() -> None:
    model = official.V1Pod(
        api_version="v1", kind="Pod", metadata=official.V1ObjectMeta(name="a", owner_references=[]),
        spec=official.V1PodSpec(containers=[official.V1Container(name="c", image_pull_policy="Always")], host_ipc=True))
    assert plain_body(model) == {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "ownerReferences": []},
        "spec": {"containers": [{"name": "c", "imagePullPolicy": "Always"}], "hostIPC": True}}


def test_conversion_agrees_with_the_official_one() -> None:
    obj = Deployment.from_dict(DEPLOYMENT)
    model = obj.model(official.V1Deployment)
    assert model.spec.template.spec.containers[0].ports[0].container_port == 80
    assert model.metadata.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    theirs = official.ApiClient().sanitize_for_serialization(model)
    theirs["metadata"]["creationTimestamp"] = DEPLOYMENT["metadata"]["creationTimestamp"]  # type: ignore[index]
    assert plain_body(model) == theirs == DEPLOYMENT


def test_times_of_models_suit_micro_time() -> None:
    spec = official.V1LeaseSpec(renew_time=datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC))
    lease = official.V1Lease(metadata=official.V1ObjectMeta(name="l"), spec=spec)
    assert plain_body(lease)["spec"]["renewTime"] == "2026-01-01T01:02:03.000000Z"
    assert Lease.from_dict(plain_body(lease)).spec.renew_time == "2026-01-01T01:02:03.000000Z"


def test_what_does_not_fit_a_model_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="V1Pod"):
        Pod.from_bytes(encoded({"metadata": metadata(), "spec": {"containers": 3}})).model(official.V1Pod)
    with pytest.raises(RequestError, match="not a model class"):
        Pod.from_bytes(encoded({"metadata": metadata()})).model(dict)


def test_objects_with_a_to_dict_of_wire_keys_are_taken() -> None:
    class Foreign:
        def to_dict(self) -> dict[str, Any]:
            return {"metadata": {"name": "a"}}

    assert plain_body(Foreign()) == {"metadata": {"name": "a"}}


@pytest.mark.parametrize("body", [None, 3, "text", [], Pod])
def test_what_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(RequestError, match="is not an object"):
        plain_body(body)
