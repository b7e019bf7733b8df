"""What triggers reconciles besides watches: iterables, queues and streams that the user's program fills.

    reconcile_on(source)       each item is an object or a ref: reconcile it
    reconcile_all_on(source)   each item, whatever it is, means: reconcile everything in the store
    for_stream, owns_stream, watches_stream    each item is an object, or an event about one

A source is pulled by a thread of its own, in which it may block. A queue (anything with `get(timeout=)`) is looked at
twenty times a second, and then the stop token; an iterable cannot be asked, so one that blocks for ever keeps its
thread, which keeps nobody else, until the process ends.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty
from typing import Any, Protocol

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.guarded_log import GuardedLogger, guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.triggers.subscribers import LOST, described_event
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Sink, Subscription
from kubectl_runtime.runtime.usercode import guarded, name_of
from kubectl_runtime.runtime.watcher.event import Apply, Delete, Event, Init, InitApply, InitDone, is_event

log = guarded_logger(__name__)

POLL = 0.05
"""Seconds a queue is waited for before the stop token is looked at again."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds after which a source that raised is asked again; they double with each time in a row."""


class TriggerQueue(Protocol):
    """A queue to pull triggers from: `queue.Queue`, `queue.SimpleQueue` and the like."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take out the next item; blocks and raises as `queue.Queue.get`."""


TriggerSource = Iterable[Any] | TriggerQueue
ToRequests = Callable[[Any], Iterable[ReconcileRequest]]


def check_source(source: object) -> None:
    """Raise RequestError for what is neither an iterable nor a queue."""
    texts = isinstance(source, str | bytes)
    if texts or (not isinstance(source, Iterable) and not callable(getattr(source, "get", None))):
        raise RequestError(f"a trigger source is an iterable or a queue, not {type(source).__name__}")


def pull(source: TriggerSource, to_requests: ToRequests, sink: Sink, stop: StopToken,
         clock: Clock = SYSTEM_CLOCK, logger: GuardedLogger = log) -> None:
    """Pass what comes out of `source` to `sink` until it ends or `stop` is set. The body of the source's thread.

    An item that is nothing to reconcile is reported to `logger`, and the next one follows.
    """

    def requests_of(item: Any) -> list[ReconcileRequest]:
        return [*to_requests(item)]

    def pass_on() -> None:
        with closing_source(source if isinstance(source, Iterable) else ()):
            for item in _items(source, stop, clock, logger):
                if stop.is_set():
                    return
                requests: list[ReconcileRequest] = guard.call([], "", requests_of, item)
                if requests:
                    sink(requests)

    guard = Guard("an item of a trigger source, for which nothing is reconciled,", logger, clock)
    guarded(None, f"the end of a trigger source, a {type(source).__qualname__},", pass_on)


def pull_stream(stream: Iterable[Any], subscription: Subscription, sink: Sink, stop: StopToken,
                store: Store[Any] | None = None, clock: Clock = SYSTEM_CLOCK, logger: GuardedLogger = log) -> None:
    """Pass what follows from the objects or events of `stream` to `sink` until `stop` is set. The body of its thread.

    `store`: the one that the stream's reflector keeps, if it has one; an object that is not in it any more counts as
    deleted. Raises RuntimeError when the stream ends before, whatever it raised (reported), and RequestError when what
    comes has not been through a reflector.
    """

    def requests_of(event: Event[Any]) -> list[ReconcileRequest]:
        return [*subscription(event)]

    def pass_on() -> None:
        with closing_source(stream):
            for item in stream:
                if stop.is_set():
                    return
                event: Event[Any] = item if is_event(item) else _as_event(item, store)
                if store is not None and _is_raw(event, store):
                    missing.append(event)
                    return
                requests: list[ReconcileRequest] = guard.call([], _lost, requests_of, event)
                if requests:
                    sink(requests)

    missing: list[Event[Any]] = []
    guard = Guard(name_of(subscription), logger, clock)
    guarded(None, "the given stream", pass_on)
    if missing:
        raise RequestError("the given stream has not been through a reflector, so its store stays empty: pass "
                           f"reflector(writer, events); what came was {type(missing[0]).__name__}")
    if not stop.is_set():
        raise RuntimeError("the given stream ended, so no further change would be noticed")


def _lost(event: Event[Any]) -> str:
    return f"{described_event(event)} ({LOST})"


def _is_raw(event: Event[Any], store: Store[Any]) -> bool:
    """Whether no reflector can have passed this on: it holds a list back until it is complete, and stored."""
    return isinstance(event, Init | InitApply) or (isinstance(event, InitDone | Apply) and not store.is_ready)


def _as_event(obj: Any, store: Store[Any] | None) -> Event[Any]:
    return Delete(obj) if store is not None and store.is_ready and obj.ref not in store else Apply(obj)


def _items(source: TriggerSource, stop: StopToken, clock: Clock, logger: GuardedLogger) -> Iterator[Any]:
    """What comes out of a source. One that raises is reported and asked again, later each time in a row: a generator
    is at its end then, others may go on."""
    step = iter(source).__next__ if isinstance(source, Iterable) else partial(_from_queue, source, stop)
    guard, failures = Guard(f"a trigger source, a {type(source).__qualname__},", logger, clock), 0
    while not stop.is_set():
        try:
            item = step()
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - reported
            guard.failed(error)
            if stop.wait(min(FIRST_PAUSE * 2 ** min(failures, 20), LONGEST_PAUSE)):
                return
            failures += 1
        else:
            guard.succeeded()
            failures = 0
            yield item


def _from_queue(source: TriggerQueue, stop: StopToken) -> Any:
    """The next item. Raises StopIteration when `stop` is set."""
    while not stop.is_set():
        try:
            return source.get(timeout=POLL)
        except Empty:
            continue
    raise StopIteration
