"""A missing extra: one sentence, which can be copied to a shell."""
from __future__ import annotations

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
