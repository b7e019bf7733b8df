"""`Housekeeper`: the thread that drives a core by the clock while a server runs; a simulation does so by itself."""

from __future__ import annotations

import threading

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.rim.http.listener import GRACE
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.interpreter.contexts import Thread

log = guarded_logger(__name__)

RETRY = 1.0  # seconds until the next try after a step that failed


class Housekeeper:
    """The thread that ticks the core: compaction and controllers, when they are due. A step that fails is logged and
    ends nothing: without controllers deletions would hang for ever."""

    def __init__(self, core: ApiCore, clock: Clock, name: str) -> None:
        self._core, self._clock = core, clock
        self._condition = threading.Condition()
        self._stopping = False
        core.on_due(self._wake)
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def stop(self) -> list[str]:
        """End the thread; blocks for at most `GRACE` seconds. Returns its name if it did not end."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join(GRACE)
        return [self._thread.name] if self._thread.is_alive() else []

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._stopping and (left := self._left()) is not None and left > 0:
                    self._clock.wait(self._condition, left)
                while not self._stopping and self._left() is None:
                    self._clock.wait(self._condition, None)
                if self._stopping:
                    return
            try:
                if not self._core.tick():  # somebody else drives the core, too
                    with self._condition:
                        if not self._stopping:
                            self._clock.wait(self._condition, RETRY)
            except Exception:  # without this thread no deletion would end: it tries again
                log.exception("a step of the embedded API server's controllers failed")
                with self._condition:
                    if not self._stopping:
                        self._clock.wait(self._condition, RETRY)

    def _left(self) -> float | None:
        """Seconds until the core has work; None: until something is written."""
        due = self._core.next_wakeup()
        return None if due is None else due - self._clock.monotonic()
