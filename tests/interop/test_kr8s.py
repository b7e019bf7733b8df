"""kr8s: objects with methods, discovery on the way, watch, wait, scale."""

from __future__ import annotations

import threading

import pytest

kr8s = pytest.importorskip("kr8s")

from kr8s.objects import ConfigMap, Deployment, Pod, new_class  # noqa: E402

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "example/app:1"}]}}


@pytest.fixture
def api(kubeconfig, namespace):
    return kr8s.api(kubeconfig=str(kubeconfig), namespace=namespace)


def test_objects_are_written_read_and_deleted(api, namespace):
    made = ConfigMap({"metadata": {"name": "a", "namespace": namespace}, "data": {"k": "v"}}, api=api)
    made.create()
    assert made.exists()
    made.patch({"data": {"l": "x"}})
    assert dict(made.data) == {"k": "v", "l": "x"}
    made.label(test="yes")
    made.annotate({"note": "n"})
    assert [item.name for item in api.get("configmaps", label_selector={"test": "yes"})] == ["a"]
    made.delete()
    assert not made.exists()
    with pytest.raises(kr8s.NotFoundError):
        made.refresh()


def test_a_watch_sees_changes(api, namespace, until):
    seen = []
    ready = threading.Event()

    def follow():
        for kind, obj in api.watch("configmaps", field_selector="metadata.name=a"):
            seen.append((kind, obj.name))
            if kind == "DELETED":
                return
            ready.set()

    made = ConfigMap({"metadata": {"name": "a", "namespace": namespace}}, api=api)
    made.create()
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert ready.wait(20)
    made.patch({"data": {"k": "v"}})
    made.delete()
    thread.join(20)
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_waiting_for_a_condition(api, namespace):
    pod = Pod({**POD, "metadata": {"name": "p", "namespace": namespace}}, api=api)
    pod.create()
    pod.patch({"status": {"phase": "Running", "conditions": [
        {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]}}, subresource="status")
    pod.wait("condition=Ready", timeout=10)
    pod.wait("jsonpath='{.status.phase}'=Running", timeout=10)
    assert pod.ready()
    pod.delete(grace_period=0)
    pod.wait("delete", timeout=10)


def test_a_deployment_scales_and_finds_its_pods(api, namespace, until):
    made = Deployment({"metadata": {"name": "d", "namespace": namespace}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": POD["spec"]}}}, api=api)
    made.create()
    until(lambda: len(made.pods()) == 1)
    made.scale(3)
    until(lambda: len(made.pods()) == 3)
    made.delete(propagation_policy="Foreground")
    until(lambda: not made.exists())
    assert not list(api.get("pods"))


def test_custom_resources_are_discovered(api, namespace):
    widgets = new_class("Widget", version="example.com/v1", namespaced=True)
    widgets({"metadata": {"name": "w", "namespace": namespace}, "spec": {"size": 1}}, api=api).create()
    found = list(api.get("widgets.example.com"))
    assert [(item.name, item.spec.size) for item in found] == [("w", 1)]
    assert any(resource["kind"] == "Widget" for resource in api.api_resources())
    assert api.version()["gitVersion"].startswith("v1.")
