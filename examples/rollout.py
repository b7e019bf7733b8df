"""A script: gives Deployments another image, waits until they are rolled out, and deletes their old ReplicaSets.

    python examples/rollout.py --selector app=shop --image shop:2 [--namespace NAMESPACE] [--timeout SECONDS]
    python examples/rollout.py --demo                             on an embedded API server

The script lists page by page, labels each Deployment with the release, and waits for the rollouts. Then it deletes the
ReplicaSets that are no longer needed and waits until they are gone. It can be run again after a failure.
"""
from __future__ import annotations

import argparse
import logging
import sys

from kubectl_runtime import (
    Api,
    Client,
    KubeError,
    ListParams,
    Patch,
    await_condition,
    conditions,
    delete_and_finalize,
)
from kubectl_runtime.resources import Deployment, ReplicaSet

RELEASE = "example.com/release"


def roll_out(client: Client, namespace: str, selector: str, image: str, *, timeout: float, page: int = 100) -> int:
    """Return the number of Deployments. Raises KubeError; a WaitTimeout names the Deployment that is not ready."""
    deployments = Api.namespaced(client, Deployment, namespace)
    chosen = list(deployments.list_all(ListParams(label_selector=selector, limit=page)))
    for one in chosen:
        container = {"name": one.spec.template.spec.containers[0].name, "image": image}
        deployments.patch(one.name, Patch.strategic({
            "metadata": {"labels": {RELEASE: image.rpartition(":")[2]}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }))
        say(f"{one.name} gets {image}")
    for one in chosen:
        await_condition(deployments, one.name, conditions.is_deployment_completed, timeout=timeout)
        say(f"{one.name} is rolled out")
    tidy_up(Api.namespaced(client, ReplicaSet, namespace), {one.uid for one in chosen}, timeout, page)
    return len(chosen)


def tidy_up(replica_sets: Api[ReplicaSet], owners: set[str], timeout: float, page: int) -> None:
    """Delete the ReplicaSets of earlier releases, and wait until each is gone."""
    for old in replica_sets.list_all(ListParams(limit=page)):
        if old.spec.replicas == 0 and any(owner.uid in owners for owner in old.owner_references):
            delete_and_finalize(replica_sets, old.name, timeout=timeout)
            say(f"{old.name} of an earlier release is gone")


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="store_true", help="run a demo on an embedded API server")
    parser.add_argument("--selector", "-l", help="the label selector of the Deployments")
    parser.add_argument("--image", help="the new image of their first container")
    parser.add_argument("--namespace", "-n", help="default: the kubeconfig's namespace")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each rollout and deletion")
    args = parser.parse_args()
    if not args.demo and not (args.selector and args.image):
        parser.error("--selector and --image are required, except with --demo")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        if args.demo:
            from rollout_demo import play

            return play()
        with Client.try_default() as client:
            count = roll_out(client, args.namespace or client.default_namespace, args.selector, args.image,
                             timeout=args.timeout)
    except KubeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(f"{count} Deployments run {args.image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
