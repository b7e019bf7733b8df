"""`ToldTraces`: which tracebacks a log has shown lately, so that a service which fails now and then does not fill it.

    a stack that raises       shown
    for the first time        its traceback, from the first line of user code on
    again within ten minutes  only that it was shown, and how long ago
"""
from __future__ import annotations

import threading
from types import TracebackType

from kubectl_runtime.core.base.errors import KubeError, RequestError

AGAIN = 600.0
"""Seconds after which a stack is shown once more: by then its first traceback may be in another file of the log."""

MOST_STACKS = 100
"""Stacks that are remembered; a program that raises from more shows each."""

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
"""What `logging` takes as `exc_info`."""

Stack = tuple[object, ...]

_LIBRARY = __name__.partition(".")[0]


class ToldTraces:
    """The stacks whose tracebacks one log has shown. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[Stack, float] = {}

    def take(self, error: BaseException, now: float) -> ExcInfo | float | None:
        """The traceback to show; or the seconds since it was shown; or None for an error that says it all by itself: a
        `KubeError`, unless it is a mistake of the caller's, whose place is what one needs to know."""
        if isinstance(error, KubeError) and not isinstance(error, RequestError):
            return None
        stack = _stack(error)
        with self._lock:
            shown = self._shown.get(stack)
            if shown is not None and now - shown < AGAIN:
                return now - shown
            if len(self._shown) >= MOST_STACKS:
                self._shown.clear()
            self._shown[stack] = now
        return type(error), error, _from_user_code(error.__traceback__)


def _stack(error: BaseException) -> Stack:
    """The class of the error, and the lines through which it came."""
    found: list[object] = [type(error)]
    trace = error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return tuple(found)


def _from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the library's own lines at its top; all of it where nothing else is in it."""
    first = trace
    while first is not None and _is_ours(first.tb_frame.f_globals.get("__name__")):
        first = first.tb_next
    return first or trace


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == _LIBRARY
