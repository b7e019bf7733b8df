"""`DebugApplication`: what is answered to those who may look at `/debug` (see `DebugPage`).

    GET /debug              the page, one file, which asks for the state every two seconds
    GET /debug/state.json   the state as JSON; see `DebugState`
    GET /debug/schema.json  its JSON Schema

The state of many keys, controllers and watches is cut to `MOST_BYTES` by showing fewer rows; numbers are always of all.
"""
from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.runtime.observe.debug_page import DebugPage, is_local
from kubectl_runtime.runtime.observe.debug_snapshot import Debugged, snapshot

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

Answer = tuple[str, list[tuple[str, str]], bytes]

ROWS = (30, 10, 3, 0)
"""Of each kind, until the state is small enough."""

MOST_BYTES = 160_000

REFUSED = ("the status page answers this host only. From elsewhere: kubectl port-forward POD {port}:{port}, then "
           "http://127.0.0.1:{port}/debug; or let the program say DebugPage(remote=True)\n")


class DebugApplication:
    """Answers for `/debug` and what is below it. Safe to use from any thread; keeps nothing."""

    def __init__(self, page: DebugPage, debugged: Debugged, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._page = page
        self._debugged = debugged
        self._clock = clock
        self._since = clock.monotonic()

    def answer(self, path: str, environ: WSGIEnvironment) -> Answer | None:
        """The answer to a GET of `path` below `/debug`: status, headers, body. None when there is nothing."""
        if path not in ("", "state.json", "schema.json"):
            return None
        if not self._page.remote and not is_local(environ):
            port = environ.get("SERVER_PORT", "8080")
            return _answer("403 Forbidden", "text/plain; charset=utf-8", REFUSED.format(port=port).encode())
        if path == "state.json":
            return _answer("200 OK", "application/json", self.state())
        if path == "schema.json":
            return _answer("200 OK", "application/schema+json", _file("debug_state.schema.json"))
        return _answer("200 OK", "text/html; charset=utf-8", _file("debug_page.html"),
                       ("Content-Security-Policy", _policy()))

    def state(self) -> bytes:
        """The state as JSON."""
        body = b""
        for rows in ROWS:
            body = msgspec.json.encode(snapshot(self._debugged, self._clock, self._since, rows,
                                                details=self._page.details))
            if len(body) <= MOST_BYTES:
                break
        return body


def _answer(status: str, kind: str, body: bytes, *more: tuple[str, str]) -> Answer:
    return status, [("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
                    ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Resource-Policy", "same-origin"), *more], body


@cache
def _file(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


@cache
def _policy() -> str:
    """Nothing from elsewhere, and no script or style but the page's own."""
    page = _file("debug_page.html").decode()
    script, style = (_digest(page, tag) for tag in ("script", "style"))
    return (f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def _digest(page: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
