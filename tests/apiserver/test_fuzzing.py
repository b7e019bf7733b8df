"""Whatever is asked, the core answers; it never fails with a 500 of its own making."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.wire import HttpRequest
from tests.thoroughness import examples

CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
       "metadata": {"name": "widgets.example.com"},
       "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}, "list": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                                                             "statusReplicasPath": ".status.replicas"}}}]}}

RESOURCES = {
    "/api/v1/namespaces": ("v1", "Namespace"),
    "/api/v1/namespaces/default/configmaps": ("v1", "ConfigMap"),
    "/api/v1/namespaces/default/secrets": ("v1", "Secret"),
    "/api/v1/namespaces/default/pods": ("v1", "Pod"),
    "/api/v1/namespaces/default/services": ("v1", "Service"),
    "/api/v1/namespaces/default/events": ("v1", "Event"),
    "/apis/events.k8s.io/v1/namespaces/default/events": ("events.k8s.io/v1", "Event"),
    "/apis/apps/v1/namespaces/default/deployments": ("apps/v1", "Deployment"),
    "/apis/batch/v1/namespaces/default/jobs": ("batch/v1", "Job"),
    "/apis/batch/v1/namespaces/default/cronjobs": ("batch/v1", "CronJob"),
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers": ("autoscaling/v1", "HorizontalPodAutoscaler"),
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": ("coordination.k8s.io/v1", "Lease"),
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses": ("networking.k8s.io/v1", "Ingress"),
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    "/apis/example.com/v1/namespaces/default/widgets": ("example.com/v1", "Widget"),
}
WORDS = ("", "a", "b", "metadata", "name", "namespace", "spec", "status", "data", "default", "labels", "annotations",
         "finalizers", "ownerReferences", "uid", "replicas", "containers", "image", "selector", "matchLabels",
         "template", "conditions", "type", "rules", "ports", "port", "list", "kubernetes", "example.com/f", "v1",
         "Always", "items", "generateName", "managedFields", "resourceVersion", "deletionTimestamp",
         "2024-01-01T00:00:00Z", "versions", "names", "group", "scope", "schema", "openAPIV3Schema", "properties",
         "preconditions", "propagationPolicy", "$patch")
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70),
                    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(WORDS), st.text(max_size=5))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)), max_leaves=12)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=4).map(json.dumps).map(str.encode),
    VALUES.map(json.dumps).map(str.encode), st.binary(max_size=30), st.text(max_size=30).map(str.encode))
TYPES = st.sampled_from(("", "application/json", "application/yaml", "text/plain", "application/merge-patch+json",
                         "application/json-patch+json", "application/strategic-merge-patch+json",
                         "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"))
ACCEPTS = st.sampled_from(("", "*/*", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1", "text/html",
                           "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", ";;q=x",
                           "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"))
PARAMETERS = st.lists(st.tuples(
    st.sampled_from(("watch", "limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "dryRun",
                     "force",
                     "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "pretty",
                     "fieldManager", "fieldValidation", "gracePeriodSeconds", "propagationPolicy", "orphanDependents",
                     "includeObject")),
    st.one_of(st.sampled_from(("", "0", "1", "true", "All", "Strict", "a=b", "a in (b", "metadata.name=a", "Foreground",
                               "Exact", "NotOlderThan", "99999999999999999999", "-1", "²")), st.text(max_size=6))),
    max_size=4)
METHODS = st.sampled_from(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"))
TAILS = st.sampled_from(("", "/a", "/b", "/a/status", "/a/scale", "/a/binding", "/a/eviction", "/a/log", "/a/finalize",
                         "/a/status/x", "/%2e%2e", "/%00", "//", "/a/"))


@pytest.fixture(scope="module")
def core():
    """One core for all examples: what one leaves behind, the next one meets."""
    core = ApiCore(seed=1)
    ask(core, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=json.dumps(CRD).encode())
    while core.next_wakeup() == 0:
        core.tick()
    return core


def ask(core, method, path, query=(), headers=None, body=b""):
    return core.handle(HttpRequest(method, path, list(query), headers or {}, body))


def answers(core, response):
    """Whether an answer is one that the server meant to give; a 500 has to be one of the real server's own."""
    if response.stream is not None:
        response.stream.poll()
        response.stream.close()
    while core.next_wakeup() == 0:
        core.tick()
    return b'"InternalError"' not in response.body or b"object has no apiVersion field" in response.body


@given(METHODS, st.sampled_from(sorted(RESOURCES)), TAILS, PARAMETERS, TYPES, ACCEPTS, BODIES)
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_of_all_kinds_get_an_answer(core, method, resource, tail, query, content_type, accept, body):
    headers = {"content-type": content_type, "accept": accept}
    assert answers(core, ask(core, method, resource + tail, query, headers, body))


@given(st.sampled_from(sorted(RESOURCES)), st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5), PARAMETERS)
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("/api/v1/namespaces/default/pods", {"spec": {"containers": [None]}}, [])
def test_objects_with_anything_in_them_are_stored_or_refused(core, resource, content, query):
    api_version, kind = RESOURCES[resource]
    obj = {"metadata": {"name": "a"}, **content, "apiVersion": api_version, "kind": kind}
    for method, path in (("POST", resource), ("PUT", resource + "/a"), ("DELETE", resource + "/a")):
        body = json.dumps(obj).encode() if method != "DELETE" else b""
        assert answers(core, ask(core, method, path, query, {"content-type": "application/json"}, body))


@given(st.sampled_from(sorted(RESOURCES)), st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=4),
       st.sampled_from(("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")),
       st.sampled_from(("", "/status", "/scale")))
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_patches_with_anything_in_them_are_applied_or_refused(core, resource, content, format_, tail):
    api_version, kind = RESOURCES[resource]
    ask(core, "POST", resource,
        body=json.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}).encode())
    if format_.startswith("apply"):
        content = {"metadata": {"name": "a"}, **content, "apiVersion": api_version, "kind": kind}
    response = ask(core, "PATCH", f"{resource}/a{tail}", [("fieldManager", "fuzz")],
                   {"content-type": f"application/{format_}"}, json.dumps(content).encode())
    assert answers(core, response)


@given(st.text(max_size=40), METHODS)
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_path_gets_an_answer(core, path, method):
    for prefix in ("/", "/api/", "/apis/", "/api/v1/", "/apis/apps/v1/", "/openapi/"):
        assert answers(core, ask(core, method, prefix + path))


POD_SPEC = {"containers": [{"name": "main", "image": "example/app:1", "ports": [{"containerPort": 80}],
                            "env": [{"name": "A", "value": "b"}],
                            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k", "operator": "Exists"}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC}
META = {"name": "a", "labels": {"app": "a"}, "annotations": {"x": "y"}, "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "1", "controller": True}],
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                           "fieldsV1": {"f:data": {".": {}, "f:k": {}}}, "time": "2024-01-01T00:00:00Z"}]}
VALID = {
    "/api/v1/namespaces/default/configmaps": {"data": {"k": "v"}, "binaryData": {"b": "eA=="}, "immutable": False},
    "/api/v1/namespaces/default/secrets": {"data": {"k": "eA=="}, "stringData": {"s": "v"}, "type": "Opaque"},
    "/api/v1/namespaces/default/pods": {"spec": POD_SPEC, "status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True"}]}},
    "/api/v1/namespaces/default/services": {"spec": {"ports": [{"port": 80, "targetPort": "http"}],
                                                     "selector": {"a": "b"}, "clusterIP": "None", "type": "ClusterIP"}},
    "/apis/events.k8s.io/v1/namespaces/default/events": {
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
        "series": {"count": 2, "lastObservedTime": "2024-01-01T00:00:00.000000Z"}},
    "/apis/apps/v1/namespaces/default/deployments": {"spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "a"}, "matchExpressions": [
            {"key": "app", "operator": "Exists"}]}, "template": TEMPLATE, "strategy": {"type": "RollingUpdate"}}},
    "/apis/batch/v1/namespaces/default/jobs": {"spec": {"template": {
        **TEMPLATE, "spec": {**POD_SPEC, "restartPolicy": "Never"}}, "parallelism": 1}},
    "/apis/batch/v1/namespaces/default/cronjobs": {"spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {
            **TEMPLATE, "spec": {**POD_SPEC, "restartPolicy": "Never"}}}}}},
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers": {"spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "minReplicas": 1,
        "maxReplicas": 2}},
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {"spec": {
        "holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.000000Z"}},
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses": {"spec": {"rules": [{
        "host": "example.com", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}},
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": {"rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "/apis/example.com/v1/namespaces/default/widgets": {"spec": {"replicas": 1, "list": [{"name": "x"}]},
                                                        "status": {"y": 1}},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "spec": {**CRD["spec"], "group": "fuzz.example.com"}},
}


def places(value, path=()):
    """The paths of all values inside a value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value, path, new):
    """A copy with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@st.composite
def spoiled(draw):
    """A valid object with some of its values replaced by others."""
    resource = draw(st.sampled_from(sorted(VALID)))
    api_version, kind = RESOURCES[resource]
    name = "widgets.fuzz.example.com" if kind == "CustomResourceDefinition" else "a"
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {**META, "name": name}, **VALID[resource]}
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in places(obj) if path]))
        obj = replaced(obj, path, draw(VALUES))
    return resource, name, obj


@given(spoiled(),
       st.sampled_from(("POST", "PUT", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")),
       st.sampled_from(("", "", "/status", "/scale")))
@settings(max_examples=examples(800), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_valid_objects_with_some_values_spoiled_are_stored_or_refused(core, sample, how, tail):
    resource, name, obj = sample
    if how == "POST":
        response = ask(core, "POST", resource, (), {"content-type": "application/json"}, json.dumps(obj).encode())
    else:
        method = "PUT" if how == "PUT" else "PATCH"
        content_type = "application/json" if how == "PUT" else f"application/{how}"
        response = ask(core, method, f"{resource}/{name}{tail}", [("fieldManager", "fuzz")],
                       {"content-type": content_type}, json.dumps(obj).encode())
    assert answers(core, response)
    for accept in ("application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml"):
        assert answers(core, ask(core, "GET", resource, (), {"accept": accept}))
