"""`ApiServer` as a user meets it: loading, snapshots, its clock, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import requests

from kubectl_runtime import Api
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.resources import Namespace
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.__main__ import duration, main
from kubectl_runtime.testing.clock import SimClock

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MANIFESTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {since: {type: string}}}
          status: {type: object, properties: {ready: {type: boolean}}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: a, namespace: made-on-the-way}
spec: {since: 2024-01-01}
status: {ready: true}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {k: v}}
"""


@pytest.fixture
def server():
    with ApiServer() as server:
        yield server


def get(server, path):
    return requests.get(server.url + path, timeout=10)


def test_manifests_are_loaded_from_text_files_folders_and_objects(server, tmp_path):
    assert server.load(MANIFESTS) == 3
    widget = get(server, "/apis/example.com/v1/namespaces/made-on-the-way/widgets/a").json()
    assert (widget["spec"], widget["status"]) == ({"since": "2024-01-01"}, {"ready": True})
    (tmp_path / "one.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    (tmp_path / "ignored.txt").write_text("no manifest")
    assert server.load(tmp_path) == 1
    assert server.load(str(tmp_path / "one.yaml")) == 1
    assert server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "w"}}) == 1
    assert get(server, f"{CONFIG_MAPS}/b").json()["data"] == {"k": "w"}


@pytest.mark.parametrize(("manifest", "complaint"), [
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Bad_Name"}},
     "ConfigMap default/Bad_Name.*RFC 1123"),
    ({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}},
     "Gadget 'g'.*CustomResourceDefinition"),
    ({"metadata": {"name": "nameless"}}, r"'nameless' \(the object given\): it has no apiVersion and no kind"),
    ({"kind": "Pod", "metadata": {"name": "a"}}, r"cannot load Pod 'a' \(the object given\): it has no apiVersion$"),
    ({"apiVersion": "v1", "kind": "", "metadata": {"name": "a"}}, "cannot load the object 'a'.*it has no kind$"),
    ("kind: Pod\napiVersion: null\nmetadata: {name: a}\n", "document 1, line 1.: it has no apiVersion$"),
    ("a: [", r"the YAML text, document 1, line \d: yaml: "),
    ("- a\n- b\n", "there is a list where a Kubernetes object is expected"),
    ("manifest.yaml", "there is no file or folder 'manifest.yaml', and as text it is not"),
    ("kind: ConfigMap\napiVersion: v1\nmetadata: 5\n", "the YAML text, document 1, line 1 is not a Kubernetes object"),
    ("kind: [x]\napiVersion: v1\n", "the YAML text, document 1, line 1 is not a Kubernetes object"),
    ("kind: A\napiVersion: 1\n", "the YAML text, document 1, line 1 is not a Kubernetes object"),
    ("{apiVersion: v1, kind: ConfigMap, metadata: {name: ok}}\n---\n---\n{kind: List, items: [5]}\n",
     "the YAML text, document 2, line 4, item 1: there is a number where"),
    ([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ok"}},
      {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": 5}}],
     r"cannot load ConfigMap default/a \(object 2\): .*cannot unmarshal number"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "A_"}},
     r"ConfigMap A_/a \(the object given\): Namespace \"A_\" is invalid"),
    ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"startTime": "yesterday"},
      "spec": {"containers": [{"name": "c", "image": "i"}]}}, "cannot load Pod default/a .*parsing time"),
])
def test_what_cannot_be_loaded_is_named(server, manifest, complaint):
    with pytest.raises(ValueError, match=complaint):
        server.load(manifest)


def test_a_file_that_cannot_be_loaded_is_named_with_its_document(server, tmp_path):
    manifest = tmp_path / "two.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Nothing}")
    with pytest.raises(ValueError, match=r"two\.yaml, document 2, line 3"):
        server.load(tmp_path)
    manifest.write_text("kind: [")
    with pytest.raises(ValueError, match=r"two\.yaml, document 1, line \d: yaml"):
        server.load(manifest)


def test_lists_are_loaded_item_by_item_and_typed_ones_name_the_kind(server):
    item = {"metadata": {"name": "in-a-list"}}
    config_maps = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [item]}
    assert server.load({"apiVersion": "v1", "kind": "List", "items": [config_maps, {
        "apiVersion": "v1", "kind": "Namespace", **item}]}) == 2
    assert get(server, f"{CONFIG_MAPS}/in-a-list").status_code == 200


def test_the_status_of_a_crd_in_a_manifest_is_left_to_the_server(server):
    names = {"plural": "things", "kind": "Thing"}
    server.load({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                 "metadata": {"name": "things.example.com"},
                 "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [{
                     "name": "v1", "served": True, "storage": True,
                     "schema": {"openAPIV3Schema": {"type": "object"}}}]},
                 "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": [], "storedVersions": []}})
    assert server.load({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}) == 1


def test_a_thousand_pods_are_loaded_from_a_generator_and_all_are_listed(server):
    names = {f"p{number}" for number in range(1_000)}
    count = server.load({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
                         "spec": {"containers": [{"name": "main", "image": "example/app:1"}]}} for name in names)
    pods = get(server, "/api/v1/namespaces/default/pods").json()["items"]
    assert count == len(pods) == 1_000
    assert {pod["metadata"]["name"] for pod in pods} == names
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"example/app:1"}
    assert len({pod["metadata"]["uid"] for pod in pods}) == 1_000


def test_a_snapshot_brings_back_what_was_deleted(server):
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    before = server.snapshot()
    requests.delete(f"{server.url}{CONFIG_MAPS}/a", timeout=10)
    assert get(server, f"{CONFIG_MAPS}/a").status_code == 404
    server.restore(before)
    assert get(server, f"{CONFIG_MAPS}/a").status_code == 200


def test_a_snapshot_of_one_server_can_be_the_beginning_of_another(server):
    server.load(MANIFESTS)
    with ApiServer() as other:
        other.restore(server.snapshot())
        listed = get(other, "/apis/example.com/v1/widgets").json()
    assert len(listed["items"]) == 1
    assert int(listed["metadata"]["resourceVersion"]) >= int(listed["items"][0]["metadata"]["resourceVersion"])


def test_time_is_the_clocks():
    clock = SimClock()
    with ApiServer(clock=clock) as server:
        made = requests.post(server.url + CONFIG_MAPS, json={"metadata": {"name": "a"}}, timeout=10).json()
        assert made["metadata"]["creationTimestamp"] == clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        watch = requests.get(server.url + CONFIG_MAPS, {"watch": "1", "timeoutSeconds": "30"}, stream=True, timeout=10)
        lines = watch.iter_lines(chunk_size=None)
        assert json.loads(next(lines))["type"] == "ADDED"
        clock.settle(2)  # the housekeeper and the watch
        clock.advance(30)
        assert list(lines) == []


def test_a_client_takes_the_servers_clock_only_where_that_is_said():
    clock = SimClock()
    with ApiServer(clock=clock) as server, server.client() as real, server.client(clock=server.clock) as simulated:
        assert (real.clock, simulated.clock) == (SYSTEM_CLOCK, clock)
        for client in (real, simulated):
            assert Api.all(client, Namespace).get("default").name == "default"


def test_a_step_of_a_controller_that_fails_does_not_end_the_others(monkeypatch, caplog):
    clock = SimClock()
    server = ApiServer(clock=clock)
    tick, failed = server.core.tick, []

    def fail_once():
        if not failed:
            failed.append(True)
            raise KeyError("a defect")
        tick()

    monkeypatch.setattr(server.core, "tick", fail_once)
    with server:
        requests.post(f"{server.url}/api/v1/namespaces", json={"metadata": {"name": "a"}}, timeout=10)
        requests.delete(f"{server.url}/api/v1/namespaces/a", timeout=10)
        clock.settle(1)
        clock.run_until(lambda: get(server, "/api/v1/namespaces/a").status_code == 404)
    assert "a step of the embedded API server's controllers failed" in caplog.text


@pytest.mark.parametrize("mode", ["AlwaysAllow", "RBAC"])
def test_a_seed_makes_uids_and_generated_names_reproducible(mode):
    def everything():
        server = ApiServer(seed=7, authorization_mode=mode)
        server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}})
        return [(version.name, version.uid) for bucket in server.core.cluster.storage.buckets.values()
                for version in bucket.objects.values()]

    assert everything() == everything()


def test_an_unknown_controller_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown controllers: replication; available: garbage-collector"):
        ApiServer(controllers=("replication",))
    with pytest.raises(ValueError, match="a list of names"):
        ApiServer(controllers="kubelet")


def test_the_address_is_known_only_once_it_runs():
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = ApiServer().url


def test_an_address_that_cannot_be_had_is_named():
    with ApiServer() as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"cannot listen at 127.0.0.1:{port}: .*in use"):
            ApiServer(port=port).start()
    with pytest.raises(OSError, match=r"cannot listen at 192.0.2.1:0: "):
        ApiServer(host="192.0.2.1").start()
    with pytest.raises(OSError, match=r"cannot listen at no-such-host.invalid:0: "):
        ApiServer(host="no-such-host.invalid").start()


@pytest.mark.parametrize(("text", "seconds"), [("15s", 15), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("0", 0)])
def test_durations_are_gos(text, seconds):
    assert duration(text) == seconds


def test_the_command_serves_until_a_signal(tmp_path):
    config, manifest = tmp_path / "config", tmp_path / "a.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    command = [sys.executable, "-m", "kubectl_runtime.testing", "--kubeconfig", str(config), "--load", str(manifest)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        word, url = process.stdout.readline().split()
        assert word == "ready"
        assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == url
        assert requests.get(f"{url}{CONFIG_MAPS}/a", timeout=10).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_says_what_is_wrong(capsys):
    previous = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--controllers", "nonsense"]) == 1
    finally:
        signal.signal(signal.SIGINT, previous[0])
        signal.signal(signal.SIGTERM, previous[1])
    assert "error: unknown controllers: nonsense" in capsys.readouterr().err
