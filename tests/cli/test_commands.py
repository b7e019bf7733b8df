"""The `kubectl-runtime` command, in this process and as a process of its own."""
from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import kubectl_runtime
from kubectl_runtime.cli.main import _COMMANDS as COMMANDS
from kubectl_runtime.cli.main import _parser, complete, main
from tests.examples.programs import Program

KINDS = '''
from __future__ import annotations
import msgspec
from kubectl_runtime import CustomResource

class Spec(msgspec.Struct):
    size: int

class Base(CustomResource):
    """Without a kind of its own."""

class Widget(Base, group="example.com", version="v1", kind="Widget"):
    spec: Spec

class Gadget(Base, group="example.com", version="v1", kind="Gadget"):
    spec: Spec

class GadgetV1(Gadget, group="example.com", version="v1", kind="Gadget", storage=False): ...

class GadgetV2(Gadget, group="example.com", version="v2", kind="Gadget"): ...

class Odd(CustomResource, group="example.com", version="v1", kind="Odd"):
    spec: "Later"

Later = complex

class Plain: ...
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of custom resources in it that is forgotten afterwards."""
    for name, text in (("cli_kinds", KINDS), ("cli_broken", "import no_such_thing"),
                       ("cli_exits", "raise SystemExit(3)")):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_crd_prints_one_document_for_each_kind_sorted_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Widget", "cli_kinds:Gadget"]) == 0
    printed = capsys.readouterr().out
    kinds = sys.modules["cli_kinds"]
    assert list(yaml.safe_load_all(printed)) == [kinds.Gadget.crd(), kinds.Widget.crd()]
    assert main(["crd", "cli_kinds:Gadget", "cli_kinds:Widget", "cli_kinds:Gadget"]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.usefixtures("folder")
def test_crd_puts_the_versions_of_one_kind_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Gadget", "cli_kinds:GadgetV2"]) == 1
    assert "Gadget, GadgetV2 are versions of gadgets.example.com: one must be" in capsys.readouterr().err
    assert main(["crd", "cli_kinds:GadgetV1", "cli_kinds:GadgetV2"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert [(version["name"], version["storage"]) for version in document["spec"]["versions"]] == [
        ("v2", True), ("v1", False)]


def test_crd_check_compares_a_file_with_the_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, file = "cli_kinds:Widget", folder / "crd.yaml"
    assert main(["crd", place]) == 0
    file.write_text(f"# a comment\n{capsys.readouterr().out}---\nkind: Namespace\nmetadata: {{name: other}}\n")
    assert main(["crd", place, "--check", str(file)]) == 0
    assert capsys.readouterr().out == ""
    file.write_text(file.read_text().replace("integer", "string"))
    assert main(["crd", place, "--check", str(file)]) == 1
    printed = capsys.readouterr()
    changed = [line.split() for line in printed.out.splitlines() if line[:2] in ("- ", "+ ")]
    assert changed == [["-", "type:", "string"], ["+", "type:", "integer"]]
    assert f"kubectl-runtime crd {place} > {file}" in printed.err
    assert main(["crd", place, "--check", str(folder / "absent.yaml")]) == 1
    assert "absent.yaml" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("place", "status", "said"), [
    ("cli_kinds:Nothing", 2, "cli_kinds has no Nothing; its custom resources: Gadget, GadgetV1, GadgetV2, Odd, Widget"),
    ("cli_kinds:Plain", 2, "cli_kinds:Plain is not a custom resource, which is a class made with class Name("),
    ("cli_kinds:Base", 2, "cli_kinds:Base is not a custom resource, which is a class made with class Name("),
    ("cli_kinds:Odd", 1, "cli_kinds:Odd has no definition: Odd.spec: complex has no structural schema"),
    ("cli_absent:Widget", 2, "there is no module 'cli_absent' in "),
    ("cli_absent.kinds:Widget", 2, "there is no module 'cli_absent' in "),
    ("cli_broken:Widget", 1, "cli_broken cannot be imported: No module named 'no_such_thing'"),
    ("cli_exits:Widget", 1, "cli_exits cannot be imported: SystemExit: 3"),
])
def test_what_cannot_be_printed_is_said_and_nothing_is_printed(
        place: str, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Widget", place]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert said in printed.err


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "required: COMMAND"),
    (["crds"], "invalid choice: 'crds'"),
    (["crd"], "required: MODULE:CLASS"),
    (["crd", "examples/kinds.py:Widget"], "name the module as `import` does: examples.kinds:Widget"),
    (["crd", "kinds"], "'kinds' is not of the form MODULE:NAME"),
    (["server", "--controllers"], "expected one argument"),
])
def test_a_wrong_command_line_ends_with_status_2(
        arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kubectl-runtime {kubectl_runtime.__version__}\n"


@pytest.mark.parametrize(("arguments", "printed"), [
    (["to"], "top\tshow what the controllers of a process do, in a terminal\n:4\n"),
    (["run", "--de"], "--dev\n--debug-page\n--debug-details\n:4\n"),
    (["top", ":8080", "--o"], "--once\n:4\n"),
    (["run", "greeter"], ":0\n"), (["nothing", "--"], ":0\n"), (["x"], ":4\n")])
def test_kubectl_is_told_how_a_command_of_its_plugin_may_go_on(
        arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complete(arguments) == 0
    assert capsys.readouterr() == (printed, "")


@pytest.mark.parametrize("arguments", [[], [""]])
def test_kubectl_is_told_all_commands_of_its_plugin(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    complete(arguments)
    *found, end = capsys.readouterr().out.splitlines()
    assert ([line.partition("\t")[0] for line in found], end) == ([*COMMANDS], ":4")


def test_crd_looks_in_the_current_folder_and_imports_no_server(folder: Path) -> None:
    program = ("import sys; sys.path = [entry for entry in sys.path if entry]; from kubectl_runtime.cli.main import "
               "main; main(['crd', 'cli_kinds:Widget']); assert 'kubectl_runtime.testing' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60,
                          check=True, env={"PYTHONPATH": str(Path(kubectl_runtime.__file__).parents[1])})
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "widgets.example.com"


def test_server_serves_until_a_signal() -> None:
    with Program("-m", "kubectl_runtime", "server", "--controllers", "none") as server:
        assert server.until("ready").startswith("ready http://127.0.0.1:")
        server.send(signal.SIGTERM)
        assert server.end() == 0


def test_codegen_prints_a_module_for_a_file_of_definitions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Widget", "cli_kinds:Gadget"]) == 0
    file = folder / "crds.yaml"
    file.write_text(f"kind: Namespace\nmetadata: {{name: other}}\n---\n{capsys.readouterr().out}")
    assert main(["codegen", str(file)]) == 0
    text = capsys.readouterr().out
    assert 'class Widget(Resource, group="example.com", version="v1", kind="Widget", plural="widgets"):' in text
    assert "class GadgetSpec(msgspec.Struct, kw_only=True):\n    size: int" in text


@pytest.mark.parametrize(("arguments", "said"), [
    (["absent.yaml"], "absent.yaml"), (["cli_kinds.py"], "cli_kinds.py"),
    (["empty.yaml"], "no CustomResourceDefinition"),
    (["crd.yaml", "--version", "v9"], "widgets.example.com has no version v9; its versions: v1")])
def test_codegen_says_what_a_module_cannot_be_made_of(
        arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty.yaml").write_text("")
    main(["crd", "cli_kinds:Widget"])
    (folder / "crd.yaml").write_text(capsys.readouterr().out)
    assert main(["codegen", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_readable_in_80_columns(command: str, capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with hyphens are not torn, and every option says what it is for."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert not re.search(r"\w-\n", text)
    commands = next(action for action in _parser(command)._actions if isinstance(action, argparse._SubParsersAction))
    chosen = commands.choices[command]
    assert [action.dest for action in chosen._actions if len((action.help or "").split()) < 2] == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [
    ["crd", "cli_absent:Widget"], ["rbac", "cli_absent:main"],
    ["perturb", "cli_absent:main", "cli_absent:story"], ["replay", "flight.jsonl", "cli_absent:main"],
    ["webhooks", "cli_absent:app", "--service", "a/b"]], ids=lambda command: command[0])
def test_every_command_ends_alike_where_its_command_line_is_wrong(
        command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    assert capsys.readouterr().err.startswith("error: there is no module 'cli_absent' in ")
