"""`BoundController`: a controller with its reconciler, so that whoever runs it need not know what it is."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy

if TYPE_CHECKING:
    from kubectl_runtime.runtime.controller.controller import Controller

K = TypeVar("K")


@dataclass(frozen=True)
class BoundController(Generic[K]):
    """Made by `Controller.bind`. What is changed in the controller until it runs, counts."""

    controller: Controller[K]
    reconciler: Any
    error_policy: ErrorPolicy[K] | None = None
    context: Any = None

    def run(self) -> None:
        """As `Controller.run`: blocks until it is stopped."""
        self.controller.run(self.reconciler, error_policy=self.error_policy, context=self.context)

    def start(self) -> Running[K]:
        """As `Controller.start`: returns at once."""
        return self.controller.start(self.reconciler, error_policy=self.error_policy, context=self.context)
