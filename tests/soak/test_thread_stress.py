"""Twenty minutes of `thread_stress.py`. STRESS_SECONDS and STRESS_SEED change it; a short form is in the default suite
(tests/runtime/test_free_threads.py).
"""
from __future__ import annotations

import os
import random

import pytest

from tests.soak import thread_stress

SECONDS = int(os.environ.get("STRESS_SECONDS", "1200"))
SEED = os.environ.get("STRESS_SEED", "random")


@pytest.mark.timeout(2 * SECONDS + 300)
def test_many_threads_at_everything_for_minutes_break_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    result = thread_stress.run(SECONDS, random.randrange(1 << 32) if SEED == "random" else int(SEED))
    with capsys.disabled():
        print(f"\n{result}")
    assert result["wrong"] == []
