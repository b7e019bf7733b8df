"""`WatchDriver`: performs what the watch machine wants, one effect at a time.

    machine's state        effect                                input to the machine
    Listing                `api.list_page`                       PageRead, or Broke
    Listed, too early      none                                  none; says how long to wait
    Listed                 `api.open_watch`                      Opened, or Broke
    Watching               the next batch of the open stream     BatchRead, Ended (also by the idle guard), or Broke

An error is an input like any other; nothing is raised. When the stop token is set, errors are its consequence and are
dropped. Only one thread at a time may call `advance` and `close`. Another one that sets the stop token wakes a
blocked read at once.
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import RequestTimeout
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.requests.params import IDLE_MARGIN, ListParams, WatchParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.runtime.watcher.event import Event, Failed
from kubectl_runtime.runtime.watcher.watch_api import WatchApi, WatchBatch
from kubectl_runtime.runtime.watcher.watch_machine import (
    BEGIN,
    BatchRead,
    Broke,
    Ended,
    Input,
    Listed,
    Listing,
    Opened,
    PageRead,
    State,
    Watching,
    step,
)
from kubectl_runtime.runtime.watcher.watcher_config import ListSemantic, WatcherConfig


class Advance(NamedTuple):
    """What one effect brought: events and failures in order, seconds until the next effect (None: idle), and how many
    events, bookmarks and errors included, came on the open watch."""

    out: list[Event[Record] | Failed]
    wait: float | None = 0.0
    frame: int = 0


_IDLE = Advance([], None)
_NOTHING = Advance([])


class WatchDriver:
    """One watched resource. It begins with a list and never ends by itself."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, stop: StopToken, clock: Clock,
                 rng: random.Random) -> None:
        self._api = api
        self._config = config
        self._stop = stop
        self._clock = clock
        self._rng = rng
        self._state: State = BEGIN
        self._stream: Iterator[WatchBatch] | None = None
        self._patience = self._heard = 0.0

    @property
    def state(self) -> State:
        return self._state

    def advance(self) -> Advance:
        """Perform one effect. Blocks for a request, or until the open watch has something."""
        state = self._state
        if isinstance(state, Watching):
            return self._read()
        if isinstance(state, Listing):
            return self._list(state)
        wait = state.not_before - self._clock.monotonic()
        return self._open(state) if wait <= 0 else Advance([], wait)

    def restart(self) -> None:
        """Forget everything and begin with a list again."""
        self.close()
        self._state = Listing()

    def close(self) -> None:
        """Close the open stream, if there is one."""
        stream, self._stream = self._stream, None
        close = getattr(stream, "close", None)
        if close is not None:
            close()

    def _list(self, state: Listing) -> Advance:
        try:
            # A list that has begun is worth the client's own retries; otherwise the failure has to be seen at once.
            retry = Retry.SAFE if state.token else Retry.NEVER
            meta, records = self._api.list_page(self._list_params(state), stop=self._stop, retry=retry)
        except Exception as error:  # noqa: BLE001 - whatever it is, the watch must live on, and the failure be seen
            return self._give(Broke(error))
        return self._give(PageRead(meta.resource_version, meta.continue_token, records))

    def _open(self, state: Listed) -> Advance:
        config = self._config
        timeout = config.draw_timeout(self._rng)
        params = WatchParams(label_selector=config.label_text, field_selector=config.field_text,
                             timeout=timeout, bookmarks=config.bookmarks)
        try:
            self._stream = self._api.open_watch(params, state.version, self._stop)
        except Exception as error:  # noqa: BLE001 - as above
            return self._give(Broke(error))
        self._patience, self._heard = timeout + IDLE_MARGIN, self._clock.monotonic()
        return self._give(Opened(getattr(self._stream, "flow_schema", "")))

    def _read(self) -> Advance:
        stream = self._stream
        try:
            batch = next(stream, None) if stream is not None else None
        except RequestTimeout:
            return self._give(Ended())
        except Exception as error:  # noqa: BLE001 - as above
            return self._give(Broke(error))
        if batch is None:
            return self._give(Ended())
        if batch:
            self._heard = self._clock.monotonic()
            return self._give(BatchRead(batch), len(batch))
        # Sockets have a read timeout; where nothing blocks, this is the idle guard.
        return _IDLE if self._clock.monotonic() - self._heard < self._patience else self._give(Ended())

    def _give(self, given: Input, frame: int = 0) -> Advance:
        if self._stop.is_set() and isinstance(given, Broke | Ended):
            return _NOTHING
        self._state, out = step(self._state, given, self._clock.monotonic())
        if not isinstance(self._state, Watching):
            self.close()
        return Advance(out, 0.0, frame)

    def _list_params(self, state: Listing) -> ListParams:
        config = self._config
        cached = state.first and config.list_semantic is ListSemantic.ANY
        return ListParams(label_selector=config.label_text, field_selector=config.field_text,
                          limit=config.page_size if state.paged and not cached else None,
                          continue_token=state.token, resource_version="0" if cached else None)
