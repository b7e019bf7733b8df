"""What servers may answer to the verbs of Api, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, DecodeError, Patch
from kubectl_runtime.client.api.client import Write
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.core.base.errors import Status
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import ConfigMap, Deployment
from tests.client.wire_server import WireServer, answering, config_map, says, status


class TestAnswers:
    """What servers may answer, byte by byte."""

    def api(self, server: WireServer) -> Api[ConfigMap]:
        return Api.namespaced(server.client(), ConfigMap, "default")

    @pytest.mark.parametrize(
        ("code", "body", "gone"),
        [
            (200, config_map(), False),
            (200, status(200, "", details={"uid": "u"}), True),
            (202, config_map(), False),
            (200, b"", True),
        ],
        ids=["object", "status", "accepted", "empty"],
    )
    def test_a_delete_answers_with_the_object_or_a_status(self, code: int, body: Any, gone: bool) -> None:
        with WireServer(answering(says(code, body))) as server:
            api = self.api(server)
            answer = api.delete("a", DeleteParams.background())
            api.client.close()
        assert isinstance(answer, Status) == gone
        assert b"Background" in server.requests[0].body

    @pytest.mark.parametrize("name", ["system:foo:bar", "a.b.c", "a?b"])
    def test_names_are_encoded_once(self, name: str) -> None:
        with WireServer(answering(says(200, config_map(name)))) as server:
            api = self.api(server)
            assert api.get(name).name == name
            api.client.close()
        from urllib.parse import unquote

        assert unquote(server.requests[0].target) == f"/api/v1/namespaces/default/configmaps/{name}"

    def test_what_is_no_object_is_a_decode_error(self) -> None:
        with WireServer(answering(says(200, b"[]"))) as server:
            api = self.api(server)
            with pytest.raises(DecodeError):
                api.get("a")
            with pytest.raises(DecodeError):
                api.list()
            api.client.close()

    def test_one_bad_item_does_not_break_its_list(self) -> None:
        bad = {**config_map("bad"), "metadata": {"name": "bad", "uid": 3, "labels": {"x": 1}}}
        with WireServer(
            answering(says(200, {"metadata": {}, "items": [config_map("a"), bad, config_map("b")]}))
        ) as server:
            api = self.api(server)
            found = api.list().items
            api.client.close()
        assert [item.name for item in found] == ["a", "bad", "b"]
        with pytest.raises(DecodeError):
            _ = found[1].data

    def test_null_items_are_an_empty_list(self) -> None:
        with WireServer(answering(says(200, b'{"kind": "ConfigMapList", "metadata": {}, "items": null}'))) as server:
            api = self.api(server)
            assert list(api.list()) == []
            api.client.close()

    def test_a_scale_is_read_and_written(self) -> None:
        scale = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"replicas": 2},
        }
        with WireServer(answering(says(200, scale))) as server, server.client() as client:
            api = Api.namespaced(client, Deployment, "default")
            writes: list[Write] = []
            client.on_write(writes.append)
            found = api.get_scale("a")
            assert found.spec.replicas == 2
            api.replace_scale("a", found)
            api.patch_scale("a", Patch.merge({"spec": {"replicas": 3}}))
        assert [(request.method, request.target.rpartition("/")[2]) for request in server.requests] == [
            ("GET", "scale"),
            ("PUT", "scale"),
            ("PATCH", "scale"),
        ]
        assert [(write.verb, write.subresource, write.ref.kind) for write in writes] == [
            ("replace", "scale", "Deployment"),
            ("patch", "scale", "Deployment"),
        ]

    def test_other_subresources_are_posted_to(self) -> None:
        with WireServer(answering(says(201, {"status": {"token": "t"}}))) as server, server.client() as client:
            api = Api.namespaced(client, ApiResource("", "v1", "ServiceAccount", "serviceaccounts"), "default")
            assert api.create_subresource("default", "token", {"spec": {}}) == {"status": {"token": "t"}}
        assert (server.requests[0].method, server.requests[0].body) == ("POST", b'{"spec":{}}')

    def test_an_answer_of_a_subresource_that_is_no_object_is_a_decode_error(self) -> None:
        with WireServer(answering(says(201, b"created"))) as server, server.client() as client:
            api = Api.namespaced(client, ApiResource("", "v1", "ServiceAccount", "serviceaccounts"), "default")
            with pytest.raises(DecodeError, match="ServiceAccount"):
                api.create_subresource("default", "token", {"spec": {}})

    def test_discovery_without_aggregation_leaves_a_broken_group_out(self, caplog: pytest.LogCaptureFixture) -> None:
        groups = {
            "kind": "APIGroupList",
            "groups": [
                {"name": name, "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}]}
                for name in ("a.io", "b.io", "c.io")
            ],
        }

        def answer(peer: Any, request: Any) -> None:
            if request.target == "/api":
                peer.answer(200, {"kind": "APIVersions", "versions": []})
            elif request.target == "/apis":
                peer.answer(200, groups)
            elif "b.io" in request.target:
                peer.answer(500, b"broken")
            else:
                name = request.target.split("/")[2][0]
                peer.answer(
                    200,
                    {
                        "resources": [
                            {"name": f"{name}s", "kind": name.upper(), "namespaced": True, "verbs": ["get"]},
                            {"name": f"{name}s/status", "kind": name.upper(), "verbs": ["get"]},
                        ]
                    },
                )

        with WireServer(answering(answer)) as server, server.client() as client:
            discovery = Discovery(client)
            assert [kind.resource.full_name for kind in discovery.kinds()] == ["as.a.io", "cs.c.io"]
            assert discovery.resolve("A").subresources == ("status",)
            discovery.kinds(refresh=True)
        assert caplog.text.count("discovery of b.io/v1 failed") == 1
