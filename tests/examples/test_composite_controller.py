"""The CompositeController: parents of a kind that it was not written for, and rules in another program."""
from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from composite_controller import Composite, Kind, Run, Spec, controller

from kubectl_runtime import Api, Client, Patch
from kubectl_runtime.kinds import ApiResource
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, eventually

PAGES = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
         "metadata": {"name": "books.lib.example.com"}, "spec": {
             "group": "lib.example.com", "scope": "Namespaced", "names": {"plural": "books", "kind": "Book"},
             "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
                 "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
Book = ApiResource(group="lib.example.com", version="v1", kind="Book", plural="books")
LIMIT = 40
"""Seconds, on a busy machine."""
Rules = Callable[[dict[str, Any]], dict[str, Any]]


def page(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


def pages(asked: dict[str, Any]) -> dict[str, Any]:
    """A ConfigMap for each page of the book, and how many of them exist."""
    book = asked["parent"]
    return {"children": [page(f"{book['metadata']['name']}-{number}", text)
                         for number, text in enumerate(book["spec"]["pages"])],
            "status": {"pages": len(asked["children"]["ConfigMap.v1"])}}


class World:
    """The controller on a server; `rules` answer for the URL."""

    def __init__(self, client: Client, url: str) -> None:
        self.client, self.url, self.rules, self.asked = client, url, pages, list[dict[str, Any]]()
        self.composites = Api.all(client, Composite)
        self.books = Api.namespaced(client, Book, "default")
        self.maps = Api.namespaced(client, ConfigMap, "default")

    def compose(self, *children: str) -> None:
        self.composites.create(Composite(name="books", spec=Spec(
            parents=Kind("lib.example.com/v1", "Book"), children=[Kind("v1", kind) for kind in children or (
                "ConfigMap",)], sync=self.url)))

    def write(self, *pages: str) -> None:
        self.books.create({"apiVersion": "lib.example.com/v1", "kind": "Book", "metadata": {"name": "b"},
                           "spec": {"pages": list(pages)}})

    def texts(self) -> dict[str, str]:
        return {one.name: (one.data or {})["text"] for one in self.maps.list() if one.name.startswith("b-")}

    def has(self, **texts: str) -> None:
        wanted = {name.replace("_", "-"): text for name, text in texts.items()}
        eventually(self.texts, until=lambda found: found == wanted, timeout=LIMIT)

    def says(self, **status: Any) -> None:
        eventually(lambda: self.books.get("b").to_dict().get("status"), until=lambda found: found == {
            **status, "observedGeneration": self.books.get("b").generation}, timeout=LIMIT)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[World]]]:
    worlds: list[World] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            worlds[0].asked.append(asked)
            body = json.dumps(worlds[0].rules(asked)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, name="the hook")
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/sync", worlds
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def world(hook: tuple[str, list[World]]) -> Iterator[World]:
    with ApiServer() as server, server.client() as client:
        server.load([Composite.crd(), PAGES])
        made, reconciler = World(client, hook[0]), Run()
        hook[1].append(made)
        with controller(client).start(reconciler):
            yield made
        reconciler.stop(*reconciler.running)


def test_children_come_and_go_with_the_answers(world: World) -> None:
    world.compose()
    world.write("once", "upon")
    world.has(b_0="once", b_1="upon")
    world.says(pages=2)
    (reference,) = world.maps.get("b-0").owner_references
    assert (reference.kind, reference.name, reference.controller) == ("Book", "b", True)
    world.books.patch("b", Patch.merge({"spec": {"pages": ["twice"]}}))
    world.has(b_0="twice")
    world.says(pages=1)


def test_an_edit_is_taken_back_and_the_rules_see_children_as_they_are(world: World) -> None:
    world.compose()
    world.write("once")
    world.has(b_0="once")
    world.maps.patch("b-0", Patch.merge({"data": {"text": "never"}}))
    world.has(b_0="once")
    world.maps.delete("b-0")
    world.has(b_0="once")
    world.maps.patch("b-0", Patch.merge({"data": {"more": "theirs"}}))
    eventually(lambda: world.asked[-1]["children"]["ConfigMap.v1"].get("b-0", {}).get("data"),
               until=lambda data: data == {"text": "once", "more": "theirs"}, timeout=LIMIT)


def test_what_others_made_stays_and_the_other_children_are_made(world: World) -> None:
    world.maps.create(ConfigMap(name="b-0", data={"text": "theirs"}), field_manager="kubectl")
    world.compose()
    world.write("once", "upon")
    world.has(b_0="theirs", b_1="upon")
    assert world.maps.get("b-0").owner_references == ()


def test_nothing_is_sent_when_the_answer_is_the_same(world: World) -> None:
    world.compose()
    world.write("once", "upon")
    world.has(b_0="once", b_1="upon")
    world.says(pages=2)
    versions = [one.resource_version for one in world.maps.list()]
    for label in "xy":  # the second is seen after all that follows from the first
        world.books.patch("b", Patch.merge({"metadata": {"labels": {label: "1"}}}))
        eventually(lambda label=label: world.asked[-1]["parent"]["metadata"].get("labels", {}),
                   until=lambda labels, label=label: label in labels, timeout=LIMIT)
    assert versions == [one.resource_version for one in world.maps.list()]


def test_a_field_that_an_answer_leaves_out_goes(world: World) -> None:
    world.compose()
    world.rules = lambda asked: {"children": [], "status": {"phase": asked["parent"]["spec"]["pages"][0], **(
        {} if asked["parent"]["metadata"]["generation"] > 1 else {"first": True})}}
    world.write("draft")
    world.says(phase="draft", first=True)
    world.books.patch("b", Patch.merge({"spec": {"pages": ["final"]}}))
    world.says(phase="final")


def test_several_kinds_and_one_that_is_no_kind_of_children(world: World) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b-key"}, "stringData": {"k": "v"}}
    world.rules = lambda asked: {"children": [page("b-0", "once"), secret, *(
        [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}}] if asked["parent"]["spec"]["pages"] else []
    )]}
    world.compose("ConfigMap", "Secret")
    world.write()
    world.has(b_0="once")
    secrets = Api.namespaced(world.client, Secret, "default")
    eventually(lambda: secrets.get_opt("b-key"), until=lambda found: found is not None, timeout=LIMIT)
    world.books.patch("b", Patch.merge({"spec": {"pages": ["more"]}}))
    eventually(lambda: world.asked[-1]["parent"]["spec"]["pages"], until=lambda pages: pages == ["more"], timeout=LIMIT)
    world.maps.delete("b-0")
    eventually(lambda: world.asked[-1]["children"]["ConfigMap.v1"], until=lambda found: found == {}, timeout=LIMIT)
    assert world.texts() == {}  # nothing is done for an answer that cannot be right


def test_a_kind_that_comes_later_and_a_composite_that_goes(world: World) -> None:
    def ready() -> str:
        status = world.composites.get("late").status
        return status.conditions[0].reason if status and status.conditions else ""

    world.composites.create(Composite(name="late", spec=Spec(
        parents=Kind("lib.example.com/v1", "Book"), children=[Kind("more.example.com/v1", "More")], sync=world.url)))
    eventually(ready, until=lambda reason: reason == "DiscoveryError", timeout=LIMIT)
    world.composites.patch("late", Patch.merge({"spec": {"children": [{"apiVersion": "v1", "kind": "ConfigMap"}]}}))
    eventually(ready, until=lambda reason: reason == "Reconciled", timeout=LIMIT)
    world.write("once")
    world.has(b_0="once")
    world.composites.delete("late")
    eventually(lambda: world.composites.get_opt("late"), until=lambda found: found is None, timeout=LIMIT)
    asked = len(world.asked)
    world.books.patch("b", Patch.merge({"spec": {"pages": ["later"]}}))
    world.has(b_0="once")  # no controller runs for books
    assert len(world.asked) == asked
