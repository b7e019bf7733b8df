"""Test tools: simulations on the embedded API server (`kubectl_runtime.apiserver`), and helpers for unit tests.

- ``clock``, ``simulation``: controllers and server in one thread, on simulated time, reproducible by a seed
- ``lab``: ``perturb`` runs a controller with injected faults; ``replay`` runs a recording again
- ``request_verifier``, ``unit_context``: unit tests without a server, with expected calls and a reconciler's context
- ``asking``: ``eventually`` calls a function until its result is accepted, and reports the last result
- ``cluster``, ``pytest_plugin``: the pytest fixtures
- ``__main__``: the command ``kubectl-runtime server``

Each name is imported on first use, like the names in `kubectl_runtime`.
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
