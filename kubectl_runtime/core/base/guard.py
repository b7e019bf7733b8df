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

`guarded_logger`: a logger that raises nothing. Log handlers are user code: one that raises costs its line.

What they raise goes to stderr, as `logging` does with what it catches itself, and not to the caller, which may be a
watch that must not end, or a call of the user's whose write is done. Only a KeyboardInterrupt in the main thread
passes: it is the person at the keyboard.
"""
from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.interpreter import ForkSafeLock

Line: TypeAlias = Callable[[], None]
"""Writes one line of the log, in whichever thread calls it."""


def printable(text: str, keep: str = "") -> str:
    """`text` with every character written as Python escapes it that a terminal or a reader of lines would obey: control
    characters, line breaks of all kinds, marks that change the direction of writing. Those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else
                   letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in text)


class _Scribe(threading.local):
    write: Callable[[Line], None] | None = None


_scribe = _Scribe()


class ProcessEnded(BaseException):
    """Ends the process that a simulation plays: a crash. Nothing may catch it but the simulation, so whoever catches
    everything calls `pass_interrupt`."""


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as the logger that it wraps. Safe to use from any thread."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, if the level is enabled. A handler that raises costs its line, and nothing else."""
        try:
            if not self.logger.isEnabledFor(level):
                return
            # One frame more, this one, is not the origin of the line.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            if _scribe.write is None:
                self.logger.log(level, msg, *args, **kwargs)
                return
            if kwargs.get("exc_info") is True:
                kwargs["exc_info"] = sys.exc_info()
            _scribe.write(partial(self.log, level, msg, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - see the module docstring
            pass_interrupt(error)
            _tell_stderr(f"a log handler of {self.logger.name} raised", error)


class HousekeepingLogger(GuardedLogger):
    """Logs as DEBUG what others log as INFO: for what the library does of its own accord. Safe to use from any
    thread."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, if the level that it gets here is enabled."""
        super().log(logging.DEBUG if level == logging.INFO else level, msg, *args,
                    **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})


@contextlib.contextmanager
def written_by(write: Callable[[Line], None] | None) -> Iterator[None]:
    """Within this, what this thread logs is given to `write` instead of the log's handlers, which may block. None:
    to these, as always."""
    before, _scribe.write = _scribe.write, write
    try:
        yield
    finally:
        _scribe.write = before


def guarded_logger(name: str) -> GuardedLogger:
    """The logger called `name`, which never raises: a handler that does costs its line, and nothing else."""
    return GuardedLogger(logging.getLogger(name))


def pass_interrupt(error: BaseException) -> None:
    """Raise `error` if it is the person at the keyboard, or the end of a simulated process. To be called first by
    whoever catches everything."""
    if isinstance(error, ProcessEnded):
        raise error
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def _tell_stderr(what: str, error: BaseException) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    with contextlib.suppress(Exception):  # closed, broken or replaced by user code: there is nobody left to tell
        sys.stderr.write(f"--- {what} ---\n{''.join(traceback.format_exception(error))}")


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
