"""kopf's side of each pair in the guides for those who come from it: it runs, and ends as ours does."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kubectl_runtime import Api
from tests.examples.coming_from import BEFORE, HANDLED, STORIES, THING, make, save

pytest.importorskip("kopf")

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                      "schema": {"openAPIV3Schema": {
                          "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


@pytest.mark.parametrize("name", STORIES)
def test_kopfs_side_does_it(name, server, namespace, until, tmp_path):
    save(tmp_path)
    server.load(DEFINITION)
    log = tmp_path / "operator.log"
    with server.client() as client, log.open("w", encoding="utf-8") as output:
        things = Api.namespaced(client, THING, namespace)
        if name in BEFORE:
            make(things, HANDLED)
        process = subprocess.Popen([sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", namespace,
                                    f"kopf_{name}.py"], cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
        try:
            give_up = time.monotonic() + 80  # its imports alone take 20 s where the processors are busy
            while "Initial authentication has finished" not in log.read_text(encoding="utf-8"):
                assert process.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < give_up, log.read_text(encoding="utf-8")
                time.sleep(0.1)
            STORIES[name](things, until, tmp_path)
            process.terminate()
            assert process.wait(30) == 0, log.read_text(encoding="utf-8")
        finally:
            process.kill()
            process.wait()
