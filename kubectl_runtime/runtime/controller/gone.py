"""What runs for a key of which the store has no object, where the user wants that (`on_gone=`).

A run of it is a run like any other: never beside another of the same key, with a `Context`, and what it raises is
logged and tried again with backoff. It comes when a deletion is seen, and when anything else asks for an object that is
not there. A deletion that happens while no controller runs is seen by nobody: what must not be missed needs a
finalizer.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.codec.record import Head, Record
from kubectl_runtime.runtime.controller.plan import GoneFunction
from kubectl_runtime.runtime.queue.runs import Execute, Outcome, Run
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context, Environment
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reflector.store import Store


class _Absent:
    """Stands where a store would, in which each key has a record of nothing but its name."""

    def __init__(self, store: Store[Any]) -> None:
        self._resource = store.resource

    def record(self, name: str, namespace: str | None) -> Record:
        return Record(Head(name=name, namespace=namespace), self._resource, b"")

    def reader(self, record: Record) -> Record:
        return record


def with_gone(invoke: Execute, on_gone: GoneFunction, store: Store[Any], environment: Environment[Any]) -> Execute:
    """`invoke` for objects that are stored, `on_gone(ref, ctx)` for those that are not."""

    def let_go(_obj: Record, ctx: Context[Any]) -> Action:
        on_gone(ctx.ref, ctx)
        return Action.await_change()

    absent: Any = _Absent(store)
    invoke_gone = Invoker(let_go, None, absent, environment)

    def execute(run: Run) -> Outcome:
        ref = run.request.ref
        return invoke_gone(run) if store.record(ref.name, ref.namespace) is None else invoke(run)

    return execute
