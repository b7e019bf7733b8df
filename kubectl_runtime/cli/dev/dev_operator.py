"""The operator below `run --dev`, started by `develop` as `python -m kubectl_runtime.cli.dev.dev_operator FD`.

    FD     a pipe: one line that says what to run, then nothing until the other end closes, which ends this process: an
           operator without its API server would only complain

Before the program's function is called, the definitions of its custom resources are installed.
"""
from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial

from kubectl_runtime.cli.dev.kinds import install_kinds, loaded_kinds
from kubectl_runtime.cli.dev.order import Order
from kubectl_runtime.cli.operator import run_operator
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.manager.manager import Manager
from kubectl_runtime.runtime.observe.debug_page import DebugPage

PATIENCE = 5.0
"""Seconds for an end in good order when the API server's process is gone."""


def main(file: int) -> int:
    """Run what the pipe says; the exit status."""
    order = decoded(_line(file), Order)
    Thread(target=_end_with_parent, args=(file,), name="end with the API server", daemon=True).start()
    options = order.options
    return run_operator(options, form="short", serve=order.serve, debug=DebugPage(details=True), prepare=_install,
                        announce=partial(_announce, " and /metrics" if options.metrics else ""))


def _install(client: Client) -> None:
    kinds = loaded_kinds()
    install_kinds(client, kinds)
    for kind in dict.fromkeys(kind.api_resource.full_name for kind in kinds):
        print(f"installed {kind}: kubectl get {kind} --all-namespaces", flush=True)


def _announce(metrics: str, manager: Manager) -> None:
    if manager.serve is not None:
        host, _, port = manager.serve.rpartition(":")
        url = f"http://{host or '127.0.0.1'}:{port}"
        print(f"serves {url}/readyz, /healthz{metrics}", flush=True)
        if manager.debug is not None:
            print(f"what it does at this moment: {url}/debug, or kubectl-runtime top {url}", flush=True)


def _line(file: int) -> bytes:
    """One line, and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(file, 1)
        if not byte:
            raise SystemExit("this is the lower half of kubectl-runtime run --dev, and no command of its own")
        line += byte
    return line


def _end_with_parent(file: int) -> None:
    while os.read(file, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
