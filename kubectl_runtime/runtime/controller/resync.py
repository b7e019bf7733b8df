"""`Resync`: every object is triggered now and then, for controllers whose world changes without an event.

Each round is drawn from 90 % to 110 % of the period, as controller-runtime's is, so that controllers that began
together do not resync together.
"""
from __future__ import annotations

import random
from collections.abc import Callable

from kubectl_runtime.core.base.clock import Clock

JITTER = 0.1


class Resync:
    """Triggers every stored object at intervals. For one thread at a time."""

    def __init__(self, period: float | None, trigger_all: Callable[[], None], clock: Clock, rng: random.Random) -> None:
        """`period` in seconds; None: never."""
        self._period = period
        self._trigger_all = trigger_all
        self._clock = clock
        self._rng = rng
        self._next = None if period is None else clock.monotonic() + self._draw(period)

    def check(self) -> float | None:
        """Trigger everything if it is time to; the seconds until this has to be called again, None: never."""
        if self._next is None or self._period is None:
            return None
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + self._draw(self._period)
            self._trigger_all()
        return self._next - now

    def _draw(self, period: float) -> float:
        return period * self._rng.uniform(1 - JITTER, 1 + JITTER)
