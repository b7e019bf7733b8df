"""How a manager ends, and what it leaves as it was: the cases that controller-runtime's tests assert as well."""
from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Context,
    Controller,
    LeaderElection,
    Manager,
    Patch,
    RequestError,
    StopToken,
)
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.controller import running as running_module

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


def waits(stop: StopToken) -> None:
    stop.wait()


def nothing(obj: Any, ctx: Context[Any]) -> Action:
    return Action.await_change()


def maps(client: Client) -> Controller[ConfigMap]:
    return Controller(Api.namespaced(client, ConfigMap, "default"))


def test_a_failure_during_the_end_is_told_and_the_first_one_is_raised(client: Client,
                                                                      caplog: pytest.LogCaptureFixture) -> None:
    def fails_at_the_end(stop: StopToken) -> None:
        stop.wait()
        raise KeyError("second")

    def fails(stop: StopToken) -> None:
        raise ValueError("first")

    manager = Manager(client, serve=None).add_runnable(fails_at_the_end, "late").add_runnable(fails, "early")
    with pytest.raises(ValueError, match="first"):
        manager.run()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert told == ["runnable early failed; the manager ends: ValueError: first",
                    "runnable late also failed: KeyError: 'second'"]


def test_a_runnable_that_ends_because_it_was_told_to_is_no_failure(client: Client,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    with Manager(client, serve=None).add_runnable(waits, "waits").start() as running:
        assert running.stop() == []
    assert running.error is None
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_grace_of_zero_does_not_wait_and_a_negative_one_is_refused(client: Client) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def stays(stop: StopToken) -> None:
        begun.set()
        go_on.wait(LIMIT)

    running = Manager(client, serve=None, grace=0).add_runnable(stays, "stays").start()
    assert begun.wait(LIMIT)
    begin = time.monotonic()
    assert [one.owner for one in running.stop()] == ["stays"]
    assert time.monotonic() - begin < LIMIT / 2  # after which it ends by itself
    go_on.set()  # one that returns late leaves no thread either
    with pytest.raises(RequestError, match="at least 0 seconds, not -1"):
        Manager(client, serve=None, grace=-1)


def test_a_later_stop_shortens_the_time_of_runs_that_are_waited_for(client: Client) -> None:
    begun, told = threading.Event(), threading.Event()

    def stays(obj: ConfigMap, ctx: Context[Any]) -> Action:
        begun.set()
        ctx.stop.wait(LIMIT)
        told.set()
        return Action.await_change()

    running = Manager(client, serve=None, grace=3600).add(maps(client), stays).start()
    assert begun.wait(LIMIT)
    patient = threading.Thread(target=running.stop)
    patient.start()
    assert running.wait(LIMIT)
    assert not told.wait(0.1)
    assert running.stop(1) == []
    assert told.is_set()
    patient.join(LIMIT)
    assert not patient.is_alive()


def test_an_endless_grace_waits_until_all_has_ended(client: Client) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def stays(stop: StopToken) -> None:
        begun.set()
        go_on.wait(LIMIT)

    running = Manager(client, serve=None, grace=float("inf")).add_runnable(stays, "stays").start()
    assert begun.wait(LIMIT)
    threading.Timer(0.3, go_on.set).start()
    assert running.stop() == []


def test_a_port_that_is_taken_is_an_error_of_the_start_before_anything_runs(client: Client) -> None:
    ran: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        manager = Manager(client, serve=f"127.0.0.1:{port}").add_runnable(lambda stop: ran.append("ran"), "one")
        with pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use; this "
                                          r"address is for health and metrics; set another one by serve= of the"):
            manager.start()
    assert ran == []


def test_no_thread_is_left_though_events_were_told(client: Client) -> None:
    """The recorder has a thread of its own; the fixture looks for it."""
    told = threading.Event()

    def tells(obj: ConfigMap, ctx: Context[None]) -> Action:
        ctx.record("Seen", "it was seen")
        told.set()
        return Action.await_change()

    with Manager(client, serve=None).add(maps(client), tells).start() as running:
        assert told.wait(LIMIT)
        assert running.stop() == []


FAULTS: dict[str, Callable[[Any], Any]] = {
    "500": lambda rule: rule.status(500), "403": lambda rule: rule.status(403),
    "no answer": lambda rule: rule.never_answer(), "reset": lambda rule: rule.drop(),
    "later": lambda rule: rule.status(503, headers={"Retry-After": "60"})}


@pytest.mark.parametrize("fault", FAULTS)
def test_events_that_cannot_be_sent_keep_neither_the_lease_nor_the_end(
        server: ApiServer, client: Client, fault: str, caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture looks for their thread. One fault takes the real time, the others a quarter of it."""
    assert running_module.EVENTS_SECONDS == 2
    events_time = 2.0 if fault == "no answer" else 0.5
    monkeypatch.setattr(running_module, "EVENTS_SECONDS", events_time)
    caplog.set_level(logging.INFO)
    recorded, moments = threading.Event(), dict[str, float]()

    def records(obj: ConfigMap, ctx: Context[None]) -> Action:
        for number in range(3):
            ctx.record(f"Seen{number}", "it was seen")
        recorded.set()
        return Action.await_change()

    def leads(stop: StopToken) -> None:
        moments["leads"] = time.monotonic()
        stop.wait()

    rule = server.faults.on(resource="events")
    FAULTS[fault](rule)
    try:
        election = {**STEADY, "name": "events", "namespace": "default"}
        first = Manager(client, leader=LeaderElection(identity="1", **election), serve=None).add(maps(client), records)
        running = first.start()
        assert recorded.wait(LIMIT)
        until(lambda: rule.taken, "the first event is tried")
        second = Manager(client, leader=LeaderElection(identity="2", **election), serve=None)
        with second.add_runnable(leads, "leads").start():
            before = time.monotonic()
            assert running.stop() == []
            moments["stopped"] = time.monotonic()
            until(lambda: "leads" in moments, "the other one leads")
            assert moments["stopped"] - before < events_time + 3, "events get 2 s of the 25"
            assert moments["leads"] - before < STEADY["retry"] + 1.5, "the Lease is given back before that"
    finally:
        server.faults.clear()
    lines = [record.getMessage() for record in caplog.records if "lost events" in record.getMessage()]
    assert len(lines) == 1
    number = re.search(r"lost events: (\d+) because", lines[0])
    assert number is not None
    assert int(number[1]) == 3
    assert ("; the last error: " in lines[0]) is (fault != "403")


def test_the_config_of_the_client_stays_as_it_was(client: Client) -> None:
    before = copy.copy(client.config)
    with Manager(client, leader=LeaderElection("config", "default", **STEADY), serve=None).add(
            maps(client), nothing).start() as running:
        until(lambda: running.is_leader, "it leads")
    assert client.config == before


def readyz(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=LIMIT) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_standby_and_a_leader_are_ready_and_one_that_has_lost_its_lease_is_not(client: Client) -> None:
    leases = Api.namespaced(client, Lease, "default")
    leases.create({"metadata": {"name": "health"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    go_on = threading.Event()

    def stays(stop: StopToken) -> None:
        go_on.wait(LIMIT)

    manager = Manager(client, leader=LeaderElection("health", "default", identity="me", **STEADY),
                      serve=f"127.0.0.1:{port}").add_runnable(stays, "stays")
    running = manager.start()
    assert (running.is_leader, readyz(port)) == (False, 200)
    leases.patch("health", Patch.merge({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}))  # it is released
    until(lambda: running.is_leader, "it leads")
    assert readyz(port) == 200
    leases.patch("health", Patch.merge({"spec": {"holderIdentity": "thief"}}))
    assert running.wait(LIMIT)
    assert not running.is_leader
    assert readyz(port) == 500  # its server still answers, as a member has not ended
    go_on.set()
    assert running.stop() == []


def test_a_lease_is_left_to_run_out_where_that_was_asked_for(client: Client) -> None:
    election = LeaderElection("unreleased", "default", identity="me", release=False, **STEADY)
    with Manager(client, leader=election, serve=None).add_runnable(waits, "waits").start() as running:
        until(lambda: running.is_leader, "it leads")
    assert Api.namespaced(client, Lease, "default").get("unreleased").spec.holder_identity == "me"


class OwnServer:
    """A server of the program's own that ends as it is told, or not at all."""

    def __init__(self, name: str, stop: Callable[[], object]) -> None:
        self.name, self._stop = name, stop

    def start(self) -> None:
        pass

    def stop(self, timeout: float) -> None:
        self._stop()


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), KeyboardInterrupt(), OSError("x")], ids=repr)
def test_what_a_server_raises_at_the_end_is_told_and_the_others_end(client: Client, error: BaseException,
                                                                   caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    def fails() -> None:
        raise error

    manager = Manager(client, serve=None).add_runnable(waits, "work")
    manager.add_server(OwnServer("one", lambda: ended.append("one"))).add_server(OwnServer("two", fails))
    assert manager.start().stop() == []
    assert ended == ["one"]
    assert "two did not stop well" in caplog.text


def test_a_server_that_does_not_stop_keeps_nobody(client: Client, caplog: pytest.LogCaptureFixture,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.manager.serving.LEAST_SECONDS", 0.2)
    free = threading.Event()
    manager = Manager(client, serve=None).add_runnable(waits, "work")
    manager.add_server(OwnServer("stuck", lambda: free.wait(LIMIT)))
    running = manager.start()
    began = time.monotonic()
    try:
        running.stop(0)
        assert time.monotonic() - began < LIMIT / 2
    finally:
        free.set()
    assert "stuck does not stop; its stack" in caplog.text
    assert "free.wait" in caplog.text


ELECTED: dict[str, Any] = {**STEADY, "namespace": "default"}


@pytest.mark.parametrize("caller", ["on_started", "on_new_leader", "on_stopped", "check", "runnable", "reconciler"])
def test_code_that_the_end_waits_for_may_stop_the_manager(client: Client, caller: str) -> None:
    """From a thread that the end waits for, `stop` only begins it."""
    holder: list[Any] = []
    ready, took = threading.Event(), list[float]()

    def stops(*_: object) -> Action:
        assert ready.wait(LIMIT)
        began = time.monotonic()
        holder[0].stop()
        took.append(time.monotonic() - began)
        return Action.await_change()

    callbacks = {caller: stops} if caller.startswith("on_") else {}
    election = LeaderElection(f"stopped-by-{caller.replace('_', '-')}", **ELECTED, **callbacks)
    manager = Manager(client, leader=election, serve=None, grace=8).add(maps(client), stops if caller == "reconciler"
                                                                       else nothing)
    if caller == "runnable":
        manager.add_runnable(stops, "stops")
    if caller == "check":
        manager.add_check("stops", stops)
    running = manager.start()
    holder.append(running)
    until(lambda: running.is_leader, "it leads")
    ready.set()
    began = time.monotonic()
    if caller == "on_stopped":
        assert running.stop() == []
    elif caller == "check":
        running.failing_checks()
    assert running.wait(LIMIT)
    assert running.stop() == []
    assert time.monotonic() - began < 4, "at once, and not when the grace is over"
    until(lambda: took, "its stop returned")
    assert took[0] < 1
    assert running.error is None


@pytest.mark.parametrize("callback", ["on_started", "on_stopped", "on_new_leader"])
def test_a_callback_that_does_not_return_holds_nobody(client: Client, callback: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.manager.elector._CALLBACK_SECONDS", 0.1)
    go_on, called = threading.Event(), threading.Event()

    def blocks(*_: object) -> None:
        called.set()
        go_on.wait(LIMIT)

    election = LeaderElection(f"blocked-{callback.replace('_', '-')}", **ELECTED, **{callback: blocks})
    running = Manager(client, leader=election, serve=None, grace=15).add(maps(client), nothing).start()
    until(lambda: running.is_leader, "it leads")
    began = time.monotonic()
    try:
        assert running.stop() == []
        assert time.monotonic() - began < 5
        assert called.is_set()
    finally:
        go_on.set()


def test_a_check_that_does_not_return_does_not_hold_the_end(client: Client) -> None:
    go_on, asked = threading.Event(), threading.Event()

    def blocks() -> None:
        asked.set()
        go_on.wait(LIMIT)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = Manager(client, serve=f"127.0.0.1:{port}", grace=15).add(maps(client), nothing).add_check(
        "blocks", blocks).start()
    with socket.create_connection(("127.0.0.1", port)) as kubelet:
        kubelet.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert asked.wait(LIMIT)
        began = time.monotonic()
        try:
            assert running.stop() == []
            assert time.monotonic() - began < 5
        finally:
            go_on.set()


ENDS: dict[str, Callable[[Manager, Client], object]] = {
    "a signal of the program": lambda manager, client: (manager.start().stop(0)),
    "a failure": lambda manager, client: manager.add_runnable(fails, "fails").start(),
    "its client is closed": lambda manager, client: (manager.start(), client.close()),
    "a member stops it": lambda manager, client: stopped_by_a_runnable(manager),
    "Ctrl-C": lambda manager, client: interrupted(manager, 1),
    "Ctrl-C twice": lambda manager, client: interrupted(manager, 2),
}


def fails(stop: StopToken) -> None:
    raise ValueError("planned")


def stopped_by_a_runnable(manager: Manager) -> None:
    holder: list[Any] = []
    started = threading.Event()

    def stops(stop: StopToken) -> None:
        assert started.wait(LIMIT)
        holder[0].stop()

    holder.append(manager.add_runnable(stops, "stops").start())
    started.set()


def interrupted(manager: Manager, times: int) -> None:
    """In the main thread, where `run` takes it for a signal: so by a `with` block."""
    begun = threading.Event()

    def stays(stop: StopToken) -> None:
        begun.set()
        if times == 2:
            stop.wait()
            assert left.wait(LIMIT), "the block is left before this returns"

    left = threading.Event()
    with contextlib.suppress(KeyboardInterrupt), manager.add_runnable(stays, "stays").start() as running:
        assert begun.wait(LIMIT)
        if times == 2:
            running.on_stop(lambda: threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start())
        raise KeyboardInterrupt
    left.set()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("elected", [False, True])
def test_however_a_manager_ends_no_thread_is_left(server: ApiServer, end: str, elected: bool) -> None:
    """The fixture looks for them."""
    leader = LeaderElection(f"ends-{list(ENDS).index(end)}", **ELECTED) if elected else None
    with server.client() as client:
        manager = Manager(client, leader=leader, serve="127.0.0.1:0", grace=5).add(maps(client), nothing)
        ENDS[end](manager, client)
        until(lambda: manager._running.phase == "stopped", "it ends by itself")


@pytest.mark.parametrize("state", ["campaigns", "leads", "shares"])
def test_with_a_client_that_is_closed_the_end_does_not_wait_for_what_cannot_be_given_back(server: ApiServer,
                                                                                        state: str) -> None:
    with server.client() as client:
        leader = None if state == "shares" else LeaderElection(f"closed-{state}", **ELECTED)
        sharding = Sharding("closed", "default", shards=2) if state == "shares" else None
        manager = Manager(client, leader=leader, sharding=sharding, serve=None, grace=15).add(maps(client), nothing)
        running = manager.start()
        if state != "campaigns":
            until(lambda: running.is_leader and (sharding is None or len(running.shards) == 2), state)
        client.close()
        began = time.monotonic()
        assert running.stop() == []
        assert time.monotonic() - began < 5


COMING_BACK: dict[str, Callable[[], object]] = {
    "returns": lambda: None, "exits": lambda: sys.exit(3), "fails": lambda: os.execv("/no/such/program", ["x"])}


def fork_in(user_code: str, client: Client, child: Callable[[], object]) -> list[int]:
    """The ways in which a forked child ended that came back from `child` into user code of a manager."""
    ended: list[int] = []
    parent = os.getpid()

    def forks(*_: Any) -> Action:
        if not ended and os.getpid() == parent:
            pid = os.fork()
            if not pid:
                child()
            else:
                hangs = threading.Timer(LIMIT / 2, os.kill, (pid, signal.SIGKILL))
                hangs.start()
                ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                hangs.cancel()
        return Action.await_change()

    manager = Manager(client, serve=None).add_runnable(waits, "waits")
    manager.add(maps(client), forks if user_code == "run" else nothing)
    if user_code == "runnable":
        manager.add_runnable(lambda stop: forks(), "forks")
    if user_code == "check":
        manager.add_check("forks", lambda: forks() and True, timeout=LIMIT)
    with manager.start() as running:
        until(lambda: running.why_not_ready == "" and ended, "the child has ended, and the parent goes on")
    assert os.getpid() == parent
    return ended


@pytest.mark.parametrize("user_code", ["run", "runnable", "check"])
@pytest.mark.parametrize(("comes_back", "status"), [("returns", 0), ("exits", 3), ("fails", 1)])
def test_a_forked_child_that_comes_back_from_user_code_ends_there(client: Client, user_code: str, comes_back: str,
                                                                 status: int) -> None:
    assert fork_in(user_code, client, COMING_BACK[comes_back]) == [status]
