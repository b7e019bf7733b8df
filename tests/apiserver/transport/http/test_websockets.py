"""The server's side of a websocket: what a client may send, and what becomes of one that breaks the protocol."""
from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.transport.http.websockets import LONGEST_MESSAGE, ServerWebSocket, frame


def client_frame(content, opcode=2, *, fin=True, masked=True, bits=0):
    first = (0x80 if fin else 0) | bits | opcode
    size, mask = len(content), os.urandom(4)
    length = (bytes((size,)) if size < 126 else b"\x7e" + struct.pack("!H", size) if size < 1 << 16
              else b"\x7f" + struct.pack("!Q", size))
    length = bytes((length[0] | (0x80 if masked else 0),)) + length[1:]
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(content)) if masked else content
    return bytes((first,)) + length + (mask if masked else b"") + body


class Wire:
    def __init__(self, *frames):
        self.left, self.sent = b"".join(frames), b""
        self.websocket = ServerWebSocket(self.read, self.write)

    def read(self, size):
        data, self.left = self.left[:size], self.left[size:]
        return data

    def write(self, data):
        self.sent += data

    def messages(self):
        return list(iter(self.websocket.receive, None))


def closing(code):
    return frame(struct.pack("!H", code), 8)


@given(st.lists(st.binary(max_size=70_000), max_size=4))
def test_messages_of_every_length_arrive_as_they_were_sent(messages):
    assert Wire(*map(client_frame, messages)).messages() == messages


def test_fragments_are_put_together_and_pings_between_them_answered():
    wire = Wire(client_frame(b"one ", fin=False), client_frame(b"there?", 9), client_frame(b"two", 0))
    assert wire.messages() == [b"one two"]
    assert wire.sent == frame(b"there?", 10)


def test_a_close_is_answered_with_its_code_and_nothing_more_is_sent():
    wire = Wire(client_frame(struct.pack("!H", 1001) + b"bye", 8), client_frame(b"late"))
    assert wire.messages() == []
    assert wire.sent == closing(1001)
    with pytest.raises(ConnectionError):
        wire.websocket.send(b"x")
    wire.websocket.close()
    assert wire.sent == closing(1001)


@pytest.mark.parametrize(("broken", "code"), [  # named, as masks are random
    (client_frame(b"x", masked=False), 1002), (client_frame(b"x", bits=0x40), 1002), (client_frame(b"x", 3), 1002),
    (client_frame(b"x", 9, fin=False), 1002), (client_frame(b"x" * 126, 9), 1002), (client_frame(b"x", 0), 1002),
    (client_frame(b"x", fin=False) + client_frame(b"y"), 1002),
    (b"\x82\xff" + struct.pack("!Q", LONGEST_MESSAGE + 1), 1009)],
    ids=["not masked", "a reserved bit", "an unknown opcode", "a ping in pieces", "a long ping",
         "a continuation of nothing", "a message within another", "too long"])
def test_a_client_that_breaks_the_protocol_is_told_so_and_counts_as_gone(broken, code):
    wire = Wire(broken)
    assert wire.messages() == []
    assert wire.sent == closing(code)


@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise_or_hang(garbage):
    Wire(garbage).messages()


def test_the_end_of_the_connection_ends_the_messages():
    assert Wire(client_frame(b"whole"), client_frame(b"cut")[:-1]).messages() == [b"whole"]
