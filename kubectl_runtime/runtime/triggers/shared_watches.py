"""`SharedWatches`: users of one client that need the same watch share it.

    take      makes a watch or joins an existing watch; each user gets a `Share` of the watch
    start     the first user's call starts the thread; a simulation steps the watch itself
    release   removes the user's subscriptions; the last user's release stops the watch

Two watches are the same if they agree in kind, namespace, selectors, stored form (whole objects, metadata or a view),
freshness of the first list, `modify` (compared with `==`), backoff and observer. The class of the objects must be the
same too if it affects what is stored. Page size, timeout and bookmarks come from the first user.
`WatcherConfig(shared=False)` makes a separate watch. All users share the watch's thread: a subscriber that takes longer
than 100 ms for an event is named in the log.

`Watch`: one watched resource: its requests, its store and its subscriptions. `step` advances the watch.

    phase       what `step` does                                   returns
    listing     reads one page                                     0
    watching    reads the next events (blocks until events         0; None when a simulated transport has nothing ready
                arrive or the stop token is set)
    waiting     nothing until the wait is over, or until the       the seconds until `step` must be called again
                server answers
    stopped     nothing                                            None

Each step first writes the store, then notifies the subscriptions, then updates the visible state. After each of these
three actions the observer is notified, once per batch. Writes of the client update the store in the thread that wrote.
A late subscription first gets an `Apply` of every stored object and `InitDone`, then all later events, without
duplicates or gaps, since the store and its observers change under one lock.

`WatchedWrites` passes the client's writes to the store's overlay, so that reads of the store return them at once.

Safe to use from any thread; no lock is held while user code runs.
"""
from __future__ import annotations

import random
import threading
from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kubectl_runtime.client.api.selected import SelectedNamespaces
from kubectl_runtime.client.http.send import PROBE_SECONDS
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import GuardedLogger, guarded, guarded_logger, name_of
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Thread, renewed_in_children, seconds
from kubectl_runtime.core.codec.views import Modify, Record
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.core.requests.params import IDLE_MARGIN
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.store.overlay import Written
from kubectl_runtime.runtime.store.reflector import Commit, Reflector, StoreWriter
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.namespaces_driver import NamespacesDriver
from kubectl_runtime.runtime.triggers.triggers import Sink, Subscriber, Subscription
from kubectl_runtime.runtime.watch.backoff import IDLE_PAUSE, FailureLog, WatchFailures, WatchTarget, absent
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.driver import Modifier, Verifier, WatchDriver, modifier_of, reader_of, validated
from kubectl_runtime.runtime.watch.event import INIT_DONE, Apply, Event, Failed, Init
from kubectl_runtime.runtime.watch.states import (
    Listed,
    Listing,
    Phase,
    Streaming,
    WatchApi,
    Watching,
    WatchState,
    as_configured,
)

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

class WatchedWrites:
    """Passes the writes of this process to the store of one watch. `listen` and `close` are for the watch's thread; the
    rest is safe to use from any thread."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, modify: Modifier | None,
                 writer: StoreWriter[Any], admits: Callable[[str | None], bool] | None = None) -> None:
        """`api`: the Api in the form that is stored. `admits(namespace)`: whether the store may hold objects of this
        namespace; without `admits`, every namespace of `api` counts."""
        self._admits = admits
        self._written = Written(api, config, modify)
        self._writer = writer
        self._client = api.client
        self._forget: Callable[[], None] | None = None
        self.deaf = False
        """Set in a forked child process, where no watch would ever confirm a write."""

    def listen(self) -> None:
        """Begin to observe writes. Safe to repeat."""
        if self._forget is None:
            self._forget = self._client.on_write(self._was_written)

    def close(self) -> None:
        """Stop observing writes."""
        if self._forget is not None:
            self._forget()

    def _was_written(self, write: Write) -> None:
        admits = self._admits
        if self.deaf or (admits is not None and not admits(write.ref.namespace)):
            return
        own = self._written.entry(write)
        if own is None:
            return
        unseen, observers = self._writer.wrote(write.ref.key, own)
        if unseen is not None:
            for observer in observers:
                observer.deliver(partial(self._writer.deletion, unseen))


log = guarded_logger(__name__)

K = TypeVar("K")

ELSEWHERE = "it runs in the process that this one was forked from"

FAILURES = 3
"""This many failures in a row mean more than a lost connection: with the default backoff, the watch has then failed for
about five seconds."""

SLACK = 120.0
"""Seconds that a step may take in addition to the longest silence of a watch (295 s by default): twice the deadline of
a call, for requesting a page or processing a batch."""


class Watch(Generic[K]):
    """One watched resource. Only one thread at a time may call `step` or `run`; the rest is thread-safe."""

    def __init__(self, api: WatchApi[K], config: WatcherConfig = DEFAULT_CONFIG, *, stop: StopToken,
                 relist_triggers: bool = False, modify: Modify | None = None, clock: Clock = SYSTEM_CLOCK,
                 rng: random.Random | None = None, name: str | None = None,
                 observer: Observer = NO_OBSERVER) -> None:
        """Make the watch; requests begin with `step`. `modify` prunes each object before it is stored; `rng` draws all
        jitter. With `config.fields`, views are stored. Raises RequestError for views that cannot be kept or modified.

        `observer` must not raise; it is notified under the watch's `name` (default: a description of the target).
        """
        rng = rng or random.Random()
        api = as_configured(api, config)
        self.target = WatchTarget.of(api, config)
        self._name = name or str(self.target)
        self._observer = observer
        self.stop = stop
        self._clock = clock
        self._read = reader_of(api.kind)
        self._modify = modifier_of(modify, api.kind, clock)
        self._validate = config.validate
        self._backoff = WatchFailures(config.failure_backoff, rng=rng)
        self._failures = FailureLog(self.target)
        self._writer: StoreWriter[K] = StoreWriter(api.resource, self._read, clock=clock)
        self._relist_triggers = relist_triggers
        self._reflector = Reflector(self._writer, relist_triggers=relist_triggers)
        self._driver: WatchDriver | NamespacesDriver
        if isinstance(api, SelectedNamespaces):
            self._driver = driver = NamespacesDriver(api, config, stop, clock, rng, shared_watches(api).take,
                                                     self._writer.states)
            admits: Callable[[str | None], bool] | None = driver.admits
        else:
            verifier = None if config.verify is None else Verifier(
                api, config, seconds(config.verify), self._writer.held, stop, clock.monotonic())
            self._driver, admits = WatchDriver(api, config, stop, clock, rng, verifier), None
        self._config = config
        self.writes = WatchedWrites(api, config, self._modify, self._writer, admits)
        self._on_undivided: tuple[Callable[[], None], ...] | None = ()
        """Called when the server turns out to ignore `config.shard`; None after that."""
        self._hooks = threading.Lock()
        self._resume_at = 0.0
        self._relists = -1  # the first complete list does not count
        self._list_began = 0.0
        self._mark: int | None = None
        self._notified_phase: Phase | None = None
        self.store: Store[K] = self._writer.store
        self.stored = self._writer.state
        """The state of the store, from which users of the watch make further stores."""
        self._state = WatchState(since=clock.monotonic())
        self._longest_step = seconds(config.timeout) + IDLE_MARGIN + SLACK
        self._step_since: float | None = None
        self._failure: Exception | None = None
        """The error of the last attempt, if the attempt failed."""
        self._on_failure: dict[object, Callable[[Exception], None]] = {}
        """Replaced as a whole, never changed in place."""
        self._writer.watched(lambda: self._state)
        renewed_in_children(self)

    def renew(self) -> None:
        """In a forked child process, mark the watch as the parent's. The child must neither step nor close the watch:
        closing it would end the connection that both processes share."""
        self.writes.deaf = True
        self.stored.ended = self.stored.ended or ELSEWHERE
        self._state = msgspec.structs.replace(self._state, phase=Phase.STOPPED, last_error=ELSEWHERE)

    @property
    def state(self) -> WatchState:
        """The state of the watch as of the last step, with its last error."""
        return self._state

    def covers(self, namespace: str | None) -> bool:
        """Whether the store, once complete, has all objects of this namespace that match the other selectors."""
        return not isinstance(self._driver, NamespacesDriver) or self._driver.covers(namespace)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The current namespaces, if the watch has a changing set of them; None if they are not known."""
        return self._driver.names if isinstance(self._driver, NamespacesDriver) else None

    def when_left(self, callback: Callable[[frozenset[str]], object]) -> None:
        """Call `callback` with the namespaces that are removed from a changing set, before their objects are removed
        from the store. The callback runs in the watch's thread and must neither block nor raise."""
        if isinstance(self._driver, NamespacesDriver):
            self._driver.when_left(callback)

    @property
    def late(self) -> float:
        """The seconds by which the step in progress exceeds the longest possible request or silence; 0 if no step is
        overdue. An overdue step means that the thread is stuck, most likely in a subscription."""
        since = self._step_since
        return 0.0 if since is None else max(0.0, self._clock.monotonic() - since - self._longest_step)

    @property
    def trouble(self) -> str:
        """Why the watch does not work, as text; empty while it works.

        The watch does not work after `FAILURES` failures in a row. While the server is unreachable, the failures of all
        watches of the client count, even if this watch still has an open connection.
        """
        state, outage = self._state, self._driver.outage
        failures, error = state.consecutive_failures, state.last_error
        if outage is not None and outage.failures > failures:
            failures, error = outage.failures, error or absent(self.target, outage.error)
        return f"has failed {failures} times in a row: {error}" if failures >= FAILURES else ""

    @property
    def stopped(self) -> bool:
        """Whether the watch has ended permanently."""
        return self._state.phase is Phase.STOPPED

    def subscribe(self, subscription: Subscription, sink: Sink, on_complete: Callable[[], None] = lambda: None, *,
                  read: Callable[[Record], Any] | None = None,
                  logger: GuardedLogger | None = None) -> Callable[[], None]:
        """Pass events through `subscription`, and its requests to `sink`; returns a function that unsubscribes.

        Before the call returns, the calling thread passes on the objects that are already stored. `on_complete` is
        called whenever a list is complete, and at once if the store is complete already; it must neither block nor
        raise. `read` makes the objects that `subscription` gets (default: those of the Api's class). `logger` is as for
        `Subscriber`. Raises RequestError if the watch has stopped, since no event would ever come.
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
        except BaseException:  # Ctrl-C: the caller does not get the function that unsubscribes
            unsubscribe()
            raise
        return unsubscribe

    def when_undivided(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the server has sent objects outside the ranges of `config.shard`; at once if it already
        has. The callback runs in the watch's thread and must neither block nor raise. For internal use."""
        with self._hooks:
            if self._on_undivided is not None:
                self._on_undivided = (*self._on_undivided, callback)
                return
        callback()

    def _notify_undivided(self) -> None:
        with self._hooks:
            callbacks, self._on_undivided = self._on_undivided or (), None
        for callback in callbacks:
            callback()

    def on_failure(self, callback: Callable[[Exception], None]) -> Callable[[], None]:
        """Call `callback` with the error of each failed attempt, in the watch's thread; also at once if the last
        attempt failed. Returns a function that ends the calls. The callback must neither block nor raise."""
        key = object()
        self._on_failure = {**self._on_failure, key: callback}
        if (failure := self._failure) is not None:
            callback(failure)

        def forget() -> None:
            self._on_failure = {other: known for other, known in self._on_failure.items() if other is not key}

        return forget

    def step(self) -> float | None:
        """Make one step, as in the table of the module's docstring. Raises nothing: an exception becomes a failure of
        the watch, which is logged and visible in `state`."""
        if self.stop.is_set():
            self._finish()
            return None
        now = self._clock.monotonic()
        if now < self._resume_at:
            return self._resume_at - now
        if self._notified_phase is None:
            self._notify_phase(now)
        self.writes.listen()  # before the first list begins, because the list may lack later writes
        try:
            return self._advance(now)
        except Exception as error:  # a defect of this library must not end the watch either
            log.exception("%s: internal error; listing and triggering everything again", self.target)
            self._driver.restart()
            self._reflector = Reflector(self._writer, relist_triggers=self._relist_triggers,
                                        undelivered=self._reflector.undelivered())
            return self._failed(Failed(error), self._clock.monotonic())

    def run(self) -> None:
        """Call `step` until the stop token is set. Blocks."""
        if isinstance(self._driver, NamespacesDriver):
            self._driver.threaded = True
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
        if isinstance(before, Listing | Listed):  # this step sends a request, perhaps for a list
            cached = isinstance(before, Listing) and before.first and self._config.list_semantic is ListSemantic.ANY
            self._mark = None if cached else self._writer.mark()
        out, wait, frame = self._driver.advance()
        failure = out.pop() if out and isinstance(out[-1], Failed) else None
        if out:
            self._publish(out, began)  # type: ignore[arg-type]  # a failure is always the last output of a step
        elif frame and (version := self._version):
            self._deliver(self._reflector.commits([], version))
        if self._driver.unasked and self._on_undivided is not None:
            self._notify_undivided()
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
            self._observer.list_completed(self._name, len(self.stored.records), self._relists, took)
        if self._state.consecutive_failures:
            self._failures.succeeded(last, self._clock.monotonic())

    def _deliver(self, commits: list[Commit]) -> None:
        if commits:
            self._observer.store_changed(self._name, len(self.stored.records))
            self._observer.store_sized(self._name, self.stored.bytes)
        for commit in commits:
            for observer in commit.observers:
                observer.deliver(commit.changes, by_watch=True)
                if commit.completes:
                    observer.complete()

    @property
    def _version(self) -> str:
        """The version that the driver has reached. Once its output is stored, the store is at this version."""
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
        if self._notified_phase is not Phase.WAITING:
            self._notify_phase(now)
        self._failure = failure.error
        for callback in self._on_failure.values():
            callback(failure.error)
        return delay

    def _update(self, now: float, *, arrived: bool) -> None:
        old = self._state
        trouble = None if arrived else self._driver.server_trouble
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
        if healed:
            self._failure = None
        if healed and old.last_error:
            self._writer.trouble("")
        if phase is not self._notified_phase:
            self._notify_phase(now)

    def _wait_for_server(self, trouble: Exception, now: float) -> None:
        """Record that the watch waits for the server, possibly after a failure of another watch of this client."""
        old, outage = self._state, self._driver.outage
        failures = max(old.consecutive_failures, 0 if outage is None else outage.failures)
        if old.phase is Phase.WAITING and old.last_error and failures == old.consecutive_failures:
            return
        text = old.last_error or absent(self.target, trouble)
        self._writer.trouble(text)
        since = old.since if old.phase is Phase.WAITING else now
        self._state = msgspec.structs.replace(old, phase=Phase.WAITING, since=since, last_error=text,
                                              consecutive_failures=failures)
        if failures > old.consecutive_failures:  # another watch's attempt failed, which counts for all watches
            self._observer.watch_failed(self._name, trouble, failures, PROBE_SECONDS)
        if self._notified_phase is not Phase.WAITING:
            self._notify_phase(now)

    def _finish(self) -> None:
        if not self.stopped:
            self.writes.close()
            self._driver.close()
            self._writer.end(self.stop.reason or "stopped")
            now = self._clock.monotonic()
            self._state = msgspec.structs.replace(self._state, phase=Phase.STOPPED, since=now)
            self._notify_phase(now)

    def _notify_phase(self, now: float) -> None:
        self._notified_phase = phase = self._state.phase
        self._observer.watch_phase_changed(self._name, phase, now)


_HOW_ONLY = frozenset(("page_size", "timeout", "bookmarks", "shared", "fields", "backoff"))
"""Options of a `WatcherConfig` that two users of one watch need not have in common, and two that are compared in
another way: `fields` by `form_of`, `backoff` by `failure_backoff`."""

OnBug = Callable[[str, BaseException], None]
"""Called with the name of a watch and the error, if a defect ended the watch's thread."""


class _Held:
    """A watch and its users. The registry's lock guards everything."""

    def __init__(self, key: Hashable, modify: Modify | None, watch: Watch[Any]) -> None:
        self.key = key
        self.modify = modify
        self.watch = watch
        self.users: dict[object, OnBug] = {}
        self.thread: threading.Thread | None = None


class SharedWatches:
    """The watches of one client, and of the clients derived from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Guards this registry and the state of its shares."""
        self._held: list[_Held] = []
        self.elsewhere = False
        """Set in a forked child process, where no watch of this registry runs."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Make new locks, and leave the parent's watches alone. Only for a forked child process, where clients start
        with a new registry."""
        self.lock, self._held, self.elsewhere = threading.Lock(), [], True

    def __len__(self) -> int:
        """How many watches there are."""
        return len(self._held)

    def take(self, api: WatchApi[Any], config: WatcherConfig = DEFAULT_CONFIG, *,
             modify: Modify | None = None, clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None,
             name: str | None = None, observer: Observer = NO_OBSERVER,
             on_bug: OnBug = lambda _what, _error: None) -> Share:
        """Return a share of a watch with these arguments (see `Watch`). Makes the watch if needed; sends no request."""
        key = (selection_of(api, config), form_of(api, config, modify), id(clock), observer)
        made: _Held | None = None
        while True:
            with self.lock:
                known = [held for held in self._held if config.shared and held.key == key]
            # Compare outside the lock, because `modify` may be an object whose `==` is user code.
            joined = next((held for held in known if _same(held.modify, modify)), None)
            if joined is None and made is None:
                watch = Watch(api, config, stop=StopToken(clock=clock), modify=modify, clock=clock, rng=rng,
                              name=name, observer=observer)
                made = _Held(key, modify, watch)
            with self.lock:
                if joined is not None:
                    if not joined.users or joined.watch.stop.is_set():
                        continue
                    held = joined
                elif config.shared and any(held.key == key and held not in known for held in self._held):
                    continue  # another thread was faster, and its watch may be the same
                else:
                    assert made is not None
                    held = made
                    if config.shared:
                        self._held.append(held)
                share = Share(self, held)
                held.users[share] = on_bug
                return share

    def start(self, held: _Held) -> None:
        """Start a thread for this watch, if it has none. Raises RuntimeError if no more threads can be started."""
        with self.lock:
            if held.thread is not None or self.elsewhere:
                return
            thread = Thread(target=self._run, args=(held,), name=f"watch {held.watch.target}", daemon=True)
            thread.start()
            held.thread = thread

    def _run(self, held: _Held) -> None:
        try:
            held.watch.run()
        except BaseException as error:  # noqa: BLE001 - the watch's users must be notified that it ended
            with self.lock:
                self._held = [other for other in self._held if other is not held]
                users = [*held.users.values()]
            held.watch.stop.set("a defect ended it")
            for on_bug in users:
                guarded(None, "the report of a defect", on_bug, f"watch {held.watch.target}", error)

    def release(self, held: _Held, share: object, reason: str) -> None:
        """Release the watch: this user no longer needs it."""
        with self.lock:
            held.users.pop(share, None)
            last = not held.users and not self.elsewhere
            if last:
                self._held = [other for other in self._held if other is not held]
        if last:
            held.watch.stop.set(reason)
            held.watch.stored.end(reason)  # a watch that was never started does not end its store itself


class Share:
    """One user's part of a watch. Safe to use from any thread."""

    def __init__(self, registry: SharedWatches, held: _Held) -> None:
        self._registry = registry
        self._held = held
        self._undo: dict[object, Callable[[], None]] = {}
        self._released = False
        self.watch: Watch[Any] = held.watch

    @property
    def thread(self) -> threading.Thread | None:
        """The watch's thread, if it was started."""
        return self._held.thread

    @property
    def has_ended(self) -> bool:
        """Whether the user has released the watch and, if it had no other user, the watch has stopped."""
        return self._released and (not self.watch.stop.is_set() or self.watch.stopped)

    @property
    def ends(self) -> bool:
        """Whether the watch is ending because its last user has released it, so that its thread may be joined."""
        return self.watch.stop.is_set()

    def start(self) -> None:
        """Start a thread for the watch, if it has none."""
        self._registry.start(self._held)

    def subscribe(self, subscription: Subscription, sink: Sink, on_complete: Callable[[], None] = lambda: None, *,
                  read: Callable[[Record], Any] | None = None,
                  logger: GuardedLogger | None = None) -> Callable[[], None]:
        """Like `Watch.subscribe`, until `release`."""
        return self._until_release(
            self.watch.subscribe(subscription, sink, on_complete, read=read, logger=logger))

    def on_failure(self, callback: Callable[[Exception], None]) -> Callable[[], None]:
        """Like `Watch.on_failure`, until `release`."""
        return self._until_release(self.watch.on_failure(callback))

    def release(self, reason: str = "its last user has ended") -> None:
        """End this user's part. Does not block; safe to repeat. The stored objects stay."""
        with self._registry.lock:
            if self._released:
                return
            self._released = True
            undo, self._undo = self._undo, {}
        for function in undo.values():
            function()
        self._registry.release(self._held, self, reason)

    def _until_release(self, function: Callable[[], None]) -> Callable[[], None]:
        """Make `release` call `function`. Returns a function that calls `function` at once, so that `release`
        no longer does."""
        key = object()
        with self._registry.lock:
            released = self._released
            if not released:
                self._undo[key] = function
        if released:
            function()

        def end() -> None:
            with self._registry.lock:
                undo = self._undo.pop(key, None)
            if undo is not None:
                undo()

        return end


def shared_watches(api: WatchApi[Any]) -> SharedWatches:
    """The registry of this Api's client."""
    return api.client.shared.get(SharedWatches)


def selection_of(api: WatchApi[Any], config: WatcherConfig) -> Hashable:
    """The part of a watch's key besides its form: the selection, the freshness of the first list, and the backoff."""
    options = tuple((option.name, str(getattr(config, option.name) or "") if option.name.endswith("_selector")
                     else getattr(config, option.name)) for option in fields(config) if option.name not in _HOW_ONLY)
    chosen = api.selection if isinstance(api, SelectedNamespaces) else None
    return api.resource, api.namespace, chosen, config.failure_backoff, options


def form_of(api: WatchApi[Any], config: WatcherConfig, modify: Modify | None) -> Hashable:
    """The form in which objects are stored. It includes the Api's class only if `modify` or a validation uses the
    class."""
    form = as_configured(api, config).form
    view = form.view if isinstance(form, FieldsForm) else None
    looks = modify is not None or config.validate
    return is_metadata_only(api), view, api.kind if looks else None


def is_metadata_only(api: WatchApi[Any]) -> bool:
    """Whether the Api requests only metadata."""
    return api.place.metadata_only


def is_whole(api: WatchApi[Any], config: WatcherConfig) -> bool:
    """Whether the watch delivers whole objects, which also serve users that need only a part."""
    return not is_metadata_only(api) and not isinstance(as_configured(api, config).form, FieldsForm)


def _same(one: Modify | None, other: Modify | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return bool(guarded(False, lambda *_: f"{name_of(one)}.__eq__", lambda: one == other))
