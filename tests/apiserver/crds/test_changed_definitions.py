"""What becomes of stored objects whose definition changes, as a kube-apiserver 1.36.2 has it."""
from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, Client, DynamicObject, Patch, apply_crd
from kubectl_runtime.apiserver.crds.controller import CrdController
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.storage import Registry, ServedResource
from kubectl_runtime.testing import eventually

Things = Api[DynamicObject]
TEXT = {"type": "string"}
UNCHANGED = Patch.merge({"spec": {"a": "1"}})


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        yield client


def define(client: Client, **fields: dict[str, Any]) -> Things:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    apply_crd(client, {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.changed.example.com"}, "spec": {
            "group": "changed.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}}})
    things = Api.namespaced(client, ApiResource("changed.example.com", "v1", "Thing", "things"), "default")
    defaults = {name for name, schema in fields.items() if "default" in schema}

    def is_served() -> bool:  # a moment after it was stored
        probe = things.create({"metadata": {"name": "probe"}, "spec": dict.fromkeys("ab", "1")}, dry_run=True)
        bare = things.create({"metadata": {"name": "probe"}, "spec": {}}, dry_run=True)
        return (set(probe["spec"]), set(bare["spec"])) == (set(fields), defaults)

    eventually(is_served)
    return things


def test_a_field_that_has_left_the_schema_is_not_read_any_more(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    things = define(client, a=TEXT, b=TEXT)
    made = things.create({"metadata": {"name": "x"}, "spec": {"a": "1", "b": "2"}})
    define(client, a=TEXT)
    assert things.get("x")["spec"] == {"a": "1"}
    assert [obj["spec"] for obj in things.list()] == [{"a": "1"}]
    assert things.get("x").resource_version == made.resource_version
    caplog.clear()
    labelled = things.patch("x", Patch.merge({"metadata": {"labels": {"l": "m"}}}))
    assert (labelled.generation, labelled["spec"]) == (1, {"a": "1"})
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []  # of no unknown field


def test_it_is_there_again_with_the_schema_unless_the_object_was_written(client: Client) -> None:
    things = define(client, a=TEXT, b=TEXT)
    for name in ("left", "written"):
        things.create({"metadata": {"name": name}, "spec": {"a": "1", "b": "2"}})
    define(client, a=TEXT)
    before = things.get("written")
    written = things.patch("written", UNCHANGED)  # even so: what is stored has more than what is read
    assert written.resource_version != before.resource_version
    assert written.generation == 1
    assert things.patch("written", UNCHANGED).resource_version == written.resource_version
    define(client, a=TEXT, b=TEXT)
    assert {obj.name: obj["spec"] for obj in things.list()} == {"left": {"a": "1", "b": "2"}, "written": {"a": "1"}}


def test_a_default_that_has_come_is_read_and_stored_by_the_next_write(client: Client) -> None:
    things = define(client, a=TEXT)
    made = things.create({"metadata": {"name": "x"}, "spec": {"a": "1"}})
    define(client, a=TEXT, b={**TEXT, "default": "2"})
    assert things.get("x")["spec"] == {"a": "1", "b": "2"}
    written = things.patch("x", UNCHANGED)
    assert written.resource_version != made.resource_version
    define(client, a=TEXT, b=TEXT)
    assert things.get("x")["spec"] == {"a": "1", "b": "2"}


def test_a_type_is_found_at_every_moment_while_its_definition_changes() -> None:
    first = ServedResource("changed.example.com", "v1", "Thing", "things", "thing", namespaced=True)
    registry, missing, done = Registry([first]), [], threading.Event()

    def read() -> None:
        while not done.is_set():
            if registry.get("changed.example.com", "v1", "things") is None:
                missing.append("by plural")
            if registry.by_kind("changed.example.com", "v1", "Thing") is None:
                missing.append("by kind")
            if "changed.example.com" not in registry.groups():
                missing.append("its group")
            registry.of("changed.example.com", "v1")

    reader = threading.Thread(target=read)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reader.start()
        for number in range(3000):
            registry.add(replace(first, short_names=(str(number),)))
            registry.add(replace(first, plural=f"others{number}", kind=f"Other{number}", storage=""))
            if number > 10:
                registry.remove(registry.get("changed.example.com", "v1", f"others{number - 10}") or first)
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(interval)
    assert missing == []
    assert registry.of_storage(first.storage) == [registry.get("changed.example.com", "v1", "things")]
    assert registry.get("changed.example.com", "v1", "things") is not first


def test_a_type_that_is_replaced_under_another_kind_is_not_found_by_the_old_one() -> None:
    first = ServedResource("changed.example.com", "v1", "Thing", "things", "thing", namespaced=True)
    registry = Registry([first])
    registry.add(replace(first, kind="Item"))
    assert registry.by_kind("changed.example.com", "v1", "Thing") is None
    assert [found.kind for found in registry.of("changed.example.com", "v1")] == ["Item"]
    assert [found.kind for found in registry.of_storage(first.storage)] == ["Item"]


def test_load_waits_for_a_definition_that_another_thread_is_about_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer()
    core, main, ended = server.core, threading.current_thread(), threading.Event()
    serve, tick = CrdController._serve, core.tick
    entered = threading.Event()

    def late(*arguments: Any) -> None:
        entered.set()
        threading.Event().wait(0.2)  # in the middle of its step, with the lock
        serve(*arguments)

    def tick_elsewhere() -> bool:
        return threading.current_thread() is not main and tick()

    def ticks() -> None:
        while not ended.is_set():
            core.tick()

    monkeypatch.setattr(CrdController, "_serve", late)
    monkeypatch.setattr(core, "tick", tick_elsewhere)
    ticker = threading.Thread(target=ticks)
    ticker.start()
    try:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        assert server.load([
            {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
             "metadata": {"name": "things.changed.example.com"}, "spec": {
                 "group": "changed.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": True, "storage": True,
                               "schema": {"openAPIV3Schema": schema}}]}},
            {"apiVersion": "changed.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}]) == 2
    finally:
        ended.set()
        ticker.join()
    assert entered.is_set()
