"""What `ctx.ensure` costs a run whose children are as they should be: no request, and how much CPU.

    python tests/benchmarks/ensure.py [ROUNDS] [CALLS]     default 9 3000

An owner has a Deployment, a Service and a ConfigMap, as objects of resource classes that are made before; a controller
watches their metadata. `cpu_us` is of one call that finds all three unchanged, the least of the rounds: what else the
machine does can only add. `cpu_us_made` makes the three objects, too, as a reconciler does. Prints one JSON line.
"""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from kubectl_runtime import Action, Api, Context, Controller
from kubectl_runtime.objects import LabelSelector, TemplateMeta
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, Service
from kubectl_runtime.resources.apps_v1 import DeploymentSpec
from kubectl_runtime.resources.core_v1 import Container, PodSpec, PodTemplateSpec, ServicePort, ServiceSpec
from kubectl_runtime.testing import Simulation


def children() -> list[Any]:
    labels = {"app": "web"}
    pods = PodTemplateSpec(metadata=TemplateMeta(labels=labels),
                           spec=PodSpec(containers=[Container(name="web", image="nginx:1.27")]))
    return [
        Deployment(name="web", namespace="default", labels=labels, spec=DeploymentSpec(
            replicas=2, selector=LabelSelector(match_labels=labels), template=pods)),
        Service(name="web", namespace="default", spec=ServiceSpec(selector=labels, ports=[ServicePort(port=80)])),
        ConfigMap(name="web", namespace="default", data={"color": "blue", "size": "1"})]


def least(rounds: int, calls: int, function: Callable[[], object]) -> float:
    """µs of CPU of one call."""
    found = []
    for _ in range(rounds):
        began = time.process_time_ns()
        for _ in range(calls):
            function()
        found.append((time.process_time_ns() - began) / calls / 1000)
    return min(found)


def main(rounds: int = 9, calls: int = 3000) -> None:
    results: dict[str, float] = {}
    with Simulation() as sim:
        server = sim.serve()
        client = sim.client(server)

        def reconcile(obj: Namespace, ctx: Context[None]) -> Action:
            if obj.name == "default":
                made = children()
                if len(ctx.ensure(obj, *made).unchanged) == 3:
                    results["cpu_us"] = least(rounds, calls, lambda: ctx.ensure(obj, *made))
                    results["cpu_us_made"] = least(rounds, calls, lambda: ctx.ensure(obj, *children()))
            return Action.await_change()

        controller = Controller(Api.all(client, Namespace))
        for kind in (Deployment, Service, ConfigMap):
            controller.owns(Api.all(client, kind))
        sim.start(controller, reconcile)
        sim.settle(5)
        applies = len(server.requests.select("patch"))
    print(json.dumps({"benchmark": "ensure", "children": 3, "rounds": rounds, "calls": calls, "applies": applies,
                      **{name: round(value, 1) for name, value in results.items()}}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
