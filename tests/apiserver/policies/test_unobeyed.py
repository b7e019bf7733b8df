"""What is stored and not acted on is warned of, and listed in the guide."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.policies.admission import NEVER, WITHOUT_CONTROLLER
from tests.apiserver.webhooks.hooked import Hooked

GUIDE = Path("examples/guides/testing/what-the-server-obeys.md")
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
SET = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.mark.parametrize(("controllers", "path", "spec", "warned"), [
    ((), "apps/v1/namespaces/default/statefulsets", SET, 'controllers=[..., \\"statefulset\\"]'),
    (("statefulset",), "apps/v1/namespaces/default/statefulsets", SET, ""),
    (("*",), "networking.k8s.io/v1/namespaces/default/networkpolicies", {"podSelector": {}}, "no traffic is filtered"),
    (("*",), "autoscaling/v2/namespaces/default/horizontalpodautoscalers", {
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
     "nothing is scaled")])
def test_a_kind_that_nothing_acts_on_is_warned_of(controllers: Any, path: str, spec: Any, warned: str) -> None:
    api = Hooked(controllers=controllers)
    made = api("POST", f"/apis/{path}", {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == 201, made.body
    header = made.headers.get("warning", "")
    assert warned in header if warned else not header
    again = api("PATCH", f"/apis/{path}/a", {"metadata": {"labels": {"x": "y"}}},
                content_type="application/merge-patch+json")
    assert "without acting" not in again.headers.get("warning", "")  # once, when it is created


def test_warnings_can_be_turned_off_and_custom_resources_have_none() -> None:
    api = Hooked(warn_unobeyed=False)
    made = api("POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", {
        "metadata": {"name": "a"}, "spec": {"podSelector": {}}})
    assert "warning" not in made.headers


def test_the_guide_lists_all_kinds_and_controllers() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert {kind for _, kind in [*NEVER, *WITHOUT_CONTROLLER] if kind not in text} == set()
    assert {name for name in CONTROLLERS if f"`{name}`" not in text} == set()
    assert set(WITHOUT_CONTROLLER.values()) <= set(CONTROLLERS)
