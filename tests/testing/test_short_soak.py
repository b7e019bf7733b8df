"""The soak of tests/soak in short: few objects, and every fault once at least; seconds here, minutes of the clock."""
from __future__ import annotations

import pytest

from tests.soak.simulated_soak import Soak


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_after_every_fault_everything_is_as_it_has_to_be(seed: int) -> None:
    soak = Soak(seed, 40)
    soak.run(0.1)
    assert len(soak.done) == 10, "each kind of fault came"
    assert soak.heal() == [], f"seed {seed}: {dict(soak.done)}"


def test_the_same_seed_makes_the_same_run() -> None:
    ends = []
    for _ in range(2):
        soak = Soak(3, 20)
        soak.run(0.02)
        ends.append((soak.sim.clock.monotonic(), dict(soak.done), soak.server.core.cluster.storage.rv))
    assert ends[0] == ends[1]
