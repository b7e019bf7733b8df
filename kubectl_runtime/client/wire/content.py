"""`Content`: what an answer's body holds, read below urllib3: piece by piece, without framing, decompressed.

    framing    chunked; or as long as Content-Length says; or until the connection ends
    coding     identity, or gzip of any number of members; `content_coding` says of any other that it is none

The end of the framing is the end of the content. A body that ends before, and gzip that does not end with it, raise
FramingError: the answer was cut, or is damaged.

urllib3's `stream()` costs twice as much, its `read(n)` waits for n bytes, and its `read1` says nothing of what it has
decompressed and not given yet. One `read1` on the response's buffered file brings what has arrived. That needs
http.client's response object inside urllib3's; an answer without it (a mock) is read with urllib3's own methods.

`ChunkedDecoder`: HTTP/1.1 chunked framing, without I/O. Bytes go in as they arrive, the body comes out.

    state     input                          next
    size      "hex[;extension]" CR LF        data, or trailer after size 0
    data      that many bytes                data end
    data end  CR LF                          size
    trailer   lines up to an empty one       finished; anything after it is ignored

The input may be cut anywhere. Time is linear in its length.
"""
from __future__ import annotations

import http.client
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import urllib3

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


GZIP = "gzip"

PIECE = 1 << 19
"""The most bytes of a piece. Each read lets other threads run, so under a flood of events larger pieces mean fewer
switches between the watch and the workers: with 256 KiB the whole pipeline was a quarter faster than with 64, with 512
a twentieth more."""

_PACKED = 1 << 14
"""The most bytes that are read at once of what is compressed: zlib copies what it did not use, after each piece and
each member."""


class UnknownCoding(Exception):
    """The body has a Content-Encoding that this library does not ask for and cannot read. The text names it."""


def content_coding(headers: Mapping[str, str]) -> str:
    """`gzip`, or empty for a body that is what it is. Raises UnknownCoding for any other Content-Encoding."""
    named = headers.get("Content-Encoding")
    if named is None:  # nearly always
        return ""
    coding = named.strip().lower()
    if coding in ("", "identity"):
        return ""
    if coding != GZIP:
        raise UnknownCoding(f"Content-Encoding {named[:100]!r}")
    return GZIP


class Content:
    """The content of one answer, once, for one thread.

    Iterating yields its pieces, of `PIECE` bytes at most, and an empty one after a read that brought none. It blocks as
    reads of the connection do, and raises what they raise, and FramingError.
    """

    def __init__(self, raw: urllib3.HTTPResponse, file: io.BufferedReader) -> None:
        """`raw` has an open body, which nobody has begun to read, and `file` is `raw_file(raw)`. Raises UnknownCoding.
        """
        length = raw.length_remaining
        self._framing = ChunkedDecoder() if raw.chunked and length is None else _Unframed(length)
        self._gunzip = Gunzip() if content_coding(raw.headers) else None
        self._file = file
        self.received = 0
        """Bytes of the body so far, as they came: compressed ones, if it is compressed."""

    @property
    def ended(self) -> bool:
        """Whether all of the body has come, as far as that shows before the connection ends."""
        return self._framing.finished

    def __iter__(self) -> Iterator[bytes]:
        framing, gunzip, read = self._framing, self._gunzip, self._file.read1
        most = PIECE if gunzip is None else _PACKED
        while not framing.finished:
            data = read(most)
            if not data:
                framing.end()
                break
            body = framing.feed(data)
            self.received += len(body)
            if gunzip is None:
                yield body
            else:
                yield from gunzip.feed(body)
        if gunzip is not None:
            gunzip.end()


class _Unframed:
    """A body without framing: `length` bytes, or until the connection ends."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.finished = length == 0

    def feed(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        data = data[:self._left]
        self._left -= len(data)
        self.finished = self._left == 0
        return data

    def end(self) -> None:
        if self._left:
            raise FramingError(f"{self._left} bytes of the answer are missing")


class Gunzip:
    """Decompresses gzip: its members one after the other, however they are cut; zeros may follow a member."""

    def __init__(self) -> None:
        self._member: Any = None  # zlib's class has no public name
        self._after_one = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` brings, in pieces of `PIECE` bytes at most; at least one, which may be empty. Raises FramingError
        for what is not gzip."""
        while True:
            if self._member is None:
                if self._after_one:
                    data = data.lstrip(b"\0")
                if not data:
                    yield b""
                    return
                self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error as error:
                raise FramingError(f"its gzip is damaged: {str(error).rpartition(': ')[2]}") from None
            yield piece
            if self._member.eof:
                data = self._member.unused_data
                self._member, self._after_one = None, True
                if not data:
                    return
            else:
                data = self._member.unconsumed_tail
                if not data and len(piece) < PIECE:  # a whole piece: zlib may hold more
                    return

    def end(self) -> None:
        """Nothing more comes. Raises FramingError in the middle of a member."""
        if self._member is not None:
            raise FramingError("its gzip is cut off")


def raw_file(raw: Any) -> io.BufferedReader | None:
    """The file below urllib3 and http.client, from which the body can be read; None for an answer that has none."""
    inner = raw_response(raw)
    if not isinstance(raw, urllib3.HTTPResponse) or not isinstance(inner, http.client.HTTPResponse):
        return None
    return inner.fp if isinstance(inner.fp, io.BufferedReader) else None


def raw_response(raw: Any) -> Any:
    """http.client's response inside urllib3's; None, or something else, in a mock."""
    return getattr(raw, "_fp", None)
