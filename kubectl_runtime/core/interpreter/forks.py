"""Locks that are free again in the child of a fork, and work that no fork may cut in two.

A fork copies every lock as it is at that moment, held ones too, but of the threads only the one that forked: a lock
that another thread held stays held in the child for ever. What such a lock guards must bear being found half done, for
that is how the child finds it.
"""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class ForkSafeLock:
    """A lock as `threading.Lock` makes it, which is free again in the child of a fork. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renewed_in_children(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. Blocks until it is free, if `blocking`, for `timeout` seconds at most (-1: as long as it
        takes; at most `threading.TIMEOUT_MAX`). Whether it was taken."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Give the lock back. Does nothing when it is not held."""
        with suppress(RuntimeError):  # the child of a fork has a free lock where the thread that forked held one
            self._lock.release()

    def renew(self) -> None:
        """Be free, whoever holds it. For the child of a fork alone."""
        self._lock = threading.Lock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Renewed(Protocol):
    """Holds a lock, and takes another one when it is told to."""

    def renew(self) -> None:
        """Take a new lock, whoever holds the old one."""


_held: weakref.WeakSet[Renewed] = weakref.WeakSet()
_registered: list[bool] = []


def renewed_in_children(holder: Renewed) -> None:
    """Have `holder.renew()` called in the child of each fork, for as long as it lives."""
    _held.add(holder)
    if not _registered:  # twice does no harm
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
    """What is done in this block is done by one thread at a time, and forks of other threads wait for its end.

    For imports: the child of a fork that comes in the middle of one finds the module's lock held by a thread that it
    has not, and waits for it for ever. To be short, therefore, and to wait for nothing.
    """
    if not _gated:
        _gated.append(True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_whole.acquire, after_in_parent=_whole.release, after_in_child=_whole.release)
    with _whole:
        yield
