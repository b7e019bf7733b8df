"""Admission webhooks for Pods: they refuse some Pods, warn about others, and add a label that names the team.

    cd examples && kubectl-runtime run admission:main --dev          on an embedded API server, for kubectl to try
    SERVICE=shop/pod-policy kubectl-runtime run admission:main       in a Pod behind the Service of that name

The program makes its own certificates, applies its webhook configurations, and is ready when the API server trusts it.
The API server calls the webhooks only for namespaces with a label, so that the cluster stays usable while the program
does not run.
"""
from __future__ import annotations

import os

from kubectl_runtime import Admission, AdmissionRequest, Client, Denied, Manager, WebhookServer
from kubectl_runtime.resources import Pod
from kubectl_runtime.webhooks import SelfSigned, application

TEAM = "demo.kubectl-runtime.dev/team"


class PodPolicy(Admission[Pod], name="pods.policy.kubectl-runtime.dev", failure_policy="Fail", timeout=5,
                namespace_selector="pod-policy=on",
                match_conditions={"no-nodes": "!('system:nodes' in request.userInfo.groups)"}):
    """Requires memory limits, warns about images without a version, and adds the team's label."""

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        old = {container.name for container in request.old.spec.containers} if request.old else set()
        for container in request.object.spec.containers:
            limits = container.resources.limits
            if "memory" not in limits and container.name not in old:  # allow updates of running Pods
                raise Denied(f"container {container.name} has no memory limit; set spec.containers[].resources.limits")
            name, _, tag = (container.image or "").rpartition("/")[2].partition(":")
            if tag in ("", "latest"):
                request.warn(f"container {container.name}: the image {name} has no fixed version; use a version tag")

    def mutate(self, request: AdmissionRequest[Pod]) -> Pod | None:
        if TEAM in request.object.labels:
            return None
        pod = request.object
        pod.labels[TEAM] = request.namespace or ""
        return pod


app = application({"/pods": PodPolicy()})


def webhook_server(client: Client, *, host: str = "", port: int = 9443) -> WebhookServer:
    """Serves the webhooks behind the Service that the variable SERVICE names or, without SERVICE, at 127.0.0.1."""
    service = os.environ.get("SERVICE")
    return WebhookServer(app, (host, port), certificates=SelfSigned(service), client=client,
                         configuration="pod-policy", url=None if service else f"https://127.0.0.1:{port}")


def main(client: Client) -> Manager:
    return Manager(client).add_server(webhook_server(client))
