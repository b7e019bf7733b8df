"""`ServerGate`: when one watch may make its next request, while the server of its client may be away.

    the server            the watch                                 its next request
    answers               -                                         now
    away                  tried last                                half a second after the next turn, if it is left
    away                  waits                                     when it finds a turn; it looks once a second
    answers again         waited                                    within a second: as soon as it looks
    answers again         waited, tries, and finds nobody           as its own backoff says: it is this watch's trouble

The looks of many watches are spread by chance, and so are their first requests after an outage. For one thread; what is
known of the server is shared by all watches of its client (`client.http.reachability`).
"""
from __future__ import annotations

import random
from typing import Any

from kubectl_runtime.client.http.reachability import Outage, Reachability
from kubectl_runtime.core.base.errors import ApiError, RequestTimeout, TransportError

LOOK_SECONDS = 1.0
"""The longest time between two looks whether the server is there again."""
YIELD_SECONDS = 0.5
"""So much later than the others does the watch that has just tried take a turn: each gets one, if they need one."""
GENTLE_SECONDS = 60.0
"""So long after an outage a failure still belongs to it: servers refuse requests until they have read everything."""


class ServerGate:
    """Keeps a watch from asking a server that is away, until it may be back. For the thread of its watch."""

    def __init__(self, reachability: Reachability, rng: random.Random) -> None:
        self._reachability = reachability
        self._rng = rng
        self._not_before = 0.0
        self._waits = False  # since the last request that found somebody
        self._its_turn = False
        self._let_go = False  # by an answer to somebody else
        self._over_since: float | None = None

    @property
    def trouble(self) -> Exception | None:
        """What keeps the watch waiting; None when nothing does."""
        outage = self._reachability.outage
        return outage.error if outage is not None and self._waits and not self._its_turn else None

    @property
    def outage(self) -> Outage | None:
        """What is known of the present outage of the server, whether or not the watch waits for it already."""
        return self._reachability.outage

    def pause(self, now: float) -> float:
        """Seconds until the watch has to ask again whether it may make a request; 0: it may, and has to."""
        outage = self._reachability.outage
        if outage is None:
            self._let_go = self._waits
            return 0.0
        first_look, self._waits = not self._waits, True
        self._its_turn = False
        if now >= self._not_before and outage.turn(now, self._rng.random) <= 0:
            self._its_turn = True
            return 0.0
        # At no common time: these looks are what spreads the first requests after the outage.
        look = LOOK_SECONDS * self._rng.uniform(0.0 if first_look else 0.5, 1.0)
        return min(look, self._not_before - now) if now < self._not_before else look

    def failed(self, error: Exception, now: float) -> bool:
        """The request failed; whether the watch now waits for the server, and needs no backoff of its own."""
        if isinstance(error, ApiError):
            self.passed(now)
        if not is_unreachable(error):
            return False
        its_own, self._let_go = self._let_go, False
        self._waits = not its_own
        if its_own:
            return False
        outage = self._reachability.lost(error, now, self._rng.random)
        self._not_before = outage.due + YIELD_SECONDS
        self._its_turn = False
        return True

    def passed(self, now: float) -> None:
        """The request was answered."""
        self._reachability.answered()  # whoever has no client has nobody else to say so
        if self._waits:
            self._over_since = now
        self._waits = self._its_turn = self._let_go = False

    def outage_is_over(self, now: float) -> bool:
        """Whether the watch has come out of an outage within the last minute; said once for each outage."""
        since, self._over_since = self._over_since, None
        return since is not None and now - since < GENTLE_SECONDS


def is_unreachable(error: Exception) -> bool:
    """Whether a request found nobody: refused, reset before any answer, no route, no name. Not: an answer that does not
    come (a server that is overloaded must not be asked more often), an answer that broke off, a certificate that is not
    trusted, a client that was closed."""
    if not isinstance(error, TransportError) or isinstance(error, RequestTimeout):
        return False
    failure: Any = getattr(error, "failure", None)
    return failure is None or not (failure.permanent or failure.answered)
