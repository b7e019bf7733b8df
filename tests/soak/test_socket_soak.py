"""Real sockets and threads for twenty minutes of faults: everything converges, and nothing is left.

`socket_soak.py` says what happens; SOAK_SECONDS and SOAK_SEED change it. A short form is in the fast suite
(tests/runtime/controller/test_soak_over_sockets.py).
"""
from __future__ import annotations

import os

import pytest

from tests.soak.socket_judge import problems_of, soaked

SECONDS = int(os.environ.get("SOAK_SECONDS", "1200"))
SEED = os.environ.get("SOAK_SEED", "random")


@pytest.mark.timeout(2 * SECONDS + 300)
def test_after_minutes_of_faults_everything_is_as_it_has_to_be_and_nothing_is_left(
        capsys: pytest.CaptureFixture[str]) -> None:
    result = soaked(SECONDS, None if SEED == "random" else int(SEED))
    with capsys.disabled():
        print(f"\n{result}")
    assert problems_of(result) == []
