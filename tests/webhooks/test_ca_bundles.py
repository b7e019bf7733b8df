"""The authority of a webhook server, in everything that tells an API server to call it."""
from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import Api, ApiError, Client, Conversion, CustomResource, Patch, RequestError, apply_crd
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import certificates_in
from kubectl_runtime.core.requests.rights import roles
from kubectl_runtime.resources import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Rule, application
from kubectl_runtime.webhooks import server as webhook_setup
from kubectl_runtime.webhooks.configurations import BUNDLES, Target, apply_webhooks, configurations
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from tests.webhooks.callers import LIMIT
from tests.webhooks.hooks import Pod, Quota


class WidgetV1(CustomResource, group="example.com", version="v1", kind="Widget", storage=False):
    spec: dict[str, Any]


class WidgetV2(CustomResource, group="example.com", version="v2", kind="Widget"):
    spec: dict[str, Any]


APP = application({"/quota": Quota(), "/convert": Conversion({
    (WidgetV1, WidgetV2): lambda old: WidgetV2(spec=old.spec),
    (WidgetV2, WidgetV1): lambda new: WidgetV1(spec=new.spec)})})
OURS = SelfSigned("shop/hooks", hosts=("hooks.example.com",))


def until(condition: Callable[[], object]) -> None:
    """Block until it holds. What is waited for happens in threads and in a server: real time is the only one."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.load([crd()])
        yield running


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Client]:
    with api_server.client() as made:
        yield made


def crd() -> dict[str, Any]:
    from kubectl_runtime.crd import merge_crds

    return merge_crds([WidgetV1.crd(), WidgetV2.crd()], stored="v2")


def serving(client: Client, wanted: SelfSigned = OURS, **more: Any) -> WebhookServer:
    return WebhookServer(APP, certificates=wanted, client=client, host="127.0.0.1", port=0, **more)


def configuration(name: str, *configs: dict[str, Any], kind: Any = ValidatingWebhookConfiguration) -> dict[str, Any]:
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.api_resource.kind, "metadata": {"name": name},
            "webhooks": [{"name": f"h{number}.shop.example.com", "clientConfig": config, "sideEffects": "None",
                          "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"}
                         for number, config in enumerate(configs)]}


def service(name: str = "hooks", namespace: str = "shop") -> dict[str, Any]:
    return {"service": {"namespace": namespace, "name": name, "path": "/quota/validate"}}


def bundles(client: Client, name: str, kind: Any = ValidatingWebhookConfiguration) -> list[list[bytes]]:
    """The certificates of each webhook."""
    found = Api.all(client, kind).get(name).to_dict()
    conversion = found.get("spec", {}).get("conversion", {}).get("webhook")
    hooks = [conversion] if conversion else found.get("webhooks", [])
    return [certificates_in(base64.b64decode(hook["clientConfig"].get("caBundle", ""))) for hook in hooks]


def test_what_names_the_server_gets_its_authority_and_nothing_else_does(client: Client, api_server: ApiServer) -> None:
    callers: Api[Any] = Api.all(client, ValidatingWebhookConfiguration)
    callers.create(configuration("mixed", service(), service("other"), service(namespace="bank"),
                                 {"url": "https://hooks.example.com:9443/x"}, {"url": "https://example.com/x"}))
    Api.all(client, MutatingWebhookConfiguration).create(configuration("m", service(),
                                                                       kind=MutatingWebhookConfiguration))
    with serving(client) as server:
        until(lambda: not server.why_not_ready)
        ours = certificates_in(server.ca_bundle)
        assert bundles(client, "mixed") == [ours, [], [], ours, []]
        assert bundles(client, "m", MutatingWebhookConfiguration) == [ours]
        callers.patch("mixed", Patch.merge({"metadata": {"labels": {"a": "b"}}}))
        callers.create(configuration("after", service()))
        until(lambda: bundles(client, "after") == [ours])
        patches = api_server.requests.select("patch", "/apis/admissionregistration.k8s.io/v1/*/mixed")
        assert len(patches) == 2  # one each: where nothing is to be done, nothing is written


def test_one_that_comes_later_or_is_overwritten_is_mended(client: Client) -> None:
    callers: Api[Any] = Api.all(client, ValidatingWebhookConfiguration)
    with serving(client) as server:
        until(lambda: not server.why_not_ready)
        ours = certificates_in(server.ca_bundle)
        callers.create(configuration("late", service()))
        until(lambda: bundles(client, "late") == [ours])
        callers.patch("late", Patch.json([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]))
        until(lambda: bundles(client, "late") == [ours])
        callers.delete("late")
        until(lambda: not server.why_not_ready)


def test_while_an_object_lacks_it_the_server_is_not_ready(client: Client, api_server: ApiServer) -> None:
    refused = api_server.faults.on("patch", resource="validatingwebhookconfigurations").status(403)
    Api.all(client, ValidatingWebhookConfiguration).create(configuration("closed", service()))
    with serving(client) as server:
        until(lambda: "ValidatingWebhookConfiguration closed does not hold" in server.why_not_ready)
        refused.remove()
        until(lambda: not server.why_not_ready)


def test_the_rights_that_it_names_are_enough_and_others_objects_stay_theirs(
        caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "op"}) as running, running.client() as admin:
        running.load([crd(), configuration("foreign", service())])
        with running.client("op") as limited:
            server = serving(limited, configuration="quota")
            [rules] = roles(server.rights()).values()
            running.load([
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "op"},
                 "rules": rules},
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "op"},
                 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "op"},
                 "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "op"}]}])
            with caplog.at_level(logging.WARNING), server:
                until(lambda: not server.why_not_ready)
                ours = set(certificates_in(server.ca_bundle))
                assert all(ours <= set(held) for held in bundles(admin, "quota"))
                assert [set(held) for held in bundles(admin, "widgets.example.com", CustomResourceDefinition)] == [ours]
                assert bundles(admin, "foreign") == [[]]
                with pytest.raises(ApiError, match="forbidden"):
                    Api.all(limited, ValidatingWebhookConfiguration).patch("foreign", Patch.merge({}))
    told = [text for text in caplog.messages if "foreign" in text and "does not get the server's CA" in text]
    assert len(told) == 1


def test_somebody_who_writes_at_the_same_time_loses_nothing(client: Client, api_server: ApiServer) -> None:
    callers: Api[Any] = Api.all(client, ValidatingWebhookConfiguration)
    callers.create(configuration("busy", service("other"), service()))
    swapped = Patch.json([{"op": "move", "from": "/webhooks/1", "path": "/webhooks/0"}])
    with api_server.client() as somebody:
        api_server.faults.on("patch", resource="validatingwebhookconfigurations").first(1).run(
            lambda: Api.all(somebody, ValidatingWebhookConfiguration).patch("busy", swapped))
        with serving(client) as server:
            until(lambda: len(bundles(client, "busy")[0]) == 2)
            assert bundles(client, "busy") == [certificates_in(server.ca_bundle), []]


def test_replicas_keep_their_authorities_side_by_side_and_take_them_along(client: Client) -> None:
    Api.all(client, ValidatingWebhookConfiguration).create(configuration("shared", service()))
    with serving(client) as first:
        with serving(client) as second, serving(client) as third:
            everybody = {pem for one in (first, second, third) for pem in certificates_in(one.ca_bundle)}
            until(lambda: not any(one.why_not_ready for one in (first, second, third)))
            assert len(everybody) == 6
            assert set(bundles(client, "shared")[0]) == everybody
        ours = certificates_in(first.ca_bundle)
        until(lambda: bundles(client, "shared") == [ours])
    assert bundles(client, "shared") == [ours]  # the last one stays: without any, nobody could say whom to trust


def test_a_renewed_authority_takes_the_place_of_the_one_before(client: Client) -> None:
    Api.all(client, ValidatingWebhookConfiguration).create(configuration("renewed", service()))
    with serving(client, SelfSigned("shop/hooks", validity=timedelta(days=3))) as server:
        until(lambda: not server.why_not_ready)
        first, second = bundles(client, "renewed")[0]
        server.renew()
        until(lambda: first not in bundles(client, "renewed")[0])
        assert bundles(client, "renewed")[0][0] == second
        assert bundles(client, "renewed")[0] == certificates_in(server.ca_bundle)


def test_the_configurations_are_applied_at_the_start_and_have_the_authority_at_once(client: Client) -> None:
    with serving(client, configuration="shop") as server:
        until(lambda: not server.why_not_ready)
        ours = certificates_in(server.ca_bundle)
        for kind, name in ((ValidatingWebhookConfiguration, "shop"), (MutatingWebhookConfiguration, "shop"),
                           (CustomResourceDefinition, "widgets.example.com")):
            assert bundles(client, name, kind) == [ours]
        made = Api.all(client, ValidatingWebhookConfiguration).get("shop")
        assert made.webhooks[0].client_config.service is not None
        assert made.webhooks[0].client_config.service.path == "/quota/validate"
        definition = Api.all(client, CustomResourceDefinition).get("widgets.example.com")
        assert [version.name for version in definition.spec.versions] == ["v2", "v1"]
        assert definition.spec.conversion is not None
        assert definition.spec.conversion.strategy == "Webhook"


def test_what_is_applied_again_keeps_the_authorities_of_others(client: Client) -> None:
    with serving(client, configuration="shop") as first:
        until(lambda: not first.why_not_ready)
        with serving(client, configuration="shop") as second:
            until(lambda: not second.why_not_ready and not first.why_not_ready)
            assert set(bundles(client, "shop")[0]) == {*certificates_in(first.ca_bundle),
                                                       *certificates_in(second.ca_bundle)}


def test_a_configuration_that_cannot_be_applied_is_tried_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_setup, "FIRST_PAUSE", 0.05)
    definitions = Api.all(client, CustomResourceDefinition)
    definitions.delete("widgets.example.com")
    with serving(client, configuration="shop") as server:
        until(lambda: "widgets.example.com" in server.why_not_ready)
        assert "are not applied" in server.why_not_ready
        definitions.create(crd())
        until(lambda: not server.why_not_ready)


@pytest.mark.long
def test_a_definition_that_comes_back_gets_its_conversion_before_the_pause_is_over(
        client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(webhook_setup, "FIRST_PAUSE", 0.2)
    definitions = Api.all(client, CustomResourceDefinition)
    with serving(client, configuration="shop") as server:
        until(lambda: not server.why_not_ready)
        definitions.delete("widgets.example.com")
        until(lambda: caplog.text.count("are not applied") >= 5)  # the next attempt is due in 3.2 s
        created = time.monotonic()
        definitions.create(crd())
        until(lambda: not server.why_not_ready)
        assert time.monotonic() - created < 2


VALIDATING, MUTATING = ValidatingWebhookConfiguration, MutatingWebhookConfiguration
DEFINITION = CustomResourceDefinition
NAMES = {VALIDATING: "shop", MUTATING: "shop", DEFINITION: "widgets.example.com"}
OTHERS: dict[str, tuple[Any, Callable[[Api[Any], str], object]]] = {
    "a deleted configuration": (VALIDATING, lambda api, name: api.delete(name)),
    "another deleted configuration": (MUTATING, lambda api, name: api.delete(name)),
    "no webhooks": (VALIDATING, lambda api, name: api.patch(name, Patch.merge({"webhooks": []}))),
    "no conversion": (DEFINITION, lambda api, name: api.patch(
        name, Patch.merge({"spec": {"conversion": {"strategy": "None", "webhook": None}}}))),
    "another path": (MUTATING, lambda api, name: api.patch(name, Patch.json([
        {"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "/elsewhere"}]))),
    "other rules": (VALIDATING, lambda api, name: api.patch(name, Patch.json([
        {"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["secrets"]}]))),
    "another authority": (DEFINITION, lambda api, name: api.patch(name, Patch.json([
        {"op": "replace", "path": "/spec/conversion/webhook/clientConfig/caBundle",
         "value": base64.b64encode(Authority("other").pem).decode()}]))),
    "no authority": (VALIDATING, lambda api, name: api.patch(name, Patch.json([
        {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])))}


def as_it_was(client: Client, kind: Any) -> Any:
    """What counts of the object; None if there is none."""
    found = Api.all(client, kind).get_opt(NAMES[kind])
    if found is None:
        return None
    content = found.to_dict()
    hooks = content["spec"]["conversion"] if kind is DEFINITION else content.get("webhooks", [])
    return [hooks["strategy"]] if kind is DEFINITION and "webhook" not in hooks else [
        {**hook, "clientConfig": {key: value for key, value in hook["clientConfig"].items() if key != "caBundle"}}
        for hook in ([hooks["webhook"]] if kind is DEFINITION else hooks)]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_setup, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(webhook_setup, "LONGEST_PAUSE", 0.1)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("what", OTHERS)
def test_what_others_take_out_of_the_configurations_is_put_back(client: Client, what: str,
                                                                caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kind, change = OTHERS[what]
    with serving(client, configuration="shop") as server:
        until(lambda: not server.why_not_ready)
        before = as_it_was(client, kind)
        for _ in range(2):
            change(Api.all(client, kind), NAMES[kind])
            until(lambda: as_it_was(client, kind) == before and all(
                set(certificates_in(server.ca_bundle)) <= set(held) for held in bundles(client, NAMES[kind], kind)))
            until(lambda: not server.why_not_ready)
    if "authority" not in what:  # that is put back by the part that keeps authorities
        [told, *_] = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert NAMES[kind] in told.getMessage()
        assert "applying it again" in told.getMessage()
        assert "is correct again" in caplog.text


def without(field: str, part: str) -> Callable[[Api[Any], str], object]:
    """Takes a part out by a replace, which a fault of patches does not hit."""
    def change(api: Api[Any], name: str) -> object:
        content = api.get(name).to_dict()
        (content if field == part else content[field]).pop(part)
        return api.replace(content)
    return change


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("kind", "change"), [
    (MUTATING, lambda api, name: api.delete(name)), (VALIDATING, without("webhooks", "webhooks")),
    (DEFINITION, without("spec", "conversion"))], ids=["deleted", "no webhooks", "no conversion"])
def test_while_it_cannot_be_put_back_the_server_is_not_ready(client: Client, api_server: ApiServer, kind: Any,
                                                             change: Any) -> None:
    with serving(client, configuration="shop") as server:
        until(lambda: not server.why_not_ready)
        before = as_it_was(client, kind)
        refused = api_server.faults.on("patch", resource=kind.api_resource.plural).status(403)
        change(Api.all(client, kind), NAMES[kind])
        until(lambda: server.why_not_ready)
        assert as_it_was(client, kind) != before
        refused.remove()
        until(lambda: as_it_was(client, kind) == before and not server.why_not_ready)


@pytest.mark.usefixtures("hasty")
def test_two_versions_of_a_program_do_not_undo_each_other(client: Client, api_server: ApiServer) -> None:
    """A rollout: the newer one has applied last, and the older one leaves that alone."""
    class Stricter(Quota, name="quota.pods.core", timeout=3):
        pass

    newer = application({"/quota": Stricter()})
    with serving(client, configuration="shop") as old:
        until(lambda: not old.why_not_ready)
        with WebhookServer(newer, certificates=OURS, client=client, host="127.0.0.1", port=0,
                           configuration="shop") as new:
            until(lambda: not new.why_not_ready and not old.why_not_ready)
            Api.all(client, VALIDATING).patch("shop", Patch.merge({"metadata": {"labels": {"seen": "by-both"}}}))
            before = len(api_server.requests.select("patch"))
            until(lambda: not new.why_not_ready and not old.why_not_ready)
            [hook] = Api.all(client, VALIDATING).get("shop").to_dict()["webhooks"]
            assert hook["timeoutSeconds"] == 3
            assert len(api_server.requests.select("patch")) - before <= 4
            Api.all(client, VALIDATING).patch("shop", Patch.merge({"webhooks": []}))
            until(lambda: [hook["timeoutSeconds"] for hook in Api.all(client, VALIDATING).get("shop").to_dict().get(
                "webhooks", ())] == [3])


@pytest.mark.usefixtures("hasty")
def test_what_a_class_leaves_to_the_server_may_be_set_by_others(client: Client) -> None:
    with serving(client, configuration="shop") as server:
        until(lambda: not server.why_not_ready)
        found = Api.all(client, VALIDATING).patch("shop", Patch.json([
            {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7}]))
        assert server.why_not_ready == ""
        Api.all(client, MUTATING).delete("shop")
        until(lambda: as_it_was(client, MUTATING) is not None and not server.why_not_ready)
        assert Api.all(client, VALIDATING).get("shop").to_dict()["webhooks"][0]["timeoutSeconds"] == 7
        assert found.name == "shop"


def test_an_authority_in_a_file_is_applied_and_followed(client: Client, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_setup, "LOOK", 0.05)
    first, second = Authority("a"), Authority("b")
    certificate = first.server(["hooks.shop.svc"])
    for name, content in (("tls.crt", certificate.certificate), ("tls.key", certificate.key), ("ca.crt", first.pem)):
        (tmp_path / name).write_bytes(content)
    with WebhookServer(APP, certificates=tmp_path, client=client, host="127.0.0.1", port=0, configuration="shop",
                       url="https://hooks.shop.svc:9443") as server:
        until(lambda: not server.why_not_ready)
        assert bundles(client, "shop") == [[first.pem]]
        (tmp_path / "ca.crt").write_bytes(second.pem)
        until(lambda: bundles(client, "shop") == [[first.pem, second.pem]])


def test_without_an_api_server_it_serves_and_is_not_ready(api_server: ApiServer) -> None:
    with api_server.client() as client:
        api_server.stop()
        with serving(client) as server:
            assert server.port
            assert server.why_not_ready
        assert "is stopping" in server.why_not_ready


def test_apply_webhooks_says_where_and_whom_to_trust(client: Client) -> None:
    applied = apply_webhooks(client, {"/quota": Quota()}, "shop", url="https://hooks.example.com:9443",
                             annotations={"cert-manager.io/inject-ca-from": "shop/hooks"})
    assert [one.name for one in applied] == ["shop", "shop"]
    assert bundles(client, "shop") == [[]]
    found = Api.all(client, ValidatingWebhookConfiguration).get("shop")
    assert found.webhooks[0].client_config.url == "https://hooks.example.com:9443/quota/validate"
    assert found.annotations == {"cert-manager.io/inject-ca-from": "shop/hooks"}
    # what cert-manager wrote is nobody else's to take away
    injected = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()
    Api.all(client, ValidatingWebhookConfiguration).patch("shop", Patch.json([
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": injected}]), field_manager="cainjector")
    apply_webhooks(client, {"/quota": Quota()}, "shop", url="https://hooks.example.com:9443")
    assert len(bundles(client, "shop")[0]) == 1
    for wrong in ({}, {"service": "a/b", "url": "https://x"}):
        with pytest.raises(RequestError, match="one of them"):
            apply_webhooks(client, {"/quota": Quota()}, "shop", **wrong)


def converts(client: Client) -> tuple[str, str]:
    """How widgets are converted, and in which namespace the webhook is."""
    conversion = Api.all(client, CustomResourceDefinition).get("widgets.example.com").to_dict()["spec"]["conversion"]
    called = conversion.get("webhook", {}).get("clientConfig", {})
    return conversion["strategy"], called.get("service", {}).get("namespace", "")


def test_a_definition_and_its_conversion_are_applied_one_after_the_other_and_again(client: Client) -> None:
    Api.all(client, CustomResourceDefinition).delete("widgets.example.com")
    for manager in ("kubectl_runtime", "kubectl_runtime", "ops"):
        apply_crd(client, crd(), field_manager=manager)
        apply_webhooks(client, APP, "shop", service="shop/hooks", field_manager=manager)
        assert converts(client) == ("Webhook", "shop")
    apply_crd(client, crd())
    assert converts(client) == ("Webhook", "shop"), "a definition that says nothing of it takes nothing away"
    apply_webhooks(client, APP, "shop", service="shop/hooks")


def test_a_conversion_that_the_same_manager_applied_before_may_be_moved(client: Client) -> None:
    manifests = configurations(APP, "shop", Target.service("shop/hooks"))
    [conversion] = [one for one in manifests if one["kind"] == "CustomResourceDefinition"]
    Api.all(client, CustomResourceDefinition).apply(conversion, field_manager="kubectl_runtime", force=True)
    apply_webhooks(client, APP, "shop", service="bank/hooks")
    assert converts(client) == ("Webhook", "bank")
    apply_webhooks(client, APP, "shop", service="shop/hooks")
    assert converts(client) == ("Webhook", "shop")


class EveryScope(Admission[Pod], rules=(
        Rule(resources=("pods",)), Rule(resources=("pods",), scope="Namespaced", operations=("DELETE",)),
        Rule(resources=("nodes",), scope="Cluster")), name="every.shop.example.com"):
    def validate(self, request: AdmissionRequest[Pod]) -> None:
        pass


class Everything(Admission[Pod], name="full.shop.example.com", timeout=5, failure_policy="Ignore",
                 match_policy="Exact", match_conditions={"a": "true"}, namespace_selector="team=shop",
                 object_selector={"matchLabels": {"a": "b"}}, operations=("CREATE", "DELETE"),
                 subresources=("status",), reinvocation="IfNeeded"):
    def validate(self, request: AdmissionRequest[Pod]) -> None:
        pass

    def mutate(self, request: AdmissionRequest[Pod]) -> None:
        return None


@pytest.mark.parametrize("handler", [Quota(), EveryScope(), Everything()])
@pytest.mark.parametrize("where", [{"service": "shop/hooks"}, {"service": "shop/hooks:8443"},
                                   {"url": "https://hooks.example.com"}])
def test_the_same_configuration_may_be_applied_by_several_managers(client: Client, handler: Any, where: Any) -> None:
    for manager in ("kubectl_runtime", "argocd", "kubectl_runtime"):
        apply_webhooks(client, {"/quota": handler}, "shop", field_manager=manager, **where)


def test_a_conversion_that_somebody_else_set_up_is_taken_only_by_force(client: Client) -> None:
    definitions = Api.all(client, CustomResourceDefinition)
    apply_webhooks(client, APP, "shop", service="shop/hooks", field_manager="a")
    with pytest.raises(ApiError, match="conflict"):
        apply_webhooks(client, APP, "shop", service="bank/hooks", field_manager="b")
    apply_webhooks(client, APP, "shop", service="bank/hooks", field_manager="b", force=True)
    conversion = definitions.get("widgets.example.com").spec.conversion
    assert conversion is not None
    assert conversion.webhook is not None
    assert conversion.webhook.client_config is not None
    assert conversion.webhook.client_config.service is not None
    assert conversion.webhook.client_config.service.namespace == "bank"


def test_the_manager_of_a_bundle_has_a_name_of_its_own(client: Client) -> None:
    callers: Api[Any] = Api.all(client, ValidatingWebhookConfiguration)
    callers.create(configuration("owned", service()), field_manager="helm")
    with serving(client) as server:
        until(lambda: not server.why_not_ready)
        managers = {entry["manager"] for entry in callers.get("owned").to_dict()["metadata"]["managedFields"]}
        assert managers == {"helm", BUNDLES}


def test_the_housekeeping_is_told_as_the_librarys_own_and_only_to_who_looks_closely(
        client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kubectl_runtime")
    with serving(client) as server:
        until(lambda: not server.why_not_ready)
    told = [record for record in caplog.records if "webhook-ca-" in record.name]
    assert {record.name.rpartition(".webhook-ca-")[0] for record in told} == {"kubectl_runtime.housekeeping"}
    assert {record.levelname for record in told} == {"DEBUG"}
    assert {record.getMessage().partition(":")[0] for record in told} >= {"starting", "stopping", "stopped"}
    assert {record.filename for record in told} >= {"running.py", "housekeeping.py"}
