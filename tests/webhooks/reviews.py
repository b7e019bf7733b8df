"""Reviews as kube-apiserver sends them: its keys in its order, its options, its users."""
from __future__ import annotations

import base64
import json
from typing import Any

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
ADMIN = {"username": "kubernetes-admin", "groups": ["kubeadm:cluster-admins", "system:authenticated"],
         "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab12"]}}
KUBELET = {"username": "system:node:worker-1", "groups": ["system:nodes", "system:authenticated"]}
CONTROLLER = {
    "username": "system:serviceaccount:kube-system:replicaset-controller",
    "uid": "18a7a2a6-2d2a-4c29-8c37-f9ae2e7a3a9c",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["kube-controller-manager-a"],
              "authentication.kubernetes.io/pod-uid": ["e2b0a1c2-0000-4000-8000-000000000000"]}}
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions", "PATCH": "PatchOptions"}
PLURALS = {"Pod": "pods", "Deployment": "deployments", "ConfigMap": "configmaps", "Namespace": "namespaces",
           "Widget": "widgets"}


def pod(name: str = "web", *, containers: int = 1, **more: Any) -> dict[str, Any]:
    """A Pod as the server shows it to webhooks, with fields that no class of the tests declares."""
    return {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": None, "labels": {"app": "web"},
                     "managedFields": [{"manager": "kubectl-create", "operation": "Update", "apiVersion": "v1",
                                        "time": "2026-11-28T12:00:00Z", "fieldsType": "FieldsV1",
                                        "fieldsV1": {"f:spec": {"f:containers": {}}}}], **more.pop("metadata", {})},
        "spec": {
            "volumes": [{"name": "kube-api-access-8xwdr", "projected": {"sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420}}],
            "containers": [{
                "name": f"c{number}", "image": "nginx:1.29", "resources": {"limits": {"cpu": "0.50", "memory": "1Gi"}},
                "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
                "futureField": {"level": 1.0}} for number in range(containers)],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "securityContext": {}, "schedulerName": "default-scheduler",
            "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"},
        "status": {}, **more}


def stored(obj: dict[str, Any], version: str = "41") -> dict[str, Any]:
    """The same as it lies in the store: with what the server adds."""
    metadata = {**obj["metadata"], "uid": "a5b6c7d8-0000-4000-8000-000000000001", "resourceVersion": version,
                "creationTimestamp": "2026-11-28T12:00:00Z"}
    return {**obj, "metadata": metadata}


def review(obj: dict[str, Any] | None = None, old: dict[str, Any] | None = None, *, operation: str | None = None,
           version: str = "v1", user: Any = ADMIN, dry_run: bool = False, sub: str = "",
           resource: tuple[str, str, str] | None = None, **request: Any) -> bytes:
    """An AdmissionReview; `request` replaces what is in it."""
    shown = obj or old or {}
    group, _, api_version = shown.get("apiVersion", "v1").rpartition("/")
    operation = operation or ("CREATE" if old is None else "DELETE" if obj is None else "UPDATE")
    kind = {"group": group, "version": api_version, "kind": shown.get("kind", "Pod")}
    plural = {"group": group, "version": api_version, "resource": PLURALS.get(kind["kind"], "pods")}
    if resource is not None:
        plural = dict(zip(("group", "version", "resource"), resource, strict=True))
    below = {"subResource": sub} if sub else {}
    requested = {"requestSubResource": sub} if sub else {}
    metadata = shown.get("metadata", {})
    place = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    name = {"name": metadata["name"]} if metadata.get("name") else {}
    options = {"kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1",
               **({} if operation == "DELETE" else {"fieldManager": "kubectl-create"})} \
        if operation in _OPTIONS else None
    asked = {"uid": UID, "kind": kind, "resource": plural, **below, "requestKind": kind, "requestResource": plural,
             **requested, **name, **place, "operation": operation, "userInfo": user, "object": obj, "oldObject": old,
             "dryRun": dry_run, "options": options}
    return encoded({"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}",
                    "request": {**asked, **request}})


def conversion(*objects: dict[str, Any], to: str, version: str = "v1") -> bytes:
    """A ConversionReview, with the empty response that the server puts beside the request."""
    return encoded({"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{version}",
                    "request": {"uid": UID, "desiredAPIVersion": to, "objects": list(objects)},
                    "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}})


def encoded(content: Any) -> bytes:
    """As Go encodes it, with its line break."""
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def response(body: bytes) -> dict[str, Any]:
    """The response of an answer."""
    found: dict[str, Any] = json.loads(body)["response"]
    return found


def patched(body: bytes) -> list[dict[str, Any]]:
    """The operations of an answer; none if nothing is to change."""
    patch = response(body).get("patch")
    found: list[dict[str, Any]] = json.loads(base64.b64decode(patch)) if patch else []
    return found
