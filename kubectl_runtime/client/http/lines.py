"""`LineSplitter`: bytes as they arrive, cut into lines."""
from __future__ import annotations


class LineSplitter:
    """Cuts a stream of bytes into lines, in linear time however it arrives; a line may have any length."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newlines."""
        batch = chunk.split(b"\n")
        rest = batch.pop()
        if batch and self._begun:
            self._begun.append(batch[0])
            batch[0] = b"".join(self._begun)
            self._begun.clear()
        if rest:
            self._begun.append(rest)
        return batch

    def rest(self) -> bytes:
        """What followed the last newline."""
        return b"".join(self._begun)
