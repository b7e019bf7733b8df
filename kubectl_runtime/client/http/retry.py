"""When a failed attempt is made again, and how long to wait first: a pure function of the attempt and its failure.

    what happened                              SAFE (GET, PUT, DELETE, guarded PATCH)   UNSENT_ONLY (POST, blind PATCH)
    429, 503 with a wait asked for             again                                    again: the server refused unread
    429 without one                            again                                    no: as an eviction is refused
                                                                                            that a budget forbids
    502, 503 without one, 504                  again                                    no: it may have been done
    not connected (nothing was sent)           again                                    again
    sent, not one byte came back               again                                    no: it may have been done
    the answer broke off, another status,      no                                       no
    the time is up, not trusted (TLS)

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

_TRANSIENT = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE,
                        HTTPStatus.GATEWAY_TIMEOUT))
_REFUSED_UNREAD = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE))
_JITTER = 0.5


class Failure(msgspec.Struct, frozen=True):
    """How an attempt failed. `code`: the HTTP status, None when no answer came.

    `sent`: a byte of the request may have reached the server. `answered`: a byte of an answer came.
    `permanent`: no further attempt can end otherwise (the server's certificate is not trusted, the time is up).
    """

    code: int | None = None
    sent: bool = True
    answered: bool = False
    permanent: bool = False
    retry_after: float | None = None


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
    if failure.code is None:
        return not failure.sent or (repeatable and not failure.answered)
    if failure.code not in _TRANSIENT:
        return False
    return repeatable or (failure.code in _REFUSED_UNREAD and failure.retry_after is not None)


def retry_after(header: str | None, details: int | None, now: datetime) -> float | None:
    """Seconds that the server asked to wait, by its `Retry-After` header (seconds or date), else by the Status; None if
    it did not.

    A header that is neither, or negative, says nothing. A date in the past is 0.
    """
    parsed = _parse_header(header.strip(), now) if header else None
    if parsed is not None:
        return parsed
    return float(details) if details is not None and details > 0 else None


def _parse_header(text: str, now: datetime) -> float | None:
    if text.isascii() and text.isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime  # slow to import, and servers hardly ever send a date

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
