"""The pairs of programs in the guides for those who come from kopf: what either side does, told as a story.

A story gets the objects and a function that waits, and asserts what a user sees. `tests/examples` runs it with our side
of the pair, `tests/interop` with both, where kopf is installed.
"""
from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from kubectl_runtime import Api, ApiResource, Patch
from tests.examples.programs import ROOT, blocks

FOLDER = ROOT / "examples" / "guides" / "coming-from"
GUIDES = (FOLDER / "kopf.md", FOLDER / "kopf-several-handlers.md", FOLDER / "kopf-timers-and-daemons.md")
THING = ApiResource("example.com", "v1", "Thing", "things")
WRITTEN_PORT = "127.0.0.1:8099"
"""Where the guide has the weather; another program may be there when its tests run."""

Things = Api[Any]
Until = Callable[[Callable[[], object]], Any]


def save(folder: Path) -> list[str]:
    """Write each program as a file of the name in its first line; the names of the pairs."""
    names = []
    for guide in GUIDES:
        for block in blocks(guide, "python"):
            name = block.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(block.replace(WRITTEN_PORT, f"127.0.0.1:{weather_port()}"))
            names.append(name)
    ours = [name.removeprefix("ours_").removesuffix(".py") for name in names if name.startswith("ours_")]
    assert sorted(names) == sorted(["things.py", *(f"{side}_{name}.py" for name in ours for side in ("kopf", "ours"))])
    return ours


def shown(things: Things) -> dict[str, Any]:
    found = things.get_opt("a")
    return dict(found.get("status") or {}) if found is not None else {}


def make(things: Things, annotations: dict[str, str] | None = None) -> None:
    spec = {"size": 1, "color": "red"}
    things.create({"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec,
                   "metadata": {"name": "a", "annotations": annotations or {}}})


def size(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: shown(things).get("size") == 1)
    things.patch("a", Patch.merge({"spec": {"size": 2}}))
    until(lambda: shown(things).get("size") == 2)


def color(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: shown(things).get("color") == "red")
    things.patch("a", Patch.merge({"spec": {"color": "blue"}}))
    until(lambda: (shown(things).get("was"), shown(things).get("color")) == ("red", "blue"))


def resume(things: Things, until: Until, folder: Path) -> None:
    """The object was there before the operator: see `BEFORE`."""
    until(lambda: shown(things).get("resumed") == "yes")


def delete(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: things.get("a").finalizers)
    things.delete("a")
    until(lambda: things.get_opt("a") is None)
    assert (folder / "cleaned-a").exists()


def together(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: shown(things).get("priced") == {"total": 3} and things.get("a").labels.get("color") == "red")
    until(lambda: shown(things).get("ticks", 0) >= 2)
    things.patch("a", Patch.merge({"spec": {"size": 2, "color": "blue"}}))
    until(lambda: shown(things).get("priced") == {"total": 6} and things.get("a").labels.get("color") == "blue")
    events = Api.namespaced(things.client, ApiResource("", "v1", "Event", "events"), things.namespace or "default")
    until(lambda: "3 each" in {event["message"] for event in events.list() if event["reason"] == "Priced"})


def timer(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: shown(things).get("ticks", 0) >= 3)


def daemon(things: Things, until: Until, folder: Path) -> None:
    with weather() as say:
        make(things)
        written = folder / "weather-a"
        until(lambda: written.exists() and written.read_text() == "rain")
        say("sun")
        until(lambda: written.read_text() == "sun")


def errors(things: Things, until: Until, folder: Path) -> None:
    make(things)
    until(lambda: shown(things).get("tried") == 3)


STORIES = {story.__name__: story for story in (size, color, resume, delete, together, timer, daemon, errors)}
BEFORE = frozenset({"resume"})
"""Those whose object is there before the operator."""
HANDLED = {"kopf.zalando.org/last-handled-configuration": '{"spec":{"size":1,"color":"red"}}'}
"""Annotations of an object that kopf has handled: one that it has not is created for it, and not resumed."""


@cache
def weather_port() -> int:
    """One that was free when it was first asked for."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def weather() -> Iterator[Callable[[str], None]]:
    """A server that tells the weather; a function that changes it."""
    now = ["rain"]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(now[0].encode())

        def log_message(self, *_: object) -> None:
            """Nothing is said of a request."""

    HTTPServer.allow_reuse_address = True
    with HTTPServer(("127.0.0.1", weather_port()), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="weather")
        thread.start()
        try:
            yield lambda told: now.__setitem__(0, told)
        finally:
            server.shutdown()
            thread.join()
