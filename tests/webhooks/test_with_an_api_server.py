"""A webhook server and an API server that calls it, over HTTPS: trust, renewal and conversions from end to end."""
from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import requests

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    Client,
    Context,
    Controller,
    Conversion,
    CustomResource,
    Manager,
    WatcherConfig,
)
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.crd import merge_crds
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Application, Denied, application
from kubectl_runtime.webhooks.configurations import apply_webhooks
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from tests.webhooks.callers import LIMIT
from tests.webhooks.test_ca_bundles import until


class Maps(Admission[ConfigMap], timeout=5):
    def validate(self, request: AdmissionRequest[ConfigMap]) -> None:
        if "forbidden" in request.object.data:
            raise Denied("the key is forbidden")

    def mutate(self, request: AdmissionRequest[ConfigMap]) -> ConfigMap:
        request.object.data = {**request.object.data, "seen": request.user.username}
        return request.object


class SpecV1(msgspec.Struct):
    size: int


class SpecV2(msgspec.Struct):
    sizes: list[int]


class CrateV1(CustomResource, group="example.com", version="v1", kind="Crate", storage=False):
    spec: SpecV1


class CrateV2(CustomResource, group="example.com", version="v2", kind="Crate"):
    spec: SpecV2


HOOKS = application({"/maps": Maps(), "/crates": Conversion({
    (CrateV1, CrateV2): lambda old: CrateV2(spec=SpecV2([old.spec.size])),
    (CrateV2, CrateV1): lambda new: CrateV1(spec=SpecV1(sum(new.spec.sizes)))})})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def called_by_service(app: Application = HOOKS) -> Iterator[tuple[Client, WebhookServer]]:
    port = free_port()
    with ApiServer(webhook_services={"shop/hooks": f"https://127.0.0.1:{port}"}) as api_server, \
            api_server.client() as client:
        api_server.load([merge_crds([CrateV1.crd(), CrateV2.crd()], stored="v2")])
        with WebhookServer(app, certificates=SelfSigned("shop/hooks"), client=client, host="127.0.0.1", port=port,
                           configuration="hooks") as hooks:
            until(lambda: not hooks.why_not_ready)
            yield client, hooks


def test_objects_are_refused_and_changed() -> None:
    with called_by_service() as (client, _):
        maps = Api.namespaced(client, ConfigMap, "default")
        made = maps.create(ConfigMap(name="a", data={"x": "y"}))
        assert made.data["x"] == "y"
        assert made.data["seen"]
        with pytest.raises(ApiError, match='denied the request: the key is forbidden'):
            maps.create(ConfigMap(name="b", data={"forbidden": ""}))


def test_both_versions_are_written_read_listed_and_watched() -> None:
    with called_by_service() as (client, _):
        old, new = (Api.namespaced(client, kind, "default") for kind in (CrateV1, CrateV2))
        new.create(CrateV2(name="probe", spec=SpecV2([1])))
        # The server stores a definition a moment before it serves it
        until(lambda: old.get("probe").to_dict()["spec"] == {"size": 1})
        new.delete("probe")
        old.create(CrateV1(name="a", spec=SpecV1(3)))
        new.create(CrateV2(name="b", spec=SpecV2([1, 1])))
        assert {crate.name: crate.spec.size for crate in old.list().items} == {"a": 3, "b": 2}
        assert new.get("a").spec.sizes == [3]
        changed = old.get("b")
        changed.spec.size = 7
        old.replace(changed)
        assert new.get("b").spec.sizes == [7]
        seen = {event.obj.name: event.obj.spec.size for _, event in zip(range(2), old.watch(), strict=False)
                if event.obj is not None}
        assert seen == {"a": 3, "b": 7}


@pytest.mark.parametrize("missing", ["nothing", "the definition", "the definition, for a while"])
def test_the_webhooks_of_a_manager_serve_while_its_stores_need_them_or_wait(missing: str) -> None:
    """A controller whose list is converted by the webhook of its own process, or whose kind is not there."""
    port, seen = free_port(), set[str]()
    definition = merge_crds([CrateV1.crd(), CrateV2.crd()], stored="v2")
    hooks = HOOKS if missing == "nothing" else application({"/maps": Maps()})
    with ApiServer(webhook_services={"shop/hooks": f"https://127.0.0.1:{port}"}) as api_server, \
            api_server.client() as client:
        if missing == "nothing":
            api_server.load([definition])
            Api.namespaced(client, CrateV2, "default").create(CrateV2(name="a", spec=SpecV2([1, 2])))
        webhook = WebhookServer(hooks, certificates=SelfSigned("shop/hooks"), client=client, host="127.0.0.1",
                                port=port, configuration="hooks")
        health = f"127.0.0.1:{free_port()}"
        manager = Manager(client, serve=health).add_server(webhook)
        kind: Any = CrateV1 if missing == "nothing" else CrateV2

        def reconcile(obj: Any, ctx: Context[None]) -> Action:
            seen.add(obj.name)
            return Action.await_change()

        manager.add(Controller(Api.all(client, kind), watch=WatcherConfig()), reconcile)
        with manager.start() as running:
            until(lambda: requests.get(f"http://{health}/readyz/servers", timeout=LIMIT).status_code == 200)
            with pytest.raises(ApiError, match="the key is forbidden"):
                Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="b", data={"forbidden": ""}))
            if missing != "nothing":
                assert requests.get(f"http://{health}/readyz", timeout=LIMIT).status_code == 500
                assert "store" in running.why_not_ready or "waits for" in running.why_not_ready
            if missing == "the definition, for a while":
                api_server.load([definition])
                Api.namespaced(client, CrateV2, "default").create(CrateV2(name="a", spec=SpecV2([1])))
            if missing != "the definition":
                until(lambda: running.is_ready and seen == {"a"})
                assert requests.get(f"http://{health}/readyz", timeout=LIMIT).status_code == 200


def test_an_authority_that_is_renewed_while_objects_are_written_fails_no_write() -> None:
    failures: list[str] = []
    written = [0]
    end = threading.Event()

    def write(client: Client, name: str) -> None:
        maps = Api.namespaced(client, ConfigMap, "default")
        while not end.is_set():
            try:
                maps.apply(ConfigMap(name=name, data={"round": str(written[0])}), field_manager="load", force=True)
                written[0] += 1
            except Exception as error:
                failures.append(str(error))
                return

    with called_by_service() as (client, hooks):
        threads = [threading.Thread(target=write, args=(client, f"m{number}"), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                before, bundle = written[0], hooks.ca_bundle
                until(lambda before=before: written[0] >= before + 10 or failures)
                hooks.renew()
                assert hooks.ca_bundle != bundle
                until(lambda: not hooks.why_not_ready or failures)
        finally:
            end.set()
        for thread in threads:
            thread.join(LIMIT)
    assert failures == []


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_certificate_that_is_wrong_is_told_to_whoever_writes_or_ignored(policy: Any) -> None:
    class Chosen(Maps, failure_policy=policy):
        pass

    app = application({"/maps": Chosen()})
    with ApiServer() as api_server, api_server.client() as client, \
            WebhookServer(app, certificates=SelfSigned(), host="127.0.0.1", port=0) as hooks:
        apply_webhooks(client, app, "hooks", url=f"https://127.0.0.1:{hooks.port}", ca_bundle=Authority("x").pem)
        maps = Api.namespaced(client, ConfigMap, "default")
        if policy == "Ignore":
            assert maps.create(ConfigMap(name="a", data={"forbidden": ""})).data == {"forbidden": ""}
        else:
            with pytest.raises(ApiError, match="certificate signed by unknown authority"):
                maps.create(ConfigMap(name="a"))


def test_a_class_that_fails_is_told_as_a_failure_of_the_webhook() -> None:
    class Fails(Admission[ConfigMap]):
        def validate(self, request: AdmissionRequest[ConfigMap]) -> None:
            raise ValueError("hunter2")

    app = application({"/fails": Fails()})
    with ApiServer() as api_server, api_server.client() as client:
        api_server.mount_webhook("https://hooks.test", app)
        apply_webhooks(client, app, "hooks", url="https://hooks.test")
        with pytest.raises(ApiError) as refused:
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        assert refused.value.code == 500
        assert "the webhook failed with ValueError; see its log" in str(refused.value)
        assert "hunter2" not in str(refused.value)
