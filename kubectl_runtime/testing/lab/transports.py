"""Transports between the clients and the simulated server. They apply the disturbances.

A *life* is one process of the controllers. Each request of a life is passed to `World.answer`, which may end the life.
After that all requests of the life fail. While the watches of a life are held back, they deliver no events.
`Life.break_watches` ends the watches like a broken connection.

The *story* is the function that changes objects, as a user does; it has a client of its own. Each request of the story
is passed to `World.answer_story`. While the story waits, time passes and the controllers run.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Protocol

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.core.base.guard import ProcessEnded
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.lab.recordings import Asked

Answer = Callable[[], requests.Response]
"""A function that passes the request to the server and returns the response."""


class Life:
    """One simulated process of the controllers, from the call of `build` to its end."""

    def __init__(self, number: int, born: float) -> None:
        self.number = number
        self.born = born
        self.dead = False
        self.held_until = born
        self.deaf = False
        self.bodies: list[LifeBody] = []

    def end(self) -> None:
        """End the life. Its further requests raise ProcessEnded."""
        self.dead = True

    def break_watches(self) -> None:
        """End the open watches of this life, as if its connections broke."""
        for body in self.bodies:
            body.broken = True
        self.bodies = []


class LifeBody:
    """The body of a watch response for a life: the part of urllib3's response that clients use."""

    def __init__(self, raw: Any, life: Life, clock: SimClock) -> None:
        self.headers, self.status = raw.headers, raw.status
        self.broken = False
        self._raw, self._life, self._clock = raw, life, clock
        self.shutdown, self.close, self.release_conn = raw.shutdown, raw.close, raw.release_conn

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the pieces of the body. Raises urllib3's ProtocolError if the watch was broken, and ProcessEnded if the
        life has ended."""
        pieces = self._raw.stream(amt, decode_content)
        while True:
            if self._life.dead:
                raise ProcessEnded
            if self.broken:
                raise urllib3.exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104, "reset"))
            if self._life.deaf or self._clock.monotonic() < self._life.held_until:
                yield b""
                continue
            piece = next(pieces, None)
            if piece is None:
                return
            yield piece


class StoryBody:
    """The body of a watch response to the story's client."""

    def __init__(self, raw: Any, go_on: Callable[[float], None]) -> None:
        self.headers, self.status = raw.headers, raw.status
        self._raw, self._go_on = raw, go_on
        self.shutdown, self.close, self.release_conn = raw.shutdown, raw.close, raw.release_conn

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the pieces of the body. While there is no event, time passes and the controllers run."""
        for piece in self._raw.stream(amt, decode_content):
            if not piece:
                self._go_on(1.0)
            yield piece


class Answers(Protocol):
    """The methods of `World` that the transports call."""

    clock: SimClock
    hidden: float

    def answer(self, life: Life, request: requests.PreparedRequest, asked: Asked, server: Answer) -> requests.Response:
        """Answer a request of a life. Raises ProcessEnded if the disturbance ends the life at this request."""

    def answer_story(self, asked: Asked, server: Answer) -> requests.Response:
        """Answer a request of the story."""

    def go_on(self, seconds: float) -> None:
        """Let `seconds` pass while all actors of the simulation work."""


class LifeTransport(BaseAdapter):
    """Carries the requests of one life to the server; a transport adapter for requests."""

    def __init__(self, world: Answers, life: Life, server: BaseAdapter) -> None:
        super().__init__()
        self._world, self._life, self._server = world, life, server

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request of the life. Raises ProcessEnded if the life has ended, and what the server's transport
        raises."""
        if self._life.dead:
            raise ProcessEnded
        asked = Asked.of(request)
        response = self._world.answer(self._life, request, asked, lambda: self._server.send(request, *args, **options))
        if asked.is_watch and response.status_code == 200:
            body: Any = LifeBody(response.raw, self._life, self._world.clock)
            self._life.bodies.append(body)
            response.raw = body
        return response

    def close(self) -> None:
        """Do nothing: no connection is open."""


class StoryTransport(BaseAdapter):
    """Carries the requests of the story to the server; a transport adapter for requests."""

    def __init__(self, world: Answers, server: BaseAdapter) -> None:
        super().__init__()
        self._world, self._server = world, server

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request of the story. Raises what the server's transport raises."""
        asked = Asked.of(request)
        response = self._world.answer_story(asked, lambda: self._server.send(request, *args, **options))
        if asked.is_watch and response.status_code == 200:
            body: Any = StoryBody(response.raw, self._world.go_on)
            response.raw = body
        return response

    def close(self) -> None:
        """Do nothing: no connection is open."""


class StoryClock:
    """The clock of the story's client. While the story waits, time passes and the controllers run."""

    self_advancing = True

    def __init__(self, world: Answers) -> None:
        self._world = world

    def monotonic(self) -> float:
        """Simulated seconds, without the time in which the controllers react to the story's writes. A timeout in the
        story therefore covers only the story's own waits."""
        return self._world.clock.monotonic() - self._world.hidden

    def boottime(self) -> float:
        """Like `monotonic`, but with suspended time."""
        return self._world.clock.boottime() - self._world.hidden

    def now(self) -> datetime:
        """The simulated date and time, as an aware datetime in UTC."""
        return self._world.clock.now()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:  # noqa: ARG002
        """Like `Clock.wait`. Raises RuntimeError for a wait without a timeout."""
        if timeout is None:
            raise RuntimeError("the story waits without a timeout, so it could never wake")
        self._world.go_on(max(0.0, timeout))
        return False
