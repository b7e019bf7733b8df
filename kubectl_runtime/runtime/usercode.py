"""What happens when code that the user gave us raises.

    KeyboardInterrupt in the main thread   passes: it is the person at the keyboard
    anything else, SystemExit included     logged with its traceback; the caller goes on

`guarded` is for what is called seldom. What is called for each event, run or request has a `Guard` of its own
(`core/base/guard.py`), which does not say the same again and again.

A watch that ends because of one bad object or one bad callback would look healthy and be dead, so nothing else passes.
An exception is user code too: its text is asked for by `described`, never by `str`. So is a log handler: the runtime
logs through `guarded_logger`, so that a handler that raises costs its line and nothing else.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.core.interpreter.annotations import signature_of

T = TypeVar("T")

MOST_TEXT = 2000
"""Characters of an exception's text that are shown: some quote whole documents, and each failing key keeps its text."""

Where: TypeAlias = str | Callable[..., str]
"""Which code it was, and about which object: a text, or a function that makes it of the call's arguments."""


log = guarded_logger(__name__)


def guarded(default: T, where: Where, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`; `default`, and a report, when it raises. `where`, or `where(*args)`, says in the log what it
    was."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - see the module docstring
        _report(error, where, args)
        return default


def described(error: BaseException) -> str:
    """Type and text of an exception, in which the text may fail: `ValueError: no such thing`. A long text is cut."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - see the module docstring
        pass_interrupt(second)
        text = "<its text cannot be shown>"
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}... ({len(text):,} characters)"
    return f"{name}: {text}" if text else name


def as_exception(error: BaseException) -> Exception:
    """`error` as the failure of a call: the layers, credentials and adapters of a client are user code, and may raise
    SystemExit. Raises what `pass_interrupt` does."""
    pass_interrupt(error)
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"code of the program's own raised {described(error)}")
    failure.__cause__ = error
    return failure


def name_of(function: Any) -> str:
    """What to call a user's function in a log line."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"


def is_async(function: Any) -> bool:
    """Whether a call gives a coroutine or an async generator: of a function, a method, a `partial`, or an object whose
    `__call__` is one."""
    called = (function, type(function).__call__) if callable(function) else ()
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in called)


def not_awaitable(value: T, function: Any) -> T:
    """`value`, which a user's function returned. Raises TypeError for one that would have to be awaited: its function
    looks like a plain one (a lambda, a decorated function), so only the call shows that it is async."""
    if not hasattr(type(value), "__await__"):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(f"{name_of(function)} returned a {type(value).__name__}, and nothing awaits it: write a plain "
                    "function")


def misfit(function: Any, arguments: tuple[str, ...]) -> str | None:
    """What is wrong with the signature of a user's function that will be called with these arguments; None when it
    fits, or when nothing can be said of it (some built-in functions)."""
    if is_async(function):
        return "is async, and nothing awaits it: it is called in a thread; write a plain function"
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"cannot be called with {len(arguments)} arguments, {' and '.join(arguments)}: {error}"
    return None


def _report(error: BaseException, where: Where, args: tuple[Any, ...]) -> None:
    pass_interrupt(error)
    # How an object shows itself is user code as well.
    text = where if isinstance(where, str) else guarded("user code", "a description", where, *args)
    log.error("%s raised %s", text, type(error).__name__, exc_info=error)
