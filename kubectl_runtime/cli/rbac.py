"""`kubectl-runtime rbac MODULE:NAME [--recorded FILE]`: the rights that an operator needs, as YAML.

    watches            list and watch of what the controllers say they watch
    webhooks           what a WebhookServer of a Manager needs for its configurations and its authority, by name where
                       the names are known; else a warning says so
    an election        its Lease, of a Manager that has one or with --leader-elect
    a sharding         the Leases of a Manager's shards and replicas; the latter's names are made up by each
    --recorded FILE    what reconcilers asked for while tests ran, `pytest --kube-record-rights FILE`, and what the
                       library goes on to by itself after that: see testing/rights_recorder.py

MODULE:NAME is the function that `run` takes; it is called with a client that makes no connection. A ServiceAccount, a
ClusterRole or Roles, and their bindings are printed. What is watched in one namespace is granted there; so is what was
recorded, if nothing is watched everywhere.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.cli.places import CommandError, checked_name, checked_namespace, imported, place
from kubectl_runtime.cli.program import made_by, program_in
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import checked_label, checked_subdomain
from kubectl_runtime.core.requests.rights import ORDER, Right, roles
from kubectl_runtime.manager.leases import LeaderElection
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.watch.states import apis_of
from kubectl_runtime.testing.rights_recorder import Recorded
from kubectl_runtime.webhooks.server import WebhookServer

_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
_SHARDS = {**_LEASES, "verbs": ["create", "delete", "get", "list", "update"]}
_FORESEEN = """
With --recorded, what the library goes on to by itself is granted with what was seen: an event that is created is
patched when it repeats, an object with a finalizer is read again when it is deleted, create_or_update creates or
updates. Other rights are granted only if the tests lead a reconciler to where it needs them.
"""
_UNNAMED = {
    **dict.fromkeys(("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
                    "WebhookServer(configuration=NAME) says which ones are the operator's"),
    "customresourcedefinitions": "a Conversion whose versions are classes says which one is the operator's"}
_LEASE_NAMES = "each replica makes up the name of its own; a namespace of the operator's own keeps others out of it"
_API = "rbac.authorization.k8s.io"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = _FORESEEN
    parser.add_argument("program", type=place, metavar="MODULE:NAME",
                        help="a function that takes a client and returns a Manager or Controller(...).bind(reconciler)")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="the rights that reconcilers used in "
                        "tests, written by pytest --kube-record-rights FILE")
    parser.add_argument("--leader-elect", action="store_true", help="also grant what the operator needs when it runs "
                        "with --leader-elect; its Lease has the name and namespace given here")
    parser.add_argument("--name", type=checked_name, metavar="NAME",
                        help="the name of the service account and the roles (default: that of the first controller)")
    parser.add_argument("--namespace", type=checked_namespace, metavar="NAME",
                        help="the namespace of the service account (default: the same as --name)")


def run(options: argparse.Namespace) -> int:
    """Print the manifests; the exit status. Raises CommandError."""
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    found = manifests(options)
    if options.recorded is None:
        print("note: what the reconcilers ask for is not known without --recorded FILE, which "
              "`pytest --kube-record-rights FILE` writes", file=sys.stderr)
    print(documents_to_yaml(found, sort_keys=False), end="")
    return 0


def manifests(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The account, the roles and their bindings. Raises CommandError."""
    function = program_in(imported(options.program.module), options.program)
    config = Config(cluster_url="http://127.0.0.1:1", default_namespace=options.namespace or options.name or "default")
    with Client(config, layers=[_refuse]) as client:
        made = made_by(function, client, options.program)
        plans, leader, sharding = _parts(made)
        if not plans and not options.name:
            raise CommandError(f"{options.program} has no controllers whose name could be taken; say --name")
        name = options.name or plans[0].name
        namespace = options.namespace or name
        try:
            checked_subdomain(name, "the name of the roles")
            checked_label(namespace, "the namespace of the service account")
        except RequestError as error:
            raise CommandError(f"{error}: say --name and --namespace") from None
        rights = [right for plan in plans for right in _watched(plan)]
        servers = made.servers if isinstance(made, Manager) else ()
        served = [right for server in servers if isinstance(server, WebhookServer) for right in server.rights()]
        if options.recorded is not None:
            rights += _recorded(options.recorded, rights)
        rights += served
        _warn_of_unnamed(served, sharding)
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}]
    for where, granted in roles(rights).items():
        found += _granted(name, where, granted, account)
    if leader is not None or options.leader_elect:
        lease, where = (leader.name, leader.namespace) if leader is not None else (name, None)
        found += _granted(f"{name}-election", where or namespace, _election(lease), account)
    if sharding is not None:
        found += _granted(f"{name}-sharding", sharding.namespace or namespace, [_SHARDS], account)
    return found


def _warn_of_unnamed(served: list[Right], sharding: Sharding | None) -> None:
    """Say which objects of others the operator may change, since their names are not known here."""
    unnamed = {right.resource for right in served if right.verb == "patch" and not right.name}
    if sharding is not None:
        unnamed.add("leases of its namespace")
    for resource in sorted(unnamed):
        print(f"warning: all {resource} may be changed: {_UNNAMED.get(resource, _LEASE_NAMES)}", file=sys.stderr)


def _refuse(_send: Send) -> Send:
    def refused(call: Call) -> Answer:
        raise RequestError(f"{call.request.operation}: there is no server: the program is only inspected, so its "
                           "function must not make requests")
    return refused


def _parts(made: BoundController[Any] | Manager) -> tuple[list[Plan], LeaderElection | None, Sharding | None]:
    if isinstance(made, Manager):
        return made.plans(), made.leader, made.sharding
    return [made.controller.plan()], None, None


def _watched(plan: Plan) -> Iterator[Right]:
    for watch in (plan.main, *plan.related):
        for api in apis_of(watch.api) if isinstance(watch, WatchPlan) else ():  # a stream is watched by somebody else
            for verb in ("list", "watch"):
                yield Right(api.resource.group, api.resource.plural, verb, api.namespace)


def _recorded(file: Path, watched: list[Right]) -> list[Right]:
    try:
        found = decoded(file.read_bytes(), Recorded).rights
    except (OSError, *DECODE_FAILURES) as error:
        raise CommandError(f"{file}: {error}") from None
    for right in found:
        if right.verb not in ORDER:
            raise CommandError(f"{file}: {right.verb!r} is no verb of a role; there are {', '.join(ORDER)}")
    namespaces = {right.namespace for right in watched}
    inside = namespaces if None not in namespaces else set()
    return [right if right.namespace in inside else msgspec.structs.replace(right, namespace=None) for right in found]


def _election(lease: str) -> list[dict[str, Any]]:
    """What does not exist yet has no name to be allowed by."""
    return [{**_LEASES, "resourceNames": [lease], "verbs": ["get", "update"]}, {**_LEASES, "verbs": ["create"]}]


def _granted(name: str, where: str | None, rules: list[dict[str, Any]],
             account: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A role in a namespace, or everywhere, and its binding."""
    kind = "ClusterRole" if where is None else "Role"
    metadata = {"name": name} if where is None else {"name": name, "namespace": where}
    yield {"apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    yield {"apiVersion": f"{_API}/v1", "kind": f"{kind}Binding", "metadata": metadata,
           "roleRef": {"apiGroup": _API, "kind": kind, "name": name}, "subjects": [account]}
