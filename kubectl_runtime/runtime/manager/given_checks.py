"""`Checks`: what a program adds to the question whether it is ready. `TimedCheck` says when one fails."""
from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.observe.health_checks import TIMEOUT, TimedCheck, answers

MANAGER = "manager"
CONTROLLER = "controller "
STORE = "store "
SERVERS = "servers"
ELECTION, SHARDING = "election", "sharding"
"""How the checks of the manager itself are called, or begin."""


class Checks:
    """Named checks. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, TimedCheck] = {}
        self._asked: list[threading.Thread] = []
        """The threads that are in one at this moment."""

    def add(self, name: str, check: Callable[[], object], timeout: Duration = TIMEOUT) -> None:
        """Add a check. Raises RequestError when the name is taken, is one of the manager's own, or cannot be the last
        part of a path, and for a timeout of 0 seconds or less."""
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
        return thread in self._asked

    def _ask(self, check: Callable[[], object]) -> object:
        thread = threading.current_thread()
        self._asked.append(thread)
        try:
            return check()
        finally:
            self._asked.remove(thread)

    def all(self) -> dict[str, TimedCheck]:
        """Those that were added, by name, in this order."""
        return dict(self._checks)

    def failing(self) -> dict[str, str]:
        """Name and reason of each check that fails, in the order in which they were added. Blocks as they do."""
        return {name: reason for name, reason in answers(self._checks).items() if reason}
