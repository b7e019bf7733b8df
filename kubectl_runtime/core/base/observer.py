"""`Observer`: receives notifications of the library's work, for metrics, traces or a status page. Override any method.

    class Slow(Observer):
        def run_ended(self, controller, key, result, seconds, error): ...

    Client(config, observer=Slow())                       # and every controller of that client
    Controller(api, observer=together(Slow(), metrics))   # this controller only

    sender     methods
    watcher    watch_phase_changed, watch_failed, list_completed, frame_arrived
    store      store_changed store_sized
    queue      keys_triggered, keys_dropped, retry_scheduled
    reads      read_changed
    runner     controller_started, run_started, run_ended, controller_stopped
    client     request_attempted, request_retried, object_written, credentials_refreshed
    election   leadership_changed, election_ended
    webhooks   webhooks_served, webhook_began, webhook_answered, webhooks_ended

Arguments are values that the caller has anyway, so without an observer a notification costs one call of an empty method
per batch, run or request. Times are seconds; `now` is on the caller's monotonic clock. Object names are for traces and
logs: as metric labels they would create one series per object.

A method is called in the thread that does the work, with no lock held, and from many threads at once, so two calls
about one subject may arrive out of order. A `depth` is passed together with the time `now` at which it was measured:
keep the `depth` with the latest `now`. To count runs in progress, add one at `run_started` and subtract one at
`run_ended`: the two come in pairs, as do `webhook_began` and `webhook_answered`.

A method must be short and must not block. Its exceptions are only logged, because library code wraps each user's
observer with `together`. Code that notifies on every run calls `callbacks` once and stores the result, so that each
notification is a plain function call, which neither looks up a name nor packs arguments.
"""
from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.plain import Key


class RunResult(StrEnum):
    """The outcome of a run. `success`, `requeue_after` and `error` are also the names in controller-runtime.

    >>> RunResult.SUCCESS.value
    'success'
    """

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    """The run succeeded and asked for another run at a certain time."""
    ERROR = "error"
    TERMINAL_ERROR = "terminal_error"
    """A retry cannot help: the key waits for a new version of its object."""
    GONE = "gone"
    """The object no longer existed; the reconciler was not called."""
    SKIPPED = "skipped"
    """The object has not changed since its terminal error, or now belongs to another replica; the reconciler was not
    called."""


class Observer:
    """The base class of observers. Override the methods you need, and pass an instance to a client as `observer=`.

    `watch` is the name of a watch in logs (`pods in namespace a`), `controller` the name of a controller, `host` the
    server's host and port. A method is called in the thread where the event happens, and must be short. An exception
    that it raises is logged. The base class does nothing. `Metrics` is an observer; `together` combines several.

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
        """A watch entered a phase: `listing`, `watching`, `waiting` (after a failure) or `stopped` (for good)."""

    def watch_failed(self, watch: str, error: BaseException, failures: int, delay: float) -> None:
        """An attempt of a watch failed. While the server cannot be reached, one watch retries on behalf of all the
        client's watches, and only the failures of that watch are reported. `failures` counts consecutive failures;
        the next attempt follows after `delay` seconds."""

    def list_completed(self, watch: str, objects: int, relists: int, seconds: float) -> None:
        """A list is complete and stored. Listing took `seconds`; this watch has completed `relists` earlier lists."""

    def frame_arrived(self, watch: str, events: int, now: float) -> None:
        """An open watch received `events` events, bookmarks included. A watch that receives none for a long time is
        broken."""

    # Stores

    def store_changed(self, watch: str, objects: int) -> None:
        """Changes were written to the store of this watch. The store now holds `objects` objects."""

    def store_sized(self, watch: str, size: int) -> None:
        """Changes were written to the store of this watch. The store now holds `size` bytes of JSON."""

    # Queues

    def keys_triggered(self, controller: str, requests: int, depth: int, now: float) -> None:
        """A batch of keys was added to the queue. `depth` keys are due now and wait for a worker. Keys that wait for a
        delay to pass (backoff, requeue, debounce), for the rate limit of retries, or for their own current run are not
        counted."""

    def keys_dropped(self, controller: str, keys: int) -> None:
        """The shutdown began. `keys` keys that were due will not run. Keys that wait for a delay to pass are not
        counted."""

    def retry_scheduled(self, controller: str, key: Key, failures: int, delay: float) -> None:
        """A run failed. The next run of its key follows after `delay` seconds, or earlier if a change triggers it.

        `failures` counts consecutive failures. Conflicts whose retry is logged only at DEBUG, and runs that a change
        started during the backoff, are not counted. Called after `run_ended`."""

    # Reads

    def read_changed(self, controller: str, resource: str, key: Key, what: str, readers: int) -> None:
        """An object has changed that the reconciler read with `ctx.read` or `ctx.read_all`. `resource` (such as
        `secrets`) and `key` identify the changed object. `what` is `changed`, `appeared` or `went` (the object was
        deleted, or no longer matches the selection). The change triggers runs for `readers` reconciled objects."""

    # Runs

    def controller_started(self, controller: str, concurrency: int) -> None:
        """A controller started. At most `concurrency` runs happen at once, and none starts before the controller's
        stores are synced."""

    def run_started(self, controller: str, key: Key, reason: str, waited: float, depth: int, now: float) -> None:
        """A run begins in this thread. At `now` its key left the queue, `waited` seconds after the key became due.
        `depth` keys are still due in the queue (counted as in `keys_triggered`)."""

    def run_ended(self, controller: str, key: Key, result: RunResult, seconds: float,
                  error: BaseException | None) -> None:
        """The run of this thread ended after `seconds`. `error` is what the reconciler raised, or why the object could
        not be decoded."""

    def controller_stopped(self, controller: str, stuck: int) -> None:
        """A controller has ended. `stuck` runs did not end within the grace period."""

    # Clients

    def request_attempted(self, host: str, method: str, verb: str, resource: str, code: int, seconds: float) -> None:
        """One attempt of a request ended. `code` is the HTTP status, or 0 if there was no answer. A stream is reported
        when it opens.

        `verb` is the Kubernetes verb (`list`). `resource` is for example `deployments.apps`; empty if the request is
        not about a kind.
        """

    def request_retried(self, host: str, verb: str, resource: str, code: int, attempt: int, delay: float) -> None:
        """Attempt number `attempt` of a call failed and is retried after `delay` seconds. `code` is the HTTP status, or
        0 if there was no answer."""

    def object_written(self, resource: str, key: Key, verb: str, resource_version: str) -> None:
        """The server answered a write. Called in the thread that wrote, so a run's writes come between its start and
        its end. Dry runs are not reported. `resource_version` is empty if the answer contained no object."""

    def credentials_refreshed(self, host: str, seconds: float, error: BaseException | None) -> None:
        """A call had to get new credentials from a plugin, a provider or a file. This took `seconds`. If it failed,
        `error` is the reason. The credentials themselves are not passed."""

    # Elections

    def leadership_changed(self, election: str, leading: bool) -> None:
        """This process became the leader, or lost the leadership. `election` is the Lease: `namespace/name`."""

    def election_ended(self, election: str) -> None:
        """This process is no longer a candidate for this Lease, until it starts the election again."""

    # Webhooks

    def webhooks_served(self, webhooks: tuple[str, ...]) -> None:
        """A webhook server started with these webhooks, named by their paths: `/quota/validate`."""

    def webhook_began(self, webhook: str) -> None:
        """This thread begins to answer a request to this webhook."""

    def webhook_answered(self, webhook: str, code: int, seconds: float) -> None:
        """The request of this thread was answered with HTTP status `code`, after `seconds`. A denial has status 200."""

    def webhooks_ended(self, webhooks: tuple[str, ...]) -> None:
        """A webhook server with these webhooks has stopped."""

    def _bound(self, method: str, subject: str) -> Callback:
        """`method` with its first argument, the name of a controller or watch, fixed to `subject`; the result takes the
        other arguments. The library's own observers override this where they store data per subject, to save the
        look-up in each call."""
        return partial(getattr(self, method), subject)


Callback = Callable[..., None]
"""A method of an observer; without its first argument if it is bound to one controller or watch."""
Callbacks = tuple[tuple[Callback, Guard], ...]
"""The methods to call for one notification, each with the guard that logs its failures."""

NO_OBSERVER = Observer()
"""The default observer."""

METHODS = tuple(name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_"))
"""The names of an observer's methods."""


class Together(Observer):
    """Passes each notification to the observers that override its method. Methods are instance attributes. A method
    that no observer overrides is the base class's empty method and costs as little as with `NO_OBSERVER`."""

    __slots__ = ("observers", *METHODS)

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._assign(observers)

    def add(self, observer: Observer) -> None:
        """Notify `observer` too, from the next call on; `callbacks` that were fetched before do not change."""
        self._assign((*self.observers, observer))

    def _assign(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        for name in METHODS:
            methods = (getattr(observer, name) for observer in observers if _listens(observer, name))
            listening = tuple(_guarded(method, method) for method in methods)
            setattr(self, name, partial(notify, listening) if listening else getattr(NO_OBSERVER, name))


def together(*observers: Observer) -> Observer:
    """Make one observer that calls each of `observers` in order. If one raises, its exception is logged and the next is
    called; only a KeyboardInterrupt in the main thread is raised. Raises TypeError for anything but an Observer.

    >>> class Retries(Observer):
    ...     def request_retried(self, host, verb, resource, code, attempt, delay):
    ...         print(verb, resource, "again in", delay)
    >>> both = together(Retries(), Observer())
    """
    wrong: list[object] = [observer for observer in observers if not isinstance(observer, Observer)]
    if wrong:
        given = f"the class {wrong[0].__name__}" if isinstance(wrong[0], type) else type(wrong[0]).__name__
        raise TypeError(f"an observer must be an instance of a subclass of Observer, not {given}")
    telling = tuple(observer for observer in observers if observer is not NO_OBSERVER)
    if len(telling) == 1 and isinstance(telling[0], Together):
        return telling[0]
    return Together(telling) if telling else NO_OBSERVER


def extensible(observer: Observer) -> Together:
    """An observer for one client, to which `observe_too` can add another observer later. Raises like `together`."""
    return Together(tuple(part for part in parts_of(together(observer)) if part is not NO_OBSERVER))


def observe_too(observer: Observer, more: Observer) -> None:
    """Let `observer`, which `extensible` made, notify `more` as well. Call it soon after the client is made: work that
    is already running may continue without `more`."""
    assert isinstance(observer, Together)
    observer.add(more)


def is_observed(observer: Observer) -> bool:
    """Whether `observer` passes notifications to any observer other than `NO_OBSERVER`."""
    return bool(observer.observers) if isinstance(observer, Together) else observer is not NO_OBSERVER


def parts_of(observer: Observer) -> tuple[Observer, ...]:
    """The observers that `together` combined; the observer alone if it was not combined."""
    return observer.observers if isinstance(observer, Together) else (observer,)


def callbacks(observer: Observer, method: str, subject: str) -> Callbacks:
    """The method `method` of each observer in `observer` that overrides it, bound to the controller or watch `subject`.
    Empty if no observer overrides the method."""
    return tuple(_guarded(part._bound(method, subject), getattr(part, method))
                 for part in parts_of(observer) if _listens(part, method))


def notify(callbacks: Callbacks, *values: Any) -> None:
    """Call each of `callbacks` with these values. If one raises, its exception is logged and the next is called; only a
    KeyboardInterrupt in the main thread is raised."""
    for callback, guard in callbacks:
        try:
            callback(*values)
        except BaseException as error:  # noqa: BLE001 - an observer may raise anything
            guard.failed(error)
        else:
            if guard.count:
                guard.succeeded()


def _listens(observer: Observer, method: str) -> bool:
    return getattr(getattr(observer, method), "__func__", None) is not getattr(Observer, method)


def _guarded(callback: Callback, method: Callback) -> tuple[Callback, Guard]:
    return callback, Guard(f"observer {getattr(method, '__qualname__', type(method).__qualname__)}")
