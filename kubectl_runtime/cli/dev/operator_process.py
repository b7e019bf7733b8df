"""`OperatorProcess`: the operator below `run --dev`, one life of it at a time."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

AT_ONCE = 2.0
"""Seconds for the end at once that a second SIGTERM asks for, before SIGKILL."""


class OperatorProcess:
    """The operator below `run --dev`, in a process of its own that comes and goes. For one thread. As a context manager
    it does not outlive the block, nor, by its pipe, this process."""

    def __init__(self, order: bytes, kubeconfig: Path) -> None:
        """`order`: what to run, see `dev_operator`. `kubeconfig`: for whatever in it makes a client of its own."""
        self._order = order
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
        self._environment = {**kept, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def start(self) -> None:
        """Begin a life, after the end of the one before. Raises OSError."""
        theirs, ours = os.pipe()
        try:
            # -P: a file of the current folder that is called as a module of Python is not to be imported by us.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kubectl_runtime.cli.dev.dev_operator", str(theirs)], pass_fds=[theirs],
                env=self._environment)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._pipe = ours
        with contextlib.suppress(BrokenPipeError):  # it has ended already, as its status will say
            os.write(ours, self._order + b"\n")

    def status(self) -> int | None:
        """How it ended, 128 + n for a signal n; None while it runs, and before the first start."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        return 128 - status if status < 0 else status

    def tell(self) -> None:
        """Ask for an end in good order. Does not block."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self, patience: float) -> None:
        """End it in good order; at once after `patience` seconds. Blocks until it has ended."""
        for seconds in (patience, AT_ONCE):
            if self._process is None or self._process.poll() is not None:
                break
            self.tell()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        self.kill()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(AT_ONCE)
