"""`LineSplitter`: bytes as they arrive, cut into lines."""
from __future__ import annotations

LARGEST_OBJECT = 16 << 20
"""The most bytes of one object, as in client-go: of an answer that holds one, of an event, and of a line of text that
is kept whole. (An API server itself takes 3 MiB.)"""


class LineSplitter:
    """Cuts a stream of bytes into lines, in linear time however it arrives; a line may have any length, of which the
    caller can see how much is `held`."""

    __slots__ = ("_begun", "held")

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self.held = 0
        """Bytes after the last newline."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newlines."""
        batch: list[bytes] = []
        find, begin = chunk.find, 0
        while (newline := find(b"\n", begin)) >= 0:  # four times as fast as `split`, which compares byte by byte
            batch.append(chunk[begin:newline])
            begin = newline + 1
        if batch and self._begun:
            self._begun.append(batch[0])
            batch[0] = b"".join(self._begun)
            self._begun.clear()
        if batch:
            self.held = 0
        if begin < len(chunk):
            self._begun.append(chunk[begin:])
            self.held += len(chunk) - begin
        return batch

    def rest(self) -> bytes:
        """What followed the last newline."""
        return b"".join(self._begun)

    def take(self) -> bytes:
        """What followed the last newline, which is held no longer: the line goes on after it."""
        taken, self.held = self.rest(), 0
        self._begun.clear()
        return taken
