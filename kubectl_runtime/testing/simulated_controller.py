"""`SimulatedController`: a controller that a `Simulation` steps."""
from __future__ import annotations

from typing import Any, Generic, TypeVar

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.testing.executor import SimExecutor

K = TypeVar("K")


class SimulatedController(Generic[K]):
    """A controller in a simulation: what `Running` is to threads. Its watches move only by `Simulation.step`."""

    def __init__(self, assembly: Assembly[K], executor: SimExecutor) -> None:
        self.assembly = assembly
        self.executor = executor
        self.bugs: list[BaseException] = []
        """Defects of the library that came up; `Simulation.step` raises the first."""
        self._recorder_closed = False

    @property
    def store(self) -> Store[K]:
        """The objects that the controller reconciles, as its watch knows them."""
        return self.assembly.store

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete and reconciling has begun."""
        return self.assembly.gate.is_open

    @property
    def running(self) -> list[ObjectRef]:
        """The objects that are being reconciled at this moment."""
        return [run.request.ref for run in self.assembly.runner.running()]

    @property
    def scheduled(self) -> int:
        """How many keys wait to be reconciled, now or later."""
        return self.assembly.runner.depth()

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ObjectRef soon. Raises RequestError when it is of another kind."""
        self.assembly.trigger(item)

    def trigger_all(self) -> None:
        """Reconcile every stored object soon."""
        self.assembly.inbox.trigger_everything()

    def begin_stop(self, grace: Duration = 30) -> None:
        """Begin to stop, with `grace` seconds for runs in progress; step on to see it end."""
        self.assembly.shutdown.begin("stop() was called", seconds(grace))

    def close_recorder(self) -> None:
        """Close the recorder of events, when a stop was asked for and all runs have ended."""
        shutdown = self.assembly.shutdown
        if shutdown.give_up_at is None or self._recorder_closed or len(self.executor):
            return
        self._recorder_closed = True
        if self.assembly.flight is not None:
            self.assembly.flight.close(shutdown.draining.reason or "stopped", 0)
        self.assembly.recorder.close(max(0.0, shutdown.give_up_at - self.assembly.plan.clock.monotonic()))

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it would run any more."""
        return not len(self.executor) and all(share.has_ended for share in self.assembly.shares)
