"""`Inbox`: where the messages of a websocket go, and `Messages`, the plain one."""
from __future__ import annotations

from collections import deque
from typing import Protocol


class Inbox(Protocol):
    """Where messages go. Both methods are called with the websocket's condition held."""

    def put(self, message: bytes) -> None:
        """Take one message. Raises TransportError for what breaks the protocol, which ends the websocket."""

    def held(self) -> int:
        """The bytes that nobody has read."""


class Messages:
    """An inbox of whole messages, in their order."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self._held = 0

    def put(self, message: bytes) -> None:
        """Take one message."""
        self._queue.append(message)
        self._held += len(message)

    def held(self) -> int:
        """The bytes that nobody has read yet."""
        return self._held

    def __len__(self) -> int:
        return len(self._queue)

    def take(self) -> bytes | None:
        """Take out the message that came first; None when there is none."""
        if not self._queue:
            return None
        message = self._queue.popleft()
        self._held -= len(message)
        return message
