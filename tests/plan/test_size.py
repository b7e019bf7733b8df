"""A plan of a large cluster takes little time and memory: `tests/benchmarks/plan_size.py`, in short and in full."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.examples.programs import ROOT, environment


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sites", [3, pytest.param(500, marks=[pytest.mark.long, pytest.mark.alone])])
def test_it_is_read_and_planned_within_its_limits(sites: int) -> None:
    """Processor time where the limit is of a machine that has nothing else to do."""
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "benchmarks" / "plan_size.py"), "--sites", str(sites)],
                          cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=580, check=True)
    found = json.loads(done.stdout)
    assert found["objects"] >= 10 * sites
    assert found["kinds"] >= 10
    assert found["empty"]
    assert found["changed"] == sites
    assert found["failed"] == 0
    assert found["max_mib"] < 500
    assert found["read_cpu_seconds"] <= 30
    assert found["planned_cpu_seconds"] <= 60
