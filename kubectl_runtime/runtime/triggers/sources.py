"""What triggers reconciles besides watches: iterables, queues and streams that the user's program fills.

    reconcile_on(source)       each item is an object or a ref: reconcile it
    reconcile_all_on(source)   each item, whatever it is, means: reconcile everything in the store
    for_stream(events, ...)    each item is an event about the controller's own kind

A source is pulled by a thread of its own, in which it may block. A queue (anything with `get(timeout=)`) is asked twice
a second whether to stop; an iterable cannot be asked, so one that blocks for ever keeps its thread until the process
ends.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Empty
from typing import Any, Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Sink, Subscription
from kubectl_runtime.runtime.usercode import guarded, guarded_logger
from kubectl_runtime.runtime.watcher.event import Event, InitDone

log = guarded_logger(__name__)

POLL = 0.5
"""Seconds a queue is waited for before the stop token is looked at again."""


class TriggerQueue(Protocol):
    """`queue.Queue`, `queue.SimpleQueue` and the like."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...


TriggerSource = Iterable[Any] | TriggerQueue
ToRequests = Callable[[Any], Iterable[ReconcileRequest]]


def check_source(source: object) -> None:
    """Raises RequestError for what is neither an iterable nor a queue."""
    if not isinstance(source, Iterable) and not callable(getattr(source, "get", None)):
        raise RequestError(f"a trigger source is an iterable or a queue, not {type(source).__name__}")


def pull(source: TriggerSource, to_requests: ToRequests, sink: Sink, stop: StopToken) -> None:
    """Pass what comes out of `source` to `sink` until it ends or `stop` is set. The body of the source's thread.

    An item that is nothing to reconcile is reported, and the next one follows.
    """

    def requests_of(item: Any) -> list[ReconcileRequest]:
        try:
            return list(to_requests(item))
        except RequestError as error:
            log.error("a trigger is ignored: %s", error)
            return []

    def pass_on() -> None:
        items = source if isinstance(source, Iterable) else _from_queue(source, stop)
        with closing_source(items):
            for item in items:
                if stop.is_set():
                    return
                requests: list[ReconcileRequest] = guarded([], "an item of a trigger source", requests_of, item)
                if requests:
                    sink(requests)

    guarded(None, f"a trigger source, a {type(source).__qualname__}, ended: it", pass_on)


def pull_stream(events: Iterable[Event[Any]], subscription: Subscription, sink: Sink, on_complete: Callable[[], None],
                stop: StopToken) -> None:
    """Pass what follows from `events` to `sink` until `stop` is set; call `on_complete` for each complete list.

    The body of the stream's thread. Raises RuntimeError when the stream ends before, whatever it raised (reported).
    """

    def pass_on() -> None:
        with closing_source(events):
            for event in events:
                if requests := [*subscription(event)]:
                    sink(requests)
                if isinstance(event, InitDone):
                    on_complete()
                if stop.is_set():
                    return

    guarded(None, "the given stream", pass_on)
    if not stop.is_set():
        raise RuntimeError("the given stream ended, so nothing would be noticed any more")


def _from_queue(source: TriggerQueue, stop: StopToken) -> Iterator[Any]:
    while not stop.is_set():
        try:
            yield source.get(timeout=POLL)
        except Empty:
            continue
