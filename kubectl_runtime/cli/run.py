"""`kubectl-runtime run MODULE:NAME`: an operator from the command line. See `run_options` for what can be said.

    without --dev   this process is the operator      operator.py
    with --dev      this process is an API server, and the operator one below it that comes and goes      dev/

Either is imported only where it is needed: the client and the controller, and the API server, take half a second each.
"""
from __future__ import annotations

import argparse

from kubectl_runtime.cli.run_options import RunOptions, checked
from kubectl_runtime.cli.run_options import add_options as add_options  # noqa: PLC0414 - main looks for it here


def run(given: argparse.Namespace) -> int:
    """Run the operator until a signal; the exit status. Blocks; for the main thread. Raises CommandError."""
    options = checked(RunOptions.of(given))
    if options.dev:
        from kubectl_runtime.cli.develop import develop

        return develop(options)
    from kubectl_runtime.cli.operator import run_operator

    return run_operator(options)
