"""Where `kubectl-runtime top` gets what it shows: `/debug/state.json` of a process.

    state_url   what was typed, as the URL of the state
    fetched     the state; what keeps it from coming is a CommandError that says what to do
"""
from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.client.config.proxies import is_loopback_url
from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.base.errors import text_of
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.observe.debug_state import VERSION, DebugState

PATIENCE = 5.0
"""Seconds for an answer."""

MOST_BYTES = 4 << 20


def state_url(text: str) -> str:
    """The URL of a server's state, of what the person wrote. Raises ValueError for a text that is not the address of a
    server."""
    given = text.strip()
    if "://" not in given:
        given = f"http://{given}"
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username or not (host or port) \
            or any(letter.isspace() or not letter.isprintable() for letter in given):
        raise ValueError(f"{text!r} is not a server's address: write http://127.0.0.1:8080, 127.0.0.1:8080 or :8080")
    name = f"[{host}]" if host and ":" in host else host or "127.0.0.1"
    path = parts.path.rstrip("/").removesuffix("/state.json").removesuffix("/debug")
    return f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{path}/debug/state.json"


def fetched(url: str) -> DebugState:
    """The body at `url`. Blocks for about `PATIENCE` seconds at most. Raises CommandError."""
    page = url.removesuffix("/state.json")
    try:
        with _opener(url).open(url, timeout=PATIENCE) as answer:
            body = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise CommandError(f"{page}: {_refused(error)}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        said = reason if isinstance(reason, str) else text_of(reason)
        raise CommandError(f"nothing answers at {page}: {said}. Does the program run, and serve there "
                           "(Manager(serve=...))? Of a Pod: kubectl port-forward POD 8080") from None
    try:
        return read(body)
    except ValueError as error:
        raise CommandError(f"{page} is not a status page of kubectl_runtime: {error}") from None


def read(body: bytes) -> DebugState:
    """The state that a process told. Raises ValueError for another document, and for a state of a newer library."""
    if len(body) > MOST_BYTES:
        raise ValueError("it does not end")
    with contextlib.suppress(*DECODE_FAILURES):
        version = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("version", msgspec.Raw(b"0"))
        if msgspec.json.decode(version, type=int) > VERSION:
            raise ValueError("it is of a newer version of kubectl_runtime: use the `kubectl-runtime top` of that one")
    try:
        return decoded(body, DebugState)
    except DECODE_FAILURES as error:
        raise ValueError(str(error)) from None


def _refused(error: urllib.error.HTTPError) -> str:
    if error.code == 404:
        return "there is no status page: the program has turned it off (debug=None), or is another one"
    text = ""
    with contextlib.suppress(OSError, http.client.HTTPException):
        text = error.read(500).decode("utf-8", "replace").partition("\n")[0]
    return text if error.code == 403 and text else f"HTTP {error.code} {error.reason}"


def _opener(url: str) -> urllib.request.OpenerDirector:
    """This host is asked without a proxy, whatever the environment says."""
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_loopback_url(url) else []))
