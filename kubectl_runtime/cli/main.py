"""The command line of `kubectl-runtime`.

    kubectl-runtime crd MODULE:CLASS...    CustomResourceDefinitions as YAML on standard output
    kubectl-runtime run MODULE:NAME        an operator, until a signal; --dev: on an API server of its own
    kubectl-runtime codegen FILE...        a typed module for somebody else's definitions, on standard output
    kubectl-runtime rbac MODULE:NAME       the rights that an operator needs, as YAML on standard output
    kubectl-runtime manifests MODULE:NAME --image IMAGE    all that its installation needs, as YAML
    kubectl-runtime init NAME              a new project: an operator, its tests, its image
    kubectl-runtime plan MODULE:NAME       what an operator would do to a cluster, before it does it
    kubectl-runtime perturb BUILD STORY    whether an operator ends alike, whatever goes wrong on its way
    kubectl-runtime top URL                what the controllers of a process do, in a terminal
    kubectl-runtime replay FILE MODULE:NAME    a recorded controller once more, to the run that failed
    kubectl-runtime webhooks MODULE:NAME   the configurations of webhooks, as YAML on standard output
    kubectl-runtime server [OPTIONS]       an embedded API server for tests and demos, until a signal
    kubectl-runtime --version

    exit status   0 done    1 it could not be done; `error: …` on standard error says why    2 the command line is wrong

Each command is a module with `add_options(parser)` and `run(options)`, which returns the exit status or raises a
CommandError. It is imported only when it is the one that was asked for: the server alone costs more than the others.
"""
from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence

from kubectl_runtime.cli.places import CommandError, shown
from kubectl_runtime.core.base.version import VERSION

PROGRAM = "kubectl-runtime"

_COMMANDS = {
    "crd": ("kubectl_runtime.cli.crd", "print the CustomResourceDefinitions of classes, as YAML"),
    "run": ("kubectl_runtime.cli.run", "run an operator, on a cluster or on an API server of its own"),
    "codegen": ("kubectl_runtime.cli.codegen", "print a typed Python module for somebody else's definitions"),
    "rbac": ("kubectl_runtime.cli.rbac", "print the role that an operator needs, as YAML"),
    "manifests": ("kubectl_runtime.cli.manifests", "print all that an operator's installation needs, as YAML"),
    "init": ("kubectl_runtime.cli.init", "write a new project: an operator, its tests, its image"),
    "plan": ("kubectl_runtime.cli.plan", "show what an operator would do to a cluster, before it does it"),
    "perturb": ("kubectl_runtime.cli.perturb", "play a story with crashes, stale reads and missed changes"),
    "top": ("kubectl_runtime.cli.top", "show what the controllers of a process do, in a terminal"),
    "replay": ("kubectl_runtime.cli.replay", "step a recorded controller to the run that failed"),
    "webhooks": ("kubectl_runtime.cli.webhooks", "print the configurations of webhooks, as YAML"),
    "server": ("kubectl_runtime.testing.__main__", "run an embedded Kubernetes API server until a signal"),
}


class Help(argparse.RawDescriptionHelpFormatter):
    """Leaves descriptions and examples as they are written, and names such as `garbage-collector` whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. `arguments` defaults to those of the process. Raises SystemExit as argparse."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(given[0] if given else "").parse_args(given)
    try:
        status: int = options.run(options)
    except CommandError as error:
        print(f"error: {shown(error)}", file=sys.stderr, flush=True)
        return error.status
    return status


def _parser(chosen: str) -> argparse.ArgumentParser:
    """The whole command line, with the options of the `chosen` command only."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Tools for Kubernetes controllers in Python.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (home, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
                                      formatter_class=Help)
        if name == chosen:
            module = importlib.import_module(home)
            module.add_options(command)
            command.set_defaults(run=module.run)
    return parser
