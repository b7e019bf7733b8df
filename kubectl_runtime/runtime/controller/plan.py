"""`Plan`: what a `Controller` was told, frozen. `Assembly` makes the parts from it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.queue.key_backoff import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.triggers.sources import TriggerSource
from kubectl_runtime.runtime.triggers.triggers import Subscription
from kubectl_runtime.runtime.watcher.event import Event
from kubectl_runtime.runtime.watcher.watch_api import WatchApi
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client


@dataclass(frozen=True)
class WatchPlan:
    """One watch: what, how, and which requests follow from it."""

    api: WatchApi[Any]
    config: WatcherConfig
    subscription: Subscription


@dataclass(frozen=True)
class StreamPlan:
    """The main objects come from a stream that somebody else made, in passing a store that somebody else keeps."""

    events: Iterable[Event[Any]]
    store: Store[Any]
    stop: StopToken | None


@dataclass(frozen=True)
class Plan:
    """Everything a controller was told before it starts. Times are seconds."""

    name: str
    client: Client
    clock: Clock
    resource: ApiResource
    main: WatchPlan | StreamPlan
    related: tuple[WatchPlan, ...] = ()
    triggers: tuple[TriggerSource, ...] = ()
    bulk_triggers: tuple[TriggerSource, ...] = ()
    concurrency: int = 10
    debounce: float = 0.0
    max_wait: float | None = None
    backoff: KeyBackoff = DEFAULT_KEY_BACKOFF
    sync_timeout: float | None = None
    watch_backoff: WatchBackoff = DEFAULT_BACKOFF
    grace: float = DEFAULT_GRACE
    signals: bool = False
    stop: StopToken | None = None
    observer: Observer = NO_OBSERVER
    own_writes: OwnWrites = OwnWrites.OVERLAY
