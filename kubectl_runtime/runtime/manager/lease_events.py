"""What happens to a candidate for a Lease, what it does, and when: the words of `lease_machine`'s table."""
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from kubectl_runtime.runtime.manager.lease_record import LeaseRecord


@dataclass(frozen=True, slots=True)
class Now:
    """When a step is made. `at`: seconds on a clock that counts suspended time; `date`: for the record, which people
    read; `chance`: a random number in [0, 1), for the jitter."""

    at: float
    date: datetime
    chance: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Read:
    """The Lease was read; `record` is None when it does not exist."""

    record: LeaseRecord | None


@dataclass(frozen=True, slots=True)
class Written:
    """The Lease now says this, by our write."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write was refused: somebody else was faster, or there is no such Lease any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or none that says anything of the Lease. A write may have been carried out."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Somebody wants to lead again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The work has ended, and nobody wants to lead any more. `within`: seconds for the release."""

    release: bool
    within: float


Answer: TypeAlias = Read | Written | Conflict | Failed
Input: TypeAlias = Tick | Answer | Campaign | Leave

# What to do.


@dataclass(frozen=True, slots=True)
class Get:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the Lease with this record."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Update:
    """Write the record, if the Lease is still the version that was last read or written."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing until then, on the clock of `Now.at`, unless somebody campaigns or leaves."""

    until: float


Request: TypeAlias = Get | Create | Update
Action: TypeAlias = Request | Wait
