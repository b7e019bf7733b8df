"""`Rule`: one sentence of the fault script: which requests, which of those, and what happens to them.

    faults.on("list", resource="pods").first(2).answer(503)
    faults.on("watch").nth(1).end_watch(after=3, how="reset")
    faults.on("create").chance(0.1).lose_answer()

Conditions come first and narrow down one after the other (see `match`); without any, every request that matches is
taken. Actions follow; several are applied in their order, and each counts the events that the ones before it let
through. A rule is in force from its first action on, until `remove()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from kubectl_runtime.apiserver.rim.faults import shapers
from kubectl_runtime.apiserver.rim.faults.canned_answers import (
    Body,
    Headers,
    RetryAfter,
    event_line,
    response,
    status_object,
    throttled,
)
from kubectl_runtime.apiserver.rim.faults.conditions import Conditions
from kubectl_runtime.apiserver.rim.faults.exchange import Exchange
from kubectl_runtime.apiserver.rim.faults.match import Match
from kubectl_runtime.apiserver.rim.faults.plan import Ending, Reset, Wait, ending
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.base.clock import Duration, seconds

EXPIRED = "too old resource version: 1 (2)"


class Script(Protocol):
    """What a rule asks of the fault script that it belongs to; see `script.Faults`."""

    def enforce(self, rule: Rule) -> None: ...

    def remove(self, rule: Rule) -> None: ...

    def expire_history(self) -> None: ...


class Rule(Conditions):
    """What happens to some requests. Made by `Faults.on`; every method returns the rule, and may be called from any
    thread. `seen` counts the requests that matched and `taken` those to which something happened: a test can assert
    that its bad day took place.
    """

    def __init__(self, script: Script, match: Match, seed: str) -> None:
        super().__init__(seed)
        self.match = match
        self._script = script
        self._actions: list[Callable[[Exchange], None]] = []

    def __repr__(self) -> str:
        return f"<Rule: {self.seen} requests seen, {self.taken} taken>"

    def apply(self, exchange: Exchange) -> None:
        """Do to a request what the rule says."""
        for action in self._actions:
            action(exchange)

    def remove(self) -> None:
        """Take the rule out of force. What it has begun goes on."""
        self._script.remove(self)

    def _does(self, action: Callable[[Exchange], None]) -> Rule:
        self._actions.append(action)
        self._script.enforce(self)
        return self

    # -- instead of handling the request

    def drop(self, how: Ending = "reset") -> Rule:
        """End the connection without handling the request: "reset", "close", or "stall" to never answer."""
        steps = ending(how) or [Reset()]
        return self._does(lambda exchange: exchange.before.extend(steps))

    def never_answer(self) -> Rule:
        """Neither handle the request nor answer it; the connection stays open."""
        return self.drop("stall")

    def answer(self, status: int, body: Body = b"", headers: Headers = (), *, handled: bool = False) -> Rule:
        """Answer with this; `handled` does so after the request was carried out, whatever became of it.

        `body` is sent as it is (bytes), as text, or as JSON (mappings and lists). Raises ValueError for a status that
        HTTP does not have.
        """
        if not (isinstance(status, int) and 100 <= status <= 599):
            raise ValueError(f"a status of HTTP lies between 100 and 599, got {status!r}")
        given = response(status, body, headers)
        if handled:
            return self.rewrite(lambda _: given)
        return self._instead(lambda _: given)

    def status(self, code: int, reason: str | None = None, message: str = "", *,
               details: Mapping[str, Any] | None = None, headers: Headers = (), handled: bool = False) -> Rule:
        """Answer with a ``v1.Status``; the reason that goes with the code is filled in unless it is given."""
        return self.answer(code, status_object(code, reason, message, details), headers, handled=handled)

    def throttle(self, retry_after: float | str = 1, form: RetryAfter = "seconds") -> Rule:
        """Answer 429 that asks to wait `retry_after` seconds, told as a number, a date, in the Status only, or not at
        all.

        A text is sent as the Retry-After header as it is (``"soon"``, ``"-1"``).
        """
        return self._instead(lambda exchange: throttled(retry_after, form, exchange.clock.now()))

    def _instead(self, make: Callable[[Exchange], HttpResponse]) -> Rule:
        def act(exchange: Exchange) -> None:
            exchange.instead = exchange.instead or make(exchange)
        return self._does(act)

    # -- before and after the request is handled

    def run(self, function: Callable[[], object]) -> Rule:
        """Call a function before the request is handled, in the thread that serves it and without any lock."""
        return self._does(lambda exchange: exchange.effects.append(function))

    def expire_history(self) -> Rule:
        """Before the request is handled, compact: every older resourceVersion and continue token has expired then."""
        return self.run(self._script.expire_history)

    def delay(self, duration: Duration, *, handled: bool = False) -> Rule:
        """Let time pass before the request is handled or, with `handled`, between that and its answer."""
        wait = seconds(duration)

        def act(exchange: Exchange) -> None:
            if handled:
                exchange.delay += wait
            else:
                exchange.before.append(Wait(wait))
        return self._does(act)

    def rewrite(self, function: Callable[[HttpResponse], HttpResponse]) -> Rule:
        """Handle the request and answer with what the function makes of the answer."""
        return self._does(lambda exchange: exchange.replacements.append(function))

    # -- the bytes of the answer

    def lose_answer(self, how: Ending = "reset") -> Rule:
        """Carry the request out, then end the connection without a byte."""
        return self.truncate(0, then="reset" if how == "end" else how)

    def truncate(self, at: int, *, of: shapers.Of = "answer", then: Ending = "close") -> Rule:
        """Send only so many bytes, of all that goes out or of the body as it goes out (with the framing of its chunks).

        A negative number leaves off so many bytes at the end, except of a watch, whose end is not known.
        """
        return self._bytes(lambda: shapers.Truncate(at, of, "close" if then == "end" else then))

    def stall_after_headers(self) -> Rule:
        """Send status line and headers, then nothing: a half-open connection."""
        return self.truncate(0, of="body", then="stall")

    def split(self, *sizes: int, pause: Duration = 0) -> Rule:
        """Write in pieces of these sizes, over and over, with a pause between two of them."""
        _positive(*sizes)
        return self._bytes(lambda: shapers.Split(sizes, seconds(pause)))

    def slow(self, bytes_per_second: float, piece: int = 1024) -> Rule:
        """Send the body at this speed, in pieces."""
        _positive(bytes_per_second, piece)
        return self._bytes(lambda: shapers.Slow(bytes_per_second, piece))

    def hang_up(self, after: Duration = 0, how: Ending = "close") -> Rule:
        """End the connection so many seconds after the answer, although it says that it can be used again."""
        steps = [Wait(seconds(after)), *(ending(how) or ending("close"))]
        return self._does(lambda exchange: exchange.after.extend(steps))

    def _bytes(self, make: Callable[[], shapers.ByteShaper]) -> Rule:
        return self._does(lambda exchange: exchange.bytes_.append(make()))

    # -- the events of a watch, which are counted from 1, bookmarks and errors too

    def end_watch(self, after: int = 0, how: Ending = "end") -> Rule:
        """End the watch after so many events: as a server does ("end"), by FIN, by RST, or by silence ("stall")."""
        ending(how)
        return self._events(lambda: shapers.EndAfter(after, how))

    def cut_event(self, number: int, at: int, *, of: Literal["line", "chunk"] = "line", then: Ending = "close") -> Rule:
        """Of this event send `at` bytes of its line, or of the HTTP chunk with its size in front, and end the watch.

        With "end" the half line lies in a whole chunk and the answer ends in order.
        """
        ending(then)
        return self._events(lambda: shapers.CutEvent(number, at, of, then))

    def duplicate_events(self, times: int = 2, *numbers: int) -> Rule:
        """Send every event, or those with these numbers, several times."""
        return self._events(lambda: shapers.Repeat(times, numbers))

    def drop_events(self, *numbers: int) -> Rule:
        """Leave out the events with these numbers."""
        return self.rewrite_events(lambda line, number: None if number in numbers else line)

    def insert_events(self, *events: Body, after: int = 0) -> Rule:
        """Send these events after so many of the server's; bytes and texts as they are, anything else as JSON."""
        lines = [event_line(event) for event in events]
        return self._events(lambda: shapers.Insert(lines, after))

    def expire_watch(self, after: int = 0) -> Rule:
        """After so many events send the ERROR event of an expired resourceVersion and end the watch, all within 200."""
        error = {"type": "ERROR", "object": status_object(410, "Expired", EXPIRED)}
        self.insert_events(error, after=after)
        return self.end_watch(after=after + 1)

    def rewrite_events(self, function: Callable[[bytes, int], bytes | None]) -> Rule:
        """Send what the function makes of each event's line and number; None leaves it out."""
        return self._events(lambda: shapers.Rewrite(function))

    def batch_events(self, count: int) -> Rule:
        """Hold events back until there are so many, as a proxy with a buffer does."""
        _positive(count)
        return self._events(lambda: shapers.Batch(count))

    def rechunk_events(self, *sizes: int) -> Rule:
        """Cut each event into HTTP chunks of these sizes, the last one again and again; a real server has 2048."""
        _positive(*sizes)
        return self._events(lambda: shapers.Rechunk(sizes))

    def lag_events(self, duration: Duration) -> Rule:
        """Deliver each event so many seconds after the server has it."""
        late = seconds(duration)

        def act(exchange: Exchange) -> None:
            exchange.lag += late
        return self._does(act)

    def _events(self, make: Callable[[], shapers.EventShaper]) -> Rule:
        return self._does(lambda exchange: exchange.events.append(make()))


def _positive(*numbers: float) -> Sequence[float]:
    if not numbers or any(number <= 0 for number in numbers):
        raise ValueError(f"sizes have to be above 0, got {', '.join(map(str, numbers)) or 'none'}")
    return numbers
