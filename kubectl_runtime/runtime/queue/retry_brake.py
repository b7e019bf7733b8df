"""`RetryBrake`: how many retries of one controller may begin, all its failing keys together. Pure: no clock, no lock.

A dependency that is down makes every key fail. Each key backs off by itself, but thousands of keys that each wait
their turn are still a flood, and those that were put off for minutes would be late once the dependency is back. So:

    tokens   one for each retry that begins; at most `BURST` are saved up, `rate` come back a second
    rate     begins at the lowest; a retry that succeeds doubles it as long as retries are held back, one that fails
             halves it, never below the lowest; from `OPEN` on nothing is held back

No time is reserved for a key that waits, so that a new rate holds for all of them at once. (client-go's bucket reserves
times in advance: the last of 10,000 failing keys waits a quarter of an hour, even if the first ones succeed meanwhile.)
Triggers are not held back.
"""
from __future__ import annotations

from kubectl_runtime.core.base.errors import RequestError

RETRY_RATE = 10.0
"""Retries a second while runs fail, as client-go's default bucket has them."""

BURST = 100
"""Retries that may begin at once after a time without any; client-go's as well."""

OPEN = 100_000.0
"""Retries a second: more than any queue hands out."""

_ROUNDING = 1e-6
"""A token that is so nearly there counts: the time at which it is due was computed from its missing share."""


class RetryBrake:
    """Limits how many retries begin in a second while runs fail. Times are seconds of one monotonic clock; its owner
    serialises the calls."""

    def __init__(self, rate: float = RETRY_RATE) -> None:
        """`rate`: the lowest, in retries a second. Raises RequestError when it is not a positive number."""
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise RequestError(f"retry_rate is the retries a second while runs fail, or None for no limit; "
                               f"not {rate!r}")
        self._lowest = float(rate)
        self._rate = self._lowest
        self._tokens = float(BURST)
        self._as_of: float | None = None

    def take(self, now: float) -> bool:
        """Whether a retry may begin now; then it counts."""
        if self._rate >= OPEN:
            return True
        self._refill(now)
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def next_at(self) -> float:
        """When `take` says yes again if nothing changes."""
        as_of = self._as_of or 0.0
        return as_of if self._rate >= OPEN else as_of + max(0.0, 1 - self._tokens) / self._rate

    def succeeded(self, now: float, *, holding: bool) -> None:
        """A retry succeeded; `holding`: others are held back."""
        if holding:
            self._refill(now)
            self._rate = min(OPEN, 2 * self._rate)

    def failed(self, now: float) -> None:
        """A retry failed."""
        self._refill(now)
        self._rate = max(self._lowest, self._rate / 2)

    def _refill(self, now: float) -> None:
        if self._as_of is not None and now > self._as_of:
            self._tokens = min(float(BURST), self._tokens + (now - self._as_of) * self._rate)
        self._as_of = now if self._as_of is None else max(now, self._as_of)
