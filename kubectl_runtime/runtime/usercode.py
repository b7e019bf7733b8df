"""What happens when code that the user gave us raises.

    KeyboardInterrupt in the main thread   passes: it is the person at the keyboard
    anything else, SystemExit included     logged with its traceback; the caller goes on

A watch that ends because of one bad object or one bad callback would look healthy and be dead, so nothing else passes.
An exception is user code too: its text is asked for by `described`, never by `str`.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def report(error: BaseException, where: str, *args: object) -> None:
    """Log what user code raised; `where % args` names the code and the object. Call it where the error is caught."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    log.error("%s raised %s", where % args if args else where, type(error).__name__, exc_info=error)


def described(error: BaseException) -> str:
    """Type and text of an exception, in which the text may fail: `ValueError: no such thing`."""
    name = type(error).__name__
    text = guarded("<its text cannot be shown>", f"{name}.__str__", lambda: str(error))
    return f"{name}: {text}" if text else name


def guarded(default: T, where: str, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`; `default`, and a report, when it raises. `where` names the function."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - see the module docstring
        report(error, where)
        return default
