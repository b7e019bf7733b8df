"""A recorded run once more: the same exception from the same stores and answers, and where a program departs."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    Manager,
    ObjectRef,
    Patch,
    WatcherConfig,
    strip_managed_fields,
)
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime.controller.plan import WatchPlan
from kubectl_runtime.runtime.recording import RunRecorder
from kubectl_runtime.testing import ApiServer, RecordingError, Simulation, replay
from tests.examples.programs import environment

PROGRAM = '''
"""Its create fails the second time: the process ended between the child and the status."""
from pathlib import Path
from kubectl_runtime import Action, Api, Controller, Patch
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap, Secret

def reconcile(obj, ctx):
    if obj.labels.get("kind") != "site" or "ready" in obj.labels:
        return Action.await_change()
    maps = Api.namespaced(ctx.client, ConfigMap, "default")
    maps.create(ConfigMap(name=f"{obj.name}-child", data={"size": str(len(ctx.store(ConfigMap).filter("kind=site")))}))
    maps.patch(obj.name, Patch.merge({"metadata": {"labels": {"ready": "yes"}}}))
    return Action.await_change()

def main(client):
    return Controller(Api.all(client, ConfigMap), record=Path(__file__).parent / "flight.jsonl").bind(reconcile)
'''


def site(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(name=name, labels={"kind": "site", **labels})


def test_a_recorded_failure_comes_to_the_same_exception_in_a_fresh_process(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sites_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sites_program", raising=False)
    import sites_program  # type: ignore[import-not-found]

    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.create(site("good"))
        maps.create(ConfigMap(name="bad-child"))  # what the process before left
        with sites_program.main(client).start() as running:
            running.wait_until_ready(30)
            server.requests.wait_for(1, "patch", resource="configmaps", timeout=30)
            maps.create(site("bad"))
            server.requests.wait_for(6, "create", resource="configmaps", timeout=30)
    sys.modules.pop("sites_program")
    typed = [sys.executable, "-m", "kubectl_runtime", "replay", "flight.jsonl", "sites_program:main"]
    done = subprocess.run(typed, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'the same exception as recorded: ApiError: create configmaps default/bad-child: ' in done.stdout
    assert "departs" not in done.stdout
    assert 'in reconcile\n    maps.create(ConfigMap(name=f"{obj.name}-child"' in done.stdout
    # another program departs, and says where
    (tmp_path / "sites_program.py").write_text(PROGRAM.replace("maps.create(", "maps.get_opt('a') or maps.create(", 1))
    done = subprocess.run(typed, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "of default/bad asks to GET /api/v1/namespaces/default/configmaps/a, which was not recorded" in done.stdout


class Recorded:
    """A program that is recorded in a simulation; `reconcile` may be another one when it is replayed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []

    def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name.startswith("kube"):
            return Action.await_change()
        there = sorted(one.name for one in ctx.store(ConfigMap) if not one.name.startswith("kube"))
        self.seen.append(f"{obj.name} {(obj.data or {}).get('n')} {','.join(there)} {ctx.attempt}")
        secrets = Api.namespaced(ctx.client, Secret, "default")
        secrets.apply(Secret(name=obj.name, data={"p": b"hunter2"}), field_manager="test")
        Api.namespaced(ctx.client, ConfigMap, "default").get_opt("nowhere")
        if len(there) > 2:
            raise RuntimeError(f"{len(there)} are too many")
        return Action.requeue(50)

    def build(self, client: Client) -> BoundController[ConfigMap]:
        return Controller(Api.all(client, ConfigMap), record=self.path).bind(self.reconcile)

    def record(self, seed: int = 1) -> None:
        simulation = Simulation(seed)
        server = ApiServer(clock=simulation.clock, seed=seed)
        session = requests.Session()
        session.mount("http://", server.transport())
        with Client(Config(cluster_url="http://simulated"), session=session, clock=simulation.clock) as client:
            bound = self.build(client)
            running = simulation.start(bound.controller, bound.reconciler)
            maps = Api.namespaced(client, ConfigMap, "default")
            for name in "abc":
                maps.create(ConfigMap(name=name, data={"n": "1"}))
                simulation.settle(20)
            maps.patch("a", Patch.merge({"data": {"n": "2"}}))
            simulation.settle(1)
            maps.delete("b")
            maps.delete("c")
            simulation.settle(100)
            running.begin_stop()
            simulation.settle(40)


@pytest.mark.parametrize("seed", range(3))
def test_each_run_sees_what_it_saw_at_the_time_it_did(tmp_path: Path, seed: int) -> None:
    recorded, again = Recorded(tmp_path / "flight"), Recorded(tmp_path / "flight")
    recorded.record(seed)
    replayed = replay(tmp_path / "flight", again.build)
    assert replayed.same
    assert replayed.departures == ()
    assert str(replayed.error) == "3 are too many"
    assert again.seen == recorded.seen[:len(again.seen)]
    assert any(line.startswith("a 2 a,b,c") for line in again.seen)
    everything = Recorded(tmp_path / "flight")
    last = max(json.loads(line).get("id", 0) for line in (tmp_path / "flight").read_text().splitlines())
    whole = replay(tmp_path / "flight", everything.build, run=last)
    assert whole.same
    assert whole.error is None
    assert everything.seen == recorded.seen


def test_a_program_that_does_something_else_is_told_of(tmp_path: Path) -> None:
    class Other(Recorded):
        def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
            Api.namespaced(ctx.client, Secret, "default").apply(Secret(name=obj.name, data={"q": b"1"}),
                                                                field_manager="test")
            return Action.await_change()

    Recorded(tmp_path / "flight").record()
    replayed = replay(tmp_path / "flight", Other(tmp_path / "flight").build)
    assert not replayed.same
    assert replayed.error is None
    assert replayed.recorded == "builtins.RuntimeError: 3 are too many"
    assert any(text.endswith("sends another body with PATCH /api/v1/namespaces/default/secrets/a")
               for text in replayed.departures)
    assert any("did not GET" in text for text in replayed.departures)
    assert any("ended with success; the recorded result is error" in text for text in replayed.departures)


def test_a_recording_that_a_crash_cut_off_anywhere_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    Recorded(path).record()
    data = path.read_bytes()
    for end in range(len(data) // 2, len(data), len(data) // 12):
        path.write_bytes(data[:end])
        replayed = replay(path, Recorded(path).build)
        assert replayed.departures == () or all("did not" in text for text in replayed.departures)


def test_a_recording_over_two_files_is_one_and_the_second_alone_is_enough(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "flight"
    monkeypatch.setitem(RunRecorder.__init__.__kwdefaults__, "limit", 24_000)
    Recorded(path).record()
    assert Path(f"{path}.1").exists()
    both = replay(path, Recorded(path).build)
    assert both.departures == ()
    assert "the end of a longer one" in both.notes[0] or both.runs > 10
    Path(f"{path}.1").unlink()
    last = json.loads(path.read_text().splitlines()[-2]).get("id")
    alone = replay(path, Recorded(path).build, run=last)
    assert alone.runs < both.runs + 10
    assert alone.departures == ()


def test_a_manager_of_several_is_asked_for_the_one_that_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    Recorded(path).record()

    def build(client: Client) -> Manager:
        other = Controller(Api.all(client, Secret), name="other").bind(lambda obj, ctx: Action.await_change())
        return Manager(client, serve=None).add(other).add(Recorded(path).build(client))

    assert replay(path, build).same
    with pytest.raises(RecordingError, match="called configmap, but the program makes other"):
        replay(path, lambda client: Controller(Api.all(client, Secret), name="other").bind(
            lambda obj, ctx: Action.await_change()))


@pytest.mark.parametrize(("text", "says"), [
    ("", "is not a recording"), ("{}", "is not a recording"), ("hello\n", "is not a recording"),
    ('{"k":"begin","format":99}\n', "has the format 99"), ('{"k":"begin","format":1}\n', "no run in the recording"),
    ('{"k":"run"}\n', "is not a recording")])
def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "flight"
    path.write_text(text)
    with pytest.raises(RecordingError, match=says):
        replay(path, Recorded(path).build)


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    Recorded(path).record()
    with pytest.raises(RecordingError, match="there is no run 999"):
        replay(path, Recorded(path).build, run=999)


@pytest.mark.usefixtures("logs_as_before")
def test_the_command_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    from kubectl_runtime.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sites_wrong.py").write_text(PROGRAM)
    assert main(["replay", "nothing.jsonl", "sites_wrong:main"]) == 1
    assert "nothing.jsonl" in capsys.readouterr().err
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["replay", "empty.jsonl", "sites_wrong:main"]) == 1
    assert "is not a recording" in capsys.readouterr().err
    assert main(["replay", "empty.jsonl", "sites_wrong:nothing"]) == 2
    assert "has no nothing" in capsys.readouterr().err


def test_one_place_watched_twice_and_a_kind_added_later_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    seen: list[list[str]] = []

    def build(client: Client) -> BoundController[ConfigMap]:
        def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
            seen[-1].append(f"{obj.name} {len(ctx.store(ConfigMap).filter(lambda one: one.name < 'k'))}")
            if obj.name == "c":
                raise ValueError("c")
            return Action.await_change()

        maps = Api.all(client, ConfigMap)
        return Controller(maps, record=path, modify=strip_managed_fields).watches(
            maps, lambda one: [ObjectRef(ConfigMap, "a", "default")] if one.name == "b" else []).bind(reconcile)

    simulation = Simulation(1)
    server = ApiServer(clock=simulation.clock, seed=1)
    session = requests.Session()
    session.mount("http://", server.transport())
    seen.append([])
    with Client(Config(cluster_url="http://simulated"), session=session, clock=simulation.clock) as client:
        bound = build(client)
        running = simulation.start(bound.controller, bound.reconciler)
        maps = Api.namespaced(client, ConfigMap, "default")
        for name in "abc":
            maps.create(ConfigMap(name=name))
            simulation.settle(400)  # watches end and begin again meanwhile
        running.assembly.add_watch(WatchPlan(Api.all(client, Secret), WatcherConfig(), lambda event: []))
        simulation.settle(10)
    names = [json.loads(line)["w"] for line in path.read_text().splitlines() if '"k":"watch"' in line]
    assert names == ["configmaps", "configmaps #2", "secrets"]
    seen.append([])
    replayed = replay(path, build)
    assert replayed.same
    assert replayed.departures == ()
    assert seen[1] == seen[0][:len(seen[1])]
    assert len(seen[1]) >= 4


def test_what_the_client_tried_again_is_one_call_of_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "flight"

    def build(client: Client) -> BoundController[ConfigMap]:
        def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
            if obj.name == "a":
                Api.namespaced(ctx.client, Secret, "default").get_opt("b")
            return Action.await_change()

        return Controller(Api.all(client, ConfigMap), record=path).bind(reconcile)

    for fault in ("status", "drop"):
        simulation = Simulation(1)
        server = ApiServer(clock=simulation.clock, seed=1)
        session = requests.Session()
        session.mount("http://", server.transport())
        with Client(Config(cluster_url="http://simulated"), session=session, clock=simulation.clock) as client:
            bound = build(client)
            running = simulation.start(bound.controller, bound.reconciler)
            rule = server.faults.on("get", resource="secrets")
            rule.status(503) if fault == "status" else rule.drop()
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
            simulation.settle(100)
            running.begin_stop()
            simulation.settle(40)
        replayed = replay(path, build, run=1)
        assert replayed.recorded is not None
        assert replayed.departures == ()
        assert type(replayed.error).__name__ == ("ApiError" if fault == "status" else "ConnectionFailed")
        assert replayed.alike


def test_runs_of_many_threads_are_replayed_each_from_what_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "flight"

    def build(client: Client) -> BoundController[ConfigMap]:
        def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
            if not obj.name.startswith("m"):
                return Action.await_change()
            maps = Api.namespaced(ctx.client, ConfigMap, "default")
            there = len(ctx.store(ConfigMap).filter(lambda one: one.name.startswith("m")))
            Api.namespaced(ctx.client, Secret, "default").apply(Secret(name=obj.name), field_manager="test")
            if "seen" not in obj.labels:
                obj["metadata"].setdefault("labels", {})["seen"] = "yes"
                maps.replace(obj)
            if obj.name == "m7" and "late" in obj.labels:
                raise RuntimeError(f"one of {there}")
            return Action.await_change()

        return Controller(Api.all(client, ConfigMap), record=path).owns(Api.all(client, Secret)).bind(reconcile)

    with ApiServer() as server, server.client() as client, build(client).start() as running:
        running.wait_until_ready(30)
        maps = Api.namespaced(client, ConfigMap, "default")
        for number in range(20):
            maps.create(ConfigMap(name=f"m{number}"))
        server.requests.wait_for(20, "update", resource="configmaps", timeout=60)
        maps.patch("m7", Patch.merge({"metadata": {"labels": {"late": "yes"}}}))
        server.requests.wait_for(41, "patch", resource="secrets", timeout=60)
    replayed = replay(path, build)
    assert replayed.recorded == "builtins.RuntimeError: one of 20"
    assert replayed.same
    assert replayed.departures == ()


def test_answers_that_are_no_json_come_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "flight"

    def build(client: Client) -> BoundController[ConfigMap]:
        def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
            request = Request("GET", "/healthz", "get", None, "ask whether it is well")
            raise ValueError(f"it says {ctx.client.request(request).decode()}")

        return Controller(Api.namespaced(client, ConfigMap, "default"), record=path).bind(reconcile)

    simulation = Simulation(1)
    server = ApiServer(clock=simulation.clock, seed=1)
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=simulation.clock) as client:
        bound = build(client)
        simulation.start(bound.controller, bound.reconciler)
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        simulation.settle(0.001)
    replayed = replay(path, build)
    assert replayed.recorded == "builtins.ValueError: it says ok"
    assert replayed.same
