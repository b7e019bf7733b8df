"""What applying a set would change: what is shown, what is withheld, what the server cannot judge yet."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.kubectl.apply import apply_manifests, diff_manifests
from kubectl_runtime.kubectl.report import ManifestReport, ManifestsFailed
from kubectl_runtime.resources import ConfigMap, Deployment, Secret
from tests.kubectl.conftest import World
from tests.kubectl.test_apply_manifests import READY, SHOP, WIDGET, Widget, config_map, deployment


class Plain(CustomResource, group="example.com", version="v1", kind="Plain"):
    """A kind without a subresource for its status."""

    spec: dict[str, Any]


def diff(world: World, *source: Any, **options: Any) -> ManifestReport:
    return diff_manifests(world.client, source, **{"field_manager": "m", **options})


def apply(world: World, *source: Any, **options: Any) -> None:
    apply_manifests(world.client, source, **{"field_manager": "m", "progress": False, **options})


def test_what_is_alike_shows_nothing_whatever_the_server_wrote(world: World) -> None:
    apply(world, deployment(), config_map("a"))
    world.says(Deployment, "web", READY)
    report = diff(world, deployment(), config_map("a"))
    assert (report.changed, report.difference) == (False, "")
    assert str(report) == "Deployment default/web unchanged\nConfigMap default/a unchanged"


def test_true_is_another_value_than_1(world: World) -> None:
    def plain(value: object) -> dict[str, Any]:
        return Plain(name="a", namespace="default", spec={"x": value}).to_dict()

    apply(world, Plain.crd(), plain(1))
    report = diff(world, plain(True))
    assert report.changed
    assert "-  x: 1" in report.difference
    assert "+  x: true" in report.difference
    assert not diff(world, plain(1)).changed


def test_a_change_is_shown_as_a_diff_of_yaml(world: World) -> None:
    apply(world, config_map("a", k="v", same="1"))
    report = diff(world, config_map("a", k="w", same="1"))
    assert report.changed
    assert report.difference.splitlines() == [
        "--- live: ConfigMap default/a (object 1)", "+++ applied: ConfigMap default/a (object 1)",
        "@@ -1,6 +1,6 @@", " apiVersion: v1", " data:", "-  k: v", "+  k: w", '   same: "1"', " kind: ConfigMap",
        " metadata:"]
    assert world.api(ConfigMap).get("a").data["k"] == "v"


def test_defaults_of_the_server_are_part_of_what_would_be(world: World) -> None:
    assert "+  progressDeadlineSeconds: 600\n" in diff(world, deployment()).difference


def test_fields_of_others_are_left_as_they_are(world: World) -> None:
    apply(world, config_map("a", theirs="1"), field_manager="other")
    assert "theirs" not in "".join(line for line in diff(world, config_map("a", mine="1")).difference.splitlines()
                                   if line[0] in "+-")


def test_values_of_secrets_are_stars(world: World) -> None:
    copy = '{"data": "aHVudGVyMg=="}'
    world.api(Secret).create(Secret(name="s", data={"password": b"hunter2", "same": b"s"}, annotations={
        "kubectl.kubernetes.io/last-applied-configuration": copy, "note": "shown"}))
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"password": "hunter3", "same": "s", "more": "m"}}
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter4"}
    text = diff(world, body, force=True).difference
    assert [line.strip() for line in text.splitlines() if "***" in line] == [
        "-  password: '*** (before)'", "+  more: '***'", "+  password: '*** (after)'", "same: '***'",
        "-    kubectl.kubernetes.io/last-applied-configuration: '*** (before)'",
        "+    kubectl.kubernetes.io/last-applied-configuration: '*** (after)'"]
    assert "note: shown" in text
    for hidden in ("hunter", "aHVud", "bQ=="):
        assert hidden not in text


def test_what_comes_with_the_set_is_new_and_unchecked(world: World) -> None:
    there = {**config_map("a"), "metadata": {"name": "a", "namespace": "shop"}}
    report = diff(world, there, WIDGET, SHOP, Widget.crd())
    assert [(outcome.action, outcome.checked) for outcome in report] == [
        ("created", False), ("created", False), ("created", True), ("created", True)]
    assert "+++ applied, unchecked: Widget shop/w (object 2)" in report.difference
    assert str(report).splitlines()[1] == "Widget shop/w created (not checked by the server yet)"
    apply(world, there, WIDGET, SHOP, Widget.crd())
    assert not diff(world, there, WIDGET, SHOP, Widget.crd()).changed


def test_a_secret_of_a_namespace_to_come_shows_no_value_either(world: World) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"},
              "stringData": {"password": "hunter2"}}
    text = diff(world, secret, SHOP).difference
    assert "password: '***'" in text
    assert "hunter2" not in text


def test_a_namespace_or_kind_that_nobody_brings_is_a_failure(world: World) -> None:
    there = {**config_map("a"), "metadata": {"name": "a", "namespace": "shop"}}
    with pytest.raises(ManifestsFailed, match="2 of 3 objects failed") as caught:
        diff(world, there, WIDGET, config_map("b"))
    assert caught.value.report.outcomes[2].action == "created"


def test_the_status_of_a_kind_without_a_subresource_for_it_is_content(world: World) -> None:
    plain = {"apiVersion": "example.com/v1", "kind": "Plain", "metadata": {"name": "p"}, "spec": {}}
    crd = Plain.crd()
    crd["spec"]["versions"][0].pop("subresources", None)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    apply(world, crd, plain)
    assert diff(world, crd, {**plain, "status": {"phase": "New"}}).outcomes[1].action == "updated"


def test_a_conflict_is_told_before_it_happens(world: World) -> None:
    apply(world, config_map("a", k="theirs"), field_manager="other")
    with pytest.raises(ManifestsFailed, match='conflict with "other"'):
        diff(world, config_map("a", k="mine"))
    assert diff(world, config_map("a", k="mine"), force=True).changed


def test_an_object_that_somebody_changed_is_shown(world: World) -> None:
    apply(world, config_map("a", k="v"))
    world.api(ConfigMap).patch("a", Patch.merge({"data": {"k": "tampered"}}))
    assert "-  k: tampered\n+  k: v\n" in diff(world, config_map("a", k="v"), force=True).difference
