"""`Observer`: what the library says of itself while it works. Metrics, traces, a status page override what they need.

    class Slow(Observer):
        def run_ended(self, controller, key, result, seconds, error): ...

    Client(config, observer=Slow())                       # and every controller of that client
    Controller(api, observer=together(Slow(), metrics))   # this controller only

    room       methods
    watcher    watch_phase_changed, watch_failed, list_completed, frame_arrived
    store      store_changed
    queue      keys_triggered, keys_dropped, retry_scheduled
    runner     controller_started, run_started, run_ended, controller_stopped
    client     request_attempted, request_retried, object_written, credentials_refreshed
    election   leadership_changed
    webhooks   webhooks_served, webhook_began, webhook_answered

The arguments are values that the caller has at hand anyway, so that observing nothing costs a call that does nothing,
once for each batch, run or request. Times are seconds; `now` is of the caller's monotonic clock. Names of objects are
for traces and logs: as labels of metrics they would make one series each.

A method is called by the thread that does the work, with no lock held, and from many threads at once. So two calls
about one thing may arrive in another order than what they tell happened in. A `depth` comes with its `now`: only a
newer one takes the place of what is known. How many runs are in progress is counted: up at `run_started`, down at
`run_ended`, which come in pairs; so do `webhook_began` and `webhook_answered`.

A method must be short and must not block. What it raises is logged and harms nobody: whoever takes an observer from
outside calls it through `together`. Who calls it for each run asks for its `hearers` once, so that each call is one of
Python's: no lookup of a name, no packing of values.
"""
from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.keys import Key


class RunResult(StrEnum):
    """How a run ended, the first four in controller-runtime's words: success, error, requeue_after, requeue,
    terminal_error, gone, skipped.

    >>> RunResult.SUCCESS.value
    'success'
    """

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    """Well, and it asked for another run at a time."""
    ERROR = "error"
    TERMINAL_ERROR = "terminal_error"
    """Retrying cannot help: the key waits for a new version of its object."""
    GONE = "gone"
    """There was no such object any more; the reconciler was not called."""
    SKIPPED = "skipped"
    """The object is still the version that cannot be reconciled, or another replica's meanwhile; the reconciler was not
    called."""


class Observer:
    """What the library says of itself while it works: override the methods you want, and give it to a client as
    `observer=`.

    `watch` is what a watch is called in logs (`pods in namespace a`), `controller` a controller's name, `host` the
    server's host and port. Methods are called from the thread where it happens and must be short; what they raise is
    logged. The base class does nothing. `Metrics` is one; `together` makes one of several.

    >>> class Attempts(Observer):
    ...     def request_attempted(self, host, method, verb, resource, code, seconds):
    ...         print(verb, resource, code)
    >>> with Client(Config(cluster_url=server.url), observer=Attempts()) as own:
    ...     _ = Api.namespaced(own, ConfigMap, "default").get("settings")
    get configmaps 200
    """

    __slots__ = ()

    # Watches

    def watch_phase_changed(self, watch: str, phase: str, now: float) -> None:
        """A watch began to be `listing`, `watching`, `waiting` (after a failure) or is `stopped` for good."""

    def watch_failed(self, watch: str, error: BaseException, failures: int, delay: float) -> None:
        """An attempt failed, the `failures`-th in a row; the next one follows after `delay`."""

    def list_completed(self, watch: str, objects: int, relists: int, seconds: float) -> None:
        """A list is complete and stored, `seconds` after its first request; `relists` were complete before it."""

    def frame_arrived(self, watch: str, events: int, now: float) -> None:
        """Something came on an open watch: what is silent for long does not work any more. Bookmarks are events."""

    # Stores

    def store_changed(self, watch: str, objects: int) -> None:
        """Changes were written to the store of this watch, which now holds so many objects."""

    # Queues

    def keys_triggered(self, controller: str, requests: int, depth: int, now: float) -> None:
        """A batch of requests came to the queue, where `depth` keys are due now and wait for their run. Keys that wait
        for their time (backoff, requeue, debounce), for the retry brake, or for a run of their own to end, are not
        among these."""

    def keys_dropped(self, controller: str, keys: int) -> None:
        """The shutdown began: so many keys that were due will not run; those that wait for their time are not
        counted."""

    def retry_scheduled(self, controller: str, key: Key, failures: int, delay: float) -> None:
        """A run failed, the `failures`-th of its key in a row; the next follows after `delay`, on a change sooner.
        A conflict that is retried quietly, and a run that a trigger made, do not raise that number. Comes after its
        `run_ended`."""

    # Runs

    def controller_started(self, controller: str, concurrency: int) -> None:
        """A controller begins, with so many runs at once at most; the first ones when its stores are complete."""

    def run_started(self, controller: str, key: Key, reason: str, waited: float, depth: int, now: float) -> None:
        """A run begins, in this thread. Its key was taken out of the queue at `now`, `waited` after it became due, and
        left `depth` behind (as in `keys_triggered`)."""

    def run_ended(self, controller: str, key: Key, result: RunResult, seconds: float,
                  error: BaseException | None) -> None:
        """The run of this thread ended, `seconds` after the `now` of its start. `error` is what the reconciler raised,
        or what is wrong with the object."""

    def controller_stopped(self, controller: str, stuck: int) -> None:
        """A controller has ended; so many of its runs had not within the grace period."""

    # Clients

    def request_attempted(self, host: str, method: str, verb: str, resource: str, code: int, seconds: float) -> None:
        """One attempt at a request ended: an answer with this status, or none (0). For a stream: its head is there.

        `verb` is Kubernetes's (`list`); `resource` is `deployments.apps`, empty for what is about no kind.
        """

    def request_retried(self, host: str, verb: str, resource: str, code: int, attempt: int, delay: float) -> None:
        """The `attempt`-th attempt of a call failed, with this status or without an answer (0), in a way that allows
        another, which follows after `delay`."""

    def object_written(self, resource: str, key: Key, verb: str, resource_version: str) -> None:
        """A write was answered, in the thread that made it: a run's own writes come between its start and its end.
        Dry runs are not told; the version is empty when the answer was not an object."""

    def credentials_refreshed(self, host: str, seconds: float, error: BaseException | None) -> None:
        """A call had to get its credentials anew, of a plugin, a provider or a file, and they came after so many
        seconds; or it got none, for `error`. Nothing here carries any."""

    # Elections

    def leadership_changed(self, election: str, leading: bool) -> None:
        """This process became the leader, or is it no more. `election` is the Lease: `namespace/name`."""

    # Webhooks

    def webhooks_served(self, webhooks: tuple[str, ...]) -> None:
        """A webhook server begins; these are its webhooks, called after their paths: `/quota/validate`."""

    def webhook_began(self, webhook: str) -> None:
        """A request to this webhook is being answered, in this thread."""

    def webhook_answered(self, webhook: str, code: int, seconds: float) -> None:
        """The request of this thread was answered, with this HTTP status, `seconds` after it began. What a webhook
        denies is answered with 200."""

    def _bound(self, method: str, subject: str) -> Hearer:
        """`method` about this controller or watch alone: what takes the values that follow its name. For those of the
        library that keep something for each and would look it up at each call."""
        return partial(getattr(self, method), subject)


Hearer = Callable[..., None]
"""A method of an observer, without the first value where it is about one controller or watch."""
Hearers = tuple[tuple[Hearer, Guard], ...]
"""Whom to tell of one thing, each with what logs its failures."""

NO_OBSERVER = Observer()
"""The default everywhere."""

METHODS = tuple(name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_"))
"""The names of what an observer is told."""


class _Together(Observer):
    """Passes on to each observer what it wants to hear. Its methods are instance attributes: those that nobody
    overrides stay the one that does nothing, which costs nothing more than with `NO_OBSERVER`."""

    __slots__ = ("observers", *METHODS)

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        for name in METHODS:
            methods = (getattr(observer, name) for observer in observers if _listens(observer, name))
            listening = tuple(_guarded(method, method) for method in methods)
            setattr(self, name, partial(tell, listening) if listening else getattr(NO_OBSERVER, name))


def together(*observers: Observer) -> Observer:
    """One observer that tells each of these, in this order. What one of them raises is logged, and the next is told;
    only a KeyboardInterrupt in the main thread passes. Raises TypeError for anything but an Observer.

    >>> class Retries(Observer):
    ...     def request_retried(self, host, verb, resource, code, attempt, delay):
    ...         print(verb, resource, "again in", delay)
    >>> both = together(Retries(), Observer())
    """
    wrong: list[object] = [observer for observer in observers if not isinstance(observer, Observer)]
    if wrong:
        given = f"the class {wrong[0].__name__}" if isinstance(wrong[0], type) else type(wrong[0]).__name__
        raise TypeError(f"an observer is an instance of a subclass of Observer, not {given}")
    telling = tuple(observer for observer in observers if observer is not NO_OBSERVER)
    if len(telling) == 1 and isinstance(telling[0], _Together):
        return telling[0]
    return _Together(telling) if telling else NO_OBSERVER


def parts_of(observer: Observer) -> tuple[Observer, ...]:
    """The observers that `together` made one of; itself alone if it did not."""
    return observer.observers if isinstance(observer, _Together) else (observer,)


def hearers(observer: Observer, method: str, subject: str) -> Hearers:
    """Those of its parts that listen to `method`, for calls about this controller or watch alone; none: nobody does."""
    return tuple(_guarded(part._bound(method, subject), getattr(part, method))
                 for part in parts_of(observer) if _listens(part, method))


def tell(hearers: Hearers, *values: Any) -> None:
    """Call each with these values. What one of them raises is logged, and the next is told; only a KeyboardInterrupt in
    the main thread passes."""
    for hear, guard in hearers:
        try:
            hear(*values)
        except BaseException as error:  # noqa: BLE001 - it may be anybody's
            guard.failed(error)
        else:
            if guard.count:
                guard.succeeded()


def _listens(observer: Observer, method: str) -> bool:
    return getattr(getattr(observer, method), "__func__", None) is not getattr(Observer, method)


def _guarded(hear: Hearer, method: Hearer) -> tuple[Hearer, Guard]:
    return hear, Guard(f"observer {getattr(method, '__qualname__', type(method).__qualname__)}")
