"""`Reachability`: whether a client's server is there, as all requests of the client together know it.

    state   what happens                                           next state
    there   an answer, whatever it says                            there
    there   `lost`: a request found nobody                         away; the first turn comes after about a second
    away    `lost`                                                 away
    away    `turn`, whose time has come                            away; the next turn comes after 5 s; the caller tries
    away    an answer to whichever request                         there

Watches take turns while the server is away, so that an outage costs one attempt every 5 s and not one for each watch;
calls are not held back. Attempts made meanwhile get 5 s to connect (see `connect_limit`): packets that are dropped
silently would else keep an attempt waiting long after the server has come back.

A limit on what one client sends, off by default: the server has its own fairness, and answers 429.

A token bucket that holds `burst` tokens and gains `qps` a second. Each attempt takes one, in the order in which the
callers came, and waits until it is there: in no second are more than `qps + burst - 1` attempts sent. Watches are not
counted, nor leases, whose holder would lose them by waiting. A wait that would go past the call's deadline is not
begun; the call's stop token ends it.
"""
from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import ConfigError, RequestTimeout
from kubectl_runtime.core.base.interpreter import ForkSafeLock

PROBE_SECONDS = 5.0
"""Seconds between two attempts to reach a server that is away, at least."""
PROBE_SPREAD = 0.5
"""Seconds that chance adds to this, so that many programs do not try in step."""
FIRST_TRY = (0.8, 1.6)
"""Seconds from the first failure to the first turn: a connection that broke for no reason is soon whole again."""


AT_ONCE = 0.5
"""Seconds within which failed attempts count as one."""


class Outage:
    """A time without any answer. `since` is of the clock of the first failure; `error` is the last failure. `failures`
    counts the attempts in a row that found nobody, each for all watches of the client: those within `AT_ONCE` seconds,
    as when many connections break together, count as one."""

    def __init__(self, error: Exception, since: float, due: float) -> None:
        self.error = error
        self.since = self._counted_at = since
        self.failures = 1
        self._due = due
        self._lock = ForkSafeLock()

    def failed(self, error: Exception, now: float) -> None:
        """One more attempt found nobody."""
        with self._lock:
            self.error = error
            if now - self._counted_at >= AT_ONCE:
                self._counted_at, self.failures = now, self.failures + 1

    @property
    def due(self) -> float:
        """When the next attempt may be made."""
        return self._due

    def turn(self, now: float, draw: Callable[[], float]) -> float:
        """0: it is the caller's turn to try, now. Otherwise the seconds until it may be somebody's turn."""
        with self._lock:
            left = self._due - now
            if left > 0:
                return left
            self._due = now + PROBE_SECONDS + PROBE_SPREAD * draw()
            return 0.0


class Reachability:
    """Whether the server of a client answers at all, and when it may be tried next. One for each client. Safe to use
    from any thread; nothing blocks. Whoever calls `lost` and `turn` gives the time of one clock, and `draw`, which is
    `random.Random().random`."""

    def __init__(self) -> None:
        self._outage: Outage | None = None
        self._last_due = float("-inf")

    @property
    def outage(self) -> Outage | None:
        """What is known of the present outage; None while the server answers."""
        return self._outage

    def answered(self) -> None:
        """The server answered something."""
        outage = self._outage
        if outage is not None:
            self._last_due = outage.due
            self._outage = None

    def lost(self, error: Exception, now: float, draw: Callable[[], float]) -> Outage:
        """A request found nobody: the outage that has begun by that, or goes on."""
        outage = self._outage
        if outage is None:
            first, last = FIRST_TRY
            # A server that comes and goes is not tried more often than one that is away.
            due = max(now + first + (last - first) * draw(), min(self._last_due, now + PROBE_SECONDS))
            outage = self._outage = Outage(error, now, due)
        else:
            outage.failed(error, now)
        return outage

    def connect_limit(self, seconds: float) -> float:
        """How long an attempt may take to connect, of the `seconds` that are allowed otherwise."""
        return seconds if self._outage is None else min(seconds, PROBE_SECONDS)


def noting(reachability: Reachability) -> Layer:
    """Tells `reachability` of every answer. Stands next to the adapter: attempts count, not only calls."""

    def layer(send: Send) -> Send:
        def noted(call: Call) -> Answer:
            answer = send(call)
            reachability.answered()
            return answer

        return noted

    return layer


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
