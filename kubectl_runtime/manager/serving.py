"""The servers of a manager, and the checks that a program adds to its readiness.

Servers start before everything else and stop last, so that probes are answered while stores fill, while the process
stands by, and while it drains.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_callback, described, guarded_logger
from kubectl_runtime.core.base.observer import observe_too, parts_of
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Duration, Thread
from kubectl_runtime.runtime.lifecycle.lifecycle import ShutdownLog, stack_of
from kubectl_runtime.runtime.observe.debug import Debugged, DebugPage, Traffic
from kubectl_runtime.runtime.observe.health import HealthServer, Scraped
from kubectl_runtime.runtime.observe.health_checks import TIMEOUT, Check, OwnCheck, TimedCheck, Unhealthy, answers
from kubectl_runtime.runtime.observe.listener import ListenAddress

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = guarded_logger(__name__)

LEAST_SECONDS = 1.0
"""Seconds that each server and Lease gets to stop at least, even if the grace period is used up."""


class Server(Protocol):
    """A server that listens while a manager runs."""

    @property
    def name(self) -> str:
        """Its name in logs and readiness checks."""

    def start(self) -> None:
        """Listen in threads of its own, log the address, and return. An exception (for example, the port is taken) ends
        the manager's start."""

    def stop(self, timeout: float) -> None:
        """Stop listening; blocks until its threads have ended, for at most `timeout` seconds. An exception is logged.
        The manager waits at most one second longer."""


def expect_ready(servers: Iterable[Any]) -> None:
    """Raise Unhealthy with the reasons of all servers that are not ready. Blocks as their `why_not_ready` does."""
    reasons = [reason for server in servers if (reason := getattr(server, "why_not_ready", ""))]
    if reasons:
        raise Unhealthy("; ".join(reasons))


class ServerGroup:
    """Starts servers in order, and stops them in reverse order. For one thread at a time."""

    def __init__(self, shutdown_log: ShutdownLog) -> None:
        self._started: list[Server] = []
        self._log = shutdown_log

    def start(self, servers: Iterable[Server]) -> None:
        """Start each server. If a server raises, stop the servers before it and raise its error."""
        for server in servers:
            try:
                server.start()
            except BaseException:
                self.stop(lambda: 0.0)
                raise
            self._started.append(server)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to a server, as the server's own `owns` decides. Such a thread cannot wait for the
        server's end."""
        found = [getattr(server, "owns", None) for server in list(self._started)]
        return any(owns(thread) for owns in found if owns is not None)

    def stop(self, time_left: Callable[[], float]) -> None:
        """Stop each server within the time that is left, but at least `LEAST_SECONDS` seconds."""
        while self._started:
            server = self._started[-1]
            timeout = max(LEAST_SECONDS, time_left())
            # The server may be user code; only this thread bounds its time.
            thread = Thread(target=partial(self._stop, server, timeout), name=f"end of {server.name}", daemon=True)
            try:
                thread.start()
                thread.join(timeout + LEAST_SECONDS)
            except RuntimeError:  # the interpreter ends, or there are no more threads
                self._stop(server, timeout)
            self._started.pop()  # not earlier: `owns` must know its threads until here
            if thread.is_alive():
                log.error("manager: %s does not stop; its stack:\n%s", server.name, stack_of(thread.ident))

    def _stop(self, server: Server, timeout: float) -> None:
        with self._log.collecting():
            try:
                server.stop(timeout)
            except BaseException as error:
                log.error("manager: %s did not stop well: %s", server.name, described(error), exc_info=error)


def server_for(address: ListenAddress, ready_checks: Callable[[], Mapping[str, Check]],
               why_not_alive: Callable[[], str], metrics: Scraped | None, debug: DebugPage | None,
               debugged: Debugged, routes: Mapping[str, WSGIApplication], client: Client) -> HealthServer:
    """The server of `Manager(serve=...)`: `/healthz`, `/readyz`, `/metrics` with `metrics`, `/debug` as `debug` says,
    and the program's own `routes`. `ready_checks` returns the current checks of `/readyz`; `why_not_alive` returns what
    only a restart of the process can repair; neither blocks.

    The manager calls this function once, before it starts the server. Only this module knows both the manager and its
    server.
    """
    traffic = None if debug is None else Traffic(client.clock)
    if traffic is not None:
        observe_too(client.observer, traffic)
    return HealthServer((address.host, address.port), metrics=metrics, debug=debug, debugged=debugged, routes=routes,
                        traffic=traffic, checks=ready_checks, live_checks={"manager": OwnCheck(why_not_alive)})


def metrics_of(client: Client) -> Scraped:
    """The Metrics that observe a client; if there are none, the shared Metrics, which then observe it."""
    from kubectl_runtime.runtime.observe.metrics import (  # needs prometheus-client, only when metrics are served
        Metrics,
        own_registry,
    )

    for part in parts_of(client.observer):
        if isinstance(part, Metrics):
            return part
    # the times of a simulated clock must not mix with those of other clients
    made = Metrics.shared() if client.clock is SYSTEM_CLOCK else Metrics(own_registry(), clock=client.clock)
    observe_too(client.observer, made)
    return made


MANAGER = "manager"
CONTROLLER = "controller "
STORE = "store "
SERVERS = "servers"
ELECTION, SHARDING = "election", "sharding"
"""The names of the manager's own checks, or their prefixes."""


class Checks:
    """The checks that a program added, by name. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, TimedCheck] = {}
        self._asking: list[threading.Thread] = []
        """The threads that are in a check now."""

    def add(self, name: str, check: Callable[[], object], timeout: Duration = TIMEOUT) -> None:
        """Add a check. Raises RequestError when the name is taken, belongs to the manager, or cannot be the last part
        of a path, and for a timeout of 0 seconds or less."""
        check_callback(f"the check {name}", check)
        if not name or "/" in name:
            raise RequestError(f"a check cannot be called {name!r}: the name is the last part of its path")
        if name in ("ping", MANAGER, SERVERS, ELECTION, SHARDING) or name.startswith((CONTROLLER, STORE)):
            raise RequestError(f"a check cannot be called {name!r}: the manager's own checks have such names; name it "
                               "after what it checks, such as 'database'")
        with self._lock:
            if name in self._checks:
                raise RequestError(f"there is a check called {name} already")
            self._checks = {**self._checks, name: TimedCheck(name, partial(self._ask, check), timeout)}

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is in one of these checks. Takes no lock."""
        return thread in self._asking

    def _ask(self, check: Callable[[], object]) -> object:
        thread = threading.current_thread()
        self._asking.append(thread)
        try:
            return check()
        finally:
            self._asking.remove(thread)

    def all(self) -> dict[str, TimedCheck]:
        """The added checks by name, in order."""
        return dict(self._checks)

    def failing(self) -> dict[str, str]:
        """Name and reason of each failing check, in the order of `add`. Blocks as the checks do."""
        return {name: reason for name, reason in answers(self._checks).items() if reason}
