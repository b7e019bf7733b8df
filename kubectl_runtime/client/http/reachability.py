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
"""
from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

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
