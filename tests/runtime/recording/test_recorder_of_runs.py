"""What a controller records of itself: in a simulation, and with its threads."""
from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Config,
    Context,
    Controller,
    RequestError,
    WatcherConfig,
)
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime import recording
from kubectl_runtime.runtime.recording import RunRecorder
from kubectl_runtime.testing import CRASH, ApiServer, Simulation, perturb


def build(client: Client, path: Path, **options: Any) -> BoundController[ConfigMap]:
    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name.startswith("kube"):
            return Action.await_change()
        Api.namespaced(ctx.client, Secret, "default").apply(Secret(name=obj.name, data={"p": b"hunter2"}),
                                                            field_manager="test")
        Api.namespaced(ctx.client, ConfigMap, "default").get_opt("nowhere")
        if obj.name == "bad":
            raise ValueError(f"nothing to be done for {obj.name}")
        return Action.await_change()

    return Controller(Api.all(client, ConfigMap), record=path, **options).owns(Api.all(client, Secret)).bind(reconcile)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def simulated(simulation: Simulation, server: ApiServer) -> Client:
    session = requests.Session()
    session.mount("http://", server.transport())
    return Client(Config(cluster_url="http://simulated"), session=session, clock=simulation.clock)


def test_changes_triggers_runs_calls_and_results_are_recorded_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "flight.jsonl"
    simulation = Simulation(1)
    server = ApiServer(clock=simulation.clock, seed=1)
    with simulated(simulation, server) as client:
        bound = build(client, path)
        running = simulation.start(bound.controller, bound.reconciler)
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="bad"))
        simulation.settle(0.01)
        running.begin_stop()
        simulation.settle(40)
    text = path.read_text()
    assert "hunter2" not in text
    assert "aHVudGVyMg" not in text
    found = lines(path)
    assert found[0]["k"] == "begin"
    assert "withheld" in found[0]["note"]
    assert [line["w"] for line in found if line["k"] == "watch"] == ["configmaps", "secrets"]
    kinds = [line["k"] for line in found]
    run = next(line for line in found if line["k"] == "run")
    mine = [line for line in found if line.get("id") == run["id"]]
    assert [line["k"] for line in mine] == ["run", "call", "call", "end"]
    assert (run["ns"], run["name"], run["reason"], run["failures"]) == ("default", "bad", "object updated", 0)
    assert (mine[1]["m"], mine[1]["path"], mine[1]["s"]) == ("PATCH", "/api/v1/namespaces/default/secrets/bad", 201)
    assert (mine[2]["m"], mine[2]["s"], mine[2]["a"]["reason"]) == ("GET", 404, "NotFound")
    assert mine[3]["type"] == "builtins.ValueError"
    assert "nothing to be done for bad" in mine[3]["trace"]
    assert kinds.index("apply") < kinds.index("trigger") < kinds.index("run")
    assert kinds[-1] == "stop"


def test_a_controller_with_threads_writes_in_its_own_and_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "flight.jsonl"
    with ApiServer() as server, server.client() as client:
        bound = build(client, path)
        with bound.start() as running:
            running.wait_until_ready(30)
            maps = Api.namespaced(client, ConfigMap, "default")
            for number in range(20):
                maps.create(ConfigMap(name=f"m{number}"))
            server.requests.wait_for(20, "patch", resource="secrets", timeout=30)
            with pytest.raises(RequestError, match="another controller is recording into this file"):
                build(client, path, name="second").start()
    assert not any(" recorder" in thread.name for thread in threading.enumerate())
    found = lines(path)
    begun, ended = ({line["id"] for line in found if line["k"] == kind} for kind in ("run", "end"))
    assert begun == ended
    assert {line["name"] for line in found if line["k"] == "run"} == {f"m{number}" for number in range(20)}
    assert not any(line["k"] == "lost" for line in found)
    build(client, path)  # the lock is free again


def test_views_and_metadata_are_recorded_as_what_they_are(tmp_path: Path) -> None:
    from kubectl_runtime.core.objects.partial import PartialView

    class View(PartialView):
        data: dict[str, str] | None = None

    path = tmp_path / "flight.jsonl"
    simulation = Simulation(1)
    server = ApiServer(clock=simulation.clock, seed=1)
    with simulated(simulation, server) as client:
        maps = Api.all(client, ConfigMap)
        controller: Any = Controller(maps, record=path, watch=WatcherConfig(fields=View)).watches(
            Api.all(client, Secret).with_metadata_only(), lambda secret: [])
        simulation.start(controller, lambda obj, ctx: Action.await_change())
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a", data={"x": "y"}))
        simulation.settle(5)
    found = lines(path)
    places = {line["w"]: line["place"] for line in found if line["k"] == "watch"}
    assert places["secrets"]["metadata"] is True
    seen = next(line for line in found if line["k"] == "apply" and line["key"] == "default/a")
    assert seen["o"]["data"] == {"x": "y"}
    assert seen["o"]["metadata"]["uid"]


def test_a_queue_that_is_full_loses_entries_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_ENTRIES", 3)
    recorder = RunRecorder(tmp_path / "flight", "x", SYSTEM_CLOCK)
    recorder.open()
    for _ in range(5):
        recorder.ready("maps")
    recorder.pump()
    recorder.ready("pods")
    recorder.close("done", 1)
    assert [line["k"] for line in lines(tmp_path / "flight")] == ["begin", "ready", "ready", "ready", "lost", "ready",
                                                                  "stop"]
    assert recorder.lost == 2


def test_a_disk_that_fails_ends_the_recording_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "flight"
    recorder = RunRecorder(path, "x", SYSTEM_CLOCK)
    recorder.open()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patched:
        patched.setattr("kubectl_runtime.runtime.recording.os.write", full)
        recorder.ready("maps")
        recorder.pump()
    recorder.ready("maps")
    recorder.pump()
    recorder.close("done", 1)
    assert "No space left" in caplog.text
    assert [line["k"] for line in lines(path)] == ["begin"]


@pytest.mark.parametrize("path", ["", "  ", 3, "."])
def test_what_names_no_file_is_refused(path: Any) -> None:
    with pytest.raises(RequestError, match="record must be the path of a file"):
        build(Client(Config(cluster_url="http://127.0.0.1:1")), path)


def test_a_place_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = Client(Config(cluster_url="http://127.0.0.1:1"))
    for _ in range(2):  # the name is free again
        with pytest.raises(RequestError, match="cannot be written"):
            build(client, tmp_path / "file" / "flight").start()


@pytest.mark.parametrize("kind", ["device", "pipe", "link"])
def test_a_place_that_is_no_file_is_refused_at_the_start_without_a_wait(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/null") if kind == "device" else tmp_path / "flight"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="not a regular file"):
        build(Client(Config(cluster_url="http://127.0.0.1:1")), path).start()
    assert not (tmp_path / "elsewhere").exists()


def test_the_child_of_a_fork_records_nothing_and_the_parent_goes_on(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "flight", "x", SYSTEM_CLOCK)
    recorder.start()
    recorder.ready("before")
    with recorder._lock:  # as if another thread were just writing
        child = os.fork()
        if child == 0:
            recorder.ready("in the child")
            recorder.close("in the child", 1)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    recorder.ready("after")
    recorder.close("done", 5)
    assert [line.get("w") for line in lines(tmp_path / "flight") if line["k"] == "ready"] == ["before", "after"]


def test_a_killed_process_leaves_its_file_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "flight.jsonl"
    simulation = Simulation(1)
    server = ApiServer(clock=simulation.clock, seed=1)
    for name in ("a", "b"):
        with simulated(simulation, server) as client:
            bound = build(client, path)
            simulation.start(bound.controller, bound.reconciler)
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name=name))
            simulation.settle(5)
            simulation.kill()
    assert {line["name"] for line in lines(path) if line["k"] == "run"} >= {"a", "b"}
    assert {line["name"] for line in lines(tmp_path / "flight.jsonl.before") if line["k"] == "run"} >= {"a"}


def test_a_perturbed_controller_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "flight.jsonl"

    def story(client: Client) -> None:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="good"))

    assert perturb(lambda client: build(client, path), story, faults={CRASH}).ok
    assert not path.exists()
