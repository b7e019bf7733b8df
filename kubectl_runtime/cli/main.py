"""The command line of `kubectl-runtime`; `kubectl-runtime --help` lists the commands.

Each command is a module with `add_options(parser)` and `run(options)`, which returns the exit status or raises a
CommandError. Only the chosen command is imported, because `server` alone imports more than all other commands together.

Exit status: 0 success; 1 failure, with `error: …` on standard error; 2 a wrong command line. With `--exit-code`, 2
means that a plan is not empty, and a wrong command line gives 1.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Sequence

from kubectl_runtime.cli.places import CommandError, UsageError, shown
from kubectl_runtime.core.base.version import VERSION

PROGRAM = "kubectl-runtime"

_COMMANDS = {
    "crd": ("kubectl_runtime.cli.crd", "print the CustomResourceDefinitions of classes, as YAML"),
    "run": ("kubectl_runtime.cli.run", "run an operator, on a cluster or on an API server of its own"),
    "codegen": ("kubectl_runtime.cli.codegen", "print a typed Python module for third-party CRDs"),
    "rbac": ("kubectl_runtime.cli.rbac", "print the RBAC manifests that an operator needs, as YAML"),
    "manifests": ("kubectl_runtime.cli.manifests", "print the manifests that install an operator, as YAML"),
    "init": ("kubectl_runtime.cli.init", "write a new project: an operator, its tests, its image"),
    "plan": ("kubectl_runtime.cli.plan", "show what an operator would do to a cluster, before it does it"),
    "perturb": ("kubectl_runtime.cli.perturb", "check controllers with crashes, stale reads and missed changes"),
    "top": ("kubectl_runtime.cli.top", "show what the controllers of a process do, in a terminal"),
    "replay": ("kubectl_runtime.cli.replay", "replay a recorded controller up to the run that failed"),
    "webhooks": ("kubectl_runtime.cli.webhooks", "print webhook configurations, as YAML"),
    "server": ("kubectl_runtime.testing.__main__", "run an embedded Kubernetes API server until a signal"),
}


class Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps the layout of descriptions and examples, and does not break lines at hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments` (default: `sys.argv[1:]`), and return its exit status. Raises SystemExit like
    argparse."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    wrong = 1 if any(len(text) > 2 and "--exit-code".startswith(text) for text in given) else 2
    try:
        options = _parser(given[0] if given else "").parse_args(given)
    except SystemExit as ended:
        if ended.code:
            ended.code = wrong
        raise
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"error: {shown(error)}", file=sys.stderr, flush=True)
        return wrong if isinstance(error, UsageError) else error.status
    except BrokenPipeError:  # the program that reads the output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail
        return 1
    return status


def complete(arguments: Sequence[str] | None = None) -> int:
    """The command `kubectl_complete-runtime`, which kubectl runs for `kubectl runtime ...<TAB>`. It prints the
    completions of the last argument, then `:4`. Without completions it prints `:0`, so that the shell completes file
    names. Returns 0."""
    *before, last = (sys.argv[1:] if arguments is None else list(arguments)) or [""]
    found: dict[str, str] = {}
    if not before:
        found = {name: summary for name, (_, summary) in _COMMANDS.items()}
    elif last.startswith("-"):
        page = io.StringIO()
        with contextlib.redirect_stdout(page), contextlib.redirect_stderr(page), contextlib.suppress(SystemExit):
            main([before[0], "--help"])
        found = dict.fromkeys(re.findall(r"^  (?:-\w, )?(--[\w-]+)", page.getvalue(), re.MULTILINE), "")
    for name, summary in found.items():
        if name.startswith(last):
            print(f"{name}\t{summary}" if summary else name)
    print(":4" if found else ":0")
    return 0


def _parser(chosen: str) -> argparse.ArgumentParser:
    """A parser that knows all commands, but only the `chosen` command's options."""
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
