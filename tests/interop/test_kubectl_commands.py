"""kubectl: what people do with it all day, and what the tools around it rely on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading

import pytest
import yaml

KUBECTL = shutil.which("kubectl")
pytestmark = [pytest.mark.kubectl, pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")]


def deployment(name, replicas=2, image="example/app:1"):
    return {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}},
                                  "spec": {"containers": [{"name": "main", "image": image,
                                                           "ports": [{"containerPort": 80}]}]}}}}


@pytest.fixture
def kubectl(kubeconfig, namespace, tmp_path_factory):
    """Runs kubectl in the test's namespace; `status` is the exit status to expect, None for any."""
    cache = tmp_path_factory.getbasetemp() / "kubectl-cache"

    def run(*args, stdin=None, status=0, editor="false"):
        if stdin is not None and not isinstance(stdin, str):
            stdin = yaml.safe_dump_all(stdin if isinstance(stdin, list) else [stdin])
        result = subprocess.run([KUBECTL, "--cache-dir", str(cache), "--namespace", namespace, *args], input=stdin,
                                timeout=60, capture_output=True, text=True, check=False,
                                env={**os.environ, "EDITOR": editor})
        shown = result.stdout + result.stderr
        assert status is None or result.returncode == status, f"kubectl {' '.join(args)}: {shown}"
        return shown

    return run


@pytest.fixture
def web(kubectl, namespace):
    """A manifest of a Deployment that has been applied."""
    manifest = deployment("web")
    manifest["metadata"]["namespace"] = namespace
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest)
    return manifest


def image(manifest, name):
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = name
    return manifest


def field(kubectl, resource, path):
    return kubectl("get", resource, "-o", f"jsonpath={{{path}}}")


IMAGE = ".spec.template.spec.containers[0].image"


def test_apply_changes_what_the_manifest_changed_and_nothing_else(kubectl, web):
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=web)
    kubectl("label", "deploy/web", "by-hand=yes")
    assert "configured" in kubectl("apply", "-f", "-", stdin=image(web, "example/app:2"))
    assert field(kubectl, "deploy/web", IMAGE) == "example/app:2"
    assert field(kubectl, "deploy/web", ".metadata.labels.by-hand") == "yes"
    assert field(kubectl, "deploy/web", ".spec.template.spec.containers[0].ports[0].containerPort") == "80"


def test_apply_prunes_what_left_the_manifests(kubectl):
    first, second = ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"set": "a"}}}
                     for name in ("first", "second"))
    kubectl("apply", "-f", "-", stdin=[first, second])
    assert "configmap/second pruned" in kubectl(
        "apply", "--prune", "-l", "set=a", "--prune-allowlist=core/v1/ConfigMap", "-f", "-", stdin=first)


def test_server_side_apply_conflicts_by_manager_and_field_and_is_forced(kubectl, web):
    kubectl("scale", "deploy/web", "--replicas=5")
    mine = image(web, "example/app:2")
    shown = kubectl("apply", "--server-side", "--field-manager=mine", "-f", "-", stdin=mine, status=1)
    assert "Apply failed with 2 conflicts" in shown
    assert 'conflicts with "kubectl" with subresource "scale"' in shown
    assert "- .spec.replicas" in shown
    assert 'conflicts with "kubectl-client-side-apply" using apps/v1' in shown
    assert '- .spec.template.spec.containers[name="main"].image' in shown
    assert "serverside-applied" in kubectl("apply", "--server-side", "--field-manager=mine", "--force-conflicts",
                                           "-f", "-", stdin=mine)
    assert field(kubectl, "deploy/web", ".spec.replicas") == "2"
    assert field(kubectl, "deploy/web", IMAGE) == "example/app:2"


def test_server_side_apply_takes_over_from_client_side_apply(kubectl, web):
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=web)
    del web["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=web)
    assert field(kubectl, "deploy/web", ".spec.template.spec.containers[0].ports") == ""


def test_diff_shows_what_apply_would_change_and_changes_nothing(kubectl, web):
    assert kubectl("diff", "-f", "-", stdin=web) == ""
    for options in ([], ["--server-side", "--force-conflicts"]):
        shown = kubectl("diff", *options, "-f", "-", stdin=image(web, "example/app:2"), status=1)
        assert "-      - image: example/app:1" in shown
        assert "+      - image: example/app:2" in shown
    assert field(kubectl, "deploy/web", ".metadata.generation") == "1"


def test_replace_and_edit_write_back_what_was_read_unless_it_is_stale(kubectl, web, until):
    read = yaml.safe_load(kubectl("get", "deploy/web", "-o", "yaml"))
    assert "edited" in kubectl("edit", "deploy/web", editor="sed -i s/app:1/app:3/")
    assert field(kubectl, "deploy/web", IMAGE) == "example/app:3"
    assert "the object has been modified" in kubectl("replace", "-f", "-", stdin=read, status=1)

    def written_back():  # unless a controller was quicker
        fresh = yaml.safe_load(kubectl("get", "deploy/web", "-o", "yaml"))
        return "replaced" in kubectl("replace", "-f", "-", stdin=image(fresh, "example/app:4"), status=None)

    until(written_back)
    assert field(kubectl, "deploy/web", IMAGE) == "example/app:4"
    uid = field(kubectl, "deploy/web", ".metadata.uid")
    assert "replaced" in kubectl("replace", "--force", "-f", "-", stdin=web)
    assert field(kubectl, "deploy/web", ".metadata.uid") != uid


def test_describe_tells_of_the_object_its_children_and_its_events(kubectl, web, namespace, until):
    uid = field(kubectl, "deploy/web", ".metadata.uid")
    kubectl("create", "-f", "-", stdin={
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning",
        "reason": "Because", "message": "it had to be",
        "involvedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": namespace,
                           "uid": uid},
        "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z", "count": 1})
    until(lambda: "(2/2 replicas created)" in kubectl("describe", "deploy/web"))
    shown = kubectl("describe", "deploy/web")
    assert "2 desired | 2 updated | 2 total | 0 available | 2 unavailable" in shown
    assert "it had to be" in shown
    assert "Controlled By:  ReplicaSet/web-" in kubectl("describe", "pods")
    assert "Because" in kubectl("events", "--for", "deployment/web", "--types=Warning")
    assert "Deployment/web" in kubectl("events")


def test_wait_for_what_comes_and_for_what_goes(kubectl, web):
    assert "condition met" in kubectl("wait", "--for=jsonpath={.spec.replicas}=2", "deploy/web", "--timeout=10s")
    assert "timed out" in kubectl("wait", "--for=condition=Never", "deploy/web", "--timeout=1s", status=1)
    shown = []
    thread = threading.Thread(
        target=lambda: shown.append(kubectl("wait", "--for=delete", "deploy/web", "--timeout=30s")))
    thread.start()
    kubectl("delete", "deploy/web")
    thread.join(30)
    assert "condition met" in shown[0] or shown[0] == ""  # nothing is said of what has gone before
    kubectl("run", "p", "--image=example/app:1")
    kubectl("patch", "pod/p", "--subresource=status", "--type=merge", "-p",
            json.dumps({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")


def test_scale(kubectl, web, until):
    kubectl("scale", "deploy/web", "--replicas=4")
    until(lambda: len(kubectl("get", "pods", "-o", "name").split()) == 4)
    assert "Expected replicas to be 9, was 4" in kubectl(
        "scale", "deploy/web", "--current-replicas=9", "--replicas=1", status=1)
    assert kubectl("get", "deploy/web").split()[5:8] == ["web", "0/4", "4"]


def test_rollouts(kubectl, web, until):
    def pods():
        return kubectl("get", "pods", "-o", "name").split()

    def all_ready():  # what a kubelet would report
        for pod in pods():
            kubectl("patch", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}), status=None)
        return True

    first = until(lambda: len(pods()) == 2 and pods())
    all_ready()
    kubectl("rollout", "restart", "deploy/web")
    until(lambda: kubectl("rollout", "history", "deploy/web").count("<none>") == 2)
    until(lambda: len(pods()) == 3 and set(first) < set(pods()))  # one more at first, none less
    assert "1 out of 2 new replicas have been updated" in kubectl(
        "rollout", "status", "deploy/web", "--timeout=1s", status=1)
    until(lambda: all_ready() and len(pods()) == 2 and not set(pods()) & set(first))
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    assert "restartedAt" in kubectl("get", "deploy/web", "-o", "yaml")
    assert "rolled back" in kubectl("rollout", "undo", "deploy/web")
    assert "restartedAt" not in field(kubectl, "deploy/web", ".spec.template")
    kubectl("set", "image", "deploy/web", "main=example/app:9")
    assert field(kubectl, "deploy/web", IMAGE) == "example/app:9"


def test_foreground_deletion_takes_the_children_first_and_orphans_stay(kubectl, web, until):
    until(lambda: len(kubectl("get", "pods", "-o", "name").split()) == 2)
    kubectl("delete", "deploy/web", "--cascade=foreground", "--timeout=30s")
    assert "No resources found" in kubectl("get", "deploy,rs,pods")
    kubectl("apply", "-f", "-", stdin=web)
    until(lambda: len(kubectl("get", "pods", "-o", "name").split()) == 2)
    kubectl("delete", "deploy/web", "--cascade=orphan")
    assert len(kubectl("get", "rs,pods", "-o", "name").split()) == 3


def test_explain_knows_built_in_kinds_and_custom_ones(kubectl):
    assert "FIELD: strategy <DeploymentStrategy>" in kubectl("explain", "deployment.spec.strategy")
    assert "valueFrom" in kubectl("explain", "pods.spec.containers", "--recursive")
    assert "FIELD: size <integer>" in kubectl("explain", "widgets.spec.size")
    assert "does not exist" in kubectl("explain", "pods.spec.nonsense", status=1)


def test_auth_can_i_follows_roles_where_there_are_any(kubectl, server, namespace):
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    if server.access.mode != "RBAC":
        return
    assert kubectl("auth", "can-i", "list", "pods", "--as=alice", status=1).strip() == "no"
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=alice")
    assert kubectl("auth", "can-i", "list", "pods", "--as=alice").strip() == "yes"
    assert kubectl("auth", "can-i", "list", "pods", "--as=alice", "--all-namespaces", status=1).strip() == "no"
    assert "pods" in kubectl("auth", "can-i", "--list", "--as=alice")
    assert "is forbidden" in kubectl("create", "configmap", "a", "--as=alice", status=1)
    assert "system:masters" in kubectl("auth", "whoami")


def test_namespaces_go_with_what_is_in_them(kubectl, namespace, until):
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    until(lambda: "default" in kubectl("get", "serviceaccounts", "-o", "name"))
    kubectl("delete", "namespace", namespace, "--timeout=30s")
    assert "NotFound" in kubectl("get", "namespace", namespace, status=1)


def test_what_needs_a_kubelet_is_refused_by_name(kubectl):
    kubectl("run", "waiting", "--image=example/app:1")
    assert kubectl("logs", "waiting") == ""  # as on a cluster, while a Pod has no node
    kubectl("run", "p", "--image=example/app:1", "--overrides", '{"spec": {"nodeName": "n1"}}')
    assert "no container runs behind the Pods" in kubectl("logs", "p", status=1)
