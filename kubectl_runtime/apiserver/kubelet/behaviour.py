"""`Behaviour`: what becomes of one container, as the rules of a test say; `Plan`: of all containers of a Pod.

Times are seconds on the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What becomes of one container; the defaults are those of a container that nobody says anything about."""

    unschedulable: str = ""
    """Why its Pod gets no node; empty: it gets one."""
    start: float = 0.0
    """From the moment at which it may start until it runs."""
    pull_error: str = ""
    """What pulling its image fails with, instead of starting; empty: nothing."""
    ready: float | None = 0.0
    """From running until it is ready; None: never."""
    run: float | None = None
    """From running until it ends; None: it does not end by itself."""
    exit_code: int = 0
    """With what it ends then."""
    endings: int | None = None
    """How many of its runs end like this, the others do not end; None: all of them."""
    stop: float | None = None
    """From its Pod's deletion until it ends by itself; None: it is killed when the grace period is over."""
    log: bytes = b""
    """What it writes to its log when it starts."""

    def run_time(self, restarts: int) -> float | None:
        """How long its run after so many restarts takes; None: it does not end by itself."""
        return None if self.endings is not None and restarts >= self.endings else self.run


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a Pod."""

    containers: Mapping[str, Behaviour]
    """By the containers' names, those of init containers included."""
    unschedulable: str = ""
    """Why it gets no node; empty: it gets one."""

    def of(self, container: str) -> Behaviour:
        """What becomes of a container; nothing special of one that was added later, an ephemeral one."""
        return self.containers.get(container) or Behaviour()
