"""`soonest`: the first items of a heap, without taking them out or sorting it."""
from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

VISITS = 8
"""Items that are looked at for each one that is asked for."""


def soonest(heap: Sequence[tuple[float, int, T]], most: int, wanted: Callable[[int, T], bool]) -> list[T]:
    """Up to `most` of a heap of (time, order, item) for which `wanted(order, item)`, soonest first; fewer where too
    many others come before them. Takes time in proportion to `most`, however large the heap is."""
    found: list[T] = []
    ahead = [(heap[0][:2], 0)] if heap else []
    for _ in range(VISITS * most):  # the smallest of a heap is its root; what follows an item lies just below it
        if not ahead or len(found) == most:
            break
        (_at, order), place = heapq.heappop(ahead)
        if wanted(order, heap[place][2]):
            found.append(heap[place][2])
        for below in (2 * place + 1, 2 * place + 2):
            if below < len(heap):
                heapq.heappush(ahead, (heap[below][:2], below))
    return found
