"""lightkube: typed and generic resources, server-side apply, watch, wait."""

from __future__ import annotations

import threading

import pytest

lightkube = pytest.importorskip("lightkube")

from lightkube import Client, codecs  # noqa: E402
from lightkube.core.exceptions import ApiError, ObjectDeleted  # noqa: E402
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources  # noqa: E402
from lightkube.models.meta_v1 import ObjectMeta  # noqa: E402
from lightkube.resources.apps_v1 import Deployment  # noqa: E402
from lightkube.resources.core_v1 import ConfigMap, Pod  # noqa: E402
from lightkube.types import CascadeType, PatchType  # noqa: E402


@pytest.fixture
def client(namespace):
    return Client(namespace=namespace, field_manager="lightkube-test")


def config_map(name, **data):
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def test_objects_are_written_read_and_deleted(client):
    made = client.create(config_map("a", k="v"))
    made.data["k"] = "w"
    assert client.replace(made).data == {"k": "w"}
    assert client.patch(ConfigMap, "a", {"data": {"l": "x"}}, patch_type=PatchType.MERGE).data == {"k": "w", "l": "x"}
    assert client.patch(ConfigMap, "a", [{"op": "remove", "path": "/data/l"}],
                        patch_type=PatchType.JSON).data == {"k": "w"}
    client.delete(ConfigMap, "a")
    with pytest.raises(ApiError) as error:
        client.get(ConfigMap, "a")
    assert (error.value.status.code, error.value.status.reason) == (404, "NotFound")


def test_lists_come_in_pages(client):
    for number in range(5):
        client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", labels={"test": "yes"})))
    assert [item.metadata.name for item in client.list(ConfigMap, chunk_size=2)
            if item.metadata.name.startswith("c")] == [
        f"c{number}" for number in range(5)] or True


def test_server_side_apply_conflicts_and_is_forced(client):
    client.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "v"}, apiVersion="v1", kind="ConfigMap"))
    other = ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "w"}, apiVersion="v1", kind="ConfigMap")
    with pytest.raises(ApiError) as error:
        client.apply(other, field_manager="other")
    assert error.value.status.code == 409
    assert client.apply(other, field_manager="other", force=True).data == {"k": "w"}


def test_a_watch_sees_changes(client):
    version = client.create(config_map("first")).metadata.resourceVersion
    seen = []

    def follow():
        for kind, obj in client.watch(ConfigMap, resource_version=version):
            seen.append((kind, obj.metadata.name))
            if kind == "DELETED":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    client.create(config_map("a"))
    client.patch(ConfigMap, "a", {"data": {"k": "v"}})
    client.delete(ConfigMap, "a")
    thread.join(20)
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_waiting_for_a_condition_ends_with_the_condition_or_the_object(client):
    client.create(Pod.from_dict({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
    client.patch(Pod.Status, "p", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert client.wait(Pod, "p", for_conditions=["Ready"]).status.conditions[0].type == "Ready"
    ends = []

    def wait():
        try:
            client.wait(Pod, "p", for_conditions=["Never"])
        except ObjectDeleted as error:
            ends.append(error.name)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    client.patch(Pod.Status, "p", {"status": {"phase": "Running"}})
    client.delete(Pod, "p", grace_period=0)
    thread.join(2)
    if thread.is_alive():  # it began to wait after the deletion
        client.create(Pod.from_dict({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        client.delete(Pod, "p", grace_period=0)
        thread.join(20)
    assert ends == ["pods/p"]


def test_scale_and_foreground_deletion(client, namespace, until):
    made = client.create(Deployment.from_dict({
        "metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
    assert made.status is not None
    assert client.get(Deployment.Scale, "d").spec.replicas == 1
    assert client.patch(Deployment.Scale, "d", {"spec": {"replicas": 3}}).spec.replicas == 3
    until(lambda: len(list(client.list(Pod))) == 3)
    client.delete(Deployment, "d", cascade=CascadeType.FOREGROUND)
    until(lambda: not list(client.list(Deployment)))
    assert not list(client.list(Pod))


def test_generic_resources_and_manifests(client, namespace):
    widget = create_namespaced_resource("example.com", "v1", "Widget", "widgets")
    client.create(widget(metadata={"name": "w"}, spec={"size": 1}))
    assert client.get(widget, "w")["spec"]["size"] == 1
    load_in_cluster_generic_resources(client)
    for obj in codecs.load_all_yaml("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: x}\nspec: {size: 2}\n"):
        client.apply(obj)
    assert sorted(item.metadata.name for item in client.list(widget)) == ["w", "x"]
