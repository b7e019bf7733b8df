"""`retry_on_conflict`: read, change and write again when somebody else was faster.

    def scale() -> Deployment:
        deployment = deployments.get("web")          # read inside, so that each attempt begins with what is there
        deployment.spec.replicas = 3
        return deployments.replace(deployment)

    retry_on_conflict(scale)

client-go's `retry.RetryOnConflict` with its `DefaultRetry`: 5 attempts, 10 ms and up to a tenth more between them.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.scope import with_scope
from kubectl_runtime.core.base.stop import StopToken

T = TypeVar("T")

_FIELD_CONFLICT = "FieldManagerConflict"


@dataclass(frozen=True, slots=True)
class ConflictBackoff:
    """How often `retry_on_conflict` tries, and how long it waits between: `initial` seconds, times `factor` after each,
    plus up to the part `jitter` of it.

    `ConflictBackoff(4, 0.01, 5.0)` is client-go's `DefaultBackoff`, for what many write; the default is its
    `DefaultRetry`. Raises RequestError when a number makes no sense.

    >>> retry_on_conflict(lambda: "done", backoff=ConflictBackoff(steps=4, initial=0.01, factor=5.0))
    'done'
    """

    steps: int = 5
    initial: Duration = 0.01
    factor: float = 1.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if self.steps < 1 or seconds(self.initial) < 0 or self.factor < 1 or self.jitter < 0:
            raise RequestError(f"a backoff needs steps >= 1, initial >= 0, factor >= 1 and jitter >= 0: {self}")

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait after the failed attempt number `attempt` (the first is 0)."""
        return float(seconds(self.initial) * self.factor ** attempt * (1 + self.jitter * rng.random()))


DEFAULT_RETRY = ConflictBackoff()


def is_lost_race(error: ApiError) -> bool:
    """Whether reading again may help, because the object has changed since it was read. False when another manager
    owns a field that was applied: that would be so the next time as well."""
    return error.is_conflict and all(cause.reason != _FIELD_CONFLICT for cause in error.status.causes)


def retry_on_conflict(attempt: Callable[[], T], *, backoff: ConflictBackoff = DEFAULT_RETRY,
                      retry: Callable[[ApiError], bool] = is_lost_race, stop: StopToken | None = None,
                      clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None) -> T:
    """What `attempt` returns; it is called again, after a wait, when it raises a conflict.

    Blocks for the attempts and the waits between them. Raises the last conflict when all attempts have failed or
    `stop` is set, and at once whatever else `attempt` raises: conflicts between field managers, and OutcomeUnknownError
    for a write that may have been done, since a second attempt would change the object twice. `retry` decides which
    ApiErrors are tried again. Waits on `clock`, or that of `stop`; in a controller's run, no longer than it.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> def paint():
    ...     obj = maps.get("settings")
    ...     obj.data["color"] = "red"
    ...     return maps.replace(obj)
    >>> retry_on_conflict(paint).data["color"]
    'red'
    """
    waiting, dice = with_scope(stop or StopToken(clock=clock), clock), rng or random.Random()
    for number in range(backoff.steps):
        try:
            return attempt()
        except ApiError as error:
            last = number + 1 == backoff.steps
            if last or not retry(error) or waiting.wait(backoff.delay(number, dice)):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")
