"""What the guide to outages says happens."""
from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Context, Controller, WatcherConfig
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, blocks

GUIDE = ROOT / "examples" / "guides" / "production" / "outages.md"
LIMIT = 30.0


def test_the_guide_is_short_and_its_programs_run() -> None:
    assert len(GUIDE.read_text().splitlines()) <= 150
    config, trial = blocks(GUIDE, "python")
    names: dict[str, Any] = {}
    exec(config, names)
    assert names["watch"] == WatcherConfig(verify=600)
    exec(trial, names)
    assert names["server"].requests is not None


def test_a_controller_lives_through_the_guides_trial_and_warns_of_the_older_data(
        caplog: pytest.LogCaptureFixture) -> None:
    seen: dict[str, str] = {}
    changed = threading.Condition()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        with changed:
            seen[obj.name] = obj.data["value"]
            changed.notify_all()
        return Action.await_change()

    def wait_for(**values: str) -> None:
        with changed:
            assert changed.wait_for(lambda: values.items() <= seen.items(), LIMIT), seen

    def put(value: str) -> None:
        server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"},
                      "data": {"value": value}}])

    with ApiServer() as server, server.client() as client, caplog.at_level(logging.WARNING):
        put("old")
        with Controller(Api.namespaced(client, ConfigMap, "default")).start(reconcile) as running:
            wait_for(a="old")
            before = server.snapshot()
            server.restart(lose_history=True, initializing=2)
            server.core.starting = None  # it is ready now
            put("new")
            wait_for(a="new")
            server.stop()
            end = time.monotonic() + LIMIT
            while (state := running.watch_state) is None or not state.last_error:  # it has met nobody
                assert time.monotonic() < end, state
                time.sleep(0.01)
            server.restore(before, rewind=True)
            server.start()
            wait_for(a="old")
            assert [state.phase.value for state in running.watch_states.values()] == ["watching"]
    assert "the server went back in time" in caplog.text
