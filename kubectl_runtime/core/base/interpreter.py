"""Python itself: annotations, threads, and locks after a fork.

- `annotations_of` and `signature_of` also work when a name in an annotation does not exist yet. Until Python 3.13 an
  annotation is a value, or text under `from __future__ import annotations`. From 3.14 on it is evaluated on access,
  which raises NameError for a name that comes later in the module or exists only for type checkers. Here such an
  annotation becomes a `ForwardRef`, which `typing.get_type_hints` resolves later.
- `Thread` is a thread of the library. It starts in an empty context and may outlive its starter's. (From Python 3.14 on
  a new thread has a copy of the starter's context, on a build without the GIL or under `-X thread_inherit_context`.)
- A fork copies every lock in its current state but only the forking thread, so a lock held by another thread would stay
  held in the child forever. A `ForkSafeLock` is free in the child. The state that the lock guards must be usable while
  half changed, because the child may find it in this state. No fork can happen within `unforked`.
"""
from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, Protocol

_FORMAT: dict[str, Any] = {}
_SIGNATURE_FORMAT: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _FORMAT = {"format": Format.FORWARDREF}
    _SIGNATURE_FORMAT = {"annotation_format": Format.FORWARDREF}


def annotations_of(cls: type) -> dict[str, Any]:
    """Name -> annotation, of the class itself without its bases: a type, text, or a `ForwardRef`. A new dict."""
    return inspect.get_annotations(cls, **_FORMAT)


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of a callable. Raises TypeError for anything else, ValueError when Python does not know them (some
    built-in functions)."""
    return inspect.signature(function, **_SIGNATURE_FORMAT)


class Thread(threading.Thread):
    """A `threading.Thread` that always starts in an empty context."""

    def start(self) -> None:
        """As `threading.Thread.start`."""
        Context().run(super().start)


class ForkSafeLock:
    """A lock like `threading.Lock` that is free again in the child of a fork. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renewed_in_children(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; returns whether it was taken. If `blocking`, it waits until the lock is free, for `timeout`
        seconds at most (-1: no limit; at most `threading.TIMEOUT_MAX`)."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock. Does nothing when it is not held."""
        with suppress(RuntimeError):  # in the child of a fork the lock is free, even if the forking thread held it
            self._lock.release()

    def renew(self) -> None:
        """Free the lock, whichever thread holds it. Only for the child of a fork."""
        self._lock = threading.Lock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Renewed(Protocol):
    """Holds a lock, and replaces it when `renew` is called."""

    def renew(self) -> None:
        """Take a new lock, whichever thread holds the old one."""


_held: weakref.WeakSet[Renewed] = weakref.WeakSet()
_registered: list[bool] = []


def renewed_in_children(holder: Renewed) -> None:
    """Call `holder.renew()` in the child of each fork, as long as the holder exists."""
    _held.add(holder)
    if not _registered:  # a second registration does no harm
        _registered.append(True)
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=_renew_all)


def _renew_all() -> None:
    for holder in list(_held):
        holder.renew()


_whole = threading.RLock()
_gated: list[bool] = []


@contextmanager
def unforked() -> Iterator[None]:
    """The block runs in one thread at a time, and forks of other threads wait for its end.

    It is for imports: if a process forks in the middle of an import, the child finds the module's lock held by a thread
    that does not exist in the child, and waits forever. The block must be short and must not wait for anything.
    """
    if not _gated:
        _gated.append(True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_whole.acquire, after_in_parent=_whole.release, after_in_child=_whole.release)
    with _whole:
        yield


def failed_attribute(obj: Any, name: str) -> None:
    """For a `__getattr__`: raise the error of a property (or another descriptor of the class) called `name`.

    Python calls `__getattr__` after such an AttributeError too, and drops the error; it is computed again for its text.
    """
    for cls in type(obj).__mro__:
        if name in cls.__dict__:
            if hasattr(found := cls.__dict__[name], "__get__"):
                found.__get__(obj, type(obj))
            return
