"""What scripted `requests` adapters answer with: responses whose body is bytes, or pieces that come one by one."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests
import urllib3


class Body:
    """The body of an answer, with the methods of urllib3's response that clients use."""

    def __init__(self, pieces: Iterable[bytes], on_end: Callable[[], None] = lambda: None) -> None:
        """`on_end` is called when the client shuts the body down, in any thread."""
        self.pieces = pieces
        self.ended = False
        self.headers = urllib3.HTTPHeaderDict()
        self.status = 0
        self._on_end = on_end

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the pieces until the body is shut down; b"" when nothing is ready."""
        for piece in self.pieces:
            if self.ended:
                return
            yield piece

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """The rest of the body."""
        return b"".join(self.stream())

    def shutdown(self) -> None:
        """End the body."""
        self.ended = True
        self._on_end()

    def close(self) -> None:
        """End the body, and the generator of its pieces. For the reading thread."""
        self.shutdown()
        close = getattr(self.pieces, "close", None)
        if close is not None:
            close()

    release_conn = close


def response(request: requests.PreparedRequest, code: int, body: bytes | Body,
             headers: dict[str, str] | None = None) -> requests.Response:
    """An answer with this status and body, which is JSON."""
    made = requests.Response()
    raw = body if isinstance(body, Body) else Body([body])
    raw.headers = urllib3.HTTPHeaderDict({"Content-Type": "application/json", **(headers or {})})
    raw.status = made.status_code = code
    made.request, made.url, made.raw = request, request.url or "", raw
    made.headers = requests.structures.CaseInsensitiveDict(raw.headers)
    return made


def status_body(code: int, reason: str = "", **more: Any) -> bytes:
    """A Status, as a server sends it."""
    return json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure" if code >= 300 else "Success",
                       "code": code, "reason": reason, **more}).encode()
