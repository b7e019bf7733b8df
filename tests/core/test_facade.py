"""The facade and the modules named by topic: one table makes them, for programs and for type checkers alike."""
from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import kubectl_runtime
from kubectl_runtime.facade import MOVED, PACKAGE, TOP, TOPICS, door
from tests.tools.stubs import ROOT, stub, stubs

DOORS = [PACKAGE, *(f"{PACKAGE}.{topic}" for topic in TOPICS)]
GENERAL = {"store", "status", "rules", "logs", "fetch", "pointer", "together", "dynamic", "Object", "Event", "Part",
           "Rule", "Phase", "Status", "Entry", "Scope", "Init", "Apply", "Delete", "Failed"}
GONE = {name: topic for topic, names in TOPICS.items() for name, (_, place) in names.items() if place == MOVED}


@pytest.mark.parametrize("module", DOORS)
def test_every_public_name_can_be_imported(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__
    for name in found.__all__:
        assert getattr(found, name) is not None
    assert set(found.__all__) <= set(dir(found))


def test_the_top_is_small_and_has_no_general_nouns() -> None:
    assert len(kubectl_runtime.__all__) <= 80
    assert not GENERAL & set(kubectl_runtime.__all__)
    assert not set(GONE) & {*kubectl_runtime.__all__, *dir(kubectl_runtime)}


def test_a_name_belongs_to_one_topic() -> None:
    rows = [name for names in TOPICS.values() for name, (_, place) in names.items() if place in (TOP, MOVED)]
    assert len(rows) == len(set(rows))


def test_no_name_is_hidden_by_a_module_beside_it() -> None:
    """Importing a module puts it into its package, in place of a name that is found on first use."""
    for topic, names in [("", kubectl_runtime.__all__), *TOPICS.items()]:
        beside = {path.stem for path in ROOT.joinpath(PACKAGE, topic).glob("*")}
        assert not beside & set(names), topic


@pytest.mark.parametrize("path", stubs(), ids=lambda path: str(path.relative_to(ROOT)))
def test_type_checkers_see_the_names_of_the_table(path: Path) -> None:
    assert path.read_text() == stubs()[path], "run python -m tests.tools.stubs"


def test_every_stub_is_a_generated_one() -> None:
    assert set((ROOT / PACKAGE).rglob("*.pyi")) == set(stubs())


@pytest.mark.parametrize("row", [("errors", "ApiError", TOP), ("errors", "Refused", MOVED), ("watch", "New", "topic")])
def test_a_row_is_the_one_place_to_edit(row: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    topic, name, place = row
    home = importlib.import_module("kubectl_runtime.core.base.errors")
    monkeypatch.setattr(home, name, value := object(), raising=False)
    monkeypatch.setitem(TOPICS[topic], name, ("core.base.errors", place))
    module = importlib.import_module(f"{PACKAGE}.{topic}")
    monkeypatch.delattr(module, name, raising=False)
    names, load, _ = door(module.__name__)
    assert name in names
    assert load(name) is value
    monkeypatch.delattr(module, name)
    assert (name in door(PACKAGE)[0]) == (place == TOP)
    line = f"from {home.__name__} import {name} as {name}\n"
    assert line in stub(module.__name__)
    assert (line in stub(PACKAGE)) == (place == TOP)


def test_help_begins_with_a_table_of_contents() -> None:
    """Each name stands in the line of its topic, and nothing else does."""
    topics: list[str] = []
    found: list[str] = []
    for line in (kubectl_runtime.__doc__ or "").splitlines():
        assert len(line) <= 120
        if line.startswith("    "):
            topics += line[:16].split()
            found += line[16:].replace(",", "").split()
    assert topics == list(TOPICS)
    assert sorted(found) == kubectl_runtime.__all__


@pytest.mark.parametrize("name", GONE)
def test_a_name_that_moved_is_found_and_names_its_place(name: str) -> None:
    place = f"kubectl_runtime.{GONE[name]}"
    said = f"^kubectl_runtime.{name} moved: from {place} import {name}$"
    with pytest.warns(DeprecationWarning, match=said) as warned:
        found = getattr(kubectl_runtime, name)
    assert found is getattr(importlib.import_module(place), name)
    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("statement", [
    "from kubectl_runtime import Rule", "from kubectl_runtime import Api, Phase as P",
    "import kubectl_runtime\nkubectl_runtime.status"])
def test_each_place_that_uses_a_name_that_moved_is_warned_in_its_line(statement: str) -> None:
    for place in ("one.py", "another.py"):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            exec(compile(statement, place, "exec"), {})
        assert [(each.filename, each.lineno) for each in warned] == [(place, statement.count("\n") + 1)]


@pytest.mark.parametrize("module", [PACKAGE, "kubectl_runtime.errors", "kubectl_runtime.webhooks"])
def test_a_name_that_never_was_is_none(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Contoller'"):
        importlib.import_module(module).Contoller  # noqa: B018


def test_what_moved_is_in_the_changelog_and_each_topic_in_the_guides_index() -> None:
    listed = (ROOT / "CHANGELOG.md").read_text().partition("### Deprecated")[2].partition("\n## ")[0]
    for name, topic in GONE.items():
        line = next(part for part in listed.split("\n- ") if part.startswith(f"`kubectl_runtime.{topic}`"))
        assert f"`{name}`" in line, name
    index = (ROOT / "examples" / "guides" / "README.md").read_text()
    assert [topic for topic in TOPICS if f"`kubectl_runtime.{topic}` |" not in index] == []


def test_all_names_at_once_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec("from kubectl_runtime import *", found := {})
        help_shows = [getattr(kubectl_runtime, name) for name in dir(kubectl_runtime)]
    assert set(kubectl_runtime.__all__) <= set(found)
    assert help_shows


@pytest.mark.parametrize("first", [
    "from kubectl_runtime import WebhookServer", "import kubectl_runtime.webhooks.server",
    "from kubectl_runtime.webhooks import application"])
def test_a_function_with_the_name_of_its_module_stays_one(first: str) -> None:
    code = f"{first}\nfrom kubectl_runtime import webhooks\nassert webhooks.application.__name__ == 'application', 1"
    code += "\nassert not hasattr(webhooks.application, '__file__')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_image_may_leave_the_embedded_server_out() -> None:
    """As the guide To a cluster says: the facade and `kubectl-runtime run` do without it and the test kit.
    A plan needs both."""
    code = ("import sys; sys.modules.update({'kubectl_runtime.apiserver': None, 'kubectl_runtime.testing': None}); "
            "import kubectl_runtime as facade; [getattr(facade, name) for name in facade.__all__]; "
            "import importlib; from kubectl_runtime.facade import TOPICS; doors = "
            "[importlib.import_module(f'kubectl_runtime.{topic}') for topic in TOPICS "
            "if topic not in ('plan', 'testing')]; "
            "[getattr(door, name) for door in doors for name in door.__all__]; "
            "from kubectl_runtime.cli.main import main; main(['run', 'absent_module:main'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "absent_module" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    topics = ", ".join(f"kubectl_runtime.{topic}" for topic in TOPICS if topic not in ("testing", "webhooks"))
    code = (f"import sys, kubectl_runtime, {topics}; "
            "print(*(m for m in ('msgspec', 'requests', 'kubernetes') if m in sys.modules))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not out.stdout.strip()


def test_resource_classes_import_no_http_and_no_official_client() -> None:
    code = ("import sys; from kubectl_runtime.resources import Pod; from kubectl_runtime import CustomResource; "
            "print(*(m for m in ('requests', 'kubernetes', 'urllib3') if m in sys.modules))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not out.stdout.strip()
