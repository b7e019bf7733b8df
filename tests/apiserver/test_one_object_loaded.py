"""`ApiServer.load` of one object that is given as itself."""
from __future__ import annotations

from kubectl_runtime import Api
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer


def test_one_object_counts_as_one_object() -> None:
    with ApiServer() as server:
        assert server.load(ConfigMap(name="x", namespace="default", data={"k": "v"})) == 1
        with server.client() as client:
            assert Api.namespaced(client, ConfigMap, "default").get("x").data == {"k": "v"}
