"""`guarded_logger`: a logger that raises nothing. Log handlers are user code: one that raises costs its line.

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
from typing import Any, TypeAlias

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
