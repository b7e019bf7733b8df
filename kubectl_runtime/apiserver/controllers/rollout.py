"""The arithmetic of a Deployment's rollout: how many replicas each of its ReplicaSets is to have. Pure functions.

A ReplicaSet's annotations tell for which size of the Deployment it was scaled last: `desired` its replicas, `most` its
replicas and the surge. From them a change of the Deployment's size is told from a step of a rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig

Object = dict[str, Any]

DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a rollout: wanted replicas, how many more, and how many fewer available ones there may be."""

    replicas: int
    surge: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class Size:
    """One ReplicaSet: the replicas it has by its spec, the available ones, and `max-replicas` of its annotations."""

    replicas: int
    available: int
    annotated: int = 0


def limits_of(spec: Object) -> Limits:
    """The limits by a Deployment's spec; only a rolling update has surge and unavailable replicas."""
    replicas = spec.get("replicas", 1)
    rolling = dig(spec, "strategy.rollingUpdate")
    if rolling is None or dig(spec, "strategy.type") == "Recreate":
        return Limits(replicas, 0, 0)
    surge = _share(rolling.get("maxSurge", 0), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", 0), replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1  # the rollout would stand still
    return Limits(replicas, surge, min(unavailable, replicas))


def _share(value: Any, whole: int, *, up: bool) -> int:
    """A number, or a percentage of the whole."""
    if isinstance(value, int):
        return value
    part = whole * int(str(value).rstrip("%")) / 100
    return math.ceil(part) if up else math.floor(part)


def new_replicas(limits: Limits, new: int, others: int) -> int:
    """The size of the newest ReplicaSet that has `new` replicas while the older ones have `others`."""
    if new >= limits.replicas:
        return limits.replicas
    room = limits.replicas + limits.surge - new - others
    return new if room <= 0 else new + min(room, limits.replicas - new)


def old_replicas(limits: Limits, new: Size, old: Mapping[str, Size]) -> dict[str, int]:
    """The sizes of older ReplicaSets, oldest first, after one step down: those that change.

    Replicas that are not available go first, then available ones as far as enough are left.
    """
    least = limits.replicas - limits.unavailable
    total = new.replicas + sum(size.replicas for size in old.values())
    budget = total - least - (new.replicas - new.available)
    sizes = {name: size.replicas for name, size in old.items()}
    if budget <= 0:
        return {}
    for name, size in old.items():
        step = min(budget, max(0, size.replicas - size.available))
        sizes[name] -= step
        budget -= step
    spare = new.available + sum(size.available for size in old.values()) - least
    for name, replicas in list(sizes.items()):
        step = min(replicas, max(0, spare))
        sizes[name] -= step
        spare -= step
    return {name: size for name, size in sizes.items() if size != old[name].replicas}


def proportional(limits: Limits, sizes: Mapping[str, Size]) -> dict[str, int]:
    """The sizes of several ReplicaSets when the Deployment is scaled in the midst of a rollout; largest first."""
    total = sum(size.replicas for size in sizes.values())
    allowed = limits.replicas + limits.surge if limits.replicas else 0
    left = allowed - total
    result = {name: size.replicas for name, size in sizes.items()}
    if not left:
        return result
    for name, size in sizes.items():
        share = round(size.replicas * (limits.replicas + limits.surge) / (size.annotated or total)) - size.replicas
        step = min(share, left) if left > 0 else max(share, left)
        result[name] = max(0, size.replicas + step)
        left -= step
    first: Sequence[str] = list(result)[:1]
    for name in first:
        result[name] = max(0, result[name] + left)
    return result
