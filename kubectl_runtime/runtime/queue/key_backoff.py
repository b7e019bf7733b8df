"""Failures of keys: how often each has failed in a row, how long it waits then, and which writes it made while failing.

    failure        count + 1; waits `KeyBackoff.delay(count)`
    success, gone  state dropped: the next failure is the first
    trigger        count kept: a key does not become healthy by being looked at
    its own echo   recognised by `is_echo`, so that it does not bring the retry forward

Pure; the owner serialises calls. Numbers: client-go's per-item limiter (5 ms doubling up to 1000 s), jittered here.
"""
from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kubectl_runtime.core.base.backoff import ExponentialBackoff
from kubectl_runtime.core.base.clock import Duration

K = TypeVar("K", bound=Hashable)

Version = tuple[str, str]
"""One version of one object: its uid and resourceVersion."""

MAX_REMEMBERED_WRITES = 64
"""Per failing key; older ones are forgotten, and their echo counts as a change by somebody else."""


@dataclass(frozen=True, slots=True)
class KeyBackoff:
    """How long a failing key waits: `initial` times `factor` per further failure, at most `maximum`.

    Each delay is drawn from ((1 - jitter) d, d], so that keys which failed together do not come back together.
    Durations are seconds or `timedelta`. Raises RequestError when a number makes no sense.
    """

    initial: Duration = 0.005
    factor: float = 2.0
    maximum: Duration = 1000.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        _ = self._backoff  # refuses numbers that make no sense

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first)."""
        return self._backoff.delay(failures, rng.random)

    @property
    def _backoff(self) -> ExponentialBackoff:
        return ExponentialBackoff(self.initial, self.factor, self.maximum, self.jitter)


DEFAULT_KEY_BACKOFF = KeyBackoff()


@dataclass(slots=True)
class FailureState:
    """A key that failed the last time it ran."""

    count: int = 0
    writes: dict[Version, None] = field(default_factory=dict)
    decode_failed_at: str | None = None
    """The resourceVersion whose content did not decode: nothing but another version can help."""

    def remember(self, writes: dict[Version, None]) -> None:
        self.writes.update(writes)
        for version in list(self.writes)[:-MAX_REMEMBERED_WRITES]:
            del self.writes[version]


class Failures(Generic[K]):
    """The failing keys of one controller; a key that does not fail costs nothing."""

    def __init__(self) -> None:
        self._states: dict[K, FailureState] = {}

    def __len__(self) -> int:
        """How many keys are failing."""
        return len(self._states)

    def get(self, key: K) -> FailureState | None:
        return self._states.get(key)

    def failed(self, key: K, writes: dict[Version, None], *, decode_failed_at: str | None = None) -> FailureState:
        """Count one more failure of `key`, whose run made these writes."""
        state = self._states.setdefault(key, FailureState())
        state.count += 1
        state.remember(writes)
        state.decode_failed_at = decode_failed_at
        return state

    def forget(self, key: K) -> None:
        """`key` succeeded, or its object is gone."""
        self._states.pop(key, None)

    def is_echo(self, key: K, cause: Version | None) -> bool:
        """Whether a change to this version is one that `key` itself made while it was failing."""
        state = self._states.get(key)
        return state is not None and cause is not None and cause in state.writes

    def clear(self) -> None:
        self._states.clear()
