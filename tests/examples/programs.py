"""Programs as a person runs them: their lines are read as they come, and nothing waits longer than `LIMIT`."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 120
"""Real seconds after which a program is hanging; it is killed then, which the reader notices as the end of its output.
"""


PLUGIN = ["-p", "no:kubectl_runtime",  # by an entry point, in an environment from before version 0.3
          "-p", "kubectl_runtime.testing.pytest_plugin"]
"""Options by which a pytest of its own has the package's fixtures, where no conftest.py names the plugin."""


class Program:
    """A Python program. A context manager: it does not outlive the block."""

    def __init__(self, *arguments: str | Path, env: Mapping[str, str | Path] | None = None, cwd: Path = ROOT) -> None:
        """Standard error goes where standard output goes.

        `env` is added to an environment in which no cluster is configured.
        """
        self.lines: list[str] = []
        # what is ignored here would be ignored by the child
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd,
                env=environment(env))
        finally:
            signal.signal(signal.SIGINT, before)
        self._limit = threading.Timer(LIMIT, self._process.kill)
        self._limit.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def until(self, part: str) -> str:
        """Read lines up to the first that contains `part`; returns it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if part in line:
                return self.lines[-1]
        raise AssertionError(f"{part!r} was never printed:\n{self.text}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Read the rest; the exit status."""
        assert self._process.stdout is not None
        self.lines += self._process.stdout.read().splitlines()
        return self._process.wait(LIMIT)

    @property
    def text(self) -> str:
        """What it has printed."""
        return "\n".join(self.lines)


def environment(more: Mapping[str, str | Path] | None = None) -> dict[str, str]:
    """This process's environment without a cluster, with the package and with `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
    added = {"KUBECONFIG": os.devnull, "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": "1", **(more or {})}
    return kept | {name: str(value) for name, value in added.items()}


def blocks(document: Path, language: str) -> Sequence[str]:
    """The code blocks of a Markdown document."""
    parts = document.read_text(encoding="utf-8").split("\n```")
    return [part.partition("\n")[2] + "\n" for part in parts[1::2] if part.partition("\n")[0] == language]
