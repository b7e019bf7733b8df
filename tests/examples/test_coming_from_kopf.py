"""Our side of each pair in the guides for those who come from kopf does what the guide says; types included."""
from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Controller, predicates
from kubectl_runtime.testing import ApiServer
from tests.examples.coming_from import BEFORE, HANDLED, STORIES, THING, make, save
from tests.examples.programs import LIMIT, environment


def until(done: Callable[[], object]) -> None:
    give_up = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < give_up, "it did not come to pass"
        threading.Event().wait(0.02)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """The module of our side; its folder is the present one."""
    save(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("things", f"ours_{request.param}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(f"ours_{request.param}")


def test_each_pair_has_a_story(tmp_path: Path) -> None:
    assert sorted(save(tmp_path)) == sorted(STORIES)


@pytest.mark.parametrize(("name", "program"), [(name, name) for name in STORIES], indirect=["program"])
def test_our_side_does_it(name: str, program: Any, tmp_path: Path) -> None:
    thing = sys.modules["things"].Thing
    reconcile = program.Clean() if hasattr(program, "Clean") else program.reconcile
    with ApiServer() as server, server.client() as client:
        server.load([thing.crd()])
        things = Api.namespaced(client, THING, "default")
        if name in BEFORE:
            make(things, HANDLED)
        changes = predicates.generation if name == "timer" else None
        bound = (program.main(client) if hasattr(program, "main")
                 else Controller(Api.all(client, thing), predicate=changes).bind(reconcile))
        with bound.start():
            STORIES[name](things, until, tmp_path)


def test_the_types_of_our_sides_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    files = ["things.py", *(f"ours_{name}.py" for name in save(tmp_path))]
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout
