"""`LeaseRecord`: what a Lease says of who leads, as a value; and its way to and from a `Lease` object.

What a record does not say is taken as client-go takes it: no holder is an empty one, no transitions are 0. Times are
the holder's, for people: nobody compares them with a clock. They are written with six digits of fraction, as the server
demands.
"""
from __future__ import annotations

from dataclasses import dataclass

from kubectl_runtime.resources.coordination_v1 import Lease, LeaseSpec


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who holds a Lease, since when, and for how long each renewal is good. `duration`: seconds, None if not said."""

    holder: str = ""
    duration: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    transitions: int = 0

    @classmethod
    def of(cls, lease: Lease) -> LeaseRecord:
        """What `lease` says. Raises DecodeError when its content is not a LeaseSpec."""
        spec = lease.spec if lease.get("spec") is not None else LeaseSpec()
        return cls(spec.holder_identity or "", spec.lease_duration_seconds, spec.acquire_time, spec.renew_time,
                   spec.lease_transitions or 0)

    def write_to(self, lease: Lease) -> None:
        """Have `lease` say it; what else it says stays."""
        if lease.get("spec") is None:
            lease.spec = LeaseSpec()
        spec = lease.spec
        spec.holder_identity = self.holder or None
        spec.lease_duration_seconds = self.duration
        spec.acquire_time, spec.renew_time = self.acquire_time, self.renew_time
        spec.lease_transitions = self.transitions
