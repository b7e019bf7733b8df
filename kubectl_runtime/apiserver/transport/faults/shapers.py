"""Faults in the bytes of an answer and the events of a watch: plans, shapers, and the `Exchange` of a request.

A `Plan` lists the steps of a connection, without a socket. The HTTP transport executes plans on sockets, the simulated
transport on its clock. `Stall`, `Close` and `Reset` end a plan: later steps are ignored.

A `ByteShaper` gets all bytes of an answer, and returns plans that send them. It gets the head (status line and headers)
before the body and apart from it. An `EventShaper` changes the events of a watch, line by line, and may end the watch.
Each shaper serves one request.

`ShapedStream` is an `EventStream` that wraps another `EventStream`, so that transports need not know it. Only its
`Exchange` reads how the stream ends (`ending`, `cut`).
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, repeat
from typing import Literal

from kubectl_runtime.apiserver.wire import EventStream, HttpResponse
from kubectl_runtime.core.base.threads import Clock


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes in one write."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this many seconds pass on the clock. The wait ends early when the server stops."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more; the connection stays open until the client leaves or the server stops."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection normally (FIN)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection (RST); bytes in transit may be lost."""


Step = Send | Wait | Stall | Close | Reset
Plan = list[Step]
Ending = Literal["end", "close", "reset", "stall"]
"""How an answer or connection ends: as on a healthy server ("end"), by FIN, by RST, or not at all ("stall")."""

ENDINGS: dict[str, Step] = {"close": Close(), "reset": Reset(), "stall": Stall()}


def ending(how: Ending) -> Plan:
    """The steps that bring about an ending; "end" needs no step. Raises ValueError for an unknown ending."""
    if how == "end":
        return []
    if how not in ENDINGS:
        raise ValueError(f"the ending must be end, close, reset or stall, not {how!r}")
    return [ENDINGS[how]]


def is_over(plan: Sequence[Step]) -> bool:
    """Whether the plan ends the connection."""
    return bool(plan) and isinstance(plan[-1], Stall | Close | Reset)


def until_over(steps: Iterable[Step]) -> Plan:
    """The steps up to the first one that ends the plan."""
    plan: Plan = []
    for step in steps:
        plan.append(step)
        if isinstance(step, Stall | Close | Reset):
            break
    return plan


def sent(plan: Iterable[Step]) -> bytes:
    """All bytes that a plan sends."""
    return b"".join(step.data for step in plan if isinstance(step, Send))


Of = Literal["answer", "body"]


class ByteShaper:
    """Base class of byte shapers; it changes nothing."""

    def begin(self, head: int, body: int) -> None:
        """Receive the sizes of an answer that is not a stream, before its bytes."""

    def head(self, data: bytes) -> Plan:
        """Shape the status line and headers."""
        return [Send(data)]

    def data(self, data: bytes) -> Plan:
        """Shape a piece of the body; for a stream this is a chunk with its framing."""
        return [Send(data)] if data else []

    def reshape(self, plan: Plan, part: Callable[[bytes], Plan]) -> Plan:
        """Pass the bytes of a plan through `part` (`head` or `data`); other steps keep their place."""
        return [step for given in plan for step in (part(given.data) if isinstance(given, Send) else [given])]


@dataclass(slots=True)
class Truncate(ByteShaper):
    """Ends the connection after `at` bytes. A negative number counts from the end and has no effect on streams."""

    at: int
    of: Of = "answer"
    then: Ending = "close"
    gone: int = 0

    def begin(self, head: int, body: int) -> None:
        if self.at < 0:
            self.at = max(0, body + (head if self.of == "answer" else 0) + self.at)

    def head(self, data: bytes) -> Plan:
        if self.of == "answer":
            return self.data(data)
        # counting starts with the body: with 0 the client gets only the head
        return [Send(data), *(ending(self.then) if self.at == 0 else [])]

    def data(self, data: bytes) -> Plan:
        left = self.at - self.gone
        if self.at < 0 or len(data) < left:
            self.gone += len(data)
            return [Send(data)]
        self.gone = self.at
        return [*([Send(data[:left])] if left > 0 else []), *ending(self.then)]


@dataclass(slots=True)
class Split(ByteShaper):
    """Writes in pieces of the given sizes, repeated as needed, with pauses between pieces."""

    sizes: Sequence[int]
    pause: float = 0.0
    _next: Iterator[int] = field(init=False)
    _begun: bool = False

    def __post_init__(self) -> None:
        self._next = cycle(self.sizes)

    def head(self, data: bytes) -> Plan:
        return self.data(data)

    def data(self, data: bytes) -> Plan:
        plan: Plan = []
        for piece in pieces(data, self._next):
            if self._begun and self.pause:
                plan.append(Wait(self.pause))
            self._begun = True
            plan.append(Send(piece))
        return plan


@dataclass(slots=True)
class Slow(ByteShaper):
    """Sends the body in pieces, at a limited number of bytes per second."""

    bytes_per_second: float
    piece: int

    def data(self, data: bytes) -> Plan:
        plan: Plan = []
        for part in pieces(data, repeat(self.piece)):
            plan += [Wait(len(part) / self.bytes_per_second), Send(part)]
        return plan


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes; the last piece is the remainder."""
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at:at + size]
        at += size


class EventShaper:
    """Base class of event shapers; it changes nothing.

    A shaper that ends the watch sets `ending`. If it also sets `cut`, the part of the event that `cut` describes is
    sent before the connection ends.
    """

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.cut: Cut | None = None
        self.count = 0

    def start(self) -> list[bytes]:
        """The lines to send before the first event."""
        return []

    def feed(self, line: bytes) -> list[bytes]:
        self.count += 1
        return self.event(line)

    def event(self, line: bytes) -> list[bytes]:
        """The lines to send instead of event number `count`."""
        return [line]

    def flush(self) -> list[bytes]:
        """The lines that are held back when the server ends the watch."""
        return []


@dataclass(frozen=True, slots=True)
class Cut:
    """An event that is sent in part: only `at` bytes of its line, or of the HTTP chunk that contains the line."""

    line: bytes
    at: int
    of: Literal["line", "chunk"]

    def framed(self, frame: Callable[[bytes], bytes]) -> bytes:
        """The bytes of the event to send, after `frame` has wrapped its line in an HTTP chunk."""
        chunk = frame(self.line)
        return chunk[:self.at if self.of == "chunk" else chunk.index(self.line) + self.at]


class EndAfter(EventShaper):
    """Ends the watch after a number of events."""

    def __init__(self, events: int, how: Ending) -> None:
        super().__init__()
        self._events, self._how = events, how

    def start(self) -> list[bytes]:
        self.ending = self._how if self._events <= 0 else None
        return []

    def event(self, line: bytes) -> list[bytes]:
        if self.count >= self._events:
            self.ending = self._how
        return [line]


class CutEvent(EventShaper):
    """Ends the watch in the middle of an event."""

    def __init__(self, number: int, at: int, of: Literal["line", "chunk"], then: Ending) -> None:
        super().__init__()
        self._number, self._at, self._of, self._then = number, at, of, then

    def event(self, line: bytes) -> list[bytes]:
        if self.count != self._number:
            return [line]
        self.ending = self._then
        if self._then == "end":  # the HTTP chunk is complete, but the line in it is not
            return [line[:self._at]] if self._at else []
        self.cut = Cut(line, self._at, self._of)
        return []


class Repeat(EventShaper):
    """Sends all events, or only those with the given numbers, several times."""

    def __init__(self, times: int, only: Sequence[int]) -> None:
        super().__init__()
        self._times, self._only = times, frozenset(only)

    def event(self, line: bytes) -> list[bytes]:
        return [line] * (self._times if not self._only or self.count in self._only else 1)


class Insert(EventShaper):
    """Sends extra lines after a number of events."""

    def __init__(self, lines: Sequence[bytes], after: int) -> None:
        super().__init__()
        self._lines, self._after = list(lines), after

    def start(self) -> list[bytes]:
        return self._lines if self._after <= 0 else []

    def event(self, line: bytes) -> list[bytes]:
        return [line, *self._lines] if self.count == self._after else [line]


class Rewrite(EventShaper):
    """Sends what a function returns for each line; None drops the event."""

    def __init__(self, function: Callable[[bytes, int], bytes | None]) -> None:
        super().__init__()
        self._function = function

    def event(self, line: bytes) -> list[bytes]:
        changed = self._function(line, self.count)
        return [] if changed is None else [changed]


class Batch(EventShaper):
    """Holds events back until there are enough, and sends them in one piece, like a buffering proxy."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._size, self._held = count, list[bytes]()

    def event(self, line: bytes) -> list[bytes]:
        self._held.append(line)
        return self.flush() if len(self._held) >= self._size else []

    def flush(self) -> list[bytes]:
        held, self._held = self._held, []
        return [b"".join(held)] if held else []


class Rechunk(EventShaper):
    """Splits each event into several HTTP chunks, as a real server does with events larger than its buffer."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self._next = chain(sizes, repeat(sizes[-1]))

    def event(self, line: bytes) -> list[bytes]:
        return list(pieces(line, self._next))


class ShapedStream:
    """A watch whose events pass through shapers and may be delayed. Only one thread may poll it."""

    def __init__(self, inner: EventStream, shapers: Sequence[EventShaper], clock: Clock, lag: float = 0.0) -> None:
        """Pass the events of `inner` through `shapers` in order, then send each event `lag` seconds later."""
        self._inner, self._shapers, self._clock, self._lag = inner, list(shapers), clock, lag
        self._queue: deque[tuple[float, bytes]] = deque()
        self._over = False
        self.ending: Ending | None = None
        self.cut: Cut | None = None
        for index, shaper in enumerate(self._shapers):
            self._pass_on(shaper.start(), index + 1)
        self._look_for_the_end()

    @property
    def closed(self) -> bool:
        self._pull()
        return self._over and not self._queue

    @property
    def deadline(self) -> float | None:
        due = [self._queue[0][0]] if self._queue else []
        inner = None if self._over else self._inner.deadline
        return min([*due, inner] if inner is not None else due, default=None)

    def poll(self) -> bytes | None:
        self._pull()
        if self._queue and self._queue[0][0] <= self._clock.monotonic():
            return self._queue.popleft()[1]
        return None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._inner.on_ready(callback)

    def close(self) -> None:
        self._over = True
        self._inner.close()

    def _pull(self) -> None:
        """Read events from the server. If events are delayed, read all that are ready, since their delay starts now."""
        while not self._over and (self._lag or not self._queue):
            chunk = self._inner.poll()
            if chunk is None:
                if self._inner.closed:
                    self._finish()
                return
            for line in chunk.splitlines(keepends=True):
                if self.ending is None:
                    self._pass_on([line], 0)
                    self._look_for_the_end()

    def _pass_on(self, lines: list[bytes], first: int) -> None:
        """Pass lines through the shapers from index `first`. A shaper that has ended the watch gets no more lines."""
        for index in range(first, len(self._shapers)):
            shaper, fed = self._shapers[index], list[bytes]()
            for line in lines:
                if shaper.ending is None:
                    fed += shaper.feed(line)
            lines = fed
        due = self._clock.monotonic() + self._lag
        self._queue.extend((due, line) for line in lines if line)

    def _look_for_the_end(self) -> None:
        for index, shaper in enumerate(self._shapers):
            if shaper.ending is not None:
                self._flush(index + 1)
                self.ending, self.cut = shaper.ending, shaper.cut
                self.close()
                return

    def _finish(self) -> None:
        self._flush(0)
        self._look_for_the_end()
        self._over = True

    def _flush(self, first: int) -> None:
        for index in range(first, len(self._shapers)):
            self._pass_on(self._shapers[index].flush(), index + 1)


@dataclass(slots=True)
class Exchange:
    """The faults of one request. If several rules apply to the request, their actions add faults in rule order.

    A transport uses the parts in this order: ``before`` (steps; if they end the connection, the request is never
    handled), ``effects`` (functions, called without any lock), ``instead`` (an answer that replaces the handling),
    ``answer``, then ``whole`` for an answer that is not a stream, or ``head``, ``data`` and ``end`` for a stream.
    """

    clock: Clock
    before: Plan = field(default_factory=list)
    effects: list[Callable[[], object]] = field(default_factory=list)
    instead: HttpResponse | None = None
    replacements: list[Callable[[HttpResponse], HttpResponse]] = field(default_factory=list)
    bytes_: list[ByteShaper] = field(default_factory=list)
    events: list[EventShaper] = field(default_factory=list)
    after: Plan = field(default_factory=list)  # steps after the answer was sent
    delay: float = 0.0  # seconds between handling and answering
    lag: float = 0.0  # seconds by which each event of a watch is delayed
    _stream: ShapedStream | None = None

    @property
    def unhandled(self) -> bool:
        """Whether the request is neither handled nor answered."""
        return is_over(until_over(self.before))

    def answer(self, response: HttpResponse) -> HttpResponse:
        """The answer to send instead of `response`. The stream of `response` is closed if it is no longer used."""
        given = response
        for change in self.replacements:
            given = change(given)
        if response.stream is not None and given.stream is not response.stream:
            response.stream.close()
        if self.delay:
            given = replace(given, delay=given.delay + self.delay)
        if given.stream is not None and (self.events or self.lag):
            self._stream = ShapedStream(given.stream, self.events, self.clock, self.lag)
            given = replace(given, stream=self._stream)
        return given

    def whole(self, head: bytes, body: bytes) -> Plan:
        """The steps that send a complete answer, followed by the steps in `after`."""
        if not self.bytes_:
            return [Send(head + body), *self.after]
        for shaper in self.bytes_:
            shaper.begin(len(head), len(body))
        plan = self.head(head)
        return plan if is_over(plan) else until_over([*plan, *(self.data(body) if body else []), *self.after])

    def head(self, data: bytes) -> Plan:
        """The steps that send the head of a stream."""
        plan: Plan = [Send(data)]
        for shaper in self.bytes_:
            plan = shaper.reshape(plan, shaper.head)
        return until_over(plan)

    def data(self, data: bytes) -> Plan:
        """The steps that send a chunk of a stream."""
        plan: Plan = [Send(data)]
        for shaper in self.bytes_:
            plan = shaper.reshape(plan, shaper.data)
        return until_over(plan)

    def end(self, frame: Callable[[bytes], bytes], tail: bytes) -> Plan:
        """The steps that end a closed stream's answer. `frame` wraps bytes in an HTTP chunk; `tail` is the last chunk.

        A transport without framing passes an identity function and b"".
        """
        how = (self._stream.ending if self._stream else None) or "end"
        plan: Plan = []
        if self._stream is not None and self._stream.cut is not None:
            plan += self.data(self._stream.cut.framed(frame))
        elif how == "end" and tail:
            plan += self.data(tail)
        return until_over([*plan, *ending(how), *self.after])
