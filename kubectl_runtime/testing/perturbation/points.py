"""Where a disturbed run is disturbed: `Point`, which has a name that a command line can repeat.

    crash-before-3    the process ends when it is about to make its third write; a new one begins
    crash-after-3     it ends when the third write is done, before it hears of it
    stale-3           it ends while the third write is under way, which the server carries out only when the new process
                      is about to write; cached lists (`resourceVersion=0`) are from before, and watches are late
    missed-2          the watches are cut over the story's second and third write: what is between is never seen
    down-2            the process is not there while the story makes its second write

Writes are those of the controllers, and those of the story, counted from 1, as they come in the undisturbed run.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """A kind of disturbance."""

    CRASH = "crash"
    """The process ends between two of its writes, and starts again."""
    STALE = "stale"
    """It starts again, and at first reads objects that are older than the server's."""
    MISSED = "missed"
    """Changes come and go without its seeing them."""


CRASH, STALE, MISSED = Fault.CRASH, Fault.STALE, Fault.MISSED
ALL_FAULTS = frozenset(Fault)

_WAYS = {"crash-before": CRASH, "crash-after": CRASH, "stale": STALE, "missed": MISSED, "down": MISSED}
_TEXT = re.compile(rf"({'|'.join(_WAYS)})-([1-9][0-9]*)")


@dataclass(frozen=True)
class Point:
    """One disturbance: `way` is a word of the module's table, `number` that of a write."""

    way: str
    number: int

    @property
    def fault(self) -> Fault:
        """The kind of disturbance."""
        return _WAYS[self.way]

    def __str__(self) -> str:
        return f"{self.way}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """The disturbance that a text such as `crash-after-3` names. Raises ValueError for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a point such as crash-after-3; the words are {', '.join(_WAYS)}")
        return cls(found[1], int(found[2]))


def points_of(faults: Iterable[Fault], writes: int, story_writes: int, pairs: Iterable[int]) -> Iterator[Point]:
    """All points of these faults, for a run in which the controllers made so many writes and the story so many; `pairs`
    are those of the story's writes that another one follows at once, without a look in between."""
    wanted = frozenset(faults)
    numbers = range(1, writes + 1)
    if CRASH in wanted:
        for number in numbers:
            yield Point("crash-before", number)
            yield Point("crash-after", number)
    if STALE in wanted:
        for number in numbers:
            yield Point("stale", number)
    if MISSED in wanted:
        for number in pairs:
            yield Point("missed", number)
        for number in range(1, story_writes + 1):
            yield Point("down", number)
