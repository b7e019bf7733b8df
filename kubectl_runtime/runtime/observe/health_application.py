"""`HealthApplication`: `/healthz`, `/readyz`, `/metrics` and `/debug` as one WSGI application, in the words of
Kubernetes.

    GET /healthz                200 "ok"; 500 and a line for each check, if one of them fails
    GET /healthz?verbose        a line for each check in any case: `[+]ping ok`, `[-]name failed: reason withheld`
    GET /healthz?exclude=NAME   without this one, and as often as one likes
    GET /healthz/NAME           this one alone; 404 when there is none
    GET /readyz...              the same with the checks of readiness
    GET /metrics                prometheus-client's own application; 404 without metrics
    GET /debug...               see `DebugPage`; 404 without one
    HEAD                        the same without the body
    anything else               405, or 404

It keeps nothing, and can be mounted in a web server of the program's own.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.runtime.observe.debug_application import DebugApplication
from kubectl_runtime.runtime.observe.health_checks import HealthChecks

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = guarded_logger(__name__)

OK, NOT_FOUND, NOT_ALLOWED = "200 OK", "404 Not Found", "405 Method Not Allowed"
FAILED = "500 Internal Server Error"


class Scraped(Protocol):
    """Something with metrics to show: `Metrics`."""

    def application(self) -> WSGIApplication:
        """A WSGI application that answers a GET with the metrics."""


class HealthApplication:
    """Answers `/healthz`, `/readyz`, `/metrics` and `/debug`, as a WSGI application. Safe to use from any thread."""

    def __init__(self, live: HealthChecks, ready: HealthChecks, metrics: Scraped | None = None,
                 debug: DebugApplication | None = None) -> None:
        self._guards = {first: Guard(f"the answer to /{first}", log)
                        for first in ("", "metrics", "debug", "healthz", "readyz")}
        self._checks = {"healthz": live, "readyz": ready}
        self._metrics = None if metrics is None else metrics.application()
        self._debug = debug

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        first = str(environ.get("PATH_INFO", "")).lstrip("/").partition("/")[0]
        guard = self._guards.get(first) or self._guards[""]
        try:
            status, headers, body = self._answer(environ)
            guard.succeeded()
        except BaseException as error:  # noqa: BLE001 - a collector of the program's own, say
            guard.failed(error)
            status, headers, body = _text(FAILED, "internal error\n")
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        first, _, rest = str(environ.get("PATH_INFO", "")).lstrip("/").partition("/")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, headers, body = _text(NOT_ALLOWED, "only GET and HEAD\n")
            return status, [*headers, ("Allow", "GET, HEAD")], body
        if first == "metrics" and not rest and self._metrics is not None:
            return _of(self._metrics, environ)
        if first == "debug" and self._debug is not None and (found := self._debug.answer(rest, environ)) is not None:
            return found
        checks = self._checks.get(first)
        if checks is None:
            return _text(NOT_FOUND, "there are /healthz, /readyz and /metrics here\n")
        query = parse_qs(str(environ.get("QUERY_STRING", "")), keep_blank_values=True)
        return _one(checks, rest) if rest else _all(checks, "verbose" in query, query.get("exclude", []))


def _one(checks: HealthChecks, name: str) -> tuple[str, list[tuple[str, str]], bytes]:
    if name not in checks.names:
        return _text(NOT_FOUND, "there is no such check\n")
    if any(result.reason for result in checks.results([name])):
        return _text(FAILED, f"internal server error: {name} failed: reason withheld\n")
    return _text(OK, "ok")


def _all(checks: HealthChecks, verbose: bool, excluded: list[str]) -> tuple[str, list[tuple[str, str]], bytes]:
    names = checks.names
    results = dict(checks.results([name for name in names if name not in excluded]))
    failed = any(results.values())
    if not failed and not verbose:
        return _text(OK, "ok")
    lines = [f"[+]{name} excluded: ok" if name not in results else
             f"[-]{name} failed: reason withheld" if results[name] else f"[+]{name} ok" for name in names]
    unknown = ", ".join(f'"{name}"' for name in excluded if name not in names)
    lines += [f"warn: some health checks cannot be excluded: no matches for {unknown}"] if unknown else []
    lines.append(f"{checks.endpoint} check {'failed' if failed else 'passed'}\n")
    return _text(FAILED if failed else OK, "\n".join(lines))


def _text(status: str, text: str) -> tuple[str, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")], text.encode()


def _of(application: WSGIApplication, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
    """What another application answers to a GET."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        started[:] = status, headers

    body = b"".join(application({**environ, "REQUEST_METHOD": "GET"}, start_response))
    return started[0], started[1], body
