"""`HealthChecks`: named checks and their current answers.

A check fails if it returns False, raises, or does not answer in time; with any other return value it passes. A check
that may hang, such as any check of the user's program, runs in its own thread (`TimedCheck`). A check that does not
block, such as most checks of the library, runs in the thread of the request (`OwnCheck`). Each change of an answer is
logged with the reason. Clients see which check fails, but not why.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import (
    Home,
    check_callback,
    described,
    guarded_logger,
    not_awaitable,
    pass_interrupt,
)
from kubectl_runtime.core.base.threads import Duration, Thread, period_of

log = guarded_logger(__name__)

Check = Callable[[], object]
"""A function that returns False or raises if something is wrong. It is not called again before it has returned."""

TIMEOUT = 2.0
"""Seconds in which a check must answer, unless it was added with another timeout."""


class Watched(Protocol):
    """A running controller, or another part that reports its state."""

    @property
    def name(self) -> str:
        """The name for the checks of this part."""

    @property
    def why_not_ready(self) -> str:
        """Why this part is not ready; empty when it is ready."""

    @property
    def why_not_alive(self) -> str:
        """The failure that only a restart of the process can repair; empty if there is none."""


class ReadsStores(Protocol):
    """A running controller that reads stores."""

    @property
    def why_stores_not_ready(self) -> dict[str, str]:
        """Why each store is not ready, by the store's contents; empty text for a store that is ready. Does not
        block."""


class CheckResult(NamedTuple):
    """The answer of one check."""

    name: str
    reason: str
    """Why the check fails; empty when it passes."""


class Unhealthy(KubeError):
    """Raised by a check that the library runs as a `TimedCheck`, because the check may block. The error's text is the
    reason, shown without a class name."""


class OwnCheck:
    """A check that the library defines. Its function returns why the check fails, and must not block."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    def __call__(self) -> str:
        """Why the check fails; empty when it passes."""
        return self._why()


class TimedCheck:
    """A check whose function may hang, such as any check of the user's program. The function is called in its own
    thread, one call at a time. Thread-safe."""

    def __init__(self, name: str, check: Check, timeout: Duration = TIMEOUT) -> None:
        """Raises RequestError for a timeout of 0 seconds or less, and for a check that takes arguments. Also raises
        RequestError for an async function and a generator, which would never fail."""
        check_callback(f"the check {name}", check)
        self.check = check
        self._name, self._timeout = name, period_of(f"check {name}: timeout", timeout)
        self._change = threading.Condition()
        self._calls = 0
        self._began: float | None = None
        """When the call in progress began; None when there is none."""
        self._reason = ""

    def begin(self) -> int:
        """Call the check, unless a call is in progress. Returns the call's number, for `reason`. Does not block."""
        with self._change:
            if self._began is None:
                self._began, self._calls = time.monotonic(), self._calls + 1
                try:
                    Thread(target=self._call, name=f"check {self._name}", daemon=True).start()
                except RuntimeError as error:  # there are no more threads
                    self._began, self._reason = None, described(error)
            return self._calls

    def reason(self, call: int) -> str:
        """Why the check fails; empty when it passes. Blocks until call number `call` has ended or its time is over."""
        with self._change:
            began = self._began
            if began is not None and self._calls == call:
                left = began + self._timeout - time.monotonic()
                if not self._change.wait_for(lambda: self._began is None or self._calls != call, max(0.0, left)):
                    return f"it has not answered within {self._timeout:g} s; it is not called again before it answers"
            return self._reason

    def __call__(self) -> str:
        """Call the check. Returns why the check fails; empty when it passes. Blocks like `reason`."""
        return self.reason(self.begin())

    def _call(self) -> None:
        home = Home()
        try:
            reason = "it returned False" if not_awaitable(self.check(), self.check) is False else ""
            home.check(f"check {self._name}")
        except Unhealthy as error:
            reason = str(error)
        except BaseException as error:  # noqa: BLE001 - any exception makes the check fail
            home.check(f"check {self._name}", error)
            pass_interrupt(error)
            reason = described(error)
        with self._change:
            self._reason, self._began = reason, None
            self._change.notify_all()


class _Asked:
    def __init__(self, name: str, check: Check) -> None:
        self.check = check if isinstance(check, OwnCheck | TimedCheck) else TimedCheck(name, check)
        self.reason = ""

    def changed(self, check: Check) -> None:
        """Call this function from now on, in place of the earlier one."""
        if isinstance(check, OwnCheck | TimedCheck):
            self.check = check
        elif isinstance(self.check, TimedCheck):
            self.check.check = check


def store_checks(controllers: Iterable[ReadsStores]) -> dict[str, Check]:
    """A check for each store that these controllers read, such as `store pods`. If several controllers read a store,
    its check fails when the store is not ready for one of them."""
    reasons: dict[str, list[str]] = {}
    for controller in controllers:
        for name, reason in controller.why_stores_not_ready.items():
            found = reasons.setdefault(f"store {name}".replace("/", "-"), [])
            if reason and reason not in found:
                found.append(reason)
    return {name: OwnCheck(partial("; ".join, found)) for name, found in reasons.items()}


class HealthChecks:
    """The checks of one endpoint, including `ping`. Safe to use from any thread."""

    def __init__(self, endpoint: str, checks: Mapping[str, Check] | None = None,
                 more: Callable[[], Mapping[str, Check]] | None = None) -> None:
        """`endpoint`: the endpoint's name in logs. `more` is called for each request and returns further checks. Raises
        RequestError like `add`."""
        self.endpoint = endpoint
        self._change = threading.Lock()
        self._give_more = more
        self._more: dict[str, _Asked] = {}
        self._checks: dict[str, _Asked] = {}
        self.add("ping", OwnCheck(lambda: ""))
        for name, check in (checks or {}).items():
            self.add(name, check)

    def add(self, name: str, check: Check) -> None:
        """Add a check: an OwnCheck, a TimedCheck or a function, which becomes a TimedCheck. Raises RequestError when
        the name is taken or cannot be the last part of a path, or when the check is not callable."""
        if not name or "/" in name or not callable(check):
            raise RequestError(f"a check needs a name without a slash, and a function: not {name!r} and {check!r}")
        with self._change:
            if name in self._checks:
                raise RequestError(f"{self.endpoint} already has a check called {name}")
            self._checks = {**self._checks, name: _Asked(name, check)}

    @property
    def names(self) -> list[str]:
        """The names of all current checks, in the order in which they were added."""
        return list(self._current())

    def results(self, names: list[str] | None = None) -> list[CheckResult]:
        """Run the checks `names` (None: all checks) at the same time. Blocks until each has answered or its time is
        over. Returns the answers in the order in which the checks were added, without unknown names."""
        asked = self._current()
        wanted = {name: asked[name] for name in (asked if names is None else names) if name in asked}
        reasons = answers({name: one.check for name, one in wanted.items()})
        return [CheckResult(name, self._noted(name, one, reasons[name])) for name, one in wanted.items()]

    def _current(self) -> dict[str, _Asked]:
        if self._give_more is None:
            return self._checks
        given = self._give_more()
        with self._change:
            self._more = {name: self._more.get(name) or _Asked(name, check) for name, check in given.items()}
            for name, check in given.items():
                self._more[name].changed(check)
            return {**self._checks, **{name: one for name, one in self._more.items() if name not in self._checks}}

    def _noted(self, name: str, asked: _Asked, reason: str) -> str:
        with self._change:
            before, asked.reason = asked.reason, reason
        if reason and not before:
            log.warning("%s: check %s fails: %s", self.endpoint, name, reason)
        elif before and not reason:
            log.info("%s: check %s passes again", self.endpoint, name)
        return reason


def answers(checks: Mapping[str, OwnCheck | TimedCheck]) -> dict[str, str]:
    """Run these checks at the same time. Returns why each check fails; empty for a check that passes. Blocks until all
    have answered."""
    calls = {name: check.begin() for name, check in checks.items() if isinstance(check, TimedCheck)}
    return {name: check.reason(calls[name]) if isinstance(check, TimedCheck) else check()
            for name, check in checks.items()}
