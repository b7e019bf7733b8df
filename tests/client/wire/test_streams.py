"""ByteStream over real sockets: every byte as the test sends it, plain and TLS."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing

import pytest

from kubectl_runtime import ApiResource, RequestTimeout, StopToken, TransportError
from kubectl_runtime.client.http.sockets import LineSplitter
from kubectl_runtime.client.wire.streams import ByteStream, raw_file
from kubectl_runtime.core.requests.request import Request
from tests.client.wire_server import Peer, Serve, WireServer, answering, says

PATIENCE = 30.0
"""Seconds; only what hangs needs them."""

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
WATCH = Request("GET", "/api/v1/configmaps", "watch", RESOURCE, "watch configmaps", query=(("watch", "true"),))


def streaming(*steps: object) -> Serve:
    """Starts a chunked answer; bytes are sent as a chunk, functions are called with the peer."""

    def serve(peer: Peer) -> None:
        if peer.receive() is None:
            return
        peer.start_stream()
        for step in steps:
            if isinstance(step, bytes):
                peer.chunk(step)
            else:
                step(peer)  # type: ignore[operator]

    return serve


def raw(data: bytes) -> object:
    return lambda peer: peer.send(data)


def lines(stream: ByteStream) -> Iterator[bytes]:
    """The complete lines, each as soon as it is there."""
    splitter = LineSplitter()
    for chunk in stream.chunks():
        yield from splitter.feed(chunk)


def read(server: WireServer, **options: object) -> list[bytes]:
    with server.client() as client, client.stream(WATCH, **options) as stream:  # type: ignore[arg-type]
        return list(lines(stream))


@pytest.fixture(params=["plain", "tls"])
def secure(request: pytest.FixtureRequest) -> tuple[ssl.SSLContext | None, dict[str, object]]:
    """The server's TLS context, and the Config that trusts it."""
    if request.param == "plain":
        return None, {}
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
    from kubectl_runtime.certificates.authority import Authority
    from kubectl_runtime.certificates.bundles import server_context

    authority = Authority()
    return server_context(authority.server(), authority.pem), {"ca_data": authority.pem}


def test_the_direct_reader_is_in_use() -> None:
    """A new urllib3 that hides its file would silently cost half the speed."""
    with (
        WireServer(streaming(b"a\n", Peer.end_stream)) as server,
        server.client() as client,
        client.stream(WATCH) as stream,
    ):
        assert raw_file(stream._response.raw) is not None


def test_chunked_bodies_over_plain_and_tls(secure: tuple[ssl.SSLContext | None, dict[str, object]]) -> None:
    tls, config = secure
    long = b"x" * 100_000
    with WireServer(streaming(b"one\ntw", b"o\n", long + b"\n", Peer.end_stream), tls=tls) as server:
        with server.client(**config) as client, client.stream(WATCH) as stream:
            assert list(lines(stream)) == [b"one", b"two", long]


def test_a_character_cut_in_two_stays_whole() -> None:
    text = "größe €uro \N{GRINNING FACE}\n".encode()
    with WireServer(streaming(*(text[i : i + 1] for i in range(len(text))), Peer.end_stream)) as server:
        assert read(server) == [text[:-1]]


def test_a_body_with_content_length_is_read_to_its_end() -> None:
    with WireServer(answering(says(200, b"one\ntwo\n"))) as server:
        assert read(server) == [b"one", b"two"]


def test_a_body_without_length_ends_with_the_connection() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\none\ntwo\n")

    with WireServer(serve) as server:
        assert read(server) == [b"one", b"two"]


def test_lines_of_a_compressed_stream_come_when_they_were_sent() -> None:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    read_one = threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.chunk(packer.compress(b"one\n") + packer.flush(zlib.Z_SYNC_FLUSH))
        assert read_one.wait(PATIENCE)
        peer.chunk(packer.compress(b"two\n") + packer.flush())
        peer.end_stream()

    with WireServer(serve) as server, server.client() as client, client.stream(WATCH) as stream:
        arriving = lines(stream)
        assert next(arriving) == b"one"
        read_one.set()
        assert list(arriving) == [b"two"]


@pytest.mark.parametrize(
    "end",
    [Peer.reset, Peer.close, raw(b"5\r\nab"), raw(b"1"), raw(b"zz\r\n")],
    ids=["reset", "end of connection", "end in a chunk", "end in a chunk header", "no chunk header"],
)
def test_a_connection_that_breaks_off_is_a_transport_error_after_what_came(end: object) -> None:
    got: list[bytes] = []
    with WireServer(streaming(b"one\nhal", end)) as server, server.client() as client, client.stream(WATCH) as stream:
        with pytest.raises(TransportError, match=r"watch configmaps.*broke off"):
            got += lines(stream)  # one by one: what came before the error stays
    assert got in ([b"one"], [])  # a reset may overtake what was sent before it


def test_a_silence_beyond_the_read_timeout_is_a_request_timeout(
    secure: tuple[ssl.SSLContext | None, dict[str, object]],
) -> None:
    tls, config = secure
    with WireServer(streaming(b"one\n", Peer.hold), tls=tls) as server, server.client(**config) as client:
        # A busy server may be silent for as long before its first byte
        with pytest.raises(RequestTimeout, match=r"the server was silent for too long|no answer from"), \
                client.stream(WATCH, read_timeout=0.1) as stream:
            assert list(stream.chunks()) == [b"one\n"]


def waiting(stream: ByteStream) -> tuple[threading.Thread, list[object]]:
    """A thread that reads the stream, and what it saw; the thread has read the first piece."""
    seen: list[object] = []
    begun = threading.Event()

    def consume() -> None:
        try:
            for piece in stream.chunks():
                seen.append(piece)
                begun.set()
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert begun.wait(PATIENCE)
    return thread, seen


@pytest.mark.parametrize("how", ["shutdown", "stop token", "client"])
def test_an_idle_read_is_woken_at_once_and_ends_cleanly(
    secure: tuple[ssl.SSLContext | None, dict[str, object]], how: str
) -> None:
    tls, config = secure
    stop = StopToken()
    with WireServer(streaming(b"one\n", Peer.hold), tls=tls) as server, server.client(**config) as client:
        stream = client.stream(WATCH, stop=stop)
        thread, seen = waiting(stream)
        reads = raw_file(stream._response.raw).raw._sock  # type: ignore[union-attr]
        assert reads.gettimeout() is None  # it does not look now and then whether it is to end
        with socket.socket(fileno=os.dup(reads.fileno())) as same:
            {"shutdown": stream.shutdown, "stop token": stop.set, "client": client.close}[how]()
            # Whoever reads wakes by now, as soon as the machine lets it run
            assert select.select([same], [], [], 0)[0] == [same]
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert seen == [b"one\n"]


def test_shutdown_and_close_may_be_repeated_and_come_late() -> None:
    with WireServer(streaming(b"one\n", Peer.end_stream)) as server, server.client() as client:
        stream = client.stream(WATCH)
        assert list(stream.chunks()) == [b"one\n"]
        for _ in range(2):
            stream.shutdown()
            stream.close()


def test_leaving_early_closes_the_connection() -> None:
    gone = threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        peer.start_stream()
        peer.chunk(b"one\n")
        peer.hold()
        gone.set()

    with WireServer(serve) as server, server.client() as client:
        with client.stream(WATCH) as stream, closing(stream.chunks()) as chunks:  # type: ignore[type-var]
            assert next(chunks) == b"one\n"
        assert gone.wait(PATIENCE)


def test_streams_forget_their_stop_token_when_they_end() -> None:
    stop = StopToken()
    with WireServer(streaming(b"one\n", Peer.end_stream)) as server, server.client() as client:
        for _ in range(3):
            with client.stream(WATCH, stop=stop) as stream:
                list(stream.chunks())
    assert stop._callbacks == {}


def test_calls_are_untouched_by_streams_that_die() -> None:
    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if "watch" in request.target:
                peer.start_stream()
                peer.reset()
                return
            peer.answer(200, b"{}")

    get = Request("GET", "/api/v1/x", "get", RESOURCE, "get x")
    with WireServer(serve) as server, server.client() as client:
        for _ in range(5):
            assert client.request(get) == b"{}"
            with client.stream(WATCH) as stream, pytest.raises(TransportError):
                list(stream.chunks())
        calls = {request.connection for request in server.requests if "watch" not in request.target}
        streams = {request.connection for request in server.requests if "watch" in request.target}
    assert len(calls) == 1
    assert not calls & streams


def open_sockets() -> int:
    import os

    return sum(
        1
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}") or "socket" in os.readlink(f"/proc/self/fd/{name}")
    )


def test_reconnects_leak_no_connection() -> None:
    def serve(peer: Peer) -> None:
        while peer.receive() is not None:
            peer.start_stream()
            peer.chunk(b"one\n")
            peer.end_stream()
            return

    def reconnect(times: int) -> Iterator[int]:
        with server.client() as client:
            for _ in range(times):
                with client.stream(WATCH) as stream:
                    list(stream.chunks())
                yield client_sockets(server.port)

    with WireServer(serve) as server:
        assert max(reconnect(50)) <= 1


def client_sockets(port: int) -> int:
    """This process's connections to `port` that are still open on the client's side, by the kernel's table."""
    wanted = f"0100007F:{port:04X}"
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table][1:]
    return sum(1 for row in rows if row[2] == wanted and row[3] == "01")


def test_refused_streams_leak_no_connection_either() -> None:
    def serve(peer: Peer) -> None:
        while peer.receive() is not None:
            peer.answer(410, b"gone", kind="text/plain")

    with WireServer(serve) as server, server.client() as client:
        for _ in range(50):
            with pytest.raises(Exception, match="gone"):
                client.stream(WATCH)
        assert server.connections == 1
