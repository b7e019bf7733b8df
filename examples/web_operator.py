"""An operator in a few lines: a Website becomes a Deployment, a Service and a Secret, and reports when it serves.

    cd examples && kubectl-runtime crd web_operator:Website | kubectl apply --server-side -f -      once, at first
    python examples/web_operator.py                                                  until Ctrl-C or SIGTERM

`ctx.ensure` creates the three objects, sends nothing while they are as desired, restores what others change, refuses
objects that others created, and deletes the Service when a Website no longer wants one.
"""
from __future__ import annotations

import logging
import sys
from typing import Annotated

import msgspec

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Condition,
    Context,
    Controller,
    CustomResource,
    KubeError,
    MapKeys,
    NotOurs,
    Reconciler,
)
from kubectl_runtime.objects import LabelSelector, TemplateMeta
from kubectl_runtime.resources import Deployment, Secret, Service
from kubectl_runtime.resources.apps_v1 import DeploymentSpec
from kubectl_runtime.resources.core_v1 import (
    Container,
    EnvFromSource,
    PodSpec,
    PodTemplateSpec,
    SecretEnvSource,
    ServicePort,
    ServiceSpec,
)

NAME = "websites"


class Spec(msgspec.Struct, rename="camel"):
    image: str
    replicas: int = 1
    settings: dict[str, str] = {}
    expose: bool = True


class Status(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Website(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="Website"):
    """A site that some Pods serve."""

    spec: Spec
    status: Status | None = None


class Serve(Reconciler[Website]):
    def reconcile(self, obj: Website, ctx: Context[None]) -> Action:
        spec, labels = obj.spec, {"app.kubernetes.io/name": obj.name}
        container = Container(
            name="web",
            image=spec.image,
            env_from=[EnvFromSource(secret_ref=SecretEnvSource(name=obj.name))],
        )
        deployment = Deployment(
            name=obj.name,
            spec=DeploymentSpec(
                replicas=spec.replicas,
                selector=LabelSelector(match_labels=labels),
                template=PodTemplateSpec(
                    metadata=TemplateMeta(labels=labels), spec=PodSpec(containers=[container])
                ),
            ),
        )
        children: list[Deployment | Secret | Service] = [
            deployment,
            Secret(name=obj.name, string_data=spec.settings),
        ]
        if spec.expose:
            service = ServiceSpec(selector=labels, ports=[ServicePort(port=80)])
            children.append(Service(name=obj.name, spec=service))
        try:
            waiting = ctx.ensure(obj, *children, prune=True).waiting_for()
        except NotOurs as error:
            waiting = str(error)
        condition = Condition(
            type="Ready",
            status=str(not waiting),
            reason="Waiting" if waiting else "Serving",
            message=waiting,
            observed_generation=obj.generation,
        )
        ctx.report(obj, condition)
        return Action.requeue(60) if waiting else Action.await_change()


def controller(client: Client) -> Controller[Website]:
    made = Controller(Api.all(client, Website), name=NAME).owns(Api.all(client, Deployment), whole=True)
    return made.owns(Api.all(client, Service)).owns(Api.all(client, Secret))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(Serve())
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
