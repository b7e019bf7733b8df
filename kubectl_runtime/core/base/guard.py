"""`Guard`: calls one piece of user code many times, and says when it fails without saying it each time.

    a call                                        said
    raises for the first time, or at a new place  error, with its traceback; of a KubeError the text, which
                                                  says it all
    raises there again                            error, in one line: at each doubling of how often, and when nothing
                                                  was told of that place for `WITHIN` seconds
    ends well, and `WITHIN` seconds have passed   info: after how many failures; then it starts over
    since it raised last
    ends well sooner                              nothing: code that fails for one object only works for the next one

A place is the class of the exception and the line that raised it. KeyboardInterrupt in the main thread passes.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guarded_log import GuardedLogger, guarded_logger, pass_interrupt
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

T = TypeVar("T")

Given: TypeAlias = str | Callable[..., str]
"""What the code was about: a text such as `Apply of pod a`, or a function that makes it of the call's arguments."""

WITHIN = 60.0
"""Seconds."""

MOST_PLACES = 20
"""Places that are counted each by itself; all further ones are one."""

Place: TypeAlias = tuple[str, str, int]

ELSEWHERE: Place = ("", "", 0)

log = guarded_logger(__name__)


class Guard:
    """One piece of user code. Safe to use from any thread; no lock is held while it or a log handler runs."""

    __slots__ = ("_clock", "_last", "_lock", "_logger", "_places", "_since", "count", "name")

    def __init__(self, name: str, logger: GuardedLogger = log, clock: Clock = SYSTEM_CLOCK) -> None:
        """`name`: what the code is called in the log, with a comma at its end where its words need one."""
        self.name = name
        self._logger = logger
        self._clock = clock
        self._lock = ForkSafeLock()
        self._places: dict[Place, tuple[int, float]] = {}
        """How often each place raised, and when that was told last."""
        self.count = 0
        """Failures since it last worked; while it is 0, `succeeded` has nothing to do and need not be called."""
        self._since = self._last = 0.0

    def call(self, default: T, given: Given, function: Callable[..., T], *args: Any) -> T:
        """`function(*args)`; `default`, when it raises. `given`, or `given(*args)`, says in the log what it was about;
        empty: nothing worth saying."""
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller must go on
            self.failed(error, given, *args)
            return default
        if self.count:
            self.succeeded()
        return result

    def failed(self, error: BaseException, given: Given = "", *args: Any) -> None:
        """It raised `error`. For code that does not use `call`. Raises what `pass_interrupt` does."""
        pass_interrupt(error)
        now = self._clock.monotonic()
        place = _place(error)
        with self._lock:
            if not self.count:
                self._since = now
            self.count, self._last = self.count + 1, now
            if place not in self._places and len(self._places) >= MOST_PLACES:
                place = ELSEWHERE
            count, told = self._places.get(place, (0, now))
            count += 1
            tell = count & (count - 1) == 0 or now - told >= WITHIN
            self._places[place] = count, now if tell else told
            since = self._since
        if not tell:
            return
        what = self.name if not given else f"{self.name.rstrip(',')}, given {self._text(given, args)},"
        if count == 1 and isinstance(error, KubeError):
            self._logger.error("%s raised %s: %s", what, type(error).__name__, self._text(str, (error,)))
        elif count == 1:
            self._logger.error("%s raised %s", what, type(error).__name__, exc_info=error)
        else:
            self._logger.error("%s raised %s again: %d failures like it in %.0f s", what, type(error).__name__, count,
                               now - since)

    def succeeded(self) -> None:
        """It ended well. For code that does not use `call`."""
        if not self.count:
            return
        now = self._clock.monotonic()
        with self._lock:
            if not self.count or now - self._last < WITHIN:
                return
            count, self.count = self.count, 0
            lasted = self._last - self._since
            self._places.clear()
        self._logger.info("%s works again after %d failure%s in %.0f s", self.name, count, "" if count == 1 else "s",
                          lasted)

    def _text(self, given: Given, args: tuple[Any, ...]) -> str:
        """How an object shows itself is user code as well."""
        if isinstance(given, str):
            return given
        try:
            return given(*args)
        except BaseException as error:  # noqa: BLE001 - as in `call`
            pass_interrupt(error)
            return f"what cannot be shown ({type(error).__name__})"


def _place(error: BaseException) -> Place:
    trace = error.__traceback__
    if trace is None:
        return type(error).__qualname__, "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__qualname__, trace.tb_frame.f_code.co_filename, trace.tb_lineno
