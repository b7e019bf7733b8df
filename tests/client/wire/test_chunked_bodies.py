"""The chunk decoder and the line splitter: any cut of the bytes gives the same result, in linear time."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.client.http.sockets import LineSplitter
from kubectl_runtime.client.wire.streams import ChunkedDecoder, FramingError

BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def framed(chunks: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(
    chunks=BODIES,
    at=st.lists(st.integers(0, 10_000), max_size=20),
    extension=st.sampled_from([b"", b";a=b", b" "]),
    trailer=st.sampled_from([b"", b"X: y\r\n", b"A: b\r\nC: d\r\n"]),
)
def test_however_it_is_cut_the_body_comes_out(
    chunks: list[bytes], at: list[int], extension: bytes, trailer: bytes
) -> None:
    decoder = ChunkedDecoder()
    pieces = cut(framed(chunks, extension, trailer), at)
    assert b"".join(map(decoder.feed, pieces)) == b"".join(chunks)
    assert decoder.finished
    decoder.end()


@given(chunks=BODIES)
def test_byte_by_byte_too(chunks: list[bytes]) -> None:
    decoder = ChunkedDecoder()
    data = framed(chunks)
    assert b"".join(decoder.feed(data[i : i + 1]) for i in range(len(data))) == b"".join(chunks)
    assert decoder.finished


@given(chunks=BODIES.filter(bool), lost=st.integers(1, 10_000))
def test_a_body_that_ends_early_is_an_error_and_gives_no_byte_that_was_not_sent(chunks: list[bytes], lost: int) -> None:
    data = framed(chunks)
    decoder = ChunkedDecoder()
    out = decoder.feed(data[: len(data) - 1 - lost % len(data)])
    assert b"".join(chunks).startswith(out)
    with pytest.raises(FramingError):
        decoder.end()


@pytest.mark.parametrize(
    "data", [b"xyz\r\n", b"\r\n", b"-1\r\n", b"5\r\nabcdefgh\r\n", b"+5\r\nabcde\r\n", b"0x5\r\nabcde\r\n", b"5_0\r\n"]
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        ChunkedDecoder().feed(data)


def test_a_size_line_without_end_is_refused() -> None:
    decoder = ChunkedDecoder()
    with pytest.raises(FramingError):
        for _ in range(100):
            decoder.feed(b"1;" + b"x" * 1000)


def test_what_follows_the_body_is_ignored() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(framed([b"a"]) + b"HTTP/1.1 200 OK") == b"a"
    assert decoder.feed(b"more") == b""


@given(
    text=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30), max_size=20),
    at=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_however_it_is_cut_the_lines_are_the_same(text: list[str], at: list[int]) -> None:
    data = "".join(line + "\n" for line in text).encode()
    splitter = LineSplitter()
    assert [line.decode() for chunk in cut(data, at) for line in splitter.feed(chunk)] == text
    assert splitter.rest() == b""


@given(data=st.binary(max_size=200), at=st.lists(st.integers(0, 10_000), max_size=20))
def test_with_the_rest_no_byte_is_lost(data: bytes, at: list[int]) -> None:
    splitter = LineSplitter()
    found = [line for chunk in cut(data, at) for line in splitter.feed(chunk)]
    assert b"\n".join([*found, splitter.rest()]) == data


def test_a_line_comes_with_its_newline_not_with_the_next_line() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one") == []
    assert splitter.feed(b"\n") == [b"one"]
    assert splitter.feed(b"two\nthree\nfo") == [b"two", b"three"]
    assert splitter.rest() == b"fo"


def test_an_empty_chunk_brings_no_line_and_loses_nothing() -> None:
    splitter = LineSplitter()
    assert [splitter.feed(chunk) for chunk in (b"", b"a", b"", b"\n", b"")] == [[], [], [], [b"a"], []]


def test_a_long_line_takes_work_in_proportion() -> None:
    def allocated(size: int) -> int:
        """Bytes that are made on the way through a line of `size`: the sum of what each call needs at its peak."""
        splitter, total = LineSplitter(), 0
        tracemalloc.start()
        try:
            for piece in [b"x" * 64] * (size // 64) + [b"\n"]:
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                splitter.feed(piece)
                total += max(0, tracemalloc.get_traced_memory()[1] - before)
        finally:
            tracemalloc.stop()
        return total

    assert allocated(1 << 18) < allocated(1 << 15) * 8 * 2  # quadratic would be 64 times
