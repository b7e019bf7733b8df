"""`RunScope`: the work that a thread does for a controller: its run, the tokens that end its calls, the fences.

    field             set by                                   read by
    run               the run's beginning                      the observers of writes, recordings
    field_manager     the run's beginning                      writes that name no field manager
    logged            the invoker                              `RunFilter`, for the fields of log records
    stop, cut         the run, a webhook, a recorder, …        calls, waits, watches (see `calls_obey`)
    family, fences    the run's beginning                      writes of the controller's client and related clients
    trace             `Tracing`                                log records, metrics

One context variable holds the scope. It applies to the thread that entered it, and to copies of that context
(`contextvars.copy_context`, `asyncio.to_thread`), until it is left. A thread that is merely started within a scope does
not belong to it, on any Python: otherwise a thread of a user's pool would work for the run that happened to start it.
Up to Python 3.13 a new thread has an empty context. From 3.14 on, on a build without the GIL or under
`-X thread_inherit_context`, it has a copy of its starter's, which is ignored (see `_inherited`).
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Protocol

import msgspec

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.stop import FirstOf, StopToken
from kubectl_runtime.core.meta.gvk import ObjectRef


class ScopedRun(Protocol):
    """The interface of a run for modules other than the queue."""

    key: Key
    triggered_itself: bool
    latest: Any
    """The record of the run's object from the last write of it in this run; None without one."""

    def begins_write(self, ref: ObjectRef | None) -> None:
        """A write of `ref` (None: of a new object) is about to be sent."""

    def wrote(self, write: Any) -> None:
        """The server answered a write, a `client.api.client.Write`."""

    def is_given(self, uid: str, version: str) -> bool:
        """Whether the run knows this version of its object: it was started with it, or the library wrote it for this
        run.
        """

    def wrote_quietly(self, uid: str, before: str, after: str) -> None:
        """The library itself wrote version `after` of the object with this uid in place of `before`, for this run: if
        the run knows version `before`, the change triggers no other run."""

    def waits_for(self, *children: str) -> None:
        """These children, such as `Deployment web`, are not ready: the controller's `ready` condition names them."""


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
        """A function that takes a call that writes, and raises if it must not be sent."""


class Trace(msgspec.Struct, eq=False):
    """The trace of a run of this controller and key, and its span, as hex digits. `over`: the run has ended."""

    trace_id: str
    span_id: str
    run: tuple[str, Key]
    sampled: bool = True
    over: bool = False


class RunScope(msgspec.Struct, eq=False):
    """The run or call that a thread works for; see the module. It belongs to the thread that enters it, and is entered
    only once."""

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
    """The scope that is in force again after this one, also in copies of the context."""
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
    """Restore the scope before `enter_scope`. The left scope is over, here and in copies of the context. Call it in the
    context that entered the scope."""
    scope = _get()
    if scope is not None:
        scope.over = True
    _current.reset(entered)


def current_scope() -> RunScope | None:
    """The scope that this thread works for; None without one."""
    scope = _get()
    while scope is not None and scope.over:
        scope = scope.outer
    if scope is not None and _THREADS_INHERIT and scope.thread != _thread() and _inherited():
        return None
    return scope


def _inherited() -> bool:
    """Whether the current context is the one with which this thread was started, not one that the program entered."""
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
    """In this block only `stop` ends the calls of this thread, reads as well as writes."""
    scope = _inside(current_scope())
    scope.stop = scope.cut = stop
    entered = enter_scope(scope)
    try:
        yield
    finally:
        leave_scope(entered)


@contextmanager
def calls_also_obey(stop: StopToken, deadline: float) -> Iterator[None]:
    """In this block `stop` also ends the calls of this thread; waits last until `deadline` at most, on the system's
    monotonic clock."""
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
    """Seconds for a wait of this thread on `clock`: `left` (None: no limit), or less within a `deadline` block."""
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
    """The trace of the run that this thread works for, which may be over."""
    scope = current_scope()
    return None if scope is None else scope.trace


def stray_trace() -> Trace | None:
    """The trace of a run that this thread's context still has, though the thread does not work for the run."""
    scope = _get()
    return scope.trace if scope is not None and current_scope() is None else None


def scoped_stop() -> StopToken | None:
    """The token that ends the reads and waits of this thread; None without one."""
    scope = current_scope()
    return None if scope is None else scope.stop


def scoped_cut() -> StopToken | None:
    """The token that ends the writes of this thread; None without one."""
    scope = current_scope()
    return None if scope is None else scope.cut


def with_scope(stop: StopToken, clock: Clock) -> StopToken:
    """`stop`; within a run, a token that is set when `stop` is set or when the run must end."""
    scoped = scoped_stop()
    return stop if scoped is None else FirstOf(stop, scoped, clock=clock)
