"""`ExponentialBackoff`: how long to wait after the n-th failure in a row. Retries, keys and watches all count by it.

    d = `initial` * `factor` ** (n - 1), at most `maximum`
    the delay is drawn from ((1 - `jitter`) d, d]

`maximum` is the longest that is ever waited: jitter only takes off. A pure value; who counts failures, and when they
are forgiven, is the business of whoever uses it.
"""
from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError


class ExponentialBackoff(msgspec.Struct, frozen=True):
    """Waits that grow by a factor after each failure in a row, up to a maximum. Durations are seconds or `timedelta`;
    `maximum` may be infinite. Raises RequestError for a number that is out of range."""

    initial: Duration
    factor: float
    maximum: Duration
    jitter: float = 0.0
    """The share of a delay that chance may take off, from 0 (none) to 1."""

    def __post_init__(self) -> None:
        for what, number in (("factor", self.factor), ("jitter", self.jitter)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise RequestError(f"the {what} of a backoff is a number, not {number!r}")
        if not (0 < seconds(self.initial) <= seconds(self.maximum) and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise RequestError("a backoff needs 0 < first delay <= maximum, factor >= 1 and jitter within 0..1, not "
                               f"first delay {self.initial}, maximum {self.maximum}, factor {self.factor}, "
                               f"jitter {self.jitter}")

    def delay(self, failures: int, draw: Callable[[], float]) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first).

        `draw` gives numbers from [0, 1), as `random.Random().random` does. Never raises, however large the count.
        """
        maximum = seconds(self.maximum)
        try:
            exact = min(maximum, seconds(self.initial) * float(self.factor) ** (failures - 1))
        except OverflowError:
            exact = maximum
        return exact * (1 - self.jitter * draw())
