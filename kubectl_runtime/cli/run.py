"""`kubectl-runtime run MODULE:NAME`: an operator from the command line. See `run_options` for what can be said.

    without --dev   this process is the operator      operator.py
    with --dev      this process is an API server, and the operator one below it that comes and goes      dev/

Either is imported only where it is needed: the client and the controller, and the API server, take half a second each.
"""
from __future__ import annotations

import argparse
import signal
import sys

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.run_options import RunOptions, checked
from kubectl_runtime.cli.run_options import add_options as add_options  # noqa: PLC0414 - main looks for it here
from kubectl_runtime.core.base.errors import KubeError


def run(given: argparse.Namespace) -> int:
    """Run until a signal; the exit status. Blocks; for the main thread."""
    try:
        options = checked(RunOptions.of(given))
        if options.dev:
            from kubectl_runtime.cli.dev.develop import develop

            return develop(options)
        from kubectl_runtime.cli.log_setup import set_up_logs
        from kubectl_runtime.cli.operator import operate

        set_up_logs(options.log_format or "text", options.log_level, options.program.module.partition(".")[0])
        operate(options)
    except (CommandError, KubeError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:  # before the operator has taken over the signals
        return 128 + signal.SIGINT
    return 0
