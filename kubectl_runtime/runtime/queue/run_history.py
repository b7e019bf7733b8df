"""`RunHistory`: the last runs of one controller, and its slowest keys. Pure; its owner serialises the calls.

    recent    the last `RECENT` runs that have ended
    slowest   the `SLOWEST` keys with the longest runs of the last hour, each with its longest one

What is kept of a run is a row of plain values: neither its object, nor its error, nor anything that these refer to. A
run costs about 0.25 µs here, whether anybody looks or not.
"""
from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.queue.runs import Outcome, Run

RECENT = 50
SLOWEST = 20
LATELY = 3600.0
"""Seconds."""


class EndedRun(NamedTuple):
    """A run that has ended. Times are seconds of the controller's clock."""

    key: Key
    reason: str
    waited: float
    took: float
    ended: float
    result: RunResult
    told: object
    """After a failure: what the log knows of it."""


class RunHistory:
    """The last runs of a controller, and its slowest ones. Pure; its owner serialises the calls."""

    __slots__ = ("_floor", "_next_look", "_recent", "_slow", "failed", "runs")

    def __init__(self) -> None:
        self.runs = 0
        """How many have ended since the start."""
        self.failed = 0
        self._recent: deque[tuple[Key, str, float, float, float, RunResult, object]] = deque(maxlen=RECENT)
        self._slow: dict[Key, EndedRun] = {}
        self._floor = 0.0
        """A run that took no longer is not among the slowest."""
        self._next_look = inf
        """When the first of the slowest is no longer of late."""

    def ended(self, run: Run, outcome: Outcome, now: float) -> None:
        """`run` has ended at `now`."""
        took = now - run.started
        row = (run.key, run.request.reason, run.waited, took, now, outcome.result, outcome.told)
        self.runs += 1
        if outcome.error is not None:
            self.failed += 1
        self._recent.append(row)
        if took > self._floor or now >= self._next_look:
            self._add_slow(EndedRun._make(row))

    def recent(self, most: int) -> list[EndedRun]:
        """The last runs, up to `most`, the latest first."""
        return [EndedRun._make(row) for row in [*reversed(self._recent)][:most]]

    def slowest(self, most: int, now: float) -> list[EndedRun]:
        """The slowest runs of the last while, up to `most`, the longest first."""
        found = (row for row in self._slow.values() if now - row.ended < LATELY)
        return sorted(found, key=lambda row: row.took, reverse=True)[:most]

    def _add_slow(self, row: EndedRun) -> None:
        slow = self._slow
        known = slow.get(row.key)
        if known is not None and known.took >= row.took and row.ended < self._next_look:
            return
        if row.ended >= self._next_look:
            self._slow = slow = {key: old for key, old in slow.items() if row.ended - old.ended < LATELY}
            known = slow.get(row.key)
        if known is None or row.took > known.took:
            slow[row.key] = row
        if len(slow) > SLOWEST:
            del slow[min(slow, key=lambda key: slow[key].took)]
        self._floor = min(one.took for one in slow.values()) if len(slow) == SLOWEST else 0.0
        self._next_look = min(one.ended for one in slow.values()) + LATELY
