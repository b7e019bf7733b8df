"""`await_all`: waiting for several objects at once, in one thread, under one deadline.

    each round, 5 s at most    every object that is left is looked at once (a list of one), so that what fails for good
                               is known at once, whatever else takes long; then the first of them is watched

Ended waits are told as they end. At the deadline, or when a stop is asked for, all that are left fail with what was
last seen of each, and with what keeps their Pods from running.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.apply_crd import TimeLeft
from kubectl_runtime.runtime.conditions import Described
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.manifests.pod_troubles import PodTroubles
from kubectl_runtime.runtime.manifests.progress import Progress
from kubectl_runtime.runtime.manifests.readiness import is_namespace
from kubectl_runtime.runtime.ready_rules import Missing, NeverReady
from kubectl_runtime.runtime.wait import WaitError, WaitStopped, WaitTimeout, await_condition

ROUND = 5.0
"""Seconds after which every object is looked at again, at the latest."""


@dataclass(slots=True, eq=False)
class Wait:
    """One object, what is missing of it, and the word for what it is to be: ready, gone."""

    api: Api[Any]
    ref: ObjectRef
    missing: Missing
    word: str
    why: str = "nothing was seen of it yet"
    seen: Any = None
    took_time: bool = False
    """Whether something was missing at first."""

    def is_over(self, obj: Any) -> bool:
        """As a condition: whether nothing is missing. Raises NeverReady, also for a condition that raises."""
        self.seen = obj
        try:
            self.why = self.missing(obj)
        except KubeError:
            raise
        except Exception as error:
            raise NeverReady(f"the condition that was waited for raised {type(error).__name__}: {error}") from error
        self.took_time = self.took_time or bool(self.why)
        return not self.why


def await_all(waits: Sequence[Wait], left: TimeLeft, stop: StopToken | None, progress: Progress
              ) -> Iterator[tuple[Wait, KubeError | None]]:
    """Each wait as it ends, with the error if it did not end well. Blocks until `left` is over, at most."""
    pending = list(waits)
    while pending:
        for wait in list(pending):
            ended, error = _look(wait, left, stop)
            if ended:
                pending.remove(wait)
                yield wait, error
        if not pending:
            return
        if left.is_over() or (stop is not None and stop.is_set()):
            break
        first = pending[0]
        try:
            _watch(first, len(pending) - 1, left, stop, progress)
        except (WaitTimeout, WaitStopped) as error:
            if error.last_error:
                first.why = error.last_error
        except KubeError as error:
            pending.remove(first)
            yield first, error
        else:
            pending.remove(first)
            yield first, None
    troubles = PodTroubles()
    for wait in pending:
        yield wait, _unfinished(wait, left, stop, troubles)


def _look(wait: Wait, left: TimeLeft, stop: StopToken | None) -> tuple[bool, KubeError | None]:
    """Whether the wait is over, and how."""
    found: list[bool] = []

    def look(obj: Any) -> bool:
        found.append(wait.is_over(obj))
        return True

    try:
        await_condition(wait.api, wait.ref.name, Described("is seen", look), timeout=min(ROUND, left.seconds()),
                        stop=stop)
    except (WaitTimeout, WaitStopped) as error:
        if error.last_error:
            wait.why = error.last_error
        return False, None
    except KubeError as error:
        return True, error
    return found[-1], None


def _watch(wait: Wait, others: int, left: TimeLeft, stop: StopToken | None, progress: Progress) -> None:
    more = f" (and {others} more)" if others else ""

    def is_over(obj: Any) -> bool:
        over = wait.is_over(obj)
        if not over:
            progress.waiting(said(wait.ref), wait.why + more)
        return over

    progress.waiting(said(wait.ref), wait.why + more)
    await_condition(wait.api, wait.ref.name, Described(f"is {wait.word}", is_over), timeout=min(ROUND, left.seconds()),
                    stop=stop)


def _unfinished(wait: Wait, left: TimeLeft, stop: StopToken | None, troubles: PodTroubles) -> WaitError:
    if stop is not None and stop.is_set():
        return WaitStopped(f"it was not {wait.word} when a stop was asked for ({stop.reason}): {wait.why}", wait.word,
                           wait.seen)
    pods = ""
    if wait.word == "ready":
        pods = troubles.of(wait.api, wait.seen)
    elif wait.seen is not None and is_namespace(wait.seen):
        pods = troubles.ending(wait.api, wait.ref.name)
    return WaitTimeout(f"it was not {wait.word} within {left.span:g} s: {wait.why}{pods}", wait.word, wait.seen)
