"""What an answer holds comes out whole: however it was compressed, framed, cut on its way, and read."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import BadStatusLine, HTTPException, HTTPResponse, RemoteDisconnected
from typing import Any

import pytest
import requests
import urllib3
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kubectl_runtime import (
    Api,
    ApiError,
    ApiResource,
    OutcomeUnknownError,
    Patch,
    RequestTimeout,
    RetryPolicy,
    TransportError,
)
from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.retry import UnexpectedAnswer
from kubectl_runtime.client.wire import streams
from kubectl_runtime.client.wire.connections import ApiConnection, QuickResponse, whole_answer
from kubectl_runtime.client.wire.streams import PIECE, Content, FramingError, Gunzip, raw_file, read_body
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, Received, WireServer, answering, says
from tests.thoroughness import examples

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
GET = Request("GET", "/api/v1/namespaces/default/configmaps/a", "get", RESOURCE, "", "default", "a")
LIST = Request("GET", "/api/v1/configmaps", "list", RESOURCE)
LOG = Request("GET", "/api/v1/namespaces/default/pods/a/log", "get", ApiResource("", "v1", "Pod", "pods"), "",
              "default", "a", subresource="log")
WATCH = Request("GET", "/api/v1/configmaps", "watch", RESOURCE, query=(("watch", "true"),))
POST = Request("POST", "/api/v1/namespaces/default/configmaps", "create", RESOURCE, "", "default", "a", body=b"{}",
               retry=Retry.UNSENT_ONLY)
ONCE = {"retry": RetryPolicy.never()}
FAST = {"retry": RetryPolicy(base=0.001, maximum=0.002)}

FLUSHES = (zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_BLOCK)


@dataclass
class Sent:
    """An answer: what it holds, and its bytes, which are read in pieces of `arrives`."""

    content: bytes
    head: bytes
    body: bytes
    arrives: list[int]

    def __repr__(self) -> str:
        return f"Sent({len(self.content)} bytes, {self.head!r}, {len(self.body)} bytes, read {self.arrives})"


def cuts(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """`data` in pieces of these sizes, over and over; of larger ones where there would be thousands."""
    begin = 0
    for size in itertools.cycle(sizes):
        if begin >= len(data):
            return
        end = begin + max(size, len(data) // 1000)
        yield data[begin:end]
        begin = end


def packed(content: bytes, sizes: list[int], flushes: list[int], level: int) -> bytes:
    """One gzip member."""
    member = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    how = itertools.cycle(flushes)
    parts = [member.compress(piece) + member.flush(next(how)) for piece in cuts(content, sizes)]
    return b"".join([*parts, member.flush()])


def in_chunks(body: bytes, sizes: list[int]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in cuts(body, sizes)) + b"0\r\n\r\n"


SIZES = st.lists(st.one_of(st.integers(1, 20), st.integers(1, 1 << 16)), min_size=1, max_size=5)
LENGTHS = st.one_of(st.integers(0, 300), st.integers(0, 300_000), st.integers(0, 5_000_000),
                    st.sampled_from([0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5_000_000]))


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    length, seed = draw(LENGTHS), draw(st.integers(0, 1 << 16))
    made = random.Random(seed)
    unit = draw(st.sampled_from([b"x", b"\0", b'{"kind": "Pod", "metadata": {"name": "a"}}\n', b""])) or made.randbytes(
        min(length, 1 << 16))
    return (unit * (length // max(1, len(unit)) + 1))[:length]


@st.composite
def answers(draw: st.DrawFn, ways: tuple[str, ...] = ("length", "chunked", "end")) -> Sent:
    content = draw(contents())
    coded, lines = content, [b"HTTP/1.1 200 OK"]
    if draw(st.booleans()):
        borders = sorted(draw(st.lists(st.integers(0, len(content)), max_size=3)))
        members = [content[begin:end] for begin, end in itertools.pairwise([0, *borders, len(content)])]
        sizes, flushes = draw(SIZES), draw(st.lists(st.sampled_from(FLUSHES), min_size=1, max_size=4))
        coded = b"".join(packed(member, sizes, flushes, draw(st.sampled_from([0, 1, 6]))) for member in members)
        coded += b"\0" * draw(st.sampled_from([0, 0, 512]))
        lines.append(draw(st.sampled_from([b"Content-Encoding: gzip", b"content-encoding: GZIP "])))
    elif draw(st.booleans()):
        lines.append(draw(st.sampled_from([b"Content-Encoding: identity", b"Content-Encoding: "])))
    how = draw(st.sampled_from(ways))
    body = coded
    if how == "length":
        lines.append(b"Content-Length: %d" % len(coded))
    elif how == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
        body = in_chunks(coded, draw(SIZES))
    return Sent(content, b"\r\n".join(lines) + b"\r\n\r\n", body, draw(SIZES))


class Arriving(io.RawIOBase):
    """A socket's input, of which each read brings a piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or next(self._pieces, b"")
        taken, self._rest = data[:len(buffer)], data[len(buffer):]
        buffer[:len(taken)] = taken
        return len(taken)


class Line:
    """As much of a socket as a response uses."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        body = cuts(self._sent.body, self._sent.arrives)
        return io.BufferedReader(Arriving(itertools.chain([self._sent.head], body)))


def pieces_of(sent: Sent) -> Iterator[bytes]:
    answer: Any = QuickResponse(Line(sent), method="GET")  # type: ignore[arg-type]
    answer.begin()
    raw = urllib3.HTTPResponse(body=answer, headers=answer.headers, status=answer.status, version=answer.version,
                               preload_content=False, decode_content=False, original_response=answer,
                               request_method="GET")
    file = raw_file(raw)
    assert file is not None
    yield from Content(raw, file)


@settings(max_examples=examples(300))
@given(sent=answers())
def test_what_was_sent_comes_out_however_it_was_packed_framed_and_read(sent: Sent) -> None:
    pieces = list(pieces_of(sent))
    assert b"".join(pieces) == sent.content
    assert max(map(len, pieces), default=0) <= PIECE


class Arrived:
    """As much of a socket as a call's answer uses; each read brings a piece of the whole answer."""

    def __init__(self, sent: Sent) -> None:
        self._arriving = Arriving(cuts(sent.head + sent.body, sent.arrives))

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[:self._arriving.readinto(buffer)])

    def makefile(self, mode: str, buffering: int) -> Arriving:
        assert (mode, buffering) == ("rb", 0)
        return self._arriving

    def close(self) -> None:
        """The answer still reads from the file."""


def call_of(sent: Sent) -> tuple[int, dict[str, str], bytes]:
    connection: Any = ApiConnection("127.0.0.1", 1)
    connection.sock, connection._asked = Arrived(sent), ("GET", "/")
    answer: Any = connection.received()
    if not isinstance(answer, QuickResponse):
        return answer[0], dict(answer[1]), answer[2]
    call = Call(Request("GET", "/", "get", None), SYSTEM_CLOCK.monotonic() + 60, StopToken())
    body = read_body(answer, answer.fp, call, SYSTEM_CLOCK, is_error=False)
    return answer.status, dict(answer.headers), body


@settings(max_examples=examples(300))
@given(sent=answers())
def test_a_call_gets_the_same_answer_however_it_arrives(sent: Sent) -> None:
    assume(sent.body or b"Content-Length" in sent.head)  # a head may have been cut where no length and no body follow
    status, headers, body = call_of(sent)
    assert (status, body) == (200, sent.content)
    at_once = Sent(sent.content, sent.head, sent.body, [len(sent.head) + len(sent.body)])
    assert call_of(at_once) == (status, headers, body)


@pytest.mark.parametrize("line", [
    "X: a", "x:b ", "X:\t b: c \t", "X:", "X: \x85a", ": c", " folded: d", "\tf: g", "\x0bf: g", "\x85f: g", "X: a\rb",
    "X: a\nY: b", "X\r: a", "no colon", "", "Content-Length: 3", "Content-Length: 2"])
@pytest.mark.parametrize("before", [True, False])
def test_an_answer_is_taken_at_once_only_if_the_standard_library_reads_the_same(line: str, before: bool) -> None:
    lines = [line, "Content-Length: 2"] if before else ["Content-Length: 2", line]
    data = "\r\n".join(["HTTP/1.1 200 OK", *lines, "", "{}"]).encode("latin-1")
    read: Any = HTTPResponse(Line(Sent(b"{}", data, b"", [1])))  # type: ignore[arg-type]
    read.begin()
    headers = [(name, value.strip(" \t")) for name, value in read.headers.raw_items()]
    taken = whole_answer(data)
    assert (taken is not None) == (line[:1] in ("X", "x") and not set(line) & {"\r", "\n"})
    if taken is not None:
        assert (taken[0], list(taken[1].items()), taken[2]) == (read.status, headers, read.read())


@pytest.mark.parametrize("lines", [
    "Content-Length: 2", "content-length:2", "Content-Length: 2 \t", "Content-Length: 2\r\nContent-Length: 2",
    "Content-Length: 2\r\nWarning: 299 - one\r\nWarning: 299 - two", "Content-Length: 02",
    "Content-Length: 2\r\nConnection: keep-alive", "Content-Length: 2\r\nContent-Encoding: identity",
    "Transfer-Encoding: chunked"])
def test_the_forms_of_a_head_are_one_answer(lines: str) -> None:
    body = b"2\r\n{}\r\n0\r\n\r\n" if "chunked" in lines else b"{}"
    head = f"HTTP/1.1 200 OK\r\n{lines}\r\nX-Mine:  a b\r\n\r\n".encode()
    status, headers, content = call_of(Sent(b"{}", head, body, [len(head) + len(body)]))
    assert (status, content, headers["X-Mine"]) == (200, b"{}", "a b")
    if "Warning" in lines:
        assert headers["Warning"] == "299 - one, 299 - two"


@pytest.mark.parametrize(("sent", "problem"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", FramingError),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}", HTTPException),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", HTTPException),
    (b"HTTP/1.1 200 OK\r\n", FramingError), (b"", RemoteDisconnected), (b"{}", BadStatusLine)])
def test_an_answer_that_leaves_anything_open_is_an_error(sent: bytes, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        call_of(Sent(b"", sent, b"", [len(sent) or 1]))


def test_what_follows_an_answer_is_no_part_of_it() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    assert call_of(Sent(b"{}", head, b"{}HTTP/1.1 200 OK", [1 << 10]))[2] == b"{}"


@settings(max_examples=examples(100))
@given(sent=answers(("length", "chunked")), lost=st.integers(0, 1 << 30))
def test_an_answer_that_lacks_any_of_its_end_is_an_error_after_what_came(sent: Sent, lost: int) -> None:
    if not sent.body:
        return
    sent.body = sent.body[:-1 - lost % len(sent.body)]
    got: list[bytes] = []
    with pytest.raises(FramingError):
        got += pieces_of(sent)  # one by one: what came before the error stays
    assert sent.content.startswith(b"".join(got))


@settings(max_examples=examples(100))
@given(content=contents(), lost=st.integers(0, 1 << 30), how=st.sampled_from(["length", "chunked", "end"]))
def test_gzip_that_is_cut_is_an_error_though_its_frame_is_whole(content: bytes, lost: int, how: str) -> None:
    whole = gzip.compress(content, 1)
    coded = whole[:1 + lost % (len(whole) - 1)]
    more = {"length": b"Content-Length: %d\r\n" % len(coded), "chunked": b"Transfer-Encoding: chunked\r\n", "end": b""}
    sent = Sent(content, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + more[how] + b"\r\n",
                in_chunks(coded, [2048]) if how == "chunked" else coded, [4096])
    with pytest.raises(FramingError, match="the gzip data is cut off"):
        list(pieces_of(sent))


@pytest.mark.parametrize("damage", [
    lambda whole: b"{" + whole, lambda whole: whole[:12] + b"\xff" + whole[13:], lambda whole: whole[:-8] + bytes(8),
    lambda whole: whole + b"more"], ids=["no gzip", "in the middle", "another checksum", "something behind it"])
def test_what_is_no_gzip_is_an_error(damage: Any) -> None:
    body = damage(gzip.compress(random.Random(1).randbytes(1000)))
    sent = Sent(b"", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body), body, [99])
    with pytest.raises(FramingError, match=r"the gzip data is (damaged|cut off)"):
        list(pieces_of(sent))


def test_a_thousand_small_members_and_one_that_expands_a_thousandfold_take_time_in_proportion() -> None:
    gunzip, bomb = Gunzip(), gzip.compress(bytes(8 << 20))
    assert b"".join(gunzip.feed(gzip.compress(b"x") * 1000)) == b"x" * 1000
    pieces = list(gunzip.feed(bomb))
    assert sum(map(len, pieces)) == 8 << 20
    assert max(map(len, pieces)) <= PIECE
    gunzip.end()


# Over sockets


class Answers:
    """Sends what it is given, over any number of connections."""

    def __init__(self) -> None:
        self.sent: Sent

    def __call__(self, peer: Peer) -> None:
        while peer.receive() is not None:
            for piece in cuts(self.sent.head + self.sent.body, self.sent.arrives):
                peer.send(piece)
            if b"Content-Length" not in self.sent.head and b"chunked" not in self.sent.head:
                return


@pytest.fixture(scope="module")
def answers_of_a_server() -> Iterator[tuple[Answers, WireServer]]:
    given_ = Answers()
    with WireServer(given_) as server:
        yield given_, server


@pytest.fixture(scope="module", params=["adapter of the client", "adapter of requests", "hook"])
def client(request: pytest.FixtureRequest, answers_of_a_server: tuple[Answers, WireServer]) -> Iterator[Any]:
    session: requests.Session | None = None
    if request.param != "adapter of the client":
        session = requests.Session()
        if request.param == "hook":
            session.hooks["response"].append(lambda response, **_: len(response.content) and None)
        else:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=1))
    with answers_of_a_server[1].client(client={**FAST, "session": session}) as made:
        yield made


@settings(max_examples=examples(60))
@given(sent=answers())
def test_calls_and_streams_read_all_of_it(answers_of_a_server: tuple[Answers, WireServer], client: Any, sent: Sent
                                          ) -> None:
    answers_of_a_server[0].sent = sent
    if sent.body or b"Content-Length" in sent.head:  # else it looks like a head that was cut
        assert client.request(LIST) == sent.content
    if client._carriers.rules.hooks:  # this one reads what it sees
        return
    with client.stream(WATCH) as stream:
        assert b"".join(stream.chunks()) == sent.content


@pytest.mark.parametrize("content", [b"x" * 1_000_000, b"\xf0\x9f\x98\x80" * 70_000,
                                     random.Random(1).randbytes(300_000).hex().encode()],
                         ids=["one letter", "symbols", "digits"])
@pytest.mark.parametrize("how", ["length", "chunked", "end"])
def test_an_object_of_more_than_256_kib_comes_whole_from_a_compressed_answer(content: bytes, how: str) -> None:
    body = gzip.compress(b'{"metadata": {"name": "a"}, "data": {"a": "%s"}}' % content)
    frame = {"length": (f"Content-Length: {len(body)}", body), "end": ("Connection: close", body),
             "chunked": ("Transfer-Encoding: chunked", in_chunks(body, [2048]))}[how]

    def packed_answer(peer: Peer, _: Received) -> None:
        peer.send(f"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\n{frame[0]}\r\n\r\n".encode() + frame[1])
        if how == "end":
            peer.close()

    with WireServer(answering(packed_answer)) as server, server.client(client=FAST) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        assert maps.create(ConfigMap(name="a")).data == {"a": content.decode()}
        assert maps.get("a").data == {"a": content.decode()}
        assert maps.patch("a", Patch.merge({})).data == {"a": content.decode()}


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "x-gzip", "gzip, gzip", "gzip, br", "compress"])
def test_any_other_content_encoding_is_an_error_that_names_it(coding: str) -> None:
    says_so = says(200, b"{}", headers=(f"Content-Encoding: {coding}",))
    with WireServer(answering(says_so)) as server, server.client(client=FAST) as client:
        for error, ask in ((UnexpectedAnswer, lambda: client.request(GET)),
                           (OutcomeUnknownError, lambda: client.request(POST)),
                           (UnexpectedAnswer, lambda: client.stream(WATCH))):
            with pytest.raises(error, match=f"configmaps.*Content-Encoding '{coding}'"):
                ask()
    assert len(server.requests) == 3


def test_of_a_refusal_with_another_content_encoding_the_status_counts() -> None:
    refusals = [says(code, b"\x0b\x02", headers=("Content-Encoding: br", "Retry-After: 0")) for code in (503, 403)]
    with WireServer(answering(*refusals)) as server, server.client(client=FAST) as client:
        with pytest.raises(ApiError, match="HTTP 403 with Content-Encoding 'br', which cannot be read") as error:
            client.request(GET)
    assert error.value.is_forbidden
    assert len(server.requests) == 2, "a server that is not there for the moment is asked again"


# Answers that break off


def cut_in_its_length(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    peer.close()


def cut_in_a_chunk(peer: Peer) -> None:
    peer.start_stream()
    peer.send(b"10\r\n{")
    peer.close()


def cut_between_chunks(peer: Peer) -> None:
    peer.start_stream()
    peer.chunk(b"{")
    peer.close()


def cut_gzip_with_the_connection(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}")[:-1])
    peer.close()


def cut_gzip_in_a_whole_frame(peer: Peer) -> None:
    peer.answer(200, gzip.compress(b"{}")[:-1], headers=("Content-Encoding: gzip",))


def reset_in_its_length(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    peer.reset()


broken = pytest.mark.parametrize("end", [cut_in_its_length, cut_in_a_chunk, cut_between_chunks, reset_in_its_length,
                                         cut_gzip_with_the_connection, cut_gzip_in_a_whole_frame])


@broken
@pytest.mark.parametrize("asked", [GET, LIST, LOG], ids=["get", "list", "log"])
def test_a_read_whose_answer_breaks_off_is_made_again(end: Any, asked: Request) -> None:
    broken_off = [lambda peer, _: end(peer)] * 2
    with WireServer(answering(*broken_off, says(200, b'{"a": 1}'))) as server, server.client(client=FAST) as client:
        assert client.request(asked) == b'{"a": 1}'
    assert len(server.requests) == 3


@broken
def test_a_create_whose_answer_breaks_off_is_an_error_that_says_so(end: Any) -> None:
    with WireServer(answering(lambda peer, _: end(peer))) as server, server.client(client=FAST) as client:
        with pytest.raises(TransportError, match=r"create configmaps default/a: the connection .* was lost") as error:
            client.request(POST)
    assert error.value.sent
    assert len(server.requests) == 1


@broken
def test_a_hook_of_the_session_sees_no_part_for_the_whole(end: Any) -> None:
    seen: list[bytes] = []
    session = requests.Session()
    session.hooks["response"].append(lambda response, **_: seen.append(response.content))
    answers_ = answering(lambda peer, _: end(peer), says(200, b'{"a": 1}'))
    with WireServer(answers_) as server, server.client(client={**FAST, "session": session}) as client:
        assert client.request(GET) == b'{"a": 1}'
    assert seen == [b'{"a": 1}']


def test_answers_that_always_break_off_end_with_the_deadline() -> None:
    patient = {"retry": RetryPolicy(base=0.01, maximum=0.02, retries=10_000)}
    with WireServer(answering(lambda peer, _: cut_in_a_chunk(peer))) as server:
        with server.client(client=patient, timeout=0.3) as client, pytest.raises(
                TransportError, match=r"lost|deadline|within"):
            client.request(GET)
        assert len(server.requests) > 1


def test_gzip_that_trickles_and_brings_nothing_ends_with_the_deadline() -> None:
    header = b"\x1f\x8b\x08\x08" + bytes(6)  # a name without an end follows
    pause = threading.Event()

    def trickle(peer: Peer, _: Received) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.chunk(header)
        while True:
            peer.chunk(b"name")
            pause.wait(0.02)

    with WireServer(answering(trickle)) as server, server.client(client=ONCE, timeout=0.3) as client:
        with pytest.raises(RequestTimeout):
            client.request(GET)


# What is too long


def endless(coding: bytes, pieces: Iterator[bytes], sent: list[int]) -> Any:
    def serve(peer: Peer, _: Received) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + coding + b"\r\n")
        for piece in pieces:
            peer.chunk(piece)
            sent.append(len(piece))

    return serve


IDENTITY, GZIPPED = b"", b"Content-Encoding: gzip\r\n"
ZEROS = gzip.compress(bytes(16 << 20))
"""Sixteen mebibytes in sixteen kibibytes."""


@pytest.mark.parametrize(("coding", "piece"), [(IDENTITY, b" " * (1 << 20)), (GZIPPED, ZEROS)],
                         ids=["without end", "gzip that expands without end"])
@pytest.mark.parametrize("asked", [GET, POST], ids=["get", "create"])
def test_of_one_object_at_most_16_mib_are_read(coding: bytes, piece: bytes, asked: Request) -> None:
    sent: list[int] = []
    with WireServer(answering(endless(coding, itertools.repeat(piece), sent))) as server:
        with server.client(client=FAST) as client, pytest.raises(
                TransportError, match=r"configmaps default/a: the answer is longer than 16 MiB, .* for one object"):
            client.request(asked)
    assert len(server.requests) == 1, "it would be as long again"
    assert sum(sent) < 64 << 20, "what the sockets hold is all that was sent in vain"


@pytest.mark.parametrize("asked", [LIST, LOG, Request("GET", "/openapi/v2", "get", None, "get the schemas")],
                         ids=["list", "log", "schemas"])
def test_what_is_not_one_object_may_be_longer(asked: Request) -> None:
    long = b"line\n" * (4 << 20)
    for body, headers in ((long, ()), (gzip.compress(long, 1), ("Content-Encoding: gzip",))):
        with WireServer(answering(says(200, body, headers=headers))) as server, server.client(client=ONCE) as client:
            assert client.request(asked) == long


def test_an_error_without_end_is_not_read_to_its_end_either() -> None:
    def refuse(peer: Peer, _: Received) -> None:
        peer.send(b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            peer.chunk(b"no" * (1 << 19))

    with WireServer(answering(refuse)) as server, server.client(client=FAST) as client:
        for ask in (lambda: client.request(LIST), lambda: client.stream(WATCH)):
            with pytest.raises(TransportError, match=r"configmaps.*longer than 16 MiB"):
                ask()


def test_a_list_may_be_long_if_what_came_was_no_trifle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGEST_EXPANDED", 24 << 20)
    long = random.Random(2).randbytes(1 << 19) * 80  # 40 MiB, of which gzip makes no less

    def once(peer: Peer, _: Received) -> None:
        peer.answer(200, gzip.compress(long, 0), headers=("Content-Encoding: gzip",))

    with WireServer(answering(once)) as server, server.client(client=FAST) as client:
        assert client.request(LIST) == long
    with WireServer(answering(endless(GZIPPED, itertools.repeat(ZEROS), []))) as server:
        with server.client(client=FAST) as client, pytest.raises(
                TransportError, match="list configmaps in all namespaces: the answer is longer than 24 MiB"):
            client.request(LIST)


def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGEST_EXPANDED", "LARGEST_ANSWER"):
        monkeypatch.setattr(streams, name, 24 << 20)
    with WireServer(answering(endless(IDENTITY, itertools.repeat(b" " * (1 << 20)), []))) as server:
        with server.client(client=FAST) as client, pytest.raises(TransportError, match="read a list in pages"):
            client.request(LIST)
