"""MODULE:NAME: how it is found, and what is said when it is not."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from kubectl_runtime import ConfigError, RequestError
from kubectl_runtime.cli.places import CommandError, Place, imported, place, shown, users_traceback


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture(autouse=True)
def _forget() -> object:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("mine", "absent")):
            del sys.modules[name]


def test_a_place_is_a_module_and_a_name() -> None:
    assert place("my_package.operator:main") == Place("my_package.operator", "main")
    assert str(place("op:main")) == "op:main"


@pytest.mark.parametrize(("text", "said"), [
    ("op", "'op' is not of the form MODULE:NAME, such as my_package.operator:main: write a colon and the name in the "
           "module after it"),
    ("op:", "is not of the form MODULE:NAME"),
    ("op:a.b", "is not of the form MODULE:NAME"),
    ("1op:main", "is not of the form MODULE:NAME"),
    ("op.py:main", "names a file; name the module as `import` does: op:main"),
    ("src/op.py", "names a file; name the module as `import` does: src.op:NAME"),
    ("./op.py:main", "names a file"),
])
def test_what_is_no_place_is_refused_with_the_right_way(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        place(text)
    assert said in str(refused.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["absent", "absent.part"])
def test_a_module_that_is_not_there_is_told_with_where_it_was_looked_for(name: str) -> None:
    with pytest.raises(CommandError) as told:
        imported(name)
    assert f"there is no module 'absent' in {Path.cwd()} or on Python's path: run the command in " in str(
        told.value)


def test_a_module_that_needs_another_one_says_which_and_where_it_belongs(folder: Path) -> None:
    (folder / "mine_needs.py").write_text("\nimport absent_package.part\n")
    with pytest.raises(CommandError) as told:
        imported("mine_needs")
    text = str(told.value)
    assert text.startswith("mine_needs cannot be imported: No module named 'absent_package'; what it needs has to be "
                           f"installed beside {sys.executable}\nTraceback")
    assert text.count("File ") == 1
    assert 'mine_needs.py", line 2' in text


def test_an_error_of_a_module_comes_with_its_frames_and_not_with_ours(folder: Path) -> None:
    (folder / "mine_helper.py").write_text("def check():\n    raise RuntimeError('no disk')\n")
    (folder / "mine_calls.py").write_text("import mine_helper\nmine_helper.check()\n")
    with pytest.raises(CommandError) as told:
        imported("mine_calls")
    text = str(told.value)
    assert text.startswith("mine_calls cannot be imported: RuntimeError: no disk\nTraceback")
    assert [line.strip().split('"')[1].rpartition("/")[2] for line in text.splitlines() if "File " in line] == [
        "mine_calls.py", "mine_helper.py"]


def test_a_syntax_error_shows_its_line(folder: Path) -> None:
    (folder / "mine_wrong.py").write_text("x = 1\ndef main(client)\n    return None\n")
    with pytest.raises(CommandError) as told:
        imported("mine_wrong")
    assert 'mine_wrong.py", line 2' in str(told.value)
    assert "def main(client)" in str(told.value)
    assert "places.py" not in str(told.value)


def test_a_file_with_the_name_of_a_module_of_python_is_told_to_take_another(folder: Path) -> None:
    (folder / "operator.py").write_text("def main(client): ...")
    with pytest.raises(CommandError, match=r"operator is .*operator\.py, which was imported before .* could be: give "
                                           "operator.py another name"):
        imported("operator")


def test_frames_of_the_library_at_the_end_are_left_out_and_causes_are_shown(folder: Path) -> None:
    (folder / "mine_cause.py").write_text(
        "from kubectl_runtime import Config\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    cause = error\n"
        "def ask():\n    try:\n        Config(cluster_url='http://x', timeout=-1)\n"
        "    except Exception as error:\n        raise error from cause\n")
    module = imported("mine_cause")
    with pytest.raises(ConfigError) as raised:
        module.ask()
    text = users_traceback(raised.value)
    assert "ZeroDivisionError" in text
    assert "mine_cause.py" in text
    assert "kubectl_runtime/client" not in text


@pytest.mark.parametrize(("error", "text"), [
    (CommandError("a\x1b[2J: no\nTraceback\n\tline"), "a\\x1b[2J: no\nTraceback\n\tline"),
    (RequestError("a\nERROR forged\x07"), "a\\nERROR forged\\x07"), (CommandError("a\u202eb\rc"), "a\\u202eb\\rc")])
def test_errors_move_no_terminal(error: Exception, text: str) -> None:
    assert shown(error) == text
