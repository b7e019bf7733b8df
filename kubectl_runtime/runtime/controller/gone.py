"""What runs for a key of which the store has no object, where the user wants that (`on_gone=`).

A run of it is a run like any other: never beside another of the same key, with a `Context`, and what it raises is
logged and tried again with backoff. It comes when a deletion is seen, and when anything else asks for an object that is
not there. A deletion that happens while no controller runs is seen by nobody: what must not be missed needs a
finalizer.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.plan import GoneFunction
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context, Environment
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.runner import Execute
from kubectl_runtime.runtime.reflector.store import Store


class _GoneObject:
    """Stands where an object would, and has nothing but its name."""

    uid = resource_version = ""
    generation = None

    def __init__(self, ref: ObjectRef) -> None:
        self.ref = ref


class _Absent:
    """Stands where a store would, in which each key has its stand-in."""

    def __init__(self, store: Store[Any]) -> None:
        self._resource = store.resource

    def get(self, name: str, namespace: str | None) -> _GoneObject:
        return _GoneObject(ObjectRef(self._resource, name, namespace))


def with_gone(invoke: Execute, on_gone: GoneFunction, store: Store[Any], environment: Environment[Any]) -> Execute:
    """`invoke` for objects that are stored, `on_gone(ref, ctx)` for those that are not."""

    def let_go(_obj: _GoneObject, ctx: Context[Any]) -> Action:
        on_gone(ctx.ref, ctx)
        return Action.await_change()

    absent: Any = _Absent(store)
    invoke_gone = Invoker(let_go, None, absent, environment)

    def execute(run: Run) -> Outcome:
        ref = run.request.ref
        return invoke_gone(run) if store.get(ref.name, ref.namespace) is None else invoke(run)

    return execute
