"""Who is told of this process's own writes, and how its reads take account of them."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum, EnumType
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.interpreter import ForkSafeLock
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.requests.request import Request

T = TypeVar("T")


class _WithoutWait(EnumType):
    def __getattr__(cls, name: str) -> Any:
        if name == "WAIT":
            raise AttributeError("OwnWrites.WAIT was removed in 0.3: use OwnWrites.OVERLAY (the default), whose reads "
                                 "show a write at once, or OwnWrites.OFF")
        # Python 3.11 looks members up here.
        if name in cls._member_map_:
            return cls._member_map_[name]
        raise AttributeError(f"{cls.__name__} has no member {name!r}")


class OwnWrites(Enum, metaclass=_WithoutWait):
    """How stores treat what this process wrote and their watch has not shown yet.

    >>> own = Client(Config(cluster_url=server.url), own_writes=OwnWrites.OFF)
    >>> own.close()
    """

    OVERLAY = "overlay"
    """Reads show the object as the write was answered."""
    OFF = "off"
    """Reads show what the watch has shown, even if it is older than the write."""

    @classmethod
    def checked(cls, value: object) -> OwnWrites:
        """`value`, if it is an OwnWrites. Raises RequestError for anything else."""
        if isinstance(value, cls):
            return value
        raise RequestError(f"own_writes is one of {', '.join(map(str, cls))}, not {value!r}")


class Write(msgspec.Struct, frozen=True):
    """One write that the server answered. `verb`: create, replace, patch, apply, delete or deletecollection (one Write
    for each object); `subresource`: `status`, …

    `record` is the object as answered; None for subresources of another kind (scale), for a delete that answered with a
    Status (the object is gone), and for objects of a collection, which may go on. `resource_version` and `uid` are
    those of the answer, empty where it has none. `sent` is the body of the request: the object or the patch.
    """

    ref: ObjectRef
    verb: str
    resource_version: str = ""
    uid: str = ""
    record: Record | None = None
    subresource: str | None = None
    sent: bytes | None = None

    def __repr__(self) -> str:
        return f"<Write {self.verb} of {self.ref} at {self.resource_version or 'no version'}>"  # not what was sent


WriteObserver = Callable[[Write], None]


class Exchanged(msgspec.Struct, frozen=True):
    """One call that has ended, after its retries: the `status` and `body` of the answer, also of an error; or the
    `error`, when no answer came. The body of a stream is empty."""

    request: Request
    status: int = 0
    body: bytes = b""
    error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Exchanged {self.request!r}: {self.status or 'no answer'}>"  # not what was sent or answered


class Observers(Generic[T]):
    """A list of observers, in which one may stand twice. Safe to use from any thread; they run outside its lock."""

    _what = "an observer"

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._observers: dict[object, tuple[Callable[[T], None], Guard]] = {}
        """Replaced whole, so that telling needs no lock."""

    def add(self, observer: Callable[[T], None]) -> Callable[[], None]:
        """Tell `observer` too; returns a function that takes it back."""
        key, guard = object(), Guard(self._what)
        with self._lock:
            self._observers = {**self._observers, key: (observer, guard)}

        def remove() -> None:
            with self._lock:
                self._observers = {other: known for other, known in self._observers.items() if other is not key}

        return remove

    def tell(self, what: T) -> None:
        """Call each observer with `what`, in this thread. What one raises is logged, and the next is called."""
        # An observer's mistake, SystemExit included, must not look like a failed call.
        for observer, guard in self._observers.values():
            guard.call(None, repr, observer, what)

    def __bool__(self) -> bool:
        return bool(self._observers)


class WriteObservers(Observers[Write]):
    """The observers of a client's writes."""

    _what = "a write observer"

    def __init__(self) -> None:
        super().__init__()
        self.begun: Observers[ObjectRef | None] = Observers()
        """Told right before a write is sent, in its thread: of which object, None for a new one. What is stored at that
        moment is what the write changes; when it has been answered, a watch may have shown the change already."""
