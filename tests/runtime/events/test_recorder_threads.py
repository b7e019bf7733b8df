"""The Recorder over real HTTP, in threads, in a controller, across a fork, and at the end of a program."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller, ObjectRef, Recorder
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import LIMIT, environment
from tests.runtime.events.events_cluster import EVENT, count_of

REF = ObjectRef.of(ConfigMap, "a", "default")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        yield started


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as made:
        yield made


def counts(client: Client, controller: str) -> list[int]:
    events = [event.to_dict() for event in Api.all(client, EVENT).list().items]
    return sorted(count_of(event) for event in events if event["reportingController"] == controller)


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_events_of_many_threads_are_each_counted_once_by_one_thread_that_ends_with_the_recorder(client: Client) -> None:
    with Recorder(client, "op") as recorder, ThreadPoolExecutor(8) as pool:
        for number in range(400):
            pool.submit(recorder.publish, REF, f"R{number % 4}", "x")
        pool.shutdown(wait=True)
        assert len(threads("events-of-op")) == 1
        assert recorder.flush(30)
    assert counts(client, "op") == [100] * 4
    assert threads("events-of-op") == []


def test_closing_while_others_publish_ends_in_time_and_each_event_is_told_or_lost(client: Client) -> None:
    recorder, begun, closed = Recorder(client, "op"), threading.Barrier(5), threading.Event()

    def publish(number: int) -> int:
        published, left = 0, 100
        while left:
            recorder.publish(REF, f"R{number}", "x")
            published += 1
            left -= closed.is_set()
            if published == 1:
                begun.wait(LIMIT)
        return published

    with ThreadPoolExecutor(4) as pool:
        publishing = [pool.submit(publish, number) for number in range(4)]
        begun.wait(LIMIT)
        recorder.close(20)
        closed.set()
    published = sum(future.result() for future in publishing)
    assert recorder.lost["closed"] >= 400
    assert sum(counts(client, "op")) + recorder.lost["closed"] == published
    assert threads("events-of-op") == []


def test_publishing_does_not_wait_for_a_server_that_does_not_answer(server: ApiServer, client: Client) -> None:
    server.faults.on("create", resource="events.events.k8s.io").never_answer()
    recorder = Recorder(client, "op")
    done = threading.Event()

    def publish() -> None:
        for number in range(3000):
            recorder.publish(ObjectRef.of(ConfigMap, f"m{number}", "default"), "R", "x")
        done.set()

    threading.Thread(target=publish, daemon=True).start()
    assert done.wait(20)
    assert recorder.lost["full"] >= 1900
    assert not recorder.flush(0.1)
    assert not recorder.close(0)


def test_what_a_reconciler_records_last_is_told_before_its_controller_has_stopped(client: Client) -> None:
    recorded = threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name == "a":
            recorded.set()
            ctx.stop.wait(0.2)
            ctx.record("Stopping", "the last word", warning=True)
        return Action.await_change()

    made = Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    with Controller(Api.namespaced(client, ConfigMap, "default"), name="é my/maps").start(reconcile):
        assert recorded.wait(30)
    (event,) = [event.to_dict() for event in Api.all(client, EVENT).list().items
                if event["reason"] == "Stopping"]
    assert (event["regarding"]["uid"], event["type"], event["note"]) == (made.uid, "Warning", "the last word")
    assert event["reportingController"] == "my/maps"
    assert threads("events-of-my/maps") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("used", [True, False])
def test_after_a_fork_only_a_recorder_that_was_not_used_sends_in_the_child(
        client: Client, used: bool, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(client, "op")
    if used:
        recorder.publish(REF, "Parent", "x")
    with recorder._sender._changed, recorder._starting:  # a thread that holds the locks does not exist in the child
        child = os.fork()
        if child == 0:
            status = 1
            try:
                caplog.clear()
                recorder.publish(REF, "Child", "x")
                recorder.publish(REF, "Child", "x")
                said = [line for line in caplog.messages if "forked from" in line]
                nothing_left = recorder.close(20)
                status = 0 if nothing_left and (len(said), recorder.lost) == ((1, {"closed": 2}) if used else (0, {})
                                                                              ) else 2
            finally:
                os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    recorder.publish(REF, "Parent", "x")
    assert recorder.close(20)
    assert counts(client, "op") == ([2] if used else [1, 2])


PROGRAM = """
from kubectl_runtime import Client, Config, ObjectRef, Recorder
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.events import recorder as module
module.AT_EXIT = 60.0  # seconds, for a busy machine
recorder = Recorder(Client.try_default(), "op")
for number in range(20):
    recorder.publish(ObjectRef.of(ConfigMap, f"m{number}", "default"), "Ended", "x")
"""


def test_a_program_that_ends_without_closing_loses_nothing(server: ApiServer, client: Client, tmp_path) -> None:  # type: ignore[no-untyped-def] # pytest's path
    kubeconfig = {"KUBECONFIG": str(server.write_kubeconfig(tmp_path / "kubeconfig"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment(kubeconfig), capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert counts(client, "op") == [1] * 20
