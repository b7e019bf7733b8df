"""`Plan`: what a `Controller` was told, frozen. `Assembly` makes the parts from it."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.prune import Modify
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.queue.key_backoff import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.queue.retry_brake import RETRY_RATE
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.reconcile.partition import Partition
from kubectl_runtime.runtime.reconcile.reconciler import ResultCallback
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.triggers.sources import TriggerSource
from kubectl_runtime.runtime.triggers.triggers import Subscription
from kubectl_runtime.runtime.watcher.watch_api import WatchApi, WatchApis
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kubectl_runtime.client.api.client import Client

GoneFunction = Callable[[ObjectRef, Context[Any]], object]
"""What a controller does for a key of which the store has no object."""


@dataclass(frozen=True)
class WatchPlan:
    """One watch (or one for each namespace of an Api of several): what, how, and which requests follow from it.

    `store`: of the main objects, which is there before the controller starts; the others get theirs then.
    `modify` prunes what is stored.
    """

    api: WatchApi[Any] | WatchApis[Any]
    config: WatcherConfig
    subscription: Subscription
    store: Store[Any] | None = None
    modify: Modify | None = None


@dataclass(frozen=True)
class StreamPlan:
    """Objects or events that somebody else makes: of the main kind, if they are the main one's, in passing a store that
    somebody else keeps."""

    stream: Iterable[Any]
    subscription: Subscription
    stop: StopToken | None


@dataclass(frozen=True)
class MainStream(StreamPlan):
    """The main objects' stream."""

    store: Store[Any]


@dataclass(frozen=True)
class Plan:
    """Everything a controller was told before it starts. Times are seconds."""

    name: str
    client: Client
    clock: Clock
    resource: ApiResource
    main: WatchPlan | MainStream
    related: tuple[WatchPlan, ...] = ()
    streams: tuple[StreamPlan, ...] = ()
    triggers: tuple[TriggerSource, ...] = ()
    bulk_triggers: tuple[TriggerSource, ...] = ()
    concurrency: int = 10
    debounce: float = 0.0
    max_wait: float | None = None
    backoff: KeyBackoff = DEFAULT_KEY_BACKOFF
    sync_timeout: float | None = None
    resync: float | None = None
    on_gone: GoneFunction | None = None
    watch_backoff: WatchBackoff = DEFAULT_BACKOFF
    grace: float = DEFAULT_GRACE
    retry_rate: float | None = RETRY_RATE
    run_timeout: float | None = None
    executor: Executor | None = None
    on_result: ResultCallback | None = None
    signals: bool = False
    stop: StopToken | None = None
    observer: Observer = NO_OBSERVER
    hold: Callable[[Callable[[], None]], None] | None = None
    """Is passed what begins the runs, once all stores are complete, and calls it when they may begin; None: at once."""
    partition: Partition | None = None
    """Which objects are this replica's; None: all of them."""
    events: Client | None = None
    """Writes its events, where the writes of `client` need the leadership: events need none, and may be sent when it
    is over. None: `client`."""
    own_writes: OwnWrites = OwnWrites.OVERLAY
    record: Path | None = None
    """Where a flight recorder writes; None: nowhere."""
    housekeeping: bool = False
    """Whether it is the library's own: its start and end are told at DEBUG, by a logger that says so."""


def clock_of(client: Client) -> Clock:
    """The clock of a client, or of what stands for one."""
    clock: Clock = getattr(client, "clock", SYSTEM_CLOCK)
    return clock
