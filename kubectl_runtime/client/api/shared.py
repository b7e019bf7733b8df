"""`Shared`: what all users of one client have in common, without the client knowing what it is."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kubectl_runtime.core.interpreter.forks import renewed_in_children

T = TypeVar("T")


class Shared:
    """What all Apis of a client share, one thing of each class. Safe to use from any thread. In the child of a fork it
    begins empty: what was running in the parent does not run there."""

    def __init__(self) -> None:
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Forget everything. For the child of a fork."""
        self._lock = threading.Lock()
        self._things: dict[Callable[[], Any], Any] = {}

    def get(self, kind: Callable[[], T]) -> T:
        """The thing of this class, made by `kind()` the first time, which must be quick."""
        with self._lock:
            if kind not in self._things:
                self._things[kind] = kind()
            return cast(T, self._things[kind])
