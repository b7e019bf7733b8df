"""kubectl against a server whose webhooks deny, warn, change and convert."""
from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from kubectl_runtime.testing import ApiServer
from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.webhooks.test_conversion import between, definition, respond

pytestmark = pytest.mark.kubectl

PLACE = "https://admission.default.svc"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}


def webhook(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Denies what is called bad, warns of the rest, and labels it; or converts."""
    review = json.loads(environ["wsgi.input"].read())
    request, response = review["request"], {}
    start_response("200 OK", [("Content-Type", "application/json")])
    if environ["PATH_INFO"] == "/convert":
        return [json.dumps(respond(review, [between(obj, request["desiredAPIVersion"])
                                            for obj in request["objects"]])).encode()]
    if environ["PATH_INFO"] == "/validate":
        allowed = request["name"] != "bad"
        response = {"allowed": allowed, "warnings": ["think again"]}
        if not allowed:
            response["status"] = {"code": 403, "reason": "Forbidden", "message": "it is called bad"}
    else:
        labels = b'[{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]'
        response = {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(labels).decode()}
    return [json.dumps({**review, "response": {"uid": request["uid"], **response}}).encode()]


@pytest.fixture(scope="module", autouse=True)
def configured(server: ApiServer, kubectl: Kubectl) -> None:
    server.mount_webhook(PLACE, webhook)
    documents = [{
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "test"}, "webhooks": [{
            "name": "test.example.com", "rules": [RULE], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "admission", "path": path}}}]}
        for kind, path in (("Validating", "/validate"), ("Mutating", "/mutate"))]
    kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([*documents, definition(url=f"{PLACE}/convert")]))
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")


def config_map(name: str) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})


@pytest.mark.parametrize("how", [("create",), ("apply",), ("apply", "--server-side")])
def test_denied_warned_and_changed(kubectl: Kubectl, how: tuple[str, ...]) -> None:
    name = "good" + "".join(how).replace("-", "")
    done = kubectl.run(*how, "-f", "-", stdin=config_map(name))
    assert done.returncode == 0, done.stderr
    assert "Warning: think again" in done.stderr
    assert kubectl("get", "configmap", name, "-o", "jsonpath={.metadata.labels.by}") == "webhook"
    denied = kubectl.run(*how, "-f", "-", stdin=config_map("bad"))
    assert denied.returncode == 1
    assert 'admission webhook "test.example.com" denied the request: it is called bad' in denied.stderr


def test_a_custom_resource_in_both_versions(kubectl: Kubectl) -> None:
    obj = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"length": 3}}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(obj))
    assert kubectl("get", "widgets.v1.example.com", "a", "-o", "jsonpath={.spec}") == '{"size":3}'
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump({**obj, "spec": {"length": 4}}))
    kubectl("scale", "widgets.v2.example.com/a", "--replicas=5")
    assert kubectl("get", "widgets.v2.example.com", "-o", "jsonpath={.items[*].spec.length}") == "5"
    kubectl("delete", "widgets.v2.example.com", "a")
