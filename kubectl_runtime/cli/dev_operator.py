"""The operator process of `run --dev`, started by `develop` as `python -m kubectl_runtime.cli.dev_operator FD`.

FD is a pipe that carries one line, the `Order`. When the parent process closes the pipe, this process ends, because an
operator without its API server would only log errors. The program's CustomResourceDefinitions are installed before the
program's function is called.
"""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial

from kubectl_runtime.cli.operator import run_operator
from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.run_options import Order, RunOptions
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.crd.customresource import CustomResource, definitions_of
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.runtime.observe.debug import DebugPage
from kubectl_runtime.schema.structural import declares_rules

MANAGER = "kubectl-runtime"
"""The field manager that installs the CustomResourceDefinitions."""


def loaded_kinds() -> list[type[CustomResource]]:
    """Return every custom resource class imported so far, sorted by CRD name; versions of one kind in order of
    creation."""
    return sorted(_below(CustomResource), key=lambda kind: kind.crd_name())


def install_kinds(client: Client, kinds: list[type[CustomResource]]) -> list[str]:
    """Install the CustomResourceDefinitions of these classes and return their names. Blocks until the kinds are served.

    Several versions of one kind share one definition (`definitions_of`). An existing definition is replaced, even by an
    older one, since the server belongs to the program. Raises CommandError for classes whose definition cannot be made,
    and for a change that the server refuses, for example the removal of a version in which objects may be stored.
    Raises MissingExtra if a definition has CEL rules and the extra `cel` is not installed, since the server cannot
    evaluate the rules without it. Raises KubeError like `apply_crd`.
    """
    try:
        definitions = definitions_of(kinds)
    except (TypeError, ValueError) as error:
        places = ", ".join(f"{kind.__module__}:{kind.__qualname__}" for kind in kinds)
        raise CommandError(f"the definitions of {places} cannot be made: {error}") from None
    if any(declares_rules(version["schema"]["openAPIV3Schema"]) for definition in definitions
           for version in definition["spec"]["versions"]):
        from kubectl_runtime.schema.cel import engine

        engine()
    names = [definition["metadata"]["name"] for definition in definitions]
    for name, definition in zip(names, definitions, strict=True):
        try:
            apply_crd(client, definition, field_manager=MANAGER, force=True, allow_downgrade=True)
        except ApiError as error:
            raise CommandError(f"the server's {name} cannot be changed to the program's present definition: {error}\n"
                               "Stop with Ctrl-C and start again to begin with an empty server") from None
    return names


def _below(base: type[CustomResource]) -> Iterator[type[CustomResource]]:
    for kind in base.__subclasses__():
        if "api_resource" in vars(kind):
            yield kind
        yield from _below(kind)


PATIENCE = 5.0
"""Seconds for a graceful stop after the API server's process has ended."""


def main(file: int) -> int:
    """Run the order that the pipe carries and return the exit status."""
    order = decoded(_line(file), Order)
    options = order.options
    Thread(target=_end_with_parent, args=(file, options.kubeconfig), name="end with the API server",
           daemon=True).start()
    return run_operator(options, form="short", serve=order.serve, debug=DebugPage(details=True), prepare=_install,
                        announce=partial(_announce, options))


def _install(client: Client) -> None:
    kinds = loaded_kinds()
    install_kinds(client, kinds)
    for kind in dict.fromkeys(kind.api_resource.full_name for kind in kinds):
        print(f"installed {kind}: kubectl get {kind} --all-namespaces", flush=True)


class _Announcement:
    """Prints the addresses of health, metrics and the status page, and which webhooks the API server cannot reach. It
    is added to the manager as its last server, so that it prints only after all other servers listen."""

    name = "the announcement of addresses"

    def __init__(self, manager: Manager, options: RunOptions) -> None:
        self._manager, self._options = manager, options

    def start(self) -> None:
        """Print the addresses and the warnings."""
        if self._manager.serve is not None:
            host = self._manager.serve.rpartition(":")[0] or "127.0.0.1"
            url = f"http://{host}:{self._manager._running.port}"
            print(f"serves {url}/readyz, /healthz{' and /metrics' if self._options.metrics else ''}", flush=True)
            if self._manager.debug is not None:
                print(f"shows what it does: {url}/debug, or kubectl-runtime top {url}", flush=True)
        known = dict(self._options.webhook_service)
        for server in self._manager.servers:
            service = getattr(server, "service", None)  # only a WebhookServer has a Service
            if service and service not in known and getattr(server, "url", None) is None:
                print(f"warning: the API server cannot call the webhooks of the Service {service}, whose address is "
                      f"unknown: add --webhook-service {service}=https://127.0.0.1:{getattr(server, 'port', 9443)}",
                      flush=True)

    def stop(self, _timeout: float) -> None:
        """There is nothing to stop."""


def _announce(options: RunOptions, manager: Manager) -> None:
    manager.add_server(_Announcement(manager, options))


def _line(file: int) -> bytes:
    """Read one line and no byte beyond it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(file, 1)
        if not byte:
            raise SystemExit("kubectl-runtime run --dev starts this module; it is not a command of its own")
        line += byte
    return line


def _end_with_parent(file: int, kubeconfig: str | None) -> None:
    """Wait until the parent process has ended. Remove the operator's kubeconfig, which a killed parent process leaves
    behind, and end this process."""
    while os.read(file, 1):
        pass
    if kubeconfig:
        with contextlib.suppress(OSError):
            os.unlink(kubeconfig)
            os.rmdir(os.path.dirname(kubeconfig))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
