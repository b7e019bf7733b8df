"""`LogStream`: a container's log while it arrives, as bytes, as text or as lines.

    with pods.log_stream("web", follow=True, stop=stop) as log:
        for line in log.lines():
            print(line)

One thread reads. Setting the stop token ends the iteration, even while it waits. A log is bytes: when it is read as
text, bytes that are not UTF-8 become U+FFFD, and a character that the transport has split is joined again.
"""
from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

from kubectl_runtime.client.http.sockets import LARGEST_OBJECT, LineSplitter

if TYPE_CHECKING:
    from kubectl_runtime.client.wire.streams import ByteStream  # at run time the call that opens a stream imports it


class LogStream:
    r"""A log that is read while it is written: made by `Api.log_stream`.

    A context manager: leaving it closes the connection. A LogStream can be read once: as lines, as text, or as bytes.
    Reading blocks until more is written, the container ends, or a stop token is set.

    >>> server.kubelet.logs("web-0", "one\ntwo\n").end()
    >>> with Api.namespaced(client, Pod, "default").log_stream("web-0") as log:
    ...     for line in log.lines():
    ...         print(line)
    one
    two
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        """The log in pieces as they arrive. Blocks until the next piece, without a limit of its own.

        Raises TransportError when the connection breaks off before the log's end.
        """
        with self._stream:
            for piece in self._stream.chunks():
                if piece:
                    yield piece

    def text(self) -> Iterator[str]:
        """The log as text, in pieces as they arrive; blocks between them. Raises TransportError like iterating over the
        log."""
        return decoded(self)

    def lines(self) -> Iterator[str]:
        """The lines, without their newlines; the last line may be unfinished. A line of more than 16 MiB comes in
        parts. Blocks and raises like `text`."""
        return decoded_lines(self)

    def close(self) -> None:
        """Close the connection, in the reading thread only; other threads set the stop token. Safe to repeat."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def decoded(pieces: Iterable[bytes]) -> Iterator[str]:
    """`pieces` of UTF-8 as text, wherever they are cut; bytes that are not UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def decoded_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """`pieces` of UTF-8 as lines, without the newlines. The newline byte is part of no other character, so lines are
    cut before they are decoded. A line of more than 16 MiB comes in parts, so that it is never held as a whole."""
    splitter = LineSplitter()
    for piece in pieces:
        for line in splitter.feed(piece):
            yield line.decode("utf-8", "replace")
        if splitter.held > LARGEST_OBJECT:
            yield splitter.take().decode("utf-8", "replace")
    if rest := splitter.rest():
        yield rest.decode("utf-8", "replace")
