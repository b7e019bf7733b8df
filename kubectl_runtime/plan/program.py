"""The program of a plan: what `build` returned, as far as it can be run in a simulation.

    its controllers         with their reconcilers; an election and shards are left out
    its webhooks            mounted in the simulated server under the addresses by which the cluster calls them
    the kinds it declares   what its controllers watch; what else it reads is found when it runs (see `snapshot`)
    what is not run         functions of a Manager, sources of triggers that need a thread
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.meta.gvk import ApiResource, api_resource_of
from kubectl_runtime.crd.conversion import Conversion
from kubectl_runtime.crd.customresource import definitions_of
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.watch.states import apis_of
from kubectl_runtime.testing.lab.world import controllers_of, kinds_of
from kubectl_runtime.webhooks.application import Application
from kubectl_runtime.webhooks.server import WebhookServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Object = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """What `build` returned."""

    made: BoundController[Any] | Manager
    controllers: tuple[BoundController[Any], ...]
    webhooks: tuple[WebhookServer, ...]

    @classmethod
    def built(cls, build: Callable[[Client], Any], client: Client) -> Program:
        """Call `build`. Raises what it raises, TypeError and ValueError for what it must not return."""
        made = build(client)
        bound = controllers_of(made, client.config.cluster_url)
        servers = made.servers if isinstance(made, Manager) else ()
        return cls(made, tuple(bound), tuple(server for server in servers if isinstance(server, WebhookServer)))

    def plans(self) -> list[Plan]:
        """What the controllers watch and do."""
        return [one.controller.plan() for one in self.controllers]

    def definitions(self) -> list[Object]:
        """The definitions of the program's own kinds: of the classes that its controllers watch and between which its
        webhooks convert."""
        classes = dict.fromkeys(kinds_of([*self.controllers]))
        for server in self.webhooks:
            for handler in server.app.handlers.values() if isinstance(server.app, Application) else ():
                classes |= dict.fromkeys(handler.classes if isinstance(handler, Conversion) else ())
        return [msgspec.to_builtins(made) for made in definitions_of(classes)]

    def watched(self) -> list[tuple[ApiResource, tuple[str, ...] | None]]:
        """The declared kinds, each with the namespaces in which it is watched (None: all)."""
        found: dict[str, tuple[ApiResource, set[str] | None]] = {}
        for resource, namespace in self._declared():
            known = found.get(resource.full_name)
            if namespace is None or (known is not None and known[1] is None):
                found[resource.full_name] = resource, None
            else:
                places = (known[1] if known is not None else None) or set()
                found[resource.full_name] = (known[0] if known is not None else resource), {*places, namespace}
        return [(resource, None if places is None else tuple(sorted(places))) for resource, places in found.values()]

    @staticmethod
    def watched_by(plan: Plan) -> list[ApiResource]:
        """The kinds that a controller watches."""
        return [api.resource for watch in (plan.main, *plan.related) if isinstance(watch, WatchPlan)
                for api in apis_of(watch.api)]

    def _declared(self) -> Iterator[tuple[ApiResource, str | None]]:
        for plan in self.plans():
            for watch in (plan.main, *plan.related):
                for api in apis_of(watch.api) if isinstance(watch, WatchPlan) else ():
                    yield api.resource, api.namespace
            for kind in getattr(plan, "reads", ()):  # kinds that a controller declares without watching them
                yield api_resource_of(kind), None

    def namespaces(self) -> tuple[str, ...] | None:
        """The namespaces to which the program keeps; None when it watches everywhere."""
        found: set[str] = set()
        for resource, namespaces in self.watched():
            if namespaces is None and resource.namespaced:
                return None
            found |= set(namespaces or ())
        return tuple(sorted(found)) or None

    def not_run(self) -> list[str]:
        """What of it is not run, in words."""
        found = [f"the function {name} of its Manager" for name in
                 (self.made.runnables() if isinstance(self.made, Manager) else ())]
        return found + [f"the trigger sources of controller {plan.name}" for plan in self.plans()
                        if plan.triggers or plan.bulk_triggers]

    def prefixes(self, configurations: list[Object]) -> dict[str, WebhookServer]:
        """Where the cluster calls its webhooks: by what the program says, else by the paths that the configurations
        and definitions of the cluster name."""
        found: dict[str, WebhookServer] = {}
        for server in self.webhooks:
            if server.service:
                namespace, _, name = server.service.partition("/")
                found[f"https://{name.partition(':')[0]}.{namespace}.svc"] = server
            if server.url:
                found[server.url.rstrip("/")] = server
            if server.service or server.url or not isinstance(server.app, Application):
                continue
            for config in _client_configs(configurations):
                prefix, path = _called(config)
                if any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in server.app.handlers):
                    found.setdefault(prefix, server)
        return found


def addresses(configuration: Object) -> list[str]:
    """The addresses that a webhook configuration calls."""
    return [*dict.fromkeys(prefix for config in _client_configs([configuration])
                           if (prefix := _called(config)[0]).startswith("https://") and prefix != "https://")]


def allow_all(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    """The WSGI application in the place of a webhook that is not there: it allows everything, and changes nothing."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    review = msgspec.json.decode(body)
    answer = {"apiVersion": review.get("apiVersion"), "kind": review.get("kind"),
              "response": {"uid": review["request"]["uid"], "allowed": True}}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [msgspec.json.encode(answer)]


def _client_configs(objects: list[Object]) -> Iterator[Object]:
    for obj in objects:
        for hook in obj.get("webhooks") or ():
            yield hook.get("clientConfig") or {}
        webhook = (((obj.get("spec") or {}).get("conversion") or {}).get("webhook")) or {} \
            if obj.get("kind") == "CustomResourceDefinition" else {}
        if webhook.get("clientConfig"):
            yield webhook["clientConfig"]


def _called(config: Object) -> tuple[str, str]:
    """The address and the path that a clientConfig calls."""
    if service := config.get("service"):
        return f"https://{service.get('name')}.{service.get('namespace')}.svc", service.get("path") or "/"
    parts = urlsplit(config.get("url") or "")
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"
