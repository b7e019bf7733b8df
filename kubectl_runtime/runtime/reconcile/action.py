"""`Action`: what a reconciler wants to happen next, and `TerminalError`: that no retry will help."""
from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kubectl_runtime.core.base.clock import Duration, duration_of
from kubectl_runtime.core.base.errors import KubeError, RequestError


@dataclass(frozen=True, slots=True)
class Action:
    """What a reconciler, or an error policy, answers: run again after a time, or wait for a change.

    Make one with `Action.requeue` or `Action.await_change`. Immutable. Raises as `requeue` does, so that an Action that
    exists is one that can be carried out.

    >>> Action.requeue(300)
    Action(requeue_after=300.0)
    >>> Action.requeue(timedelta(minutes=5)) == Action.requeue(300)
    True
    >>> Action.await_change()
    Action(requeue_after=None)
    """

    requeue_after: float | None = None
    """Seconds from the end of this run to the next one; None: only when something changes."""

    def __post_init__(self) -> None:
        if self.requeue_after is not None:
            object.__setattr__(self, "requeue_after", _delay(self.requeue_after))

    @classmethod
    def requeue(cls, after: Duration) -> Action:
        """Reconcile again `after` this long (seconds or a timedelta) even if nothing changes; a change comes first as
        always. A key that asks for less than 0.1 s many times in a row is slowed down to that; more than 180 days
        are taken for 180 days.

        Raises RequestError when `after` is negative, infinite or not a number, or is no duration.
        """
        return cls(_delay(after))

    @classmethod
    def await_change(cls) -> Action:
        """Nothing more to do until the object, or something that it is watched for, changes."""
        return _AWAIT_CHANGE


def _delay(after: Duration) -> float:
    delay = duration_of("Action.requeue: the delay", after)
    if delay == inf:
        raise RequestError("Action.requeue: the delay must have an end: Action.await_change() waits for a change alone")
    return delay


_AWAIT_CHANGE = Action()


class TerminalError(KubeError):
    """Raise it in a reconciler when retrying cannot help: for example, the spec asks for what does not exist.

    The run counts as failed, once; the error policy is not asked, and there is no retry. The object runs again when
    there is news: another version of it than the one that was seen and those that this run wrote itself, a change of
    an object that it owns or is mapped from, `trigger`, or a resync. It works as the cause of another exception as well
    (`raise Mine(...) from TerminalError(...)`).

    >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    ...     if "color" not in obj.data:
    ...         raise TerminalError("there is no color: retrying will not bring one")
    ...     return Action.await_change()
    """
