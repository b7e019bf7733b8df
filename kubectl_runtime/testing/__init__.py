"""Test tools: the users' door to the embedded API server (`kubectl_runtime.apiserver`), and what simulates around it.

====================================  ================================================================================
``clock``, ``executor``,              simulation: controllers and server in one thread, on simulated time,
``simulation``                        reproducible by a seed
``perturbation``                      a controller again and again, each time with something going wrong
``recordings``                        a recording of a controller, stepped again
``request_verifier``,                 unit tests without a server: expected calls, and a context for a reconciler
``expected_request``,
``unit_context``
``asking``                            `eventually`: asks until it is so, and tells what was last seen
``pytest_plugin``, ``__main__``       the fixtures; ``python -m kubectl_runtime.testing``
====================================  ================================================================================

Each name is imported on first use, as those of `kubectl_runtime` are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer as ApiServer
    from kubectl_runtime.apiserver.transport.faults import Faults as Faults
    from kubectl_runtime.testing.asking import eventually as eventually
    from kubectl_runtime.testing.clock import SimClock as SimClock
    from kubectl_runtime.testing.lab.perturb import Divergence as Divergence
    from kubectl_runtime.testing.lab.perturb import Report as Report
    from kubectl_runtime.testing.lab.perturb import perturb as perturb
    from kubectl_runtime.testing.lab.recordings import RecordingError as RecordingError
    from kubectl_runtime.testing.lab.replay import Replayed as Replayed
    from kubectl_runtime.testing.lab.replay import replay as replay
    from kubectl_runtime.testing.lab.world import CRASH as CRASH
    from kubectl_runtime.testing.lab.world import MISSED as MISSED
    from kubectl_runtime.testing.lab.world import STALE as STALE
    from kubectl_runtime.testing.lab.world import Fault as Fault
    from kubectl_runtime.testing.request_verifier import RequestVerifier as RequestVerifier
    from kubectl_runtime.testing.simulation import Simulation as Simulation
    from kubectl_runtime.testing.unit_context import context_for as context_for

_MODULES = {"ApiServer": "apiserver.server", "Faults": "apiserver.transport.faults", "SimClock": "testing.clock",
            "Simulation": "testing.simulation", "perturb": "testing.lab.perturb",
            "Report": "testing.lab.perturb", "Divergence": "testing.lab.perturb",
            "Fault": "testing.lab.world", "CRASH": "testing.lab.world",
            "STALE": "testing.lab.world", "MISSED": "testing.lab.world",
            "replay": "testing.lab.replay", "Replayed": "testing.lab.replay",
            "RecordingError": "testing.lab.recordings",
            "RequestVerifier": "testing.request_verifier", "context_for": "testing.unit_context",
            "eventually": "testing.asking"}

__all__ = ["CRASH", "MISSED", "STALE", "ApiServer", "Divergence", "Fault", "Faults", "RecordingError", "Replayed",
           "Report", "RequestVerifier", "SimClock", "Simulation", "context_for", "eventually", "perturb", "replay"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kubectl_runtime.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
