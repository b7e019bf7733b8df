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
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
