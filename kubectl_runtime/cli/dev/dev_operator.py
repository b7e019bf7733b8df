"""The operator below `run --dev`, started by `develop` as `python -m kubectl_runtime.cli.dev.dev_operator FD`.

    FD     a pipe: one line that says what to run, then nothing until the other end closes, which ends this process: an
           operator without its API server would only complain

Before the program's function is called, the definitions of its custom resources are installed.
"""
from __future__ import annotations

import os
import signal
import sys
import threading
import time

import msgspec

from kubectl_runtime.cli.dev.kinds import install_kinds, loaded_kinds
from kubectl_runtime.cli.dev.order import Order
from kubectl_runtime.cli.log_setup import set_up_logs
from kubectl_runtime.cli.operator import operate
from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.runtime.manager.manager import Manager

PATIENCE = 5.0
"""Seconds for an end in good order when the API server's process is gone."""


def main(file: int) -> int:
    """Run what the pipe says; the exit status."""
    order = msgspec.json.decode(_line(file), type=Order)
    threading.Thread(target=_end_with_parent, args=(file,), name="end with the API server", daemon=True).start()
    options = order.options
    set_up_logs(options.log_format or "short", options.log_level, options.program.module.partition(".")[0])
    try:
        operate(options, serve=order.serve, prepare=_install, announce=_announce)
    except (CommandError, KubeError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _install(client: Client) -> None:
    kinds = loaded_kinds()
    install_kinds(client, kinds)
    for kind in dict.fromkeys(kind.api_resource.full_name for kind in kinds):
        print(f"installed {kind}: kubectl get {kind} --all-namespaces", flush=True)


def _announce(manager: Manager) -> None:
    if manager.serve is not None:
        host, _, port = manager.serve.rpartition(":")
        print(f"serves http://{host or '127.0.0.1'}:{port}/readyz, /healthz and /metrics", flush=True)


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
