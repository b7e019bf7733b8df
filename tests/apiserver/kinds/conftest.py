"""Fixtures for the tests of the built-in kinds; see kindapi.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.kinds.kindapi import Api, Maker, pod_spec


@pytest.fixture
def api() -> Api:
    """A fresh core."""
    return Api()


@pytest.fixture
def pod() -> Maker:
    """Makes Pods."""
    return lambda name="a", **spec: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                                     "spec": pod_spec(**spec)}


@pytest.fixture
def workload() -> Maker:
    """Makes Deployments and their like."""
    def make(kind: str = "Deployment", name: str = "a", **spec: Any) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
                "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec}}

    return make
