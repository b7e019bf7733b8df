"""Recording anew: what a server still answers stays as it is in a file, another answer is written down."""

from __future__ import annotations

import copy
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tools import record as command
from tests.tools.recorder import recording, refusals
from tests.tools.recorder.compare import comparable
from tests.tools.recorder.embedded import GoldenServers
from tests.tools.recorder.files import RecordingFile

SERVER = Path(__file__).parents[1] / "apiserver"
VECTORS = SERVER / "golden/vectors"
RECORDED = SERVER / "golden/recorded"
REFUSALS = SERVER / "kinds/refusals"
ALL = sorted([*VECTORS.glob("*.json"), *RECORDED.glob("*.json"), *REFUSALS.glob("*.json")])
SELECTION = [
    (VECTORS / "crud.json", "update-stale|create-generate-name|forbidden"),
    (VECTORS / "patch.json", "merge-cr|json-patch-test"),
    (VECTORS / "watch.json", "recreated"),
    (VECTORS / "list.json", "pages$"),
    (RECORDED / "scale.json", ""),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with GoldenServers(tmp_path_factory.mktemp("recorder")) as started:
        yield started


@pytest.fixture
def run(servers, capsys):
    """Runs the command against a server; its exit status and what it prints."""
    def run(*arguments):
        server = servers.server({})
        status = command.main([
            "--server", server.url, "--token", server.tokens["admin"], "--user-token", server.tokens["user"],
            "--jobs", "8", *map(str, arguments)])
        return status, capsys.readouterr().out

    return run


def edited(path, target, change):
    """A copy of a file whose entries were changed."""
    file = RecordingFile.read(path)
    change(file.entries)
    target.write_text(file.text(), encoding="utf-8")
    return target


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_that_is_read_and_written_is_the_same(path):
    assert RecordingFile.read(path).text() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "only"), SELECTION, ids=lambda value: getattr(value, "stem", None))
def test_recording_anew_changes_nothing_where_the_server_answers_the_same(run, tmp_path, path, only):
    copied = Path(shutil.copy(path, tmp_path))
    status, printed = run("--only", only, copied)
    assert (status, copied.read_text()) == (0, path.read_text()), printed
    assert " 0 recorded" not in printed


def without_answers(vector):
    """A vector as its author writes it; what `contains` keeps of an answer is the author's as well."""
    bare = {key: copy.deepcopy(value) for key, value in vector.items() if key != "rvOrder"}
    for step in bare["steps"]:
        if step.get("compare") != "contains":
            step.pop("expect", None)
    return bare


@pytest.mark.parametrize(("path", "only"), SELECTION, ids=lambda value: getattr(value, "stem", None))
def test_a_vector_without_answers_gets_those_that_were_recorded(servers, path, only):
    chosen = [vector for vector in RecordingFile.read(path).entries if re.search(only, vector["name"])]
    assert chosen
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(recording.record, without_answers(vector), servers.server(vector), f"new{path.stem}{index}")
                for index, vector in enumerate(chosen)]
    for vector, job in zip(chosen, jobs, strict=True):
        new = job.result()
        assert not new.failed, new.notes
        assert new.entry.get("rvOrder") == vector.get("rvOrder")
        for step, earlier in zip(new.entry["steps"], vector["steps"], strict=True):
            assert step.keys() == earlier.keys()
            assert comparable(step.get("expect", {}), step) == comparable(earlier.get("expect", {}), earlier)


def wrong(entries):
    """Another answer than the server's, in a step that is compared."""
    entries[0]["steps"][0]["expect"]["status"] = 418


def test_another_answer_is_told_by_check_and_written_by_recording(run, tmp_path):
    original = RECORDED / "scale.json"
    path = edited(original, tmp_path / "scale.json", wrong)
    before = path.read_text()
    status, printed = run("--check", path)
    assert status == 1
    assert "MISMATCH scale/scale-managers-deployments\n    s2: /status: expected 418, got 200" in printed
    assert "1 match, 1 do not" in printed
    assert path.read_text() == before
    status, printed = run(path)
    assert (status, path.read_text()) == (0, original.read_text())
    assert "2 recorded, 1 changed, 0 failed" in printed
    assert run("--check", path)[0] == 0


def test_the_version_is_that_of_a_server_that_all_of_the_file_was_recorded_from(run, tmp_path):
    path = tmp_path / "scale.json"
    path.write_text((RECORDED / "scale.json").read_text().replace('"v1.36.2"', '"v1.35.0"', 1))
    run("--only", "widgets", path)
    assert RecordingFile.read(path).header["server"] == "v1.35.0"
    run(path)
    assert path.read_text() == (RECORDED / "scale.json").read_text()


REFUSED = {"name": "refused", "shows": "A ConfigMap whose name is wrong.", "steps": [
    {"id": "s1", "method": "POST", "path": "/api/v1/namespaces/{{ns}}/configmaps",
     "body": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A"}}}]}


def test_what_is_not_compared_stays_unless_a_fresh_recording_is_asked_for(servers):
    server = servers.server(REFUSED)
    first = recording.record(REFUSED, server, "fresh1").entry
    message = first["steps"][0]["expect"]["body"]["message"]
    assert "metadata.name: Invalid value" in message
    reworded = copy.deepcopy(first)  # messages are not compared here
    reworded["steps"][0]["expect"]["body"]["message"] = "reworded"
    assert recording.record(reworded, server, "fresh2").entry == reworded
    assert recording.record(reworded, server, "fresh3", fresh=True).entry == first


def test_what_is_ignored_is_recorded_blank(servers):
    vector = copy.deepcopy(REFUSED)
    vector["steps"][0]["ignore"] = ["/body/details/causes/*/message"]
    cause = recording.record(vector, servers.server(vector), "blank").entry["steps"][0]["expect"]["body"]["details"]
    assert cause["causes"] == [{"reason": "FieldValueInvalid", "message": "$ignored", "field": "metadata.name"}]


def test_a_vector_that_cannot_be_recorded_keeps_its_answers_and_fails_the_command(run, tmp_path):
    def break_it(entries):
        entries[1]["given"][0]["path"] = "/api/v1/nothing"

    path = edited(RECORDED / "scale.json", tmp_path / "scale.json", break_it)
    before = path.read_text()
    status, printed = run(path)
    assert status == 1
    assert "FAILED ValueError: could not prepare" in printed
    assert path.read_text() == before


def test_an_answer_that_never_comes_is_noted(servers):
    vector = {"name": "a", "shows": "", "steps": [
        {"id": "s1", "method": "GET", "path": "/version", "until": {"status": 201}, "patience": 0}]}
    assert recording.record(vector, servers.server(vector), "never").notes == [
        's1: never became as it should: {"status": 201}']


def test_a_new_recording_of_a_part_has_what_the_earlier_one_had():
    earlier = {"status": 200, "body": {"resources": [
        {"name": "pods", "verbs": ["get", "list"], "gone": 1}, {"name": "bindings", "namespaced": True},
        {"name": "nodes"}]}}
    answer = {"status": 200, "body": {"kind": "APIResourceList", "resources": [
        {"name": "bindings", "namespaced": True, "verbs": ["create"]},
        {"name": "pods", "namespaced": True, "verbs": ["list", "watch"]}]}}
    assert recording.narrowed(answer, earlier) == {"status": 200, "body": {"resources": [
        {"name": "pods", "verbs": ["list"]}, {"name": "bindings", "namespaced": True}]}}


def test_a_part_that_changed_is_recorded_and_noted(servers):
    vector = {"name": "a", "shows": "", "steps": [{
        "id": "s1", "method": "GET", "path": "/version", "compare": "contains",
        "expect": {"status": 200, "body": {"major": "0", "minor": "36"}}}]}
    recorded = recording.record(vector, servers.server(vector), "part")
    assert recorded.entry["steps"][0]["expect"] == {"status": 200, "body": {"major": "1", "minor": "36"}}
    assert len(recorded.notes) == 1


def test_recording_refusals_anew_changes_nothing(run, tmp_path):
    original = REFUSALS / "core.json"
    copied = Path(shutil.copy(original, tmp_path))
    status, printed = run("--only", "service nodeport|secret", copied)
    assert (status, copied.read_text()) == (0, original.read_text()), printed
    assert " 0 recorded" not in printed


def test_another_refusal_is_told_by_check_and_written_by_recording(run, tmp_path):
    def change(entries):
        entries[0]["cases"][0][1:] = [201]

    original = REFUSALS / "core.json"
    path = edited(original, tmp_path / "core.json", change)
    status, printed = run("--check", "--only", "service invalid", path)
    assert status == 1
    assert 'expected [201], got [422, [["spec.ports", "Required"]]]' in printed
    assert run("--only", "service invalid", path)[0] == 0
    assert path.read_text() == original.read_text()


def test_a_kind_that_the_server_does_not_serve_fails_and_is_told(servers):
    group = {"name": "a", "object": {"apiVersion": "v9", "kind": "Thing"}, "cases": [[{}, 201]]}
    recorded = refusals.record(group, servers.server({}), "unserved")
    assert (recorded.failed, recorded.entry) == (True, group)
    assert recorded.notes == ["FAILED LookupError: the server does not serve Thing of v9"]


def test_nothing_stays_on_the_server(servers):
    server = servers.server({})
    widgets = next(vector for vector in RecordingFile.read(RECORDED / "scale.json").entries
                   if "widgets" in vector["name"])
    volumes = next(group for group in RecordingFile.read(REFUSALS / "networks_and_volumes.json").entries
                   if group["object"]["kind"] == "PersistentVolume")
    assert not recording.record(widgets, server, "leftover1").failed
    assert not refusals.record(volumes, server, "leftover2").failed
    for path in ("/api/v1/persistentvolumes", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
        items = server.send({"method": "GET", "path": path}).json()["items"]
        assert not [item["metadata"]["name"] for item in items if "leftover" in item["metadata"]["name"]]
