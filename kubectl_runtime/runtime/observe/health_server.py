"""`HealthServer`: `/healthz`, `/readyz`, `/metrics` and `/debug` over HTTP, from a small server of a program's own.

    with HealthServer(":8080", metrics=metrics, debug=DebugPage()) as server:
        server.watch(running)                       # a controller; a Manager does all this by itself
        server.add_check("database", database.ping)

    /healthz   is it alive? `watch` and `add_live_check` add to it. A restart must be able to help: it is what the
               kubelet does when this fails
    /readyz    is it ready? `watch` and `add_check` add to it
    /metrics   see `Metrics`
    /debug     with `debug=DebugPage()`: what the controllers do at this moment. `watch` adds to it

`HealthApplication` decides what is answered, and `Listener` how: it cuts connections that are slow, or that hold the
places of others. There is no encryption and no authentication, as with the kubelet's probes. Nothing secret is shown,
but with `":8080"` everybody who reaches the Pod can read the metrics: a NetworkPolicy says who may.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from kubectl_runtime.core.base.clock import Duration, period_of, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.observe.debug_application import DebugApplication
from kubectl_runtime.runtime.observe.debug_page import DebugPage
from kubectl_runtime.runtime.observe.debug_snapshot import Debugged, Inspected
from kubectl_runtime.runtime.observe.health_application import HealthApplication, Scraped
from kubectl_runtime.runtime.observe.health_checks import (
    TIMEOUT,
    Check,
    HealthChecks,
    OwnCheck,
    TimedCheck,
    Watched,
    store_checks,
)
from kubectl_runtime.runtime.observe.listen_address import ListenAddress
from kubectl_runtime.runtime.observe.listener import Listener

log = guarded_logger(__name__)

CONNECTIONS = 128
"""A kubelet, a scraper or two and a person need five."""
IDLE = 1.0
"""Seconds that requests in progress get at the end: checks are user code and may never return."""

_USE = "it is for health and metrics, and serve= of the Manager (or the HealthServer itself) says another address"


class HealthServer:
    """A small HTTP server for probes and Prometheus: `/healthz`, `/readyz` and, given `metrics`, `/metrics`.

    `address` is `:8080`, `127.0.0.1:0` or a pair. `checks` make `/readyz`, `live_checks` `/healthz`: functions that
    raise, or return False, when something is wrong. It listens in a thread of its own, which ends with the `with`
    block. Safe to use from any thread. A `Manager` brings its own.

    >>> import urllib.request
    >>> with HealthServer("127.0.0.1:0", checks={"cache": lambda: None}) as health:
    ...     urllib.request.urlopen(f"http://127.0.0.1:{health.port}/readyz").status
    200
    """

    def __init__(self, address: str | tuple[str, int], *, metrics: Scraped | None = None,
                 checks: Mapping[str, Check] | Callable[[], Mapping[str, Check]] | None = None,
                 live_checks: Mapping[str, Check] | None = None, debug: DebugPage | None = None,
                 debugged: Debugged | None = None, limit: Duration = 10) -> None:
        """`address` is `":8080"`, `"127.0.0.1:8080"`, `"[::1]:8080"`, or host and port; port 0 is a free one.

        `checks` say whether the program is ready, `live_checks` whether it is alive: functions by name, which return
        False or raise if not. Where checks come and go, `checks` is a function that returns them, and is called
        whenever somebody asks. `metrics`: served at `/metrics`. `debug`: makes a page at `/debug`, and says for whom;
        `debugged`: what that page is about (default: what `watch` was told). `limit`: seconds that a client may take
        for its request and for our answer; the default is the timeout of a scrape in Prometheus.

        Raises RequestError for an address that cannot be read, a limit of 0 seconds or less, a name that is taken or
        has a slash, and a check that cannot be called. Listens only after `start`.
        """
        self._address = ListenAddress.of(address)
        self._limit = period_of("limit", limit)
        self._watched = _Controllers()
        self._live = HealthChecks("healthz", live_checks)
        given, fixed = (checks, None) if callable(checks) else (dict, checks)
        self._ready = HealthChecks("readyz", fixed, lambda: {**self._watched.checks(), **given()})
        if debug is not None and not isinstance(debug, DebugPage):
            raise RequestError(f"debug={debug!r} is not a DebugPage: DebugPage(), or None for no page")
        self.application = HealthApplication(
            self._live, self._ready, metrics,
            None if debug is None else DebugApplication(debug, self._watched if debugged is None else debugged))
        """What it serves, for a web server that the program has already."""
        self._change = threading.Lock()
        self._is_over = False
        """Whether it was started or stopped."""
        self._listener: Listener | None = None

    @property
    def name(self) -> str:
        """What it is called in logs, and its thread: `health server HOST:PORT`."""
        return f"health server {self._address}"

    @property
    def port(self) -> int:
        """The port at which it listens; before `start` the one that was asked for, 0 for a free one."""
        listener = self._listener
        return self._address.port if listener is None else listener.port

    def add_check(self, name: str, check: Check, *, timeout: Duration = TIMEOUT) -> None:
        """Add a check of readiness to `/readyz`; `/readyz/NAME` asks it alone. `check` raises or returns False when
        something is wrong. It is called in a thread of its own and fails when it takes more than `timeout` seconds; it
        is not called again before it has returned. Raises RequestError when the name is taken or has a slash, and for
        a timeout of 0 seconds or less."""
        self._add(self._ready, name, check, timeout)

    def add_live_check(self, name: str, check: Check, *, timeout: Duration = TIMEOUT) -> None:
        """Add a check of liveness to `/healthz`. When it fails, the kubelet restarts the process; so check only what a
        restart repairs. As `add_check`."""
        self._add(self._live, name, check, timeout)

    @staticmethod
    def _add(checks: HealthChecks, name: str, check: Check, timeout: Duration) -> None:
        checks.add(name, TimedCheck(name, check, timeout) if callable(check) else check)

    def watch(self, running: Watched) -> None:
        """Ask a running controller, by its name, whether it is alive and ready, and list each of its stores at
        `/readyz?verbose` as `store pods`. Raises RequestError when the name is taken."""
        name = running.name.replace("/", "-")
        self._ready.add(name, OwnCheck(lambda: running.why_not_ready))
        self._live.add(name, OwnCheck(lambda: running.why_not_alive))
        if isinstance(running, Running):
            self._watched.running.append(running)

    def start(self) -> None:
        """Listen, and return. Raises OSError when the address is taken or not this host's; RequestError the second
        time, also after `stop`."""
        with self._change:
            if self._is_over:
                raise RequestError(f"the {self.name} was started or stopped already: make a new one")
            listener = Listener(self._address.listen(_USE), self.application, self.name, self._limit,
                                connections=CONNECTIONS)
            listener.start()
            self._listener, self._is_over = listener, True
        log.info("%s listens at port %d", self.name, self.port)

    def stop(self, timeout: Duration = 5) -> None:
        """Stop listening, finish the requests in progress, and end. After `timeout` seconds, at most one, it
        breaks them off: a check may never return. Returns at once when it does not run; later calls do nothing. In the
        child of a fork it only closes its copy of the parent's socket."""
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
    """What a page is about without a manager."""

    def __init__(self) -> None:
        self.running: list[Running[Any]] = []

    def controllers(self) -> Sequence[Inspected]:
        return [*self.running]

    def checks(self) -> dict[str, Check]:
        """Of their stores."""
        return store_checks([*self.running])

    def manager(self) -> None:
        """There is none."""
