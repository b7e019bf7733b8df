"""`LeaderElection`: which Lease decides, and how long its holder counts. Checked when made.

    lease            how long a holder that is not heard of still counts, for the others; a whole number of seconds
    renew_deadline   how long a holder whose renewals fail still counts, for itself; shorter, so that it has stopped
                     before anybody else begins
    retry            how often the holder renews, and the longest time between two looks of somebody who stands by

The defaults, 15, 10 and 2 s, are those of client-go and of Kubernetes's own components; and so is the rule that
`retry * 1.2` has to fit into the renew deadline. All candidates for one Lease should have the same times; where they do
not, the time that the holder wrote into the record counts.
"""
from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests.names import checked_label, checked_subdomain
from kubectl_runtime.core.requests.param_rules import check_flags
from kubectl_runtime.runtime.given import check_callback, check_client, check_type

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
