"""`LeaderElection` is checked when it is made, and names what does not fit."""
from __future__ import annotations

from datetime import timedelta

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.manager.leases import LeaderElection, own_identity


def test_the_defaults_are_client_gos() -> None:
    election = LeaderElection("my-operator")
    assert (election.lease, election.renew_deadline, election.retry, election.release) == (15, 10, 2, True)
    assert election.namespace is None


def test_durations_may_be_timedeltas() -> None:
    LeaderElection("a", lease=timedelta(minutes=1), renew_deadline=timedelta(seconds=40), retry=timedelta(seconds=5))


@pytest.mark.parametrize(("arguments", "said"), [
    ({"lease": 10, "renew_deadline": 10}, r"renew_deadline \(10 s\) has to be less than lease \(10 s\)"),
    ({"lease": 8}, r"renew_deadline \(10 s\) has to be less than lease \(8 s\)"),
    ({"renew_deadline": 2.4, "retry": 2}, r"is 2\.4 s, which has to be less than renew_deadline \(2\.4 s\)"),
    ({"retry": 9}, r"1\.2 times retry \(9 s\) is 10\.8 s, which has to be less than renew_deadline \(10 s\)"),
    ({"lease": 0}, r"lease has to be positive, not 0"),
    ({"renew_deadline": -1}, r"renew_deadline has to be positive, not -1"),
    ({"retry": float("nan")}, r"retry has to be positive, not nan"),
    ({"lease": float("inf")}, r"lease has to be positive, not inf"),
    ({"retry": "2"}, r"retry has to be positive, not '2'"),
    ({"lease": 15.5}, r"lease must be a whole number of seconds, not 15.5"),
    ({"identity": ""}, r"identity must be a non-empty text"),
])
def test_times_that_do_not_fit_together_are_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        LeaderElection("a", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", "a" * 254, "a\n"])
def test_names_that_no_lease_can_have_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="name of a Lease"):
        LeaderElection(name)


@pytest.mark.parametrize("namespace", ["", "A", "a.b", "a" * 64])
def test_namespaces_that_there_cannot_be_are_refused(namespace: str) -> None:
    with pytest.raises(RequestError, match="namespace of Lease a"):
        LeaderElection("a", namespace)


def test_an_identity_is_the_hosts_name_and_never_the_same() -> None:
    import socket

    first, second = own_identity(), own_identity()
    assert first != second
    assert first.rpartition("_")[0] == socket.gethostname()
