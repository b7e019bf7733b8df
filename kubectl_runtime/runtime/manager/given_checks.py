"""`Checks`: what a program adds to the question whether it is ready.

    the function returns False      failing          it raises     failing, with the exception's text as the reason
    it returns anything else        passing
"""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guarded_log import pass_interrupt
from kubectl_runtime.runtime.usercode import described

MANAGER = "manager"
CONTROLLER = "controller "
STORE = "store "
"""How the checks of the manager itself are called, or begin."""


class Checks:
    """Named checks. Safe to use from any thread; they run outside its lock, in the thread that asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, Callable[[], object]] = {}

    def add(self, name: str, check: Callable[[], object]) -> None:
        """Add a check. Raises RequestError when the name is taken, is one of the manager's own, or cannot be the last
        part of a path."""
        if not name or "/" in name:
            raise RequestError(f"a check cannot be called {name!r}: the name is the last part of its path")
        if name in ("ping", MANAGER) or name.startswith((CONTROLLER, STORE)):
            raise RequestError(f"a check cannot be called {name!r}: the manager's own checks have such names; name it "
                               "after what it checks, such as 'database'")
        with self._lock:
            if name in self._checks:
                raise RequestError(f"there is a check called {name} already")
            self._checks = {**self._checks, name: check}

    def all(self) -> dict[str, Callable[[], object]]:
        """Those that were added, by name, in this order."""
        return dict(self._checks)

    def failing(self) -> dict[str, str]:
        """Name and reason of each check that fails, in the order in which they were added."""
        found = {name: _reason(check) for name, check in self._checks.items()}
        return {name: reason for name, reason in found.items() if reason}


def _reason(check: Callable[[], object]) -> str:
    try:
        return "it says no" if check() is False else ""
    except BaseException as error:  # noqa: BLE001 - whatever it is, the check fails
        pass_interrupt(error)
        return described(error)
