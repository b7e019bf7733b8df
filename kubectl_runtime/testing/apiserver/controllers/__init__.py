"""Controllers that a bare API server lacks, as step functions that the core runs on its clock.

A controller sees every change as it is stored (`Storage.observers`), notes what it has to look at, and does a bounded
piece of work in `step`. All calls are made under the core's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore


class Controller(Protocol):
    """One controller."""

    name: str

    def start(self, core: ApiCore) -> None:
        """Look at everything that is stored, and begin to observe; also after a restore."""

    def due(self) -> float | None:
        """When `step` has work, in monotonic seconds (0: now); None: not until something changes."""

    def step(self, core: ApiCore) -> None:
        """Do a bounded piece of work."""
