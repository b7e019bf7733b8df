"""`Rule`: one rule of the fault script: the requests that it applies to, and what happens to them.

    faults.on("list", resource="pods").first(2).answer(503)
    faults.on("watch").nth(1).end_watch(after=3, how="reset")
    faults.on("create").chance(0.1).lose_answer()

A `Match` describes the requests of a rule. Conditions (each a `Filter`) follow and form a chain: each of them sees and
counts only the requests that the previous condition let pass. ``after(2).first(3)`` takes the third to the fifth
request; ``every(2).first(3)`` takes the second, fourth and sixth. Without conditions the rule takes every matching
request. Actions come last. Several actions are applied in order, and each counts only the watch events that the
previous actions let pass. A rule is active from its first action until `remove()`.
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
    """Build an answer: a mapping or list becomes JSON, a string becomes text. A content-type in `headers` is kept."""
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
    """A failure ``v1.Status``. Without `reason` it has the reason that belongs to the code."""
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
    """A 429 with a Retry-After in the given form. If `retry_after` is a string, it is sent unchanged."""
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
        raise ValueError(f"the form of Retry-After must be seconds, date, details or none, not {form!r}")
    return response(429, status_object(429, message="too many requests, try again later", details=details), headers)


def event_line(event: Body) -> bytes:
    """A watch event as a line: bytes and strings are kept, other values become JSON. A missing newline is added."""
    if isinstance(event, str):
        event = event.encode()
    line = event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()
    return line if line.endswith(b"\n") else line + b"\n"


VERBS = frozenset(("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"))
"""The RBAC verbs of resource requests."""

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

Words = str | Iterable[str]
"""One or more words. A string may contain several, separated by spaces, commas or bars: ``"get list"``."""


def words(value: Words | None) -> frozenset[str] | None:
    """The words in a `Words` as a set; None stays None."""
    if value is None:
        return None
    return frozenset(re.split(r"[\s,|]+", value.strip())) if isinstance(value, str) else frozenset(value)


def known(what: str, given: frozenset[str] | None, among: frozenset[str], hint: str) -> frozenset[str] | None:
    """Check the words of a rule and return them. Raises ValueError for a word that no request can have."""
    if strange := sorted((given or frozenset()) - among):
        raise ValueError(f"no request has the {what} {', '.join(map(repr, strange))}: {hint}")
    return given


def glob(pattern: str) -> re.Pattern[str]:
    """Compile a path pattern: ``*`` and ``?`` match within a segment, ``**`` across segments; the rest is literal."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    translated = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(translated.get(part) or re.escape(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Match:
    """The properties of requests that a rule matches; None matches anything."""

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
    """A condition that takes some of the requests that it sees; `now` is in monotonic seconds."""

    def takes(self, now: float, /) -> bool: ...


@dataclass(slots=True)
class Counted:
    """Takes requests by their number, counted from 1."""

    takes_number: Callable[[int], bool]
    count: int = 0

    def takes(self, _: float, /) -> bool:
        self.count += 1
        return self.takes_number(self.count)


@dataclass(slots=True)
class Chance:
    """Takes each request with the given probability; `source` makes the random draws."""

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
    """A chain of `Filter` conditions. Each method adds a condition and returns the object itself."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._conditions: list[Filter] = []
        self.seen = 0
        """The number of requests that matched."""
        self.taken = 0
        """The number of matching requests that the rule was applied to."""

    def take(self, now: float) -> bool:
        """Whether to take a matching request. Must be called once for each request, in order."""
        self.seen += 1
        for condition in self._conditions:
            if not condition.takes(now):
                return False
        self.taken += 1
        return True

    def first(self, count: int = 1) -> Self:
        """Take the first `count` requests. Raises ValueError unless `count` is above 0."""
        _counts("first", count)
        return self._only(Counted(lambda number: number <= count))

    def after(self, count: int) -> Self:
        """Take all requests except the first `count`."""
        return self._only(Counted(lambda number: number > count))

    def nth(self, *numbers: int) -> Self:
        """Take the requests with these numbers, counted from 1. Raises ValueError for a number below 1."""
        _counts("nth", *numbers)
        return self._only(Counted(lambda number: number in numbers))

    def every(self, count: int) -> Self:
        """Take every `count`-th request. Raises ValueError unless `count` is above 0."""
        _counts("every", count)
        return self._only(Counted(lambda number: number % count == 0))

    def chance(self, probability: float) -> Self:
        """Take each request with this probability (0 to 1, else ValueError). The script's seed decides the draws."""
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability must be between 0 and 1, not {probability}")
        return self._only(Chance(probability, random.Random(f"{self._seed}/{len(self._conditions)}")))

    def lasting(self, duration: Duration) -> Self:
        """Take the first request, and all requests until `duration` has passed since then on the server's clock."""
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
    """A rule selects requests and decides what happens to them. `Faults.on` makes rules.

    Every method returns the rule and may be called from any thread. `seen` counts the requests that matched. `taken`
    counts the requests that the rule was applied to, so that a test can assert that its fault took place.
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
        """Deactivate the rule. Faults that have already started continue."""
        self._script.remove(self)

    def _does(self, action: Callable[[Exchange], None]) -> Rule:
        self._actions.append(action)
        self._script.enforce(self)
        return self

    # -- instead of handling the request

    def drop(self, how: Ending = "reset") -> Rule:
        """Do not handle the request: "reset" or "close" its connection, or "stall" (leave it open, never answer)."""
        steps = ending(how) or [Reset()]
        return self._does(lambda exchange: exchange.before.extend(steps))

    def never_answer(self) -> Rule:
        """Neither handle nor answer the request, but keep the connection open."""
        return self.drop("stall")

    def answer(self, status: int, body: Body = b"", headers: Headers = (), *, handled: bool = False) -> Rule:
        """Answer with these values instead of handling the request. With `handled` the request is handled first.

        A handled request's own result is discarded. `body` is sent unchanged (bytes), as text (strings), or as JSON
        (mappings and lists). Raises ValueError for a status outside of 100 to 599.
        """
        if not (isinstance(status, int) and 100 <= status <= 599):
            raise ValueError(f"an HTTP status must be between 100 and 599, not {status!r}")
        given = response(status, body, headers)
        if handled:
            return self.rewrite(lambda _: given)
        return self._instead(lambda _: given)

    def status(self, code: int, reason: str | None = None, message: str = "", *,
               details: Mapping[str, Any] | None = None, headers: Headers = (), handled: bool = False) -> Rule:
        """Answer with a failure ``v1.Status``. Without `reason` it has the reason that belongs to the code."""
        return self.answer(code, status_object(code, reason, message, details), headers, handled=handled)

    def throttle(self, retry_after: float | str = 1, form: RetryAfter = "seconds") -> Rule:
        """Answer 429 and ask the client to wait `retry_after` seconds.

        `form` decides how: as "seconds" or "date" in the Retry-After header, only in the Status ("details"), or not at
        all ("none"). If `retry_after` is a string, it is sent unchanged as the header (``"soon"``, ``"-1"``).
        """
        return self._instead(lambda exchange: throttled(retry_after, form, exchange.clock.now()))

    def _instead(self, make: Callable[[Exchange], HttpResponse]) -> Rule:
        def act(exchange: Exchange) -> None:
            exchange.instead = exchange.instead or make(exchange)
        return self._does(act)

    # -- before and after the request is handled

    def run(self, function: Callable[[], object]) -> Rule:
        """Call a function before the request is handled, in the thread that serves the request, without any lock."""
        return self._does(lambda exchange: exchange.effects.append(function))

    def expire_history(self) -> Rule:
        """Compact the history before the request is handled: older resourceVersions and continue tokens expire."""
        return self.run(self._script.expire_history)

    def delay(self, duration: Duration, *, handled: bool = False) -> Rule:
        """Wait before the request is handled or, with `handled`, between handling and answer."""
        wait = seconds(duration)

        def act(exchange: Exchange) -> None:
            if handled:
                exchange.delay += wait
            else:
                exchange.before.append(Wait(wait))
        return self._does(act)

    def rewrite(self, function: Callable[[HttpResponse], HttpResponse]) -> Rule:
        """Handle the request, pass the answer to the function, and send the answer that the function returns."""
        return self._does(lambda exchange: exchange.replacements.append(function))

    # -- the bytes of the answer

    def lose_answer(self, how: Ending = "reset") -> Rule:
        """Handle the request, then end the connection without sending a byte."""
        return self.truncate(0, then="reset" if how == "end" else how)

    def truncate(self, at: int, *, of: shapers.Of = "answer", then: Ending = "close") -> Rule:
        """Send only the first `at` bytes of the answer, then end the connection.

        If `of` is "body", `at` counts only bytes of the body (including chunk framing), and the head is sent whole. A
        negative `at` omits that many bytes at the end, but has no effect on a watch, whose length is not known.
        """
        return self._bytes(lambda: shapers.Truncate(at, of, "close" if then == "end" else then))

    def stall_after_headers(self) -> Rule:
        """Send the status line and headers, then nothing more, like a half-open connection."""
        return self.truncate(0, of="body", then="stall")

    def split(self, *sizes: int, pause: Duration = 0) -> Rule:
        """Write the answer in pieces of these sizes, repeated as needed, with a pause between pieces."""
        _positive(*sizes)
        return self._bytes(lambda: shapers.Split(sizes, seconds(pause)))

    def slow(self, bytes_per_second: float, piece: int = 1024) -> Rule:
        """Send the body at this speed, in pieces."""
        _positive(bytes_per_second, piece)
        return self._bytes(lambda: shapers.Slow(bytes_per_second, piece))

    def hang_up(self, after: Duration = 0, how: Ending = "close") -> Rule:
        """End the connection this long after the answer, although the answer announced a persistent connection."""
        steps = [Wait(seconds(after)), *(ending(how) or ending("close"))]
        return self._does(lambda exchange: exchange.after.extend(steps))

    def _bytes(self, make: Callable[[], shapers.ByteShaper]) -> Rule:
        return self._does(lambda exchange: exchange.bytes_.append(make()))

    # -- watch events; they are counted from 1, including bookmarks and errors

    def end_watch(self, after: int = 0, how: Ending = "end") -> Rule:
        """After this many events "end" the watch normally, "close" (FIN) or "reset" the connection, or "stall"."""
        ending(how)
        return self._events(lambda: shapers.EndAfter(after, how))

    def cut_event(self, number: int, at: int, *, of: Literal["line", "chunk"] = "line", then: Ending = "close") -> Rule:
        """Send only `at` bytes of this event, then end the watch.

        `of` decides what is counted: the event's "line", or the whole HTTP "chunk" including its size. If `then` is
        "end", the incomplete line is sent in a complete chunk and the answer ends normally.
        """
        ending(then)
        return self._events(lambda: shapers.CutEvent(number, at, of, then))

    def duplicate_events(self, times: int = 2, *numbers: int) -> Rule:
        """Send every event, or the events with these numbers, several times."""
        return self._events(lambda: shapers.Repeat(times, numbers))

    def drop_events(self, *numbers: int) -> Rule:
        """Omit the events with these numbers."""
        return self.rewrite_events(lambda line, number: None if number in numbers else line)

    def insert_events(self, *events: Body, after: int = 0) -> Rule:
        """Insert these events into the watch once the server has sent `after` events. Bytes and strings are sent
        unchanged, other values as JSON."""
        lines = [event_line(event) for event in events]
        return self._events(lambda: shapers.Insert(lines, after))

    def expire_watch(self, after: int = 0) -> Rule:
        """After `after` events send the ERROR event of an expired resourceVersion and end the watch.

        The HTTP status of the watch stays 200.
        """
        error = {"type": "ERROR", "object": status_object(410, "Expired", EXPIRED)}
        self.insert_events(error, after=after)
        return self.end_watch(after=after + 1)

    def rewrite_events(self, function: Callable[[bytes, int], bytes | None]) -> Rule:
        """Send what the function returns for each event's line and number; None omits the event."""
        return self._events(lambda: shapers.Rewrite(function))

    def batch_events(self, count: int) -> Rule:
        """Hold events back until there are `count`, then send them together, like a buffering proxy."""
        _positive(count)
        return self._events(lambda: shapers.Batch(count))

    def rechunk_events(self, *sizes: int) -> Rule:
        """Split each event into HTTP chunks of these sizes, repeating the last size. A real server uses 2048."""
        _positive(*sizes)
        return self._events(lambda: shapers.Rechunk(sizes))

    def lag_events(self, duration: Duration) -> Rule:
        """Deliver each event this long after the server produced it."""
        late = seconds(duration)

        def act(exchange: Exchange) -> None:
            exchange.lag += late
        return self._does(act)

    def _events(self, make: Callable[[], shapers.EventShaper]) -> Rule:
        return self._does(lambda exchange: exchange.events.append(make()))


def _positive(*numbers: float) -> Sequence[float]:
    if not numbers or any(number <= 0 for number in numbers):
        raise ValueError(f"sizes must be above 0, got {', '.join(map(str, numbers)) or 'none'}")
    return numbers
