"""Services, ConfigMaps and Secrets, namespaces, volumes, roles, events, leases."""

from __future__ import annotations

import ipaddress

import pytest

from kubectl_runtime.apiserver.kinds.services import SERVICE_NETWORK
from tests.apiserver.kinds.kindapi import Api


def service(name: str = "s", **spec: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], **spec}}


def test_services_get_addresses_of_their_own_that_stay(api: Api) -> None:
    addresses = {api.made(service(f"s{index}"))["spec"]["clusterIP"] for index in range(300)}
    assert len(addresses) == 300
    first = api.made(service())
    assert ipaddress.ip_address(first["spec"]["clusterIP"]) in SERVICE_NETWORK.supernet()
    renewed = api("PUT", api.path(first, "s"), service(selector={"a": "b"}), content_type="application/json").body
    assert renewed["spec"]["clusterIP"] == first["spec"]["clusterIP"]


def test_node_ports_are_allocated_once(api: Api) -> None:
    made = api.made(service(type="NodePort", ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]))
    ports = [port["nodePort"] for port in made["spec"]["ports"]]
    assert len(set(ports)) == 2
    assert all(30000 <= port < 32768 for port in ports)
    renewed = api("PUT", api.path(made, "s"), {**made, "spec": {**made["spec"], "ports": [
        {"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}, content_type="application/json").body
    assert [port["nodePort"] for port in renewed["spec"]["ports"]] == ports


def test_a_headless_service_without_selector_is_dual_stack_and_an_external_name_has_no_address(api: Api) -> None:
    headless = api.made(service(clusterIP="None"))["spec"]
    assert (headless["ipFamilies"], headless["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    external = api.made(service("e", type="ExternalName", externalName="example.com"))["spec"]
    assert "clusterIP" not in external
    assert "internalTrafficPolicy" not in external


@pytest.mark.parametrize(("spec", "field"), [
    ({"ports": []}, "spec.ports"), ({"ports": [{"port": 0}]}, "spec.ports[0].port"),
    ({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}, "spec.ports[0].name"), ({"type": "Odd"}, "spec.type"),
    ({"type": "NodePort", "ports": [{"port": 1, "nodePort": 5}]}, "spec.ports[0].nodePort"),
    ({"type": "ExternalName"}, "spec.externalName"), ({"clusterIP": "x"}, "spec.clusterIPs[0]"),
])
def test_an_invalid_service_is_refused_with_the_field(api: Api, spec: dict[str, object], field: str) -> None:
    refused = api.create(service(**spec))
    assert refused.status == 422
    assert field in [name for name, _ in refused.causes()]


def test_secrets_are_checked_by_their_type_which_never_changes(api: Api) -> None:
    base = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    refused = api.create({**base, "type": "kubernetes.io/tls"})
    assert [field for field, _ in refused.causes()] == ["data[tls.crt]", "data[tls.key]"]
    made = api.made({**base, "stringData": {"k": "v"}})
    assert (made["type"], made["data"]) == ("Opaque", {"k": "dg=="})
    assert api.merge(made, {"type": "other"}).causes() == [("type", 'Invalid value: "other": field is immutable')]


def test_a_config_map_has_keys_of_limited_form_and_size(api: Api) -> None:
    base = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    refused = api.create({**base, "data": {"..": "x", "a b": "y", "both": "z"}, "binaryData": {"both": "eA=="}})
    assert [field for field, _ in refused.causes()] == ["data[..]", "data[a b]", "data[both]"]
    large = api.create({**base, "data": {"k": "x" * (1 << 20) + "y"}})
    assert large.body["details"]["causes"][0]["reason"] == "FieldValueTooLong"


def test_the_phase_of_a_namespace_belongs_to_its_deletion(api: Api) -> None:
    made = api.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    refused = api.merge(made, {"status": {"phase": "Terminating"}}, "status")
    assert refused.causes()[0][0] == "status.Phase"
    kept = api.merge(made, {"spec": {"finalizers": []}}).body
    assert kept["spec"] == {"finalizers": ["kubernetes"]}


def test_a_claim_takes_the_default_class_and_is_protected(api: Api) -> None:
    api.made({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x", "metadata": {
        "name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}})
    claim = api.made({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert api.merge(claim, {"spec": {"accessModes": ["ReadOnlyMany"]}}).causes()[0][0] == "spec"


def test_the_role_of_a_binding_cannot_change_and_rules_need_verbs(api: Api) -> None:
    group = "rbac.authorization.k8s.io"
    binding = api.made({"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "system:b"},
                        "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "joe"}]})
    assert binding["roleRef"]["apiGroup"] == group
    assert binding["subjects"] == [{"kind": "User", "apiGroup": group, "name": "joe"}]
    assert api.merge(binding, {"roleRef": {"name": "other"}}).causes()[0][1].endswith("cannot change roleRef")
    refused = api.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "r"},
                          "rules": [{"resources": ["pods"]}]})
    assert [field for field, _ in refused.causes()] == ["rules[0].verbs", "rules[0].apiGroups"]


def test_an_event_is_seen_through_both_groups(api: Api) -> None:
    made = api.made({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "message": "m",
                     "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}})
    new = api("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e").body
    assert (new["note"], new["regarding"]["name"], new["metadata"]["uid"]) == ("m", "p", made["metadata"]["uid"])
    assert "reportingController" not in new
    found = api("GET", "/api/v1/namespaces/default/events", query={"fieldSelector": "involvedObject.name=p,reason=R"})
    assert len(found.body["items"]) == 1
    found = api("GET", "/apis/events.k8s.io/v1/namespaces/default/events", query={"fieldSelector": "regarding.name=p"})
    assert len(found.body["items"]) == 1


def test_an_event_of_the_new_group_changes_in_its_series_only(api: Api) -> None:
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R",
             "type": "Normal", "eventTime": "2024-01-01T00:00:00.000000Z", "action": "A", "reportingController": "c",
             "reportingInstance": "i", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}}
    made = api.made(event)
    assert api.merge(made, {"note": "other"}).causes()[0][0] == "message"
    assert api.merge(made, {"series": {"count": 2, "lastObservedTime": "2024-01-01T00:00:01.000000Z"}}).status == 200


def test_an_ingress_path_must_say_how_it_matches(api: Api) -> None:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    refused = api.create({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {
        "rules": [{"http": {"paths": [{"path": "/", "backend": backend}]}}]}})
    assert refused.causes() == [("spec.rules[0].http.paths[0].pathType", "Required value: pathType must be specified")]


def test_a_network_policy_with_egress_rules_is_about_both_directions(api: Api) -> None:
    made = api.made({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"},
                     "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}})
    assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert made["spec"]["egress"] == [{"ports": [{"port": 53, "protocol": "TCP"}]}]


def test_limits_of_a_limit_range_follow_from_each_other(api: Api) -> None:
    made = api.made({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
                     "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}})
    limit = made["spec"]["limits"][0]
    assert limit["default"] == {"cpu": "2"}
    assert limit["defaultRequest"] == {"memory": "1Mi", "cpu": "2"}


def test_an_address_is_only_looked_for_if_the_service_is_valid(api: Api) -> None:
    first, second = api.made(service("one")), api.made(service("two"))
    taken = first["spec"]["clusterIP"]
    refused = api.merge(second, {"spec": {"clusterIP": taken, "clusterIPs": [taken]}})
    assert [field for field, _ in refused.causes()] == ["spec.clusterIPs[0]"]
    copy = api.create(service("three", clusterIP=taken))
    assert [field for field, _ in copy.causes()] == ["spec.clusterIPs"]
    assert "provided IP is already allocated" in copy.causes()[0][1]
