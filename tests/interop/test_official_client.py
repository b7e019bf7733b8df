"""The official client: typed lists and watches, informers, the dynamic client."""

from __future__ import annotations

import json

import pytest

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client, config, dynamic, informer, utils, watch  # noqa: E402


@pytest.fixture
def api_client(kubeconfig):
    with config.new_client_from_config(str(kubeconfig)) as api_client:
        yield api_client


@pytest.fixture
def core(api_client):
    return client.CoreV1Api(api_client)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"test": "yes"}), data=data)


def test_typed_objects_are_written_read_and_deleted(core, namespace):
    made = core.create_namespaced_config_map(namespace, config_map("a", k="v"))
    assert made.metadata.uid
    made.data["k"] = "w"
    assert core.replace_namespaced_config_map("a", namespace, made).data == {"k": "w"}
    assert core.patch_namespaced_config_map("a", namespace, {"data": {"l": "x"}}).data == {"k": "w", "l": "x"}
    core.delete_namespaced_config_map("a", namespace)
    with pytest.raises(client.ApiException) as error:
        core.read_namespaced_config_map("a", namespace)
    assert error.value.status == 404
    assert json.loads(error.value.body)["reason"] == "NotFound"


def test_a_stale_write_is_a_conflict(core, namespace):
    first = core.create_namespaced_config_map(namespace, config_map("a", k="v"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "w"}})
    with pytest.raises(client.ApiException) as error:
        core.replace_namespaced_config_map("a", namespace, first)
    assert error.value.status == 409


def test_typed_lists_come_in_pages_and_by_selector(core, namespace):
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token, label_selector="test=yes")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"c{number}" for number in range(5)]
    only = core.list_namespaced_config_map(namespace, field_selector="metadata.name=c3").items
    assert [item.metadata.name for item in only] == ["c3"]


def test_a_typed_watch_sees_each_change_once_and_ends_on_time(core, namespace):
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    for number in range(3):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}"))
    core.delete_namespaced_config_map("c1", namespace)
    events = watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=version,
                                  timeout_seconds=1, label_selector="test=yes")
    assert [(event["type"], event["object"].metadata.name) for event in events] == [
        ("ADDED", "c0"), ("ADDED", "c1"), ("ADDED", "c2"), ("DELETED", "c1")]


def test_a_watch_from_a_compacted_version_is_expired(server, core, namespace):
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("a"))
    server.expire_history()
    with pytest.raises(client.ApiException) as error:
        list(watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=version,
                                  timeout_seconds=1))
    assert error.value.status == 410


def test_the_shared_informer_follows_the_namespace(core, namespace, until):
    core.create_namespaced_config_map(namespace, config_map("before"))
    seen = []
    shared = informer.SharedInformer(list_func=core.list_namespaced_config_map, namespace=namespace,
                                     label_selector="test=yes")
    for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
        shared.add_event_handler(kind, lambda obj, kind=kind: seen.append((kind, obj.metadata.name)))
    shared.start()
    try:
        until(lambda: ("ADDED", "before") in seen)
        core.create_namespaced_config_map(namespace, config_map("after"))
        core.patch_namespaced_config_map("after", namespace, {"data": {"k": "v"}})
        until(lambda: ("MODIFIED", "after") in seen)
        assert sorted(obj.metadata.name for obj in shared.cache.list()) == ["after", "before"]
        core.delete_namespaced_config_map("before", namespace)
        until(lambda: ("DELETED", "before") in seen)
    finally:
        shared.stop()
    assert seen == [("ADDED", "before"), ("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "before")]


@pytest.fixture
def widgets(api_client):
    return dynamic.DynamicClient(api_client).resources.get(api_version="example.com/v1", kind="Widget")


def test_the_dynamic_client_discovers_kinds_and_writes_in_every_way(widgets, namespace):
    widgets.create(namespace=namespace,
                   body={"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
                                              "spec": {"size": 1}})
    assert widgets.get(name="w", namespace=namespace).spec.size == 1
    widgets.patch(namespace=namespace, name="w", body={"spec": {"size": 2}},
                  content_type="application/merge-patch+json")
    widgets.status.patch(namespace=namespace, name="w", body={"status": {"phase": "Ready"}},
                         content_type="application/merge-patch+json")
    applied = widgets.server_side_apply(namespace=namespace, name="w", field_manager="test", force_conflicts=True,
                                        body={
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}})
    assert (applied.spec.size, applied.status.phase) == (3, "Ready")
    assert [item.metadata.name for item in widgets.get(namespace=namespace).items] == ["w"]
    widgets.delete(name="w", namespace=namespace)
    with pytest.raises(dynamic.exceptions.NotFoundError):
        widgets.get(name="w", namespace=namespace)


def test_the_dynamic_client_watches(widgets, namespace):
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    version = widgets.create(namespace=namespace, body=body).metadata.resourceVersion
    widgets.patch(namespace=namespace, name="w", body={"spec": {"size": 2}},
                  content_type="application/merge-patch+json")
    widgets.delete(name="w", namespace=namespace)
    seen = [(event["type"], event["object"].metadata.name)
            for event in widgets.watch(namespace=namespace, resource_version=version, timeout=1)]
    assert seen == [("MODIFIED", "w"), ("DELETED", "w")]


def test_manifests_are_created_from_yaml(api_client, core, namespace, tmp_path):
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\n", encoding="utf-8")
    utils.create_from_yaml(api_client, str(tmp_path / "a.yaml"), namespace=namespace)
    assert core.read_namespaced_config_map("from-yaml", namespace).metadata.name == "from-yaml"


def test_other_apis_answer_in_their_types(api_client, core, namespace):
    apps, authorization = client.AppsV1Api(api_client), client.AuthorizationV1Api(api_client)
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "a"}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="main", image="example/app:1")]))
    apps.create_namespaced_deployment(namespace, client.V1Deployment(
        metadata=client.V1ObjectMeta(name="d"),
        spec=client.V1DeploymentSpec(replicas=1, selector=client.V1LabelSelector(match_labels={"app": "a"}),
                                     template=template)))
    assert apps.patch_namespaced_deployment_scale("d", namespace, {"spec": {"replicas": 3}}).spec.replicas == 3
    review = authorization.create_self_subject_access_review(client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(verb="get",
                                                                                                  resource="pods"))))
    assert review.status.allowed
    pod = core.create_namespaced_pod(namespace, client.V1Pod(
        metadata=client.V1ObjectMeta(name="p"),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="i")])))
    assert (pod.status.phase, pod.spec.restart_policy) == ("Pending", "Always")
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="p"))
    core.create_namespaced_pod_eviction("p", namespace, eviction)
    assert client.VersionApi(api_client).get_code().major == "1"
    assert "widgets" in [resource.name for resource in
                         client.CustomObjectsApi(api_client).get_api_resources("example.com", "v1").resources]
