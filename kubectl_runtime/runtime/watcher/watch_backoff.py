"""How long a watch waits after a failure.

`WatchBackoff` is the rule: the n-th failure in a row waits a time drawn from [d, 2d), where d is `initial` doubled
(times `factor`) n - 1 times, at most `maximum`. `Backoff` counts: it starts over once `reset_after` seconds have
passed without a failure, counted from the end of the last wait, or an outage is over. An `Init` or a page that
arrived proves nothing: a list can begin well and fail each time.

    failure                                 wait
    nobody answers                          none here: the watcher waits until somebody does
    410, the first in `reset_after`         none: history moves on, and a list at once is the cure
    within a minute after an outage         as the rule says, from its beginning, but at most 4 s
    any other                               as the rule says, at least what the server asks for, 5 min at most

Numbers: those of client-go's and kube-rs's reflectors (0.8 s doubling up to 30 s, full jitter on top, reset by 2 min).
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from kubectl_runtime.core.base.backoff import ExponentialBackoff
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.scope import with_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.param_rules import check_flags
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.watcher.event import MAX_RETRY_AFTER, Event, Failed, Idle, Init, InitApply, RawStep
from kubectl_runtime.runtime.watcher.failure_log import FailureLog, WatchTarget
from kubectl_runtime.runtime.watcher.server_gate import GENTLE_SECONDS

T = TypeVar("T")

IDLE_PAUSE = 0.05
"""Seconds until a simulated transport that had nothing ready is asked again."""

GENTLE_MAXIMUM = 2.0
"""The bound of d, in seconds, while a server is still coming back."""


@dataclass(frozen=True, slots=True)
class WatchBackoff:
    """How long a watch waits after failures: `initial` seconds, times `factor` up to `maximum`, each drawn from [d,
    2d).

    `reset_after` seconds without a failure start over. The numbers are client-go's; `maximum` bounds d, so with jitter
    up to twice as much is waited. Durations are seconds or `timedelta`; `jitter=False` waits exactly d (for tests).
    Raises RequestError when a number makes no sense.

    >>> stop, api = StopToken(), Api.namespaced(client, ConfigMap, "default")
    >>> events = watcher(api, WatcherConfig(), stop, backoff=WatchBackoff(maximum=timedelta(minutes=1)))
    >>> type(next(events)).__name__
    'Init'
    """

    initial: Duration = 0.8
    factor: float = 2.0
    maximum: Duration = 30.0
    reset_after: Duration = 120.0
    jitter: bool = True

    def __post_init__(self) -> None:
        check_flags(self, "jitter")
        _ = self._plain  # refuses numbers that make no sense
        if not seconds(self.reset_after) >= 0:
            raise RequestError(f"a backoff needs reset_after >= 0, not {self.reset_after}")

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first)."""
        if not self.jitter:
            return self._plain.delay(failures, rng.random)
        # [d, 2d) is what is left of 2d when up to half of it is taken off.
        doubled = ExponentialBackoff(2 * seconds(self.initial), self.factor, 2 * seconds(self.maximum), jitter=0.5)
        return doubled.delay(failures, lambda: 1 - rng.random())

    def gentle(self) -> WatchBackoff:
        """The rule for a server that is coming back."""
        maximum = min(seconds(self.maximum), GENTLE_MAXIMUM)
        return replace(self, initial=min(seconds(self.initial), maximum), maximum=maximum)

    @property
    def _plain(self) -> ExponentialBackoff:
        return ExponentialBackoff(self.initial, self.factor, self.maximum)


DEFAULT_BACKOFF = WatchBackoff()


class Backoff:
    """Failures of one watch. Not thread-safe; the watch that owns it is used by one thread at a time."""

    def __init__(self, rule: WatchBackoff = DEFAULT_BACKOFF, *, rng: random.Random | None = None) -> None:
        """`rng` draws the jitter; give a seeded one to reproduce a run."""
        self._rule = rule
        self._rng = rng or random.Random()
        self._failures = 0
        self._healthy_since = 0.0
        self._gentle_until = self._expired_at = float("-inf")

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def next(self, now: float, at_least: float = 0.0) -> float:
        """A failure happened: seconds to wait from `now` on, not less than `at_least` (what the server asked for)."""
        if self.is_over(now):
            self._failures = 0
        self._failures += 1
        rule = self._rule.gentle() if now < self._gentle_until else self._rule
        delay = max(rule.delay(self._failures, self._rng), min(at_least, MAX_RETRY_AFTER))
        self._healthy_since = now + delay
        return delay

    def after(self, failure: Failed, now: float) -> float:
        """`failure` happened: seconds to wait from `now` on, as the module's table says."""
        if failure.away:
            return 0.0
        if failure.outage_over:
            self._failures, self._expired_at, self._gentle_until = 0, float("-inf"), now + GENTLE_SECONDS
        if isinstance(failure.error, ApiError) and failure.error.is_expired:
            last, self._expired_at = self._expired_at, now
            if now - last >= seconds(self._rule.reset_after):
                return 0.0
        return self.next(now, failure.retry_after)

    def is_over(self, now: float) -> bool:
        """Whether the last failure is so long ago that the next one is the first again."""
        return self._failures > 0 and now - self._healthy_since >= seconds(self._rule.reset_after)


def backoff(steps: Iterable[RawStep[T]], stop: StopToken, target: WatchTarget, rule: WatchBackoff = DEFAULT_BACKOFF, *,
            clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None,
            on_trouble: Callable[[str], None] = lambda _: None) -> Iterator[Event[T]]:
    """Pass events on; after each `Failed` log it and wait before pulling again. Ends when `stop` is set.

    `target` says in the log what is watched; `on_trouble` gets what the log says of a failure, before the wait, and an
    empty text when it is over. Closes `steps` when it is closed.
    """
    state, failures, troubled = Backoff(rule, rng=rng), FailureLog(target), False
    stop = with_scope(stop, clock)
    with closing_source(steps):
        for step in steps:
            if isinstance(step, Failed):
                if stop.is_set():
                    return
                now = clock.monotonic()
                delay = state.after(step, now)
                on_trouble(failures.failed(step, now, delay))
                troubled = True
                if delay:
                    stop.wait(delay)
            elif isinstance(step, Idle):
                stop.wait(IDLE_PAUSE)
            else:
                failures.succeeded(step, clock.monotonic())
                if troubled and not isinstance(step, Init | InitApply):
                    on_trouble("")
                    troubled = False
                yield step
            if stop.is_set():
                return
