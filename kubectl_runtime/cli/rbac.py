"""`kubectl-runtime rbac MODULE:NAME [--recorded FILE]`: prints the permissions that an operator needs, as YAML.

    watches            list and watch for the kinds that the controllers watch
    reads              get, list and watch for the kinds named in `Controller.reads`
    webhooks           access to the webhook configurations and CRDs that a Manager's WebhookServer updates. Updates
                       are limited to named objects; if a name is not known, a warning says so
    leader election    the Lease, if the Manager has an election or with --leader-elect
    sharding           all Leases of the namespace, since each replica generates its own Lease's name
    --recorded FILE    the permissions that reconcilers used in tests (`pytest --kube-record-rights FILE`), and the
                       permissions for the library's follow-up requests (see testing/rights_recorder.py)
    roles, bindings    `bind` on the roles of the bindings that the recorded reconcilers wrote. A note says so if the
                       program writes roles or bindings and `bind` or `escalate` may be missing

MODULE:NAME is the function that `run` takes; it is called with a client that makes no connection. The output is a
ServiceAccount, a ClusterRole or Roles, and their bindings. The permissions for a watch in one namespace are granted
only in that namespace. If no watch covers all namespaces, a recorded permission is granted only in the namespace in
which it was used, provided that the controllers watch this namespace. Any other recorded permission is granted in all
namespaces.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from kubectl_runtime.core.meta.gvk import ApiResource, api_resource_of
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import checked_label, checked_subdomain
from kubectl_runtime.core.requests.rights import BINDINGS, ORDER, RBAC, ROLES, Right, roles
from kubectl_runtime.manager.leases import LeaderElection
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.watch.states import namespaces_of, places_of
from kubectl_runtime.testing.rights_recorder import Recorded
from kubectl_runtime.webhooks.server import WebhookServer

_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
_SHARDS = {**_LEASES, "verbs": ["create", "delete", "get", "list", "update"]}
_FORESEEN = """
With --recorded, the library's own follow-up requests are granted too: the library patches an event that repeats, and
reads an object with a finalizer again when the object is deleted; create_or_update creates or updates. Other
permissions are granted only if the tests make a reconciler use them.
"""
_UNNAMED = {
    **dict.fromkeys(("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
                    "WebhookServer(configuration=NAME) limits this to the operator's own"),
    "customresourcedefinitions": "a Conversion between classes limits this to the operator's own"}
_LEASE_NAMES = "each replica generates the name of its own Lease; a namespace of its own keeps other Leases out"
_WRITES = ("create", "update", "patch")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_program(parser)
    parser.add_argument("--leader-elect", action="store_true", help="also grant what the operator needs when it runs "
                        "with --leader-elect; its Lease has the name and namespace given here")


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the program to inspect and for its name and namespace in the cluster."""
    parser.epilog = _FORESEEN
    parser.add_argument("program", type=place, metavar="MODULE:NAME",
                        help="a function that takes a client and returns a Manager or Controller(...).bind(reconciler)")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="the permissions that reconcilers used in "
                        "tests, written by pytest --kube-record-rights FILE")
    parser.add_argument("--name", type=checked_name, metavar="NAME",
                        help="the name of the service account and the roles (default: the first controller's name)")
    parser.add_argument("--namespace", type=checked_namespace, metavar="NAME",
                        help="the namespace of the service account (default: the namespace of the webhooks' Service, "
                             "else the same as --name)")


def run(options: argparse.Namespace) -> int:
    """Print the manifests and return the exit status. Raises CommandError."""
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    found = manifests(options)
    if options.recorded is None:
        note_unrecorded()
    print(documents_to_yaml(found, sort_keys=False), end="")
    return 0


def note_unrecorded() -> None:
    """If no recorded permissions were given, print on standard error that permissions may be missing."""
    print("note: the requests of the reconcilers are not known without --recorded FILE, which "
          "`pytest --kube-record-rights FILE` writes", file=sys.stderr)


def manifests(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the ServiceAccount, the roles and their bindings. Raises CommandError."""
    return inspected(options, elect=options.leader_elect).access


@dataclass(frozen=True)
class Inspected:
    """A program that was made with a client that makes no connection, and the permissions that the program needs."""

    made: BoundController[Any] | Manager
    name: str
    namespace: str
    access: list[dict[str, Any]]
    """The ServiceAccount, the roles and their bindings."""
    plans: list[Plan]
    elects: bool
    """Whether the operator must be started with --leader-elect. The field `name` is then also the Lease's name."""


def inspected(options: argparse.Namespace, *, elect: bool | None) -> Inspected:
    """Call the program's function and collect the permissions that the program needs. `elect`: whether the operator
    runs with --leader-elect; with None, the operator is assumed to run with --leader-elect if several replicas would
    otherwise do the same work. Raises CommandError."""
    function = program_in(imported(options.program.module), options.program)
    namespace = options.namespace
    if namespace is None:  # the function may use the namespace, so it is called again once the namespace is known
        first = _made_in(options.name or "default", function, options)
        namespace = _home_of(first) or _name_of(first, options)
    made = _made_in(namespace, function, options)
    plans, leader, sharding = _parts(made)
    name = _name_of(made, options)
    try:
        checked_subdomain(name, "the name of the roles")
        checked_label(namespace, "the namespace of the service account")
    except RequestError as error:
        raise CommandError(f"{error}: use --name and --namespace") from None
    rights = [right for plan in plans for right in _watched(plan)]
    served = [right for server in servers_of(made) for right in server.rights()]
    if options.recorded is not None:
        recorded = _recorded(options.recorded, rights)
        _note_grants({right.resource for right in recorded if right.group == RBAC and right.verb in _WRITES},
                     bound=sorted({right.name or "*" for right in recorded if right.verb == "bind"}))
        rights += recorded
    else:
        _note_grants({resource.plural for plan in plans for resource in _own_kinds(plan) if resource.group == RBAC})
    rights += served
    _warn_of_unnamed(served, sharding)
    if elect is None:
        elect = sharding is None and bool(plans or (isinstance(made, Manager) and made.runnables()))
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}]
    for where, granted in roles(rights).items():
        found += _granted(name, where, granted, account)
    if leader is not None or elect:
        lease, where = (leader.name, leader.namespace) if leader is not None else (name, None)
        found += _granted(f"{name}-election", where or namespace, _election(lease), account)
    if sharding is not None:
        found += _granted(f"{name}-sharding", sharding.namespace or namespace, [_SHARDS], account)
    return Inspected(made, name, namespace, found, plans, elect and leader is None)


def servers_of(made: BoundController[Any] | Manager) -> list[WebhookServer]:
    """Return the program's webhook servers."""
    return [server for server in made.servers if isinstance(server, WebhookServer)] if isinstance(made, Manager) else []


def _made_in(namespace: str, function: Callable[[Client], Any],
             options: argparse.Namespace) -> BoundController[Any] | Manager:
    with Client(Config(cluster_url="http://127.0.0.1:1", default_namespace=namespace), layers=[_refuse]) as client:
        return made_by(function, client, options.program)


def _name_of(made: BoundController[Any] | Manager, options: argparse.Namespace) -> str:
    if options.name:
        return str(options.name)
    if plans := _parts(made)[0]:
        return plans[0].name
    if service := next((server.service for server in servers_of(made) if server.service), None):
        return service.partition("/")[2].partition(":")[0]
    raise CommandError(f"{options.program} has no controllers whose name could be taken; use --name")


def _home_of(made: BoundController[Any] | Manager) -> str | None:
    """The namespace of the webhooks' Service, in which the program must run; None without a Service."""
    return next((server.service.partition("/")[0] for server in servers_of(made) if server.service), None)


def _warn_of_unnamed(served: list[Right], sharding: Sharding | None) -> None:
    """Warn if the operator may change objects that are not its own, because its objects' names are not known here."""
    unnamed = {right.resource for right in served if right.verb == "patch" and not right.name}
    if sharding is not None:
        unnamed.add("leases of its namespace")
    for resource in sorted(unnamed):
        print(f"warning: the operator may change all {resource}: {_UNNAMED.get(resource, _LEASE_NAMES)}",
              file=sys.stderr)


def _own_kinds(plan: Plan) -> Iterator[ApiResource]:
    """The kinds that a reconciler probably writes: the controller's own kind, and the kinds that it owns."""
    for watch in (plan.main, *plan.related):
        if isinstance(watch, WatchPlan) and (watch is plan.main or watch.is_owned):
            yield from (resource for resource, _ in places_of(watch.api))


def _note_grants(written: set[str], *, bound: Sequence[str] = ()) -> None:
    """Print on standard error which verbs the roles here may lack, since API servers only let a program grant
    permissions that it has. `written`: the kinds of RBAC that the program writes. `bound`: the names of the roles on
    which a rule grants `bind`."""
    for plural in sorted(written):
        if plural in BINDINGS and bound:
            print(f"note: a program that writes {plural} needs the verb bind on their roles; the rules here grant it "
                  f"on {', '.join(bound)} only, so roles with other names need a rule of "
                  "yours", file=sys.stderr)
        elif plural in BINDINGS:
            print(f"note: a program that writes {plural} needs the verb bind on their roles, or all permissions of "
                  "these roles; no rule here grants the verb bind", file=sys.stderr)
        elif plural in ROLES:
            print(f"note: a program that writes {plural} needs the verb escalate on them, or all permissions that "
                  "they grant; no rule here grants the verb escalate", file=sys.stderr)


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
        # The permissions for a stream are unknown here, since the program makes the stream's requests itself.
        places = places_of(watch.api) if isinstance(watch, WatchPlan) else ()
        for resource, within in places:
            for verb in ("list", "watch"):
                yield Right(resource.group, resource.plural, verb, within)
    own = namespaces_of(plan.main.api) if isinstance(plan.main, WatchPlan) else frozenset()
    for resource in map(api_resource_of, plan.reads):
        for namespace in sorted(own) if own and resource.namespaced else (None,):
            for verb in ("get", "list", "watch"):
                yield Right(resource.group, resource.plural, verb, namespace)


def _recorded(file: Path, watched: list[Right]) -> list[Right]:
    try:
        found = decoded(file.read_bytes(), Recorded).rights
    except (OSError, *DECODE_FAILURES) as error:
        raise CommandError(f"{file}: {error}") from None
    for right in found:
        if right.verb not in ORDER:
            raise CommandError(f"{file}: {right.verb!r} is not an RBAC verb; the verbs are {', '.join(ORDER)}")
    namespaces = {right.namespace for right in watched}
    inside = namespaces if None not in namespaces else set()
    return [right if right.namespace in inside else msgspec.structs.replace(right, namespace=None) for right in found]


def _election(lease: str) -> list[dict[str, Any]]:
    """The RBAC rules for the Lease. RBAC cannot restrict `create` to a name."""
    return [{**_LEASES, "resourceNames": [lease], "verbs": ["get", "update"]}, {**_LEASES, "verbs": ["create"]}]


def _granted(name: str, where: str | None, rules: list[dict[str, Any]],
             account: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield a Role in a namespace, or a ClusterRole, and its binding."""
    kind = "ClusterRole" if where is None else "Role"
    metadata = {"name": name} if where is None else {"name": name, "namespace": where}
    yield {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    yield {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata,
           "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [account]}
