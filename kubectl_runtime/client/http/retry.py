"""When a failed attempt is made again, and how long to wait first: a pure function of the attempt and its failure.

    what happened                              repeatable    any other write
    not connected at all                       again         again
    429, 503 with a wait asked for             again         again: the server refused it unread
    429 without one                            again         no: as an eviction is refused that a budget forbids
    sent, and no whole answer (lost)           again         no: the outcome is unknown
    502, 504, 503 without a wait,              again         no: the outcome is unknown
    500 "etcdserver: request timed out"
    another status, not trusted (TLS),         no            no
    refused by a proxy (4xx), no HTTP
    the time is up                             no            no: the outcome is unknown, if it was sent

Which requests are repeatable `Request.retry` says: reads, reviews, dry runs, applies and deletes of one uid.
Where the outcome is unknown the call raises OutcomeUnknownError (see outcomes.py).

The wait is `base * factor ** attempt`, at most `maximum`, minus a random part of up to half (see `core.base.backoff`).
It is never shorter than what the server asked for (`Retry-After`, `details.retryAfterSeconds`). There are at most
`retries` retries, and none past the call's deadline.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from kubectl_runtime.core.base.backoff import ExponentialBackoff
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError

_REFUSED_UNREAD = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE))
_GATEWAY = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT))
_ETCD_TIMED_OUT = "etcdserver: request timed out"
_LONGEST = 4e9
"""Seconds, more than a century. A longer wait is a mistake of the server, and more than a thread can wait."""
_JITTER = 0.5


class Failure(msgspec.Struct, frozen=True):
    """How an attempt failed. `code`: the HTTP status, None when no answer came.

    `sent`: a byte of the request may have reached the server. `answered`: a byte of an answer came.
    `permanent`: no further attempt can end otherwise (the server's certificate is not trusted, the time is up).
    `message`: the server's, where the status alone does not tell.
    """

    code: int | None = None
    sent: bool = True
    answered: bool = False
    permanent: bool = False
    retry_after: float | None = None
    message: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the request may have been carried out, as nothing that came says otherwise."""
        match self.code:
            case None:
                return self.sent
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return self.retry_after is None
            case HTTPStatus.INTERNAL_SERVER_ERROR:
                return _ETCD_TIMED_OUT in self.message
        return self.code in _GATEWAY


@dataclass(frozen=True)
class RetryPolicy:
    """Which failures are retried, and after what wait. Immutable; durations are seconds or `timedelta`.

    The default: wait 0.2 s, doubling up to 10 s, and retry at most 8 times.
    `RetryPolicy.never()` retries nothing.

    >>> patient = Client(Config(cluster_url=server.url), retry=RetryPolicy(retries=20, maximum=30))
    >>> patient.close()
    >>> never = Client(Config(cluster_url=server.url), retry=RetryPolicy.never())
    >>> never.close()
    """

    base: Duration = 0.2
    factor: float = 2.0
    maximum: Duration = 10.0
    retries: int = 8
    random: Callable[[], float] = field(default=random.random, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise RequestError(f"a RetryPolicy needs retries >= 0, not {self.retries}")
        _ = self._backoff  # refuses numbers that make no sense

    @classmethod
    def never(cls) -> RetryPolicy:
        """A policy with which no attempt is made twice."""
        return cls(retries=0)

    def next(self, attempt: int, failure: Failure, *, repeatable: bool = True) -> float | None:
        """Seconds to wait after the failed attempt number `attempt` (the first is 0), or None: do not try again.

        `repeatable`: the call does no harm when the server carries it out twice, as a GET or a PUT.
        """
        if attempt >= self.retries or not _may_retry(failure, repeatable):
            return None
        return max(self._backoff.delay(attempt + 1, self.random), failure.retry_after or 0.0)

    @property
    def _backoff(self) -> ExponentialBackoff:
        return ExponentialBackoff(self.base, self.factor, self.maximum, _JITTER)


def _may_retry(failure: Failure, repeatable: bool) -> bool:
    if failure.permanent:
        return False
    if failure.is_open:
        return repeatable
    if failure.code is None:
        return True
    return failure.code in _REFUSED_UNREAD and (repeatable or failure.retry_after is not None)


def retry_after(header: str | None, details: int | None, now: datetime) -> float | None:
    """Seconds that the server asked to wait, by its `Retry-After` header (seconds or date), else by the Status; None if
    it did not.

    A header that is neither, is negative, or is beyond any time that one could wait, says nothing. A date in the past
    is 0.
    """
    parsed = _parse_header(header.strip(), now) if header else None
    if parsed is None and details is not None and details > 0:
        parsed = details
    return float(parsed) if parsed is not None and parsed <= _LONGEST else None


def _parse_header(text: str, now: datetime) -> float | None:
    if text.isascii() and text.isdigit():
        return float(text) if float(text) <= _LONGEST else None
    from email.utils import parsedate_to_datetime  # slow to import, and servers hardly ever send a date

    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        wait = max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):  # a part is no number, or too large for a date
        return None
    return wait if wait <= _LONGEST else None
