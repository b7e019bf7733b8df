"""`Shared`: what all users of one client have in common, without the client knowing what it is."""
from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Shared:
    """One thing of each class. Safe to use from any thread.

    The child of a fork begins with nothing: what was running in the parent does not run there.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._things: dict[type[Any], Any] = {}

    def get(self, kind: Callable[[], T]) -> T:
        """The thing of this class, made by `kind()` the first time, which must be quick."""
        process = os.getpid()
        if self._process != process:  # the lock may be held for ever by a thread of the parent
            self._lock, self._things, self._process = threading.Lock(), {}, process
        with self._lock:
            key = cast(type[Any], kind)
            if key not in self._things:
                self._things[key] = kind()
            return cast(T, self._things[key])
