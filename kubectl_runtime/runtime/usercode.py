"""What happens when code that the user gave us raises.

    KeyboardInterrupt in the main thread   passes: it is the person at the keyboard
    anything else, SystemExit included     logged with its traceback; the caller goes on

A watch that ends because of one bad object or one bad callback would look healthy and be dead, so nothing else passes.
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


def guarded(default: T, where: str, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`; `default`, and a report, when it raises. `where` names the function."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - see the module docstring
        report(error, where)
        return default
