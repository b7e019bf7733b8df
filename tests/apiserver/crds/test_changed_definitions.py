"""What becomes of stored objects whose definition changes, as a kube-apiserver 1.36.2 has it."""
from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, Client, DynamicObject, Patch, apply_crd
from kubectl_runtime.apiserver.server import ApiServer
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
