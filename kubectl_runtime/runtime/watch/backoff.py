"""The wait of a watch after a failure, its log of failures, and its behaviour while the server is unreachable.

`WatchBackoff`: the wait after the n-th failure in a row is drawn from [d, 2d), where d is `initial` multiplied n - 1
times by `factor`, at most `maximum`. `WatchFailures` counts the failures, and starts over after `reset_after` seconds
without a failure or after an outage. An `Init` or a page does not reset the count: a list can begin well and still fail
each time.

- While the server cannot be reached, the watcher itself waits until the server answers, without this backoff.
- After the first 410 within `reset_after` there is no wait: the history has expired, and a new list is the remedy.
- Within a minute after an outage the waits begin at `initial` again and are at most 4 s.
- After any other failure the wait is at least as long as the server asks for, up to 5 min.

The numbers are client-go's and kube-rs's: 0.8 s doubling up to 30 s, full jitter on top, reset after 2 min.

`FailureLog`: a new failure is a warning with verb, kind, namespace, the server's message, the remedy and the next
attempt (INFO for an expired version). A repetition of the same failure is a short warning; while the server cannot be
reached, this warning appears only at each doubling of the count. Recovery is INFO. A server's message about a list or
watch never quotes a Secret.

`ServerGate`: while the client's server is unreachable, the client's watches take turns probing it. A watch that has
just probed waits half a second longer than the others. Waiting watches check once a second, at random times, whether
the server is back, so that the first requests after an outage are spread. If a watch still reaches no server after
other watches got an answer, it uses its own backoff.
"""
from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from kubectl_runtime.client.api.selected import SelectedNamespaces
from kubectl_runtime.client.http.send import PROBE_SECONDS, Outage, Reachability
from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import (
    ApiError,
    KubeError,
    RequestError,
    RequestTimeout,
    TransportError,
    message_of,
)
from kubectl_runtime.core.base.guard import closing_source, described, guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.requests.params import check_flags
from kubectl_runtime.core.scope import StopToken, with_scope
from kubectl_runtime.runtime.watch.event import MAX_RETRY_AFTER, Event, Failed, Idle, Init, InitApply, RawStep

log = guarded_logger(__name__)


class WatchTarget(msgspec.Struct, frozen=True):
    """The target of a watch, as log lines name it."""

    resource: ApiResource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    shard: str | None = None
    selection: str = ""
    """The selection of namespaces, as text; empty if they are fixed."""

    @classmethod
    def of(cls, api: Any, config: Any) -> WatchTarget:
        """The target of a watch of `api` with this WatcherConfig."""
        shard = None if config.shard is None else config.shard.words
        return cls(api.resource, api.namespace, config.label_text, config.field_text, shard,
                   str(api.selection) if isinstance(api, SelectedNamespaces) else "")

    def __str__(self) -> str:
        """`deployments.apps in namespace prod (labels app=web)`."""
        parts = [self.resource.full_name]
        if self.namespace:
            parts.append(f"in namespace {self.namespace}")
        if self.selection:
            parts.append(f"in the namespaces of {self.selection}")
        selectors = {"labels": self.label_selector, "fields": self.field_selector, "shard": self.shard}
        if any(selectors.values()):
            parts.append(f"({', '.join(f'{what} {text}' for what, text in selectors.items() if text)})")
        return " ".join(parts)


class FailureLog:
    """Logs the failures of one watch. Not thread-safe."""

    def __init__(self, target: WatchTarget) -> None:
        self._target = target
        self._last = ""
        self._count = 0
        self._since = 0.0

    def failed(self, failure: Failed, now: float, delay: float) -> str:
        """Log `failure`, which happened at `now` and is followed by a wait of `delay` seconds. Returns the text."""
        text = self.describe(failure)
        if not self._count:
            self._since = now
        self._count += 1
        if text != self._last:
            error = failure.error
            unexpected = None if isinstance(error, KubeError) else error
            level = logging.INFO if isinstance(error, ApiError) and error.is_expired else logging.WARNING
            log.log(level, "%s; %s", text, _next(failure, delay), exc_info=unexpected)
        elif not failure.away or self._count & (self._count - 1) == 0:
            log.warning("cannot %s %s: still failing after %d failures in %.0f s; %s",
                        failure.verb, self._target, self._count, now - self._since, _next(failure, delay))
        self._last = text
        return text

    def succeeded(self, event: Event[Any], now: float) -> None:
        """Record that an event arrived. Only complete lists and changes count as success."""
        if self._count and not isinstance(event, Init | InitApply):
            log.info("%s: works again after %d failure%s in %.0f s", self._target, self._count,
                     "" if self._count == 1 else "s", now - self._since)
            self._count, self._last = 0, ""

    def describe(self, failure: Failed) -> str:
        """The text of a failure, such as `cannot list pods in namespace x: ... (403 Forbidden): grant ...`."""
        error = failure.error
        text = f"cannot {failure.verb} {self._target}: {self._said(error)}"
        remedy = self._remedy(failure)
        return f"{text}: {remedy}" if remedy else text

    def _said(self, error: Exception) -> str:
        if not isinstance(error, ApiError):
            return described(error)
        code = " ".join(part for part in (str(error.code or ""), error.reason) if part) or "no reason given"
        message = message_of(error.status).strip() if error.status.message else ""
        return f"{message} ({code})" if message else code

    def _remedy(self, failure: Failed) -> str:
        error, resource = failure.error, self._target.resource
        if not isinstance(error, ApiError):
            return ""
        if error.is_forbidden:
            return (f"grant the verb {failure.verb!r} on resource {resource.plural!r} of API group {resource.group!r} "
                    "to the user of this program (it needs list and watch)")
        if error.is_unauthorized:
            return "the credentials are not valid or have expired"
        if error.is_expired:
            return "the server's history no longer reaches back that far; listing everything again"
        return "this kind cannot be watched; changes are missed" if error.code == 405 else ""


def absent(target: WatchTarget, trouble: Exception) -> str:
    """The error text of a watch that waits for the server together with the other watches of its client."""
    return f"cannot watch {target}: the server does not answer: {described(trouble)}"


def _next(failure: Failed, delay: float) -> str:
    if failure.away:
        return f"one watch of this client tries every {PROBE_SECONDS:.0f} s until the server answers"
    if not delay:
        return "next attempt at once"
    asked = f" (the server asks for {failure.retry_after:.0f} s)" if failure.retry_after > MAX_RETRY_AFTER else ""
    return f"next attempt in {delay:.1f} s{asked}"


LOOK_SECONDS = 1.0
"""The longest time between two checks for whether the server is back."""
YIELD_SECONDS = 0.5
"""The extra wait of the watch that has just probed, so that each watch gets a turn."""
GENTLE_SECONDS = 60.0
"""A failure within this time after an outage is still part of the outage: servers refuse requests until they are ready.
"""


class ServerGate:
    """Keeps a watch from sending requests to an unreachable server. Only for the thread of its watch."""

    def __init__(self, reachability: Reachability, rng: random.Random) -> None:
        self._reachability = reachability
        self._rng = rng
        self._not_before = 0.0
        self._waits = False  # whether the watch has waited since its last answered request
        self._its_turn = False
        self._let_go = False  # whether the watch may send a request because another watch was answered
        self._over_since: float | None = None

    @property
    def trouble(self) -> Exception | None:
        """The error that makes the watch wait; None when it does not wait."""
        if not self._waits or self._its_turn:
            return None
        outage = self._reachability.outage
        return None if outage is None else outage.error

    @property
    def outage(self) -> Outage | None:
        """The present outage of the server, even if this watch does not wait for the server yet."""
        return self._reachability.outage

    def pause(self, now: float) -> float:
        """Seconds after which to call `pause` again. If the result is 0, the watch must send its request now."""
        outage = self._reachability.outage
        if outage is None:
            self._let_go = self._waits
            return 0.0
        first_look, self._waits = not self._waits, True
        self._its_turn = False
        if now >= self._not_before and outage.turn(now, self._rng.random) <= 0:
            self._its_turn = True
            return 0.0
        # The pause is random, so that the watches do not all send their first request after the outage at once.
        look = LOOK_SECONDS * self._rng.uniform(0.0 if first_look else 0.5, 1.0)
        return min(look, self._not_before - now) if now < self._not_before else look

    def failed(self, error: Exception, now: float) -> bool:
        """Record a failed request. Returns whether the watch now waits for the server, so that it needs no backoff."""
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
        """Record that the request was answered. The client itself has notified the shared `Reachability`."""
        if self._waits:
            self._over_since = now
        self._waits = self._its_turn = self._let_go = False

    def outage_is_over(self, now: float) -> bool:
        """Whether the watch has come out of an outage within the last minute. Returns True only once per outage."""
        since, self._over_since = self._over_since, None
        return since is not None and now - since < GENTLE_SECONDS


def is_unreachable(error: Exception) -> bool:
    """Whether a request reached no server: connection refused or reset before any answer, no route, unknown host name.

    False if no answer came in time (an overloaded server must not get more requests), if an answer broke off, if the
    certificate is not trusted, and if the client is closed.
    """
    if not isinstance(error, TransportError) or isinstance(error, RequestTimeout):
        return False
    failure: Any = getattr(error, "failure", None)
    return failure is None or not (failure.permanent or failure.answered)


T = TypeVar("T")

IDLE_PAUSE = 0.05
"""Seconds until a simulated transport that had nothing ready is read again."""

GENTLE_MAXIMUM = 2.0
"""The maximum of d (see `WatchBackoff`) in seconds while a server is still starting."""


@dataclass(frozen=True, slots=True)
class WatchBackoff:
    """How long a watch waits after failures: d grows from `initial` by `factor` up to `maximum`; waits are in [d, 2d).

    After `reset_after` seconds without a failure the count starts over. The defaults are client-go's. `maximum` bounds
    d, so with jitter a wait may take twice as long. Durations are seconds or `timedelta`; `jitter=False` waits exactly
    d (for tests). Raises RequestError for a number out of range.

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
        _ = self._rule  # raises RequestError for a number out of range
        if not seconds(self.reset_after) >= 0:
            raise RequestError(f"a backoff needs reset_after >= 0, not {self.reset_after}")

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first)."""
        return self._rule.delay(failures, rng)

    def gentle(self) -> WatchBackoff:
        """The shorter backoff for a server that has just become reachable again after an outage."""
        maximum = min(seconds(self.maximum), GENTLE_MAXIMUM)
        return replace(self, initial=min(seconds(self.initial), maximum), maximum=maximum)

    @property
    def _rule(self) -> Backoff:
        return Backoff(self.initial, self.factor, self.maximum, spread=1.0 if self.jitter else 0.0)


DEFAULT_BACKOFF = WatchBackoff()


class WatchFailures:
    """The failures of one watch. Not thread-safe."""

    def __init__(self, rule: WatchBackoff = DEFAULT_BACKOFF, *, rng: random.Random | None = None) -> None:
        """`rng` draws the jitter; pass a seeded generator to reproduce a run."""
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
        """Count a failure. Returns the seconds to wait from `now`, at least `at_least` (what the server asked for)."""
        if self.is_over(now):
            self._failures = 0
        self._failures += 1
        rule = self._rule.gentle() if now < self._gentle_until else self._rule
        delay = max(rule.delay(self._failures, self._rng), min(at_least, MAX_RETRY_AFTER))
        self._healthy_since = now + delay
        return delay

    def after(self, failure: Failed, now: float) -> float:
        """Count `failure`. Returns the seconds to wait from `now`, by the rules in the module's docstring."""
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
        """Whether the last failure is so old that the next one counts as the first."""
        return self._failures > 0 and now - self._healthy_since >= seconds(self._rule.reset_after)


def backoff(steps: Iterable[RawStep[T]], stop: StopToken, target: WatchTarget, rule: WatchBackoff = DEFAULT_BACKOFF, *,
            clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None,
            on_trouble: Callable[[str], None] = lambda _: None) -> Iterator[Event[T]]:
    """Pass on the events; after each `Failed`, log the failure and wait before pulling again. Ends when `stop` is set.

    `target` is the watch's name in the log. `on_trouble` gets the logged text of a failure before the wait, and an
    empty text when the watch works again. Closing the generator closes `steps`.
    """
    state, failures, troubled = WatchFailures(rule, rng=rng), FailureLog(target), False
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
