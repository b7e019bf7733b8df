"""The controller of configmapgen_controller.py in several replicas: one replica works, the others stand by.

    python examples/configmapgen_controller.py --crd | kubectl apply --server-side -f -    once, before the next command
    python examples/elected_replicas.py & python examples/elected_replicas.py &            then stop the first

A Lease decides which replica works. The others fill their stores and wait. One of them starts to work when the Lease is
released or has expired. `kubectl get lease configmapgen -o yaml` shows the holder.
"""
from __future__ import annotations

import argparse
import logging
import sys

from configmapgen_controller import Generate, controller

from kubectl_runtime import Client, KubeError, LeaderElection, Manager
from kubectl_runtime.errors import LeadershipLost


def manager(client: Client, election: LeaderElection) -> Manager:
    """Everything this process runs. Reconcilers write through `ctx.client`, which checks the Lease."""
    return Manager(client, leader=election, serve=None).add(controller(client), Generate())


def operator(client: Client) -> Manager:
    """What `kubectl-runtime run elected_replicas:operator` runs."""
    return manager(client, LeaderElection("configmapgen"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="configmapgen", help="name of the Lease")
    parser.add_argument("--namespace", help="its namespace (default: the kubeconfig's or the Pod's)")
    parser.add_argument("--lease", type=int, default=15, help="seconds until a dead holder loses the Lease")
    parser.add_argument("--renew-deadline", type=float, default=10, help="seconds without renewal until it stops")
    parser.add_argument("--retry", type=float, default=2, help="seconds between renewals")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    try:
        election = LeaderElection(args.name, args.namespace, lease=args.lease, renew_deadline=args.renew_deadline,
                                  retry=args.retry)
        with Client.try_default() as client:
            manager(client, election).run()
    except LeadershipLost as error:  # Kubernetes restarts the Pod, which then stands by
        print(error, file=sys.stderr)
        return 2
    except KubeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
