"""Pod security by the labels of a Namespace: what is refused, what is warned of, labels that say nothing."""
from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.webhooks.hooked import Hooked

SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"}}
PREFIX = "pod-security.kubernetes.io"


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def namespace(api: Hooked, **labels: str) -> Any:
    return api("POST", "/api/v1/namespaces", {"metadata": {"name": "team", "labels": {
        f"{PREFIX}/{mode}": level for mode, level in labels.items()}}})


def pod(api: Hooked, container: Any = None, name: str = "a", **spec: Any) -> Any:
    return api("POST", "/api/v1/namespaces/team/pods", {"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "x", **(container or {})}], **spec}})


@pytest.mark.parametrize(("container", "spec", "why"), [
    ({}, {"hostNetwork": True, "hostPID": True}, "host namespaces (hostNetwork=true, hostPID=true)"),
    ({"securityContext": {"privileged": True}}, {},
     'privileged (container "main" must not set securityContext.privileged=true)'),
    ({"securityContext": {"capabilities": {"add": ["NET_ADMIN", "CHOWN"]}}}, {},
     'non-default capabilities (container "main" must not include "NET_ADMIN" in securityContext.capabilities.add)'),
    ({}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "v")'),
    ({"ports": [{"containerPort": 80, "hostPort": 80}]}, {}, 'hostPort (container "main" uses hostPort 80)'),
    ({}, {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
     "forbidden sysctls (kernel.msgmax)"),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {},
     'seccompProfile (container "main" must not set securityContext.seccompProfile.type to "Unconfined")'),
    ({"securityContext": {"seLinuxOptions": {"user": "x", "type": "spc_t"}}}, {},
     'seLinuxOptions (container "main" set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be '
     "set)"),
])
def test_what_baseline_refuses(api: Hooked, container: Any, spec: Any, why: str) -> None:
    namespace(api, enforce="baseline")
    refused = pod(api, container, **spec)
    assert refused.status == 403
    assert refused.body["message"] == f'pods "a" is forbidden: violates PodSecurity "baseline:latest": {why}'
    assert pod(api, name="b").status == 201


def test_what_restricted_wants(api: Hooked) -> None:
    namespace(api, enforce="restricted")
    refused = pod(api)
    assert refused.body["message"].partition(": violates ")[2] == (
        'PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"main\" must set "
        'securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set '
        'securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set '
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")')
    assert pod(api, {"securityContext": SAFE}).status == 201
    root = pod(api, {"securityContext": {**SAFE, "runAsUser": 0}}, name="b")
    assert 'runAsUser=0 (container "main" must not set runAsUser=0)' in root.body["message"]
    volume = pod(api, {"securityContext": SAFE}, name="c", volumes=[{"name": "v", "nfs": {"server": "x", "path": "/"}}])
    assert 'restricted volume types (volume "v" uses restricted volume type "nfs")' in volume.body["message"]


def test_warnings_are_for_pods_and_for_templates(api: Hooked) -> None:
    namespace(api, warn="baseline", enforce="privileged")
    warned = pod(api, hostNetwork=True)
    assert warned.status == 201
    assert 'would violate PodSecurity \\"baseline:latest\\": host namespaces (hostNetwork=true)' in warned.headers[
        "warning"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": True, "containers": [
        {"name": "main", "image": "x"}]}}
    for path, spec in (("apps/v1/namespaces/team/deployments", {"selector": {"matchLabels": {"a": "b"}}}),
                       ("apps/v1/namespaces/team/daemonsets", {"selector": {"matchLabels": {"a": "b"}}})):
        made = api("POST", f"/apis/{path}", {"metadata": {"name": "d"}, "spec": {**spec, "template": template}})
        assert "would violate PodSecurity" in made.headers["warning"]
    template["spec"]["restartPolicy"] = "Never"
    job = api("POST", "/apis/batch/v1/namespaces/team/cronjobs", {"metadata": {"name": "d"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}})
    assert "host namespaces (hostPID=true)" in job.headers["warning"]


@pytest.mark.parametrize(("label", "value"), [("enforce", "bogus"), ("warn", "Baseline"), ("audit", "")])
def test_a_level_that_is_none_is_refused(api: Hooked, label: str, value: str) -> None:
    assert namespace(api, **{label: value}).status == 422
    assert namespace(api).status == 201
    changed = api.merge("/api/v1/namespaces/team", {"metadata": {"labels": {f"{PREFIX}/{label}": value}}})
    assert changed.status == 422
    assert f"metadata.labels[{PREFIX}/{label}]: Invalid value" in changed.body["message"]


@pytest.mark.parametrize(("version", "status"), [("latest", 200), ("v1.30", 200), ("1.30", 422), ("v2.0", 422)])
def test_versions(api: Hooked, version: str, status: int) -> None:
    namespace(api)
    change = {"metadata": {"labels": {f"{PREFIX}/enforce": "baseline", f"{PREFIX}/enforce-version": version}}}
    assert api.merge("/api/v1/namespaces/team", change).status == status


def test_a_new_level_warns_of_the_pods_that_are_there(api: Hooked) -> None:
    namespace(api)
    pod(api, hostNetwork=True)
    pod(api, name="b", hostNetwork=True)
    pod(api, name="c")
    changed = api.merge("/api/v1/namespaces/team", {"metadata": {"labels": {f"{PREFIX}/enforce": "baseline"}}})
    assert changed.status == 200
    assert 'existing pods in namespace \\"team\\" violate the new PodSecurity' in changed.headers["warning"]
    assert "a (and 1 other pod): host namespaces" in changed.headers["warning"]
