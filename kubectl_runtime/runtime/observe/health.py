"""`HealthServer`: `/healthz`, `/readyz`, `/metrics` and `/debug` over HTTP, from a small server in the program.

    with HealthServer(":8080", metrics=metrics, debug=DebugPage()) as server:
        server.watch(running)                       # a controller; a Manager has its own server
        server.add_check("database", database.ping)

    /healthz   liveness: `watch` and `add_live_check` add to it. When it fails, the kubelet restarts the container
    /readyz    readiness: `watch` and `add_check` add to it
    /metrics   see `Metrics`
    /debug     the status page, with `debug=DebugPage()`; `watch` adds to it

There is no encryption and no authentication, as usual for the kubelet's probes. The answers contain nothing secret, but
with `":8080"` every client that reaches the Pod can read the metrics: restrict access by a NetworkPolicy.

`HealthApplication` is the WSGI application, with the same answers as Kubernetes' own components. It keeps no state, and
the program can mount it in its own web server.

    GET /healthz                200 "ok"; 500 and a line for each check, if one of them fails
    GET /healthz?verbose        always a line for each check: `[+]ping ok`, `[-]name failed: reason withheld`
    GET /healthz?exclude=NAME   without this check; may be repeated
    GET /healthz/NAME           only this check; 404 if there is no such check
    GET /readyz...              the same with the readiness checks
    GET /metrics                prometheus-client's own application; 404 without metrics
    GET /debug...               see `DebugPage`; 404 without a page
    HEAD                        the same without the body
    a route of the program      the answer of its WSGI application to any method, for this path and below it
    anything else               405, or 404

`Listener` serves the application. It listens at `":8080"` (all addresses of this host, IPv4 and IPv6),
`"127.0.0.1:8080"` (this address; for a host name, its first address), `"[::1]:8080"`, or `":0"` (a free port).
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard, guarded_logger
from kubectl_runtime.core.base.threads import Duration, period_of, seconds
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.observe.debug import DebugApplication, Debugged, DebugPage, Inspected, Traffic
from kubectl_runtime.runtime.observe.health_checks import (
    TIMEOUT,
    Check,
    HealthChecks,
    OwnCheck,
    TimedCheck,
    Watched,
    store_checks,
)
from kubectl_runtime.runtime.observe.listener import ListenAddress, Listener

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = guarded_logger(__name__)

OK, NOT_FOUND, NOT_ALLOWED = "200 OK", "404 Not Found", "405 Method Not Allowed"
FAILED = "500 Internal Server Error"


class Scraped(Protocol):
    """An exporter of metrics: `Metrics`."""

    def application(self) -> WSGIApplication:
        """A WSGI application that answers a GET with the metrics."""


class HealthApplication:
    """Answers `/healthz`, `/readyz`, `/metrics` and `/debug`, as a WSGI application. Safe to use from any thread."""

    def __init__(self, live: HealthChecks, ready: HealthChecks, metrics: Scraped | None = None,
                 debug: DebugApplication | None = None, routes: Mapping[str, WSGIApplication] | None = None) -> None:
        self._guards = {first: Guard(f"the answer to /{first}", log)
                        for first in ("", "metrics", "debug", "healthz", "readyz")}
        self._checks = {"healthz": live, "readyz": ready}
        self._metrics = None if metrics is None else metrics.application()
        self._debug = debug
        self._routes = {} if routes is None else routes

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        first = str(environ.get("PATH_INFO", "")).lstrip("/").partition("/")[0]
        guard = self._guards.get(first) or self._guards[""]
        try:
            status, headers, body = self._answer(environ)
            guard.succeeded()
        except BaseException as error:  # noqa: BLE001 - for example in a collector of the program
            guard.failed(error)
            status, headers, body = _text(FAILED, "internal error\n")
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        path = str(environ.get("PATH_INFO", ""))
        for route in sorted(self._routes, key=len, reverse=True):
            if path == route or path.startswith(f"{route}/"):
                return _of(self._routes[route], environ)
        first, _, rest = path.lstrip("/").partition("/")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, headers, body = _text(NOT_ALLOWED, "only GET and HEAD\n")
            return status, [*headers, ("Allow", "GET, HEAD")], body
        if first == "metrics" and not rest and self._metrics is not None:
            return _of(self._metrics, {**environ, "REQUEST_METHOD": "GET"})
        if first == "debug" and self._debug is not None and (found := self._debug.answer(rest, environ)) is not None:
            return found
        checks = self._checks.get(first)
        if checks is None:
            known = ["/healthz", "/readyz", *(["/metrics"] if self._metrics is not None else []),
                     *(["/debug"] if self._debug is not None else []), *self._routes]
            return _text(NOT_FOUND, f"there are {', '.join(known[:-1])} and {known[-1]} here\n")
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
    """The answer of another application."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        started[:] = status, headers

    found = application(environ, start_response)
    try:
        body = b"".join(found)
    finally:
        if (close := getattr(found, "close", None)) is not None:
            close()
    return started[0], started[1], body


def checked_route(path: str, application: WSGIApplication) -> str:
    """Returns `path` if it can be the path of a route of the program. Raises RequestError for other paths."""
    if not (isinstance(path, str) and path.startswith("/") and path != "/" and not path.endswith("/")):
        raise RequestError(f"{path!r} is not the path of a route: it must begin with a slash, and not end with one")
    if (first := path.split("/")[1]) in ("healthz", "readyz", "metrics", "debug"):
        raise RequestError(f"{path} is below /{first}, which this server already serves: choose another path")
    if not callable(application):
        raise RequestError(f"{path}: a route must be a WSGI application, not {type(application).__name__}")
    return path


CONNECTIONS = 128
"""The maximum number of connections. A kubelet, one or two scrapers and a person need five."""
IDLE = 1.0
"""Seconds that `stop` waits for requests in progress: checks are user code and may never return."""

_USE = "this address is for health and metrics; set another one by serve= of the Manager, or in HealthServer"


class HealthServer:
    """A small HTTP server for probes and Prometheus: `/healthz`, `/readyz` and, given `metrics`, `/metrics`.

    `address` is `:8080`, `127.0.0.1:0` or a pair. `checks` are for `/readyz`, `live_checks` for `/healthz`: functions
    that raise, or return False, when something is wrong. The server listens in its own thread, which ends with the
    `with` block. Safe to use from any thread. A `Manager` has its own server.

    >>> import urllib.request
    >>> with HealthServer("127.0.0.1:0", checks={"cache": lambda: None}) as health:
    ...     urllib.request.urlopen(f"http://127.0.0.1:{health.port}/readyz").status
    200
    """

    def __init__(self, address: str | tuple[str, int], *, metrics: Scraped | None = None,
                 checks: Mapping[str, Check] | Callable[[], Mapping[str, Check]] | None = None,
                 live_checks: Mapping[str, Check] | None = None, debug: DebugPage | None = None,
                 debugged: Debugged | None = None, routes: Mapping[str, WSGIApplication] | None = None,
                 traffic: Traffic | None = None, limit: Duration = 10) -> None:
        """`address` is `":8080"`, `"127.0.0.1:8080"`, `"[::1]:8080"`, or host and port; port 0 means a free port.

        `checks` test whether the program is ready, `live_checks` whether it is alive. Both are functions by name; a
        check fails if it returns False or raises. If the checks change over time, pass as `checks` a function that
        returns the current checks; it is called for each request. `metrics`: served at `/metrics`. `debug`: serves a
        status page at `/debug`, and configures which clients may see it. `debugged`: the contents of that page
        (default: the controllers that `watch` added). `routes`: WSGI applications of the program by path, for requests
        to the path and below it; their PATH_INFO is the whole path. `traffic`: the request counts of the page. `limit`:
        seconds in which a request must arrive, and again for the answer; the default is Prometheus' scrape timeout.

        Raises RequestError for an invalid address, a limit of 0 seconds or less, a name that is taken or has a slash,
        and a check that is not callable. Listens only after `start`.
        """
        self._address = ListenAddress.of(address)
        self._limit = period_of("limit", limit)
        for path, application in (routes or {}).items():
            checked_route(path, application)
        self._watched = _Controllers()
        self._live = HealthChecks("healthz", live_checks)
        given, fixed = (checks, None) if callable(checks) else (dict, checks)
        self._ready = HealthChecks("readyz", fixed, lambda: {**self._watched.checks(), **given()})
        if debug is not None and not isinstance(debug, DebugPage):
            raise RequestError(f"debug={debug!r} is not a DebugPage: pass DebugPage(), or None for no page")
        self.application = HealthApplication(
            self._live, self._ready, metrics,
            None if debug is None else DebugApplication(debug, self._watched if debugged is None else debugged,
                                                             traffic=traffic), routes)
        """The WSGI application, for the program's own web server."""
        self._change = threading.Lock()
        self._is_over = False
        """Whether the server was started or stopped."""
        self._listener: Listener | None = None
        self._owns: Callable[[threading.Thread], bool] = lambda _: False
        """The listener's `owns`, also while the listener ends."""

    @property
    def name(self) -> str:
        """The server's name in logs and of its thread: `health server HOST:PORT`."""
        return f"health server {self._address}"

    @property
    def port(self) -> int:
        """The port at which the server listens. Before `start`: the requested port, which may be 0."""
        listener = self._listener
        return self._address.port if listener is None else listener.port

    def add_check(self, name: str, check: Check, *, timeout: Duration = TIMEOUT) -> None:
        """Add a readiness check to `/readyz`; `/readyz/NAME` runs only this check. `check` raises or returns False when
        something is wrong. It is called in its own thread, and fails if it takes longer than `timeout` seconds; it is
        not called again before it has returned. Raises RequestError when the name is taken or has a slash, and for a
        timeout of 0 seconds or less."""
        self._add(self._ready, name, check, timeout)

    def add_live_check(self, name: str, check: Check, *, timeout: Duration = TIMEOUT) -> None:
        """Add a liveness check to `/healthz`. When it fails, the kubelet restarts the container; so check only for
        failures that a restart repairs. Arguments and errors are those of `add_check`."""
        self._add(self._live, name, check, timeout)

    @staticmethod
    def _add(checks: HealthChecks, name: str, check: Check, timeout: Duration) -> None:
        checks.add(name, TimedCheck(name, check, timeout) if callable(check) else check)

    def watch(self, running: Watched) -> None:
        """Add checks of whether a running controller is alive and ready, under the controller's name. `/readyz?verbose`
        also lists each of the controller's stores, for example as `store pods`. Raises RequestError when the name is
        taken."""
        name = running.name.replace("/", "-")
        self._ready.add(name, OwnCheck(lambda: running.why_not_ready))
        self._live.add(name, OwnCheck(lambda: running.why_not_alive))
        if isinstance(running, Running):
            self._watched.running.append(running)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` serves a connection, so that it cannot wait for the server's end."""
        return self._owns(thread)

    def start(self) -> None:
        """Begin to listen, and return. Raises OSError when the address is in use or does not belong to this host.
        Raises RequestError if the server was started or stopped before."""
        with self._change:
            if self._is_over:
                raise RequestError(f"the {self.name} was already started or stopped: make a new one")
            listener = Listener(self._address.listen(_USE), self.application, self.name, self._limit,
                                connections=CONNECTIONS)
            listener.start()
            self._listener, self._is_over, self._owns = listener, True, listener.owns
        log.info("%s listens at port %d", self.name, self.port)

    def stop(self, timeout: Duration = 5) -> None:
        """Stop listening, finish the requests in progress, and end. Requests that last longer than `timeout` seconds
        (1 s at most) are aborted, because a check may never return. Returns at once if the server does not run; later
        calls do nothing. In a forked child process, only the child's copy of the parent's socket is closed."""
        with self._change:
            listener, self._listener, self._is_over = self._listener, None, True
        if listener is not None:
            listener.stop(min(IDLE, seconds(timeout)))
            log.info("%s has stopped", self.name)

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


class _Controllers:
    """The contents of the status page without a manager."""

    def __init__(self) -> None:
        self.running: list[Running[Any]] = []

    def controllers(self) -> Sequence[Inspected]:
        return [*self.running]

    def checks(self) -> dict[str, Check]:
        """The checks of the controllers' stores."""
        return store_checks([*self.running])

    def manager(self) -> None:
        """Returns None, because there is no manager."""
