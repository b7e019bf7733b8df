"""Settings of the whole suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# How long an example takes says more of the machine than of the code: a busy one fails no test.
settings.register_profile("whole-suite", deadline=None)
settings.load_profile("whole-suite")


@pytest.fixture(scope="session", autouse=True)
def _types_are_checked_from_one_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What programs of the tests share, the library above all, is analysed once a session."""
    os.environ["MYPY_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "mypy")
