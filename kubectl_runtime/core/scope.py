"""`StopToken` ends the work of threads; `RunScope` records which run a thread works for.

A `StopToken` lets one thread stop others at once:

    state    set(reason)                          wait(timeout)
    running  -> stopped; callbacks run, once      blocks until stopped or the timeout
    stopped  nothing                              returns True at once

Callbacks are for code that cannot check the token: a thread blocked in a socket read is woken by a callback that shuts
the socket down. Callbacks run in the thread that calls `set`, outside the lock, in the order of their registration, and
must be short. Their exceptions are logged. Only a KeyboardInterrupt in the main thread is raised again, after all
callbacks were called: the user caused it, not the callback.

A `RunScope` describes the work that a thread does for a controller: the run, the tokens that end its calls, the fences
that check its writes.

    field             set by                                   read by
    run               the run's beginning                      the observers of writes, recordings
    field_manager     the run's beginning                      writes that name no field manager
    logged            the invoker                              `RunFilter`, for the fields of log records
    stop, cut         the run, a webhook, a recorder, …        calls, waits, watches (see `calls_obey`)
    family, fences    the run's beginning                      writes of the controller's client and related clients
    trace             `Tracing`                                log records, metrics

One context variable holds the scope. Until a scope is left, it applies to the thread that entered it, and to copies of
that thread's context (`contextvars.copy_context`, `asyncio.to_thread`). A thread that is merely started within a scope
does not belong to it, on any Python version: otherwise a thread of a user's pool would count as part of the run that
happened to start the thread. Up to Python 3.13 a new thread has an empty context. From 3.14 on, on a build without the
GIL or under `-X thread_inherit_context`, it has a copy of its starter's context; a scope in that copy is ignored (see
`_inherited`).
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Protocol

import msgspec

from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, renewed_in_children
from kubectl_runtime.core.meta.gvk import ObjectRef

log = guarded_logger(__name__)


class StopToken:
    """A signal that something must end: it is set once, and all threads that wait on it or check it notice.

    Safe to use from any thread; `set` takes a lock, so signal handlers must not call it. `wait` blocks until the token
    is set, or for the given seconds at most.

    >>> stop = StopToken()
    >>> stop.wait(0)
    False
    >>> stop.set("we are done")
    >>> stop.is_set(), stop.reason
    (True, 'we are done')
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """A token that is not set."""
        self._clock = clock
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._stopped = False
        self._reason = ""
        self._callbacks: dict[object, Callable[[], None]] = {}
        renewed_in_children(self)

    def renew(self) -> None:
        """Free the lock, whichever thread holds it. Only for a forked child process."""
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)

    @property
    def reason(self) -> str:
        """Why the token was set, for log lines; empty until then."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the token is set. Takes no lock."""
        return self._stopped

    def set(self, reason: str = "") -> None:
        """Set the token, with a `reason` for logs. Only the first call counts. Does not block, except for the
        callbacks' own time.

        Raises nothing except a KeyboardInterrupt that arrives in the main thread during the call.
        """
        with self._condition:
            if self._stopped:
                return
            self._reason = reason
            self._stopped = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
            self._condition.notify_all()
        _call(callbacks)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the token is set or `timeout` seconds have passed on the token's clock; returns whether it is
        set.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._condition:
            while not self._stopped:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    break
                self._clock.wait(self._condition, left)
            return self._stopped

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the token is set (at once if it is already set); returns a function that removes the
        callback."""
        key = object()
        with self._lock:  # the condition's own lock: entering it takes less time, and each network call does it twice
            stopped = self._stopped
            if not stopped:
                self._callbacks[key] = callback
        if stopped:
            _call([callback])

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

    def __repr__(self) -> str:
        return f"<StopToken {'set: ' + self._reason if self._stopped else 'not set'}>"


def _call(callbacks: Iterable[Callable[[], None]]) -> None:
    interrupt = None
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                interrupt = error
            else:
                log.exception("a stop callback failed")
    if interrupt is not None:
        raise interrupt


class FirstOf(StopToken):
    """A token that is set when one of several tokens is set. A FirstOf costs nothing until `wait` or `on_set` is
    called."""

    def __init__(self, *tokens: StopToken, clock: Clock | None = None) -> None:
        """`clock`: for waits with a timeout; by default the clock of the first token."""
        # The base class's __init__ is not called, because it makes a lock, which a FirstOf does not use, and every call
        # in a run makes a FirstOf.
        self._clock = clock or tokens[0]._clock
        self._tokens = tokens

    @property
    def reason(self) -> str:
        """Why one of the tokens was set; empty until then."""
        return next((token.reason for token in self._tokens if token.is_set()), "")

    def is_set(self) -> bool:
        """Whether one of the tokens is set. Takes no lock."""
        return any(token.is_set() for token in self._tokens)

    def set(self, reason: str = "") -> None:
        """Raise TypeError: only the combined tokens can be set."""
        raise TypeError(f"FirstOf.set({reason!r}): a FirstOf cannot be set itself; set one of the tokens that it "
                        "combines")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until one of the tokens is set, or `timeout` seconds have passed; returns whether one is set."""
        woken = StopToken(clock=self._clock)
        forget = self.on_set(woken.set)
        try:
            woken.wait(timeout)
            return self.is_set()  # a token may set itself when it is checked
        finally:
            forget()

    def renew(self) -> None:
        """Do nothing: there is no lock."""

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when one of the tokens is set (at once if one is set already); returns a function that
        removes the callback. `callback` may be called once for each token that is set."""
        each = [token.on_set(callback) for token in self._tokens]

        def forget() -> None:
            for take_back in each:
                take_back()

        return forget

    def __repr__(self) -> str:
        return f"<FirstOf {', '.join(map(repr, self._tokens))}>"



class ScopedRun(Protocol):
    """The methods of a run that modules other than the queue call."""

    key: Key
    triggered_itself: bool
    latest: Any
    """The record of the run's object after this run's last write of it; None if the run has not written the object."""

    def begins_write(self, ref: ObjectRef | None) -> None:
        """Record that a write of `ref` (None for a new object) is about to be sent."""

    def wrote(self, write: Any) -> None:
        """Record that the server answered `write`, a `client.api.client.Write`."""

    def is_given(self, uid: str, version: str) -> bool:
        """Whether the run knows this version of its object: the run started with this version, or the library wrote it
        for this run."""

    def wrote_quietly(self, uid: str, before: str, after: str) -> None:
        """Record that the library itself, for this run, replaced version `before` of the object with this uid by
        version `after`. If the run knows version `before`, the change triggers no other run."""

    def waits_for(self, *children: str) -> None:
        """Record that these children, such as `Deployment web`, are not ready; the controller's `ready` condition names
        them."""


class LoggedRun(Protocol):
    """The fields of a run for a log line; a reconciler's `Context` has them."""

    @property
    def controller(self) -> str:
        """The controller's name."""

    @property
    def ref(self) -> ObjectRef:
        """The object that is reconciled."""

    @property
    def reconcile_id(self) -> str:
        """The id of the run in logs."""

    @property
    def reason(self) -> str:
        """Why the run happens."""


class WriteFence(Protocol):
    """Refuses writes."""

    @property
    def check(self) -> Callable[[Any], None]:
        """A function that takes a writing call and raises if the call must not be sent."""


class Trace(msgspec.Struct, eq=False):
    """The trace and span ids of a run, as hex digits. `run`: the controller and key. `over`: the run has ended."""

    trace_id: str
    span_id: str
    run: tuple[str, Key]
    sampled: bool = True
    over: bool = False


class RunScope(msgspec.Struct, eq=False):
    """The run or call that a thread works for; see the module. A scope belongs to the thread that enters it, and is
    entered only once."""

    stop: StopToken | None = None
    """Ends reads, streams and waits."""
    cut: StopToken | None = None
    """Ends writes. It is set later than `stop`, since an interrupted write leaves its outcome unknown."""
    run: ScopedRun | None = None
    family: object = None
    """Identifies the related clients whose writes are checked."""
    fences: tuple[WriteFence, ...] = ()
    field_manager: str | None = None
    """The controller's name, as a field manager."""
    logged: LoggedRun | None = None
    trace: Trace | None = None
    deadline: float | None = None
    """The deadline of the outermost `deadline` block, on the system's monotonic clock."""
    outer: RunScope | None = None
    """The scope that applies again after this scope is left, also in copies of the context."""
    thread: int = 0
    over: bool = False
    shard: int | None = None
    """The shard of the run's object, if it is known when the run begins."""


_current: ContextVar[RunScope | None] = ContextVar("kubectl_runtime_scope", default=None)
_get, _thread = _current.get, threading.get_ident

_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))
_probe: ContextVar[object] = ContextVar("kubectl_runtime_probe", default=None)


def enter_scope(scope: RunScope) -> Token[RunScope | None]:
    """Let this thread work for `scope` until `leave_scope`, which takes the returned token."""
    scope.thread = _thread()
    return _current.set(scope)


def leave_scope(entered: Token[RunScope | None]) -> None:
    """Restore the scope that applied before `enter_scope`. The left scope no longer applies, here or in copies of the
    context. Call this in the context that entered the scope."""
    scope = _get()
    if scope is not None:
        scope.over = True
    _current.reset(entered)


def current_scope() -> RunScope | None:
    """The scope that this thread works for, or None."""
    scope = _get()
    while scope is not None and scope.over:
        scope = scope.outer
    if scope is not None and _THREADS_INHERIT and scope.thread != _thread() and _inherited():
        return None
    return scope


def _inherited() -> bool:
    """Whether the current context is the one that this thread was started with, not one that the program entered."""
    context = getattr(threading.current_thread(), "_context", None)
    if context is None:
        return False
    mark = object()
    entered = _probe.set(mark)
    try:
        return context.get(_probe) is mark
    finally:
        _probe.reset(entered)


def _inside(outer: RunScope | None) -> RunScope:
    """A new scope within `outer`, with the same fields."""
    if outer is None:
        return RunScope()
    return RunScope(outer.stop, outer.cut, outer.run, outer.family, outer.fences,
                    outer.field_manager, outer.logged, outer.trace, outer.deadline, outer,
                    shard=outer.shard)


@contextmanager
def calls_obey(stop: StopToken) -> Iterator[None]:
    """In this block only `stop` ends the calls of this thread, both reads and writes."""
    scope = _inside(current_scope())
    scope.stop = scope.cut = stop
    entered = enter_scope(scope)
    try:
        yield
    finally:
        leave_scope(entered)


@contextmanager
def calls_also_obey(stop: StopToken, deadline: float) -> Iterator[None]:
    """In this block `stop` also ends the calls of this thread, and its waits end at `deadline` at the latest (on the
    system's monotonic clock)."""
    scope = _inside(current_scope())
    scope.stop = stop if scope.stop is None else FirstOf(scope.stop, stop)
    scope.cut = stop if scope.cut is None else FirstOf(scope.cut, stop)
    scope.deadline = deadline if scope.deadline is None else min(deadline, scope.deadline)
    entered = enter_scope(scope)
    try:
        yield
    finally:
        leave_scope(entered)


def time_left(left: float | None, clock: Clock) -> float | None:
    """The seconds for which this thread may wait on `clock`: `left` (None: no limit), or the time until the end of the
    `deadline` block if that is shorter."""
    scope = current_scope()
    if scope is None or scope.deadline is None or clock is not SYSTEM_CLOCK:
        return left
    until = scope.deadline - clock.monotonic()
    return until if left is None else min(left, until)


def current_run() -> ScopedRun | None:
    """The run that this thread works for; None outside of runs."""
    scope = current_scope()
    return None if scope is None else scope.run


def current_trace() -> Trace | None:
    """The trace of the run that this thread works for, or None; the run may have ended."""
    scope = current_scope()
    return None if scope is None else scope.trace


def stray_trace() -> Trace | None:
    """The trace in this thread's context, if the context has one but the thread works for no run; otherwise None."""
    scope = _get()
    return scope.trace if scope is not None and current_scope() is None else None


def scoped_stop() -> StopToken | None:
    """The token that ends the reads and waits of this thread; None if no scope sets one."""
    scope = current_scope()
    return None if scope is None else scope.stop


def scoped_cut() -> StopToken | None:
    """The token that ends the writes of this thread; None if no scope sets one."""
    scope = current_scope()
    return None if scope is None else scope.cut


def with_scope(stop: StopToken, clock: Clock) -> StopToken:
    """Outside a run `stop` itself; within a run, a token that is set when `stop` is set or the run must end."""
    scoped = scoped_stop()
    return stop if scoped is None else FirstOf(stop, scoped, clock=clock)
