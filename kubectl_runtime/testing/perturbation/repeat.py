"""The command that repeats one disturbed run, as it can be typed in the folder in which this process runs.

    in a test that pytest runs     pytest FILE::TEST --perturb-only POINT --perturb-seed SEED
    functions of a module          kubectl-runtime perturb MODULE:BUILD MODULE:STORY --only POINT --seed SEED
    neither                        perturb(..., only="POINT", seed=SEED): nothing else can name them
"""
from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubectl_runtime
from kubectl_runtime.testing.perturbation.points import Point


@dataclass(frozen=True)
class Options:
    """What pytest was told: `only` that point, with this `seed`. `root`: what its tests are named from; None outside of
    it. `tell`: writes to the terminal, past pytest's capture."""

    only: Point | None = None
    seed: int | None = None
    root: Path | None = None
    tell: Callable[[str], object] | None = None


OPTIONS: ContextVar[Options] = ContextVar("perturbation_options", default=Options())  # noqa: B039 - frozen
"""Set by the pytest plugin."""


def command(build: Callable[..., Any], story: Callable[..., Any], point: Point, seed: int) -> str:
    """The command that repeats one run: for pytest, or for a shell."""
    test, root = os.environ.get("PYTEST_CURRENT_TEST", ""), OPTIONS.get().root
    if test and root is not None:
        file, _, name = test.rpartition(" ")[0].partition("::")
        node = f"{os.path.relpath(root / file)}::{name}"
        return f"pytest {shlex.quote(node)} --perturb-only {point} --perturb-seed {seed}"
    places = [_place_of(build), _place_of(story)]
    if None in places:
        return f'perturb(..., only="{point}", seed={seed})'
    found = [place for place in places if place is not None]
    roots = {str(root): None for root, _ in found if root is not None}
    prefix = f"PYTHONPATH={shlex.quote(os.pathsep.join(roots))} " if roots else ""
    return f"{prefix}kubectl-runtime perturb {found[0][1]} {found[1][1]} --only {point} --seed {seed}"


def _place_of(function: Any) -> tuple[Path | None, str] | None:
    """Where a new process has to look for a function's module, if not where it does anyway, and MODULE:NAME; None for
    what has no such name."""
    module, name = sys.modules.get(getattr(function, "__module__", "")), getattr(function, "__qualname__", "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not function:
        return None
    file = getattr(module, "__file__", None)
    spec = getattr(module, "__spec__", None)
    called = module.__name__
    if called == "__main__":
        called = spec.name if spec is not None else Path(file).stem if file else ""
    if not file or not called:
        return None
    parts = called.split(".")
    top = Path(file).resolve().parents[len(parts) - (0 if Path(file).stem == "__init__" else 1)]
    if not all(part.isidentifier() for part in parts):
        return None
    return None if top == Path.cwd() or top in _everybodys() else top, f"{called}:{name}"


def _everybodys() -> list[Path]:
    """What is on the path of each new interpreter: installed packages, this one's folder."""
    installed = [Path(entry).resolve() for entry in sys.path if "site-packages" in entry or "dist-packages" in entry]
    return [*installed, Path(kubectl_runtime.__file__).resolve().parents[1]]
