"""What a thread works for: which run its log lines belong to, whose end its calls obey.

    Thread         a thread of the library: starts with nothing of who started it, and may outlive that
    RunVariable    a context variable whose value ends with the block that set it

Up to Python 3.13 a new thread has an empty context. From 3.14 on it has a copy of its starter's, on a build without the
GIL or under `-X thread_inherit_context`; so has a thread that a user's pool begins within a run, as long as it lives.
"""
from __future__ import annotations

import threading
from contextvars import Context, ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class Thread(threading.Thread):
    """As `threading.Thread`, always in an empty context."""

    def start(self) -> None:
        """As `threading.Thread.start`."""
        Context().run(super().start)


class _Held(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T | None) -> None:
        self.value = value


class RunVariable(Generic[T]):
    """What the current context works for. A copy of the context sees it too, until `reset`. Safe from any thread."""

    def __init__(self, name: str) -> None:
        self._variable: ContextVar[_Held[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """The value; None when none was set, or when it is over."""
        held = self._variable.get()
        return None if held is None else held.value

    def set(self, value: T) -> Token[_Held[T] | None]:
        """From now on it is this one; `reset` takes the answer."""
        return self._variable.set(_Held(value))

    def reset(self, entered: Token[_Held[T] | None]) -> None:
        """As before `set`; the value is over, here and in copies. To be called in the context that set it."""
        held = self._variable.get()
        if held is not None:
            held.value = None
        self._variable.reset(entered)
