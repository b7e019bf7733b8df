"""A `Plan`: what happens to a connection, step by step, without a socket in sight.

The fault script makes plans; the HTTP rim carries them out on sockets, the simulated transport on its clock:

==============  ==================================================================================================
``Send(data)``  these bytes go out, in one write
``Wait(s)``     so many seconds pass on the clock; a server that stops ends the wait
``Stall()``     nothing more ever comes, the connection stays open until the client leaves or the server stops
``Close()``     the connection ends in order (FIN): nothing more comes
``Reset()``     the connection is torn down (RST): what is on its way may be lost
==============  ==================================================================================================

The last three end a plan: what follows them is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Keep the connection, say nothing more."""


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection in order."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Tear the connection down."""


Step = Send | Wait | Stall | Close | Reset
Plan = list[Step]
Ending = Literal["end", "close", "reset", "stall"]
"""How something ends: as a healthy server ends it, by FIN, by RST, or not at all."""

ENDINGS: dict[str, Step] = {"close": Close(), "reset": Reset(), "stall": Stall()}


def ending(how: Ending) -> Plan:
    """The steps of an ending; none for a healthy one. Raises ValueError for an unknown word."""
    if how == "end":
        return []
    if how not in ENDINGS:
        raise ValueError(f"{how!r} is no ending: choose one of end, close, reset, stall")
    return [ENDINGS[how]]


def is_over(plan: Sequence[Step]) -> bool:
    """Whether the connection has no future after this plan."""
    return bool(plan) and isinstance(plan[-1], Stall | Close | Reset)


def until_over(steps: Iterable[Step]) -> Plan:
    """The steps up to the first one that ends the plan."""
    plan: Plan = []
    for step in steps:
        plan.append(step)
        if isinstance(step, Stall | Close | Reset):
            break
    return plan


def sent(plan: Iterable[Step]) -> bytes:
    """All bytes that a plan sends."""
    return b"".join(step.data for step in plan if isinstance(step, Send))
