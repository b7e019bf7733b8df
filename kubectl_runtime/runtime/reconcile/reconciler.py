"""`Reconciler`: the class form of a reconciler. The function form is any `(obj, ctx) -> Action`.

Both say themselves of which type `ctx.data` is: by the annotation `ctx: Context[Deps]`. Who passes no `context=` has
`Context[None]`; see the overloads of `Controller.run`.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context

K = TypeVar("K")
D = TypeVar("D")
K_contra = TypeVar("K_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)

ReconcileFunction: TypeAlias = Callable[[K, Context[Any]], Action]
ErrorPolicy: TypeAlias = Callable[[K, BaseException, Context[Any]], Action]


class SupportsReconcile(Protocol[K_contra, D_contra]):
    """What a controller takes as its reconciler: any object with a method `reconcile(obj, ctx) -> Action`.

    >>> class Quiet:
    ...     def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
    ...         return Action.await_change()
    >>> with Controller(Api.all(client, ConfigMap)).start(Quiet()) as running:
    ...     running.wait_until_ready(10)
    """

    def reconcile(self, obj: K_contra, ctx: Context[D_contra], /) -> Action:
        """Do what the object asks for, and say when to look again: see `Reconciler.reconcile`."""


Reconciles: TypeAlias = SupportsReconcile[K, D] | Callable[[K, Context[D]], Action]
"""Whatever can reconcile these objects, for a context with this data."""


class Reconciler(ABC, Generic[K]):
    """The base of your reconcilers: `reconcile` makes the cluster, and what lies outside, as an object asks.

    One instance serves all workers at once. Keep no state of an object in it: write that into the cluster. Other state
    of the instance must be safe for several threads.

    >>> class Greet(Reconciler[Namespace]):
    ...     def reconcile(self, obj: Namespace, ctx: Context[None]) -> Action:
    ...         greeting = ConfigMap(name="greeting", namespace=obj.name, data={"text": f"Welcome to {obj.name}!"})
    ...         greeting.set_owner(obj)
    ...         Api.namespaced(ctx.client, ConfigMap, obj.name).apply(greeting, field_manager="greeter")
    ...         return Action.await_change()
    """

    @abstractmethod
    def reconcile(self, obj: K, ctx: Context[Any]) -> Action:
        """Look at `obj`, do what is missing, and say when to look again.

        May block. Raise to report a failure: the error policy then decides. Runs again after any change, so it has to
        reach the same end however often it is called. Never runs twice at once for one object.
        """

    def error_policy(self, obj: K, error: BaseException, ctx: Context[Any]) -> Action:  # noqa: ARG002 - for overriding
        """What to do after `reconcile` raised `error`. Runs on the same worker and may block.

        The default waits `ctx.backoff_delay`: 5 ms doubling up to 1000 s per object, jittered, reset by success. It is
        not asked after a TerminalError, and not after the first few conflicts in a row, which are retried at once.
        """
        return Action.requeue(ctx.backoff_delay)

    def on_success(self, obj: K, action: Action, ctx: Context[Any]) -> None:
        """`reconcile` has returned `action`. Part of the run: on the same worker, may block; what it raises makes the
        run fail. The default does nothing."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How one run ended: what `Controller.on_result` is told. `duration` and `requeue_after` are seconds.

    >>> def slow(report: RunReport) -> None:
    ...     if report.duration > 10:
    ...         print(report.ref, report.result)
    >>> controller = Controller(Api.all(client, ConfigMap)).on_result(slow)
    """

    ref: ObjectRef
    result: RunResult
    duration: float
    """Seconds."""
    attempt: int
    """1, and one more for each failure in a row before."""
    reason: str
    """Why it ran, for logs."""
    reconcile_id: str
    requeue_after: float | None
    """Seconds until the next run even if nothing changes; None: only then."""
    error: BaseException | None
    """What the reconciler raised."""


ResultCallback: TypeAlias = Callable[[RunReport], object]
