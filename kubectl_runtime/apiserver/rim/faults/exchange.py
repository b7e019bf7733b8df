"""`Exchange`: what the fault script does to one request, in the order in which a server meets it.

=====================  ===============================================================================================
``before``             the steps before the request is handled; if they end the connection, it is never handled
``effects``            functions to call then, without any lock
``instead``            the answer that is given without handling the request, if there is one
``answer(response)``   the answer that is given: the core's, or another in its place, its watch shaped
``whole(head, body)``  the steps that send an answer that is no stream
``head(data)``         the steps that send the head of a stream
``data(data)``         the steps that send a chunk of a stream
``end(frame, tail)``   the steps that end a stream; `frame` makes an HTTP chunk of bytes, `tail` is the last chunk
=====================  ===============================================================================================

A simulated transport without framing passes the identity as `frame` and nothing as `tail`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kubectl_runtime.apiserver.rim.faults.plan import Plan, Send, ending, is_over, until_over
from kubectl_runtime.apiserver.rim.faults.shapers import ByteShaper, EventShaper
from kubectl_runtime.apiserver.rim.faults.stream import ShapedStream
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.base.clock import Clock


@dataclass(slots=True)
class Exchange:
    """See the module; filled by the actions of all rules that took the request, in their order."""

    clock: Clock
    before: Plan = field(default_factory=list)
    effects: list[Callable[[], object]] = field(default_factory=list)
    instead: HttpResponse | None = None
    replacements: list[Callable[[HttpResponse], HttpResponse]] = field(default_factory=list)
    bytes_: list[ByteShaper] = field(default_factory=list)
    events: list[EventShaper] = field(default_factory=list)
    after: Plan = field(default_factory=list)  # on the connection, once the answer is out
    delay: float = 0.0  # seconds between handling and answering
    lag: float = 0.0  # seconds by which each event of a watch is late
    _stream: ShapedStream | None = None

    @property
    def unhandled(self) -> bool:
        """Whether the request is never handled, nor answered."""
        return is_over(until_over(self.before))

    def answer(self, response: HttpResponse) -> HttpResponse:
        """The answer to give in place of `response`; a stream that is not used any more is closed."""
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
        """The steps that send all of an answer, and what comes after it."""
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
        """The steps that end a stream that is closed."""
        how = (self._stream.ending if self._stream else None) or "end"
        plan: Plan = []
        if self._stream is not None and self._stream.cut is not None:
            plan += self.data(self._stream.cut.framed(frame))
        elif how == "end" and tail:
            plan += self.data(tail)
        return until_over([*plan, *ending(how), *self.after])
