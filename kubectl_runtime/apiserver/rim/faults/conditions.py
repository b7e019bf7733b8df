"""`Conditions`: the part of a rule that says which of the matching requests it takes."""

from __future__ import annotations

import random
from typing import Self

from kubectl_runtime.apiserver.rim.faults.match import Chance, Counted, Filter, Lasting
from kubectl_runtime.core.base.clock import Duration, seconds


class Conditions:
    """A chain of conditions, each a `Filter` (see `match`); each method adds one and returns the object."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._conditions: list[Filter] = []
        self.seen = 0
        """How many requests matched."""
        self.taken = 0
        """How many of them the rule was applied to."""

    def take(self, now: float) -> bool:
        """Whether a matching request is taken; called once for each, in their order."""
        self.seen += 1
        for condition in self._conditions:
            if not condition.takes(now):
                return False
        self.taken += 1
        return True

    def first(self, count: int = 1) -> Self:
        """The first `count` requests. Raises ValueError unless it is above 0."""
        _counts("first", count)
        return self._only(Counted(lambda number: number <= count))

    def after(self, count: int) -> Self:
        """All but the first `count` requests."""
        return self._only(Counted(lambda number: number > count))

    def nth(self, *numbers: int) -> Self:
        """The requests with these numbers, counted from 1. Raises ValueError for one below."""
        _counts("nth", *numbers)
        return self._only(Counted(lambda number: number in numbers))

    def every(self, count: int) -> Self:
        """Each `count`-th request. Raises ValueError unless it is above 0."""
        _counts("every", count)
        return self._only(Counted(lambda number: number % count == 0))

    def chance(self, probability: float) -> Self:
        """A request with this probability, drawn from the script's seed. Raises ValueError outside of 0 to 1."""
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return self._only(Chance(probability, random.Random(f"{self._seed}/{len(self._conditions)}")))

    def lasting(self, duration: Duration) -> Self:
        """Requests for so many seconds on the clock, from the first one on."""
        return self._only(Lasting(seconds(duration)))

    def _only(self, condition: Filter) -> Self:
        self._conditions.append(condition)
        return self


def _counts(method: str, *numbers: int) -> None:
    if not numbers or not all(isinstance(number, int) and number > 0 for number in numbers):
        raise ValueError(f"{method}(…) needs a number above 0, got {', '.join(map(repr, numbers)) or 'none'}")
