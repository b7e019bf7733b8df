"""`kubectl-runtime manifests MODULE:NAME --image IMAGE`: prints everything that installs an operator, as YAML.

    Namespace                      unless it exists in every cluster, such as default
    CustomResourceDefinitions      of the kinds that the controllers reconcile or the program's folder defines
    ServiceAccount and roles       as `kubectl-runtime rbac` prints them, including `--recorded FILE`
    Services                       for metrics, if the program serves them, and for webhooks
    Deployment                     two replicas that elect a leader, unless they share the objects or have no
                                   controllers; with probes if health is served, a securityContext for the restricted
                                   Pod Security Standard, and the program's own grace period
    PodDisruptionBudget            at most one replica is evicted at a time
    webhook configurations         unless the program applies them itself: WebhookServer(configuration=NAME)

Use kustomize or a similar tool for differences between clusters. The same program and arguments always produce the same
text. `--check FILE` compares the objects with those in a file and ignores comments and layout. MODULE:NAME is called
with a client that makes no connection.
"""
from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.cli.dev_operator import loaded_kinds
from kubectl_runtime.cli.places import CommandError, check_written, objects_in, print_utf8
from kubectl_runtime.cli.rbac import Inspected, add_program, inspected, note_unrecorded, servers_of
from kubectl_runtime.cli.run_options import FLAGS
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.crd.customresource import CustomResource, definitions_of
from kubectl_runtime.manager.manager import SERVE, Manager
from kubectl_runtime.runtime.controller.plan import WatchPlan
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.webhooks.answering import Application
from kubectl_runtime.webhooks.configurations import Target, configurations
from kubectl_runtime.webhooks.server import WebhookServer

Object = dict[str, Any]

SPARE = 15
"""Seconds that a Pod gets in addition to the program's own grace period, for the shutdown steps before and after that
period."""
_SHARED = ("default", "kube-system", "kube-public", "kube-node-lease")
_SETTLE = 5
"""Seconds for which a Service may still route requests to a terminating Pod."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_program(parser)
    parser.add_argument("--image", required=True, metavar="IMAGE", help="the image that holds the program and "
                        "kubectl-runtime, such as registry.example.com/shop:1.4.0")
    parser.add_argument("--replicas", type=_replicas, default=2, metavar="N", help="number of replicas (default: 2)")
    parser.add_argument("--memory", type=_quantity, default="256Mi", metavar="QUANTITY",
                        help="the memory limit (default: 256Mi)")
    parser.add_argument("--env", type=_variable, action="append", default=[], metavar="NAME=VALUE",
                        help="an environment variable of the container, also set while the program is inspected; "
                             "may be repeated")
    parser.add_argument("--check", type=Path, metavar="FILE", help="print nothing, but fail with the difference if the "
                        "objects in FILE differ from the manifests")


def run(options: argparse.Namespace) -> int:
    """Print or check the manifests and return the exit status. Raises CommandError."""
    found = manifests(options)
    if options.check is not None:
        check_written(options.check, objects_in(options.check), found, "the program", _command(options))
        return 0
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    if options.recorded is None:
        note_unrecorded()
    print_utf8(documents_to_yaml(found, sort_keys=False, width=120))
    return 0


def manifests(options: argparse.Namespace) -> list[Object]:
    """Return the objects in the order in which they must be applied. Raises CommandError."""
    os.environ.update(options.env)
    program = inspected(options, elect=None)
    places = _webhooks(program)
    try:
        hooks = [hook for place in places if place.server.configuration is None
                 and isinstance(place.server.app, Application)
                 for hook in configurations(place.server.app, place.service, Target.service(
                     f"{program.namespace}/{place.service}"))]
    except RequestError as error:
        raise CommandError(str(error)) from None
    conversions = {hook["metadata"]["name"]: hook["spec"] for hook in hooks
                   if hook["kind"] == "CustomResourceDefinition"}
    found = [*_namespace(program), *_definitions(program, options.program.module, conversions),
             *program.access,
             *_services(program, places), _deployment(program, places, options), _budget(program),
             *(hook for hook in hooks if hook["kind"] != "CustomResourceDefinition")]
    plain: list[Object] = msgspec.to_builtins(found)
    return plain


def _command(options: argparse.Namespace) -> str:
    """The command line that writes the file of `--check`."""
    said = [("--image", options.image), ("--recorded", options.recorded), ("--name", options.name),
            ("--namespace", options.namespace), *(("--env", f"{name}={value}") for name, value in options.env)]
    words = ["kubectl-runtime", "manifests", str(options.program),
             *(word for flag, value in said if value is not None for word in (flag, str(value)))]
    if options.replicas != 2:
        words += ["--replicas", str(options.replicas)]
    if options.memory != "256Mi":
        words += ["--memory", options.memory]
    return shlex.join(words)


# The parts of the manifests


def _namespace(program: Inspected) -> Iterator[Object]:
    if program.namespace in _SHARED:
        return
    # A namespace that is not named after the program may hold other Pods, which the restricted profile would refuse.
    labels = {"pod-security.kubernetes.io/enforce": "restricted"} if program.namespace == program.name else {}
    yield {"apiVersion": "v1", "kind": "Namespace",
           "metadata": {"name": program.namespace, **({"labels": labels} if labels else {})}}


def _definitions(program: Inspected, module: str, conversions: dict[str, Object]) -> list[Object]:
    kinds = _own_kinds(program, module)
    names = {kind.crd_name() for kind in kinds} | conversions.keys()
    try:
        found = definitions_of([kind for kind in loaded_kinds() if kind.crd_name() in names])
    except (TypeError, ValueError) as error:
        raise CommandError(f"the definitions of {', '.join(sorted(names))} cannot be made: {error}") from None
    for definition in found:
        definition["spec"].update(conversions.get(definition["metadata"]["name"], {}))
    return found


def _own_kinds(program: Inspected, module: str) -> list[type[CustomResource]]:
    """Return the kinds that the controllers reconcile, and the kinds defined in the program's package or in modules
    beside it. Third-party kinds that the program only uses are not installed."""
    mains = {plan.main.api.resource for plan in program.plans if isinstance(plan.main, WatchPlan)}
    file = getattr(sys.modules[module.partition(".")[0]], "__file__", None)
    folder = None if file is None else Path(file).resolve().parent
    return [kind for kind in loaded_kinds() if kind.api_resource in mains
            or (folder is not None and _folder_of(kind).is_relative_to(folder))]


def _folder_of(kind: type) -> Path:
    return Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or os.devnull).resolve().parent


def _labels(program: Inspected) -> dict[str, str]:
    return {"app.kubernetes.io/name": program.name}


def _metadata(program: Inspected, name: str | None = None) -> Object:
    return {"name": name or program.name, "namespace": program.namespace, "labels": _labels(program)}


@dataclass(frozen=True)
class _Webhooks:
    """A webhook server, the name of its Service, and the name of its container port."""

    server: WebhookServer
    service: str
    port: str


def _webhooks(program: Inspected) -> list[_Webhooks]:
    """Return the program's webhook servers. Raises CommandError if a Service cannot select the operator's Pods."""
    found: list[_Webhooks] = []
    for number, server in enumerate(servers_of(program.made)):
        if server.url is not None:
            raise CommandError(f"the {server.name} is called at {server.url}, and not through a Service: if the "
                               "program decides this by its environment, set the variables with --env NAME=VALUE")
        namespace, _, name = (server.service or "").partition("/")
        if namespace not in ("", program.namespace):
            raise CommandError(f"the Service {server.service} of the program's webhooks can only select Pods of "
                               f"its own namespace, but the operator is installed in {program.namespace}: leave "
                               "--namespace out")
        suffix = "webhooks" if number == 0 else f"webhooks-{number + 1}"
        found.append(_Webhooks(server, name or f"{program.name}-{suffix}", suffix))
    return found


def _services(program: Inspected, places: list[_Webhooks]) -> Iterator[Object]:
    if (port := _port(program)) is not None:  # headless, since each replica has its own metrics
        yield _service(program, f"{program.name}-metrics", {"clusterIP": "None"},
                       {"name": "metrics", "port": port, "targetPort": "http"})
    for place in places:
        # A Pod is ready when its stores are complete, and until then they may need the Pod's own conversion webhook.
        yield _service(program, place.service, {"publishNotReadyAddresses": True},
                       {"name": "webhooks", "port": 443, "targetPort": place.port})


def _service(program: Inspected, name: str, spec: Object, port: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(program, name),
            "spec": {**spec, "selector": _labels(program), "ports": [port]}}


def _port(program: Inspected) -> int | None:
    """The port on which other Pods and probes reach health and metrics; None if only the Pod itself can, or if nothing
    is served."""
    serve = program.made.serve if isinstance(program.made, Manager) else str(SERVE)
    if serve is None:
        return None
    address = ListenAddress.parse(serve)
    return address.port if address.host in ("", "0.0.0.0", "::") else None


def _deployment(program: Inspected, places: list[_Webhooks], options: argparse.Namespace) -> Object:
    made = program.made
    grace = made.grace if isinstance(made, Manager) else program.plans[0].grace
    pod: Object = {
        "serviceAccountName": program.name,
        "terminationGracePeriodSeconds": math.ceil(grace) + SPARE,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                                       "whenUnsatisfiable": "ScheduleAnyway",
                                       "labelSelector": {"matchLabels": _labels(program)}}],
        "containers": [_container(program, places, options)]}
    if folders := _certificate_folders(places):
        pod["volumes"] = [{"name": name, "secret": {"secretName": f"{program.name}-{name}"}} for name, _ in folders]
        print(f"note: the Secret {program.name}-{folders[0][0]} must hold tls.crt and tls.key of the webhooks, and the "
              "configurations must hold the CA that signed them; cert-manager can write both", file=sys.stderr)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(program), "spec": {
        "replicas": options.replicas, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": _labels(program)},
        "template": {"metadata": {"labels": _labels(program)}, "spec": pod}}}


def _container(program: Inspected, places: list[_Webhooks], options: argparse.Namespace) -> Object:
    arguments = ["--log-format=json"]
    if program.elects:
        arguments += ["--leader-elect", f"{FLAGS['name']}={program.name}"]
    port = _port(program)
    ports = [*([{"name": "http", "containerPort": port}] if port is not None else []),
             *({"name": place.port, "containerPort": place.server.port} for place in places)]
    container: Object = {"name": "operator", "image": options.image,
                         "command": ["kubectl-runtime", "run", str(options.program)], "args": arguments}
    if options.env:
        container["env"] = [{"name": name, "value": value} for name, value in options.env]
    if ports:
        container["ports"] = ports
    if port is not None:
        container["livenessProbe"] = {"httpGet": {"path": "/healthz", "port": "http"}, "initialDelaySeconds": 10,
                                      "periodSeconds": 20, "timeoutSeconds": 5}
        container["readinessProbe"] = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 10,
                                       "timeoutSeconds": 5}
    else:
        print(f"note: {options.program} does not serve health and metrics outside of its own Pod: the Deployment has "
              "no probes, and there is no Service for metrics", file=sys.stderr)
    if places:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(_SETTLE)]}}}
    container["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": options.memory}}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                    "capabilities": {"drop": ["ALL"]}}
    if folders := _certificate_folders(places):
        container["volumeMounts"] = [{"name": name, "mountPath": path, "readOnly": True} for name, path in folders]
    return container


def _certificate_folders(places: list[_Webhooks]) -> list[tuple[str, str]]:
    folders = dict.fromkeys(folder for place in places if (folder := place.server.certificate_folder) is not None)
    return [("webhooks-tls" if number == 0 else f"webhooks-tls-{number + 1}", folder)
            for number, folder in enumerate(folders)]


def _budget(program: Inspected) -> Object:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(program),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _labels(program)}}}


# Types of options, for argparse


def _replicas(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of replicas: it must be at least 1")
    return int(text)


def _quantity(text: str) -> str:
    try:
        if Quantity(text) <= 0:
            raise ValueError("it must be above 0")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory, such as 512Mi: {error}") from None
    return text


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
