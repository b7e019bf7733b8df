"""The rights that reconcilers use: those of their runs and of their events, and nothing that tests do beside them."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import requests

from kubectl_runtime import Action, Api, Client, Config, Context, Controller
from kubectl_runtime.core.requests.rights import Right
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, Simulation
from kubectl_runtime.testing.rights_recorder import Recorded, RightsRecorder


def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    Api.namespaced(ctx.client, Secret, obj.namespace).get_opt("wanted")
    ctx.record("Looked", "nothing was there")
    return Action.await_change()


def story(sim: Simulation) -> Client:
    server = ApiServer(clock=sim.clock)
    session = requests.Session()
    session.mount("http://", server.transport())
    client = Client(Config(cluster_url="http://simulated"), session=session, clock=sim.clock)
    sim.start(Controller(Api.all(client, ConfigMap)), reconcile)
    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    sim.settle(30)
    Api.namespaced(client, ConfigMap, "default").delete("a")
    return client


def test_runs_and_their_events_are_recorded_and_nothing_else(tmp_path: Path) -> None:
    with RightsRecorder() as recorder, story(Simulation()):
        pass
    wanted = [Right("", "secrets", "get", "default"), Right("events.k8s.io", "events", "create", "default")]
    assert recorder.rights() == wanted
    recorder.write(tmp_path / "rights.json")
    assert msgspec.json.decode((tmp_path / "rights.json").read_bytes(), type=Recorded).rights == wanted


def test_after_the_recording_clients_are_as_they_were() -> None:
    call: Any = Client._call
    with RightsRecorder() as recorder:
        assert Client._call is not call
    assert Client._call is call
    with story(Simulation()):
        assert recorder.rights() == []
