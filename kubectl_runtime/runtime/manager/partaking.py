"""`Partaking`: a manager's part in a sharding. Without one, all of this does nothing.

    expect(name)   a controller that shares; before `start`, this replica waits for its stores before it takes a shard
    start()        from now on it joins as soon as nothing is waited for
    ready(name)    the stores of one are complete, or it has ended
    quit(within)   the end begins: each shard is given up as soon as no run of it is left
    end(left)      what is left of it has so many seconds
"""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import seconds
from kubectl_runtime.runtime.manager.servers import LEAST
from kubectl_runtime.runtime.sharding.sharder import Sharder
from kubectl_runtime.runtime.sharding.sharding import Sharding


class Partaking:
    """A manager's part in a group of replicas that share the objects. Safe to use from any thread."""

    def __init__(self, client: Client, sharding: Sharding | None, grace: float,
                 failed: Callable[[BaseException], None]) -> None:
        """`grace`: seconds that runs have when a shard is given up; `failed` hears of a defect."""
        self.sharder = None if sharding is None else Sharder(client, sharding, grace=grace, failed=failed)
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._started = False
        self._joined = False

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica works for at this moment."""
        return frozenset() if self.sharder is None else self.sharder.shards

    @property
    def trouble(self) -> str:
        """Why this replica cannot take part; empty when it can, and before it begins."""
        return "" if self.sharder is None else self.sharder.trouble

    def expect(self, name: str) -> None:
        """Wait for the controller `name` before taking part."""
        with self._lock:
            if not self._joined:
                self._awaited.add(name)

    def start(self) -> None:
        """Every controller was announced by `expect`: take part as soon as all are ready."""
        self._go_on(None)

    def ready(self, name: str) -> None:
        """The controller `name` can work, or has ended."""
        self._go_on(name)

    def quit(self, within: float) -> None:
        """Give up the shards, each when its runs have ended, in `within` seconds at most. Does not block."""
        if self.sharder is not None:
            self.sharder.quit(within)

    def end(self, time_left: float) -> None:
        """Block until this replica has left, for at most about `time_left` seconds."""
        if self.sharder is not None:
            self.sharder.close(min(max(LEAST, time_left), seconds(self.sharder.sharding.renew_deadline)))

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of the sharding's."""
        return self.sharder is not None and self.sharder.owns(thread)

    def _go_on(self, ready: str | None) -> None:
        with self._lock:
            if ready is None:
                self._started = True
            else:
                self._awaited.discard(ready)
            joins = self._started and not self._awaited and not self._joined
            self._joined |= joins
        if joins and self.sharder is not None:
            self.sharder.join()
