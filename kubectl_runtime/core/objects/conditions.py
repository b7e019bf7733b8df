"""Status conditions: how a controller says what it knows, without writing when nothing has changed."""
from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK
from kubectl_runtime.core.meta.metav1 import Condition, check_status


def set_condition(
    conditions: Iterable[Condition] | None, condition: Condition, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """The conditions with `condition` in place of the one of its type, or added at the end, as JSON values to write.

    `last_transition_time` moves to `now` (the system's time by default; written in whole seconds) only when `status`
    changes, as Kubernetes' API conventions demand: so a reconcile that finds what it found before produces the very
    same list, and writing it by server-side apply changes nothing. Raises RequestError for a `condition` whose status
    is not one of Kubernetes' three.

    >>> [ready] = set_condition([], Condition(type="Ready", status="True", reason="Served"))
    >>> ready["type"], ready["status"]
    ('Ready', 'True')
    """
    check_status(condition.type, condition.status)
    kept = list(conditions or ())
    at = next((index for index, old in enumerate(kept) if old.type == condition.type), None)
    since = kept[at].last_transition_time if at is not None and kept[at].status == condition.status else None
    moment = (since or now or SYSTEM_CLOCK.now()).replace(microsecond=0)
    placed = msgspec.structs.replace(condition, last_transition_time=moment)
    if at is None:
        kept.append(placed)
    else:
        kept[at] = placed
    values: list[dict[str, Any]] = msgspec.to_builtins(kept)
    index = len(values) - 1 if at is None else at
    values[index] = {"reason": "", "message": "", **values[index]}  # custom kinds may require them, even if empty
    return values
