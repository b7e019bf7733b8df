"""How a manager ends, and what it leaves as it was: the cases that controller-runtime's tests assert as well."""
from __future__ import annotations

import copy
import logging
import socket
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
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.resources.coordination_v1 import Lease

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
                    "runnable late failed, too: KeyError: 'second'"]


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
        with pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use; it is for "
                                          r"health and metrics, and serve= of the Manager"):
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
    leases.patch("health", Patch.merge({"spec": {"holderIdentity": ""}}))
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


def test_a_server_that_does_not_stop_keeps_nobody(client: Client, caplog: pytest.LogCaptureFixture) -> None:
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
    assert "stuck does not stop; it is here" in caplog.text
    assert "free.wait" in caplog.text
