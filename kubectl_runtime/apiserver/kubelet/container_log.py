"""`ContainerLog`: the log of one container, written by a test; `Selection`: the part that a client asked for.

A log is a list of pieces, each with the time at which it was written, and at most one newline, at its end. A line may
have several pieces; with timestamps its first one is marked. `LogTail` is the `EventStream` of one who follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.meta.metav1 import format_micro_time


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of a log: the last `tail` lines, of those written at `since` or later, no more than `limit` bytes."""

    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None
    timestamps: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    time: datetime
    begins: bool  # whether it is the first of its line
    data: bytes


class ContainerLog:
    """The log of a container. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []
        self._ended = False
        self._followers: list[LogTail] = []

    def write(self, content: bytes | str) -> None:
        """Add to the log, now on the server's clock; those who follow see it at once. Raises ValueError after the end.
        """
        data = content.encode() if isinstance(content, str) else bytes(content)
        with self._lock:
            if self._ended:
                raise ValueError("the container has ended: its log takes no more")
            now = self._clock.now()
            for line in _lines(data):
                begins = not self._pieces or self._pieces[-1].data.endswith(b"\n")
                self._pieces.append(_Piece(now, begins, line))
            followers = list(self._followers)
        for follower in followers:
            follower.notify()

    def end(self) -> None:
        """The container has ended: following its log ends. Safe to repeat."""
        with self._lock:
            self._ended = True
            followers = list(self._followers)
        for follower in followers:
            follower.notify()

    def read(self, selection: Selection) -> bytes:
        """The selected part as it is now."""
        tail = LogTail(self, selection)
        return tail.poll() or b""

    def follow(self, selection: Selection) -> LogTail:
        """The selected part, and what comes after it."""
        tail = LogTail(self, selection)
        with self._lock:
            self._followers.append(tail)
        return tail

    # What tails ask

    def start(self, selection: Selection) -> int:
        """The index of the first piece that is selected."""
        with self._lock:
            begins = [index for index, piece in enumerate(self._pieces)
                      if piece.begins and (selection.since is None or piece.time >= selection.since)]
            if selection.tail is not None:
                begins = begins[-selection.tail:] if selection.tail else []
            return begins[0] if begins else len(self._pieces)

    def since(self, index: int) -> tuple[list[_Piece], bool]:
        """The pieces from `index` on, and whether there will be no more."""
        with self._lock:
            return self._pieces[index:], self._ended

    def forget(self, tail: LogTail) -> None:
        with self._lock:
            if tail in self._followers:
                self._followers.remove(tail)


class LogTail:
    """A follower's view of a log. Implements `wire.EventStream`."""

    deadline: float | None = None

    def __init__(self, log: ContainerLog, selection: Selection) -> None:
        self._log, self._selection = log, selection
        self._next = log.start(selection)
        self._left = selection.limit
        self._over = False
        self._ready: Callable[[], None] = lambda: None

    @property
    def closed(self) -> bool:
        return self._over

    def poll(self) -> bytes | None:
        """What was written since the last time; None for nothing."""
        pieces, ended = self._log.since(self._next)
        self._next += len(pieces)
        data = b"".join(self._shown(piece) for piece in pieces)
        if self._left is not None:
            data = data[:self._left]
            self._left -= len(data)
        self._over = ended or self._left == 0
        return data or None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._ready = callback

    def notify(self) -> None:
        """There is more, or the log has ended."""
        self._ready()

    def close(self) -> None:
        self._over = True
        self._log.forget(self)

    def _shown(self, piece: _Piece) -> bytes:
        if not (self._selection.timestamps and piece.begins):
            return piece.data
        return format_micro_time(piece.time)[:-1].encode() + b"000Z " + piece.data


def _lines(data: bytes) -> list[bytes]:
    """The lines with their newlines. Not splitlines, for which a carriage return ends a line, too."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
