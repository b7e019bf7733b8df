"""Test tools: the embedded API server and what simulates, disturbs and verifies around it.

====================================================  ================================================================
``server``, ``loading``, ``kubeconfig``, ``tls``      `ApiServer`, and how to fill it and let clients in
``apiserver``                                         its core: the whole behaviour, without sockets and threads
``http``, ``housekeeper``                             its rim: sockets and threads around the core, and its clockwork
``faults``                                            the fault script, and the recording of requests
``clock``, ``executor``, ``transport``,               simulation: controllers and server in one thread, on simulated
``simulation``                                        time, reproducible by a seed
``pytest_plugin``, ``__main__``                       the fixtures; ``python -m kubectl_runtime.testing``
====================================================  ================================================================

Each name is imported on first use, as those of `kubectl_runtime` are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.rim.faults import Faults as Faults
    from kubectl_runtime.apiserver.server import ApiServer as ApiServer
    from kubectl_runtime.testing.clock import SimClock as SimClock
    from kubectl_runtime.testing.simulation import Simulation as Simulation

_MODULES = {"ApiServer": "apiserver.server", "Faults": "apiserver.rim.faults", "SimClock": "testing.clock",
            "Simulation": "testing.simulation"}

__all__ = ["ApiServer", "Faults", "SimClock", "Simulation"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kubectl_runtime.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
