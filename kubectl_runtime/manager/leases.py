"""`LeaseStore`: carries out what the lease machine asks for, on one Lease of one server.

    read                    the Lease            there is none        anything else
    create                  written              409: conflict        failed
    write at the version    written              409, 404: conflict   failed

Each request is one attempt, since the machine has a rhythm of its own. A write whose answer was lost has failed here:
the machine then reads the Lease, and goes by what it says. What the Lease says besides its record (labels,
a preferred holder) stays. A failure is logged when it is of another kind than the last, and again after 10 s, doubling
up to a minute, while it lasts.

What happens to a candidate for a Lease, what it does, and when: the words of `lease_machine`'s table.

`LeaderElection`: which Lease decides, and how long its holder counts. Checked when made.

    lease            how long a holder that is not heard of still counts, for the others; a whole number of seconds
    renew_deadline   how long a holder whose renewals fail still counts, for itself; shorter, so that it has stopped
                     before anybody else begins
    retry            how often the holder renews, and the longest time between two looks of somebody who stands by

The defaults, 15, 10 and 2 s, are those of client-go and of Kubernetes's own components; and so is the rule that
`retry * 1.2` has to fit into the renew deadline. All candidates for one Lease should have the same times; where they do
not, the time that the holder wrote into the record counts.

`LeaseRecord`: what a Lease says of who leads, as a value; and its way to and from a `Lease` object.

What a record does not say is taken as client-go takes it: no holder is an empty one, no transitions are 0. Times are
the holder's, for people: nobody compares them with a clock. They are written with six digits of fraction, as the server
demands.

`LeaseStore`: performs what the lease machine asks of the server. `Trouble`: why Leases cannot be read or written.
"""
from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.clock import Clock, Duration, seconds
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, error_behind
from kubectl_runtime.core.base.guard import check_callback, check_client, check_type, described, guarded_logger
from kubectl_runtime.core.meta.gvk import api_resource_of
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import check_flags
from kubectl_runtime.core.requests.request import Place, Retry, checked_label, checked_subdomain
from kubectl_runtime.resources.coordination_v1 import Lease, LeaseSpec

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who holds a Lease, since when, and for how long each renewal is good. `duration`: seconds, None if not said."""

    holder: str = ""
    duration: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    transitions: int = 0

    @classmethod
    def of(cls, lease: Lease) -> LeaseRecord:
        """What `lease` says. Raises DecodeError when its content is not a LeaseSpec."""
        spec = lease.spec if lease.get("spec") is not None else LeaseSpec()
        return cls(spec.holder_identity or "", spec.lease_duration_seconds, spec.acquire_time, spec.renew_time,
                   spec.lease_transitions or 0)

    def write_to(self, lease: Lease) -> None:
        """Have `lease` say it; what else it says stays."""
        if lease.get("spec") is None:
            lease.spec = LeaseSpec()
        spec = lease.spec
        spec.holder_identity = self.holder or None
        spec.lease_duration_seconds = self.duration
        spec.acquire_time, spec.renew_time = self.acquire_time, self.renew_time
        spec.lease_transitions = self.transitions


@dataclass(frozen=True, slots=True)
class Now:
    """When a step is made. `at`: seconds on a clock that counts suspended time; `date`: for the record, which people
    read; `chance`: a random number in [0, 1), for the jitter."""

    at: float
    date: datetime
    chance: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Read:
    """The Lease was read; `record` is None when it does not exist."""

    record: LeaseRecord | None


@dataclass(frozen=True, slots=True)
class Written:
    """The Lease now says this, by our write."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write was refused: somebody else was faster, or there is no such Lease any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or none that says anything of the Lease. A write may have been carried out."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Somebody wants to lead again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The work has ended, and nobody wants to lead any more. `within`: seconds for the release."""

    release: bool
    within: float


Answer: TypeAlias = Read | Written | Conflict | Failed
Input: TypeAlias = Tick | Answer | Campaign | Leave

# What to do.


@dataclass(frozen=True, slots=True)
class Get:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the Lease with this record."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Update:
    """Write the record, if the Lease is still the version that was last read or written."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing until then, on the clock of `Now.at`, unless somebody campaigns or leaves."""

    until: float


Request: TypeAlias = Get | Create | Update
Action: TypeAlias = Request | Wait


log = guarded_logger(__name__)


JITTER = 1.2
"""client-go's JitterFactor."""


def own_identity() -> str:
    """The host's name and a random part: two processes never share it, nor do two lives of one Pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class LeaderElection:
    """How one of several processes is chosen: `LeaderElection("my-operator")`. Durations are seconds or `timedelta`.

    `name` of the Lease, in `namespace` (default: the client's own, which in a cluster is the Pod's). `identity`: what
    the Lease calls this process; by default the host's name and a random part. Your own identities must differ between
    the replicas: a process that finds its own name in the Lease believes that it holds it. `release`: give the Lease
    back when the work has ended. Then another replica begins at once and need not wait until the Lease runs out.

    `on_started()`, `on_stopped()` and `on_new_leader(identity)` are called in order, in a thread of their own, and must
    be short; what they raise is logged. `on_stopped` is called once for each `on_started`. They are for logs and
    metrics. Do not put work there that only the leader may do: give it to a `Manager`, or write it after `lock.wait()`
    in `with elect(client, election) as lock:`.

    Raises RequestError for names that no Lease can have, for callbacks that cannot be called, and for times that do not
    fit together.

    >>> election = LeaderElection("my-operator", "default", lease=15, renew_deadline=10, retry=2)
    >>> with elect(client, election) as lock:
    ...     lock.wait(timeout=10)
    True
    """

    name: str
    namespace: str | None = None
    _: KW_ONLY
    identity: str | None = None
    lease: Duration = 15
    renew_deadline: Duration = 10
    retry: Duration = 2
    release: bool = True
    on_started: Callable[[], object] | None = field(default=None, repr=False)
    on_stopped: Callable[[], object] | None = field(default=None, repr=False)
    on_new_leader: Callable[[str], object] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_flags(self, "release")
        checked_subdomain(self.name, "the name of a Lease")
        if self.namespace is not None:
            checked_label(self.namespace, f"the namespace of Lease {self.name}")
        if self.identity is not None and (not isinstance(self.identity, str) or not self.identity):
            raise RequestError(f"election {self.name}: the identity is {self.identity!r}; None makes one up")
        for what, callback, arguments in (("on_started", self.on_started, ()), ("on_stopped", self.on_stopped, ()),
                                          ("on_new_leader", self.on_new_leader, ("identity",))):
            if callback is not None:
                check_callback(f"election {self.name}: {what}", callback, *arguments)
        for what, given in (("lease", self.lease), ("renew_deadline", self.renew_deadline), ("retry", self.retry)):
            if isinstance(given, str | bool) or not 0 < seconds(given) < float("inf"):
                raise RequestError(f"election {self.name}: {what} has to be positive, not {given!r}")
        lease, deadline, retry = seconds(self.lease), seconds(self.renew_deadline), seconds(self.retry)
        if lease != int(lease):
            raise RequestError(f"election {self.name}: a Lease counts whole seconds, which lease={self.lease!r} is not")
        if deadline >= lease:
            raise RequestError(f"election {self.name}: renew_deadline has to be less than lease, not {deadline:g} and "
                               f"{lease:g} s: the holder has to stop before another begins")
        if retry * JITTER >= deadline:
            raise RequestError(f"election {self.name}: {JITTER} times retry has to be less than renew_deadline, not "
                               f"{retry:g} and {deadline:g} s: a single lost answer would end the leadership")


def checked_election(client: object, election: LeaderElection) -> LeaderElection:
    """The election. Raises RequestError when it, or the client, is none."""
    check_client(client, "elect")
    check_type("election", election, LeaderElection, "LeaderElection('my-operator')")
    return election


class LeaseStore:
    """Reads and writes one Lease. For one thread at a time."""

    def __init__(self, client: Client, name: str, namespace: str, trouble: Trouble, *,
                 labels: Mapping[str, str] | None = None) -> None:
        """`client` makes the requests; nothing is sent yet. `labels` that the Lease is to have. `trouble` keeps what
        fails. Raises RequestError for a client of dry runs."""
        if client.write_defaults.dry_run:
            raise RequestError(f"the Lease {name} cannot be held by a client whose writes are dry runs: give the "
                               "election a client without dry_run=True")
        self._client = client
        self._name = name
        self._place = Place(api_resource_of(Lease), namespace)
        self._labels = dict(labels or {})
        self._received: bytes | None = None
        self.trouble = trouble

    def perform(self, request: Request, timeout: float) -> Answer:
        """Carry out `request`, in `timeout` seconds at most. Blocks; raises nothing."""
        try:
            answer: Answer = self._perform(request, timeout)
        except ApiError as error:
            found = None if isinstance(error, KindNotServedError) else _meaning(request, error)
            if found is None:
                self.trouble.failed(self._name, request, error)
                return Failed()
            answer = found
        except BaseException as error:  # noqa: BLE001 - layers, credentials and observers are other people's code
            self.trouble.failed(self._name, request, error)
            return Failed()
        self.trouble.worked(self._name, request)
        return answer

    def _perform(self, request: Request, timeout: float) -> Read | Written:
        match request:
            case Get():
                return Read(self._send(build.get(self._place, self._name), timeout))
            case Create(record):
                fresh = Lease(name=self._name, namespace=self._place.namespace, labels=self._labels or None)
                record.write_to(fresh)
                return Written(self._send(build.create(self._place, fresh), timeout))
            case Update(record):
                assert self._received is not None, "a Lease is read before it is written"
                lease = Lease.from_bytes(self._received)
                record.write_to(lease)
                if not self._labels.items() <= lease.labels.items():
                    lease.metadata.labels = {**lease.labels, **self._labels}
                return Written(self._send(build.replace(self._place, lease), timeout))

    def _send(self, request: build.Request, timeout: float) -> LeaseRecord:
        once = replace(request, retry=Retry.NEVER)
        answer = self._client.request(once, deadline=self._client.clock.monotonic() + timeout)
        record = LeaseRecord.of(Lease.from_bytes(answer))
        self._received = answer
        return record


FIRST_REPEAT, LONGEST_REPEAT = 10.0, 60.0
"""Seconds until a failure that lasts is logged again, doubling."""


REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
"""What does not pass by itself: no rights, or no such namespace."""


PATIENCE = 5.0
"""Seconds for which requests may fail before that counts; what the server refuses counts at once."""


class Trouble:
    """The failing requests for Leases. The log gets the first of each kind, repeats while it lasts, and the end of all.
    That a Lease can be read does not end the trouble of writing it. Safe to use from any thread."""

    def __init__(self, whose: str, clock: Clock, repeated_within: float) -> None:
        """Nothing has failed yet. `whose`: what log lines begin with. `repeated_within`: seconds in which a
        request that failed is made again; if it is not, nobody needs it any more."""
        self._whose, self._clock, self._repeated_within = whose, clock, repeated_within
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, bool], tuple[type[BaseException], int]] = {}
        self._last_at: dict[tuple[str, bool], float] = {}
        self._since = self._again_at = 0.0
        self._repeat = FIRST_REPEAT
        self._text, self._refused = "", False

    @property
    def reason(self) -> str:
        """Why this process cannot take part: what fails. Empty when nothing does, and in the first `PATIENCE` seconds
        of what may pass by itself. Does not block."""
        with self._lock:
            now = self._clock.monotonic()
            lasts = any(now - at < self._repeated_within for at in self._last_at.values())
            return self._text if lasts and (self._refused or now - self._since >= PATIENCE) else ""

    def failed(self, name: str, request: object, error: BaseException) -> None:
        """`request` for the Lease `name` failed."""
        reason = error_behind(error) or error
        kind = type(reason), reason.code if isinstance(reason, ApiError) else 0
        what = "" if isinstance(error, KubeError) else f"{type(request).__name__.lower()} failed: "
        text = f"{self._whose}: {error if isinstance(error, KubeError) else what + described(error)}"
        now = self._clock.monotonic()
        with self._lock:
            known = kind in self._kinds.values()
            if all(now - at >= self._repeated_within for at in self._last_at.values()):
                self._since, self._again_at, self._repeat = now, now + FIRST_REPEAT, FIRST_REPEAT
            which = name, isinstance(request, Get)
            self._kinds[which], self._last_at[which] = kind, now
            self._text, self._refused = text, isinstance(reason, ApiError) and reason.code in REFUSED
            repeated = known and now >= self._again_at
            if repeated:
                self._repeat = min(2 * self._repeat, LONGEST_REPEAT)
                self._again_at = now + self._repeat
            lasts = now - self._since
        if not known:
            log.warning("%s", text, exc_info=None if isinstance(error, KubeError) else error)
        elif repeated:
            log.warning("%s; still so after %.0f s", text, lasts)

    def worked(self, name: str, request: object) -> None:
        """`request` for the Lease `name` was answered."""
        if not self._kinds:
            return
        with self._lock:
            self._last_at.pop((name, isinstance(request, Get)), None)
            over = self._kinds.pop((name, isinstance(request, Get)), None) is not None and not self._kinds
        if over:
            log.info("%s: the server answers again", self._whose)


def _meaning(request: Request, error: ApiError) -> Answer | None:
    """What an error says of the Lease; None: nothing."""
    if isinstance(request, Get):
        return Read(None) if error.is_not_found else None
    if error.code == HTTPStatus.CONFLICT or (isinstance(request, Update) and error.is_not_found):
        return Conflict()
    return None
