"""`ShapedStream`: a watch whose events pass through shapers, and come late if told so.

It is an `EventStream` like the one inside it, so that neither the HTTP rim nor the simulated transport need to know:
only how it ends (`ending`, `cut`) is asked by the exchange that made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kubectl_runtime.apiserver.rim.faults.plan import Ending
from kubectl_runtime.apiserver.rim.faults.shapers import Cut, EventShaper
from kubectl_runtime.apiserver.wire import EventStream
from kubectl_runtime.core.base.clock import Clock


class ShapedStream:
    """See the module. Pulled by one thread, as every `EventStream`."""

    def __init__(self, inner: EventStream, shapers: Sequence[EventShaper], clock: Clock, lag: float = 0.0) -> None:
        """Feed the events of `inner` through `shapers` in order; each then comes `lag` seconds later."""
        self._inner, self._shapers, self._clock, self._lag = inner, list(shapers), clock, lag
        self._queue: deque[tuple[float, bytes]] = deque()
        self._over = False
        self.ending: Ending | None = None
        self.cut: Cut | None = None
        for index, shaper in enumerate(self._shapers):
            self._pass_on(shaper.start(), index + 1)
        self._look_for_the_end()

    @property
    def closed(self) -> bool:
        self._pull()
        return self._over and not self._queue

    @property
    def deadline(self) -> float | None:
        due = [self._queue[0][0]] if self._queue else []
        inner = None if self._over else self._inner.deadline
        return min([*due, inner] if inner is not None else due, default=None)

    def poll(self) -> bytes | None:
        self._pull()
        if self._queue and self._queue[0][0] <= self._clock.monotonic():
            return self._queue.popleft()[1]
        return None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._inner.on_ready(callback)

    def close(self) -> None:
        self._over = True
        self._inner.close()

    def _pull(self) -> None:
        """Take in what the server has: all of it if events are delayed, since their time counts from now."""
        while not self._over and (self._lag or not self._queue):
            chunk = self._inner.poll()
            if chunk is None:
                if self._inner.closed:
                    self._finish()
                return
            for line in chunk.splitlines(keepends=True):
                if self.ending is None:
                    self._pass_on([line], 0)
                    self._look_for_the_end()

    def _pass_on(self, lines: list[bytes], first: int) -> None:
        """Feed lines to the shapers from number `first` on; one that has ended the watch sees no more."""
        for index in range(first, len(self._shapers)):
            shaper, fed = self._shapers[index], list[bytes]()
            for line in lines:
                if shaper.ending is None:
                    fed += shaper.feed(line)
            lines = fed
        due = self._clock.monotonic() + self._lag
        self._queue.extend((due, line) for line in lines if line)

    def _look_for_the_end(self) -> None:
        for index, shaper in enumerate(self._shapers):
            if shaper.ending is not None:
                self._flush(index + 1)
                self.ending, self.cut = shaper.ending, shaper.cut
                self.close()
                return

    def _finish(self) -> None:
        self._flush(0)
        self._look_for_the_end()
        self._over = True

    def _flush(self, first: int) -> None:
        for index in range(first, len(self._shapers)):
            self._pass_on(self._shapers[index].flush(), index + 1)
