#!/usr/bin/env python3
"""Writes the API reference from the docstrings, as HTML:

    tox run -e reference            into .tox/reference; fails at the first warning

One page for the facade, one for each module named by topic, and one with the tables of the state machines, which are
the docstrings of their modules. Needs pdoc.
"""
from __future__ import annotations

import argparse
import ast
import importlib
import sys
import tempfile
import warnings
from pathlib import Path

from kubectl_runtime.facade import TOPICS

PACKAGE = Path(__file__).parents[2] / "kubectl_runtime"

PAGES = ("kubectl_runtime", *(f"kubectl_runtime.{topic}" for topic in TOPICS), "kubectl_runtime.testing.pytest_plugin",
         "kubectl_runtime.runtime.triggers.predicates", "kubectl_runtime.runtime.conditions",
         "kubectl_runtime.runtime.status", "kubectl_runtime.runtime.logs",
         "kubectl_runtime.crd.schema", "kubectl_runtime.crd.marks")
MACHINES = {
    "The watcher": "runtime/watch/machine.py",
    "The watcher's list": "runtime/watch/machine.py",
    "The pause after a watch's failure": "runtime/watch/backoff.py",
    "The scheduler": "runtime/queue/scheduler.py",
    "The queue": "runtime/queue/work_queue.py",
    "Failures of keys": "runtime/queue/runs.py",
    "The rate limit of retries": "runtime/queue/runs.py",
    "What a key may ask for in a row": "runtime/queue/runs.py",
    "The lease": "manager/lease_machine.py",
    "The shards": "manager/shard_machine.py",
    "Retries of a call": "client/http/retry.py",
}
"""Heading and module of each table, in the order of the page."""
TABLES = "state_machines"
"""The name of their page."""


def tables() -> str:
    """A module whose docstring is the tables."""
    parts = ["Decisions as tables: state and input to what comes out and the next state. Each is the docstring of the "
             "module that makes the decision, and a test of that module goes through it."]
    for heading, path in MACHINES.items():
        text = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8")))
        if text is None:
            raise ValueError(f"{path} has no docstring")
        parts.append(f"# {heading}\n\n`kubectl_runtime/{path}`\n\n{text}")
    return repr("\n\n".join(parts)) + "\n"


def prepare() -> None:
    """What pdoc does not do by itself: see names that are imported on first use, and show with a class what it has from
    bases that have no page of their own (`Controller.owns`, say), and not a bare list of links to nowhere."""
    import pdoc.doc

    for page in PAGES:
        module = importlib.import_module(page)
        vars(module).update({name: getattr(module, name) for name in getattr(module, "__all__", ())})

    def members(cls: pdoc.doc.Class) -> list[pdoc.doc.Doc[object]]:
        return [member for member in cls.members.values() if member.taken_from[0].startswith("kubectl_runtime")]

    pdoc.doc.Class.own_members = property(members)  # type: ignore[assignment]


def main() -> int:
    """Write it; its place is the first argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pages go")
    folder = parser.parse_args().folder
    import pdoc
    import pdoc.render

    prepare()
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text="kubectl_runtime")
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("error")
        Path(place, f"{TABLES}.py").write_text(tables(), encoding="utf-8")
        sys.path.insert(0, place)
        pdoc.pdoc(*PAGES, TABLES, output_directory=folder)
    print(f"wrote {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
