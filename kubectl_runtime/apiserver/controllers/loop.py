"""`ControlLoop`: what every controller of the cluster is: a step function that the core runs on its clock.

It sees every change as it is stored (`Storage.observers`), notes what it has to look at, and does a bounded
piece of work in `step`. `start`, `look_again` and the observers are called under the cluster's lock; `step` takes it
itself, since one that asks a test's functions must not hold it meanwhile (`under_lock` is for those that ask nobody).
The lock is free while a webhook is asked about a request of a controller: then what it has read may be old, and its
further requests say which object they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from kubectl_runtime.apiserver.storage.cluster import Cluster

T = TypeVar("T")


class ControlLoop(Protocol):
    """One controller."""

    name: str

    def start(self, cluster: Cluster) -> None:
        """Look at everything that is stored, and begin to observe; also after a restore."""

    def look_again(self, cluster: Cluster) -> None:
        """Look at everything that is stored once more: a webhook has refused what it wanted, or `step` has raised."""

    def due(self) -> float | None:
        """When `step` has work, in monotonic seconds (0: now); None: not until something changes. Takes no lock."""

    def step(self, cluster: Cluster) -> None:
        """Do a bounded piece of work. One that raises may forget what it was looking at: `look_again` follows."""


def under_lock(step: Callable[[T, Cluster], None]) -> Callable[[T, Cluster], None]:
    """A `step` that holds the cluster's lock from beginning to end."""
    @wraps(step)
    def locked(loop: T, cluster: Cluster) -> None:
        with cluster.locked():
            step(loop, cluster)
    return locked
