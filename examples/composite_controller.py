"""A controller for any kind whose logic is behind a URL, like metacontroller's CompositeController.

    cd examples && kubectl-runtime crd composite_controller:Composite | kubectl apply --server-side -f -       once
    python examples/composite_controller.py                                            until Ctrl-C or SIGTERM

A Composite names the kind of the parents, the kinds of their children, and a URL. Each parent is POSTed to the URL with
its current children: `{"parent": {...}, "children": {"Pod.v1": {"name": {...}}}}`. The response contains all desired
children and the status: `{"status": {...}, "children": [{...}], "resyncAfterSeconds": 60}`. The kinds may be created
after the Composite; until then, its condition Ready names what is missing.
"""
from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import requests

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Condition,
    Context,
    Controller,
    CustomResource,
    DynamicObject,
    FinalizingReconciler,
    GroupVersionKind,
    KubeError,
    MapKeys,
    Reconciler,
    Running,
    TerminalError,
)
from kubectl_runtime.kinds import Scope

NAME = "composites"


class Kind(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str

    def served(self, client: Client) -> ApiResource:
        """The resource of this kind. Raises DiscoveryError while the server does not serve the kind."""
        return client.discovery.resolve_gvk(GroupVersionKind.parse(self.api_version, self.kind)).resource


class Spec(msgspec.Struct, rename="camel"):
    parents: Kind
    children: list[Kind]
    sync: Annotated[str, msgspec.Meta(pattern="^https?://", description="The URL that parents are POSTed to.")]


class Status(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Composite(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="Composite", scope=Scope.CLUSTER):
    """A kind, its children's kinds, and the URL of its logic."""

    spec: Spec
    status: Status | None = None


class Answer(msgspec.Struct, rename="camel"):
    children: list[dict[str, Any]]
    status: dict[str, Any] = {}
    resync_after_seconds: float = 0


class Sync(Reconciler[DynamicObject]):
    def __init__(self, url: str, kinds: Sequence[ApiResource]) -> None:
        self.url, self.kinds = url, {f"{kind.kind}.{kind.api_version}": kind for kind in kinds}

    def reconcile(self, obj: DynamicObject, ctx: Context[None]) -> Action:
        if obj.deletion_timestamp:
            return Action.await_change()
        seen = {name: {one.name: one.to_dict() for one in ctx.children(kind)} for name, kind in self.kinds.items()}
        response = requests.post(self.url, json={"parent": obj.to_dict(), "children": seen}, timeout=10)
        response.raise_for_status()
        answer = msgspec.json.decode(response.content, type=Answer)
        for child in answer.children:
            if (kind := f"{child.get('kind')}.{child.get('apiVersion')}") not in self.kinds:
                raise TerminalError(f"{self.url} returned a {kind}, not one of {', '.join(self.kinds)}")
        ctx.ensure(obj, *answer.children, prune=True)
        former = dict.fromkeys(obj.get("status") or {})  # None removes a field that is not in the response
        ctx.report(obj, **{**former, **answer.status, "observedGeneration": obj.generation})
        return Action.requeue(answer.resync_after_seconds) if answer.resync_after_seconds else Action.await_change()


class Run(FinalizingReconciler[Composite]):
    """Runs one controller for each Composite."""

    finalizer_name = "demo.kubectl-runtime.dev/controller"

    def __init__(self) -> None:
        self.running: dict[str, tuple[Spec, Running[DynamicObject]]] = {}

    def apply(self, obj: Composite, ctx: Context[None]) -> Action:
        if obj.name in self.running and self.running[obj.name][0] == obj.spec:
            return Action.await_change()
        self.stop(obj.name)
        parents, *kinds = (kind.served(ctx.client) for kind in (obj.spec.parents, *obj.spec.children))
        controller = Controller(Api.all(ctx.client, parents), name=obj.name)
        for kind in kinds:
            controller.owns(Api.all(ctx.client, kind), whole=True)
        self.running[obj.name] = obj.spec, controller.start(Sync(obj.spec.sync, kinds))
        return Action.await_change()

    def cleanup(self, obj: Composite, ctx: Context[None]) -> Action:
        self.stop(obj.name)
        ctx.logger.info("its controller has stopped")
        return Action.await_change()

    def stop(self, *names: str) -> None:
        for name in names:
            if name in self.running:
                self.running.pop(name)[1].stop()


def controller(client: Client) -> Controller[Composite]:
    return Controller(Api.all(client, Composite), name=NAME, ready="Ready")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    reconciler = Run()
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(reconciler)
            reconciler.stop(*reconciler.running)
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
