"""Runs `socket_soak.py` in a process of its own, and says what is wrong with what it held."""
from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

from tests.soak.socket_soak import ROOT

DESCRIPTORS = 12
"""That many more or less may be open for the same work: how many connections a pool holds depends on how many calls
came at once."""

BLOCKS = 0.05
"""By this share the allocated blocks of the same work differ from one moment to another."""

RESIDENT_KIB = 8 * 1024
"""What the allocator may keep of the largest moment."""


def soaked(seconds: int, seed: int | None, objects: int = 100) -> dict[str, Any]:
    """What a soak printed; `seed` None draws one. Blocks for its time and what it needs to converge."""
    seed = random.randrange(1 << 32) if seed is None else seed
    arguments = [str(number) for number in (seconds, seed, objects)]
    done = subprocess.run([sys.executable, "-m", "tests.soak.socket_soak", *arguments], capture_output=True, text=True,
                          timeout=2 * seconds + 200, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def problems_of(result: dict[str, Any]) -> list[str]:
    """What must not be, in words that hold the figures and the seed."""
    before, early, late, after = (result[name] for name in ("before", "early", "late", "after"))
    found = [f"not converged: {problem}" for problem in result["wrong"]]
    if result["threads_left"] != ["MainThread"]:
        found.append(f"threads are left: {result['threads_left']}")
    if after["descriptors"] != before["descriptors"]:
        found.append(f"descriptors are left: {after['descriptors']} after {before['descriptors']}")
    if late["threads"] > early["threads"]:
        found.append(f"threads grew from {early['threads']} to {late['threads']}")
    if late["descriptors"] > early["descriptors"] + DESCRIPTORS:
        found.append(f"descriptors grew from {early['descriptors']} to {late['descriptors']}")
    if late["blocks"] > early["blocks"] * (1 + BLOCKS):
        found.append(f"allocated blocks grew from {early['blocks']} to {late['blocks']}")
    if late["resident_kib"] > early["resident_kib"] + RESIDENT_KIB:
        found.append(f"resident memory grew from {early['resident_kib']} to {late['resident_kib']} KiB")
    return [f"{problem} (seed {result['seed']})" for problem in found]
