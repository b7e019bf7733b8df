"""`Reconciler`: the class form of a reconciler. The function form is any `(obj, ctx) -> Action`."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context

K = TypeVar("K")

ReconcileFunction: TypeAlias = Callable[[K, Context[Any]], Action]
ErrorPolicy: TypeAlias = Callable[[K, BaseException, Context[Any]], Action]


class Reconciler(ABC, Generic[K]):
    """Brings the world to what an object asks for. One instance serves all workers at once.

    State that belongs to one object belongs into the cluster; state of the instance must be safe for several threads.
    """

    @abstractmethod
    def reconcile(self, obj: K, ctx: Context[Any]) -> Action:
        """Look at `obj`, do what is missing, and say when to look again.

        May block. Raise to report a failure: the error policy then decides. Runs again after any change, so it has to
        reach the same end however often it is called. Never runs twice at once for one object.
        """

    def error_policy(self, obj: K, error: BaseException, ctx: Context[Any]) -> Action:  # noqa: ARG002 - for overriding
        """What to do after `reconcile` raised `error`. Runs on the same worker and may block.

        The default waits `ctx.backoff_delay`: 5 ms doubling up to 1000 s per object, jittered, reset by success.
        """
        return Action.requeue(ctx.backoff_delay)
