"""What the documents say can be followed: links lead somewhere, programs run, commands are ones that there are.

Guides that have a test of their own (which names their file) are run there, the others here: each Python block is
saved under the name in its first line; those called test_* are run by pytest, the others are used by these or run as
they are.
"""
from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from itertools import groupby
from pathlib import Path

import pytest
import yaml

import kubectl_runtime
from kubectl_runtime.cli.main import _COMMANDS as COMMANDS
from kubectl_runtime.cli.main import _parser as command_line
from tests.examples.programs import LIMIT, PLUGIN, ROOT, blocks, environment

GUIDES = ROOT / "examples" / "guides"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *GUIDES.rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
LONGEST = 150
"""Lines of a guide: what one reads at a sitting."""
LINKS_TO_OUTSIDE = 12
"""At most so many, in all documents together."""
THEIRS = {"go", "rust", "text", ""}
"""Languages of blocks that show what others have, what is printed, or a drawing."""
TOOLS = {"docker", "kubectl", "export", "tee", "twine"}
"""Whose command lines are not ours to check, but for the files that they name."""
IN_SHORT = "watch-loop.md"
"""The guide whose programs run in the fast suite; of the others it looks at the names that they import."""
HERE = Path(__file__).name
TESTS_THAT_NAME_GUIDES = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py") if path.name != HERE)

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
OTHERS = [path for path in sorted(GUIDES.rglob("*.md"))
          if blocks(path, "python") and f'"{path.name}"' not in TESTS_THAT_NAME_GUIDES]


def prose(path: Path) -> str:
    """The document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings."""
    return {re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in prose(path).splitlines() if line.startswith("#")}


def links(path: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(path))


@each_document
def test_a_document_is_written_in_the_forms_that_are_looked_at_here(path: Path) -> None:
    """Fences of backticks at the margin, links with their target beside them."""
    assert not re.search(r"^[ \t]+```|^~~~", prose(path), re.MULTILINE)
    without_code = re.sub(r"`[^`\n]*`", "", prose(path))
    for other in (r"\]\[", r"^\[[^\]]+\]:", r"<a\s", r"\]\(\s"):
        assert not re.search(other, without_code, re.MULTILINE), other


@each_document
def test_links_inside_the_repository_lead_to_a_file_and_a_heading(path: Path) -> None:
    for link in links(path):
        target, _, anchor = link.partition("#")
        if not target.startswith("http"):
            found = (path.parent / target).resolve() if target else path
            assert found.exists(), link
            assert found.is_relative_to(ROOT), link
            assert not anchor or anchor in anchors(found), link


def test_links_to_the_outside_are_few() -> None:
    outside = [link for path in DOCUMENTS for link in links(path) if link.startswith("http")]
    assert len(outside) <= LINKS_TO_OUTSIDE


def test_each_guide_is_in_the_index() -> None:
    index = GUIDES / "README.md"
    listed = {(GUIDES / link).resolve() for link in links(index) if link.endswith(".md")}
    assert set(GUIDES.rglob("*.md")) - {index} <= listed


@pytest.mark.parametrize("path", sorted(GUIDES.rglob("*.md")), ids=lambda path: path.name)
def test_a_guide_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


DEEPER = {
    "kubectl_runtime.resources.": "one module for each API version: the parts of the kinds are too many for one list",
    "kubectl_runtime.runtime.observe.tracing": "needs the extra `tracing`, and no name of the facade needs an extra",
}
"""The modules below `kubectl_runtime.ROOM` that a reader may have to import, by their beginning, with the reason."""
PROGRAMS = [*ROOT.glob("examples/**/*.py")]
IMPORT = re.compile(r"(?:from|import) +(kubectl_runtime(?:\.\w+)+)")


def test_nobody_who_reads_has_to_import_from_the_inside() -> None:
    """A name has one obvious import: from `kubectl_runtime`, or from one of its rooms."""
    found = {(path.name, module) for path in [*DOCUMENTS, *PROGRAMS] if not path.is_relative_to(ROOT / "tests")
             for module in IMPORT.findall(path.read_text(encoding="utf-8")) if module.count(".") > 1}
    assert {each for each in found if not each[1].startswith(tuple(DEEPER))} == set()


def test_what_the_facade_has_is_imported_from_there() -> None:
    rooms = re.compile(r"from kubectl_runtime\.(?!resources|testing)\w+ import ([\w, ]+)")
    found = {(path.name, name) for path in [*DOCUMENTS, *PROGRAMS]
             for names in rooms.findall(path.read_text(encoding="utf-8")) for name in names.split(", ")}
    assert {each for each in found if each[1] in kubectl_runtime.__all__} == set()


def test_the_package_is_installed_from_the_clone() -> None:
    """It is on no index: a name there would be somebody else's package, or none."""
    ours = re.compile(r"(-q )?(PATH_OF_THE_CLONE|'PATH_OF_THE_CLONE\[[\w,]+\]'|-e \.|-e '\.\[[\w,]+\]')[`.:,;) ]?")
    wrong = [(path.name, said) for path in [*DOCUMENTS, *PROGRAMS]
             for said in re.findall(r"pip install (.{,60})", path.read_text(encoding="utf-8")) if not ours.match(said)]
    assert wrong == []


def saved(guide: Path, folder: Path) -> list[str]:
    """The names of the guide's files, which are written into the folder."""
    names = []
    for number, block in enumerate([*blocks(guide, "python"), *blocks(guide, "yaml")]):
        first = re.match(r"# (\w+\.(?:py|yaml))\n", block)
        names.append(first[1] if first else f"snippet{number}.py")
        (folder / names[-1]).write_text(block)
    return names


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment(), capture_output=True, text=True,
                          timeout=2 * LIMIT, check=False)


@pytest.mark.parametrize("guide", [
    pytest.param(path, marks=() if path.name == IN_SHORT else pytest.mark.long, id=path.stem) for path in OTHERS])
def test_the_programs_of_a_guide_run(guide: Path, tmp_path: Path) -> None:
    names = [name for name in saved(guide, tmp_path) if name.endswith(".py")]
    tests = [name for name in names if name.startswith("test_")]
    used = {module for name in tests for node in ast.walk(ast.parse((tmp_path / name).read_text()))
            if isinstance(node, ast.ImportFrom) and (module := node.module)}
    for name in names:
        if name not in tests and name.removesuffix(".py") not in used:
            done = python(tmp_path, name)
            assert done.returncode == 0, done.stderr
    if tests:
        done = python(tmp_path, "-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider", "--timeout", "100", *PLUGIN,
                      *tests)
        assert done.returncode == 0, done.stdout + done.stderr
        written = {(name, test) for name in tests
                   for test in re.findall(r"^def (test_\w+)", (tmp_path / name).read_text(), re.MULTILINE)}
        assert set(re.findall(r"^PASSED (\w+\.py)::(\w+)", done.stdout, re.MULTILINE)) == written


@pytest.mark.parametrize("path", sorted(GUIDES.rglob("*.md")), ids=lambda path: path.stem)
def test_what_the_programs_of_a_guide_import_is_there(path: Path) -> None:
    for block in blocks(path, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kubectl_runtime":
                module = importlib.import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == [], node.module


def test_the_types_of_the_guides_programs_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    programs = [name for guide in OTHERS for name in saved(guide, tmp_path)
                if name.endswith(".py") and not name.startswith(("test_", "snippet"))]
    assert len(set(programs)) == len(programs), "two guides have programs of the same name"
    done = python(tmp_path, "-m", "mypy", "--strict", *programs)
    assert done.returncode == 0, done.stdout


@each_document
def test_each_code_block_is_of_a_kind_that_is_run_or_checked(path: Path) -> None:
    languages = set(re.findall(r"^```(\w*)\n.*?^```$", path.read_text(), re.MULTILINE | re.DOTALL))
    own = ["py"] if path.name == "frameworks.md" else []  # test_frameworks.py runs them
    assert languages <= {"python", "sh", "yaml", *THEIRS, *own}
    for block in blocks(path, "yaml"):
        assert list(yaml.safe_load_all(block))
    if "python" in languages and path.parent == ROOT:
        assert path.name == "README.md", "test_readme.py runs the programs of the README alone"


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each command in the document's shell blocks."""
    for block in blocks(path, "sh"):
        without_input = re.sub(r"<<EOF\n.*?^EOF$", "", block, flags=re.DOTALL | re.MULTILINE)
        for line in without_input.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
            lexer.whitespace_split = True
            for ends, words in groupby(lexer, lambda word: word in {"&&", "|", ";"}):
                if not ends:
                    yield list(words)


def named_commands(path: Path) -> list[list[str]]:
    """Those of ours that its prose names, whole or in part: `kubectl-runtime run --dev`."""
    return [shlex.split(command.partition(" > ")[0]) for command in
            re.findall(r"`((?:\.venv/bin/|tox |kubectl-runtime )[^`…]*)`", prose(path))]


def options_of(command: str) -> str:
    """What the help of a command of ours says."""
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        command_line(command).parse_args([command, "--help"])
    return shown.getvalue()


def check(words: list[str], path: Path, *, whole: bool) -> None:
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "kubectl-runtime":
        if arguments[0] != "--help":
            assert arguments[0] in COMMANDS
            if whole:
                command_line(arguments[0]).parse_args(arguments)
            else:
                known = options_of(arguments[0])
                assert all(re.search(rf"{option}\b", known) for option in arguments if option.startswith("--")), words
    elif program == "tox":
        known = re.findall(r"^\[testenv:([\w.-]+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE)
        assert arguments[:1] == ["run"]
        if arguments[1:]:
            assert arguments[1] == "-e"
            assert set(arguments[2].split(",")) <= set(known)
    elif program in ("python", "python3"):
        name = arguments[1 if arguments[0] == "-m" else 0]
        known_module = name == "venv" or (ROOT / name.replace(".", "/")).with_suffix(".py").exists() or (
            ROOT / name.replace(".", "/") / "__main__.py").exists()
        assert known_module if arguments[0] == "-m" else (ROOT / name).exists() or name in path.read_text(), name
    else:
        assert program in {"pip", "pytest", "ruff", "mypy", "lint-imports", "tee", *TOOLS}, words
    for word in arguments:
        if word.startswith(("examples/", "tests/")):
            assert (ROOT / word).exists(), word


@each_document
def test_commands_are_ones_that_there_are(path: Path) -> None:
    for words in commands(path):
        try:
            check(words, path, whole=True)
        except SystemExit:
            pytest.fail(f"the command line does not take: {shlex.join(words)}")
    for words in named_commands(path):
        check(words, path, whole=False)


def test_the_workflow_names_files_and_objects_that_there_are() -> None:
    """actionlint says whether it is one (`tox run -e workflow`); this, whether it fits the example that it deploys."""
    workflow = yaml.safe_load((ROOT / "examples" / "workflows" / "k3d.yaml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    for path in re.findall(r"(?:examples|tests)/[\w./-]+", " ".join(step["run"] for step in steps)):
        assert (ROOT / path).exists(), path
    (image,) = set(re.findall(r"configmapgen:[\d.]+", " ".join(step["run"] for step in steps)))
    deploy = ROOT / "examples" / "deploy"
    assert all(image in (deploy / name).read_text() for name in ("deployment.yaml", "Dockerfile"))
    (crd,) = re.findall(r"crd/(\S+)", " ".join(step["run"] for step in steps))
    assert crd == yaml.safe_load((deploy / "crd.yaml").read_text())["metadata"]["name"]
    (check,) = [step["run"] for step in steps if "--check" in step["run"]]
    command_line("crd").parse_args(shlex.split(check)[1:])


def test_the_workflow_of_plans_has_a_command_that_there_is() -> None:
    workflow = yaml.safe_load((ROOT / "examples" / "workflows" / "plan.yaml").read_text())
    [command] = [step["run"] for job in workflow["jobs"].values() for step in job["steps"]
                 if "kubectl-runtime plan" in step.get("run", "")]
    given = command_line("plan").parse_args(shlex.split(command.partition("|")[0])[1:])
    assert given.exit_code
    module, _, name = "configmapgen_controller:operator".partition(":")
    assert f"{given.program}" == f"{module}:{name}"
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.long
def test_the_commands_of_the_guide_to_security_print_the_rights_that_its_tests_grant(
        tmp_path: Path) -> None:
    guide = GUIDES / "production" / "security.md"
    saved(guide, tmp_path)
    record, print_role = (shlex.split(line) for line in "".join(blocks(guide, "sh")).splitlines())
    done = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *PLUGIN, *record[1:])
    assert done.returncode == 0, done.stdout
    done = python(tmp_path, "-m", "kubectl_runtime", *print_role[1:])
    printed = next(document for document in yaml.safe_load_all(done.stdout) if document["kind"] == "Role")
    text = re.search(r'ROLE = """\n(.*?)"""', guide.read_text(), re.DOTALL)
    assert text is not None
    granted = next(yaml.safe_load_all(text[1]))
    finalizers = [rule for rule in printed["rules"] if rule["resources"] == ["passwords/finalizers"]]

    def by_resource(rules: list[dict[str, list[str]]]) -> list[dict[str, list[str]]]:
        return sorted(rules, key=lambda rule: rule["resources"])

    assert by_resource(printed["rules"]) == by_resource([*granted["rules"], *finalizers])
