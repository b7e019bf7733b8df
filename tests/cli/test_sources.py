"""What counts as the source of a program, and what has changed of it."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubectl_runtime.cli import develop
from kubectl_runtime.cli.develop import Sources, files_below, roots_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_that_come_go_and_change_are_named_once(folder: Path) -> None:
    op, helper = write(folder / "op.py", "a"), write(folder / "part" / "helper.py", "a")
    watched = Sources("op")
    assert watched.changed() == []
    op.write_text("ab")
    assert watched.changed() == [str(op)]
    assert watched.changed() == []
    os.utime(helper, ns=(1, 1))  # of the same size
    new = write(folder / "new.py")
    assert watched.changed() == [str(new), str(helper)]
    helper.unlink()
    assert watched.changed() == [str(helper)]


def test_what_is_no_source_is_left_out(folder: Path) -> None:
    mine = {write(folder / "op.py"), write(folder / "part" / "deep" / "x.py")}
    for other in (".git/x.py", ".#op.py", "env/pyvenv.cfg", "env/lib/x.py", "node_modules/x.py", "__pycache__/x.py",
                  "notes.txt", "lib/site-packages/x.py"):
        write(folder / other)
    assert set(map(Path, files_below(folder))) == mine


def test_the_nearest_folders_are_looked_into_and_no_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(develop, "MOST", 3)
    near = [write(folder / name / "x.py") for name in ("a", "b")]
    for name in ("a", "b"):
        write(folder / name / "deep" / "x.py")
    op = write(folder / "op.py")
    assert set(map(Path, files_below(folder))) == {op, *near}


def test_a_folder_that_cannot_be_read_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = write(folder / "op.py")
    write(folder / "closed" / "x.py")
    scan = os.scandir

    def refused(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert list(files_below(folder)) == [str(op)]


def test_a_folder_that_is_an_environment_itself_is_looked_at(folder: Path) -> None:
    write(folder / "pyvenv.cfg")
    op = write(folder / "op.py")
    assert list(files_below(folder)) == [str(op)]


def test_a_link_to_nothing_and_a_file_that_goes_disturb_nobody(folder: Path) -> None:
    (folder / "op.py").symlink_to(folder / "absent")
    assert Sources("op").changed() == []


def test_a_module_of_the_current_folder_has_the_whole_folder_as_its_source(folder: Path) -> None:
    write(folder / "op.py")
    write(folder / "package" / "__init__.py")
    for module in ("op", "package.part", "comes_later"):
        assert roots_of(module) == [folder]


def test_a_module_from_elsewhere_has_its_package_or_its_file(folder: Path, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there"
    single, package = write(there / "far_single.py"), write(there / "far_package" / "__init__.py").parent
    monkeypatch.syspath_prepend(str(there))
    assert roots_of("far_single") == [single]
    assert roots_of("far_package.operator") == [package]
    assert list(files_below(single)) == [str(single)]


def test_an_installed_module_does_not_change(folder: Path) -> None:
    assert roots_of("pytest") == []
    assert Sources("pytest").changed() == []


def test_looking_for_a_module_does_not_import_it(folder: Path) -> None:
    write(folder / "explodes.py", "raise SystemExit")
    assert roots_of("explodes") == [folder]
