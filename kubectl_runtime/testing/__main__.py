"""``python -m kubectl_runtime.testing``, also ``kubectl-runtime server``: runs an embedded API server until a signal.

The command prints one line, ``ready URL``, when the server accepts requests. The options are named after the flags of
kube-apiserver and kube-controller-manager.
"""

from __future__ import annotations

import argparse
import ipaddress
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.server import DEFAULT_CONTROLLERS, ApiServer
from kubectl_runtime.core.base.threads import MAIN_THREAD_WAIT
from kubectl_runtime.testing.asking import duration, feature_gates, service_address


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command line."""
    parser.add_argument("--port", type=int, default=0, help="the port to serve on (default: a free one)")
    parser.add_argument("--bind-address", default="127.0.0.1", help="the address to serve on (default: 127.0.0.1)")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="where to write a kubeconfig")
    parser.add_argument("--compaction-interval", type=duration, default=300.0, metavar="DURATION",
                        help="time between compactions of the history, 0 for never (default: 5m)")
    parser.add_argument("--controllers", default=",".join(DEFAULT_CONTROLLERS), metavar="NAMES",
                        help="controllers to run, separated by commas, * for all, or none; kubelet runs Pods "
                             f"(default: {','.join(DEFAULT_CONTROLLERS)}; there are {', '.join(CONTROLLERS)})")
    parser.add_argument("--token-auth-file", type=Path, metavar="CSV",
                        help='accepted tokens: a file with lines of token,user,uid,"group1,group2" (default: any)')
    parser.add_argument("--authorization-mode", choices=["AlwaysAllow", "RBAC"], default="AlwaysAllow",
                        help="RBAC enforces the Roles and bindings on the server (default: AlwaysAllow)")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS with a CA created at the start")
    parser.add_argument("--webhook-service", type=service_address, action="append", default=[],
                        metavar="NAMESPACE/NAME=https://HOST:PORT",
                        help="the address of a Service that a webhook configuration names; may be repeated")
    parser.add_argument("--feature-gates", type=feature_gates, default={}, metavar="NAME=true,...",
                        help="alpha features to turn on: ShardedListAndWatch (default: off)")
    parser.add_argument("--load", type=Path, action="append", default=[], metavar="PATH",
                        help="a manifest, or a folder of manifests, to load at the start; may be repeated")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse `arguments` (`sys.argv[1:]` by default), call `run` and return its exit status. Raises SystemExit like
    argparse."""
    parser = argparse.ArgumentParser(prog="python -m kubectl_runtime.testing", description=(
        "An embedded Kubernetes API server for tests and demos; it runs until a signal."))
    add_options(parser)
    return run(parser.parse_args(arguments))


def _failed(error: Exception | str) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 1


def _reach(options: argparse.Namespace) -> str:
    """The warning for a server that other hosts may reach; empty for a loopback address."""
    host = options.bind_address
    try:
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return ""
    except ValueError:
        pass  # the host is a name, not an address
    who = ("every client is an administrator; --token-auth-file with --authorization-mode RBAC says who may do "
           "what")
    if options.token_auth_file is not None:
        who = "its tokens pass the network unencrypted; --tls encrypts them"
    if options.token_auth_file is not None and options.tls:
        who = "it is made for tests and not hardened against attacks"
    return f"the server listens at {host}, which other hosts may reach: {who}"


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status. Blocks. Only the main thread may call it."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        # `put` takes no lock, so it may interrupt the main thread's wait below.
        signal.signal(number, lambda received, _: signals.put(received))
    try:
        server = ApiServer(port=options.port, host=options.bind_address, controllers=options.controllers.split(","),
                           compaction_interval=options.compaction_interval, tokens=options.token_auth_file,
                           authorization_mode=options.authorization_mode, tls=options.tls,
                           webhook_services=dict(options.webhook_service), record=False,
                           feature_gates=options.feature_gates)
        for path in options.load:
            server.load(path)
    except (OSError, ValueError, ImportError) as error:
        return _failed(error)
    try:
        server.start()
    except OSError as error:
        return _failed(f"{error.strerror or error}; --port gives the API server another port, and --port 0 takes a "
                       "free one")
    try:
        if options.kubeconfig:
            server.write_kubeconfig(options.kubeconfig)
        if options.kubeconfig and server.access.knows_tokens and not options.tls:
            print("note: kubectl sends no credentials over plain HTTP; serve HTTPS with --tls for it", file=sys.stderr)
        if problem := _reach(options):
            print(f"warning: {problem}", file=sys.stderr)
        print(f"ready {server.url}", flush=True)
        while True:  # in short waits, so that a signal that arrives just before a wait is handled
            try:
                signals.get(timeout=MAIN_THREAD_WAIT)
                break
            except Empty:
                pass
    except OSError as error:
        return _failed(error)
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
