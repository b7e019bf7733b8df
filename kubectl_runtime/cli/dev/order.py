"""`Order`: what the upper process of `run --dev` tells the lower one."""
from __future__ import annotations

from dataclasses import dataclass

from kubectl_runtime.cli.run_options import RunOptions


@dataclass(frozen=True)
class Order:
    """What to run. `serve`: where health and metrics are served, if nobody says it."""

    options: RunOptions
    serve: str
