"""A raw connection to a server, for what no HTTP client would send."""

from __future__ import annotations

import json
import socket
import threading
import time

PATIENCE = 10.0


class Peer:
    """A raw connection to a server."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def rest(self):
        """What comes until the server ends the connection."""
        return self.file.read()

    def answer(self):
        """(status, headers, body) of the next answer with a Content-Length; the status is 0 at the end."""
        line = self.file.readline()
        if not line:
            return 0, {}, b""
        headers = {}
        while (header := self.file.readline().strip()):
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers, self.file.read(int(headers.get("content-length", 0)))

    def ask(self, method, path, body=None, **headers):
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x",
                 *(f"{key.replace('_', '-')}: {value}" for key, value in headers.items())]
        if body is not None:
            lines.append(f"Content-Length: {len(data)}")
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return self.answer()


def connection_threads(server):
    port = server.url.rpartition(":")[2]
    return [thread for thread in threading.enumerate() if thread.name == f"apiserver-{port}-connection"]


def until(condition):
    """Wait for what other threads are about to do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
