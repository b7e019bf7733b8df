"""`CatchUp`: a key whose run wrote something runs again when the stores of its controller have seen that.

    a run wrote                                    what no store has seen of it is remembered for the key
    the key is to run, a store lacks one of them   skipped; again as soon as none does, 5 s later at the latest
    5 s later a store still lacks one              what is missing is read from the server; then the run begins
    that read fails                                skipped for another 5 s

What led to a skipped run counts for the one that follows: a retry stays one.

For controllers whose reads show only what their watches have shown (`OwnWrites.WAIT`). Waits without a worker. Safe to
use from any thread.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guarded_log import GuardedLogger, pass_interrupt
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Sink
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.usercode import described

if TYPE_CHECKING:
    from kubectl_runtime.client.api.writes import Write

PATIENCE = 5.0
"""Seconds until the server is asked for what a watch does not show; many watches lag for less."""

ARRIVED = "its own writes have arrived"


class _ThisThread(threading.local):
    written: list[ObjectRef] | None = None


class CatchUp:
    """Stands before what executes the runs of one controller."""

    def __init__(self, execute: Callable[[Run], Outcome], watches: Callable[[], Sequence[Watch[Any]]], sink: Sink,
                 clock: Clock, logger: GuardedLogger) -> None:
        """`sink` takes the requests of keys that need not wait any more."""
        self._execute = execute
        self._watches = watches
        self._sink = sink
        self._clock = clock
        self._logger = logger
        self._lock = threading.Lock()
        self._written: dict[Key, tuple[ObjectRef, ...]] = {}
        self._parked: dict[Key, tuple[Run, float]] = {}
        """The first run that was skipped, and when."""
        self._thread = _ThisThread()

    def wrote(self, write: Write) -> None:
        """For `Client.on_write`, in the thread that wrote."""
        if self._thread.written is not None:
            self._thread.written.append(write.ref)

    def caught_up(self) -> None:
        """A watch has shown a write: let those run that lack nothing any more."""
        with self._lock:
            written = {**self._written}
        seen = {key: refs for key, refs in written.items() if not self._unseen(refs)}
        with self._lock:
            for key, refs in seen.items():
                if self._written.get(key) is refs:
                    del self._written[key]
            ready = [ReconcileRequest(self._parked[key][0].request.ref, ARRIVED) for key in seen if key in self._parked]
        if ready:
            self._sink(ready)

    def __call__(self, run: Run) -> Outcome:
        """Execute the run, or say when to come again."""
        key = run.key
        if self._missing(key):
            wait = self._park(run)
            if self._missing(key) and (wait > 0 or not self._read_live(key)):
                return Outcome(wait or PATIENCE, RunResult.SKIPPED)
        with self._lock:
            skipped, _ = self._parked.pop(key, (None, 0.0))
            self._written.pop(key, None)
        if skipped is not None:
            run.retry = run.retry or skipped.retry
            since = [] if all(cause is None for cause in run.causes) else run.causes  # most likely only `ARRIVED`
            run.causes = [*skipped.causes, *since]
        written: list[ObjectRef] = []
        self._thread.written = written
        try:
            return self._execute(run)
        finally:
            self._thread.written = None
            unseen = self._unseen(dict.fromkeys(written))
            if unseen:
                with self._lock:
                    self._written[key] = tuple(dict.fromkeys(ref for _, ref in unseen))

    def _park(self, run: Run) -> float:
        """Seconds that the key may still wait."""
        now = self._clock.monotonic()
        with self._lock:
            _, since = self._parked.setdefault(run.key, (run, now))
        return max(0.0, since + PATIENCE - now)

    def _missing(self, key: Key) -> list[tuple[Watch[Any], ObjectRef]]:
        with self._lock:
            written = self._written.get(key, ())
        return self._unseen(written)

    def _unseen(self, refs: Iterable[ObjectRef]) -> list[tuple[Watch[Any], ObjectRef]]:
        return [(watch, ref) for ref in refs for watch in self._watches() if watch.writes.is_behind(ref)]

    def _read_live(self, key: Key) -> bool:
        """Ask the server for what is missing; whether it answered."""
        missing = self._missing(key)
        try:
            for watch, ref in missing:
                watch.writes.read_live(ref)
        except BaseException as error:  # noqa: BLE001 - layers and credentials of the client are user code
            pass_interrupt(error)
            self._logger.warning("%s/%s waits for its own writes, which no watch has shown for %.0f s, and reading "
                                 "them from the server failed: %s", key[0] or "", key[1], PATIENCE,
                                 error if isinstance(error, KubeError) else described(error))
            return False
        for watch, ref in missing:
            self._logger.warning("%s has not shown the write of %s for %.0f s; it was read from the server",
                                 watch.target, ref, PATIENCE)
        return True
