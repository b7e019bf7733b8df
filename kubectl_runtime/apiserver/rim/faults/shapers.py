"""What is done to the bytes of an answer and to the events of a watch: small machines, fed piece by piece.

A `ByteShaper` sees everything that goes out, the head (status line and headers) apart from the rest, as plans; an
`EventShaper` sees the events of a watch as lines and may end the watch. Each serves one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Literal

from kubectl_runtime.apiserver.rim.faults.plan import Ending, Plan, Send, Wait, ending

Of = Literal["answer", "body"]


class ByteShaper:
    """Lets everything pass."""

    def begin(self, head: int, body: int) -> None:
        """The sizes of an answer that is no stream, told before its bytes."""

    def head(self, data: bytes) -> Plan:
        """Status line and headers."""
        return [Send(data)]

    def data(self, data: bytes) -> Plan:
        """A piece of the body; of a stream, a chunk as it is framed."""
        return [Send(data)] if data else []

    def reshape(self, plan: Plan, part: Callable[[bytes], Plan]) -> Plan:
        """Feed the bytes of a plan through `head` or `data`; its other steps stay where they are."""
        return [step for given in plan for step in (part(given.data) if isinstance(given, Send) else [given])]


@dataclass(slots=True)
class Truncate(ByteShaper):
    """Ends the connection after so many bytes; a negative number counts from the end of an answer that is no stream."""

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
        # the body's first byte is the first that can be missing: with 0 the headers come and then nothing
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
    """Writes in pieces of the given sizes, over and over, with pauses between them."""

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
    """Sends the body at so many bytes a second, in pieces."""

    bytes_per_second: float
    piece: int

    def data(self, data: bytes) -> Plan:
        plan: Plan = []
        for part in pieces(data, repeat(self.piece)):
            plan += [Wait(len(part) / self.bytes_per_second), Send(part)]
        return plan


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    """The data in pieces of the sizes; the last one is what is left."""
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at:at + size]
        at += size


class EventShaper:
    """Lets every event pass. `ending` is how the watch ends here, once it does; `cut` is what goes out before."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.cut: Cut | None = None
        self.count = 0

    def start(self) -> list[bytes]:
        """What comes before the first event."""
        return []

    def feed(self, line: bytes) -> list[bytes]:
        """What comes in place of an event."""
        self.count += 1
        return self.event(line)

    def event(self, line: bytes) -> list[bytes]:
        """What comes in place of event number `count`."""
        return [line]

    def flush(self) -> list[bytes]:
        """What is left when the server ends the watch."""
        return []


@dataclass(frozen=True, slots=True)
class Cut:
    """An event of which only a part goes out: `at` bytes of the line, or of the HTTP chunk that carries it."""

    line: bytes
    at: int
    of: Literal["line", "chunk"]

    def framed(self, frame: Callable[[bytes], bytes]) -> bytes:
        """The bytes that go out."""
        chunk = frame(self.line)
        return chunk[:self.at if self.of == "chunk" else chunk.index(self.line) + self.at]


class EndAfter(EventShaper):
    """Ends the watch after so many events."""

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
    """Ends the watch within an event."""

    def __init__(self, number: int, at: int, of: Literal["line", "chunk"], then: Ending) -> None:
        super().__init__()
        self._number, self._at, self._of, self._then = number, at, of, then

    def event(self, line: bytes) -> list[bytes]:
        if self.count != self._number:
            return [line]
        self.ending = self._then
        if self._then == "end":  # the HTTP chunk is whole, only the line in it is not
            return [line[:self._at]] if self._at else []
        self.cut = Cut(line, self._at, self._of)
        return []


class Repeat(EventShaper):
    """Sends events several times: all, or those with the given numbers."""

    def __init__(self, times: int, only: Sequence[int]) -> None:
        super().__init__()
        self._times, self._only = times, frozenset(only)

    def event(self, line: bytes) -> list[bytes]:
        return [line] * (self._times if not self._only or self.count in self._only else 1)


class Insert(EventShaper):
    """Sends lines of its own after so many events."""

    def __init__(self, lines: Sequence[bytes], after: int) -> None:
        super().__init__()
        self._lines, self._after = list(lines), after

    def start(self) -> list[bytes]:
        return self._lines if self._after <= 0 else []

    def event(self, line: bytes) -> list[bytes]:
        return [line, *self._lines] if self.count == self._after else [line]


class Rewrite(EventShaper):
    """Sends what a function makes of each line; None drops it."""

    def __init__(self, function: Callable[[bytes, int], bytes | None]) -> None:
        super().__init__()
        self._function = function

    def event(self, line: bytes) -> list[bytes]:
        changed = self._function(line, self.count)
        return [] if changed is None else [changed]


class Batch(EventShaper):
    """Holds events back until there are so many, and sends them in one piece, as a buffering proxy does."""

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
    """Cuts each event into several HTTP chunks, as a real server does with what is above its buffer's size."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self._next = chain(sizes, repeat(sizes[-1]))

    def event(self, line: bytes) -> list[bytes]:
        return list(pieces(line, self._next))
