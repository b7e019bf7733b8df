"""The status page `/debug`: access rules (`DebugPage`), requests (`DebugApplication`), contents (`DebugState`).

    client                                           answer
    a process of this host, `kubectl port-forward`   the page
    any other                                        403, unless `remote`

A client counts as local if it has a loopback address, its Host header names a loopback host (which excludes DNS
rebinding by a foreign page), and it sends no header that proxies add. A sidecar that forwards to loopback without such
a header counts as local; `debug=None` turns the page off.

    GET /debug              the page: one file, which requests the state every two seconds
    GET /debug/state.json   the state as JSON; see `DebugState`
    GET /debug/schema.json  its JSON Schema

`snapshot` makes a `DebugState` of running controllers. It reads each queue under the queue's lock, for a time in
proportion to the number of rows; it reads everything else without a lock. If the state exceeds `MOST_BYTES`, rows are
left out; the counts always include everything. Objects appear only by name. Errors appear as class and code; with
`details` their text appears as well, cut after `MOST_TEXT` characters.

`VERSION` increases when a client written for an older version would misread the state. New fields do not increase it,
so clients must ignore unknown fields.
"""
from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import Observer
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.version import VERSION as LIBRARY
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.observe.health_checks import Watched
from kubectl_runtime.runtime.queue.runs import EndedRun
from kubectl_runtime.runtime.queue.work_queue import FailingRow, KeyState, RunningRow, ScheduledRow
from kubectl_runtime.runtime.reconcile.invoker import LastFailure
from kubectl_runtime.runtime.triggers.shared_watches import Watch

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

FORWARDED = ("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_REAL_IP",
             "HTTP_X_FORWARDED_CLIENT_CERT", "HTTP_X_ENVOY_EXTERNAL_ADDRESS", "HTTP_X_ENVOY_PEER_METADATA")
"""Headers by which proxies reveal that another client made the request."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.]{1,45}))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class DebugPage:
    """Which clients may see the status page `/debug` of a Manager's server, and how much it shows.

    `remote`: every client that reaches the port may see the page, not only clients on this host. `details`: show the
    texts of errors, which may quote objects, instead of class and code. Raises RequestError for a value that is not a
    bool.

    >>> manager = Manager(client, serve="127.0.0.1:0", debug=DebugPage(details=True))
    """

    remote: bool = False
    details: bool = False

    def __post_init__(self) -> None:
        for name, value in (("remote", self.remote), ("details", self.details)):
            if not isinstance(value, bool):
                raise RequestError(f"DebugPage({name}={value!r}): must be True or False")


def is_local(environ: WSGIEnvironment) -> bool:
    """Whether the request comes from this host; see the module."""
    try:
        address = ipaddress.ip_address(str(environ.get("REMOTE_ADDR", "")).partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address  # IPv4 addresses on a dual-stack socket
    return (address.is_loopback and _is_loopback_host(str(environ.get("HTTP_HOST", "")))
            and not any(map(environ.get, FORWARDED)))


def _is_loopback_host(text: str) -> bool:
    """Whether a Host header is `localhost` or a loopback address, with or without a port, in the usual notation: no
    user, trailing dot or zone, and no other notation of numbers."""
    found = _HOST.fullmatch(text)
    if found is None:
        return False
    inside, plain = found.groups()
    if plain is not None and plain.lower() == "localhost":
        return True
    try:
        address = ipaddress.IPv6Address(inside) if inside is not None else ipaddress.IPv4Address(plain)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


VERSION = 1


class KeyRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A key that runs, is due, waits, or failed. `name` is `namespace/name`. Durations are seconds."""

    name: str
    state: str = ""
    """`running`, `due`, `delayed`, `backing_off`, `held_back` (by the rate limit) or `waits_for_change`."""
    reason: str = ""
    age: float = 0.0
    """Seconds since the run began, for a running key; since the key became due, for a due key."""
    waited: float = 0.0
    """Seconds from the time when the key became due to the start of the run; only for a running key."""
    due_in: float | None = None
    """Seconds until the key is due; negative once the key is due."""
    bulk: bool = False
    attempt: int = 0
    """For a running key: the number of this attempt, which is 1 plus the failures in a row before this run."""
    failures: int = 0
    """The number of the key's consecutive failures."""
    failing_for: float = 0.0
    error: str = ""
    """The error of the last failed run."""
    failed_run: str = ""
    """The id of the last failed run, as in its log lines."""
    succeeded: float | None = None
    """Seconds since the key's last successful run; None if unknown."""


class RunRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A run that has ended."""

    name: str
    result: str
    took: float
    ago: float
    waited: float = 0.0
    reason: str = ""
    error: str = ""


class LoopRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A controller that kept itself busy, or two that kept each other busy."""

    name: str
    what: str
    ago: float
    fields: list[str] = []
    """The JSON paths that differed between the object's last two versions."""


class ReadRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An object and its dependencies, the objects that its runs have read: `secret/x`, `3 pods app=a`."""

    name: str
    reads: list[str]


class Counts(msgspec.Struct, rename="camel", kw_only=True):
    """How many keys are in each state. `failing` counts the keys whose last run failed, whatever their state."""

    running: int
    due: int
    delayed: int
    backing_off: int
    held_back: int
    failing: int


class ControllerState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The state of one controller. `runs` and `failed` count the runs that have ended since it started."""

    name: str
    kind: str
    concurrency: int
    not_ready: str = ""
    """Why the controller is not ready, as text."""
    not_alive: str = ""
    counts: Counts
    runs: int = 0
    failed: int = 0
    running: list[KeyRow] = []
    due: list[KeyRow] = []
    delayed: list[KeyRow] = []
    failing: list[KeyRow] = []
    recent: list[RunRow] = []
    slowest: list[RunRow] = []
    loops: list[LoopRow] = []
    readers: int = 0
    """How many objects depend on other objects that their runs have read."""
    reads: list[ReadRow] = []


class WatchRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A watch and its store. Several controllers may share a watch."""

    name: str
    controllers: list[str]
    phase: str
    """`listing`, `watching`, `waiting` (after a failure) or `stopped`."""
    since: float
    """Seconds in this phase."""
    complete: bool = False
    """Whether the watch's store has received a complete list."""
    objects: int = 0
    bytes: int = 0
    last_event: float | None = None
    """Seconds since the watch last received something."""
    relists: int = 0
    failures: int = 0
    """The number of the watch's consecutive failures."""
    error: str = ""


class CallCounts(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Attempts at requests to the API server since the page was made."""

    total: int = 0
    throttled: int = 0
    """Attempts that were answered with status 429."""
    failed: int = 0
    """Attempts that were answered with status 500 or above."""
    unanswered: int = 0
    per_second: float = 0.0
    """The average number of attempts per second, in the last minute."""
    latency: float = 0.0
    """The average seconds until the head of the answer arrived, in the last minute."""
    slowest: float = 0.0
    """Seconds until the head of the slowest answer arrived, in the last minute."""


class WebhookRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A webhook that this process serves. A review that refuses an object counts as answered."""

    name: str
    requests: int = 0
    failed: int = 0
    """Requests that were answered with another status than 200."""
    running: int = 0
    latency: float = 0.0
    """The average seconds until the answer."""
    ago: float | None = None
    """Seconds since the last request."""


class ReplicaRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A replica of a sharding and its shards, according to the Leases that this process knows."""

    name: str
    shards: list[int] = []
    here: bool = False
    """Whether this process is the replica."""


class ShardRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """How many objects of one shard this process stores, and their size; only if objects are divided by hash ranges."""

    shard: int
    objects: int = 0
    bytes: int = 0


class ShardingState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """How replicas share the objects."""

    name: str
    """`namespace/name` of the sharding."""
    by: str
    """The property that divides the objects: `name`, `namespace` or `uid`."""
    shards: int
    """The number of shards."""
    replicas: list[ReplicaRow] = []
    free: list[int] = []
    """Shards without a replica."""
    stored: list[ShardRow] = []


class ManagerState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The manager, if there is one."""

    phase: str
    reason: str = ""
    """Why the manager stops."""
    leader: bool | None = None
    """Whether this process is the leader; None without an election."""
    lease: str = ""
    shards: list[int] | None = None
    sharding: ShardingState | None = None


class DebugState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The state of a process at one moment: what the page and `kubectl-runtime top` show.

    Durations are seconds; empty, zero and unknown values are left out. Rows are a selection, the most important first.
    """

    version: int
    library: str
    time: str
    """The time of this state, in RFC 3339 format."""
    process: int
    memory: int = 0
    """Resident bytes of the process; left out if the system does not report them."""
    uptime: float
    """Seconds since this page was made."""
    details: bool = False
    manager: ManagerState | None = None
    controllers: list[ControllerState]
    watches: list[WatchRow]
    calls: CallCounts | None = None
    """The requests that the Manager has counted; None without a Manager."""
    webhooks: list[WebhookRow] = []
    controllers_left_out: int = 0
    watches_left_out: int = 0


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `/debug/state.json`, as in `debug_state.schema.json` beside this module."""
    (described,), components = msgspec.json.schema_components([DebugState], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kubectl_runtime /debug/state.json",
            **described, "$defs": components}


CONTROLLERS, WATCHES, READS = 50, 100, 10
MOST_TEXT = 200


MINUTE = 60
"""The seconds that rates and averages cover."""


class Traffic(Observer):
    """Counts the requests of a client and the requests to its webhooks. Safe to use from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = CallCounts()
        self._since = clock.monotonic()
        self._seconds: deque[tuple[int, list[float]]] = deque(maxlen=MINUTE + 1)
        """By second of the clock: the number of attempts, their total time, and the longest."""
        self._webhooks: dict[str, WebhookRow] = {}
        self._asked: dict[str, tuple[float, float]] = {}
        """By webhook: the total time of its answers, and when it was last called."""

    def request_attempted(self, host: str, method: str, verb: str, resource: str, code: int,  # noqa: ARG002
                          seconds: float) -> None:
        """Count an attempt to send a request."""
        now = int(self._clock.monotonic())
        with self._lock:
            counts = self._counts
            counts.total += 1
            counts.throttled += code == 429
            counts.failed += code >= 500
            counts.unanswered += code == 0
            if not self._seconds or self._seconds[-1][0] != now:
                self._seconds.append((now, [0, 0.0, 0.0]))
            row = self._seconds[-1][1]
            row[0] += 1
            row[1] += seconds
            row[2] = max(row[2], seconds)

    def webhooks_served(self, webhooks: Sequence[str]) -> None:
        """Add these webhooks to the page."""
        with self._lock:
            for name in webhooks:
                self._webhooks.setdefault(name, WebhookRow(name=_cut(name)))

    def webhook_began(self, webhook: str) -> None:
        """A request to this webhook began."""
        with self._lock:
            self._webhooks.setdefault(webhook, WebhookRow(name=_cut(webhook))).running += 1

    def webhook_answered(self, webhook: str, code: int, seconds: float) -> None:
        """Count an answer of this webhook."""
        with self._lock:
            row = self._webhooks.setdefault(webhook, WebhookRow(name=_cut(webhook)))
            row.running = max(0, row.running - 1)
            row.requests += 1
            row.failed += code != 200
            self._asked[webhook] = (self._asked.get(webhook, (0.0, 0.0))[0] + seconds, self._clock.monotonic())

    def webhooks_ended(self, webhooks: Sequence[str]) -> None:
        """Forget these webhooks: their server has stopped."""
        with self._lock:
            for name in webhooks:
                self._webhooks.pop(name, None)
                self._asked.pop(name, None)

    def calls(self) -> CallCounts:
        """The current counts."""
        now = self._clock.monotonic()
        with self._lock:
            found = msgspec.structs.replace(self._counts)
            rows = [row for second, row in self._seconds if now - second <= MINUTE]
        count = sum(row[0] for row in rows)
        if count:
            found.per_second = round(count / max(1.0, min(MINUTE, now - self._since)), 2)
            found.latency = _rounded(sum(row[1] for row in rows) / count)
            found.slowest = _rounded(max(row[2] for row in rows))
        return found

    def webhooks(self) -> list[WebhookRow]:
        """The served webhooks, by name."""
        now = self._clock.monotonic()
        with self._lock:
            rows = [(msgspec.structs.replace(row), self._asked.get(name))
                    for name, row in sorted(self._webhooks.items())[:WATCHES]]
        for row, asked in rows:
            if asked is not None:
                row.latency, row.ago = _rounded(asked[0] / max(1, row.requests)), _rounded(now - asked[1])
        return [row for row, _ in rows]


class Inspected(Watched, Protocol):
    """A controller that was started, such as `Running`."""

    @property
    def assembly(self) -> Assembly[Any]:
        """The parts of the running controller."""


class Debugged(Protocol):
    """The controllers and the manager that a status page shows. Safe to use from any thread; does not block."""

    def controllers(self) -> Sequence[Inspected]:
        """The controllers that have been started."""

    def manager(self) -> ManagerState | None:
        """The state of the manager that runs the controllers; None without a manager."""


def snapshot(debugged: Debugged, clock: Clock, since: float, rows: int, *, details: bool,
             traffic: Traffic | None = None) -> DebugState:
    """The current state, with up to `rows` rows of each kind. `since`: when the page was made, on `clock`."""
    running = debugged.controllers()
    shown = running[:CONTROLLERS]
    watches = _watches(running)
    return DebugState(
        version=VERSION, library=LIBRARY, time=clock.now().isoformat(timespec="seconds").replace("+00:00", "Z"),
        process=os.getpid(), memory=resident_bytes(), uptime=_rounded(clock.monotonic() - since), details=details,
        manager=debugged.manager(),
        controllers=[_controller(one, rows, _Errors(details)) for one in shown], watches=watches[:WATCHES],
        calls=None if traffic is None else traffic.calls(), webhooks=[] if traffic is None else traffic.webhooks(),
        controllers_left_out=len(running) - len(shown), watches_left_out=max(0, len(watches) - WATCHES))


def resident_bytes() -> int:
    """The resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


class _Errors:
    """Makes the text that the page shows for a logged failure."""

    def __init__(self, details: bool) -> None:
        self._details = details

    def __call__(self, failure: object) -> str:
        if not isinstance(failure, LastFailure):
            return ""
        if self._details:
            return _cut(failure.text)
        kind, code = failure.alike
        return _cut(f"{kind} {code}" if code else kind)


def _controller(running: Inspected, rows: int, error: _Errors) -> ControllerState:
    assembly = running.assembly
    look = assembly.runner.look(rows)
    readers, reads = assembly.reads.look(rows)
    now, kind = look.now, assembly.plan.resource
    return ControllerState(
        name=_cut(running.name), kind=kind.full_name, concurrency=assembly.plan.options.concurrency,
        not_ready=_cut(running.why_not_ready, 2 * MOST_TEXT), not_alive=_cut(running.why_not_alive, 2 * MOST_TEXT),
        counts=Counts(**look.counts),
        runs=look.runs, failed=look.failed,
        running=[_running(row, now, error) for row in look.running],
        due=[_scheduled(row, now, error) for row in look.due],
        delayed=[_scheduled(row, now, error) for row in look.delayed],
        failing=[_failing(row, now, error) for row in look.failing],
        recent=[_ended(row, now, error) for row in look.recent],
        slowest=[_ended(row, now, error) for row in look.slowest],
        loops=[LoopRow(name=_name((loop.ref.namespace, loop.ref.name)), what=_cut(loop.what),
                       ago=_rounded(now - loop.at), fields=[_cut(path) for path in loop.paths])
               for loop in assembly.loops.found()[:rows]],
        readers=readers,
        reads=[ReadRow(name=_name(key), reads=[_cut(text) for text in texts[:READS]] + (
            [f"and {len(texts) - READS} more"] if len(texts) > READS else [])) for key, texts in reads])


def _running(row: RunningRow, now: float, error: _Errors) -> KeyRow:
    return KeyRow(name=_name(row.key), state=KeyState.RUNNING, reason=_cut(row.reason),
                  age=_rounded(now - row.started), waited=_rounded(row.waited), attempt=row.attempt,
                  error=error(row.last_failure))


def _scheduled(row: ScheduledRow, now: float, error: _Errors) -> KeyRow:
    late = now - row.at
    return KeyRow(name=_name(row.key), state=row.state, reason=_cut(row.reason), age=_rounded(max(0.0, late)),
                  due_in=_rounded(-late), bulk=row.background, error=error(row.last_failure))


def _failing(row: FailingRow, now: float, error: _Errors) -> KeyRow:
    failure = row.last_failure
    known = failure if isinstance(failure, LastFailure) else None
    return KeyRow(name=_name(row.key), state=row.state, due_in=None if row.at is None else _rounded(row.at - now),
                  failures=row.failures, failing_for=0.0 if known is None else _rounded(now - known.since),
                  error=error(failure), failed_run="" if known is None else known.run_id,
                  succeeded=None if known is None or known.succeeded is None else _rounded(now - known.succeeded))


def _ended(row: EndedRun, now: float, error: _Errors) -> RunRow:
    return RunRow(name=_name(row.key), result=row.result, took=_rounded(row.took), ago=_rounded(now - row.ended),
                  waited=_rounded(row.waited), reason=_cut(str(row.reason)), error=error(row.last_failure))


def _watches(controllers: Iterable[Inspected]) -> list[WatchRow]:
    """The watches; failing and incomplete ones first."""
    found: dict[int, tuple[str, Watch[Any], list[str], float]] = {}
    for running in controllers:
        now = running.assembly.plan.clock.monotonic()
        for name, watch in running.assembly.watches.items():
            found.setdefault(id(watch), (name, watch, [], now))[2].append(running.name)
    rows = [_watch(name, watch, users, now) for name, watch, users, now in found.values()]
    return sorted(rows, key=lambda row: (not row.error, row.complete))


def _watch(name: str, watch: Watch[Any], users: list[str], now: float) -> WatchRow:
    state, stored = watch.state, watch.stored
    return WatchRow(name=_cut(name), controllers=[_cut(user) for user in users[:CONTROLLERS]], phase=state.phase,
                    since=_rounded(now - state.since), complete=stored.ready, objects=len(stored.records),
                    bytes=stored.bytes, relists=state.relists, failures=state.consecutive_failures,
                    last_event=None if state.last_event is None else _rounded(now - state.last_event),
                    error=_cut(state.last_error))


def _name(key: Key) -> str:
    namespace, name = key
    return _sendable(f"{namespace}/{name}" if namespace else name)


def _cut(text: str, most: int = MOST_TEXT) -> str:
    return _sendable(text if len(text) <= most else f"{text[:most]}…")


def _sendable(text: str) -> str:
    """`text` with unencodable characters replaced: the text of an exception may contain lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _rounded(seconds: float) -> float:
    """Round to the millisecond, since more digits are noise; -0.0 becomes 0.0."""
    return round(seconds, 3) + 0.0


Answer = tuple[str, list[tuple[str, str]], bytes]

ROWS = (30, 10, 3, 0)
"""The number of rows of each kind; tried in order until the state is small enough."""

MOST_BYTES = 160_000

REFUSED = ("the status page answers this host only. From elsewhere: kubectl port-forward POD {port}:{port}, then "
           "http://127.0.0.1:{port}/debug; or use DebugPage(remote=True) in the program\n")


class DebugApplication:
    """Answers `/debug` and the paths below it. Safe to use from any thread; keeps no state."""

    def __init__(self, page: DebugPage, debugged: Debugged, *, clock: Clock = SYSTEM_CLOCK,
                 traffic: Traffic | None = None) -> None:
        self._traffic = traffic
        self._page = page
        self._debugged = debugged
        self._clock = clock
        self._since = clock.monotonic()

    def answer(self, path: str, environ: WSGIEnvironment) -> Answer | None:
        """The answer to a GET of `path` below `/debug`: status, headers, body. None for an unknown path."""
        if path not in ("", "state.json", "schema.json"):
            return None
        if not self._page.remote and not is_local(environ):
            port = environ.get("SERVER_PORT", "8080")
            return _answer("403 Forbidden", "text/plain; charset=utf-8", REFUSED.format(port=port).encode())
        if path == "state.json":
            return _answer("200 OK", "application/json", self.state())
        if path == "schema.json":
            return _answer("200 OK", "application/schema+json", _file("debug_state.schema.json"))
        return _answer("200 OK", "text/html; charset=utf-8", _file("debug_page.html"),
                       ("Content-Security-Policy", _policy()))

    def state(self) -> bytes:
        """The state as JSON."""
        body = b""
        for rows in ROWS:
            body = msgspec.json.encode(snapshot(self._debugged, self._clock, self._since, rows,
                                                details=self._page.details, traffic=self._traffic))
            if len(body) <= MOST_BYTES:
                break
        return body


def _answer(status: str, kind: str, body: bytes, *more: tuple[str, str]) -> Answer:
    return status, [("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
                    ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Resource-Policy", "same-origin"), *more], body


@cache
def _file(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


@cache
def _policy() -> str:
    """A policy that allows only the page's own script and style, and no other source."""
    page = _file("debug_page.html").decode()
    script, style = (_digest(page, tag) for tag in ("script", "style"))
    return (f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def _digest(page: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
