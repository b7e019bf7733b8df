"""`ChunkedDecoder`: HTTP/1.1 chunked framing, without I/O. Bytes go in as they arrive, the body comes out.

    state     input                          next
    size      "hex[;extension]" CR LF        data, or trailer after size 0
    data      that many bytes                data end
    data end  CR LF                          size
    trailer   lines up to an empty one       finished; anything after it is ignored

The input may be cut anywhere. Time is linear in its length.
"""
from __future__ import annotations

import re
from functools import lru_cache

LONGEST_LINE = 1 << 16
"""Bytes of a size or trailer line; a longer one is not HTTP."""
_LONGEST_PLAIN = 18
"""The same of a size line that has nothing but sixteen digits."""
_is_hex = re.compile(rb"[0-9A-Fa-f]{1,16}").fullmatch  # int() alone would also take signs, 0x and underscores


class FramingError(Exception):
    """The bytes are not a chunked body, or end in the middle of one."""


class ChunkedDecoder:
    """One body. Not for use from several threads."""

    __slots__ = ("_left", "_line", "_trailer", "finished")

    def __init__(self) -> None:
        self._left = 0
        """Bytes that the present chunk still has, the CR LF behind it included; at 0 a line is expected."""
        self._line = b""
        self._trailer = False
        self.finished = False

    def feed(self, data: bytes) -> bytes:
        """The part of the body that is in `data`; may be empty. Raises FramingError."""
        pieces: list[bytes] = []
        position, end, left = 0, len(data), self._left
        if left == 0 and not self._line and not self._trailer:
            position = _whole_chunks(data, 0, pieces)
        while position < end and not self.finished:
            if left == 0:
                newline = data.find(b"\n", position)
                if newline < 0:
                    self._keep(data[position:])
                    break
                left = self._begin(data[position:newline])
                position = newline + 1
                continue
            # Of the chunk's last two bytes, which are not content, maybe only one is here.
            content = min(left - 2, end - position)
            if content > 0:
                pieces.append(data[position:position + content])
                position += content
                left -= content
            while 0 < left <= 2 and position < end:
                if data[position] != b"\r\n"[2 - left]:
                    raise FramingError("a chunk is longer than its size says")
                position += 1
                left -= 1
            if left == 0:
                position = _whole_chunks(data, position, pieces)
        self._left = left
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        """The connection has ended. Raises FramingError unless the body had."""
        if not self.finished:
            raise FramingError("the connection ended in the middle of the body")

    def _keep(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > LONGEST_LINE:
            raise FramingError("a chunk's size line has no end")

    def _begin(self, line: bytes) -> int:
        """Act on a complete line; how many bytes follow it before the next one."""
        if self._line:
            self._keep(line)
            line, self._line = self._line, b""
        line = line.rstrip(b"\r")
        if self._trailer:
            self.finished = not line
            return 0
        digits = line.partition(b";")[0].strip()
        if not _is_hex(digits):
            raise FramingError("a chunk has no size")
        size = int(digits, 16)
        self._trailer = size == 0
        return size + 2 if size else 0


def _whole_chunks(data: bytes, position: int, pieces: list[bytes]) -> int:
    """Take the chunks that lie whole in `data` from `position` on, which is nearly all of them; where that ended.

    Stops before whatever is not as plain as that, for the careful way to judge.
    """
    find, take = data.find, pieces.append
    while True:
        begin = find(b"\n", position, position + _LONGEST_PLAIN) + 1
        after = begin + _plain_size(data[position:begin])
        if after == begin or data[after:after + 2] != b"\r\n":
            return position
        take(data[begin:after])
        position = after + 2


@lru_cache(maxsize=64)
def _plain_size(line: bytes) -> int:
    """What a size line with its CR LF says; 0 for any other line, one that is not plain, and a size of 0.

    Remembered, since a server that cuts its answers at two kilobytes sends the same few lines over and over.
    """
    return int(line[:-2], 16) if line.endswith(b"\r\n") and _is_hex(line[:-2]) else 0
