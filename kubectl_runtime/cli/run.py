"""`kubectl-runtime run MODULE:NAME`: runs an operator. `run_options` has the command line.

Without --dev this process is the operator (`operator`). With --dev this process is an API server with the operator in a
child process (`develop`). Each module is imported only where it is needed, because each import takes half a second.
"""
from __future__ import annotations

import argparse

from kubectl_runtime.cli.run_options import RunOptions, checked
from kubectl_runtime.cli.run_options import add_options as add_options  # noqa: PLC0414 - main looks for it here


def run(given: argparse.Namespace) -> int:
    """Run the operator until a signal and return the exit status. Blocks; only for the main thread. Raises
    CommandError."""
    options = checked(RunOptions.of(given))
    if options.dev:
        from kubectl_runtime.cli.develop import develop

        return develop(options)
    from kubectl_runtime.cli.operator import run_operator

    return run_operator(options)
