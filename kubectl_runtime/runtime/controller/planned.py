"""Which watch serves which plan of a controller: what is watched whole also serves who needs a part of it.

A plan for several namespaces, and the one of the controller's own objects, has watches of its own.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.runtime.controller.plan import WatchPlan
from kubectl_runtime.runtime.triggers.shared_watches import Share, form_of, is_whole, selection_of
from kubectl_runtime.runtime.watcher.watch_api import apis_of


@dataclass(frozen=True)
class Planned:
    """A plan and the watch that serves it, which was made for `chosen`: the same plan, or one of the same objects."""

    share: Share[Any]
    chosen: WatchPlan
    plan: WatchPlan
    name: str
    is_first: bool
    """Whether no plan before uses this watch."""


def fullest(plan: WatchPlan, planned: Sequence[WatchPlan]) -> WatchPlan:
    """The first of `planned` that is about the same objects in the same form, or in the whole, which serves both."""
    apis = apis_of(plan.api)
    if len(apis) > 1 or plan.feed is not None:
        return plan
    selection = selection_of(apis[0], plan.config)
    same = [other for other in planned if len(apis_of(other.api)) == 1 and other.modify is plan.modify
            and selection_of(apis_of(other.api)[0], other.config) == selection]
    form = form_of(apis[0], plan.config, None)
    whole = (other for other in same if is_whole(apis_of(other.api)[0], other.config))
    return next(whole, None) or next(
        other for other in same if form_of(apis_of(other.api)[0], other.config, None) == form)
