"""What classes and functions declare, also where a name in it does not exist yet.

Up to Python 3.13 an annotation is a value, or text under `from __future__ import annotations`. From 3.14 on it is
evaluated when somebody asks for it, which raises NameError for a name that comes later in the module or exists for type
checkers only. Asked as here, such an annotation is a `ForwardRef`, which `typing.get_type_hints` resolves later.

`Thread`: a thread of the library. It starts with nothing of its starter's context, and may outlive that. (From Python
3.14 on a new thread has a copy of it, on a build without the GIL or under `-X thread_inherit_context`.)

Locks that are free again in the child of a fork, and work that no fork may cut in two.

A fork copies every lock as it is at that moment, held ones too, but of the threads only the one that forked: a lock
that another thread held stays held in the child for ever. What such a lock guards must bear being found half done, for
that is how the child finds it.
"""
from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
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
    """Name -> annotation, of the class itself and not of its bases: a type, text, or a `ForwardRef`. A new dict."""
    return inspect.get_annotations(cls, **_FORMAT)


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of something that can be called. Raises TypeError for what cannot, ValueError when Python does not
    know them (some built-in functions)."""
    return inspect.signature(function, **_SIGNATURE_FORMAT)


class Thread(threading.Thread):
    """As `threading.Thread`, always in an empty context."""

    def start(self) -> None:
        """As `threading.Thread.start`."""
        Context().run(super().start)


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


class Home:
    """The process that something began in: it lets no child of a fork go on with it. For code that calls user code."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def check(self, what: str, error: BaseException | None = None) -> None:
        """End this process if it is the child of a fork that `what`, user code, made and came back from, with `error`
        or without: as Python would end a program there. What it would go on with is its parent's."""
        if os.getpid() == self._process:
            return
        status = 0 if error is None else 1
        with suppress(BaseException):  # streams that are closed, the text of an exception
            if isinstance(error, SystemExit):
                status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
                if status == 1 and error.code != 1:
                    sys.stderr.write(f"{error.code}\n")
            elif error is not None:
                traceback.print_exception(error)
            else:
                sys.stderr.write(f"{what} forked this process and returned in it, too: it ends here, as the work that "
                                 "would follow is its parent's\n")
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xff)


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


def failed_attribute(obj: Any, name: str) -> None:
    """For a `__getattr__`: raise what a property (or another descriptor of the class) called `name` raised.

    Python asks `__getattr__` after such an AttributeError too, and drops the error; it is computed again for its text.
    """
    for cls in type(obj).__mro__:
        if name in cls.__dict__:
            if hasattr(found := cls.__dict__[name], "__get__"):
                found.__get__(obj, type(obj))
            return
