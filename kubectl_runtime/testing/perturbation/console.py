"""The progress of a perturbation on the terminal: one line, which is rewritten, or a line for each kind of fault where
lines cannot be rewritten."""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence

from kubectl_runtime.testing.perturbation.points import Point
from kubectl_runtime.testing.perturbation.repeat import OPTIONS

_ANEW = "\r\x1b[K"


class Progress:
    """The line in a terminal that says how far a perturbation is. `tell` writes to the terminal; with None nothing is
    written."""

    def __init__(self, points: Sequence[Point], tell: Callable[[str], object] | None) -> None:
        self._total = Counter(point.fault for point in points)
        self._done = Counter(dict.fromkeys(self._total, 0))
        self._found = 0
        self._tell = tell

    def ran(self, point: Point, *, diverged: bool) -> None:
        """The run with this disturbance has ended; whether it `diverged`."""
        self._done[point.fault] += 1
        self._found += diverged
        self._show()

    def end(self) -> None:
        """End the line."""
        if self._tell is not None and self._total:
            self._tell("\n")

    def _show(self) -> None:
        if self._tell is not None:
            parts = [f"{fault} {self._done[fault]}/{total}" for fault, total in self._total.items()]
            found = f"; {self._found} do not end as undisturbed" if self._found else ""
            self._tell(f"{_ANEW}perturbing: {', '.join(parts)}{found}")


def terminal() -> Callable[[str], object] | None:
    """What writes to the terminal: pytest's, if it was asked for, or standard error if it is one."""
    if (tell := OPTIONS.get().tell) is not None:
        return tell
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return write
