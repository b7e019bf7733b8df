"""The elector with threads, against the embedded server: what a lock says, what its client refuses, how it ends."""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from kubectl_runtime import Api, Client, Config, LeaderElection, Manager, Patch, RequestError, StopToken, elect
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.base.errors import ApiError, Status, TransportError
from kubectl_runtime.core.base.threads import SystemClock
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.errors import NotLeaderError
from kubectl_runtime.manager.elector import LeaderLock, only_while_leading
from kubectl_runtime.manager.leases import Get, LeaseRecord, LeaseStore, Tick, Trouble, Update, Wait
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.testing.clock import SimClock

LIMIT = 20
STEADY: dict[str, Any] = {"lease": 60, "renew_deadline": 40, "retry": 0.3}
"""Of who is to keep the Lease, however long a busy machine lets his threads wait."""
FAST: dict[str, Any] = {"lease": 1, "renew_deadline": 0.6, "retry": 0.1}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("election")]
    assert [thread.name for thread in left] == []


def leases(client: Client) -> Api[Lease]:
    return Api.namespaced(client, Lease, "default")


def until(done: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.01)


def test_the_only_candidate_leads_and_gives_the_lease_back(client: Client) -> None:
    with elect(client, LeaderElection("only", identity="me")) as lock:
        assert lock.wait(LIMIT)
        assert (lock.is_leader, lock.leader, lock.lost.is_set()) == (True, "me", False)
        spec = leases(client).get("only").spec
        assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("me", 15, 0)
        lost = lock.lost
    assert not lock.is_leader
    assert lost.is_set()
    assert "given up" in lost.reason
    spec = leases(client).get("only").spec
    assert (spec.holder_identity, spec.lease_duration_seconds) == (None, 1)


@pytest.mark.parametrize("spec", [
    {"holderIdentity": "", "leaseDurationSeconds": 1}, {"holderIdentity": None}, None, {}])
def test_a_lease_that_says_little_is_taken_at_once(client: Client, spec: Any) -> None:
    name = f"little-{abs(hash(str(spec)))}"
    leases(client).create({"metadata": {"name": name, "labels": {"kept": "yes"}}, "spec": spec})
    with elect(client, LeaderElection(name, identity="me")) as lock:
        assert lock.wait(LIMIT)
        found = leases(client).get(name)
        assert (found.spec.holder_identity, found.spec.lease_transitions, found.labels) == ("me", 1, {"kept": "yes"})


def test_a_released_lease_goes_to_the_one_who_stands_by(client: Client) -> None:
    with elect(client, LeaderElection("handed", identity="b", **STEADY)) as second:
        second.wait(LIMIT)
        with elect(client, LeaderElection("handed", identity="a", **STEADY)) as third:
            assert not third.wait(0.5)
            second.close()
            assert third.wait(LIMIT)  # without the release: at least what is left of the lease, which is more


def test_a_lease_that_is_not_to_be_released_is_left_as_it_is(client: Client) -> None:
    with elect(client, LeaderElection("kept", identity="me", release=False)) as lock:
        lock.wait(LIMIT)
    assert leases(client).get("kept").spec.holder_identity == "me"


def test_a_release_leaves_a_successor_alone(client: Client) -> None:
    with elect(client, LeaderElection("taken", identity="me")) as lock:
        lock.wait(LIMIT)
        leases(client).patch("taken", merge({"holderIdentity": "successor"}))
    assert leases(client).get("taken").spec.holder_identity == "successor"


def merge(spec: dict[str, Any]) -> Any:
    return Patch.merge({"spec": spec})


class Story:
    """What the callbacks told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def election(self, name: str, **times: Any) -> LeaderElection:
        return LeaderElection(name, identity="me", **times, on_started=lambda: self.told.append("started"),
                              on_stopped=lambda: self.told.append("stopped"),
                              on_new_leader=self.told.append)


def test_a_lease_that_was_taken_away_ends_the_leadership_once_and_can_be_won_again(client: Client) -> None:
    story = Story()
    with elect(client, story.election("stolen", **STEADY)) as lock:
        assert lock.wait(LIMIT)
        first = lock.lost
        leases(client).patch("stolen", merge({"holderIdentity": "thief", "leaseDurationSeconds": 1}))
        assert first.wait(LIMIT)
        assert "thief holds it" in first.reason
        assert not lock.is_leader
        assert not threading.Event().wait(1.5)  # it does not come back by itself, though the thief's time is over
        assert not lock.is_leader
        assert lock.wait(LIMIT)
        assert lock.lost is not first
        assert not lock.lost.is_set()
    assert story.told == ["me", "started", "thief", "stopped", "me", "started", "stopped"]


def test_a_callback_may_raise_and_may_end_the_candidacy(client: Client) -> None:
    ended = threading.Event()

    def give_up() -> None:
        lock.close()
        ended.set()
        raise SystemExit("planned")

    lock = elect(client, LeaderElection("callback", on_started=give_up))
    with lock:
        assert ended.wait(LIMIT)
    assert not leases(client).get("callback").spec.holder_identity


def test_a_deleted_lease_is_made_anew_by_its_holder(client: Client) -> None:
    with elect(client, LeaderElection("deleted", identity="me", **STEADY)) as lock:
        lock.wait(LIMIT)
        leases(client).delete("deleted")
        until(lambda: leases(client).get_opt("deleted"), "it was not made anew")
        assert leases(client).get("deleted").spec.holder_identity == "me"
        assert lock.is_leader


def test_waiting_ends_at_its_timeout_at_a_stop_and_with_the_candidacy(client: Client) -> None:
    with elect(client, LeaderElection("waited", identity="first")) as first:
        first.wait(LIMIT)
        with elect(client, LeaderElection("waited", identity="second")) as second:
            assert second.wait(0.05) is False
            stop = StopToken()
            threading.Timer(0.05, stop.set).start()
            assert second.wait(LIMIT, stop=stop) is False
            threading.Timer(0.05, second.close).start()
            with pytest.raises(NotLeaderError, match="candidacy has ended"):
                second.wait(LIMIT)
            assert second.lost.is_set()


def test_a_candidacy_has_to_be_begun_and_is_begun_once(client: Client) -> None:
    lock = elect(client, LeaderElection("once"))
    with pytest.raises(RequestError, match="has not begun: write `with elect"):
        lock.wait(0)
    with lock, pytest.raises(RequestError, match="was entered before"):
        lock.start()


# --- the client of the elected one ---


def test_the_locks_client_writes_only_while_it_leads(client: Client) -> None:
    lock = elect(client, LeaderElection("writes", identity="me"))
    maps = Api.namespaced(lock.client, ConfigMap, "default")
    told: list[str] = []
    forget = client.on_write(lambda write: told.append(write.ref.name))
    with pytest.raises(NotLeaderError, match=r"default/a: not sent, because me does not lead .*standby"):
        maps.create({"metadata": {"name": "a"}})
    with lock:
        lock.wait(LIMIT)
        maps.create({"metadata": {"name": "a"}})
    assert maps.get("a").name == "a"  # reading goes on
    for refused in (lambda: maps.delete("a"), lambda: maps.replace(maps.get("a")),
                    lambda: maps.apply({"metadata": {"name": "a"}}, field_manager="x"),
                    maps.delete_collection):
        with pytest.raises(NotLeaderError):
            refused()
    assert told == ["a"]  # the observers of the client hear of what is written through it
    forget()


@pytest.mark.parametrize(("method", "left"), [("POST", 3.0), ("DELETE", 3.0), ("GET", None)])
def test_a_write_is_connected_no_longer_than_it_may_be_sent(method: str, left: float | None) -> None:
    """A connection that comes about later would be of no use, and its write must not wait for it."""
    clock, seen = SimClock(), list[Call]()

    def send(call: Call) -> Answer:
        seen.append(call)
        return Answer(200, {})

    fence = only_while_leading(lambda: clock.boottime() + 3, lambda: "it does not lead", clock)
    fence(send)(Call(Request(method, "/api/v1/x", "any", None, "x"), clock.monotonic() + 60, StopToken(clock=clock)))
    assert seen[0].send_by == (float("inf") if left is None else pytest.approx(clock.monotonic() + left))


class Wire:
    """A layer: what passes it, and what is done to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broken = threading.Event()
        self.hang = threading.Event()
        self.hangs_no_more = threading.Event()

    def layer(self, send: Send) -> Send:
        def passing(call: Call) -> Answer:
            if "leases" not in call.url:
                self.seen.append(call.request.method)
            elif self.hang.is_set():
                self.hangs_no_more.wait(LIMIT)
            elif self.broken.is_set():
                raise ConnectionError("planned")
            return send(call)

        return passing


def test_the_check_is_the_last_thing_before_an_attempt_and_made_for_each(client: Client) -> None:
    wire = Wire()

    def slow(send: Send) -> Send:
        def passing(call: Call) -> Answer:
            if call.request.method == "POST" and "configmaps" in call.url:
                lock.close()  # the leadership ends between the first layer and the connection
            return send(call)

        return passing

    with Client(client.config, layers=[wire.layer, slow]) as observed:
        lock = elect(observed, LeaderElection("last", identity="me"))
        with lock:
            lock.wait(LIMIT)
            with pytest.raises(NotLeaderError):
                Api.namespaced(lock.client, ConfigMap, "default").create({"metadata": {"name": "late"}})
        assert wire.seen == ["POST"]
    assert Api.namespaced(client, ConfigMap, "default").get_opt("late") is None


def test_leadership_ends_at_the_deadline_while_a_renewal_hangs(client: Client) -> None:
    wire = Wire()
    with Client(client.config, layers=[wire.layer]) as observed:
        with elect(observed, LeaderElection("hanging", **FAST)) as lock:
            try:
                assert lock.wait(LIMIT)
                wire.hang.set()
                begin = time.monotonic()
                assert lock.lost.wait(LIMIT)
                assert time.monotonic() - begin < LIMIT / 2  # the request itself hangs for twice as long
                assert "deadline" in lock.lost.reason
            finally:  # or closing would wait as long as the request
                wire.hang.clear()
                wire.hangs_no_more.set()


class Jumping(SystemClock):
    """The system's clock, with the time that a test says has passed."""

    passed = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() + self.passed

    def boottime(self) -> float:
        return super().boottime() + self.passed


def test_trouble_is_logged_once_and_so_is_its_end(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    wire, clock = Wire(), Jumping()
    caplog.set_level(logging.INFO, "kubectl_runtime.manager")

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
                and record.name.startswith("kubectl_runtime.manager")]

    with Client(client.config, layers=[wire.layer], clock=clock) as observed:
        with elect(observed, LeaderElection("troubled", **STEADY)) as lock:
            assert lock.wait(LIMIT)
            wire.broken.set()
            until(warnings, "trouble is logged")
            clock.passed = STEADY["renew_deadline"]
            assert lock.lost.wait(LIMIT)
            wire.broken.clear()
            assert lock.wait(LIMIT)
            until(lambda: "answers again" in caplog.text, "its end is logged")
    (warning,) = warnings()
    assert "planned" in warning


def test_trouble_that_lasts_is_repeated_and_counts_when_it_does_not_pass(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    trouble = Trouble("lease default/a", clock, 10)
    refused = ApiError(Status(code=403, reason="Forbidden", message="no rights"), "get leases")
    assert trouble.reason == ""
    for _ in range(100):
        trouble.failed("a", Get(), refused)
        assert "no rights" in trouble.reason
        clock.advance(2)
    assert [line.partition("; ")[2] for line in caplog.messages] == [
        "", "still so after 10 s", "still so after 30 s", "still so after 70 s", "still so after 130 s",
        "still so after 190 s"]
    trouble.worked("a", Get())
    assert trouble.reason == ""


@pytest.mark.parametrize("error", [TransportError("reset"), ApiError(Status(code=503), "get leases"), OSError("odd")])
def test_trouble_that_may_pass_counts_after_a_while_and_not_when_nothing_is_asked_any_more(error: Exception) -> None:
    clock = SimClock()
    trouble = Trouble("lease default/a", clock, 10)
    trouble.worked("a", Get())
    for seconds in range(0, 8, 2):
        trouble.failed("a", Update(LeaseRecord()), error)
        trouble.worked("a", Get())
        assert bool(trouble.reason) is (seconds >= 5)
        clock.advance(2)
    clock.advance(10)
    assert trouble.reason == "", "another one holds it, and it is only read now"


def test_a_defect_ends_the_candidacy_and_the_manager_with_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("planned")

    monkeypatch.setattr(LeaseStore, "perform", broken)
    with elect(client, LeaderElection("defect")) as lock, pytest.raises(NotLeaderError, match="a defect: Assertion"):
        lock.wait(LIMIT)
    with pytest.raises(NotLeaderError, match="a defect: Assertion"):
        Manager(client, leader=LeaderElection("defect"), serve=None).run()


def test_a_suspension_beyond_the_deadline_is_seen_at_once() -> None:
    server, clock = ApiServer(), SimClock(self_advancing=True)
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=clock) as client:
        lock = LeaderLock(client, LeaderElection("asleep", "default", identity="me"))
        # by hand, as its threads would
        action = lock._step(Tick())
        while not isinstance(action, Wait):
            action = lock._step(lock._store.perform(action, 5))
        assert lock.is_leader
        maps = Api.namespaced(lock.client, ConfigMap, "default")
        maps.create({"metadata": {"name": "awake"}})
        clock.suspend(9.9)
        assert lock.is_leader
        clock.suspend(0.2)
        assert not lock.is_leader
        with pytest.raises(NotLeaderError):
            maps.create({"metadata": {"name": "asleep"}})
        assert clock.monotonic() < 5  # nothing else has told it of the time that has passed


@pytest.mark.parametrize("how", ["lost", "504", "etcd's 500"])
@pytest.mark.parametrize("which", ["create", "update"])
def test_a_lost_answer_is_looked_up_and_ends_no_leadership(which: str, how: str) -> None:
    with ApiServer() as server, server.client() as client:
        rule = server.faults.on(which).first(1)
        if how == "lost":
            rule.lose_answer()
        else:
            code, said = (504, "") if how == "504" else (500, "etcdserver: request timed out")
            rule.status(code, message=said, handled=True)
        with elect(client, LeaderElection("a", identity="me", **STEADY)) as lock:
            assert lock.wait(LIMIT)
            until(lambda: [entry.verb for entry in server.requests].count("update") > 2, "no renewal")
            assert (lock.is_leader, lock.lost.is_set()) == (True, False)
            spec = leases(client).get("a").spec
            assert (spec.holder_identity, spec.lease_transitions) == ("me", 0)
        verbs = [entry.verb for entry in server.requests]
        assert rule.taken == 1
        assert verbs[verbs.index(which) + 1] == "get", "it reads what has become of it"
        assert verbs.count("create") == 1
        assert not leases(client).get("a").spec.holder_identity


def test_a_release_whose_answer_is_lost_is_not_made_twice() -> None:
    with ApiServer() as server, server.client() as client:
        with elect(client, LeaderElection("a", identity="me", **STEADY)) as lock:
            assert lock.wait(LIMIT)
            server.requests.clear()
            server.faults.on("update").first(1).lose_answer()
        assert [entry.verb for entry in server.requests][-3:] == ["get", "update", "get"]
        assert not leases(client).get("a").spec.holder_identity
