"""`SyncGate`: nothing is reconciled before every store of a controller is complete.

    arrived(watch)   the last store opens the gate, once
    check()          while something is missing: every 30 s a warning names it and its error; after `timeout` raises

A reconciler that runs on half a store sees children missing that exist, and makes them again.

`with_gone`: what runs for a key without an object in the store, with `on_gone`. It is a run like any other: never
beside another of the same key, with a `Context`, logged and tried again with backoff when it raises. It comes when a
deletion is seen, and when anything else asks for an object that is not there. No controller sees a deletion that
happens while none runs: what must not be missed needs a finalizer.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Head, Record
from kubectl_runtime.runtime.controller.plan import GoneFunction
from kubectl_runtime.runtime.queue.runs import Execute
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context, Environment
from kubectl_runtime.runtime.store.store import Store

WARN_EVERY = 30.0
"""Seconds between two warnings about what is missing."""


class SyncTimeoutError(KubeError, TimeoutError):
    """A controller's stores were not complete within its `sync_timeout`.

    >>> issubclass(SyncTimeoutError, KubeError)
    True
    """


class SyncGate:
    """Opens when every store of a controller is complete. Safe to use from any thread. `on_open` and `trouble_of` are
    called without a lock."""

    def __init__(self, names: Iterable[str], *, on_open: Callable[[], None], trouble_of: Callable[[str], str],
                 clock: Clock, logger: GuardedLogger, timeout: float | None = None, then: str = "reconciling") -> None:
        """`names` of what has to arrive; `trouble_of(name)` is its last error, empty when there is none; `then` says in
        the log what follows."""
        self._missing = dict.fromkeys(names)
        self._on_open = on_open
        self._trouble_of = trouble_of
        self._clock = clock
        self._logger = logger
        self._timeout = timeout
        self._then = then
        self._changed = threading.Condition()
        self._since = clock.monotonic()
        self._warn_at = self._since + WARN_EVERY
        self.is_open = False

    def arrived(self, name: str) -> None:
        """The store `name` is complete."""
        with self._changed:
            self._missing.pop(name, None)
            if self._missing or self.is_open:
                return
            self.is_open = True
            self._changed.notify_all()
        self._logger.info("all stores are complete after %.1f s: %s", self._clock.monotonic() - self._since, self._then)
        self._on_open()

    def expect(self, name: str) -> None:
        """One more store has to be complete, if the gate is not open yet."""
        with self._changed:
            if not self.is_open:
                self._missing[name] = None

    def wait(self, timeout: float | None, stop: StopToken) -> bool:
        """Block until the gate is open, `timeout` seconds have passed, or `stop` is set; whether it is open."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        forget = stop.on_set(self._wake)
        try:
            with self._changed:
                while not self.is_open and not stop.is_set():
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self._changed, left)
                return self.is_open
        finally:
            forget()

    def missing(self) -> str:
        """What has not arrived, with the errors, for people."""
        return "; ".join(f"{name} ({trouble})" for name, trouble in self.troubles().items())

    def troubles(self) -> dict[str, str]:
        """Each store that has not arrived, by its name: its last error, or that there was no answer yet."""
        with self._changed:
            names = list(self._missing)
        return {name: self._trouble_of(name) or "no answer yet" for name in names}

    def check(self) -> float | None:
        """Warn if it is time to; the seconds until it has to be called again, None once the gate is open.

        Raises SyncTimeoutError when the time is up.
        """
        now = self._clock.monotonic()
        if self.is_open:
            return None
        waited = now - self._since
        if self._timeout is not None and waited >= self._timeout:
            raise SyncTimeoutError(f"not complete after {waited:.0f} s, so nothing can be reconciled: {self.missing()}")
        if now >= self._warn_at:
            self._warn_at = now + WARN_EVERY
            self._logger.warning("nothing is reconciled yet, after %.0f s: waiting for %s", waited, self.missing())
        next_check = self._warn_at if self._timeout is None else min(self._warn_at, self._since + self._timeout)
        return max(0.0, next_check - now)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Absent:
    """Stands where a store would, in which each key has a record of nothing but its name."""

    def __init__(self, store: Store[Any]) -> None:
        self._resource = store.resource

    def record(self, name: str, namespace: str | None) -> Record:
        return Record(Head(name=name, namespace=namespace), self._resource, b"")

    def reader(self, record: Record) -> Record:
        return record


def invoker_of_gone(on_gone: GoneFunction, store: Store[Any], environment: Environment[Any]) -> Execute:
    """Calls `on_gone(ref, ctx)`, within a run, for an object that is not stored."""

    def let_go(_obj: Record, ctx: Context[Any]) -> Action:
        on_gone(ctx.ref, ctx)
        return Action.await_change()

    absent: Any = _Absent(store)
    return Invoker(let_go, None, absent, environment).invoke_reconciler
