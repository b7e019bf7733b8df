"""The manager with threads, against the embedded server: what starts when, what ends it, and what it says of itself."""
from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client import CollectorRegistry

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Context,
    Controller,
    LeaderElection,
    Manager,
    Patch,
    RequestError,
    Sharding,
    StopToken,
    WatcherConfig,
    elect,
)
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.errors import ControllerError, LeadershipLost, NotLeaderError, SyncTimeoutError
from kubectl_runtime.manager.running import RunningManager
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.controller.running import DISPATCHER_LIMIT, Running
from kubectl_runtime.runtime.observe.health import HealthServer
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.runtime.observe.metrics import Metrics
from kubectl_runtime.runtime.reconcile.runner import Runner
from tests.examples.programs import ROOT, Program

LIMIT = 20
STEADY: dict[str, Any] = {"lease": 60, "renew_deadline": 40, "retry": 0.3}
"""Of who is to keep the Lease, however long a busy machine lets his threads wait."""


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as made:
        Api.namespaced(made, ConfigMap, "default").apply({"metadata": {"name": "a"}}, field_manager="test")
        yield made


@pytest.fixture(autouse=True)
def _no_thread_is_left(server: ApiServer, client: Client) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate()
            if thread not in before and not thread.name.startswith(("api-server", "apiserver"))]
    for thread in left:
        thread.join(LIMIT)
    assert [thread.name for thread in left if thread.is_alive()] == []


def until(done: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.01)


ANY_PORT = "127.0.0.1:0"


def address_of(running: RunningManager) -> str:
    """Where it serves."""
    (server,) = [one for one in running._servers._started if isinstance(one, HealthServer)]
    return f"127.0.0.1:{server.port}"


def nothing(obj: Any, ctx: Context[Any]) -> Action:
    return Action.await_change()


def maps(client: Client) -> Controller[ConfigMap]:
    return Controller(Api.namespaced(client, ConfigMap, "default"), concurrency=2)


class Events:
    """What happened, in order, from any thread."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, what: str) -> None:
        self.all.append(what)

    def server(self, name: str, error: Exception | None = None) -> Any:
        events = self

        class Recorded:
            def __init__(self) -> None:
                self.name = name

            def start(self) -> None:
                events(f"{name} starts")
                if error is not None:
                    raise error

            def stop(self, timeout: float) -> None:
                assert timeout > 0
                events(f"{name} stops")

        return Recorded()

    def runnable(self, name: str) -> Callable[[StopToken], None]:
        def run(stop: StopToken) -> None:
            self(f"{name} runs")
            stop.wait()
            self(f"{name} ends")

        return run

    def reconciler(self, name: str) -> Callable[[Any, Context[Any]], Action]:
        def reconcile(obj: Any, ctx: Context[Any]) -> Action:
            if f"{name} reconciles" not in self.all:
                self(f"{name} reconciles")
            return Action.await_change()

        return reconcile

    def wait_for(self, *wanted: str) -> None:
        until(lambda: set(wanted) <= set(self.all), f"{wanted} in {self.all}")


# --- without an election ---


def test_servers_start_first_in_their_order_and_stop_last_in_the_reverse_one(client: Client) -> None:
    events = Events()
    manager = Manager(client, serve=None)
    manager.add_runnable(events.runnable("work"), "work").add(maps(client), events.reconciler("maps"))
    manager.add_server(events.server("one")).add_server(events.server("two"))
    running = manager.start()
    events.wait_for("work runs", "maps reconciles")
    assert running.stop() == []
    assert events.all[:2] == ["one starts", "two starts"]
    assert events.all[-3:] == ["work ends", "two stops", "one stops"]


def test_a_server_that_cannot_listen_ends_the_start_and_those_before_it(client: Client) -> None:
    events = Events()
    manager = Manager(client, serve=None).add_runnable(events.runnable("work"), "work")
    manager.add_server(events.server("one")).add_server(events.server("two", OSError("the port is taken")))
    with pytest.raises(OSError, match="the port is taken"):
        manager.start()
    assert events.all == ["one starts", "two starts", "one stops"]


def test_the_first_failure_of_a_runnable_ends_everything_and_is_raised(client: Client) -> None:
    events = Events()

    def fails(stop: StopToken) -> None:
        raise ValueError("planned")

    manager = Manager(client, serve=None).add(maps(client), nothing)
    manager.add_runnable(events.runnable("other"), "other").add_runnable(fails, "failing")
    with pytest.raises(ValueError, match="planned"):
        manager.run()
    assert "other runs" not in events.all or "other ends" in events.all


def test_a_failure_while_the_rest_still_starts_is_raised_as_well(client: Client) -> None:
    failed = threading.Event()

    def fails(stop: StopToken) -> None:
        failed.set()
        raise ValueError("planned")

    def late(stop: StopToken) -> None:
        raise AssertionError("it must not run")

    manager = Manager(client, serve=None)
    manager.add_runnable(fails, "failing", needs_leader=False).add_runnable(late, "late", needs_leader=False)
    first = manager._members["failing"]
    begin = first.start
    first.start = lambda: (begin(), until(first.stop.is_set, "the end has begun"))  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="planned"):
        manager.run()
    assert failed.is_set()


def test_a_runnable_that_exits_ends_the_manager_with_its_exit(client: Client) -> None:
    def leaves(stop: StopToken) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Manager(client, serve=None).add_runnable(leaves, "leaving").run()


def test_a_runnable_that_just_ends_leaves_the_others_alone(client: Client) -> None:
    done = threading.Event()
    with Manager(client, serve=None).add_runnable(lambda stop: done.set(), "short").start() as running:
        assert done.wait(LIMIT)
        assert not running.wait(0.2)


def test_a_controller_that_ends_by_itself_ends_the_manager(client: Client) -> None:
    controller = Controller(Api.all(client, unserved())).sync_timeout(0.2)
    with pytest.raises(ControllerError, match="ended by itself"):
        Manager(client, serve=None).add(controller, nothing).run()


def unserved() -> Any:
    return ApiResource("example.com", "v1", "Missing", "missings")


def test_a_failure_while_nobody_waits_stops_a_started_manager(client: Client) -> None:
    gate = threading.Event()

    def fails(stop: StopToken) -> None:
        gate.wait(LIMIT)
        raise ValueError("planned")

    running = Manager(client, serve=None).add(maps(client), nothing).add_runnable(fails, "failing").start()
    gate.set()
    assert running.wait(LIMIT)
    assert "runnable failing failed: ValueError: planned" in running.reason
    until(lambda: running.phase == "stopped", "it has stopped by itself")
    assert isinstance(running.error, ValueError)
    with pytest.raises(ValueError, match="planned"):
        running.raise_error()


def test_what_is_added_later_starts_at_once_and_during_the_end_it_is_refused(client: Client) -> None:
    events = Events()
    manager = Manager(client, serve=None)
    running = manager.start()
    manager.add_runnable(events.runnable("late"), "late")
    manager.add(maps(client), events.reconciler("maps"))
    events.wait_for("late runs", "maps reconciles")
    running.stop()
    with pytest.raises(RequestError, match="cannot be added: the manager is stopped"):
        manager.add_runnable(events.runnable("later"), "later")
    with pytest.raises(RequestError, match="cannot be added: this manager was started"):
        manager.add_server(events.server("late"))


def test_a_manager_is_started_once_and_its_names_differ(client: Client) -> None:
    manager = Manager(client, serve=None).add(maps(client), nothing)
    with pytest.raises(RequestError, match="called configmap already"):
        manager.add(maps(client), nothing)
    with manager.start(), pytest.raises(RequestError, match="started already"):
        manager.start()


def test_a_bound_controller_brings_its_reconciler_context_and_error_policy_along(client: Client) -> None:
    seen, asked = [], threading.Event()

    def fails(obj: Any, ctx: Context[str]) -> Action:
        seen.append(ctx.data)
        raise OSError("planned")

    def policy(obj: Any, error: BaseException, ctx: Context[str]) -> Action:
        asked.set()
        return Action.await_change()

    manager = Manager(client, serve=None).add(only_a(client).bind(fails, context="data", error_policy=policy))
    with manager.start():
        assert asked.wait(LIMIT)
    assert seen == ["data"]


def test_what_is_no_controller_or_is_bound_twice_is_refused(client: Client) -> None:
    manager = Manager(client, serve=None)
    bound: Any = maps(client).bind(nothing)
    with pytest.raises(RequestError, match="bound to its reconciler"):
        manager.add(bound, nothing)
    with pytest.raises(RequestError, match="takes a Controller, not Api"):
        manager.add(Api.all(client, ConfigMap), nothing)  # type: ignore[call-overload]
    with pytest.raises(RequestError, match=r"with its reconciler: manager\.add\(controller, reconcile\)"):
        manager.add(maps(client))  # type: ignore[call-overload]

    def needs_data(obj: Any, ctx: Context[str]) -> Action:
        return Action.await_change()

    with pytest.raises(RequestError, match="no context= was given"):
        manager.add(maps(client), needs_data)  # type: ignore[arg-type]


def test_what_does_not_end_is_reported_thread_by_thread_within_one_deadline(client: Client) -> None:
    stuck, begun = threading.Event(), threading.Barrier(4)

    def stays(_obj: Any, _ctx: Any = None) -> Action:
        begun.wait(LIMIT)
        stuck.wait(LIMIT)
        return Action.await_change()

    manager = Manager(client, serve=None, grace=25)
    manager.add_runnable(stays, "one").add_runnable(stays, "two").add(only_a(client), stays)
    running = manager.start()
    begun.wait(LIMIT)
    begin = time.monotonic()
    left = running.stop(0.3)
    assert time.monotonic() - begin < 10
    assert sorted((one.owner, one.what) for one in left) == [
        ("configmap", "the reconciler of ConfigMap.v1./a.default"), ("one", "thread 'runnable one'"),
        ("two", "thread 'runnable two'")]
    assert all("in stays" in one.stack for one in left)
    assert running.stop() == left
    stuck.set()


def only_a(client: Client) -> Controller[ConfigMap]:
    return Controller(Api.namespaced(client, ConfigMap, "default"), concurrency=2,
                      watch=WatcherConfig(field_selector="metadata.name=a"))


def test_a_member_can_stop_its_manager(client: Client) -> None:
    holder: list[Any] = []
    ready = threading.Event()

    def ends_it(stop: StopToken) -> None:
        ready.wait(LIMIT)
        assert holder[0].stop() == []

    running = Manager(client, serve=None).add_runnable(ends_it, "ending").start()
    holder.append(running)
    ready.set()
    until(lambda: running.phase == "stopped", "it has stopped")
    assert running.error is None


def test_a_controllers_own_stop_token_ends_that_controller_alone(client: Client) -> None:
    token, events = StopToken(), Events()
    controller = maps(client).graceful_shutdown_on(token)
    manager = Manager(client, serve=None).add(controller, events.reconciler("maps"))
    with manager.start() as running:
        events.wait_for("maps reconciles")
        token.set("enough")
        until(lambda: not running.is_ready, "it has ended")
        assert running.why_not_ready == "controller configmap has ended: enough"
        assert not running.wait(0.1)


# --- readiness ---


def test_it_is_ready_when_every_store_is_complete_and_every_check_passes(client: Client) -> None:
    state: dict[str, Any] = {"one": False}

    def raising() -> None:
        if "two" in state:
            raise ValueError("no database")

    manager = Manager(client, serve=None).add(maps(client), nothing)
    manager.add_check("one", lambda: state["one"]).add_check("two", raising)
    with pytest.raises(RequestError, match="called one already"):
        manager.add_check("one", raising)
    with pytest.raises(RequestError, match="must not be empty or contain a slash"):
        manager.add_check("a/b", raising)
    for name in ("ping", "manager", "servers", "controller maps", "store configmaps"):
        with pytest.raises(RequestError, match="the manager's own checks have such names"):
            manager.add_check(name, raising)
    with manager.start() as running:
        until(lambda: running.why_not_ready == "check one: it returned False", running.why_not_ready)
        state.update(one=None, two=True)
        assert running.failing_checks() == {"two": "ValueError: no database"}
        assert not running.is_ready
        del state["two"]
        assert (running.is_ready, running.why_not_ready) == (True, "")
    assert not running.is_ready
    assert running.why_not_ready == "the manager is stopped: stop() was called"


def test_a_store_that_is_not_complete_is_named(client: Client) -> None:
    with Manager(client, serve=None).add(Controller(Api.all(client, unserved())), nothing).start() as running:
        until(lambda: "CRD" in running.why_not_ready, "the watch's error is told")
        assert "missings.example.com" in running.why_not_ready


def test_a_watch_that_keeps_failing_makes_it_unready_also_when_the_store_was_complete(
        client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with Manager(client, serve=None).add(maps(client), nothing).start() as running:
        until(lambda: running.is_ready, "the store is complete")
        trouble = property(lambda _: "configmaps has failed 3 times in a row: refused")
        monkeypatch.setattr(Running, "why_not_ready", trouble)
        assert running.why_not_ready == "controller configmap: configmaps has failed 3 times in a row: refused"


# --- with an election ---


def test_while_it_stands_by_stores_fill_and_nothing_reconciles_until_it_leads(client: Client) -> None:
    events = Events()
    with elect(client, LeaderElection("standing", identity="other", **STEADY)) as other:
        other.wait(LIMIT)
        manager = Manager(client, leader=LeaderElection("standing", **STEADY), serve=None)
        manager.add(maps(client), events.reconciler("maps")).add_runnable(events.runnable("work"), "work")
        manager.add_runnable(events.runnable("free"), "free", needs_leader=False)
        manager.add(Controller(Api.namespaced(client, Secret, "default")), nothing, needs_leader=False)
        with manager.start() as running:
            until(lambda: running.is_ready, "one that stands by is ready")
            assert (running.phase, running.is_leader) == ("standing by", False)
            threading.Event().wait(0.5)
            assert events.all == ["free runs"]
            other.close()
            events.wait_for("maps reconciles", "work runs")
            assert (running.phase, running.is_leader) == ("leading", True)


def test_one_that_never_led_never_starts_what_needs_it(client: Client) -> None:
    events = Events()
    with elect(client, LeaderElection("never", identity="other")) as other:
        other.wait(LIMIT)
        manager = Manager(client, leader=LeaderElection("never"), serve=None)
        manager.add(maps(client), events.reconciler("maps")).add_runnable(events.runnable("work"), "work")
        with manager.start() as running:
            until(lambda: running.is_ready, "ready")
        assert Api.namespaced(client, Lease, "default").get("never").spec.holder_identity == "other"
    assert events.all == []


def test_a_lost_lease_ends_it_without_grace(client: Client) -> None:
    leases, events = Api.namespaced(client, Lease, "default"), Events()
    told: list[bool] = []

    def waits_for_the_stop(obj: Any, ctx: Context[Any]) -> Action:
        events("begun")
        told.append(ctx.stop.wait(LIMIT))
        return Action.await_change()

    manager = Manager(client, leader=LeaderElection("lost", **STEADY), serve=None)
    manager.add(only_a(client), waits_for_the_stop)
    running = manager.start()
    events.wait_for("begun")
    begin = time.monotonic()
    leases.patch("lost", Patch.merge({"spec": {"holderIdentity": "thief"}}))
    assert running.wait(LIMIT)
    assert running.stop() == []
    assert time.monotonic() - begin < LIMIT  # the grace period is 25 s
    assert told == [True]
    with pytest.raises(LeadershipLost, match="thief holds it"):
        running.raise_error()
    assert leases.get("lost").spec.holder_identity == "thief"


def test_the_lease_is_renewed_until_the_work_has_ended_and_then_given_back(client: Client) -> None:
    leases, events, finish = Api.namespaced(client, Lease, "default"), Events(), threading.Event()

    def slow(stop: StopToken) -> None:
        events("begun")
        stop.wait()
        finish.wait(LIMIT)

    manager = Manager(client, leader=LeaderElection("drained", identity="me", **STEADY), serve=None)
    running = manager.add_runnable(slow, "slow").start()
    events.wait_for("begun")
    ending = threading.Thread(target=running.stop)
    ending.start()
    assert running.wait(LIMIT)
    before = leases.get("drained").spec
    until(lambda: leases.get("drained").spec.renew_time != before.renew_time, "it is renewed while it drains")
    assert leases.get("drained").spec.holder_identity == "me"
    finish.set()
    ending.join(LIMIT)
    assert not leases.get("drained").spec.holder_identity
    assert running.error is None


def test_a_lease_that_is_lost_while_it_drains_ends_the_drain(client: Client) -> None:
    leases, events = Api.namespaced(client, Lease, "default"), Events()
    told: list[bool] = []

    def drains(obj: Any, ctx: Context[Any]) -> Action:
        events("begun")
        told.append(ctx.stop.wait(LIMIT))
        return Action.await_change()

    manager = Manager(client, leader=LeaderElection("cut", **STEADY), serve=None).add(only_a(client), drains)
    running = manager.start()
    events.wait_for("begun")
    begin = time.monotonic()
    ending = threading.Thread(target=running.stop)
    ending.start()
    assert running.wait(LIMIT)
    leases.patch("cut", Patch.merge({"spec": {"holderIdentity": "thief"}}))
    ending.join(LIMIT)
    assert time.monotonic() - begin < LIMIT  # of 25
    assert told == [True]
    assert isinstance(running.error, LeadershipLost)


def test_the_lease_is_kept_from_others_while_work_that_needs_it_still_runs(client: Client) -> None:
    leases, events, finish = Api.namespaced(client, Lease, "default"), Events(), threading.Event()

    def stuck(stop: StopToken) -> None:
        events("begun")
        finish.wait(LIMIT)

    manager = Manager(client, leader=LeaderElection("guilty", identity="me", **STEADY), serve=None)
    running = manager.add_runnable(stuck, "stuck").start()
    events.wait_for("begun")
    assert [one.owner for one in running.stop(0.2)] == ["stuck"]
    assert leases.get("guilty").spec.holder_identity == "me"
    finish.set()


def test_controllers_get_the_client_that_refuses_writes_when_it_does_not_lead(client: Client) -> None:
    contexts: dict[str, Any] = {}

    def keep(name: str) -> Callable[[Any, Context[Any]], Action]:
        def reconcile(obj: Any, ctx: Context[Any]) -> Action:
            contexts[name] = ctx.client
            return Action.await_change()

        return reconcile

    Api.namespaced(client, Secret, "default").apply({"metadata": {"name": "s"}}, field_manager="test")
    manager = Manager(client, leader=LeaderElection("guarded", **STEADY), serve=None)
    manager.add(maps(client), keep("led")).add(Controller(Api.namespaced(client, Secret, "default")), keep("free"),
                                               needs_leader=False)
    with manager.start():
        until(lambda: len(contexts) == 2, "both have run")
        Api.namespaced(contexts["led"], ConfigMap, "default").apply({"metadata": {"name": "b"}}, field_manager="test")
    with pytest.raises(NotLeaderError):
        Api.namespaced(contexts["led"], ConfigMap, "default").delete("b")
    Api.namespaced(contexts["free"], ConfigMap, "default").delete("b")


# --- what it is made of ---


@pytest.mark.parametrize(("text", "host", "port"), [
    (":8080", "", 8080), ("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:9090", "::1", 9090), ("host:80", "host", 80)])
def test_addresses(text: str, host: str, port: int) -> None:
    assert ListenAddress.parse(text) == ListenAddress(host, port)


@pytest.mark.parametrize("text", ["", "8080", ":", "::1:80", ":65536", ":-1", "a:b", ":\uff18\uff10", 8080])
def test_what_is_no_address_is_refused(client: Client, text: Any) -> None:
    with pytest.raises(RequestError, match="is not an address"):
        Manager(client, serve=text)


def test_it_serves_health_and_what_the_metrics_of_its_client_know(client: Client) -> None:
    with Client(client.config, observer=Metrics(CollectorRegistry())) as measured:
        manager = Manager(measured, leader=LeaderElection("served", **STEADY), serve=ANY_PORT)
        manager.add(maps(measured), lambda obj, ctx: Action.await_change()).add_check("database", lambda: True)
        with manager.start() as running:
            address = address_of(running)
            assert requests.get(f"http://{address}/healthz", timeout=LIMIT).text == "ok"
            until(lambda: running.is_ready, "it is ready")
            assert requests.get(f"http://{address}/readyz", timeout=LIMIT).status_code == 200
            listed = requests.get(f"http://{address}/readyz?verbose", timeout=LIMIT).text.splitlines()
            assert listed == ["[+]ping ok", "[+]manager ok", "[+]election ok", "[+]controller configmap ok",
                              "[+]store configmaps in namespace default ok", "[+]database ok", "readyz check passed"]
            one = "store%20configmaps%20in%20namespace%20default"
            assert requests.get(f"http://{address}/readyz/{one}", timeout=LIMIT).text == "ok"
            until(lambda: 'leader_election_master_status{name="served"} 1.0'
                  in requests.get(f"http://{address}/metrics", timeout=LIMIT).text, "the metrics say who leads")
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{address}/healthz", timeout=LIMIT)


@pytest.mark.alone
@pytest.mark.long  # `test_every_watch_says_within_ten_seconds_...` is its short form, on a simulated clock
@pytest.mark.parametrize("watches", [1, 3, 10, 20])
def test_readiness_fails_within_ten_seconds_when_the_server_dies_however_many_watches_there_are(watches: int) -> None:
    with ApiServer() as dying, dying.client() as plain, \
            Client(plain.config, observer=Metrics(CollectorRegistry())) as client:
        manager = Manager(client, serve=ANY_PORT)
        for number in range(watches):
            manager.add(Controller(Api.namespaced(client, ConfigMap, f"n{number}"), name=f"c{number}"), nothing)
        with manager.start() as running:
            address = address_of(running)
            until(lambda: running.is_ready, "it is ready")
            dying.stop()
            began = time.monotonic()
            until(lambda: requests.get(f"http://{address}/readyz", timeout=LIMIT).status_code == 500, "it is not ready")
            until(lambda: requests.get(f"http://{address}/readyz?verbose", timeout=LIMIT).text.count(
                "[-]store") == watches, "each store is named")
            assert time.monotonic() - began < 10
            until(lambda: requests.get(f"http://{address}/metrics", timeout=LIMIT).text.count(
                "kubectl_runtime_watch_consecutive_failures{watch=") == watches, "the metrics are there")
            gauges = [line for line in requests.get(f"http://{address}/metrics", timeout=LIMIT).text.splitlines()
                      if line.startswith("kubectl_runtime_watch_consecutive_failures{")]
            assert all(float(line.rpartition(" ")[2]) >= 2 for line in gauges), gauges
            dying.start()
            until(lambda: running.is_ready, "it is ready again")


@pytest.mark.parametrize("held", ["an event", "a lock", "a connection"])
def test_a_check_that_hangs_is_named_and_does_not_hold_up_the_end(client: Client, held: str) -> None:
    release, locked = threading.Event(), threading.Lock()
    locked.acquire()
    silent, other = socket.socketpair()
    hang: dict[str, Callable[[], object]] = {
        "an event": lambda: release.wait(60), "a lock": lambda: locked.acquire(timeout=60) and locked.release(),
        "a connection": lambda: silent.recv(1)}
    manager = Manager(client, serve=ANY_PORT).add(maps(client), nothing)
    manager.add_check("database", hang[held], timeout=0.2).add_check("quick", lambda: True)
    try:
        with manager.start() as running:
            address = address_of(running)
            until(lambda: running.phase == "leading", "it runs")
            for _ in range(5):
                answer = requests.get(f"http://{address}/readyz", timeout=LIMIT)
                assert answer.status_code == 500
                assert "[-]database failed" in answer.text
                assert "[+]quick ok" in answer.text
            assert requests.get(f"http://{address}/healthz", timeout=LIMIT).status_code == 200
            assert running.failing_checks().keys() == {"database"}
            assert [thread.name for thread in threading.enumerate()].count("check database") == 1
            began = time.monotonic()
            running.stop()
            assert time.monotonic() - began < LIMIT / 4
    finally:
        release.set()
        locked.release()
        other.close()
        until(lambda: not any(one.name == "check database" for one in threading.enumerate()), "the check has ended")
        silent.close()


@pytest.mark.parametrize("what", ["leader", "sharding"])
@pytest.mark.parametrize(("verb", "code"), [("*", 403), ("create", 403), ("create", 404)])
def test_without_rights_on_leases_it_is_not_ready_and_says_why(client: Client, server: ApiServer, what: str, verb: str,
                                                               code: int) -> None:
    refused = [server.faults.on(one, resource="leases").status(code)
               for one in (("get", "list", "create", "update") if verb == "*" else (verb,))]
    name = f"powerless-{what}-{'no' if verb == '*' else verb}-{'rights' if code == 403 else 'namespace'}"
    more: dict[str, Any] = {"leader": {"leader": LeaderElection(name, "default", retry=0.1)},
                            "sharding": {"sharding": Sharding(name, "default", shards=2, retry=0.1)}}[what]
    check = {"leader": "election", "sharding": "sharding"}[what]
    manager = Manager(client, serve=ANY_PORT, **more).add(maps(client), nothing)
    with manager.start() as running:
        try:
            address = address_of(running)
            until(lambda: "the fault script" in running.why_not_ready, "it says why")
            assert name in running.why_not_ready
            assert requests.get(f"http://{address}/readyz", timeout=LIMIT).status_code == 500
            assert requests.get(f"http://{address}/readyz/{check}", timeout=LIMIT).status_code == 500
            assert requests.get(f"http://{address}/readyz?exclude={check}", timeout=LIMIT).status_code == 200
        finally:
            for rule in refused:
                rule.remove()
        until(lambda: running.is_ready, "it is ready")


def test_one_that_stands_by_is_ready(client: Client) -> None:
    election = LeaderElection("both", **STEADY)
    with Manager(client, leader=election, serve=None).start() as first:
        until(lambda: first.is_leader, "it leads")
        with Manager(client, leader=election, serve=None).start() as second:
            until(lambda: second.is_ready, "it is ready")
            assert not second.is_leader


class Gate:
    """A server of the program's own."""

    name = "gate"
    why_not_ready = "it is closed"

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None: ...


def test_its_servers_have_a_path_that_does_not_depend_on_stores(client: Client, server: ApiServer) -> None:
    failing = server.faults.on("list", resource="configmaps").status(500)
    gate = Gate()
    manager = Manager(client, serve=ANY_PORT).add(maps(client), nothing).add_server(gate)
    with manager.start() as running:
        address = address_of(running)
        assert requests.get(f"http://{address}/readyz/servers", timeout=LIMIT).status_code == 500
        gate.why_not_ready = ""
        assert requests.get(f"http://{address}/readyz/servers", timeout=LIMIT).text == "ok"
        assert requests.get(f"http://{address}/readyz", timeout=LIMIT).status_code == 500, "the store is not complete"
    failing.remove()


def test_it_serves_a_page_of_its_controllers_and_of_itself(server: ApiServer, client: Client) -> None:
    manager = Manager(client, leader=LeaderElection("shown", **STEADY), serve=ANY_PORT)
    manager.add(maps(client), lambda obj, ctx: Action.await_change())
    manager.add_runnable(lambda stop: stop.wait(), "waiter")
    with manager.start() as running:
        address = address_of(running)
        until(lambda: running.is_ready and running.is_leader, "it leads")

        def state() -> Any:
            return requests.get(f"http://{address}/debug/state.json", timeout=LIMIT).json()

        until(lambda: state()["controllers"][0].get("runs"), "it runs")
        told = state()
        assert told["manager"] == {"phase": "leading", "leader": True, "lease": "default/shown"}
        (controller,) = told["controllers"]
        assert controller["kind"] == "configmaps"
        assert "default/a" in {row["name"] for row in controller["recent"]}
        assert [row["controllers"] for row in told["watches"]] == [[controller["name"]]]
        assert "<!doctype html>" in requests.get(f"http://{address}/debug", timeout=LIMIT).text


def test_a_manager_that_stands_by_shows_the_stores_that_fill(server: ApiServer, client: Client) -> None:
    with elect(client, LeaderElection("held", **STEADY)) as lock:
        assert lock.wait(LIMIT)
        manager = Manager(client, leader=LeaderElection("held", identity="other", **STEADY), serve=ANY_PORT)
        manager.add(maps(client), lambda obj, ctx: Action.await_change())
        with manager.start() as running:
            until(lambda: running.is_ready, "its stores are complete")
            told = requests.get(f"http://{address_of(running)}/debug/state.json", timeout=LIMIT).json()
            assert told["manager"] == {"phase": "standing by", "leader": False, "lease": "default/held"}
            assert told["watches"][0]["complete"]
            assert told["controllers"][0]["counts"]["due"] >= 1


def test_the_port_that_the_system_has_chosen(client: Client) -> None:
    with Manager(client, serve=ANY_PORT).start() as running:
        assert running.port
        assert f"127.0.0.1:{running.port}" == address_of(running)
        assert requests.get(f"http://127.0.0.1:{running.port}/healthz", timeout=LIMIT).status_code == 200
    with Manager(client, serve=None).start() as silent:
        assert silent.port is None


def test_waiting_until_it_is_ready_ends_with_the_reason(client: Client) -> None:
    with Manager(client, serve=None).add(maps(client), nothing).start() as running:
        running.wait_until_ready(LIMIT)
        assert running.is_ready
    with pytest.raises(ControllerError, match=r"the manager ended .* before it was ready"):
        running.wait_until_ready(LIMIT)
    late = Manager(client, serve=None)
    late.add_check("database", lambda: False)
    with late.start() as running, pytest.raises(SyncTimeoutError, match=r"not ready after 0\.2 s: .*check database"):
        running.wait_until_ready(0.2)

    def fail(stop: StopToken) -> None:
        raise ValueError("no table")

    failing = Manager(client, serve=None).add_runnable(fail, "tables")
    failing.add_check("database", lambda: False)
    with pytest.raises(ControllerError) as ended:
        failing.start().wait_until_ready(LIMIT)
    assert str(ended.value.__cause__) == "no table"


def test_without_a_page_it_serves_none(client: Client) -> None:
    with Manager(client, serve=ANY_PORT, debug=None).start() as running:
        address = address_of(running)
        for path in ("debug", "debug/state.json"):
            assert requests.get(f"http://{address}/{path}", timeout=LIMIT).status_code == 404


def test_a_controller_that_is_stuck_makes_it_dead_and_one_that_waits_does_not(
        client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    late = {"seconds": 0.0}
    monkeypatch.setattr(Runner, "dispatcher_late", lambda _: late["seconds"])
    missing = Controller(Api.all(client, ApiResource("example.com", "v1", "Missing", "missings")))
    manager = Manager(client, leader=LeaderElection("alive", **STEADY), serve=ANY_PORT).add(missing, nothing)
    manager.add_runnable(lambda stop: stop.wait(), "waiting")
    with manager.start() as running:
        address = address_of(running)
        assert requests.get(f"http://{address}/healthz", timeout=LIMIT).status_code == 200
        assert requests.get(f"http://{address}/readyz", timeout=LIMIT).status_code == 500
        late["seconds"] = DISPATCHER_LIMIT + 1
        answer = requests.get(f"http://{address}/healthz/manager", timeout=LIMIT)
        assert (answer.status_code, answer.text) == (500, "internal server error: manager failed: reason withheld\n")
        late["seconds"] = 0.0
        assert requests.get(f"http://{address}/healthz", timeout=LIMIT).status_code == 200


def test_arguments_that_cannot_work_are_refused(client: Client) -> None:
    with pytest.raises(RequestError, match="takes a Client"):
        Manager(object())  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="is not a LeaderElection"):
        Manager(client, leader="name")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="grace must be at least 0"):
        Manager(client, grace=-1)
    manager = Manager(client, serve=None)
    with pytest.raises(RequestError, match="takes a Controller"):
        manager.add(nothing, nothing)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="takes a function"):
        manager.add_runnable("name", "name")  # type: ignore[arg-type]


# --- as a process ---


def test_a_signal_ends_the_process_well_and_gives_the_lease_back(server: ApiServer, client: Client,
                                                                 tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    code = """
import logging, sys
from kubectl_runtime import Action, Api, Client, Controller, LeaderElection, Manager
from kubectl_runtime.resources import ConfigMap
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
with Client.try_default() as client:
    manager = Manager(client, leader=LeaderElection("process", "default", identity="me"), serve=None)
    manager.add(Controller(Api.all(client, ConfigMap)), lambda obj, ctx: print("worked") or Action.await_change())
    manager.run()
print("returned")
"""
    with Program("-c", code, env={"KUBECONFIG": kubeconfig, "PYTHONPATH": ROOT}) as program:
        program.until("worked")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert program.lines[-1] == "returned"
    assert not Api.namespaced(client, Lease, "default").get("process").spec.holder_identity
