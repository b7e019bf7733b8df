"""`Watch`: one watched resource, from the requests to the store and the subscriptions. `step` moves it on.

    phase       what `step` does                                   returns
    listing     reads one page                                     0
    watching    reads what has arrived (blocks until something     0; None when a simulated transport has nothing ready
                has, or the stop token is set)
    waiting     nothing before its time, or before the server      the seconds until it has to be called again
                answers
    stopped     nothing                                            None

A thread calls it in a loop (`run`); a simulation calls it when it likes. The order in each step is: store,
then the subscriptions, then the visible state; the observer is told of each thing when it is done, once for a batch.
Writes of the Api's client come between, in whichever thread made them: the store is told what readers have to see. A
subscription that comes late first gets an `Apply` of every stored object and `InitDone`, then everything after that,
nothing twice and nothing lost: what is stored and who observes it change under one lock.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_runtime.client.http.reachability import PROBE_SECONDS
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guarded_log import GuardedLogger, guarded_logger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.prune import Modify
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.interpreter.forks import renewed_in_children
from kubectl_runtime.core.requests.params import IDLE_MARGIN
from kubectl_runtime.runtime.reflector.reflector import Commit, Reflector
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.reflector.store_writer import StoreWriter
from kubectl_runtime.runtime.triggers.subscribers import Subscriber
from kubectl_runtime.runtime.triggers.triggers import Sink, Subscription
from kubectl_runtime.runtime.triggers.watched_writes import WatchedWrites
from kubectl_runtime.runtime.watcher.event import INIT_DONE, Apply, Event, Failed, Init
from kubectl_runtime.runtime.watcher.failure_log import FailureLog, WatchTarget, absent
from kubectl_runtime.runtime.watcher.readers import modifier_of, reader_of, validated
from kubectl_runtime.runtime.watcher.verifier import Verifier
from kubectl_runtime.runtime.watcher.watch_api import WatchApi, as_configured
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, IDLE_PAUSE, Backoff, WatchBackoff
from kubectl_runtime.runtime.watcher.watch_driver import WatchDriver
from kubectl_runtime.runtime.watcher.watch_state import Phase, WatchState
from kubectl_runtime.runtime.watcher.watch_states import Listed, Listing, Streaming, Watching
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, ListSemantic, WatcherConfig

log = guarded_logger(__name__)

K = TypeVar("K")

ELSEWHERE = "it runs in the process that this one was forked from"

FAILURES = 3
"""This number in a row is more than a lost connection: with the default backoff, a watch that has not worked for some
five seconds."""

SLACK = 120.0
"""Seconds that a step may take above the longest silence of a watch (295 s by default): twice the deadline of a call,
for the request of a page, or for what is done with what came."""


class Watch(Generic[K]):
    """One watched resource. `step` and `run` are for one thread at a time; all else is safe to use from any thread."""

    def __init__(self, api: WatchApi[K], config: WatcherConfig = DEFAULT_CONFIG, *, stop: StopToken,
                 backoff: WatchBackoff = DEFAULT_BACKOFF, relist_triggers: bool = False, modify: Modify | None = None,
                 clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None, name: str | None = None,
                 observer: Observer = NO_OBSERVER) -> None:
        """Nothing is requested yet. `modify` prunes each object before it is stored; `rng` draws all jitter. With
        `config.fields`, what is stored are the views. Raises RequestError for those that cannot be kept or modified.

        `observer`, which raises nothing, is told of the watch by its `name` (by default what it watches, in words).
        """
        rng = rng or random.Random()
        given, api = api, as_configured(api, config)
        self.target = WatchTarget(api.resource, api.namespace, config.label_text, config.field_text)
        self._name = name or str(self.target)
        self._observer = observer
        self.stop = stop
        self._clock = clock
        self._read = reader_of(api.kind)
        self._modify = modifier_of(modify, api.kind, clock)
        self._validate = config.validate
        self._backoff = Backoff(backoff, rng=rng)
        self._failures = FailureLog(self.target)
        self._writer: StoreWriter[K] = StoreWriter(api.resource, self._read, clock=clock)
        self._relist_triggers = relist_triggers
        self._reflector = Reflector(self._writer, relist_triggers=relist_triggers)
        verifier = None if config.verify is None else Verifier(
            given, config, seconds(config.verify), self._writer.held, stop, clock.monotonic())
        self._driver = WatchDriver(api, config, stop, clock, rng, verifier)
        self._config = config
        self.writes = WatchedWrites(api, config, self._modify, self._writer)
        self._resume_at = 0.0
        self._relists = -1  # the first complete list is none
        self._list_began = 0.0
        self._mark: int | None = None
        self._phase_told: Phase | None = None
        self.store: Store[K] = self._writer.store
        self.stored = self._writer.state
        """What it keeps, for further stores of its users."""
        self._state = WatchState(since=clock.monotonic())
        self._longest_step = seconds(config.timeout) + IDLE_MARGIN + SLACK
        self._step_since: float | None = None
        self._writer.watched(lambda: self._state)
        renewed_in_children(self)

    def renew(self) -> None:
        """In the child of a fork nothing moves it, and to close it would end the connection that both share. For that
        child alone."""
        self.writes.deaf = True
        self.stored.ended = self.stored.ended or ELSEWHERE
        self._state = msgspec.structs.replace(self._state, phase=Phase.STOPPED, last_error=ELSEWHERE)

    @property
    def state(self) -> WatchState:
        """What the watch does, since when, and its error, as of the last step."""
        return self._state

    @property
    def late(self) -> float:
        """Since how many seconds the step in progress takes longer than a request or a silent watch may; else 0. Then
        its thread is stuck: in a subscription, most likely."""
        since = self._step_since
        return 0.0 if since is None else max(0.0, self._clock.monotonic() - since - self._longest_step)

    @property
    def trouble(self) -> str:
        """Why the watch does not work, for people: it, or the attempts of all watches while the server is away, failed
        `FAILURES` times in a row. Empty while it works. An outage counts for a watch that still holds an open
        connection, too: nothing comes on it any more."""
        state, outage = self._state, self._driver.outage
        failures, error = state.consecutive_failures, state.last_error
        if outage is not None and outage.failures > failures:
            failures, error = outage.failures, error or absent(self.target, outage.error)
        return f"has failed {failures} times in a row: {error}" if failures >= FAILURES else ""

    @property
    def stopped(self) -> bool:
        """Whether the watch has ended for good."""
        return self._state.phase is Phase.STOPPED

    def subscribe(self, subscription: Subscription, sink: Sink, on_complete: Callable[[], None] = lambda: None, *,
                  read: Callable[[Record], Any] | None = None,
                  logger: GuardedLogger | None = None) -> Callable[[], None]:
        """From now on pass what the watch sees through `subscription` and the requests to `sink`; returns how to end
        that.

        What is stored already is passed through before this returns, by the calling thread. `on_complete` is called
        whenever the store holds a complete list, and now if it does already. It must neither block nor raise.
        `read` makes what `subscription` gets of a record, if not objects of the Api's class; `logger` as `Subscriber`
        says. Raises RequestError when the watch has stopped: nothing would ever come.
        """
        if self.stopped:
            why = self.stored.ended or "its token was set"
            raise RequestError(f"{self.target}: the watch has stopped ({why}), so nothing can be subscribed to")
        subscriber = Subscriber(subscription, sink, read or self._read, self._clock, self.stop, on_complete, logger)

        def unsubscribe() -> None:
            subscriber.cancel()
            self._writer.detach(subscriber)

        ready, records = self._writer.attach(subscriber)
        try:
            subscriber.begin([*map(Apply, records), INIT_DONE] if ready else [])
            if ready:
                on_complete()
        except BaseException:  # the person at the keyboard: nobody gets what would end it
            unsubscribe()
            raise
        return unsubscribe

    def step(self) -> float | None:
        """Do the next thing; see the table. Raises nothing: what goes wrong is a failure of the watch, logged and
        visible."""
        if self.stop.is_set():
            self._finish()
            return None
        now = self._clock.monotonic()
        if now < self._resume_at:
            return self._resume_at - now
        if self._phase_told is None:
            self._tell_phase(now)
        self.writes.listen()  # before the first list: what is written earlier is in it
        try:
            return self._advance(now)
        except Exception as error:  # a fault of this library must not end the watch either
            log.exception("%s: internal error; everything is listed and triggered again", self.target)
            self._driver.restart()
            self._reflector = Reflector(self._writer, relist_triggers=self._relist_triggers,
                                        untold=self._reflector.untold())
            return self._failed(Failed(error), self._clock.monotonic())

    def run(self) -> None:
        """Step until the stop token is set. Blocks."""
        while not self.stopped:
            self._step_since = self._clock.monotonic()
            wait = self.step()
            self._step_since = None
            if wait is None and not self.stopped:
                wait = IDLE_PAUSE
            if wait:
                self.stop.wait(wait)

    def _advance(self, began: float) -> float | None:
        before = self._driver.state
        if isinstance(before, Listing | Listed):  # this step makes a request: of a list, it may be
            cached = getattr(before, "first", False) and self._config.list_semantic is ListSemantic.ANY
            self._mark = None if cached else self._writer.mark()
        out, wait, frame = self._driver.advance()
        failure = out.pop() if out and isinstance(out[-1], Failed) else None
        if out:
            self._publish(out, began)  # type: ignore[arg-type]  # a failure is always the last output of a step
        elif frame and (version := self._version):
            self._deliver(self._reflector.commits([], version))
        now = self._clock.monotonic()
        if frame:
            self._observer.frame_arrived(self._name, frame, now)
        if failure is not None:
            return self._failed(failure, now)  # type: ignore[arg-type]  # as above
        if self.stop.is_set():
            self._finish()
            return None
        self._update(now, arrived=wait == 0)
        return wait

    def _publish(self, events: list[Event[Record]], began: float) -> None:
        if isinstance(events[0], Init):
            self._list_began = began
            self._reflector.list_begins(self._mark)
        if self._validate:
            events = [validated(event, self._read) for event in events]
        if self._modify is not None:
            events = [self._modify(event) for event in events]
        self._deliver(self._reflector.commits(events, self._version))
        last = events[-1]
        if last is INIT_DONE:
            self._relists += 1
            took = self._clock.monotonic() - self._list_began
            self._observer.list_completed(self._name, len(self._writer.records()), self._relists, took)
        if self._state.consecutive_failures:
            self._failures.succeeded(last, self._clock.monotonic())

    def _deliver(self, commits: list[Commit]) -> None:
        if commits:
            self._observer.store_changed(self._name, len(self._writer.records()))
        for commit in commits:
            for observer in commit.observers:
                assert isinstance(observer, Subscriber)
                observer.deliver(commit.changes, by_watch=True)
                if commit.completes:
                    observer.complete()

    @property
    def _version(self) -> str:
        """What the driver has reached: all up to it is stored, once what it gave out is."""
        state = self._driver.state
        return state.version if isinstance(state, Listed | Watching) else ""

    def _failed(self, failure: Failed, now: float) -> float:
        delay = self._backoff.after(failure, now)
        text = self._failures.failed(failure, now, delay)
        self._writer.trouble(text)
        self._resume_at = now + delay
        old = self._state
        outage = self._driver.outage if failure.away else None
        failures = max(old.consecutive_failures + 1, 0 if outage is None else outage.failures)
        self._state = WatchState(Phase.WAITING, now, text, failures, old.last_event, max(0, self._relists))
        self._observer.watch_failed(self._name, failure.error, failures, PROBE_SECONDS if failure.away else delay)
        if self._phase_told is not Phase.WAITING:
            self._tell_phase(now)
        return delay

    def _update(self, now: float, *, arrived: bool) -> None:
        old = self._state
        trouble = self._driver.server_trouble
        if trouble is not None:
            self._wait_for_server(trouble, now)
            return
        listing = isinstance(self._driver.state, Listing | Streaming)
        phase = Phase.LISTING if listing else Phase.WATCHING
        since = old.since if phase is old.phase else now
        healed = arrived and not listing
        error, failures = ("", 0) if healed else (old.last_error, old.consecutive_failures)
        seen = now if arrived else old.last_event
        self._state = WatchState(phase, since, error, failures, seen, max(0, self._relists))
        if healed and old.last_error:
            self._writer.trouble("")
        if phase is not self._phase_told:
            self._tell_phase(now)

    def _wait_for_server(self, trouble: Exception, now: float) -> None:
        """The watch waits, maybe without a failure of its own: that of another one of this client was enough."""
        old, outage = self._state, self._driver.outage
        failures = max(old.consecutive_failures, 0 if outage is None else outage.failures)
        if old.phase is Phase.WAITING and old.last_error and failures == old.consecutive_failures:
            return
        text = old.last_error or absent(self.target, trouble)
        self._writer.trouble(text)
        since = old.since if old.phase is Phase.WAITING else now
        self._state = msgspec.structs.replace(old, phase=Phase.WAITING, since=since, last_error=text,
                                              consecutive_failures=failures)
        if failures > old.consecutive_failures:  # an attempt of one watch is made for all
            self._observer.watch_failed(self._name, trouble, failures, PROBE_SECONDS)
        if self._phase_told is not Phase.WAITING:
            self._tell_phase(now)

    def _finish(self) -> None:
        if not self.stopped:
            self.writes.close()
            self._driver.close()
            self._writer.end(self.stop.reason or "stopped")
            now = self._clock.monotonic()
            self._state = msgspec.structs.replace(self._state, phase=Phase.STOPPED, since=now)
            self._tell_phase(now)

    def _tell_phase(self, now: float) -> None:
        self._phase_told = phase = self._state.phase
        self._observer.watch_phase_changed(self._name, phase, now)
