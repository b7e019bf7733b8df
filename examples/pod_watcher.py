"""Prints the changes of Pods from a plain watcher stream, without a controller or a store.

    python examples/pod_watcher.py [--namespace NAMESPACE]      until Ctrl-C
"""
from __future__ import annotations

import argparse
import logging
import sys

from kubectl_runtime import Api, Client, DecodeError, KubeError, StopToken, WatcherConfig, watcher
from kubectl_runtime.resources import Pod
from kubectl_runtime.watch import Apply, Delete, Init, InitApply, InitDone


def describe(pod: Pod) -> str:
    try:
        phase = pod.status.phase if pod.status else "Unknown"
    except DecodeError as error:  # a broken object must not stop the loop
        phase = f"unreadable: {error}"
    return f"{pod.namespace}/{pod.name:<40} {phase}"


def follow(pods: Api[Pod]) -> None:
    """Never returns: the stream recovers from lost connections by itself and logs the reason."""
    for event in watcher(pods, WatcherConfig(), StopToken()):
        match event:
            case Init():
                print("listing", flush=True)
            case InitApply(pod):
                print(f"   {describe(pod)}", flush=True)
            case InitDone():
                print("watching", flush=True)
            case Apply(pod):
                print(f" * {describe(pod)}", flush=True)
            case Delete(pod):
                print(f" - {describe(pod)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namespace", "-n", help="watch only this namespace (default: all)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        with Client.try_default() as client:
            follow(Api.namespaced(client, Pod, args.namespace) if args.namespace else Api.all(client, Pod))
    except KeyboardInterrupt:
        print("stopped")
    except KubeError as error:  # no cluster is configured, or the configuration is invalid
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
