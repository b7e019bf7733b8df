"""`ControlLoop`: what every controller of the cluster is: a step function that the core runs on its clock.

It sees every change as it is stored (`Storage.observers`), notes what it has to look at, and does a bounded
piece of work in `step`. All calls are made under the cluster's lock, which is free while a webhook is asked about a
request of a controller: then what it has read may be old, and its further requests say which object they mean.
"""

from __future__ import annotations

from typing import Protocol

from kubectl_runtime.apiserver.storage.cluster import Cluster


class ControlLoop(Protocol):
    """One controller."""

    name: str

    def start(self, cluster: Cluster) -> None:
        """Look at everything that is stored, and begin to observe; also after a restore."""

    def look_again(self, cluster: Cluster) -> None:
        """Look at everything that is stored once more: a webhook has refused what it wanted."""

    def due(self) -> float | None:
        """When `step` has work, in monotonic seconds (0: now); None: not until something changes."""

    def step(self, cluster: Cluster) -> None:
        """Do a bounded piece of work."""
