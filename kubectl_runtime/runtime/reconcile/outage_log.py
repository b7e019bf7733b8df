"""`OutageLog`: says when a controller as a whole is in trouble, and when it is well again.

    state    at a look                                   said                                    -> state
    well     more than `MANY` objects fail               nothing: `RunLog` has named and         trouble
                                                         counted them
    trouble  the brake holds retries back, first time    that it does, and at which rate         trouble
    trouble  no object fails                             how long, and how many did             well

For `WITHIN` seconds after an end was told nothing is: a dependency that comes and goes costs two lines a minute.

`RunLog` stops naming objects where many fail alike, so it cannot name the last one that recovers either. The
dispatcher looks: whenever it has something to do, and each `LOOK_EVERY` seconds in trouble. Pure but for the log.
"""
from __future__ import annotations

import logging
from collections.abc import Callable

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import GuardedLogger
from kubectl_runtime.runtime.reconcile.run_log import SINGLY, WITHIN, readable

MANY = SINGLY
"""So many failing objects are named one by one, and so are their recoveries."""

LOOK_EVERY = 1.0
"""Seconds."""


class OutageLog:
    """Says in the log when a controller as a whole is in trouble, and when it is well again. For one thread at a
    time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, failing: Callable[[], tuple[int, int]],
                 rate: float | None) -> None:
        """`failing()`: how many objects failed the last time they ran, and how many of their retries the brake holds
        back, which lets `rate` a second begin (None: there is none)."""
        self._logger = logger
        self._clock = clock
        self._failing = failing
        self._rate = rate
        self._since: float | None = None
        self._most = 0
        self._braked = False
        self._quiet_until = float("-inf")

    def check(self) -> float | None:
        """Look, and say what has changed. The seconds until it wants to look again; None while all is well."""
        failing, held_back = self._failing()
        now = self._clock.monotonic()
        if self._since is None:
            if failing <= MANY:
                return None
            self._since, self._most, self._braked = now, 0, False
        self._most = max(self._most, failing)
        quiet = now < self._quiet_until
        if not failing:
            if not quiet:
                self._quiet_until = now + WITHIN
                self._say("no object fails any more; the outage lasted %s, with up to %d failing objects at once",
                          readable(now - self._since), self._most)
            self._since = None
            return None
        if held_back and not self._braked and not quiet:
            self._braked = True
            self._say("retries are held back: %d objects fail, and %d of them are due; %g retries a second begin, "
                      "more when they succeed", failing, held_back, self._rate)
        return LOOK_EVERY

    def _say(self, message: str, *args: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info(message, *args)
