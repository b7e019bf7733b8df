"""Which locks of the library a thread holds: for tests of what runs in user code."""
from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kubectl_runtime

_PACKAGE = f"{kubectl_runtime.__path__[0]}/"
_new_lock, _new_rlock = threading.Lock, threading.RLock
_held = threading.local()


def held_locks() -> list[str]:
    """Where the locks were made that this thread holds, of those made within `tracked_locks`."""
    return [lock.origin for lock in _mine()]


@contextmanager
def tracked_locks() -> Iterator[None]:
    """Meanwhile each new lock of the library is seen by `held_locks`."""
    threading.Lock, threading.RLock = _made(_Tracked), _made(_TrackedReentrant)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        threading.Lock, threading.RLock = _new_lock, _new_rlock  # type: ignore[misc]


def _mine() -> list[Any]:
    if not hasattr(_held, "locks"):
        _held.locks = []
    return _held.locks  # type: ignore[no-any-return]


def _made(kind: type[_Tracked]) -> Any:
    def lock() -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in (threading.__file__, "<string>"):
            frame = frame.f_back  # the lock of a condition is made there
        path = frame.f_code.co_filename
        if not path.startswith(_PACKAGE):
            return kind.real()
        return kind(f"{path.removeprefix(_PACKAGE)}:{frame.f_lineno}")

    return lock


class _Tracked:
    real: Any = staticmethod(_new_lock)

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.lock = self.real()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = self.lock.acquire(blocking, timeout)
        if taken and blocking:  # else it is a claim, for which nobody waits
            _mine().append(self)
        return bool(taken)

    def release(self) -> None:
        self.lock.release()
        if self in _mine():  # a thread may release what another one has taken
            _mine().remove(self)

    def locked(self) -> bool:
        return bool(self.lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.lock._at_fork_reinit()


class _TrackedReentrant(_Tracked):
    real: Any = staticmethod(_new_rlock)

    # What a condition asks of such a lock.

    def _is_owned(self) -> bool:
        return bool(self.lock._is_owned())

    def _release_save(self) -> Any:
        times = _mine().count(self)
        for _ in range(times):
            _mine().remove(self)
        return self.lock._release_save(), times

    def _acquire_restore(self, state: Any) -> None:
        self.lock._acquire_restore(state[0])
        _mine().extend([self] * state[1])
