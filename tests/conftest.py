"""Settings of the whole suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.thoroughness import examples

# How long an example takes says more of the machine than of the code: a busy one fails no test.
settings.register_profile("whole-suite", deadline=None, max_examples=examples(100))
settings.load_profile("whole-suite")


@pytest.fixture(scope="session", autouse=True)
def _types_are_checked_from_one_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What programs of the tests share, the library above all, is analysed once a session."""
    os.environ["MYPY_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "mypy")


@pytest.fixture(scope="session", autouse=True)
def _programs_compile_what_they_import_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where nothing may be written beside the sources, each program would compile the library and its packages anew.

    The cache is that of the session, and one for all processes of xdist: a file of it is written whole or not at all.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared / "bytecode")
