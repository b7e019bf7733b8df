"""`kubectl-runtime plan`: as it is typed."""
from __future__ import annotations

import importlib
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api
from kubectl_runtime.cli.main import main
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import environment

OPERATOR = '''
from msgspec import Struct

from kubectl_runtime import Action, Api, BoundController, Client, Controller, CustomResource
from kubectl_runtime.resources import ConfigMap


class Spec(Struct):
    text: str = "hello"


class Note(CustomResource, group="cli.example.com", version="v1", kind="Note"):
    spec: Spec


def reconcile(note, ctx):
    api = Api.namespaced(ctx.client, ConfigMap, note.namespace)
    api.apply(ConfigMap(name=note.name, data={"text": note.spec.text + SUFFIX}).to_dict(), field_manager="notes")
    if note.spec.text == "reach":
        import socket
        socket.create_connection(("db.example.com", 5432))
    return Action.await_change()


def main(client: Client) -> BoundController[Note]:
    return Controller(Api.all(client, Note), name="notes").owns(Api.all(client, ConfigMap)).bind(reconcile)


def fake():
    import socket
    socket.create_connection = lambda *_: None


def fails():
    raise KeyError("fake")


def broken(client):
    raise RuntimeError("no such setting")


def nothing(client):
    pass


SUFFIX = ""
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder with an operator, and a cluster in which it has done its work."""
    name = f"notes_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OPERATOR)
    (tmp_path / f"{name}_2.py").write_text(OPERATOR.replace('SUFFIX = ""', 'SUFFIX = "!"'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with ApiServer(controllers=["*"]) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        server.load([importlib.import_module(name).Note.crd()])
        server.load([{"apiVersion": "cli.example.com/v1", "kind": "Note", "metadata": {"name": text}, "spec": {
            "text": text}} for text in ("a", "b")])
        with server.client() as client:
            for text in ("a", "b"):
                Api.namespaced(client, ConfigMap, "default").apply(
                    {"metadata": {"name": text}, "data": {"text": text}}, field_manager="notes")
        yield name, server


def test_the_running_version_and_the_new_one(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name, server = place
    before = server.snapshot()[0]
    assert main(["plan", f"{name}:main", "--exit-code"]) == 0
    assert "0 to create, 0 to change, 0 to delete" in capsys.readouterr().out
    assert main(["plan", f"{name}_2:main"]) == 0
    shown = capsys.readouterr().out
    assert "~ ConfigMap default/a   (notes, for Note default/a)" in shown
    assert 'data.text: "a" -> "a!"' in shown
    assert "0 to create, 2 to change, 0 to delete" in shown
    assert main(["plan", f"{name}_2:main", "--exit-code"]) == 2
    assert server.snapshot()[0] == before


def test_json_html_and_a_saved_snapshot(place: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, server = place
    assert main(["plan", f"{name}:main", "--save", "today.json.gz"]) == 0
    server.stop()
    capsys.readouterr()
    assert main(["plan", f"{name}_2:main", "--snapshot", "today.json.gz", "-o", "json", "--html", "plan.html",
                 "--until", "1h", "--exit-code"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"create": 0, "change": 2, "delete": 0, "failed": 0, "loops": 0, "unknown": 0}
    assert found["seconds"] >= 3600
    assert found["changes"][0]["fields"] == [{"path": "data.text", "before": "a", "after": "a!", "owner": ""}]
    page = (tmp_path / "plan.html").read_text()
    assert "0 to create, 2 to change, 0 to delete" in page
    assert "<script" not in page
    assert "http-equiv" not in page
    assert stat.S_IMODE((tmp_path / "plan.html").stat().st_mode) == 0o600


def test_changes_and_the_outside(place: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = place
    monkeypatch.setattr(socket, "create_connection", socket.create_connection)  # put back afterwards
    (tmp_path / "more.yaml").write_text("apiVersion: cli.example.com/v1\nkind: Note\nmetadata: {name: c}\n"
                                        "spec: {text: reach}")
    assert main(["plan", f"{name}:main", "--change", "more.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "+ Note default/c   (change)" in shown
    assert "+ ConfigMap default/c   (notes, for Note default/c)" in shown
    assert "? Note default/c: wants to reach db.example.com:5432" in shown
    assert main(["plan", f"{name}:main", "--change", "more.yaml", "--outside", f"{name}:fake"]) == 0
    assert "db.example.com" not in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "status", "why"), [
    (["NAME:broken"], 1, "no such setting"), (["NAME:nothing"], 1, "returned nothing"),
    (["NAME:absent"], 2, "has no absent"), (["NAME:main", "--snapshot", "no.json"], 1, "no.json"),
    (["NAME:main", "--snapshot", "x", "-n", "default"], 2, "--snapshot reads none"),
    (["NAME:main", "--redact", "ConfigMap"], 2, "names no field"), (["NAME:main", "--kind", "gadgets"], 1, "gadgets"),
    (["NAME:main", "--change", "no.yaml"], 1, "no.yaml"), (["NAME:main", "--outside", "NAME:gone"], 2, "gone"),
    (["NAME:main", "--context", "other"], 1, "other"), (["NAME:main", "--snapshot", "."], 1, ".: Is a directory"),
    (["NAME:main", "--save", "no/x.json"], 1, "no/x.json: No such file"),
    (["NAME:main", "--html", "no/x.html"], 1, "no/x.html: No such file"),
    (["NAME:main", "--outside", "NAME:fails"], 1, "KeyError: 'fake'"),
    (["NAME:absent", "--exit-code"], 1, "has no absent"), (["NAME:main", "--exit-code", "--wrong"], 1, "--wrong"),
    (["NAME:main", "--until", "x", "--exit-code"], 1, "--until"), (["NAME:main", "--until", "x"], 2, "--until")])
def test_what_cannot_be_done_is_said(place: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int,
                                     why: str) -> None:
    name, _ = place
    try:
        found = main(["plan", *(text.replace("NAME", name) for text in arguments)])
    except SystemExit as ended:  # of argparse
        found = int(ended.code or 0)
    assert found == status
    shown = capsys.readouterr()
    assert why in shown.err
    assert "--html" in arguments or not shown.out


@pytest.mark.parametrize("text", ["kind: ConfigMap\napiVersion: v1", "kind: ConfigMap\napiVersion: v1\nmetadata: [x]",
                                  "kind: ConfigMap\napiVersion: v1\nmetadata: {generateName: x-}", "[1", "word",
                                  "metadata: {name: x}", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: 5}"])
def test_a_change_that_is_no_manifest_is_named_by_its_place(place: Any, capsys: pytest.CaptureFixture[str],
                                                            tmp_path: Path, text: str) -> None:
    name, _ = place
    (tmp_path / "bad.yaml").write_text(text)
    assert main(["plan", f"{name}:main", "--change", "bad.yaml", "-o", "json", "--exit-code"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("error: bad.yaml")
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_a_reader_that_ends_early_is_no_error(place: Any, tmp_path: Path) -> None:
    """As `| head` does."""
    import fcntl
    import subprocess
    import sys

    name, _ = place
    (tmp_path / "many.yaml").write_text("\n---\n".join(
        f"apiVersion: cli.example.com/v1\nkind: Note\nmetadata: {{name: n{number}}}" for number in range(60)))
    with subprocess.Popen([sys.executable, "-m", "kubectl_runtime", "plan", f"{name}:main", "--change", "many.yaml",
                           "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment({"KUBECONFIG": tmp_path / "kubeconfig"})) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


def test_a_plan_in_which_nothing_ran_says_so(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name, server = place
    with server.client() as client:
        notes = importlib.import_module(name).Note
        for text in ("a", "b"):
            Api.namespaced(client, notes, "default").delete(text)
    assert main(["plan", f"{name}:main"]) == 0
    assert "nothing ran: the program has no object to reconcile" in capsys.readouterr().out


@pytest.mark.parametrize("given", [[], ["--save", "new.json"], ["--kubeconfig", "absent"]])
def test_without_a_cluster_the_remedies_are_options_of_plan(
        place: Any, monkeypatch: pytest.MonkeyPatch, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECONFIG", "absent")
    assert main(["plan", f"{place[0]}:main", *given]) == 1
    text = capsys.readouterr().err
    assert text.startswith("error: no ")
    for remedy in ("--kubeconfig FILE", ".kubectl-runtime/kubeconfig", "--snapshot FILE"):
        assert remedy in text
    assert "--dev runs it" not in text
