"""A limit on what one client sends, off by default: the server has its own fairness, and answers 429.

A token bucket that holds `burst` tokens and gains `qps` a second. Each attempt takes one, in the order in which the
callers came, and waits until it is there: in no second are more than `qps + burst - 1` attempts sent. Watches are not
counted, nor leases, whose holder would lose them by waiting. A wait that would go past the call's deadline is not
begun; the call's stop token ends it.
"""
from __future__ import annotations

import msgspec

from kubectl_runtime.client.http.failures import ConnectionFailed
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.client.http.retry import Failure
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import ConfigError, RequestTimeout
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

_ROUNDING = 1e-9
"""Relative; sums of fractions of a second must not come out a hair too early, which would let one more through."""


class RateLimit(msgspec.Struct, frozen=True):
    """How fast a client may call: `qps` attempts a second in the long run, `burst` at once after a pause.

    Each attempt waits for its turn within the call's deadline; watches and Leases do not. Off by default. Raises
    ConfigError for numbers that make no sense.

    >>> own = Client(Config(cluster_url=server.url), rate_limit=RateLimit(qps=20, burst=30))
    >>> own.close()
    """

    qps: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.qps, int | float) and 0 < self.qps < float("inf")):
            raise ConfigError(f"RateLimit(qps={self.qps!r}): a number of calls a second above 0 is expected; "
                              "without a limit give none")
        if type(self.burst) is not int or self.burst < 1:
            raise ConfigError(f"RateLimit(burst={self.burst!r}): a whole number of calls, 1 or more, is expected")


class _Bucket:
    """When the next token is there. Safe to use from any thread."""

    def __init__(self, limit: RateLimit, clock: Clock) -> None:
        self._clock = clock
        self._interval = (1 + _ROUNDING) / limit.qps
        self._saved = (limit.burst - 1) * self._interval
        self._lock = ForkSafeLock()
        self._full_at = float("-inf")  # when the bucket would be full if nobody took another token

    def take(self, deadline: float) -> float | None:
        """Seconds until the token that is now this caller's; None, and no token, when that is past `deadline`."""
        with self._lock:
            now = self._clock.monotonic()
            full_at = max(self._full_at, now)
            wait = max(0.0, full_at - self._saved - now)
            if now + wait >= deadline:
                return None
            self._full_at = full_at + self._interval
            return wait


def limiting(limit: RateLimit, clock: Clock) -> Layer:
    """The layer that waits for tokens."""
    bucket = _Bucket(limit, clock)

    def layer(send: Send) -> Send:
        def limited(call: Call) -> Answer:
            if not _is_exempt(call):
                wait = bucket.take(call.deadline)
                if wait is None:
                    raise RequestTimeout(f"{call.request.operation}: the deadline would pass before the rate limit of "
                                         f"{limit.qps:g} calls a second lets it through: raise qps, or give the call "
                                         "more time", sent=False)
                if wait and call.stop.wait(wait):
                    raise ConnectionFailed(f"{call.request.operation}: given up before it was sent, as "
                                           f"{call.stop.reason or 'its stop token was set'}",
                                           Failure(sent=False, permanent=True))
            return send(call)

        return limited

    return layer


def _is_exempt(call: Call) -> bool:
    resource = call.request.resource
    return call.streaming or (resource is not None and resource.group == "coordination.k8s.io"
                              and resource.plural == "leases")
