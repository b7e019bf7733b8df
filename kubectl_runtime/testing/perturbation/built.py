"""What `build` returned, as it can be simulated, and Python's random numbers while it runs."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import MainStream, WatchPlan
from kubectl_runtime.runtime.manager.manager import Manager

URL = "http://perturbation.invalid"
"""Of the simulated server."""


def controllers_of(made: Any) -> list[BoundController[Any]]:
    """What `build` returned, as it can be simulated. Raises TypeError and ValueError for what cannot."""
    if isinstance(made, Manager):
        bound = made.controllers()
    elif isinstance(made, BoundController):
        bound = [made]
    else:
        raise TypeError(f"build returned {type(made).__name__}: it has to return Controller(...).bind(reconciler) or a "
                        "Manager")
    for one in bound:
        plan = one.controller.plan()
        if isinstance(plan.main, MainStream) or plan.streams:
            raise ValueError(f"controller {plan.name} reads a given stream, which no simulation can pull: perturb one "
                             "that watches an Api")
        if plan.client.config.cluster_url != URL:
            raise ValueError(f"controller {plan.name} does not use the client that build was called with, but one of "
                             f"{plan.client.config.cluster_url}: make its Apis of the client that is passed")
    return bound


def kinds_of(bound: list[BoundController[Any]]) -> list[type[CustomResource]]:
    """The classes of one's own kinds that these controllers watch."""
    found: dict[type[CustomResource], None] = {}
    for one in bound:
        plan = one.controller.plan()
        for watch in (plan.main, *plan.related):
            kind: Any = watch.api.kind if isinstance(watch, WatchPlan) else None
            if isinstance(kind, type) and issubclass(kind, CustomResource):
                found[kind] = None
    return list(found)


def seeded(seed: int) -> Callable[[], None]:
    """Python's own random numbers begin at `seed`; returns what puts them back."""
    state = random.getstate()
    random.seed(seed)
    return lambda: random.setstate(state)
