"""`Backoff`: whether and when to try again after the n-th consecutive failure. It paces the retries of reconciled keys,
watches, client calls, update conflicts and Event writes.

    d = `initial` * `factor` ** (n - 1), at most `maximum`
    the delay is drawn from ((1 - `jitter`) d, (1 + `spread`) d]
    no further attempt if n >= `attempts`

A Backoff is a pure value: its user counts the failures, decides when to reset the count, and asks `next` for the delay.
`KeyBackoff`, `WatchBackoff`, `RetryPolicy` and `ConflictBackoff` are the public names; each is a `Backoff` or makes one
from its fields, and `Backoff` checks the numbers.
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
    """Delays that grow by a factor with each consecutive failure, up to a maximum. Durations are seconds or
    `timedelta`; `maximum` may be infinite. `initial` may be 0 only if `attempts` is finite. Raises RequestError for a
    number that is out of range."""

    initial: Duration
    factor: float = 2.0
    maximum: Duration = inf
    jitter: float = 0.0
    """The share of a delay that the jitter may take off, from 0 (none) to 1."""
    spread: float = 0.0
    """The share of a delay that the jitter may add, even beyond `maximum`."""
    attempts: float = inf
    """The number of failures in a row after which there is no further attempt."""

    def __post_init__(self) -> None:
        for what in ("factor", "jitter", "spread", "attempts"):
            number = getattr(self, what)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise RequestError(f"{what} of a backoff must be a number, not {number!r}")
        first = seconds(self.initial)
        positive = first > 0 or (first == 0 and self.attempts < inf)
        if not (positive and first <= seconds(self.maximum) and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise RequestError("a backoff needs 0 < first delay <= maximum, factor >= 1 and jitter within 0..1, not "
                               f"first delay {self.initial}, maximum {self.maximum}, factor {self.factor}, "
                               f"jitter {self.jitter}")
        if not (self.spread >= 0 and self.attempts >= 1):
            raise RequestError(f"a backoff needs spread >= 0 and attempts >= 1, not spread {self.spread} and attempts "
                               f"{self.attempts}")

    def next(self, failures: int, rng: Chance = random) -> float | None:
        """Seconds until the next attempt after the `failures`-th failure in a row (1 is the first); None if there is
        no further attempt. `rng` draws the jitter. Never raises, however large the count."""
        return None if failures >= self.attempts else self.delay(failures, rng)

    def delay(self, failures: int, rng: Chance = random) -> float:
        """Like `next`, but without a limit on attempts."""
        first, maximum = seconds(self.initial), seconds(self.maximum)
        if not first:
            return 0.0
        try:
            exact = min(maximum, first * float(self.factor) ** (failures - 1))
        except OverflowError:
            exact = maximum
        if not self.jitter and not self.spread:
            return exact
        drawn = rng.random()
        return exact * (1 - self.jitter * drawn + self.spread * drawn)
