"""`WatchState`: how a watch is doing, for whoever looks: a store's reader, a controller's owner, a status page.

    phase       what the watch does
    listing     reads a list
    watching    reads what arrives
    waiting     nothing before its time, or until the server answers; `last_error` says why
    stopped     nothing, for ever
"""
from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """What a watch is doing: listing, watching, waiting after a failure, or ended.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.watch_state.phase in (Phase.LISTING, Phase.WATCHING)
    True
    """

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"
    STOPPED = "stopped"


class WatchState(msgspec.Struct, frozen=True):
    """What a watch does at this moment: its phase and since when, its last error, how often it failed and listed again.

    Times are of the client's monotonic clock.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.watch_state.consecutive_failures, maps.watch_state.last_error
    (0, '')
    """

    phase: Phase = Phase.LISTING
    since: float = 0.0
    """When this phase began."""
    last_error: str = ""
    """The last failure, as it was logged; empty again once a list is complete or a watch open."""
    consecutive_failures: int = 0
    """Failures since a list was complete or a watch opened; while the server is away, of the attempts for all watches.
    (The backoff counts on until a watch has proved itself.)"""
    last_event: float | None = None
    """When something last arrived: a page, an event or a bookmark."""
    relists: int = 0
    """Complete lists after the first one."""
