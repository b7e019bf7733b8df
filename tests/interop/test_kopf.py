"""An operator written with kopf: create, update and delete handlers, with finalizers, events and children."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubectl_runtime import Api, Patch
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.resources import ConfigMap, Event

pytest.importorskip("kopf")

OPERATOR = Path(__file__).with_name("kopf_operator.py")
WIDGET = ApiResource(group="example.com", version="v1", kind="Widget", plural="widgets")


@pytest.fixture
def operator(namespace, tmp_path):
    """The operator as a process, as its users run it."""
    log = tmp_path / "operator.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen([sys.executable, "-m", "kopf", "run", "--standalone", "--verbose",
                                    "--namespace", namespace, str(OPERATOR)], stdout=output, stderr=subprocess.STDOUT)
        try:
            # Its imports alone take 20 s where the processors are busy; patience begins when it is there.
            give_up = time.monotonic() + 80
            while "Starting the watch-stream for widgets" not in log.read_text(encoding="utf-8"):
                assert process.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < give_up, log.read_text(encoding="utf-8")
                time.sleep(0.1)
            yield process
            process.terminate()
            assert process.wait(20) == 0, log.read_text(encoding="utf-8")
        finally:
            process.kill()
    assert "Traceback" not in log.read_text(encoding="utf-8")


def status(widgets):
    return widgets.get("w").to_dict().get("status", {})


@pytest.mark.usefixtures("operator")
def test_an_operator_creates_updates_and_deletes(server, namespace, until):
    with server.client() as client:
        widgets, children = Api.namespaced(client, WIDGET, namespace), Api.namespaced(client, ConfigMap, namespace)
        widgets.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
                        "spec": {"size": 1}})
        child = until(lambda: children.get_opt("w-child"))
        assert child["data"] == {"size": "1"}
        assert child["metadata"]["ownerReferences"][0]["kind"] == "Widget"
        until(lambda: status(widgets).get("create") == {"child": "w-child"})
        assert widgets.get("w")["metadata"]["finalizers"] == ["example.com/kopf-finalizer"]
        until(lambda: any(event["reason"] == "Made" for event in Api.namespaced(client, Event, namespace).list()))

        widgets.patch("w", Patch.merge({"spec": {"size": 7}}))
        until(lambda: children.get("w-child")["data"] == {"size": "7"})

        widgets.delete("w")
        until(lambda: widgets.get_opt("w") is None)
        assert children.get_opt("w-tombstone") is not None
        until(lambda: children.get_opt("w-child") is None)
