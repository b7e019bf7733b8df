"""Waiting for one object: `await_condition`, and `delete_and_finalize`, which deletes the object and waits until it is
gone.

    the condition is true of the object, or of None          the object or None is returned
    the time is up                                           WaitTimeout, with the last seen state
    the caller's stop token is set                           WaitStopped, with the last seen state
    the condition can never become true                      WaitFailed, with the reason
    the condition itself raises                              that exception
    errors of a server or a network                          retried, as in every watcher; messages have the last error

Both functions block the calling thread, on the clock of the Api's client. The calling thread reads the watch. A second
thread, which ends with the wait, only wakes the calling thread at the deadline, because nothing else would end a read
from a silent connection. With a simulated clock that advances when a thread waits, there is no second thread, and no
deadline is missed. But the whole simulation, except for the embedded server, stands still during the call. In a
simulated controller use `Simulation.run_until` instead.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Self, TypeVar, overload

from msgspec.structs import replace

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.http.retry import KindNotServedError, is_about_the_uid
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, Status
from kubectl_runtime.core.base.guard import (
    check_api,
    check_callback,
    closing_source,
    generation_of,
    is_current,
    not_awaitable,
)
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, Thread, period_of
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.selectors import fields
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import DeleteParams, ListParams, Preconditions
from kubectl_runtime.core.requests.request import Named, object_name
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.core.scope import FirstOf, StopToken, calls_also_obey, scoped_stop
from kubectl_runtime.runtime.conditions import Condition, NeverReady, OfExisting, is_deleted, name_of, why_never
from kubectl_runtime.runtime.watch.backoff import FailureLog, WatchTarget, backoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import Apply, Delete, Failed, InitDone, RawStep
from kubectl_runtime.runtime.watch.watcher import one_object, readers, watch_steps

MOST_MESSAGE = 120
"""The number of characters of a condition's message that are shown."""


def last_seen(obj: Any, looked: bool) -> str:
    """The last seen state of an object, without its content: the phase, the counts and the conditions of its status. A
    condition appears as `type=status (reason: message)`; long messages are cut, and a condition of an older generation
    names that generation."""
    if not looked:
        return "it was never seen, because no list was answered"
    if obj is None:
        return "it does not exist"
    if isinstance(obj, InvalidObject):
        return f"last seen: {obj.error}"
    parts = [f"uid {obj.uid}", f"resourceVersion {obj.resource_version}"]
    if isinstance(obj, Resource):
        if obj.deletion_timestamp is not None:
            left = f", waiting for {', '.join(obj.finalizers)}" if obj.finalizers else ""
            parts.append(f"being deleted since {format_time(obj.deletion_timestamp)}{left}")
        parts += _status_parts(obj)
    return f"last seen: {', '.join(parts)}"


def _status_parts(obj: Resource) -> list[str]:
    try:
        status = obj.get("status")
    except KubeError as error:
        return [str(error)]
    if not isinstance(status, dict):
        return ["no status yet"] if getattr(type(obj), "status", None) is not None else []
    parts = [f"generation {obj.generation}"] if "observedGeneration" in status else []
    parts += [f"{key} {value}" for key, value in status.items()
              if key == "phase" or (isinstance(value, int) and not isinstance(value, bool))]
    conditions = status.get("conditions")
    for entry in conditions if isinstance(conditions, list) else ():
        if isinstance(entry, dict):
            why = ": ".join(_shortened(entry[key]) for key in ("reason", "message") if entry.get(key))
            if not is_current(obj, entry):
                lags = f"of generation {generation_of(obj, entry)}, not yet {obj.generation}"
                why = f"{why}; {lags}" if why else lags
            parts.append(f"{entry.get('type')}={entry.get('status')}{f' ({why})' if why else ''}")
    return parts


def _shortened(text: object) -> str:
    """The text on one line, cut at `MOST_MESSAGE` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= MOST_MESSAGE else f"{line[:MOST_MESSAGE - 1]}…"


K = TypeVar("K")

_TIME_IS_UP = "the time of the wait is up"


class WaitError(KubeError):
    """A wait that ended before its condition was true. `condition`: the name of the condition. `last_seen`: the object
    as last seen; None if it did not exist or was never seen. `last_error`: the watch's last error, if no event or list
    has arrived since; otherwise empty."""

    def __init__(self, message: str, condition: str, last_seen: Any = None, last_error: str = "") -> None:
        super().__init__(message)
        self.condition = condition
        self.last_seen = last_seen
        self.last_error = last_error


class WaitTimeout(WaitError):
    """The time was up before the condition was true.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> await_condition(maps, "absent", conditions.is_created, timeout=0.1)
    Traceback (most recent call last):
        ...
    WaitTimeout: ...
    """


class WaitStopped(WaitError):
    """The caller's stop token was set before the condition was true.

    >>> (stop := StopToken()).set()
    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> await_condition(maps, "absent", conditions.is_created, timeout=10, stop=stop)
    Traceback (most recent call last):
        ...
    WaitStopped: ...
    """


class WaitFailed(WaitError, NeverReady):
    """The object is in a final state, and the condition can never become true: for example, a Job failed during a wait
    for `is_job_completed`.

    >>> issubclass(WaitFailed, KubeError)
    True
    """


@overload
def await_condition(api: Api[K], name: Named, condition: OfExisting, *, timeout: Duration,
                    stop: StopToken | None = None) -> K: ...
@overload
def await_condition(api: Api[K], name: Named, condition: Condition, *, timeout: Duration,
                    stop: StopToken | None = None) -> K | None: ...
def await_condition(api: Api[K], name: Named, condition: Condition, *, timeout: Duration,
                    stop: StopToken | None = None) -> K | None:
    """Block until `condition(obj)` is true for the object `name`. Returns that object, or None if it does not exist.
    (For `has(...)`, `is_created` and similar conditions, type checkers know that the result is not None.)

    `condition` is called in this thread with the object or None, first at once and then after each change. Lost
    connections, server restarts, and deleting and re-creating the object do not end the wait. `name` may be an object,
    whose name is then used. `timeout`: seconds or `timedelta`. Needs the verbs list and watch. Safe from any thread.
    Raises WaitTimeout; WaitStopped when `stop` is set; WaitFailed when the condition can never become true (a Job that
    failed, a rollout past its deadline); RequestError for arguments that cannot work (a namespaced kind without a
    namespace, no name, a timeout that is not above 0). Raises whatever `condition` raises, such as DecodeError for an
    object that does not decode.

    >>> deployments = Api.namespaced(client, Deployment, "default")
    >>> await_condition(deployments, "web", conditions.is_created, timeout=10).name
    'web'
    """
    check_api(api, "await_condition")
    name = object_name(api.place, name)
    operation = build.get(api.place, name).operation.replace("get", "await", 1)  # checks the arguments, too
    if not callable(condition):
        raise RequestError(f"{operation}: {condition!r} is not a condition: pass a function from an object to a bool")
    check_callback(f"{operation}: the condition", condition, "obj")
    with _Deadline(period_of(f"{operation}: timeout", timeout), api.client.clock, stop) as deadline:
        return _await(api, name, condition, operation, deadline)


def delete_and_finalize(api: Api[Any], name: Named, params: DeleteParams | None = None, *, timeout: Duration,
                        stop: StopToken | None = None) -> None:
    """Delete the object `name`, and block until it is gone, after its finalizers and its grace period.

    Unless `params` have preconditions, the object is read first, and the deletion is bound to its uid. So the deletion
    can be repeated after a lost answer, and a new object of the same name stays; the old object then counts as gone. A
    missing object is not an error. `timeout` counts from the call, but the DELETE request itself is bounded by the
    client's own deadline. Needs the verbs delete, list and watch. Raises ApiError when the deletion is refused or the
    kind is not served, and RequestError for a dry run. Otherwise raises like `await_condition`, with the remaining
    finalizers in the message.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> delete_and_finalize(maps, "settings", timeout=10)
    >>> maps.get_opt("settings") is None
    True
    """
    check_api(api, "delete_and_finalize")
    if params is not None and params.dry_run:
        raise RequestError(f"{api.place.words('delete', name)}: a dry run deletes nothing, so there is "
                           "nothing to wait for")
    name = object_name(api.place, name)
    operation = build.delete(api.place, name).operation
    with _Deadline(period_of(f"{operation}: timeout", timeout), api.client.clock, stop) as deadline:
        uid = delete_for_uid(api, name, params)
        if uid:
            _await(api, name, is_deleted(uid), f"{operation} and await its end", deadline)


def delete_for_uid(api: Api[Any], name: str, params: DeleteParams | None) -> str:
    """Delete the object `name` as it is now. Returns the uid of the deleted object; empty if the object did not exist
    or is gone already.

    Needs the verbs list and delete. Raises like `Api.delete`.
    """
    foresee(api.place, "list")
    params = params or DeleteParams()
    bound = params.preconditions is None
    if bound:
        _, found = api.list_page(ListParams(field_selector=fields({"metadata.name": name})))  # watching needs list, too
        record = next((record for record in found if record.name == name), None)
        if record is None:
            return ""
        params = replace(params, preconditions=Preconditions(uid=record.uid))
    try:
        answer = api.delete(name, params)
    except KindNotServedError:
        raise
    except ApiError as error:
        if error.is_not_found or (bound and error.is_conflict and is_about_the_uid(error.status)):
            return ""
        raise
    if not isinstance(answer, Status):
        return str(answer.uid)
    if answer.details is not None and answer.details.uid:
        return answer.details.uid
    left = api.get_opt(name)  # this server does not return the deleted object
    return left.uid if left is not None and left.deletion_timestamp is not None else ""


def _await(api: Api[K], name: str, condition: Condition, operation: str, deadline: _Deadline) -> K | None:
    foresee(api.place, "list", "watch")
    clock, token = api.client.clock, deadline.token
    config = WatcherConfig(field_selector=fields({"metadata.name": name}))
    target = WatchTarget(api.resource, api.namespace, field_selector=config.field_text)
    trouble = _Trouble(target, clock)
    steps = trouble.noting(watch_steps(api, config, token, clock=clock))
    events = readers(backoff(steps, token, target, clock=clock), reader_of(api.kind))
    seen: K | None = None
    looked, version, changed = False, "", clock.monotonic()
    with closing(one_object(events)) as versions:
        for seen in versions:
            looked = True
            if version != (version := str(getattr(seen, "resource_version", ""))):
                changed = clock.monotonic()
            try:
                done = not_awaitable(condition(seen), condition)
            except Exception as error:
                if seen is None:
                    error.add_note(f"{operation}: there is no such object, so the condition was called with None: "
                                   "write `obj is not None and ...`")
                raise
            if done:
                return seen
            if why := why_never(condition, seen):
                raise WaitFailed(f"{operation}: {name_of(condition)} can never become true: {why}; "
                                 f"{last_seen(seen, True)}",
                                 name_of(condition), seen)
    wanted = name_of(condition)
    happened = f"{operation}: {wanted} did not become true {deadline.end()}; {last_seen(seen, looked)}"
    if seen is not None:
        happened += f", unchanged for {clock.monotonic() - changed:.0f} s"
    if trouble.text:
        happened += f"; {clock.monotonic() - trouble.at:.0f} s before, the watch failed: {trouble.text}"
    kind = WaitTimeout if deadline.is_over else WaitStopped
    raise kind(happened, wanted, seen, trouble.text)


class _Trouble:
    """The watch's last error and its time, kept until an event or a complete list arrives. An open watch may be
    silent."""

    def __init__(self, target: WatchTarget, clock: Clock) -> None:
        self._describe = FailureLog(target).describe
        self._clock = clock
        self.text = ""
        self.at = 0.0

    def noting(self, steps: Iterable[RawStep[Record]]) -> Iterator[RawStep[Record]]:
        with closing_source(steps):
            for step in steps:
                if isinstance(step, Failed):
                    self.text, self.at = self._describe(step), self._clock.monotonic()
                elif isinstance(step, InitDone | Apply | Delete):
                    self.text = ""
                yield step


class DeadlineExceeded(KubeError, TimeoutError):
    """The time of a `deadline` was up before its block had ended. `__cause__` is the error of the call in progress,
    None if no call failed. An OutcomeUnknownError there means that a write may have been carried out.

    >>> issubclass(DeadlineExceeded, TimeoutError)
    True
    """


@contextmanager
def deadline(timeout: Duration) -> Iterator[None]:
    """Limit the `with` block to `timeout` (seconds or a `timedelta`): library calls in the block end in time.

    When the time is up, calls with their retries, watches, logs, sessions, waits and the iteration over changes end,
    whatever their own limits. The block then raises DeadlineExceeded at its end, even if the block's own code caused
    the delay. Code outside the library is not interrupted. The deadline applies to the thread that enters the block;
    controllers and stores that are started inside continue. Blocks may be nested: the shorter time counts, and a
    block raises DeadlineExceeded only if its own time was up. Raises RequestError for a time that is not above 0.

    >>> with deadline(300):
    ...     names = [one.name for one in Api.namespaced(client, ConfigMap, "default").list_all()]
    """
    span = period_of("deadline", timeout)
    with _Deadline(span, SYSTEM_CLOCK, None, inherits=False) as limit, \
            calls_also_obey(limit.token, SYSTEM_CLOCK.monotonic() + span):
        try:
            yield
        except KubeError as error:
            if limit.token.is_set():
                raise DeadlineExceeded(f"not done within {span:g} s: {error}") from error
            raise
        if limit.token.is_set():
            raise DeadlineExceeded(f"not done within {span:g} s")


class _DeadlineToken(StopToken):
    """A stop token that is set once its clock has reached a time, for code that polls it or waits on it."""

    def __init__(self, at: float, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._at = at

    def is_set(self) -> bool:
        if not super().is_set() and self._clock.monotonic() >= self._at:
            self.set(_TIME_IS_UP)
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        left = max(0.0, self._at - self._clock.monotonic())
        super().wait(left if timeout is None else min(timeout, left))
        return self.is_set()


class _Deadline:
    """A context manager whose token is set when the time is up or `stop` is set, even while a thread is blocked in a
    read. After the block no thread remains, and no callback in a token that outlives the block."""

    def __init__(self, span: float, clock: Clock, stop: StopToken | None, *, inherits: bool = True) -> None:
        """`inherits`: whether the end of this thread's run sets the token, too."""
        self._inherits = inherits
        self._span, self._clock, self._stop = span, clock, stop
        self.token = _DeadlineToken(clock.monotonic() + span, clock)
        self._left = StopToken(clock=clock)
        self._alarm: Thread | None = None
        self._forget: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """Whether the time ended the wait."""
        return self.token.reason == _TIME_IS_UP

    def end(self) -> str:
        """How the wait ended, for messages."""
        if self.is_over:
            return f"within {round(self._span, 2) or self._span:g} s"  # a computed time may have many digits
        return f"when the wait was stopped ({self.token.reason or 'its stop token was set'})"

    def __enter__(self) -> Self:
        # On a self-advancing clock there is no alarm thread, because its wait would move the time.
        if not getattr(self._clock, "self_advancing", False):
            self._alarm = Thread(target=self._ring, name="deadline-of-a-wait", daemon=True)
            self._alarm.start()
        # Within a controller's run, the end of the run ends the wait, too.
        stops = [stop for stop in (self._stop, scoped_stop() if self._inherits else None) if stop is not None]
        if stops:
            stop = FirstOf(*stops, clock=self._clock)
            self._forget = stop.on_set(lambda: self.token.set(stop.reason))
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._left.set()
        if self._alarm is not None:
            self._alarm.join()

    def _ring(self) -> None:
        if not self._left.wait(self._span):
            self.token.set(_TIME_IS_UP)
