"""`kubectl-runtime plan MODULE:NAME`: shows what an operator would do to a cluster, without doing it.

The cluster is only read. The operator runs in a simulated copy of it, on simulated time.
"""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kubectl_runtime.cli.operator import config_of
from kubectl_runtime.cli.places import CommandError, Place, UsageError, hint, imported, place
from kubectl_runtime.cli.places import users_traceback as traceback_of
from kubectl_runtime.cli.program import made_by, program_in
from kubectl_runtime.cli.run_options import RunOptions
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.plan.program import threads_jailed
from kubectl_runtime.plan.report import Plan
from kubectl_runtime.plan.running import plan
from kubectl_runtime.plan.snapshot import Snapshot
from kubectl_runtime.plan.stored import SnapshotError
from kubectl_runtime.testing.asking import duration

T = TypeVar("T")

WITHOUT_A_CLUSTER = ("--kubeconfig FILE also names a kubeconfig; `kubectl-runtime run MODULE:NAME --dev` writes one "
                     "for its own server to .kubectl-runtime/kubeconfig. Without a cluster, --snapshot FILE plans "
                     "against a file that an earlier plan wrote with --save.")

EPILOG = """\
examples:
  kubectl-runtime plan operator_of_mine:main                       against the cluster of your kubeconfig
  kubectl-runtime plan operator_of_mine:main --save today.json.gz  the same, and saves what was read
  kubectl-runtime plan operator_of_mine:main --snapshot today.json.gz --exit-code    in a test of a pull request

The command needs permission to list what the operator watches, namespaces, quotas, limits, admission policies and
CustomResourceDefinitions; it names missing permissions. Values of Secrets are never saved: digests of the same length
replace them.

exit status: 0 when the plan was made; 1 when it could not be made; 2 when the command line is wrong. With --exit-code,
2 means that the plan is not empty, and a wrong command line gives 1.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("program", type=place, metavar="MODULE:NAME", help="a function that takes a client and returns "
                        "a Manager or Controller(...).bind(reconciler), as for `kubectl-runtime run`")
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig to use (default: $KUBECONFIG, "
                         "~/.kube/config, else the Pod's own account)")
    cluster.add_argument("--context", metavar="NAME", help="the kubeconfig's context (default: its current one)")
    cluster.add_argument("-n", "--namespace", action="append", default=[], metavar="NAMESPACE",
                         help="read only this namespace; may be repeated (default: where the operator watches)")
    cluster.add_argument("--kind", action="append", default=[], metavar="KIND", help="also read this kind, such as "
                         "services or widgets.example.com; may be repeated")
    cluster.add_argument("--redact", action="append", default=[], metavar="KIND:PATH", help="replace the values of "
                         "this field with digests, such as ConfigMap:data; Secrets are always redacted; may be "
                         "repeated")
    source = cluster.add_mutually_exclusive_group()
    source.add_argument("--snapshot", type=Path, metavar="FILE", help="plan against this saved snapshot "
                        "instead of a cluster")
    source.add_argument("--save", type=Path, metavar="FILE", help="save what was read; a name in .gz compresses it")
    running = parser.add_argument_group("the plan")
    running.add_argument("--change", action="append", default=[], type=Path, metavar="FILE", help="manifests that are "
                         "applied to the copy before the operator starts; may be repeated")
    running.add_argument("--until", type=duration, metavar="DURATION", help="how long the operator runs, in simulated "
                         "time, such as 1h (default: until nothing has changed for 10m, at most 1h)")
    running.add_argument("--outside", type=place, metavar="MODULE:NAME", help="a function without arguments that "
                         "replaces what the operator reaches besides the cluster (refused otherwise); it may "
                         "return a context manager")
    running.add_argument("-o", "--output", choices=["text", "json"], default="text", help="(default: text)")
    running.add_argument("--html", type=Path, metavar="FILE", help="also write the plan as one HTML page")
    running.add_argument("--exit-code", action="store_true", help="exit with 2 when the plan is not empty")


def run(options: argparse.Namespace) -> int:
    """Read the cluster, plan and print; return the exit status. Blocks. Raises CommandError."""
    _check(options)
    with threads_jailed():
        function = program_in(imported(options.program.module), options.program)

    def build(client: Client) -> Any:
        return made_by(function, client, options.program)

    outside = None if options.outside is None else _function(options.outside)
    try:
        found = plan(build, _snapshot(options, build), change=options.change, until=options.until, outside=outside)
    except CommandError:
        raise
    except SnapshotError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename in {str(path) for path in options.change}:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        users = traceback_of(error)
        told = f"\n{users}" if "\n  File" in users else ""
        raise CommandError(f"{str(error) or type(error).__name__}{told}") from error
    _print(found, options.output)
    if options.html is not None:
        _on_file(options.html, lambda path: _write(path, found.to_html()))
    return 2 if options.exit_code and not found.empty else 0


def _check(options: argparse.Namespace) -> None:
    if options.snapshot is None:
        return
    for flag, said in (("--kubeconfig", options.kubeconfig), ("--context", options.context), ("-n", options.namespace),
                       ("--kind", options.kind), ("--redact", options.redact)):
        if said:
            raise UsageError(f"{flag} is for reading a cluster, and --snapshot reads none: leave one of them out")


def _snapshot(options: argparse.Namespace, build: Callable[[Client], Any]) -> Snapshot:
    if options.snapshot is not None:
        return _on_file(options.snapshot, Snapshot.load)
    config = config_of(RunOptions(options.program, kubeconfig=options.kubeconfig, context=options.context,
                                  namespace=options.namespace[0] if options.namespace else None), WITHOUT_A_CLUSTER)
    with Client(config) as client:
        try:
            kinds = [client.discovery.resolve(name).resource for name in options.kind]
            found = Snapshot.read(client, build, kinds=kinds, namespaces=options.namespace or None,
                                  redact=options.redact)
        except RequestError as error:
            raise UsageError(str(error)) from None
    if options.save is not None:
        _on_file(options.save, found.save)
    return found


def _function(named: Place) -> Callable[[], Any]:
    module = imported(named.module)
    found: Any = getattr(module, named.name, None)
    if not callable(found):
        functions = [name for name, value in vars(module).items() if callable(value)]
        raise UsageError(f"{named.module} has no function {named.name}{hint(named.name, functions, 'functions')}")
    return found  # type: ignore[no-any-return]


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _on_file(path: Path, function: Callable[[Path], T]) -> T:
    """Return `function(path)`. Raises CommandError, without a traceback, for an OSError."""
    try:
        return function(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def _print(found: Plan, form: str) -> None:
    if form == "json":
        import json

        json.dump(found.to_dict(), sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        print(found)
