"""Which controllers run in this process: no two of one name on one client, since both would reconcile each object."""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from kubectl_runtime.core.base.errors import RequestError


class RunningNames:
    """The names of the controllers that run, so that no two of one client have the same. Safe to use from any thread,
    and after a fork, where nothing of the parent's runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._taken: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def take(self, client: Any, name: str) -> Callable[[], None]:
        """Take a name; returns what gives it back. Raises RequestError when it is taken. A derived client is its root.
        """
        client = getattr(client, "root", client)
        if self._process != os.getpid():
            self._lock, self._process = threading.Lock(), os.getpid()
            self._taken = weakref.WeakKeyDictionary()
        with self._lock:
            names = self._taken.setdefault(client, set())
            if name in names:
                raise RequestError(f"a controller named {name!r} is running on this client already: two would "
                                   "reconcile each object at once. Stop it first, or, if the two see different "
                                   "objects, give one of them another name=")
            names.add(name)
        return lambda: names.discard(name)


RUNNING = RunningNames()
