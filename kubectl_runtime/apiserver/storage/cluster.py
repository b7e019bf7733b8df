"""`Cluster`: what all parts of one server share: its objects and types, the lock over them, its clock, and chance.

One lock guards storage and registry: handlers and controllers hold it for a read or a write, never while something is
sent or a callback runs. What a change makes ready (watches) is called once the lock is free, see `locked`; a write that
asks a webhook lets it go meanwhile, see `released`.

`loopback` is the way back in: with it controllers, and handlers that write another object too, make requests of their
own (see loopback.py), so that every rule holds for them. The core, which answers them, gives it.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kubectl_runtime.apiserver.storage.registry import Registry, ServedResource
from kubectl_runtime.apiserver.storage.storage import Storage
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.base.clock import Clock

Loopback = Callable[[HttpRequest, str], HttpResponse]
"""Answers the request of a component of the cluster (``kube-controller-manager``), which may do everything; raises
StatusError for what is refused."""


class Cluster:
    """See the module. `locked` is for any thread; storage and registry say what holds for them."""

    def __init__(self, clock: Clock, types: Iterable[ServedResource], loopback: Loopback, *,
                 seed: int | None = None) -> None:
        """An empty cluster that serves these types; `seed` makes uids and generated names reproducible."""
        self.clock = clock
        self.random = random.Random(seed)
        self.storage = Storage()
        self.registry = Registry(types)
        self.loopback = loopback
        self.turned_away = 0  # how many requests of the cluster's own components webhooks have refused
        self._lock = threading.RLock()
        self._depth = 0
        self._callbacks: dict[Callable[[], None], None] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; callbacks that became due meanwhile run after it is free, also when the block raises: a
        refused request may have written before (a deletion of a collection that a precondition stops half-way)."""
        callbacks: list[Callable[[], None]] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if self._depth == 0 and self._callbacks:
                        callbacks = list(self._callbacks)
                        self._callbacks.clear()
        finally:
            for callback in callbacks:
                callback()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let the lock go, however deep the calling thread holds it, and take it again: for a wait for somebody else,
        who may come back in. What was read before may be old afterwards. Nothing happens where it is not held."""
        with self._lock:  # whoever has it sees its own depth: 0, unless it is within `locked`
            depth, self._depth = self._depth, 0
            callbacks = list(self._callbacks) if depth else []
            if depth:
                self._callbacks.clear()
        for _ in range(depth):
            self._lock.release()
        try:
            for callback in callbacks:
                callback()
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            if depth:
                self._depth = depth

    def call_unlocked(self, callback: Callable[[], None]) -> None:
        """Call back once the lock, which the caller holds, is free; the same callback once only."""
        self._callbacks[callback] = None

    def new_uid(self) -> str:
        """A fresh uid."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))
