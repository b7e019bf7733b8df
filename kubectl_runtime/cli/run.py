"""`kubectl-runtime run MODULE:NAME`: runs an operator. `run_options` defines its command line.

Without --dev this process is the operator (module `operator`). With --dev this process is an API server, and the
operator is a child process (module `develop`). Each of the two modules is imported only when it is needed, because its
import takes half a second.
"""
from __future__ import annotations

import argparse

from kubectl_runtime.cli.run_options import RunOptions, checked
from kubectl_runtime.cli.run_options import add_options as add_options  # noqa: PLC0414 - main looks for it here


def run(given: argparse.Namespace) -> int:
    """Run the operator until a signal and return the exit status. Blocks. Only the main thread may call it. Raises
    CommandError."""
    options = checked(RunOptions.of(given))
    if options.dev:
        from kubectl_runtime.cli.develop import develop

        return develop(options)
    from kubectl_runtime.cli.operator import run_operator

    return run_operator(options)
