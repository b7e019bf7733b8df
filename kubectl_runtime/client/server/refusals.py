"""`Refusals`: what a server was found not to do, remembered for an hour so that it is not asked each time."""
from __future__ import annotations

from collections.abc import Hashable

REMEMBERED_SECONDS = 3600.0
"""Long enough to cost nothing, short enough to notice that the server was upgraded."""


class Refusals:
    """What the server has refused lately, so that it is not asked again for an hour. One for each client. Safe to use
    from any thread; times are of one clock."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def note(self, what: Hashable, now: float) -> None:
        """`what` was refused."""
        self._until[what] = now + REMEMBERED_SECONDS

    def holds(self, what: Hashable, now: float) -> bool:
        """Whether `what` was refused within the last hour."""
        return now < self._until.get(what, float("-inf"))
