"""Deletions that are repeated with another propagation policy."""

from __future__ import annotations

import json

import pytest

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.testing.clock import SimClock

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def core() -> ApiCore:
    return ApiCore(SimClock(), seed=1)


def request(core: ApiCore, method: str, path: str, body: object = None, **query: str) -> HttpResponse:
    data = b"" if body is None else json.dumps(body).encode()
    return core.handle(HttpRequest(method, path, list(query.items()), {"content-type": "application/json"}, data))


def finalizers(core: ApiCore, name: str = "a") -> list[str]:
    answer = request(core, "GET", f"{CONFIG_MAPS}/{name}")
    found: list[str] = json.loads(answer.body)["metadata"].get("finalizers", [])
    return found


def test_a_later_deletion_with_another_policy_replaces_the_policy_of_the_first(core: ApiCore) -> None:
    request(core, "POST", CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/own"]}})
    for policy, wanted in (("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", [])):
        assert request(core, "DELETE", f"{CONFIG_MAPS}/a", propagationPolicy=policy).status == 200
        assert finalizers(core) == ["example.com/own", *wanted]


def test_a_background_deletion_ends_a_foreground_one(core: ApiCore) -> None:
    request(core, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    request(core, "DELETE", f"{CONFIG_MAPS}/a", propagationPolicy="Foreground")
    request(core, "DELETE", f"{CONFIG_MAPS}/a", propagationPolicy="Background")
    assert request(core, "GET", f"{CONFIG_MAPS}/a").status == 404


def test_a_repeated_deletion_changes_nothing(core: ApiCore) -> None:
    request(core, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    first = request(core, "DELETE", f"{CONFIG_MAPS}/a", propagationPolicy="Foreground")
    assert request(core, "DELETE", f"{CONFIG_MAPS}/a", propagationPolicy="Foreground").body == first.body
    assert request(core, "DELETE", f"{CONFIG_MAPS}/a").body == first.body
