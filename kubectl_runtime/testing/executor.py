"""`SimExecutor`: an `Executor` of one thread that interleaves work in an order given by a seed.

Work is an iterator, and each `yield` a point at which threads could switch. `step` runs one piece of one of the
submitted iterators, chosen by the seed; so starts, user code and completions mix as they would between threads, and a
seed reproduces the mix.
"""
from __future__ import annotations

import random
from collections.abc import Iterator


class SimExecutor:
    """Runs submitted work piece by piece when `step` is called. For one thread only."""

    patience = 0.0
    """As many workers as may be: the more of them, the more interleavings."""

    one_run = False

    def __init__(self, seed: int | random.Random = 0) -> None:
        """`seed` decides the order (or the generator that does)."""
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._work: list[Iterator[None]] = []

    def __len__(self) -> int:
        """How many pieces of work are unfinished."""
        return len(self._work)

    def submit(self, work: Iterator[None]) -> None:
        """Have `work` run piece by piece, by `step`."""
        self._work.append(work)

    def step(self, choice: int | None = None) -> bool:
        """Run one piece of one work (`choice` picks which, else the seed); False when there is none.

        What it raises comes out.
        """
        if not self._work:
            return False
        index = self._random.randrange(len(self._work)) if choice is None else choice % len(self._work)
        try:
            next(self._work[index])
        except BaseException as end:
            del self._work[index]
            if not isinstance(end, StopIteration):
                raise
        return True

    def run(self) -> None:
        """Step until there is no work left."""
        while self.step():
            pass
