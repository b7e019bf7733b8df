"""One attempt of a call, with everything that may end, delay or refuse it: deadline, stop tokens, fences, rate limit.

    call     the attempt ends when                              while
    a read   the call's token is set                            it waits for anything
    a write  the client is closed                               nothing of it was sent
    a write  the token `cut` of its run is set (`core.scope`)   it waits for anything

`Interrupt` ends the request of a thread when a stop token is set. During the look-up of an address, `Interrupt` sets
the event that the thread waits for. From connecting until the answer has arrived, `Interrupt` shuts the socket down,
which wakes the thread within milliseconds. After `release` or the end of the `with` block nothing is shut down, however
late the callback of the token runs, because the connection may carry another thread's write by then. A lock prevents
this race. `begin` is called right before the first byte leaves. At this point the `check` may refuse the request. The
token `unsent` can end the request only before this point. `Interrupt` works until a stream is open; from then on the
`ByteStream` ends the stream. Without `Interrupt` a silent server would hold the thread until the deadline.

`Fence` is a layer that calls a check before each write; the check refuses a write by raising. In the runs of a
controller whose client has the fence, the fence also applies to the writes of all related clients (a client and the
clients derived from it, which share connections), so that an elected controller cannot bypass the fence with another of
these clients. The fence covers threads that have a copy of the run's context, but not threads that a run started
without a copy (see `core.scope`). It applies neither to unrelated clients nor to related clients outside of runs.

`Reachability` is shared by all requests of a client. After a request without any answer (`lost`) the server counts as
away until an answer comes. Until then watches take turns, the first after about a second, then one every 5 s, so that
an outage costs one attempt every 5 s and not one per watch. Calls are not held back. Attempts during an outage get 5 s
to connect (see `connect_limit`). With a longer limit, an attempt whose packets are dropped silently would still wait
long after the server has come back.

`RateLimit` is off by default, since the server has its own fairness and answers 429. It is a token bucket that holds up
to `burst` tokens and gains `qps` tokens a second. Attempts take tokens in the order in which they came, so no second
has more than `qps + burst - 1` attempts. Watches are not counted, and neither are requests for Leases, since a holder
that waits would lose its Lease. A call whose wait would pass its deadline fails at once; the call's stop token ends a
wait.
"""
from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.client.config.config import UNLIMITED, Config
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.core.base.errors import ConfigError, RequestTimeout, TransportError
from kubectl_runtime.core.base.observer import Together
from kubectl_runtime.core.base.threads import Clock, ForkSafeLock, seconds
from kubectl_runtime.core.scope import StopToken, current_scope, scoped_cut

PROBE_SECONDS = 5.0
"""The minimum number of seconds between two attempts to reach a server that is away."""
PROBE_SPREAD = 0.5
"""The maximum number of seconds of random delay that are added, so that many programs do not try at the same moment."""
FIRST_TRY = (0.8, 1.6)
"""The range of the seconds from the first failure to the first turn. It is short, because a connection that broke by
chance works again soon."""


AT_ONCE = 0.5
"""Attempts that fail within this many seconds count as one."""


class Outage:
    """A period in which the server answers nothing. `since` is the time of the first failure, `error` the last failure.
    `failures` counts the consecutive attempts of all of the client's watches that got no answer. Attempts within
    `AT_ONCE` seconds count as one, because many connections may break together."""

    def __init__(self, error: Exception, since: float, due: float) -> None:
        self.error = error
        self.since = self._counted_at = since
        self.failures = 1
        self._due = due
        self._lock = ForkSafeLock()

    def failed(self, error: Exception, now: float) -> None:
        """Record one more attempt without an answer."""
        with self._lock:
            self.error = error
            if now - self._counted_at >= AT_ONCE:
                self._counted_at, self.failures = now, self.failures + 1

    @property
    def due(self) -> float:
        """The time from which the next attempt may be made."""
        return self._due

    def turn(self, now: float, draw: Callable[[], float]) -> float:
        """0 if it is the caller's turn to try now; otherwise the seconds until the next possible turn."""
        with self._lock:
            left = self._due - now
            if left > 0:
                return left
            self._due = now + PROBE_SECONDS + PROBE_SPREAD * draw()
            return 0.0


class Reachability:
    """Whether the server of a client answers at all, and when it may be tried next. Each client has one. Safe to use
    from any thread; never blocks. Callers of `lost` and `turn` pass the time, always from the same clock, and `draw`, a
    function that spreads the attempts at random, such as `random.Random().random`."""

    def __init__(self) -> None:
        self._outage: Outage | None = None
        self._last_due = float("-inf")

    @property
    def outage(self) -> Outage | None:
        """The current outage; None while the server answers."""
        return self._outage

    def answered(self) -> None:
        """Note that the server answered something."""
        outage = self._outage
        if outage is not None:
            self._last_due = outage.due
            self._outage = None

    def lost(self, error: Exception, now: float, draw: Callable[[], float]) -> Outage:
        """Record that a request got no answer. Returns the outage: a new one, or the one in progress."""
        outage = self._outage
        if outage is None:
            first, last = FIRST_TRY
            # A server that comes and goes must not be tried more often than a server that is away.
            due = max(now + first + (last - first) * draw(), min(self._last_due, now + PROBE_SECONDS))
            outage = self._outage = Outage(error, now, due)
        else:
            outage.failed(error, now)
        return outage

    def connect_limit(self, seconds: float) -> float:
        """How many seconds an attempt may take to connect now; `seconds` is the limit when there is no outage."""
        return seconds if self._outage is None else min(seconds, PROBE_SECONDS)


_ROUNDING = 1e-9
"""Relative tolerance: rounding in sums of fractions must not release a token too early and let one more call pass."""


class RateLimit(msgspec.Struct, frozen=True):
    """A limit on a client's calls: `qps` attempts a second in the long run, `burst` at once after a pause.

    Each attempt waits for its turn within the call's deadline; watches and Leases do not wait. Off by default. Raises
    ConfigError for numbers out of range.

    >>> own = Client(Config(cluster_url=server.url), rate_limit=RateLimit(qps=20, burst=30))
    >>> own.close()
    """

    qps: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.qps, int | float) and 0 < self.qps < float("inf")):
            raise ConfigError(f"RateLimit(qps={self.qps!r}): qps must be a number of calls a second above 0; "
                              "omit rate_limit for no limit")
        if type(self.burst) is not int or self.burst < 1:
            raise ConfigError(f"RateLimit(burst={self.burst!r}): burst must be a whole number of at least 1")


class _Bucket:
    """A token bucket: computes when the next token is available. Safe to use from any thread."""

    def __init__(self, limit: RateLimit, clock: Clock) -> None:
        self._clock = clock
        self._interval = (1 + _ROUNDING) / limit.qps
        self._saved = (limit.burst - 1) * self._interval
        self._lock = ForkSafeLock()
        self._full_at = float("-inf")  # when the bucket would be full if no more tokens were taken

    def take(self, deadline: float) -> float | None:
        """Take a token and return the seconds until it is available. Return None, without taking a token, if none is
        available by `deadline`."""
        with self._lock:
            now = self._clock.monotonic()
            full_at = max(self._full_at, now)
            wait = max(0.0, full_at - self._saved - now)
            if now + wait >= deadline:
                return None
            self._full_at = full_at + self._interval
            return wait


def limiting(limit: RateLimit, clock: Clock) -> Layer:
    """The layer that makes attempts wait for tokens."""
    bucket = _Bucket(limit, clock)

    def layer(send: Send) -> Send:
        def limited(call: Call) -> Answer:
            if not _is_exempt(call):
                wait = bucket.take(call.deadline)
                if wait is None:
                    raise RequestTimeout(f"{call.request.operation}: the deadline would pass before the rate limit of "
                                         f"{limit.qps:g} calls a second lets the call through: raise qps, or give the "
                                         "call more time", sent=False)
                if wait and call.stop.wait(wait):
                    raise ConnectionFailed(f"{call.request.operation}: given up before it was sent, because "
                                           f"{call.stop.reason or 'its stop token was set'}",
                                           Failure(sent=False, permanent=True))
            return send(call)

        return limited

    return layer


def _is_exempt(call: Call) -> bool:
    resource = call.request.resource
    return call.streaming or (resource is not None and resource.group == "coordination.k8s.io"
                              and resource.plural == "leases")


class Interrupt:
    """Lets stop tokens end a thread's wait for an answer, by shutting its socket down. A context manager for one
    request of one thread; any thread may set the tokens."""

    def __init__(self, token: StopToken | None = None, *, unsent: StopToken | None = None,
                 check: Callable[[], None] | None = None) -> None:
        """`token` ends the request at any time, `unsent` only while nothing of the request was sent; both may be None.
        `check` is called right before the first byte is sent; it refuses the request by raising."""
        self._token = token
        self._unsent = unsent
        self._check = check
        self._lock = threading.Lock()
        self._socket: Any = None
        self._wake: Callable[[], object] | None = None
        self._copy: socket.socket | None = None
        self._ours = True
        self._process = os.getpid()
        self.stopped = False
        self.sent = False
        """Whether a byte of the request may have left."""
        self.reason = ""
        """The reason of the token that was set."""
        self._forget: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        if self._token is not None:
            self._forget.append(self._token.on_set(partial(self._end, self._token)))
        if self._unsent is not None:
            self._forget.append(self._unsent.on_set(partial(self._end, self._unsent, only_unsent=True)))
        return self

    def __exit__(self, *_: object) -> None:
        for forget in self._forget:
            forget()
        self.release()

    def attach(self, connection: socket.socket) -> bool:
        """Note the socket that the request is about to connect. Returns False if a token is already set: the request
        must not connect then, because a socket without a connection cannot be shut down. A copy of the socket's
        descriptor is kept. If the request wraps the socket in TLS, this socket object loses its descriptor, but the
        copy still reaches the connection."""
        with self._lock:
            self._drop_copy()
            self._ours = True
            self._socket = self._copy = connection.dup()
            if self.stopped:  # a token was set before there was a socket
                self._shut_down()
            return not self.stopped

    def begin(self, connection: Any) -> None:
        """Note that the first byte of the request is about to be sent on this socket, on which the answer will come.
        Raises whatever `check` raises, or ConnectionAbortedError if a token is already set. In both cases nothing is
        sent."""
        if self._check is not None:
            self._check()
        with self._lock:
            if self.stopped:
                raise ConnectionAbortedError("the request was given up before it was sent")
            self._drop_copy()
            self.sent = self._ours = True
            self._socket = connection

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Block until `event` is set, for `seconds` at most. A token that ends the request sets the event, too."""
        with self._lock:
            self._wake = event.set
            if self.stopped:
                event.set()
        event.wait(seconds)
        with self._lock:
            self._wake = None

    def release(self) -> bool:
        """Note that the request is done with its connection. Returns whether the connection was shut down, and is
        therefore unusable."""
        with self._lock:
            was_shut_down = self._ours and self.stopped and self._socket is not None
            self._ours = False
            self._socket = self._check = None  # an idle connection keeps this object, which must not keep the call
            self._drop_copy()
            return was_shut_down

    def _end(self, token: StopToken, *, only_unsent: bool = False) -> None:
        if self._process != os.getpid():  # a forked child set the token, but the request is the parent's
            return
        with self._lock:
            if self._ours and not self.stopped and not (only_unsent and self.sent):
                self.stopped, self.reason = True, token.reason
                self._shut_down()

    def _shut_down(self) -> None:
        if self._wake is not None:
            self._wake()
        if isinstance(self._socket, socket.socket):
            with suppress(OSError):  # the connection has ended already
                # Shut down the plain socket: SSLSocket.shutdown would remove the encryption while a thread reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _drop_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()


_LEAST = 0.001
"""Seconds; a timeout of zero would be an error."""


class Carrier(Protocol):
    """The part of a wire (client/wire) that this module needs."""

    def carry(self, call: Call, connect: float, left: float, interrupt: Interrupt) -> Answer:
        """Send `call` once, over a connection that must be established within `connect` seconds. Blocks until the
        answer, or for a stream the head of the answer, has arrived; for at most `left` seconds. `interrupt` is notified
        of each step, and may end the call. Raises TransportError."""


def exchange(carrier: Callable[[], Carrier | None], config: Config, clock: Clock, reachability: Reachability,
             observer: Together, family: object) -> Send:
    """Return the innermost `Send`, which sends a call once, unchanged. `carrier` returns the current wire; None once
    the client is closed.

    `reachability` limits the time for connecting, and is notified of every answer; `observer` is notified of the
    outcome of each attempt, including attempts that raised. If the calling thread works for a run, and the run's
    controller uses this `family` of clients, the run's fences apply.
    """
    server = urlsplit(config.cluster_url).netloc
    host = server.rpartition("@")[2]
    connect_timeout = seconds(config.connect_timeout)

    def send(call: Call) -> Answer:
        if call.request.method not in READS and (scope := current_scope()) is not None and scope.family is family:
            for fence in scope.fences:
                _checked(call, fence.check)
        if not observer.observers:
            return attempt(call)
        code, begun = 0, clock.monotonic()
        try:
            answer = attempt(call)
            code = answer.status
            return answer
        finally:
            request = call.request
            observer.request_attempted(host, request.method, request.verb, request.resource_name, code,
                                       clock.monotonic() - begun)

    def attempt(call: Call) -> Answer:
        now = clock.monotonic()
        left = min(call.deadline - now, UNLIMITED)
        if left <= 0:
            raise RequestTimeout(f"{call.request.operation}: the deadline passed before the request could be sent to "
                                 f"{server}", sent=False)
        current = carrier()
        if current is None:
            raise ConnectionFailed(f"{call.request.operation}: the client was closed",
                                   Failure(sent=False, permanent=True))
        interrupt = _interrupt(call)
        try:
            with interrupt:
                stopped_before = interrupt.stopped
                if stopped_before:
                    raise _given_up(call, interrupt, sent=False)
                connect = max(_LEAST, min(reachability.connect_limit(connect_timeout), left, call.send_by - now))
                answer = current.carry(call, connect, left, interrupt)
        except TransportError as error:
            if interrupt.stopped:
                raise _given_up(call, interrupt, sent=error.sent) from None
            raise
        if interrupt.stopped:  # what looks like a whole answer may then be only its beginning
            if answer.response is not None:
                answer.response.close()
            raise _given_up(call, interrupt, sent=True)
        reachability.answered()
        return answer

    return send


def _interrupt(call: Call) -> Interrupt:
    if call.request.method == "GET":
        return Interrupt(call.stop)
    return Interrupt(scoped_cut(), unsent=call.closing,
                     check=partial(_check, call) if call.checks else None)


def _check(call: Call) -> None:
    for check in call.checks:
        check(call)


def _given_up(call: Call, interrupt: Interrupt, *, sent: bool) -> ConnectionFailed:
    return ConnectionFailed(f"{call.request.operation}: given up, because "
                            f"{interrupt.reason or 'its stop token was set'}", Failure(sent=sent, permanent=True))


READS = frozenset(("GET", "HEAD", "OPTIONS"))


class Fence:
    """A layer that calls `check(call)` before each attempt of a write, and again right before its first byte is sent,
    since a name look-up and connecting may take long. The check refuses by raising. Safe to use from any thread.
    """

    def __init__(self, check: Callable[[Call], None]) -> None:
        self.check = check

    def __call__(self, send: Send) -> Send:
        check = self.check

        def guarded(call: Call) -> Answer:
            if call.request.method not in READS:
                _checked(call, check)
            return send(call)

        return guarded


def _checked(call: Call, check: Callable[[Call], None]) -> None:
    """Call `check` now, and again right before the first byte of each attempt that follows."""
    check(call)
    if check not in call.checks:
        call.checks = (*call.checks, check)
