"""The values and requests of leader election.

- `LeaderElection`: the name and the times of the Lease that decides an election. The defaults of 15, 10 and 2 s and the
  rule that `retry * 1.2` must be below `renew_deadline` are those of client-go and of Kubernetes's own components. All
  candidates for one Lease should use the same times. If they differ, the duration that the holder wrote into the Lease
  is decisive.
- `LeaseRecord`: the content of a Lease. Missing fields are read as in client-go: a missing holder as an empty text,
  missing transitions as 0. The times are only informative: no code compares them with a clock.
- `LeaseStore`: carries out the requests of `lease_machine` on one Lease. Each request is sent once, since the machine
  has its own retries. A write without a response counts as failed; after a failed write the machine reads the Lease.
  Other content of the Lease (labels, a preferred holder) stays unchanged.
- `Trouble`: the reason why Leases cannot be read or written. It logs the first failure of each kind at once. A lasting
  failure is logged again after 10 s, and then at intervals that double up to a minute.

The remaining classes are the inputs and actions in the table of `lease_machine`.
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
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, error_behind
from kubectl_runtime.core.base.guard import check_callback, check_client, check_type, described, guarded_logger
from kubectl_runtime.core.base.threads import Clock, Duration, seconds
from kubectl_runtime.core.meta.gvk import api_resource_of
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import check_flags
from kubectl_runtime.core.requests.request import Place, Retry, checked_label, checked_subdomain
from kubectl_runtime.resources.coordination_v1 import Lease, LeaseSpec

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who holds a Lease, since when, and how long a renewal lasts. `duration`: seconds, or None if missing."""

    holder: str = ""
    duration: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    transitions: int = 0

    @classmethod
    def of(cls, lease: Lease) -> LeaseRecord:
        """Read the record from `lease`. Raises DecodeError when its content is not a LeaseSpec."""
        spec = lease.spec if lease.get("spec") is not None else LeaseSpec()
        return cls(spec.holder_identity or "", spec.lease_duration_seconds, spec.acquire_time, spec.renew_time,
                   spec.lease_transitions or 0)

    def write_to(self, lease: Lease) -> None:
        """Write the record into `lease`; other content is kept."""
        if lease.get("spec") is None:
            lease.spec = LeaseSpec()
        spec = lease.spec
        spec.holder_identity = self.holder or None
        spec.lease_duration_seconds = self.duration
        spec.acquire_time, spec.renew_time = self.acquire_time, self.renew_time
        spec.lease_transitions = self.transitions


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a step. `at`: seconds on a clock that counts suspended time; `date`: the date and time to write into
    the record; `chance`: a random number in [0, 1) for the jitter."""

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
    """Our write succeeded; the Lease now has this record."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write was refused, because another candidate wrote first or the Lease does not exist any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """There was no response, or an error that says nothing about the Lease. A write may have been carried out."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """This process wants to lead again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The work has ended, and this process stops being a candidate. `within`: seconds after which the release is given
    up."""

    release: bool
    within: float


Answer: TypeAlias = Read | Written | Conflict | Failed
Input: TypeAlias = Tick | Answer | Campaign | Leave

# Actions


@dataclass(frozen=True, slots=True)
class Get:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the Lease with this record."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Update:
    """Write the record into the Lease, if its resourceVersion is still the one that was last read or written."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before the time `until` (on the clock of `Now.at`), unless a Campaign or Leave comes."""

    until: float


Request: TypeAlias = Get | Create | Update
Action: TypeAlias = Request | Wait


log = guarded_logger(__name__)


JITTER = 1.2
"""client-go's JitterFactor."""


def own_identity() -> str:
    """The host's name and a random part: unique among processes and among restarts of one Pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class LeaderElection:
    """Describes the election of a leader among several processes: `LeaderElection("my-operator")`. Durations are
    seconds or `timedelta`.

    - `name`, `namespace`: the name and namespace of the Lease (default namespace: the client's, in a cluster the
      Pod's).
    - `identity`: the name of this process as the holder; default: the host's name and a random part. Identities that
      you choose must differ between replicas, because a process that reads its own identity in the Lease assumes that
      it is the holder.
    - `release`: whether to release the Lease when the work has ended, so that another replica leads at once instead of
      waiting until the Lease expires.
    - `lease`: how long other candidates wait for a holder that does not renew; a whole number of seconds.
    - `renew_deadline`: how long a holder whose renewals fail continues to lead. It must be shorter than `lease`, so
      that the holder stops before another candidate leads.
    - `retry`: the time between two renewals, and the longest time between a standby's reads.

    `on_started()`, `on_stopped()` and `on_new_leader(identity)` are called one after the other, in a thread of their
    own. They should return quickly; their exceptions are logged. `on_stopped` is called once for each `on_started`. The
    callbacks are for logs and metrics. Work that only the leader may do belongs in a `Manager`, or after `lock.wait()`
    in `with elect(client, election) as lock:`.

    Raises RequestError for names that a Lease cannot have, for callbacks that cannot be called, and for times that
    contradict each other.

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
            raise RequestError(f"election {self.name}: identity must be a non-empty text, not {self.identity!r}")
        for what, callback, arguments in (("on_started", self.on_started, ()), ("on_stopped", self.on_stopped, ()),
                                          ("on_new_leader", self.on_new_leader, ("identity",))):
            if callback is not None:
                check_callback(f"election {self.name}: {what}", callback, *arguments)
        for what, given in (("lease", self.lease), ("renew_deadline", self.renew_deadline), ("retry", self.retry)):
            if isinstance(given, str | bool) or not 0 < seconds(given) < float("inf"):
                raise RequestError(f"election {self.name}: {what} has to be positive, not {given!r}")
        lease, deadline, retry = seconds(self.lease), seconds(self.renew_deadline), seconds(self.retry)
        if lease != int(lease):
            raise RequestError(f"election {self.name}: lease must be a whole number of seconds, not {self.lease!r}")
        if deadline >= lease:
            raise RequestError(f"election {self.name}: renew_deadline ({deadline:g} s) has to be less than lease "
                               f"({lease:g} s): the holder has to stop before another candidate leads")
        if retry * JITTER >= deadline:
            raise RequestError(f"election {self.name}: {JITTER} times retry ({retry:g} s) is {JITTER * retry:g} s, "
                               f"which has to be less than renew_deadline ({deadline:g} s): otherwise a single lost "
                               "response would end the leadership")


def checked_election(client: object, election: LeaderElection) -> LeaderElection:
    """Return the election. Raises RequestError when the argument is not a LeaderElection."""
    check_client(client, "elect")
    check_type("election", election, LeaderElection, "LeaderElection('my-operator')")
    return election


class LeaseStore:
    """Reads and writes one Lease. Only one thread at a time may use it."""

    def __init__(self, client: Client, name: str, namespace: str, trouble: Trouble, *,
                 labels: Mapping[str, str] | None = None) -> None:
        """Sends no request. `labels` are added to the Lease; `trouble` records failures. Raises RequestError for a
        client with `dry_run=True`."""
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
        """Carry out `request` within `timeout` seconds. Blocks; raises nothing."""
        try:
            answer: Answer = self._perform(request, timeout)
        except ApiError as error:
            found = None if isinstance(error, KindNotServedError) else _meaning(request, error)
            if found is None:
                self.trouble.failed(self._name, request, self._with_remedy(request, error))
                return Failed()
            answer = found
        except BaseException as error:  # noqa: BLE001 - layers, credentials and observers are other people's code
            self.trouble.failed(self._name, request, error)
            return Failed()
        self.trouble.worked(self._name, request)
        return answer

    def _with_remedy(self, request: Request, error: ApiError) -> ApiError:
        if not isinstance(request, Create) or not error.is_not_found or isinstance(error, KindNotServedError):
            return error
        namespace = self._place.namespace
        return ApiError(error.status, error.operation, remedy=f"Nothing is reconciled without this Lease: create the "
                        f"namespace {namespace} (kubectl create namespace {namespace}; with `run --dev`, --load a file "
                        "that contains it)")

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
"""Seconds until a lasting failure is logged again: the first pause, and the limit up to which the pause doubles."""


REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Status codes of errors that do not disappear by themselves, such as missing permissions or a missing namespace."""


PATIENCE = 5.0
"""Seconds for which requests may fail before the process is reported as not ready. A failure with a code in `REFUSED`
makes the process not ready immediately."""


class Trouble:
    """The failing requests for Leases. It logs the first failure of each kind, repetitions of a lasting failure, and
    the recovery. Reads and writes of a Lease count separately: a successful read does not clear a failed write.
    Thread-safe."""

    def __init__(self, whose: str, clock: Clock, repeated_within: float) -> None:
        """`whose`: the prefix of log lines. `repeated_within`: seconds in which a failed request is repeated. A request
        that is not repeated by then is no longer needed, and its failure is dropped."""
        self._whose, self._clock, self._repeated_within = whose, clock, repeated_within
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, bool], tuple[type[BaseException], int]] = {}
        self._last_at: dict[tuple[str, bool], float] = {}
        self._since = self._again_at = 0.0
        self._repeat = FIRST_REPEAT
        self._text, self._refused = "", False

    @property
    def reason(self) -> str:
        """Why this process cannot take part in the election: the failing request. Empty without failures, and in the
        first `PATIENCE` seconds of a failure that may disappear by itself. Does not block."""
        with self._lock:
            now = self._clock.monotonic()
            lasts = any(now - at < self._repeated_within for at in self._last_at.values())
            return self._text if lasts and (self._refused or now - self._since >= PATIENCE) else ""

    def failed(self, name: str, request: object, error: BaseException) -> None:
        """Record that `request` for the Lease `name` failed."""
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
        """Record that `request` for the Lease `name` succeeded."""
        if not self._kinds:
            return
        with self._lock:
            self._last_at.pop((name, isinstance(request, Get)), None)
            over = self._kinds.pop((name, isinstance(request, Get)), None) is not None and not self._kinds
        if over:
            log.info("%s: the server answers again", self._whose)


def _meaning(request: Request, error: ApiError) -> Answer | None:
    """What an error response says about the Lease; None if it says nothing."""
    if isinstance(request, Get):
        return Read(None) if error.is_not_found else None
    if error.code == HTTPStatus.CONFLICT or (isinstance(request, Update) and error.is_not_found):
        return Conflict()
    return None
