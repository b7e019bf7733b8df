"""Nothing of a plan reaches anything outside of it, and what wanted to is named."""
from __future__ import annotations

import multiprocessing
import os
import socket
import sqlite3
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from kubectl_runtime import Action, Api, Client, Controller
from kubectl_runtime.plan import OutsideRefused, Snapshot, plan
from kubectl_runtime.plan.program import threads_jailed
from kubectl_runtime.resources import ConfigMap
from tests.plan.conftest import World


def in_a_thread() -> None:
    found: list[BaseException] = []

    def call() -> None:
        try:
            connected(socket.AF_INET, ("10.1.2.3", 5432))
        except Exception as error:
            found.append(error)
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    raise found[0]


def swallowed() -> None:
    with suppress(Exception):  # as programs do
        requests.get("http://api.example.com/v1", timeout=1)


def spawned() -> None:
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()


def connected(family: int, address: Any, kind: int = socket.SOCK_STREAM, verb: str = "connect") -> None:
    with socket.socket(family, kind) as made:
        if verb == "sendto":
            made.sendto(b"x", address)
        else:
            getattr(made, verb)(address)


OUTSIDE: dict[str, tuple[Callable[[], object], str]] = {
    "a name": (lambda: socket.create_connection(("db.example.com", 5432)), "db.example.com:5432"),
    "an address": (lambda: connected(socket.AF_INET, ("10.1.2.3", 5432)), "10.1.2.3:5432"),
    "a unix socket": (lambda: connected(socket.AF_UNIX, "/run/docker.sock"), "/run/docker.sock"),
    "requests": (lambda: requests.get("https://api.example.com/v1", timeout=1), "api.example.com:443"),
    "urllib": (lambda: urllib.request.urlopen("http://api.example.com/"), "api.example.com:80"),
    "udp": (lambda: connected(socket.AF_INET, ("10.0.0.9", 53), socket.SOCK_DGRAM, "sendto"), "10.0.0.9:53"),
    "a listener": (lambda: connected(socket.AF_INET, ("127.0.0.1", 0), verb="bind"), "127.0.0.1:0"),
    "subprocess": (lambda: subprocess.run(["git", "push", "--token=abc"], check=False), "the program git"),
    "a shell": (lambda: os.system("true"), "the program true"),
    "multiprocessing": (spawned, "the program"), "a signal": (lambda: os.kill(1, 0), "the process 1"),
    "reading": (lambda: Path("/etc/hostname").read_text(), "/etc/hostname"),
    "writing": (lambda: Path("/var/tmp/plan-was-here").write_text("x"), "/var/tmp/plan-was-here"),
    "removing": (lambda: os.remove("/var/tmp/plan-was-here"), "/var/tmp/plan-was-here"),
    "a database": (lambda: sqlite3.connect("/var/tmp/plan.db"), "/var/tmp/plan.db"),
    "a kubeconfig": (Client.try_default, "kubeconfig-of-somebody"),
    "in a thread": (in_a_thread, "10.1.2.3:5432"),
    "swallowed": (swallowed, "api.example.com:80"),
}


@pytest.fixture
def snapshot() -> Any:
    world = World()
    for name in ("a", "b"):
        Api.namespaced(world.client, ConfigMap, "kube-public").create(ConfigMap(name=name))
    found = Snapshot.read(world.client, program(lambda: None))
    world.sim.close()
    return found


def program(reach: Callable[[], object], at: str = "a") -> Callable[[Client], Any]:
    def reconcile(obj: ConfigMap, ctx: Any) -> Action:
        if obj.name == at:
            reach()
        if obj.name in ("a", "b"):
            api = Api.namespaced(ctx.client, ConfigMap, obj.namespace)
            api.apply({"metadata": {"name": obj.name}, "data": {"done": "yes"}}, field_manager="me")
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "kube-public"), name="reacher").bind(reconcile)
    return build


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_what_it_opens_is_refused_and_named(snapshot: Snapshot, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig-of-somebody")
    reach, address = OUTSIDE[name]
    found = plan(program(reach), snapshot)
    [problem] = [one for one in found.unknown if address in one.reason]
    assert problem.object == "ConfigMap kube-public/a"
    assert problem.by == "reacher"
    assert "test_outside.py:" in problem.line
    assert "--token" not in str(found)
    assert not found.failed
    assert "kube-public/b" in str([change.ref for change in found.changed]).replace("b.kube-public", "kube-public/b")
    assert not Path("/var/tmp/plan-was-here").exists()


def test_the_temporary_folder_installed_packages_and_imports_are_no_outside(snapshot: Snapshot, tmp_path: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)

    def reach() -> None:
        import zoneinfo

        import imported_late  # type: ignore[import-not-found]
        assert imported_late.VALUE == 3
        zoneinfo.ZoneInfo("Europe/Berlin")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("x")
        for one in socket.socketpair():
            one.close()
        os.urandom(3)

    found = plan(program(reach), snapshot)
    assert not found.unknown
    assert not found.failed, str(found)


def test_outside_replaces_it(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    import responses

    calls: list[str] = []

    def reach() -> None:
        calls.append(requests.get("http://api.example.com/v1", timeout=1).json()["name"])

    @contextmanager
    def outside() -> Iterator[None]:
        with responses.RequestsMock() as mock:
            mock.get("http://api.example.com/v1", json={"name": "x"})
            yield

    found = plan(program(reach), snapshot, outside=outside)
    assert set(calls) == {"x"}
    assert not found.unknown
    assert len(found.changed) == 2
    found = plan(program(reach), snapshot,
                 outside=lambda: monkeypatch.setattr(requests, "get", lambda *_, **__: Fake()))
    assert calls[-1] == "fake"


class Fake:
    def json(self) -> dict[str, str]:
        return {"name": "fake"}


def test_a_program_that_reaches_out_while_it_is_built_is_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    def build(client: Client) -> Any:
        connected(socket.AF_INET, ("10.1.2.3", 1))

    with pytest.raises(OutsideRefused, match=r"10\.1\.2\.3:1"):
        plan(build, snapshot)
    assert Path("/etc/passwd").read_text()  # nothing is refused afterwards

    def reads(client: Client) -> Any:  # its configuration, say
        assert Path("/etc/passwd").read_text()
        return program(lambda: None)(client)

    assert len(plan(reads, snapshot).changed) == 2


def test_two_plans_at_once_are_refused(snapshot: Snapshot) -> None:
    def build(client: Client) -> Any:
        plan(program(lambda: None), snapshot)

    with pytest.raises(RuntimeError, match="another plan"):
        plan(build, snapshot)


def test_threads_that_were_there_before_are_left_alone(snapshot: Snapshot) -> None:
    begin, done = threading.Event(), threading.Event()
    found: list[str] = []

    def work() -> None:
        begin.wait(10)
        found.append(Path("/etc/passwd").read_text())
        done.set()

    thread = threading.Thread(target=work)
    thread.start()

    def reach() -> None:
        begin.set()
        done.wait(10)

    assert not plan(program(reach), snapshot).unknown
    thread.join()
    assert found


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


def is_called(listener: socket.socket) -> bool:
    listener.settimeout(0.05)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_a_thread_of_an_earlier_rehearsal_reaches_nothing_in_a_later_one(listener: socket.socket) -> None:
    """A pool of the module keeps its threads, and reading a cluster rehearses the program, too."""
    with ThreadPoolExecutor(1) as pool:
        def reach() -> None:
            pool.submit(lambda: connected(socket.AF_INET, listener.getsockname())).result()

        world = World()
        Api.namespaced(world.client, ConfigMap, "kube-public").create(ConfigMap(name="a"))
        read = Snapshot.read(world.client, program(reach))
        world.sim.close()
        for _ in range(2):
            assert "127.0.0.1" in str(plan(program(reach), read).unknown)
        assert not is_called(listener)


@pytest.mark.parametrize("place", ["a run", "build", "import"])
def test_a_thread_that_goes_on_after_the_plan_reaches_nothing_either(snapshot: Snapshot, listener: socket.socket,
                                                                    place: str) -> None:
    go = threading.Event()
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []

    def work() -> None:
        go.wait(10)
        for reach in (lambda: connected(socket.AF_INET, listener.getsockname()), lambda: os.system("true"),
                      lambda: Path("/etc/hostname").read_text()):
            try:
                reach()
            except OutsideRefused as error:
                errors.append(error)

    def start() -> None:
        if not threads:
            threads.append(threading.Thread(target=work, name="late"))
            threads[0].start()

    def build(client: Client) -> Any:
        if place == "build":
            start()
        return program(start if place == "a run" else lambda: None)(client)

    if place == "import":
        with threads_jailed():
            start()
    found = plan(build, snapshot)
    if place != "import":
        assert "what the program's threads do after its runs (late)" in found.not_simulated
    go.set()
    threads[0].join()
    assert len(errors) == 3
    assert not is_called(listener)
    connected(socket.AF_INET, listener.getsockname())  # this thread may


def test_a_thread_with_the_identifier_of_an_ended_one_is_refused(snapshot: Snapshot, listener: socket.socket) -> None:
    """Operating systems give the identifier of a thread that has ended to the next one."""
    end, results = threading.Event(), []
    others = [threading.Thread(target=end.wait, args=(10,)) for _ in range(5)]
    for one in others:
        one.start()

    def reach() -> None:
        end.set()
        for one in others:
            one.join()
        for _ in range(5):
            thread = threading.Thread(target=lambda: results.append(swallowing(listener)))
            thread.start()
            thread.join()

    plan(program(reach), snapshot)
    assert results
    assert all(results)
    assert not is_called(listener)


def swallowing(listener: socket.socket) -> bool:
    try:
        connected(socket.AF_INET, listener.getsockname())
    except OutsideRefused:
        return True
    return False
