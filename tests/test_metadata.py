"""What the package says of itself is true: which Pythons, what it brings along, and which version this is."""
from __future__ import annotations

import re
from configparser import ConfigParser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kubectl_runtime import __version__

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FOR_CONTRIBUTORS = {"test", "test-without-cel", "lint"}
"""Extras that no user installs."""


def read(name: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / name)
    return parser


SETUP, TOX = read("setup.cfg"), read("tox.ini")


def words(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def packages(text: str) -> list[str]:
    return [re.split(r"[^\w.-]", line)[0] for line in words(text)]


def test_each_python_that_is_promised_is_tested_and_the_oldest_is_the_least_that_is_required() -> None:
    promised = sorted(int(minor) for minor in re.findall(r"Python :: 3\.(\d+)$", SETUP["metadata"]["classifiers"],
                                                         re.MULTILINE))
    tested = {int(minor) for minor in re.findall(r"\bpy3(\d+)\b", TOX["tox"]["env_list"])}
    assert set(promised) <= tested
    assert SETUP["options"]["python_requires"] == f">=3.{promised[0]}"


def test_the_oldest_versions_that_are_allowed_are_those_that_are_tested() -> None:
    wanted = [SETUP["options"]["install_requires"], *(
        text for extra, text in SETUP["options.extras_require"].items() if extra not in FOR_CONTRIBUTORS)]
    floors = dict(line.split(">=") for text in wanted for line in words(text))
    tested = dict(line.split("==") for line in words(TOX["testenv:lowest"]["deps"]))
    assert floors.keys() == tested.keys()
    for package, floor in floors.items():
        assert re.fullmatch(rf"{re.escape(floor)}(\.0)*", tested[package]), package


def test_kubectl_finds_its_plugin_and_the_completion_by_their_names() -> None:
    """The plugin `runtime` is the program `kubectl-runtime`; `kubectl_complete-runtime` completes it."""
    programs = dict(re.split(" *= *", line) for line in words(SETUP["options.entry_points"]["console_scripts"]))
    assert programs.keys() == {"kubectl-runtime", "kubectl_complete-runtime"}
    assert all(callable(EntryPoint(name, place, "console_scripts").load()) for name, place in programs.items())


def test_a_package_has_one_floor_in_all_extras() -> None:
    floors: dict[str, set[str]] = {}
    for text in [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]:
        for package, _, floor in (line.partition(">=") for line in words(text)):
            floors.setdefault(package, set()).add(floor)
    assert [package for package, found in floors.items() if len(found) > 1] == []


@pytest.mark.parametrize("package", sorted({*packages(SETUP["options"]["install_requires"]), *(
    package for extra, text in SETUP["options.extras_require"].items() if extra not in FOR_CONTRIBUTORS
    for package in packages(text))}))
def test_the_guide_says_once_what_a_dependency_is_there_for(package: str) -> None:
    table = (ROOT / "examples" / "guides" / "production" / "dependencies.md").read_text(encoding="utf-8")
    cells = [" ".join(line.split("|")[1:3]) for line in table.splitlines() if line.startswith("|")]
    rows = [cell for cell in cells if re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", cell)]
    assert len(rows) == 1


def test_the_changelog_knows_the_version_and_has_the_usual_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+)\] - (\d{4}-\d\d-\d\d|unreleased|never released)$", text, re.MULTILINE)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## [{version}] - {date}" for version, date in versions]
    assert versions[0][0] == __version__
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_changelog_has_the_usual_form() -> None:
    """Keep a Changelog's headings, in its order, each with one list."""
    usual = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for version in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        assert re.match(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d|unreleased|never released)\n", version), version[:40]
        headings = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert headings == [name for name in usual if name in headings]
        for part in re.split(r"^### .+\n", version, flags=re.MULTILINE)[1:]:
            lines = part.strip("\n").splitlines()
            assert all(line.startswith(("- ", "  ")) for line in lines), lines
