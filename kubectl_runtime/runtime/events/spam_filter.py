"""`SpamFilter`: how many new Events one object may get: a bucket of tokens each, as client-go's.

    full at first, with `burst` tokens; a new Event takes one; one comes back every `refill` seconds

For the owner's lock; time is given. A bucket that nobody has asked for while it filled up is dropped, and the one
longest unused when there are MOST: it starts over as a full one.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TTLCache

from kubectl_runtime.runtime.events.references import Reference

MOST = 4096
"""Objects that are told apart; client-go's number."""
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Bucket:
    tokens: float
    since: float


class SpamFilter:
    """Holds back Events of objects that talk too much: tokens for each. Not for several threads at once."""

    def __init__(self, burst: int, refill: float, timer: Callable[[], float]) -> None:
        self._burst = burst
        self._refill = refill
        self._timer = timer
        self._buckets: TTLCache[Reference, _Bucket] = TTLCache(MOST, burst * refill, timer=timer)

    def take(self, regarding: Reference) -> bool:
        """Take a token of this object's; False when there is none. Parts of an object count as the object."""
        whole, now = regarding._replace(field_path=""), self._timer()
        bucket = self._buckets.get(whole) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.since) / self._refill)
        bucket.since = now
        self._buckets[whole] = bucket  # again, so that its time begins now
        if bucket.tokens < 1 - _ROUNDING:
            return False
        bucket.tokens = max(0.0, bucket.tokens - 1)
        return True
