"""Who runs the work: threads of our own, or a simulation.

Work is an iterator. Each `yield` is a point at which another thread could be scheduled, so a simulation that steps many
of them in a seeded order sees the interleavings that threads would produce; threads simply run it to its end.

Not `concurrent.futures.ThreadPoolExecutor`: Python joins that one's threads when the interpreter exits, so that a
single reconciler which never returns would keep the process for ever. These threads are daemons; a graceful end is the
business of `Running.stop`, which also happens when the program ends without it.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

Work = Iterator[None]

PATIENCE = 0.015
"""Seconds; three of the intervals after which Python lets another thread run (5 ms), so that a worker which only waits
for its turn is not taken for one that is stuck."""


class Executor(Protocol):
    """Takes work; never blocks, never runs it in the calling thread."""

    @property
    def patience(self) -> float:
        """Seconds for which it is better to wait for a busy worker than to call another one."""

    def submit(self, work: Work) -> None:
        """Have `work` run to its end, some time."""


class ThreadExecutor:
    """A fixed number of daemon threads over one queue. `submit` is safe from any thread."""

    def __init__(self, size: int, name: str, on_bug: Callable[[BaseException], None]) -> None:
        """`size` threads called `name` plus their number. `on_bug` hears of an exception out of the work; the thread
        goes on.

        The threads are not started: the owner starts `threads`, and joins them after `close`.
        """
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._on_bug = on_bug
        self.threads = [threading.Thread(target=self._run, name=f"{name} {number}", daemon=True)
                        for number in range(1, size + 1)]

    @property
    def patience(self) -> float:
        """`PATIENCE`; none without a GIL, since threads then do not take the interpreter from each other."""
        return PATIENCE if getattr(sys, "_is_gil_enabled", lambda: True)() else 0.0

    def submit(self, work: Work) -> None:
        self._work.put(work)

    def close(self) -> None:
        """Let each thread end once it has nothing to do. Does not wait."""
        for _ in self.threads:
            self._work.put(None)

    def _run(self) -> None:
        # Blocks without a deadline: `close`, which the stop token's callback calls, ends it.
        while (work := self._work.get()) is not None:
            try:
                for _ in work:
                    pass
            except BaseException as error:  # noqa: BLE001 - a defect of the library; it must reach the supervisor
                self._on_bug(error)
