"""What a new version of an operator would do to a cluster, before it does it.

    Snapshot    what was read of a cluster; it can be saved, and planned against again and again
    plan        runs a program in a simulated copy of the cluster until nothing moves, and says what that changed
    Plan        what came out

Each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.plan.outside import OutsideRefused as OutsideRefused
    from kubectl_runtime.plan.report import Change as Change
    from kubectl_runtime.plan.report import FieldChange as FieldChange
    from kubectl_runtime.plan.report import Plan as Plan
    from kubectl_runtime.plan.report import Problem as Problem
    from kubectl_runtime.plan.running import plan as plan
    from kubectl_runtime.plan.snapshot import Snapshot as Snapshot
    from kubectl_runtime.plan.stored import SnapshotError as SnapshotError

_MODULES = {"Snapshot": "snapshot", "SnapshotError": "stored", "plan": "running", "Plan": "report",
            "Change": "report", "FieldChange": "report", "Problem": "report", "OutsideRefused": "outside"}

__all__ = ["Change", "FieldChange", "OutsideRefused", "Plan", "Problem", "Snapshot", "SnapshotError", "plan"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kubectl_runtime.plan.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
