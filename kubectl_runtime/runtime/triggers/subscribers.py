"""`Subscriber`: one subscription of a watch, and where its requests go.

    idle         deliver(changes): the calling thread works through them
    delivering   deliver(changes): queued; the thread that is at work takes them next. The watch's thread takes its
                 place, once it has worked through what it came with: another thread would never come to an end while
                 changes come faster than they are worked through, and the watch has to be held up then

So each subscription sees all changes in order and one at a time, whichever threads bring them: the watch's own, and
for the objects that were stored before it came, the one that subscribed. No lock is held while user code runs. What
user code raises is reported, and the next event follows; code that takes longer than 100 ms is named in the log,
since it holds up the watch. Ctrl-C in the main thread, which brings changes when it subscribes and when it deletes,
passes: a thread that is begun for it goes on with the event that was interrupted.
"""
from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.guarded_log import GuardedLogger, ProcessEnded, guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.triggers.triggers import OfHeads, ReconcileRequest, Sink, Subscription
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import INIT, Event, obj_of, with_obj

log = guarded_logger(__name__)

SLOW_SECONDS = 0.1
"""User code in a watch's thread that takes longer is logged by name."""

LOST = "nothing more is reconciled because of this event"

CHUNK = 500
"""Events after which the requests made so far are passed on: a long list must not keep the first ones waiting."""


BACKLOG = 10_000
"""Changes that wait for one subscription; more are logged, once."""

LOOK_SECONDS = 0.1
"""Between two looks of a waiting thread at the stop token."""


class Subscriber:
    """Delivers what a watch sees to one subscription, in order. Safe to use from any thread."""

    def __init__(self, subscription: Subscription, sink: Sink, read: Callable[[Record], Any], clock: Clock,
                 stop: StopToken, on_complete: Callable[[], None], logger: GuardedLogger | None = None) -> None:
        """`on_complete` is for the watch to call, when a list is complete. `logger`: the one of the controller that the
        subscription triggers; then the log says what it costs that something raised."""
        self._on_complete = on_complete
        self._subscription = subscription.requests if isinstance(subscription, OfHeads) else subscription
        self._sink = sink
        self._read = None if isinstance(subscription, OfHeads) else read
        self._clock = clock
        self._stop = stop
        self._name = name_of(subscription)
        self._log = logger or log
        self._lost = "" if logger is None else f" ({LOST})"
        self._guard = Guard(self._name, self._log, clock)
        self._sink_guard = Guard(f"the sink of {self._name}", self._log, clock)
        self._turn = threading.Condition()
        self._queue: deque[Sequence[Event[Record]]] = deque()
        self._waiting = 0
        """Changes in the queue."""
        self._backlog_logged = False
        self._worker: int | None = threading.get_ident()
        """The thread that delivers; None: no thread does."""
        self._is_beginning = True
        """Whether that thread still works through what it came with."""
        self._is_wanted = False
        """Whether the watch's thread waits for its place."""
        self._cancelled = False
        self._current: Event[Record] = INIT
        """What the subscription is given at the moment. Of the thread that delivers."""
        self._interrupted: Sequence[Event[Record]] = ()

    def begin(self, changes: Sequence[Event[Record]]) -> None:
        """Deliver `changes`, then what has come since the subscriber was made. To be called exactly once."""
        self._work(changes)

    def deliver(self, changes: Sequence[Event[Record]], *, by_watch: bool = False) -> None:
        """Pass `changes` through the subscription, after all that came before. `by_watch`: the calling thread is the
        watch's, which takes the place of another one that delivers; it waits for the call in progress."""
        with self._turn:
            mine, waiting = self._taken(changes, by_watch), self._waiting
        if mine is not None:
            self._work(mine)
        elif waiting > BACKLOG and not self._backlog_logged:
            self._backlog_logged = True
            self._log.warning("%s is slower than changes come: %d of them wait until it has got what was stored when "
                              "it subscribed", self._name, waiting)

    def _taken(self, changes: Sequence[Event[Record]], by_watch: bool) -> Sequence[Event[Record]] | None:
        """What the calling thread has to work through first; None when another one does, or nothing is left."""
        if not self._is_idle:
            self._queue.append(changes)
            self._waiting += len(changes)
            if not by_watch or self._is_beginning or self._worker == threading.get_ident():
                return None
            self._is_wanted = True
            while not self._turn.wait_for(lambda: self._is_idle or self._is_over, LOOK_SECONDS):
                pass  # nothing notifies of a stop
            self._is_wanted = False
            if self._worker is not None or not self._queue:
                return None
            changes = self._next()
        elif self._queue:  # what an interrupted thread has left
            self._queue.append(changes)
            self._waiting += len(changes)
            changes = self._next()
        self._worker, self._is_beginning = threading.get_ident(), True
        return changes

    def complete(self) -> None:
        """A complete list was delivered."""
        if not self._cancelled and not self._stop.is_set():
            self._on_complete()

    def cancel(self) -> None:
        """Deliver nothing more; the call in progress is finished."""
        self._cancelled = True

    @property
    def _is_idle(self) -> bool:
        return self._worker is None

    @property
    def _is_over(self) -> bool:
        return self._cancelled or self._stop.is_set()

    def _work(self, changes: Sequence[Event[Record]]) -> None:
        while True:
            start = 0
            try:
                while start < len(changes) and not self._is_over:
                    self._pass(changes[start:start + CHUNK])
                    start += CHUNK
            except BaseException as error:  # the person at the keyboard, who must not wait for what is left
                self._leave_to_another(changes[start + CHUNK:], error)
                raise
            with self._turn:
                self._is_beginning = False
                if not self._queue or self._is_wanted:
                    self._worker = None
                    self._turn.notify_all()
                    return
                changes = self._next()

    def _next(self) -> Sequence[Event[Record]]:
        changes = self._queue.popleft()
        self._waiting -= len(changes)
        return changes

    def _pass(self, changes: Sequence[Event[Record]]) -> None:
        requests: list[ReconcileRequest] = []
        left = iter(changes)
        try:
            # Guarded as a whole and gone on with after what raised, as a guard around each event would cost each event.
            while not self._guard.call(False, self._given, self._collect, left, requests):
                pass
        except BaseException:
            self._interrupted = [self._current, *left]
            raise
        finally:
            if requests:
                self._sink_guard.call(None, "", self._sink, requests)

    def _leave_to_another(self, changes: Sequence[Event[Record]], error: BaseException) -> None:
        with self._turn:
            rest, self._interrupted = [*self._interrupted, *changes], ()
            self._queue.appendleft(rest)
            self._waiting += len(rest)
            self._worker, self._is_beginning = None, False
            self._turn.notify_all()
        if isinstance(error, ProcessEnded):
            return
        with contextlib.suppress(RuntimeError):  # no more threads: with the next change
            Thread(target=self.deliver, args=((),), name=f"rest of {self._name}", daemon=True).start()

    def _collect(self, changes: Iterator[Event[Record]], requests: list[ReconcileRequest]) -> bool:
        """Add to `requests` what follows from `changes`; True when there are no more of them."""
        monotonic, subscription, read = self._clock.monotonic, self._subscription, self._read
        if read is None:  # the library's own, which calls nobody: there is no slowness to tell of
            for change in changes:
                self._current = change
                requests.extend(subscription(change))
            return True
        began = monotonic()
        for change in changes:
            self._current = change
            try:
                # The reader is made for this subscription alone: what it changes in it, nobody else sees.
                requests.extend(subscription(with_obj(change, read)))
            finally:
                if (ended := monotonic()) - began > SLOW_SECONDS:
                    self._log.warning("%s took %.0f ms for %s: what a watch calls must not block, or its "
                                      "events come late", self._name, (ended - began) * 1000, described_event(change))
                    ended = monotonic()
                began = ended
        return True

    def _given(self, *_: object) -> str:
        return described_event(self._current) + self._lost


def described_event(change: Event[Any]) -> str:
    """An event in the words of the log: `Apply of ` and the ref of its object, or what a view says of itself."""
    obj = obj_of(change)
    return type(change).__name__ if obj is None else f"{type(change).__name__} of {getattr(obj, 'ref', obj)}"
