"""`Faults`, the fault script: rules for what a server, a proxy or a network does to a client on a bad day.

    faults = Faults(seed=7)
    faults.on("list", resource="pods").first(2).throttle(3, form="date")
    faults.on("watch").nth(1).cut_event(2, at=40)
    faults.on(path="/api/v1/namespaces/*/configmaps/**").chance(0.1).drop()
    faults.connections().lasting(5).drop()

Pass the script to a server (``ApiServer(faults=faults)``) or use the server's own (``server.faults``). `on` begins a
`Rule`; the rule's methods add conditions and actions. The script touches no socket. For each request to which a rule
applies, it makes an `Exchange` with plans. The HTTP transport and the simulated transport both execute these plans.

`Recording` contains every request that a server received, with its result.
"""
from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, overload

import msgspec

from kubectl_runtime.apiserver.transport.faults.rule import METHODS, VERBS, Match, Rule, Words, glob, known, words
from kubectl_runtime.apiserver.transport.faults.shapers import Exchange, Plan, until_over
from kubectl_runtime.apiserver.wire import HttpRequest, Query, RequestInfo, parse
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, seconds

_CONNECTION = HttpRequest("CONNECT", "")
_CONNECTIONS = Match()
_NO_INFO = RequestInfo(False, "connect", "")


class Faults:
    """A fault script. Rules may be added and removed at any time, from any thread."""

    def __init__(self, *, seed: int = 0) -> None:
        """`seed` decides which requests `Rule.chance` takes.

        The random numbers of a rule depend on the seed and on the number of rules that were made before it.
        """
        self._seed = seed
        self._lock = threading.Lock()
        self._rules: tuple[Rule, ...] = ()
        self._connection_rules: tuple[Rule, ...] = ()
        self._made = 0
        self._clock: Clock = SYSTEM_CLOCK
        self._expire: Callable[[], None] | None = None
        self._plural_of: Callable[[str], str | None] = lambda _name: None

    def bind(self, clock: Clock, expire_history: Callable[[], None],
             plural_of: Callable[[str], str | None] = lambda _name: None) -> None:
        """Give the script the server's clock, its compaction, and its look-up of singular and short names.

        Only the server calls this. Raises ValueError like `on`.
        """
        self._clock, self._expire, self._plural_of = clock, expire_history, plural_of
        for rule in self._rules:
            self._check_plural(rule.match.resources)

    def on(self, verb: Words | None = None, path: str | re.Pattern[str] | None = None, *, method: Words | None = None,
           resource: Words | None = None, namespace: str | None = None, name: str | None = None,
           query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None,
           where: Callable[[HttpRequest], bool] | None = None) -> Rule:
        """Begin a rule for requests that match all arguments.

        `verb` is an RBAC verb (get list watch create update patch delete deletecollection). `resource` is ``pods``,
        ``pods/status`` or ``deployments.apps``. Both accept several words (``"get list"``). `path` must match
        the whole path; it is a pattern with ``*`` (within a segment) and ``**``, or a regular expression. `where` is
        called last and must not block. Several rules may apply to one request: delays add up, and the first rule that
        answers wins.

        Raises ValueError for arguments that no request can match: an unknown verb or method, a path without ``/``,
        upper-case letters in a resource, or the singular or short name of a resource that the server has.
        """
        verbs = known("verb", words(verb), VERBS | {each.lower() for each in METHODS},
                      f"the verbs are {', '.join(sorted(VERBS))}; HTTP methods must be given as method=")
        methods = known("method", words(method), METHODS, f"the methods are {', '.join(sorted(METHODS))}")
        resources = words(resource)
        known("resource", resources, frozenset(each.lower() for each in resources or ()),
              "it must be the plural in lower case, as in ``services`` or ``deployments.apps``")
        self._check_plural(resources)
        if isinstance(path, str) and not path.startswith(("/", "*")):
            raise ValueError(f"no request has the path {path!r}: it must begin with / or **")
        pattern = glob(path) if isinstance(path, str) else path
        return self._rule(Match(verbs, pattern, methods, resources, namespace, name, query or {}, headers or {}, where))

    def connections(self) -> Rule:
        """Begin a rule for new connections; only the actions `drop`, `never_answer` and `delay` affect connections.

        ``drop()`` resets a connection as soon as it is accepted. To have the operating system refuse connections, call
        ``ApiServer.stop``, and later ``start``: the port and the data stay.
        """
        return self._rule(_CONNECTIONS)

    def _check_plural(self, resources: frozenset[str] | None) -> None:
        for resource in resources or ():
            if (plural := self._plural_of(re.split("[./]", resource)[0])) is not None:
                raise ValueError(f"no request has the resource {resource!r}: it must be the plural, {plural!r}")

    def _rule(self, match: Match) -> Rule:
        with self._lock:
            self._made += 1
            return Rule(self, match, f"{self._seed}/{self._made}")

    def enforce(self, rule: Rule) -> None:
        """Activate a rule. The rule's first action calls this."""
        with self._lock:
            if rule.match is _CONNECTIONS:
                if rule not in self._connection_rules:
                    self._connection_rules += (rule,)
            elif rule not in self._rules:
                self._rules += (rule,)

    def remove(self, rule: Rule) -> None:
        """Deactivate a rule."""
        with self._lock:
            self._rules = tuple(other for other in self._rules if other is not rule)
            self._connection_rules = tuple(other for other in self._connection_rules if other is not rule)

    def clear(self) -> None:
        """Deactivate all rules."""
        with self._lock:
            self._rules = self._connection_rules = ()

    def expire_history(self) -> None:
        """Compact the server's history now. Raises RuntimeError if the script belongs to no server."""
        if self._expire is None:
            raise RuntimeError("the fault script belongs to no server yet: give it to ApiServer(faults=…) first")
        self._expire()

    # -- for the transports

    def connect(self) -> Plan:
        """The plan for a connection that was just accepted; empty if no rule applies to it."""
        if not self._connection_rules:
            return []
        exchange = self._apply(self._connection_rules, _CONNECTION, _NO_INFO)
        return until_over(exchange.before) if exchange else []

    def begin(self, request: HttpRequest) -> Exchange | None:
        """The faults for a request that was just read; None if no rule applies to it.

        The transport must call the `effects`.
        """
        if not self._rules:
            return None
        return self._apply(self._rules, request, parse(request))

    def _apply(self, rules: tuple[Rule, ...], request: HttpRequest, info: RequestInfo) -> Exchange | None:
        matching = [rule for rule in rules if rule.match.matches(request, info)]
        # The conditions count requests under the lock. The user's function `where` has already run, without the lock.
        with self._lock:
            now = self._clock.monotonic()
            taken = [rule for rule in matching if rule.take(now)]
        if not taken:
            return None
        exchange = Exchange(self._clock)
        for rule in taken:
            rule.apply(exchange)
        return exchange


@dataclass(slots=True, eq=False)
class RecordedRequest:
    """One recorded request. `status` is the answer's HTTP status, None while there is no answer."""

    number: int  # 1 for the first request
    monotonic: float  # monotonic seconds on the server's clock when the request was read
    time: datetime
    request: HttpRequest = field(repr=False)
    status: int | None = None
    ended: str = ""  # "reset", "close" or "stall" if the fault script ended the connection

    @property
    def verb(self) -> str:
        """The RBAC verb: get, list, watch, create, update, patch, delete or deletecollection."""
        return parse(self.request).verb

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        """The path, still percent-encoded, without the query."""
        return self.request.path

    @property
    def query(self) -> Query:
        """The query as pairs, in order."""
        return self.request.query

    @property
    def headers(self) -> dict[str, str]:
        """The headers by lower-case name."""
        return self.request.headers

    @property
    def body(self) -> bytes:
        return self.request.body

    def param(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.request.param(name, default)

    def json(self) -> Any:
        """The body decoded from JSON. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.request.body)

    def __repr__(self) -> str:  # without headers and body, which may contain tokens and Secrets
        return f"<{self.number}: {self.verb} {self.method} {self.path} -> {self.ended or self.status}>"


def _size(request: HttpRequest) -> int:
    """The approximate size of a request in bytes."""
    return (len(request.body) + len(request.path) + sum(map(len, request.headers.values()))
            + sum(len(key) + len(value) for key, value in request.query))


class Recording:
    """The requests that a server received, in order, as a sequence of `RecordedRequest`.

    Above `max_requests` or `max_bytes` the oldest requests are forgotten; numbering continues. Thread-safe; each read
    returns a snapshot.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, max_requests: int = 10_000, max_bytes: int = 32 << 20) -> None:
        self._clock = clock
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._changed = threading.Condition(threading.RLock())
        self._kept: deque[RecordedRequest] = deque()
        self._bytes = 0
        self._count = 0

    @property
    def total(self) -> int:
        """The number of requests so far, including forgotten and cleared requests."""
        return self._count

    def add(self, request: HttpRequest) -> RecordedRequest:
        """Record a request that was read. The server fills in the result later."""
        with self._changed:
            self._count += 1
            entry = RecordedRequest(self._count, self._clock.monotonic(), self._clock.now(), request)
            self._kept.append(entry)
            self._bytes += _size(request)
            while len(self._kept) > self._max_requests or (self._bytes > self._max_bytes and len(self._kept) > 1):
                self._bytes -= _size(self._kept.popleft().request)
            self._changed.notify_all()
        return entry

    def answered(self, entry: RecordedRequest, status: int | None, ended: str = "") -> None:
        """Record the result of a request."""
        with self._changed:
            entry.status = status if status is not None else entry.status
            entry.ended = ended or entry.ended
            self._changed.notify_all()

    def select(self, verb: Words | None = None, path: str | None = None, *, resource: Words | None = None,
               method: Words | None = None) -> list[RecordedRequest]:
        """The requests that match all arguments; `path` is a pattern with ``*`` and ``**``, as for `Faults.on`."""
        match = Match(words(verb), glob(path) if path is not None else None, words(method), words(resource))
        return [entry for entry in self if match.matches(entry.request, parse(entry.request))]

    def wait_for(self, count: int, verb: Words | None = None, path: str | None = None, *, timeout: Duration = 10,
                 resource: Words | None = None) -> list[RecordedRequest]:
        """Block until `count` of the selected requests were answered or ended. Raises TimeoutError after `timeout`."""
        deadline = self._clock.monotonic() + seconds(timeout)
        while True:
            with self._changed:
                seen = self._count
                found = [entry for entry in self.select(verb, path, resource=resource)
                         if entry.status is not None or entry.ended]
                if len(found) >= count:
                    return found
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{len(found)} of {count} requests ({verb or 'any verb'} {path or 'any path'}) "
                                       f"were answered within {seconds(timeout):g} s; {seen} requests in all")
                self._clock.wait(self._changed, left)

    def clear(self) -> None:
        """Forget the recorded requests."""
        with self._changed:
            self._kept.clear()
            self._bytes = 0

    def __iter__(self) -> Iterator[RecordedRequest]:
        with self._changed:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> RecordedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordedRequest]: ...
    def __getitem__(self, index: int | slice) -> RecordedRequest | list[RecordedRequest]:
        return list(self)[index]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "<no requests>"
