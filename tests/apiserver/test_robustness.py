"""What the core does when something fails in the middle, or is far larger than anybody needs."""

from __future__ import annotations

import json
import time

import pytest

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.objectmeta import tidy_owners
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing import ApiServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
       "metadata": {"name": "blobs.example.com"},
       "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "blobs", "kind": "Blob"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


def ask(core, method, path, body=None, query=()):
    data = json.dumps(body).encode() if body is not None else b""
    return core.handle(HttpRequest(method, path, list(query), {"content-type": "application/json"}, data))


def test_a_watch_hears_of_what_was_written_before_the_request_failed():
    core = ApiCore(seed=1)
    for name in ("a", "b"):
        ask(core, "POST", CONFIG_MAPS, {"metadata": {"name": name}})
    uid = json.loads(ask(core, "GET", f"{CONFIG_MAPS}/a").body)["metadata"]["uid"]
    watch = ask(core, "GET", CONFIG_MAPS, query=[("watch", "1"), ("resourceVersion", str(core.cluster.storage.rv))])
    calls = []
    watch.stream.on_ready(lambda: calls.append(watch.stream.poll()))
    assert ask(core, "DELETE", CONFIG_MAPS, {"preconditions": {"uid": uid}}).status == 409  # a is gone, b refused it
    assert [json.loads(line)["type"] for line in calls if line] == ["DELETED"]


def test_the_largest_custom_resource_is_that_of_the_real_servers_database():
    with ApiServer() as server:
        server.load(CRD)
        blobs = "/apis/example.com/v1/namespaces/default/blobs"

        def blob(size):
            return {"apiVersion": "example.com/v1", "kind": "Blob", "metadata": {"name": f"b{size}"},
                    "data": "x" * size}

        before = server.core.cluster.storage.rv
        refused = ask(server.core, "POST", blobs, blob((3 << 19) + 1))
        assert (refused.status, json.loads(refused.body)["message"]) == (500, "etcdserver: request is too large")
        assert server.core.cluster.storage.rv == before
        assert ask(server.core, "POST", blobs, blob((3 << 19) - 10_000)).status == 201


def test_many_owners_do_not_take_the_square_of_their_number():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": str(number % 20_000)} for number in range(30_000)]
    metadata = {"ownerReferences": owners}
    begin = time.thread_time()
    assert len(tidy_owners(metadata)) == 1
    assert len(metadata["ownerReferences"]) == 20_000
    assert time.thread_time() - begin < 5


@pytest.mark.parametrize("document", [
    b"data: " + b"[" * 100_000, b"data: " + b"{a: " * 100_000, b"- " * 100_000 + b"x", b"? " * 100_000 + b"x"])
def test_yaml_nested_a_hundred_thousand_deep_is_a_400(document):
    core = ApiCore(seed=1)
    response = core.handle(HttpRequest("POST", CONFIG_MAPS, [], {"content-type": "application/yaml"}, document))
    assert response.status == 400
