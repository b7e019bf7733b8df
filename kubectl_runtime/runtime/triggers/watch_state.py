"""`WatchState`: how a watch is doing, for people and for who has to know how old a store is."""
from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """What a watch is doing."""

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"
    STOPPED = "stopped"


class WatchState(msgspec.Struct, frozen=True):
    """How a watch is doing; times are of its monotonic clock."""

    phase: Phase = Phase.LISTING
    since: float = 0.0
    """When this phase began."""
    last_error: str = ""
    """The last failure, as it was logged; empty again once a list is complete or a watch open."""
    consecutive_failures: int = 0
    """Failures since a list was complete or a watch opened. (The backoff counts on until a watch has proved itself.)"""
    last_event: float | None = None
    """When something last arrived: a page, an event or a bookmark."""
    relists: int = 0
    """Complete lists after the first one."""
