"""A manager's servers, and the readiness checks that a program adds to the manager.

Servers start before all members and stop after them, so that probes are answered while stores fill, while the process
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
"""The minimum number of seconds for each server's stop, for the release of the Lease, and for giving up the shards.
They apply even if the grace period is over."""


class Server(Protocol):
    """A server that listens while a manager runs."""

    @property
    def name(self) -> str:
        """The server's name in logs and readiness checks."""

    def start(self) -> None:
        """Listen in threads of its own, log the address, and return. If it raises, for example because the port is
        taken, the manager's start fails."""

    def stop(self, timeout: float) -> None:
        """Stop listening, and block until the server's threads have ended, for at most `timeout` seconds. An exception
        is logged. The manager waits for this call one second longer than `timeout` at most."""


def expect_ready(servers: Iterable[Any]) -> None:
    """Raise Unhealthy with the reasons of all servers that are not ready. Blocks as their `why_not_ready` does."""
    reasons = [reason for server in servers if (reason := getattr(server, "why_not_ready", ""))]
    if reasons:
        raise Unhealthy("; ".join(reasons))


class ServerGroup:
    """Starts servers in order, and stops them in reverse order. Only one thread at a time may use it."""

    def __init__(self, shutdown_log: ShutdownLog) -> None:
        self._started: list[Server] = []
        self._log = shutdown_log

    def start(self, servers: Iterable[Server]) -> None:
        """Start each server. If a server raises, stop the servers started before it and raise that error."""
        for server in servers:
            try:
                server.start()
            except BaseException:
                self.stop(lambda: 0.0)
                raise
            self._started.append(server)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to a server; the server's own `owns` decides. Such a thread must not wait for
        the server's end."""
        found = [getattr(server, "owns", None) for server in list(self._started)]
        return any(owns(thread) for owns in found if owns is not None)

    def stop(self, time_left: Callable[[], float]) -> None:
        """Stop each server within the time that is left; each server gets at least `LEAST_SECONDS` seconds."""
        while self._started:
            server = self._started[-1]
            timeout = max(LEAST_SECONDS, time_left())
            # The server may be user code that ignores `timeout`, so it is stopped in a thread that is joined with a
            # timeout.
            thread = Thread(target=partial(self._stop, server, timeout), name=f"end of {server.name}", daemon=True)
            try:
                thread.start()
                thread.join(timeout + LEAST_SECONDS)
            except RuntimeError:  # no thread can be started, for example at the end of the interpreter
                self._stop(server, timeout)
            self._started.pop()  # only now, since `owns` must know the server's threads until here
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
    """Return the server of `Manager(serve=...)`. It serves `/healthz`, `/readyz`, `/metrics` if `metrics` is not None,
    `/debug` if `debug` is not None, and the program's own `routes`. `ready_checks` returns the current checks of
    `/readyz`. `why_not_alive` returns the failure that only a restart of the process can repair. Neither function
    blocks.

    The manager calls this function once, before it starts the server. Only this module knows both the manager and its
    server.
    """
    traffic = None if debug is None else Traffic(client.clock)
    if traffic is not None:
        observe_too(client.observer, traffic)
    return HealthServer((address.host, address.port), metrics=metrics, debug=debug, debugged=debugged, routes=routes,
                        traffic=traffic, checks=ready_checks, live_checks={"manager": OwnCheck(why_not_alive)})


def metrics_of(client: Client) -> Scraped:
    """Return the Metrics that observe a client. If no Metrics observe it, let `Metrics.shared()` observe it."""
    from kubectl_runtime.runtime.observe.metrics import (  # needs prometheus-client, so it is imported late
        Metrics,
        own_registry,
    )

    for part in parts_of(client.observer):
        if isinstance(part, Metrics):
            return part
    # a simulated clock needs Metrics of its own, so that its times do not mix with real times
    made = Metrics.shared() if client.clock is SYSTEM_CLOCK else Metrics(own_registry(), clock=client.clock)
    observe_too(client.observer, made)
    return made


MANAGER = "manager"
CONTROLLER = "controller "
STORE = "store "
SERVERS = "servers"
ELECTION, SHARDING = "election", "sharding"
"""The names, or prefixes of names, of the manager's own checks."""


class Checks:
    """The checks that a program added, by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, TimedCheck] = {}
        self._asking: list[threading.Thread] = []
        """The threads that are running a check now."""

    def add(self, name: str, check: Callable[[], object], timeout: Duration = TIMEOUT) -> None:
        """Add a check. Raises RequestError if the name is taken, is reserved for the manager's own checks, or cannot be
        the last part of a path, and for a timeout of 0 seconds or less."""
        check_callback(f"the check {name}", check)
        if not name or "/" in name:
            raise RequestError(f"a check cannot be called {name!r}: it must not be empty or contain a slash")
        if name in ("ping", MANAGER, SERVERS, ELECTION, SHARDING) or name.startswith((CONTROLLER, STORE)):
            raise RequestError(f"a check cannot be called {name!r}: the manager's own checks have such names; name it "
                               "after what it checks, such as 'database'")
        with self._lock:
            if name in self._checks:
                raise RequestError(f"there is a check called {name} already")
            self._checks = {**self._checks, name: TimedCheck(name, partial(self._ask, check), timeout)}

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is running one of these checks. Takes no lock."""
        return thread in self._asking

    def _ask(self, check: Callable[[], object]) -> object:
        thread = threading.current_thread()
        self._asking.append(thread)
        try:
            return check()
        finally:
            self._asking.remove(thread)

    def all(self) -> dict[str, TimedCheck]:
        """The added checks by name, in the order of `add`."""
        return dict(self._checks)

    def failing(self) -> dict[str, str]:
        """The failing checks' names, each with the reason, in the order of `add`. Blocks as the checks do."""
        return {name: reason for name, reason in answers(self._checks).items() if reason}
