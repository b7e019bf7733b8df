"""`Recorder`: publish what happened to an object as an Event, which `kubectl describe` shows.

    recorder = Recorder(client, "database-operator")
    recorder.publish(database, "BackupFailed", "the bucket is full", warning=True)

In a reconciler use `ctx.record(reason, note)`. Outside reconcilers make one Recorder, and share it.

    publish   counts in memory, and returns. Repetitions within 6 minutes become one Event with a rising count
    thread    a daemon, "events-of-NAME", sends to the server; the first `publish` starts it
    flush     waits until everything published so far is sent
    close     flushes, and ends the thread; call it before the client is closed. A recorder is a context manager. If a
              program ends without closing its recorder, the recorder gets 2 s to send the rest

Events that cannot be sent are counted in `lost`, by cause, and each cause is logged once as a warning: too many new
events are waiting, one object has too many events, or the server refuses them. When the process dies, unsent events are
lost; no event is counted twice. In a forked child process, a recorder that was used before the fork accepts no events,
and logs one warning.

RBAC: `create` and `patch` on `events` in the group `events.k8s.io`, in the namespaces of the objects, and in `default`
for cluster-scoped objects.

`Sender` sends one request at a time: a thread calls `run`, a simulation calls `step`. If a request gets no answer, or
an answer that asks for a later retry, all requests wait: 1 s, doubling to 30 s, or the time in Retry-After. No lock is
held while a request is in progress or a line is logged.
"""
from __future__ import annotations

import atexit
import logging
import random
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec.structs import replace

from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import (
    ApiError,
    AuthError,
    OutcomeUnknownError,
    RequestError,
    TransportError,
    error_behind,
)
from kubectl_runtime.core.base.guard import check_client, described, guarded, guarded_logger, pass_interrupt
from kubectl_runtime.core.base.threads import Duration, Thread, renewed_in_children, seconds
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import format_micro_time
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import Patch, PatchParams, PostParams, pointer
from kubectl_runtime.core.requests.request import Place, Request, Retry
from kubectl_runtime.core.scope import StopToken, calls_obey
from kubectl_runtime.runtime.events.ledger import (
    MARK,
    NOTE,
    Ledger,
    Lost,
    Reference,
    Result,
    Series,
    SpamFilter,
    Subject,
    cut,
    qualified_name,
    short,
)

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

EVENT = ApiResource("events.k8s.io", "v1", "Event", "events")
TERMINATING = "NamespaceTerminating"
"""The server refuses to create objects in a terminating namespace, with a StatusCause that has this reason."""
_SERIES = pointer("series")
_COUNT = pointer("series", "count")
_LATER = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UNAUTHORIZED, HTTPStatus.SERVICE_UNAVAILABLE))
"""Answers that mean that the server has not processed the request. The client raises OutcomeUnknownError for a 503
without Retry-After."""


class Reporter(NamedTuple):
    """The controller and instance that `kubectl describe` shows for an Event."""

    controller: str
    instance: str

    @classmethod
    def of(cls, controller: str, instance: str | None) -> Reporter:
        """A reporter with names that the server accepts. The default instance is made from the controller's and the
        host's name. Raises RequestError when `controller` has no usable character."""
        name = qualified_name(controller)
        if not name:
            raise RequestError(f"{controller!r} cannot name a controller in Events: use a name with letters, such "
                               "as 'database-operator' or 'example.com/database-operator'")
        return cls(name, short(instance or f"{name}-{socket.gethostname()}", name))


def request_for(series: Series, reporter: Reporter, *, dry_run: bool = False) -> Request:
    """The request that raises the server's count of `series` to its goal. The client does not retry the request."""
    place = Place(EVENT, series.subject.regarding.home)
    if not series.exists:
        return replace(build.create(place, _event(series, reporter), PostParams(dry_run=dry_run)), retry=Retry.NEVER)
    known = series.reported - series.before
    test = {"op": "test", "path": _SERIES, "value": None} if known == 1 else {"op": "test", "path": _COUNT,
                                                                               "value": known}
    step = {"op": "add", "path": _SERIES, "value": _series(series)}
    patch = build.patch(place, series.name, Patch.json([test, step]), PatchParams(dry_run=dry_run))
    return replace(patch, retry=Retry.NEVER)


def _event(series: Series, reporter: Reporter) -> dict[str, Any]:
    subject = series.subject
    event = {
        "apiVersion": EVENT.api_version, "kind": EVENT.kind,
        "metadata": {"name": series.name, "namespace": subject.regarding.home},
        "eventTime": format_micro_time(series.begun),
        "reportingController": reporter.controller, "reportingInstance": reporter.instance,
        "type": "Warning" if subject.warning else "Normal", "reason": subject.reason, "action": subject.action,
        "note": series.note, "regarding": subject.regarding.to_dict()}
    if subject.related is not None:
        event["related"] = subject.related.to_dict()
    if series.goal - series.before > 1:
        event["series"] = _series(series)
    return event


def _series(series: Series) -> dict[str, Any]:
    return {"count": series.goal - series.before, "lastObservedTime": format_micro_time(series.last)}


def result_of(error: BaseException | None, *, patched: bool) -> Result:
    """The outcome of a request that ended with `error`. `patched`: whether the request was a patch."""
    if error is None:
        return Result.DONE
    if isinstance(error, OutcomeUnknownError):
        return Result.UNKNOWN
    if isinstance(error, ApiError):
        return _answered(error, patched)
    if isinstance(error, RequestError):
        return Result.REFUSED
    unsent = isinstance(error, AuthError) or (isinstance(error, TransportError) and not error.sent)
    return Result.LATER if unsent else Result.UNKNOWN


def _answered(error: ApiError, patched: bool) -> Result:
    if isinstance(error, KindNotServedError):
        return Result.REFUSED
    if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR and error.code != HTTPStatus.SERVICE_UNAVAILABLE:
        return Result.UNKNOWN
    if error.code in _LATER:
        return Result.LATER
    if error.is_not_found:
        return Result.MISSING
    if patched and error.is_invalid:  # the patch's `test` operation failed
        return Result.CHANGED
    if error.is_already_exists:
        return Result.EXISTS
    return Result.LATER if error.is_conflict else Result.REFUSED  # a conflict means that nothing was written


def is_about_the_recorder(error: BaseException | None) -> bool:
    """Whether the error would prevent any Event from being written now, not only this Event."""
    return isinstance(error_behind(error), TransportError | AuthError)


def is_expected(error: BaseException | None) -> bool:
    """Whether the error is normal in a namespace that is terminating or gone, so that it needs no warning."""
    return isinstance(error, ApiError) and not isinstance(error, KindNotServedError) and (
        error.is_not_found or any(cause.reason == TERMINATING for cause in error.status.causes))


log = guarded_logger(__name__)

PATIENCE = 10.0
"""The maximum duration of a request, in seconds."""
BACKOFF = Backoff(1, 2, 30, jitter=0.5)
_MOST_WARNINGS = 100


class Sender:
    """Sends observations as Events, one request after the other. Safe to use from any thread, except `step` and `run`.
    """

    def __init__(self, client: Client, reporter: Reporter, ledger: Ledger, rng: random.Random) -> None:
        self._client = client
        self._clock = client.clock
        self._reporter = reporter
        self._ledger = ledger
        self._rng = rng
        self._changed = threading.Condition()
        self._sending = False
        self._failures = 0
        self._paused_until = 0.0
        self._flushing = 0
        self._close_by: float | None = None
        self._warned: set[str] = set()
        self._over = StopToken(clock=client.clock)
        self._trouble = ""
        """The last error, as text."""

    # From any thread

    def observe(self, subject: Subject, note: str) -> None:
        """Count one observation, which the sending thread will send. Waits for nothing but the Sender's lock."""
        moment = self._clock.now()
        with self._changed:
            if self._close_by is None:
                before = len(self._ledger.open)
                why = self._ledger.observe(subject, note, moment)
                if len(self._ledger.open) > before:
                    self._changed.notify_all()
            else:
                why = Lost.CLOSED
                self._ledger.lost[why] += 1
        if why is not None:
            self.warn(why.name, f"lost an event of {subject.regarding}, because {why.value}: {subject.reason}")

    def reject(self, problem: str) -> None:
        """Count an observation that has no valid object as lost, and log `problem`."""
        with self._changed:
            self._ledger.lost[Lost.INVALID] += 1
        self.warn(problem, problem)

    @property
    def lost(self) -> Mapping[Lost, int]:
        """The number of lost observations, by cause."""
        with self._changed:
            return dict(self._ledger.lost)

    @property
    def waiting(self) -> int:
        """How many observations the server does not have yet."""
        with self._changed:
            return sum(series.unreported - series.refused for series in self._ledger.open.values())

    def due(self) -> float | None:
        """Seconds until `step` has something to send; None if there is nothing to send or a request is in progress."""
        with self._changed:
            return self._delay()

    def flush(self, timeout: float, *, driven: bool) -> bool:
        """Send everything observed so far, without the pauses between updates of a series. Blocks for at most `timeout`
        seconds. Returns whether everything was sent. `driven`: whether another thread calls `step`."""
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            goals = [(series, series.count) for series in self._ledger.open.values()]
            self._flushing += 1
            self._changed.notify_all()
        try:
            return self._await(lambda: not any(self._is_left(*goal) for goal in goals), deadline, driven)
        finally:
            with self._changed:
                self._flushing -= 1

    def close(self, timeout: float, *, driven: bool) -> bool:
        """Flush for at most `timeout` seconds, then accept and send nothing more, and abort a request in progress.
        Returns whether everything was sent; if not, one log line has the number of lost events and the last error."""
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            self._close_by = deadline if self._close_by is None else min(self._close_by, deadline)
            self._changed.notify_all()
        reported = self._await(lambda: not self._ledger.open, deadline, driven)
        self._over.set("the recorder was closed")
        with self._changed:
            dropped = self._ledger.drop_all()
            lost = ", ".join(f"{number} because {why.value}" for why, number in self._ledger.lost.items() if number)
        if dropped or lost:
            trouble = self._trouble or ("the server has not answered" if self._sending else "")
            why = f"; the last error: {trouble}" if dropped and trouble else ""
            self.warn("closed", f"closed; lost events: {lost}{why}")
        return reported

    # For the sending thread

    def step(self) -> float | None:
        """Send at most one request, which takes at most PATIENCE. Returns the seconds until the next call; None if
        there is nothing to send before the next observation."""
        with self._changed:
            wait = self._delay()
            series = self._ledger.take(urgent=self._urgent) if wait == 0 else None
            if series is None:
                return wait
            limit = self._clock.monotonic() + PATIENCE
            deadline = limit if self._close_by is None else min(limit, self._close_by)
            self._sending = True
        error = self._send(series, deadline)
        result = result_of(error, patched=series.exists)
        with self._changed:
            if self._over.is_set():  # `close` has dropped the series
                self._sending = False
                return None
            if error is not None:
                self._trouble = described(error)
            why = self._ledger.settle(series, result, counts=not is_about_the_recorder(error))
            self._pause(result, error)
            self._sending = False
            self._changed.notify_all()
            wait = self._delay()
        self._tell(series, result, error, why)
        return wait

    def run(self) -> None:
        """Call `step` until `close` is done."""
        while True:
            self.step()
            with self._changed:
                if self._close_by is not None and (
                        not self._ledger.open or self._clock.monotonic() >= self._close_by):
                    return
                wait = self._delay()
                if self._close_by is not None:
                    left = self._close_by - self._clock.monotonic()
                    wait = left if wait is None else min(wait, left)
                if wait is None or wait > 0:
                    self._clock.wait(self._changed, wait)

    def warn(self, key: str, text: str) -> None:
        """Log the text as a warning the first time for this `key`, then at DEBUG."""
        with self._changed:
            known = key in self._warned or len(self._warned) >= _MOST_WARNINGS
            if not known:
                self._warned.add(key)
        log.log(logging.DEBUG if known else logging.WARNING, "events of %s: %s", self._reporter.controller, text)

    @property
    def _urgent(self) -> bool:
        return self._flushing > 0 or self._close_by is not None

    def _delay(self) -> float | None:
        wait = None if self._sending else self._ledger.delay(urgent=self._urgent)
        return None if wait is None else max(wait, self._paused_until - self._clock.monotonic(), 0.0)

    def _is_left(self, series: Series, goal: int) -> bool:
        return series.reported < goal and self._ledger.open.get(series.subject) is series

    def _await(self, done: Callable[[], bool], deadline: float, driven: bool) -> bool:
        while True:
            if not driven:
                self.step()
            with self._changed:
                now = self._clock.monotonic()
                if done():
                    return True
                if now >= deadline:
                    return False
                wait = None if driven else self._delay()
                if wait is None or wait > 0:
                    self._clock.wait(self._changed, deadline - now if wait is None else min(deadline - now, wait))

    def _send(self, series: Series, deadline: float) -> BaseException | None:
        try:
            with calls_obey(self._over):
                request = request_for(series, self._reporter, dry_run=self._client.write_defaults.dry_run)
                self._client.request(request, deadline=deadline)
        except BaseException as error:  # noqa: BLE001 - client layers are user code, which must not end the thread
            pass_interrupt(error)
            return error
        return None

    def _pause(self, result: Result, error: BaseException | None) -> None:
        if result not in (Result.LATER, Result.UNKNOWN):
            self._failures = 0
            return
        self._failures += 1
        reason = error_behind(error)
        asked = reason.retry_after if isinstance(reason, ApiError) else None
        wait = max(BACKOFF.delay(self._failures, self._rng), asked or 0.0)
        self._paused_until = self._clock.monotonic() + wait

    def _tell(self, series: Series, result: Result, error: BaseException | None, why: Lost | None) -> None:
        if error is None or is_expected(error) or result in (Result.EXISTS, Result.CHANGED):
            log.debug("event %s (%s of %s): %s", series.name, series.subject.reason, series.subject.regarding,
                      described(error) if error is not None else result.value)
        elif result in (Result.LATER, Result.UNKNOWN) and why is None:
            log.log(logging.INFO if self._failures == 1 else logging.DEBUG,
                    "events of %s are delayed; next attempt in %.1f s: %s", self._reporter.controller,
                    self._paused_until - self._clock.monotonic(), described(error))
        else:
            reason = error_behind(error)
            code = f"{reason.code} {reason.reason}" if isinstance(reason, ApiError) else type(reason).__name__
            right = " (the controller needs the RBAC rules to create and patch events in the group events.k8s.io)" \
                if isinstance(error, ApiError) and error.is_forbidden else ""
            self.warn(f"{series.exists} {code}", f"an event of {series.subject.regarding} cannot be written: "
                                                 f"{described(error)}{right}; further such errors are logged at DEBUG")


UNSPECIFIED = "Unspecified"
"""The reason of an Event that was published without a reason: the server requires one."""
AT_EXIT = 2.0
"""Seconds that a recorder gets to send the rest if the program ends without closing it."""
JOIN = 1.0
"""Real seconds that `close` waits for the thread to end."""


class Recorder:
    """Publishes Events, which `kubectl describe` shows: `publish` never blocks and never raises.

    One thread sends the Events from a queue. Repetitions of an Event become a series, and new Events of one object are
    rate-limited: `burst` at once, then one every `refill` seconds. In a reconciler use `ctx.record(reason, note)`. Safe
    to use from any thread. At the end of its `with` block a Recorder sends the queued Events, for at most 5 s.

    >>> pod = Api.namespaced(client, Pod, "default").get("web-0")
    >>> with Recorder(client, "my-operator") as recorder:
    ...     recorder.publish(pod, "Started", "the first request was answered")
    ...     recorder.flush(10)
    True
    """

    def __init__(self, client: Client, controller: str, *, instance: str | None = None, queue: int = 1000,
                 burst: int = 25, refill: Duration = 300, rng: random.Random | None = None) -> None:
        """Before the first `publish`, nothing is sent and no thread is started.

        `controller`: the reporting controller, such as `example.com/database-operator`; characters that the server
        would refuse become dashes. `instance`: the reporting instance, by default the controller's and the host's name.
        `queue`: the maximum number of waiting new events; repetitions do not count. One object may have `burst` new
        events at once, and then one every `refill` seconds. `rng` chooses names and pauses; for simulations. Raises
        RequestError when a number is out of range, or when `controller` has no usable character.
        """
        check_client(client, "Recorder")
        if not (isinstance(queue, int) and isinstance(burst, int) and min(queue, burst) >= 1 and seconds(refill) > 0):
            raise RequestError(f"a Recorder needs queue >= 1, burst >= 1 and refill > 0, not queue {queue}, burst "
                               f"{burst}, refill {refill}")
        self._client = client
        self._reporter = Reporter.of(controller, instance)
        self._numbers = (queue, burst, seconds(refill))
        self._rng = rng
        self._closed = False
        # On a self-advancing clock a waiting thread would advance the time, so the simulation calls `step` instead.
        self._threaded = not getattr(client.clock, "self_advancing", False)
        self._used = self._is_of_parent = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._sender = self._new_sender()
        renewed_in_children(self)

    def renew(self) -> None:
        """Start over in a forked child process. The parent sends the Events published before the fork, and the parent's
        threads may have held the locks. Must be called only in the child."""
        self._is_of_parent, self._thread = self._used, None
        self._starting, self._sender = threading.Lock(), self._new_sender()
        if self._closed or self._is_of_parent:
            self._closed = True
            self._sender.close(0.0, driven=False)

    def _new_sender(self) -> Sender:
        queue, burst, refill = self._numbers
        rng, timer = self._rng or random.Random(), self._client.clock.monotonic
        return Sender(self._client, self._reporter, Ledger(queue, SpamFilter(burst, refill, timer), rng, timer), rng)

    def publish(self, regarding: Any, reason: str, note: str, *, warning: bool = False, action: str | None = None,
                related: Any = None) -> None:
        """Publish an Event about `regarding`. Never blocks, never raises.

        `regarding`, `related`: an object (of a resource class, a dict, a model of the official client), an ObjectRef,
        or a `Reference`. `reason`: one word in CamelCase, for machines. `action`: the operation in progress, by default
        the reason. Reason and action are cut at 128 bytes. `note`: a sentence for people, cut at 1024 bytes. The Event
        is created in the object's namespace, or in `default` for a cluster-scoped object. Events that differ only in
        the note are counted as one Event.
        """
        guarded(None, "publishing an event", self._publish, regarding, reason, note, warning, action, related)

    def flush(self, timeout: Duration) -> bool:
        """Send everything published so far, without further pauses. Returns whether nothing is left to send.

        Blocks for at most `timeout` seconds. Events that the server refused do not count as left to send; see `lost`.
        """
        return self._sender.flush(seconds(timeout), driven=self._thread is not None)

    def close(self, timeout: Duration = 5) -> bool:
        """Send the published Events like `flush`, then end. Events that are still unsent, and all later Events, are
        lost. Returns whether nothing was left to send; otherwise one log line names the number of lost Events and the
        last error. Blocks for at most `timeout` seconds, then aborts a request in progress. Safe to repeat."""
        self._closed = True
        atexit.unregister(self._at_exit)
        with self._starting:
            thread = self._thread
        reported = self._sender.close(seconds(timeout), driven=thread is not None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN)
        return reported

    @property
    def lost(self) -> Mapping[str, int]:
        """The number of lost events, by cause: `full`, `spam`, `refused`, `closed`, `invalid`."""
        return {why.name.lower(): number for why, number in self._sender.lost.items() if number}

    @property
    def waiting(self) -> int:
        """How many events have not been sent yet."""
        return self._sender.waiting

    def due(self) -> float | None:
        """The seconds until `step` has something to send; None before the first `publish`. For simulations."""
        return self._sender.due()

    def step(self) -> float | None:
        """Send at most one request, as the thread does. Returns the seconds until the next call; None when there is
        nothing to send. For simulations."""
        return self._sender.step()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _publish(self, regarding: Any, reason: str, note: str, warning: bool, action: str | None, related: Any) -> None:
        self._used = True
        try:
            if not isinstance(warning, bool):
                raise TypeError(f"warning must be True or False, not {type(warning).__name__}")
            about = Reference.of(regarding)
            also = None if related is None else Reference.of(related)
            why = short(str(reason), UNSPECIFIED)
            subject = Subject(about, also, warning, why, short(str(action or why), why))
            text = cut(str(note), NOTE, MARK)
        except BaseException as error:  # noqa: BLE001 - objects and their `str` are user code
            pass_interrupt(error)
            self._sender.reject(f"cannot record an event: {described(error)}")
            return
        self._sender.observe(subject, text)
        if self._is_of_parent:
            self._sender.warn("forked", "nothing is sent: the recorder was used in the process that this one was "
                              "forked from. Make a new Recorder in this process")
        elif self._threaded and self._thread is None and not self._closed:
            self._begin()

    def _begin(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = Thread(target=self._sender.run, name=f"events-of-{self._reporter.controller}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # too many threads, or the interpreter is ending; the next event retries
                    self._sender.warn("thread", f"cannot start a thread to send them: {error}")
                    return
                self._thread = thread
                atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Flush but do not close: a controller closes its recorder itself, after its last runs."""
        if not self.flush(AT_EXIT):
            self._sender.warn("exit", f"the program ends; unsent events: {self._sender.waiting}")

    def __repr__(self) -> str:
        return f"<Recorder of {self._reporter.controller}>"
