"""The Pod policy: what it refuses, warns of and changes; by itself, and asked by an API server for kubectl."""
from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="the example makes its own certificates")

from admission import TEAM, PodPolicy, app, webhook_server

from kubectl_runtime import Api, ApiError, Client, RequestError
from kubectl_runtime.resources import Namespace, Pod, ValidatingWebhookConfiguration
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.webhooks import AdmissionRequest, Denied
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from tests.examples.programs import LIMIT, ROOT, environment

PROGRAM = ROOT / "examples" / "admission.py"


def pod(name: str = "web", *, image: str = "nginx:1.29", memory: str | None = "64Mi", **more: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"memory": memory}}} if memory else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", **more},
            "spec": {"containers": [{"name": "main", "image": image, **limits}]}}


def request(obj: dict[str, Any], old: dict[str, Any] | None = None) -> AdmissionRequest[Pod]:
    return AdmissionRequest.of(Pod.from_dict(obj), old=None if old is None else Pod.from_dict(old))


def test_a_container_without_a_limit_is_refused_but_not_one_that_runs_already() -> None:
    policy = PodPolicy()
    policy.validate(request(pod()))
    with pytest.raises(Denied, match="container main has no memory limit"):
        policy.validate(request(pod(memory=None)))
    policy.validate(request(pod(memory=None), pod(memory=None)))


@pytest.mark.parametrize(("image", "warned"), [
    ("nginx:1.29", False), ("registry:5000/nginx:1.29", False), ("nginx", True), ("registry:5000/nginx", True),
    ("nginx:latest", True)])
def test_an_image_that_says_no_version_is_warned_of(image: str, warned: bool) -> None:
    asked = request(pod(image=image))
    PodPolicy().validate(asked)
    assert bool(asked.warnings()) is warned


def test_each_pod_says_whose_it_is_once() -> None:
    labelled = PodPolicy().mutate(request(pod()))
    assert labelled is not None
    assert labelled.labels == {TEAM: "shop"}
    assert PodPolicy().mutate(request(pod(labels={TEAM: "bank"}))) is None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Client]:
    """Of a cluster that asks the policy, in the namespace shop."""
    with api_server.client() as client:
        Api.all(client, Namespace).create(Namespace(name="shop", labels={"pod-policy": "on"}))
        with webhook_server(client, host="127.0.0.1", port=free_port()) as hooks:
            end = time.monotonic() + LIMIT
            while hooks.why_not_ready:
                assert time.monotonic() < end, hooks.why_not_ready
                time.sleep(0.01)
            yield client


def test_an_api_server_asks_it(client: Client) -> None:
    pods = Api.namespaced(client, Pod, "shop")
    assert pods.create(pod()).labels == {TEAM: "shop"}
    with pytest.raises(ApiError) as refused:
        pods.create(pod("greedy", memory=None))
    assert refused.value.is_forbidden
    assert ('admission webhook "pods.policy.kubectl-runtime.dev" denied the request: container main has no memory '
            "limit") in str(refused.value)
    elsewhere = Api.namespaced(client, Pod, "default")
    assert elsewhere.create({**pod(memory=None), "metadata": {"name": "free"}}).labels == {}


@pytest.mark.kubectl
def test_kubectl_apply_is_denied_with_the_reason_warned_and_changed(client: Client, api_server: ApiServer,
                                                                    tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    api_server.write_kubeconfig(tmp_path / "kubeconfig")

    def apply(obj: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([kubectl, "--kubeconfig", str(tmp_path / "kubeconfig"), "apply", "-f", "-"],
                              input=json.dumps(obj), env=environment({"HOME": tmp_path}), capture_output=True,
                              text=True, timeout=LIMIT, check=False)

    denied = apply(pod(memory=None))
    assert denied.returncode == 1
    assert denied.stderr.startswith("Error from server (Forbidden): ")
    assert ('admission webhook "pods.policy.kubectl-runtime.dev" denied the request: container main has no memory '
            "limit") in denied.stderr
    warned = apply(pod(image="nginx"))
    assert (warned.returncode, warned.stdout) == (0, "pod/web created\n")
    assert warned.stderr == "Warning: container main: the image nginx has no fixed version; use a version tag\n"
    assert Api.namespaced(client, Pod, "shop").get("web").labels == {TEAM: "shop"}
    assert apply(pod(image="nginx:1.29")).stdout == "pod/web configured\n"


def test_without_the_program_nothing_gets_past_it_where_it_counts(api_server: ApiServer, client: Client) -> None:
    configurations = Api.all(client, ValidatingWebhookConfiguration)
    assert configurations.get("pod-policy").webhooks[0].failure_policy == "Fail"
    assert configurations.get("pod-policy").webhooks[0].timeout_seconds == 5


def test_behind_a_service_it_is_called_by_its_name(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE", "shop/pod-policy")
    with webhook_server(client, host="127.0.0.1", port=0) as hooks:
        assert hooks.ca_bundle
    assert SelfSigned("shop/pod-policy").names[0] == "pod-policy.shop.svc"
    monkeypatch.setenv("SERVICE", "pod-policy")
    with pytest.raises(RequestError, match="NAMESPACE/NAME"):
        webhook_server(client)


def test_its_manifests_are_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "kubectl_runtime", "webhooks", "admission:app", "--service",
                           "shop/pod-policy"], cwd=PROGRAM.parent, env=environment(), capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("name: pods.policy.kubectl-runtime.dev") == 2
    assert app.paths == ("/pods/validate", "/pods/mutate")
