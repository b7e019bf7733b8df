"""Status conditions: how a controller says what it knows, without writing when nothing has changed."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.building import converted
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK
from kubectl_runtime.core.meta.metav1 import Condition, check_status


def set_condition(
    conditions: Iterable[Condition | Mapping[str, Any]] | None, condition: Condition, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """Returns the conditions with `condition` in place of the one of its type, or added at the end, as JSON values to
    write. The list that is given stays as it is: a call whose result is dropped does nothing, which type checkers
    report where they are told to (pyright's `reportUnusedCallResult`).

    `conditions` may also be JSON values: those of a DynamicObject, or what an earlier call returned.
    `last_transition_time` moves to `now` (the system's time by default; written in whole seconds) only when `status`
    changes, as Kubernetes' API conventions demand: so a reconcile that finds what it found before produces the very
    same list, and writing it by server-side apply changes nothing. Raises RequestError for a `condition` whose status
    is not one of Kubernetes' three.

    >>> [ready] = set_condition([], Condition(type="Ready", status="True", reason="Served"))
    >>> ready["type"], ready["status"]
    ('Ready', 'True')
    """
    check_status(condition.type, condition.status)
    values = [_plain(entry) for entry in conditions or ()]
    at = next((index for index, entry in enumerate(values) if entry.get("type") == condition.type), len(values))
    before = values[at] if at < len(values) else {}
    moment = (before.get("status") == condition.status and _changed(before)) or now or SYSTEM_CLOCK.now()
    placed = _plain(msgspec.structs.replace(condition, last_transition_time=moment.replace(microsecond=0)))
    placed = {"reason": "", "message": "", **placed}  # custom kinds may require them, even if empty
    return [*values[:at], placed, *values[at + 1:]]


def _changed(entry: dict[str, Any]) -> datetime | None:
    """When the status of an entry changed; None when it does not say so in a way that can be read."""
    known = {key: entry[key] for key in ("type", "status", "lastTransitionTime") if key in entry}
    try:
        return converted(known, Condition).last_transition_time
    except msgspec.ValidationError:  # written by somebody whose schema let it pass
        return None


def _plain(entry: Condition | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(entry) if isinstance(entry, Mapping) else msgspec.to_builtins(entry)
    return plain
