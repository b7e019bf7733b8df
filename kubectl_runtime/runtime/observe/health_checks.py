"""`HealthChecks`: named questions, and how they are answered at this moment.

    the function returns False      failing          it raises     failing, with the exception's text as the reason
    it returns anything else        passing          it is asked already, and has not answered within a second: failing

Reasons are for the log, where each change of a check's answer is one line: who asks over the network learns only which
check fails.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.runtime.usercode import described

log = guarded_logger(__name__)

Check = Callable[[], object]
"""See the module. Called in the thread of a request, by one at a time."""

PATIENCE = 1.0
"""Seconds that a request waits for another one that asks the same check: one that never returns holds one thread."""


class Watched(Protocol):
    """A running controller, or anything else that can say how it is."""

    @property
    def name(self) -> str:
        """What it is called as a check."""

    @property
    def why_not_ready(self) -> str:
        """Why it is not ready; empty when it is."""

    @property
    def why_not_alive(self) -> str:
        """What only a new process can heal; empty when all is well."""


class ReadsStores(Protocol):
    """A running controller, which waits for its stores and then lives on them."""

    @property
    def why_stores_not_ready(self) -> dict[str, str]:
        """Each of its stores, by what it holds: why it is not ready, empty when it is. Does not block."""


class CheckResult(NamedTuple):
    """How one check answered."""

    name: str
    reason: str
    """Why it fails; empty when it passes."""


class Unhealthy(KubeError):
    """Raised by a check of the library itself: its text is the reason, without the name of a class."""


class _Asked:
    def __init__(self, check: Check) -> None:
        self.check = check
        self.reason = ""
        self.turn = threading.Semaphore()
        """One asks at a time."""


def ping() -> None:
    """Pass: there is somebody who answers."""


def expect_none(reason: str) -> None:
    """Fail for `reason`, by raising Unhealthy; an empty one passes."""
    if reason:
        raise Unhealthy(reason)


def store_checks(controllers: Iterable[ReadsStores]) -> dict[str, Check]:
    """A check for each store that these controllers read, such as `store pods`. One that several read fails when it
    does for one of them."""
    reasons: dict[str, list[str]] = {}
    for controller in controllers:
        for name, reason in controller.why_stores_not_ready.items():
            found = reasons.setdefault(f"store {name}".replace("/", "-"), [])
            if reason and reason not in found:
                found.append(reason)
    return {name: partial(expect_none, "; ".join(found)) for name, found in reasons.items()}


class HealthChecks:
    """The checks of one endpoint, `ping` among them. Safe to use from any thread."""

    def __init__(self, endpoint: str, checks: Mapping[str, Check] | None = None,
                 more: Callable[[], Mapping[str, Check]] | None = None) -> None:
        """`endpoint` is its name in logs; `more` gives the checks that come and go, and is called whenever somebody
        asks. Raises RequestError as `add` does."""
        self.endpoint = endpoint
        self._change = threading.Lock()
        self._give_more = more
        self._more: dict[str, _Asked] = {}
        self._checks: dict[str, _Asked] = {}
        for name, check in {"ping": ping, **(checks or {})}.items():
            self.add(name, check)

    def add(self, name: str, check: Check) -> None:
        """Add a check. Raises RequestError when the name is taken or cannot be the last part of a path, or the check
        cannot be called."""
        if not name or "/" in name or not callable(check):
            raise RequestError(f"a check is a function, under a name without a slash, not {name!r}: {check!r}")
        with self._change:
            if name in self._checks:
                raise RequestError(f"{self.endpoint} has a check called {name} already")
            self._checks = {**self._checks, name: _Asked(check)}

    @property
    def names(self) -> list[str]:
        """Of all checks there are at this moment, in the order in which they were added."""
        return list(self._current())

    def results(self, names: list[str] | None = None) -> list[CheckResult]:
        """How these checks, or all, answer now, in the order in which they were added. Blocks as they do. Names that
        are gone meanwhile are left out."""
        asked = self._current()
        return [CheckResult(name, self._ask(name, asked[name]))
                for name in (asked if names is None else names) if name in asked]

    def _current(self) -> dict[str, _Asked]:
        if self._give_more is None:
            return self._checks
        given = self._give_more()
        with self._change:
            self._more = {name: self._more.get(name) or _Asked(check) for name, check in given.items()}
            for name, check in given.items():
                self._more[name].check = check
            return {**self._checks, **{name: one for name, one in self._more.items() if name not in self._checks}}

    def _ask(self, name: str, asked: _Asked) -> str:
        if not asked.turn.acquire(timeout=PATIENCE):
            return "it was asked before, and has not answered yet"
        try:
            before, asked.reason = asked.reason, _reason(asked.check)
            reason = asked.reason
        finally:
            asked.turn.release()
        if reason and not before:
            log.warning("%s: check %s fails: %s", self.endpoint, name, reason)
        elif before and not reason:
            log.info("%s: check %s passes again", self.endpoint, name)
        return reason


def _reason(check: Check) -> str:
    try:
        return "it returned False" if check() is False else ""
    except Unhealthy as error:
        return str(error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the check fails
        pass_interrupt(error)
        return described(error)
