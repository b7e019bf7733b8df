"""A controller whose custom resource, a ConfigMapGenerator, becomes a ConfigMap.

    python examples/configmapgen_controller.py --crd | kubectl apply --server-side -f -    once, before the next command
    python examples/configmapgen_controller.py           on the cluster your kubeconfig names, until Ctrl-C or SIGTERM
    python examples/configmapgen_controller.py --demo    on an embedded API server, with a short story

Without a configured cluster it also plays the demo.
"""
from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Annotated

import msgspec

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Condition,
    Config,
    Context,
    Controller,
    CustomResource,
    KubeError,
    MapKeys,
    Reconciler,
)
from kubectl_runtime.errors import NotConfiguredError
from kubectl_runtime.resources import ConfigMap


class Spec(msgspec.Struct):
    content: Annotated[str, msgspec.Meta(max_length=1_000_000, description="The text; a ConfigMap holds 1 MiB.")]


class Status(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None  # each condition may have another writer


class ConfigMapGenerator(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="ConfigMapGenerator",
                         short_names=("cmg",)):
    """Its content becomes the data of a ConfigMap of the same name."""

    spec: Spec
    status: Status | None = None


class Generate(Reconciler[ConfigMapGenerator]):
    """Writes the child, then reports it in the parent's status. Safe to run at any time, any number of times."""

    def reconcile(self, obj: ConfigMapGenerator, ctx: Context[None]) -> Action:
        if obj.deletion_timestamp:
            return Action.await_change()
        ctx.ensure(obj, ConfigMap(name=obj.name, data={"content": obj.spec.content}))
        self.report(obj, ctx)
        return Action.requeue(300)  # check again even without an event

    def report(self, obj: ConfigMapGenerator, ctx: Context[None]) -> None:
        """Sends nothing if the status has this condition already, so a second run causes no event."""
        ready = Condition(type="Ready", status="True", reason="Generated", message="the ConfigMap is up to date",
                          observed_generation=obj.generation)
        ctx.report(obj, ready)


def controller(client: Client) -> Controller[ConfigMapGenerator]:
    """Make a controller that watches the generators of all namespaces and the ConfigMaps that they own."""
    return Controller(Api.all(client, ConfigMapGenerator)).owns(Api.all(client, ConfigMap))


# --- end of the controller; what follows is the command line ---


def operator(client: Client) -> BoundController[ConfigMapGenerator]:
    """What `kubectl-runtime run configmapgen_controller:operator` runs, as examples/deploy does. `kubectl-runtime
    rbac` prints its RBAC rules."""
    return controller(client).bind(Generate())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="store_true", help="play a short story on an embedded API server")
    parser.add_argument("--crd", action="store_true", help="print the CustomResourceDefinition and exit")
    args = parser.parse_args()
    if args.crd:
        print(json.dumps(ConfigMapGenerator.crd(), indent=2))
        return 0
    try:
        config = None if args.demo else Config.infer()
        if config is None:
            return demo()
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
        with Client(config) as client:
            controller(client).shutdown_on_signal().run(Generate())
    except NotConfiguredError as error:
        print(f"{error}\n\nPlaying the demo on an embedded API server instead.\n")
        return demo()
    except KubeError as error:  # a cluster is configured, but the configuration is invalid
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def demo() -> int:
    from configmapgen_story import play

    logging.basicConfig(level=logging.CRITICAL)  # the story prints its failures itself
    return play()


if __name__ == "__main__":
    sys.exit(main())
