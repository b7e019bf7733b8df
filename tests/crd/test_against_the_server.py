"""A class, its definition and its objects against a server: what is declared is served, what is hidden survives."""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.testing import ApiServer


class GadgetSpec(msgspec.Struct, rename="camel"):
    size: int
    wall_color: str = "white"
    hidden: dict[str, Any] = {}


class GadgetStatus(msgspec.Struct, rename="camel"):
    observed_generation: int | None = None


class Gadget(CustomResource, group="demo.example.com", version="v1", kind="Gadget", short_names=("gd",)):
    spec: GadgetSpec
    status: GadgetStatus | None = None


class SmallSpec(msgspec.Struct, rename="camel"):
    size: int


class GadgetBySize(Gadget):
    """A view that names one field only."""

    spec: SmallSpec  # type: ignore[assignment]


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        Api.all(client, CustomResourceDefinition).create(Gadget.crd())
        until_served(Api.namespaced(client, Gadget, "default"))
        yield client


def until_served(api: Api[Any]) -> None:
    """A CRD is answered before its kind is served: block until it is, as every user of a new CRD has to."""
    deadline, pause = time.monotonic() + 20, threading.Event()
    while True:
        try:
            api.list()
            return
        except KindNotServedError:
            assert time.monotonic() < deadline, "the CRD is there, but its kind is not served"
            pause.wait(0.01)


def test_objects_of_the_class_are_served(client: Client) -> None:
    api = Api.namespaced(client, Gadget, "default")
    made = api.create(Gadget(name="a", spec=GadgetSpec(size=3)))
    assert (made.spec.size, made.spec.wall_color, made.generation) == (3, "white", 1)
    assert api.get("a")["spec"]["wallColor"] == "white"
    with pytest.raises(ApiError, match="size"):
        api.create({"metadata": {"name": "b"}, "spec": {}})


def test_the_status_is_a_subresource(client: Client) -> None:
    api = Api.namespaced(client, Gadget, "default")
    obj = api.create(Gadget(name="a", spec=GadgetSpec(size=3)))
    obj.status = GadgetStatus(observed_generation=obj.generation)
    assert api.replace(obj).status is None
    fresh = api.get("a")
    fresh.status = GadgetStatus(observed_generation=fresh.generation)
    written = api.replace_status(fresh)
    assert written.status == GadgetStatus(observed_generation=1)


def test_replacing_through_a_small_view_keeps_the_rest(client: Client) -> None:
    whole = Api.namespaced(client, Gadget, "default")
    whole.create(Gadget(name="a", spec=GadgetSpec(size=3, wall_color="red", hidden={"deep": [1, {"x": None}]})))
    api = Api.namespaced(client, GadgetBySize, "default")
    obj = api.get("a")
    obj.spec.size = 4
    obj.metadata.labels = {"l": "m"}
    api.replace(obj)
    after = whole.get("a")
    assert (after.spec.size, after.spec.wall_color, after.spec.hidden) == (4, "red", {"deep": [1, {"x": None}]})
    assert dict(after.labels) == {"l": "m"}


def test_what_is_read_can_be_applied_as_it_is(client: Client) -> None:
    api = Api.namespaced(client, Gadget, "default")
    api.create(Gadget(name="a", spec=GadgetSpec(size=3)))
    item = api.list().items[0]
    assert api.apply(item, field_manager="m", force=True).spec.size == 3
    bare = Api.namespaced(client, dynamic(Gadget.api_resource), "default").list().items[0]
    assert bare["kind"] == "Gadget"
