"""A missing extra: one sentence, which can be copied to a shell."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_runtime.core.base import errors
from kubectl_runtime.core.base.errors import MissingExtra


def test_what_is_to_be_installed_is_the_clone_or_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_ROOT", tmp_path)
    assert str(MissingExtra("rules in CEL need", "cel")) == (
        "rules in CEL need the extra 'cel': pip install 'kubectl_runtime[cel]'")
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).touch()
    error = MissingExtra("tracing needs", "tracing")
    assert str(error) == f"tracing needs the extra 'tracing': pip install '{tmp_path}[tracing]'"
    assert error.extra == "tracing"


BROKEN = """
import importlib, sys
from kubectl_runtime.core.base.errors import MissingExtra
module, call = sys.argv[1:]
try:
    found = importlib.import_module(module)
    if call:
        eval(call, vars(found))
except MissingExtra as error:
    print(error)
    print(type(error.__cause__).__name__)
"""
USES = [("kubectl_runtime.schema.cel", "engine()", "cel_expr_python", "cel"),
        ("kubectl_runtime.certificates.authority", "_cryptography()", "cryptography", "tls"),
        ("kubectl_runtime.webhooks.answering", "require_jsonpatch()", "jsonpatch", "webhooks"),
        ("kubectl_runtime.runtime.observe.tracing", "", "opentelemetry", "tracing")]


@pytest.mark.parametrize(("content", "reason"), [
    ("raise ImportError('libengine.so.1: cannot open shared object file')",
     "ImportError: libengine.so.1: cannot open shared object file"),
    ("import some_dependency", "ModuleNotFoundError: No module named 'some_dependency'"),
    ("from sys import what_an_old_version_had", "ImportError: cannot import name 'what_an_old_version_had'"),
])
@pytest.mark.parametrize(("module", "call", "package", "extra"), USES)
def test_an_extra_that_is_installed_and_broken_says_why(
        module: str, call: str, package: str, extra: str, content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(content)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", BROKEN, module, call], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": paths}, check=False, cwd=Path(errors.__file__).parents[3])
    text, cause = done.stdout.splitlines()
    assert f"the extra '{extra}'" in text
    assert f"The installed package cannot be imported: {reason}" in text
    assert cause in reason


def test_an_extra_that_is_not_there_says_only_what_to_install() -> None:
    absent = ModuleNotFoundError("No module named 'engine'", name="engine")
    plain = str(MissingExtra("rules in CEL need", "cel"))
    assert str(MissingExtra("rules in CEL need", "cel", "engine", absent)) == plain
    assert str(MissingExtra("rules in CEL need", "cel", "another", absent)) != plain
