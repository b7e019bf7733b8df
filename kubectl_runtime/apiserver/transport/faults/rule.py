"""`Rule`: one sentence of the fault script: which requests it applies to, and what happens to them.

    faults.on("list", resource="pods").first(2).answer(503)
    faults.on("watch").nth(1).end_watch(after=3, how="reset")
    faults.on("create").chance(0.1).lose_answer()

`Match` describes the requests of a rule. Conditions (each a `Filter`) follow and form a chain: each sees and counts
only the requests that the previous condition let pass. ``after(2).first(3)`` takes the third to the fifth request,
``every(2).first(3)`` the second, fourth and sixth. Without conditions the rule takes every matching request. Actions
follow; several are applied in their order, and each counts the events that the actions before it let pass. A rule is in
force from its first action until `remove()`.
"""
from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal, Protocol, Self

from kubectl_runtime.apiserver.transport.faults import shapers
from kubectl_runtime.apiserver.transport.faults.shapers import Ending, Exchange, Reset, Wait, ending
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, RequestInfo
from kubectl_runtime.core.base.threads import Duration, seconds

JSON = "application/json"
RetryAfter = Literal["seconds", "date", "details", "none"]

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
           406: "NotAcceptable", 409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge",
           415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
           503: "ServiceUnavailable", 504: "Timeout"}

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Body = bytes | str | Mapping[str, Any] | list[Any]


def response(status: int, body: Body = b"", headers: Headers = ()) -> HttpResponse:
    """An answer; a mapping or list becomes JSON, a text becomes plain text. A given content-type is kept."""
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    content_type = ""
    if isinstance(body, str):
        body, content_type = body.encode(), "text/plain; charset=utf-8"
    elif not isinstance(body, bytes):
        body, content_type = json.dumps(body, separators=(",", ":")).encode(), JSON
    if content_type and not any(key.lower() == "content-type" for key, _ in given):
        given.append(("Content-Type", content_type))
    return HttpResponse(status, given, body)


def status_object(code: int, reason: str | None = None, message: str = "",
                  details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A ``v1.Status`` of a failure; without a reason it has the reason of the code."""
    reason = REASONS.get(code, "") if reason is None else reason
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                              "message": message or f"the fault script answers {code}"}
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = dict(details)
    status["code"] = code
    return status


def throttled(retry_after: float | str, form: RetryAfter, now: datetime) -> HttpResponse:
    """A 429 with a Retry-After in the given form; a text for `retry_after` is sent as it is."""
    headers, details = [], None
    if isinstance(retry_after, str):
        headers = [("Retry-After", retry_after)]
    elif form == "seconds":
        headers = [("Retry-After", f"{retry_after:g}")]
    elif form == "date":
        later = now + timedelta(seconds=retry_after)
        headers = [("Retry-After", format_datetime(later.replace(microsecond=0), usegmt=True))]
    elif form == "details":
        details = {"retryAfterSeconds": int(retry_after)}
    elif form != "none":
        raise ValueError(f"{form!r} is no form of Retry-After: choose one of seconds, date, details, none")
    return response(429, status_object(429, message="too many requests, try again later", details=details), headers)


def event_line(event: Body) -> bytes:
    """An event of a watch as a line: bytes and texts are kept, and a missing end of line is added."""
    if isinstance(event, str):
        event = event.encode()
    line = event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()
    return line if line.endswith(b"\n") else line + b"\n"


VERBS = frozenset(("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"))
"""RBAC's verbs of requests to resources."""

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

Words = str | Iterable[str]
"""One word or several; a text may hold several, separated by blanks, commas or bars: ``"get list"``."""


def words(value: Words | None) -> frozenset[str] | None:
    """The separate words of a `Words`; None stays None."""
    if value is None:
        return None
    return frozenset(re.split(r"[\s,|]+", value.strip())) if isinstance(value, str) else frozenset(value)


def known(what: str, given: frozenset[str] | None, among: frozenset[str], hint: str) -> frozenset[str] | None:
    """The words. Raises ValueError for a word that no request can have, since its rule would do nothing."""
    if strange := sorted((given or frozenset()) - among):
        raise ValueError(f"no request has the {what} {', '.join(map(repr, strange))}: {hint}")
    return given


def glob(pattern: str) -> re.Pattern[str]:
    """A path pattern: ``*`` and ``?`` stay within a segment, ``**`` crosses segments, other characters are literal."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    translated = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(translated.get(part) or re.escape(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Match:
    """The properties of the requests that a rule is about; None matches anything."""

    verbs: frozenset[str] | None = None
    path: re.Pattern[str] | None = None
    methods: frozenset[str] | None = None
    resources: frozenset[str] | None = None
    namespace: str | None = None
    name: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    where: Callable[[HttpRequest], bool] | None = None

    def matches(self, request: HttpRequest, info: RequestInfo) -> bool:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        qualified = f"{resource}.{info.group}" if info.group else resource
        return ((self.verbs is None or info.verb in self.verbs)
                and (self.methods is None or request.method in self.methods)
                and (self.path is None or self.path.fullmatch(request.path) is not None)
                and (self.resources is None or resource in self.resources or qualified in self.resources)
                and self.namespace in (None, info.namespace) and self.name in (None, info.name)
                and all(request.has_param(key) and request.param(key) == value for key, value in self.query.items())
                and all(request.headers.get(key.lower()) == value for key, value in self.headers.items())
                and (self.where is None or self.where(request)))


class Filter(Protocol):
    """Takes some of the requests that it sees; `now` is monotonic seconds."""

    def takes(self, now: float, /) -> bool: ...


@dataclass(slots=True)
class Counted:
    """Takes a request by its number, counted from 1."""

    takes_number: Callable[[int], bool]
    count: int = 0

    def takes(self, _: float, /) -> bool:
        self.count += 1
        return self.takes_number(self.count)


@dataclass(slots=True)
class Chance:
    """Takes a request with a probability; the same seed takes the same requests."""

    probability: float
    source: random.Random

    def takes(self, _: float, /) -> bool:
        return self.source.random() < self.probability


@dataclass(slots=True)
class Lasting:
    """Takes requests for a number of seconds, starting with the first request."""

    seconds: float
    begun: float | None = None

    def takes(self, now: float) -> bool:
        if self.begun is None:
            self.begun = now
        return now - self.begun < self.seconds


class Conditions:
    """A chain of conditions, each a `Filter`; each method adds one and returns the object."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._conditions: list[Filter] = []
        self.seen = 0
        """How many requests matched."""
        self.taken = 0
        """How many matching requests the rule was applied to."""

    def take(self, now: float) -> bool:
        """Whether a matching request is taken; called once for each request, in order."""
        self.seen += 1
        for condition in self._conditions:
            if not condition.takes(now):
                return False
        self.taken += 1
        return True

    def first(self, count: int = 1) -> Self:
        """Take the first `count` requests. Raises ValueError unless it is above 0."""
        _counts("first", count)
        return self._only(Counted(lambda number: number <= count))

    def after(self, count: int) -> Self:
        """Take all requests except the first `count`."""
        return self._only(Counted(lambda number: number > count))

    def nth(self, *numbers: int) -> Self:
        """Take the requests with these numbers, counted from 1. Raises ValueError for a smaller number."""
        _counts("nth", *numbers)
        return self._only(Counted(lambda number: number in numbers))

    def every(self, count: int) -> Self:
        """Take each `count`-th request. Raises ValueError unless it is above 0."""
        _counts("every", count)
        return self._only(Counted(lambda number: number % count == 0))

    def chance(self, probability: float) -> Self:
        """Take a request with this probability, drawn from the script's seed. Raises ValueError outside of 0 to 1."""
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return self._only(Chance(probability, random.Random(f"{self._seed}/{len(self._conditions)}")))

    def lasting(self, duration: Duration) -> Self:
        """Take requests for this duration on the clock, starting with the first request."""
        return self._only(Lasting(seconds(duration)))

    def _only(self, condition: Filter) -> Self:
        self._conditions.append(condition)
        return self


def _counts(method: str, *numbers: int) -> None:
    if not numbers or not all(isinstance(number, int) and number > 0 for number in numbers):
        raise ValueError(f"{method}(…) needs a number above 0, got {', '.join(map(repr, numbers)) or 'none'}")


EXPIRED = "too old resource version: 1 (2)"


class Script(Protocol):
    """The part of the fault script that a rule needs; see `script.Faults`."""

    def enforce(self, rule: Rule) -> None: ...

    def remove(self, rule: Rule) -> None: ...

    def expire_history(self) -> None: ...


class Rule(Conditions):
    """A rule: selected requests, and what happens to them. Made by `Faults.on`; every method returns the rule, and may
    be called from any thread. `seen` counts the requests that matched and `taken` the requests to which something
    happened, so that a test can assert that its fault took place.
    """

    def __init__(self, script: Script, match: Match, seed: str) -> None:
        super().__init__(seed)
        self.match = match
        self._script = script
        self._actions: list[Callable[[Exchange], None]] = []

    def __repr__(self) -> str:
        return f"<Rule: {self.seen} requests seen, {self.taken} taken>"

    def apply(self, exchange: Exchange) -> None:
        """Apply the rule's actions to a request."""
        for action in self._actions:
            action(exchange)

    def remove(self) -> None:
        """Take the rule out of force. Faults that it has started go on."""
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
        """Neither handle nor answer the request; the connection stays open."""
        return self.drop("stall")

    def answer(self, status: int, body: Body = b"", headers: Headers = (), *, handled: bool = False) -> Rule:
        """Answer with this; with `handled` after the request was carried out, whatever its result was.

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
        """Answer with a ``v1.Status``; without a reason it has the reason of the code."""
        return self.answer(code, status_object(code, reason, message, details), headers, handled=handled)

    def throttle(self, retry_after: float | str = 1, form: RetryAfter = "seconds") -> Rule:
        """Answer 429 and ask the client to wait `retry_after` seconds: by number, date, only in the Status, or not.

        A text is sent unchanged as the Retry-After header (``"soon"``, ``"-1"``).
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
        """Compact before the request is handled: every older resourceVersion and continue token expires."""
        return self.run(self._script.expire_history)

    def delay(self, duration: Duration, *, handled: bool = False) -> Rule:
        """Let time pass before the request is handled or, with `handled`, between the handling and the answer."""
        wait = seconds(duration)

        def act(exchange: Exchange) -> None:
            if handled:
                exchange.delay += wait
            else:
                exchange.before.append(Wait(wait))
        return self._does(act)

    def rewrite(self, function: Callable[[HttpResponse], HttpResponse]) -> Rule:
        """Handle the request and answer with the function's version of the answer."""
        return self._does(lambda exchange: exchange.replacements.append(function))

    # -- the bytes of the answer

    def lose_answer(self, how: Ending = "reset") -> Rule:
        """Carry the request out, then end the connection without sending a byte."""
        return self.truncate(0, then="reset" if how == "end" else how)

    def truncate(self, at: int, *, of: shapers.Of = "answer", then: Ending = "close") -> Rule:
        """Send only the first `at` bytes: of everything that goes out, or of the body with the framing of its chunks.

        A negative number leaves off that many bytes at the end; it has no effect on a watch, whose end is not known.
        """
        return self._bytes(lambda: shapers.Truncate(at, of, "close" if then == "end" else then))

    def stall_after_headers(self) -> Rule:
        """Send status line and headers, then nothing: a half-open connection."""
        return self.truncate(0, of="body", then="stall")

    def split(self, *sizes: int, pause: Duration = 0) -> Rule:
        """Write in pieces of these sizes, repeatedly, with a pause between two pieces."""
        _positive(*sizes)
        return self._bytes(lambda: shapers.Split(sizes, seconds(pause)))

    def slow(self, bytes_per_second: float, piece: int = 1024) -> Rule:
        """Send the body at this speed, in pieces."""
        _positive(bytes_per_second, piece)
        return self._bytes(lambda: shapers.Slow(bytes_per_second, piece))

    def hang_up(self, after: Duration = 0, how: Ending = "close") -> Rule:
        """End the connection after this time from the answer, although the answer says that it can be reused."""
        steps = [Wait(seconds(after)), *(ending(how) or ending("close"))]
        return self._does(lambda exchange: exchange.after.extend(steps))

    def _bytes(self, make: Callable[[], shapers.ByteShaper]) -> Rule:
        return self._does(lambda exchange: exchange.bytes_.append(make()))

    # -- the events of a watch are counted from 1, including bookmarks and errors

    def end_watch(self, after: int = 0, how: Ending = "end") -> Rule:
        """End the watch after this many events: as a server does ("end"), by FIN, by RST, or by silence ("stall")."""
        ending(how)
        return self._events(lambda: shapers.EndAfter(after, how))

    def cut_event(self, number: int, at: int, *, of: Literal["line", "chunk"] = "line", then: Ending = "close") -> Rule:
        """Send only `at` bytes of this event's line, or of the HTTP chunk that starts with its size, and end the watch.

        With "end" the half line lies in a whole chunk and the answer ends in order.
        """
        ending(then)
        return self._events(lambda: shapers.CutEvent(number, at, of, then))

    def duplicate_events(self, times: int = 2, *numbers: int) -> Rule:
        """Send every event, or the events with these numbers, several times."""
        return self._events(lambda: shapers.Repeat(times, numbers))

    def drop_events(self, *numbers: int) -> Rule:
        """Leave out the events with these numbers."""
        return self.rewrite_events(lambda line, number: None if number in numbers else line)

    def insert_events(self, *events: Body, after: int = 0) -> Rule:
        """Send these events after `after` events of the server; bytes and texts unchanged, anything else as JSON."""
        lines = [event_line(event) for event in events]
        return self._events(lambda: shapers.Insert(lines, after))

    def expire_watch(self, after: int = 0) -> Rule:
        """After `after` events send the ERROR event of an expired resourceVersion and end the watch; the answer is a
        200."""
        error = {"type": "ERROR", "object": status_object(410, "Expired", EXPIRED)}
        self.insert_events(error, after=after)
        return self.end_watch(after=after + 1)

    def rewrite_events(self, function: Callable[[bytes, int], bytes | None]) -> Rule:
        """Send what the function returns for each event's line and number; None leaves the event out."""
        return self._events(lambda: shapers.Rewrite(function))

    def batch_events(self, count: int) -> Rule:
        """Hold events back until there are `count` of them, as a buffering proxy does."""
        _positive(count)
        return self._events(lambda: shapers.Batch(count))

    def rechunk_events(self, *sizes: int) -> Rule:
        """Split each event into HTTP chunks of these sizes, the last size repeated; a real server has 2048."""
        _positive(*sizes)
        return self._events(lambda: shapers.Rechunk(sizes))

    def lag_events(self, duration: Duration) -> Rule:
        """Deliver each event this much later than the server has it."""
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
