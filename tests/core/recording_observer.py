"""An observer that writes down all it is told."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubectl_runtime.core.base.observer import METHODS, Observer


class RecordingObserver(Observer):
    """`heard`: name and values of each call, in order. It overrides every method; `raises` is raised by each of them,
    after it was written down."""

    def __init__(self, raises: BaseException | None = None) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.raises = raises

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """What was told by these methods; with one name without it."""
        found = [call for call in self.heard if call[0] in names]
        return [call[1:] for call in found] if len(names) == 1 else found


def _hears(name: str) -> Callable[..., None]:
    def hear(self: RecordingObserver, *values: Any) -> None:
        self.heard.append((name, *values))
        if self.raises is not None:
            raise self.raises

    return hear


for _name in METHODS:
    setattr(RecordingObserver, _name, _hears(_name))
