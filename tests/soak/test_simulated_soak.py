"""Controllers in a simulation for hours of its clock, while everything that can go wrong does; in the end all is right.

    variable       means                                        here      tox env `soak`
    SOAK_HOURS     hours of the simulated clock                 0.25      10
    SOAK_OBJECTS   objects of all controllers together          200       2000
    SOAK_SEED      of everything that is left to chance         1         drawn, and printed

A failure names its seed: the same numbers make the same run. A short form is in the fast suite
(tests/testing/test_short_soak.py).
"""
from __future__ import annotations

import os
import random
import time

import pytest

from tests.soak.simulated_soak import Soak

HOURS = float(os.environ.get("SOAK_HOURS", "0.25"))
OBJECTS = int(os.environ.get("SOAK_OBJECTS", "200"))
SEED = os.environ.get("SOAK_SEED", "1")


@pytest.mark.timeout(4 * 3600 if HOURS > 1 else 240)
def test_after_hours_of_faults_everything_is_as_it_has_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1 << 32) if SEED == "random" else int(SEED)
    with capsys.disabled():
        print(f"\nsoak: SOAK_SEED={seed} SOAK_OBJECTS={OBJECTS} SOAK_HOURS={HOURS:g}")
    begun, soak = time.perf_counter(), Soak(seed, OBJECTS)
    soak.run(HOURS)
    wrong = soak.heal()
    with capsys.disabled():
        print(f"soak: {dict(soak.done)}, {time.perf_counter() - begun:.0f} s")
    assert wrong == [], f"SOAK_SEED={seed}"
