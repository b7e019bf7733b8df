"""`ElectionCallbacks`: what an election calls, one after the other, in the thread that runs `run`."""
from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from kubectl_runtime.runtime.usercode import guarded

Callback = Callable[[], object]


class ElectionCallbacks:
    """Calls the functions of a LeaderElection one after the other, in a thread that nothing else waits for. Safe to use
    from any thread; only `run` blocks."""

    def __init__(self, name: str) -> None:
        """`name`: the election's, for messages."""
        self._what = f"a callback of election {name}"
        self._waiting: SimpleQueue[Callback | None] = SimpleQueue()

    def tell(self, callback: Callback | None) -> None:
        """Call it after all that were told before; None is nothing to call."""
        if callback is not None:
            self._waiting.put(callback)

    def end(self) -> None:
        """Nothing follows."""
        self._waiting.put(None)

    def run(self) -> None:
        """Call them as they come. Returns after `end`."""
        while (callback := self._waiting.get()) is not None:
            guarded(None, self._what, callback)
