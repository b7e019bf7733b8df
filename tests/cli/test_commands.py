"""The `kubectl-runtime` command, in this process and as a process of its own."""
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import kubectl_runtime
from kubectl_runtime.cli.main import main
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
def test_crd_prints_one_document_for_each_class_in_the_order_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Widget", "cli_kinds:Gadget"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert documents == [sys.modules["cli_kinds"].Widget.crd(), sys.modules["cli_kinds"].Gadget.crd()]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("place", "said"), [
    ("cli_kinds:Nothing", "cli_kinds has no Nothing; its custom resources: Gadget, Odd, Widget"),
    ("cli_kinds:Plain", "cli_kinds:Plain is no custom resource, which is a class made with class Name("),
    ("cli_kinds:Base", "cli_kinds:Base is no custom resource, which is a class made with class Name("),
    ("cli_kinds:Odd", "cli_kinds:Odd has no definition: Odd.spec: complex has no structural schema"),
    ("cli_absent:Widget", "there is no module 'cli_absent' in "),
    ("cli_absent.kinds:Widget", "there is no module 'cli_absent' in "),
    ("cli_broken:Widget", "cli_broken cannot be imported: No module named 'no_such_thing'"),
    ("cli_exits:Widget", "cli_exits cannot be imported: SystemExit: 3"),
])
def test_what_cannot_be_printed_is_said_and_nothing_is_printed(
        place: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "cli_kinds:Widget", place]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert said in printed.err


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "required: COMMAND"),
    (["crds"], "invalid choice: 'crds'"),
    (["crd"], "required: MODULE:CLASS"),
    (["crd", "examples/kinds.py:Widget"], "is not of the form MODULE:CLASS"),
    (["crd", "kinds"], "'kinds' is not of the form MODULE:CLASS, such as my_package.kinds:Widget"),
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
