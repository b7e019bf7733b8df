"""`Backoff`: the wait after the n-th consecutive failure. It is used for keys, watches, calls, conflicts and Events.

    d = `initial` * `factor` ** (n - 1), at most `maximum`
    the delay is drawn from ((1 - `jitter`) d, (1 + `spread`) d]

It is a pure value: its user counts the failures, and decides when to reset the count. `KeyBackoff`, `WatchBackoff`,
`RetryPolicy` and `ConflictBackoff` are the public names; each makes a `Backoff` from its fields.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import Duration, seconds


class Chance(Protocol):
    """Draws numbers from [0, 1): a `random.Random`, or the module `random`."""

    @property
    def random(self) -> Callable[[], float]:
        """The function that draws a number."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow by a factor after each failure in a row, up to a maximum. Durations are seconds or `timedelta`;
    `maximum` may be infinite. Raises RequestError for a number that is out of range."""

    initial: Duration
    factor: float = 2.0
    maximum: Duration = inf
    jitter: float = 0.0
    """The share of a delay that the jitter may take off, from 0 (none) to 1."""
    spread: float = 0.0
    """The share of a delay that the jitter may add, even beyond `maximum`."""

    def __post_init__(self) -> None:
        for what, number in (("factor", self.factor), ("jitter", self.jitter), ("spread", self.spread)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise RequestError(f"the {what} of a backoff is a number, not {number!r}")
        if not (0 < seconds(self.initial) <= seconds(self.maximum) and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise RequestError("a backoff needs 0 < first delay <= maximum, factor >= 1 and jitter within 0..1, not "
                               f"first delay {self.initial}, maximum {self.maximum}, factor {self.factor}, "
                               f"jitter {self.jitter}")
        if not self.spread >= 0:
            raise RequestError(f"a backoff needs spread >= 0, not {self.spread}")

    def delay(self, failures: int, rng: Chance = random) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first). `rng` draws the jitter. Never
        raises, however large the count."""
        maximum = seconds(self.maximum)
        try:
            exact = min(maximum, seconds(self.initial) * float(self.factor) ** (failures - 1))
        except OverflowError:
            exact = maximum
        if not self.jitter and not self.spread:
            return exact
        drawn = rng.random()
        return exact * (1 - self.jitter * drawn + self.spread * drawn)
