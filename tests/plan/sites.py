"""An operator of Sites in many versions. Each version differs from the running one in one respect."""
from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Controller,
    Conversion,
    CustomResource,
    Manager,
    Patch,
    WebhookServer,
)
from kubectl_runtime.crd import Rule, rules
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, Secret, Service
from kubectl_runtime.webhooks import SelfSigned, application

NAME = {"group": "plan.example.com", "kind": "Site"}


class Spec(Struct):
    image: str = "nginx:1"
    replicas: int = 2
    text: str = "hello"


class Status(Struct):
    url: str = ""
    phase: str = ""


class Site(CustomResource, **NAME, version="v1"):
    spec: Spec
    status: Status | None = None


@rules(Rule("self.replicas <= 5", message="at most five"))
class RuledSpec(Struct):
    image: str = "nginx:1"
    replicas: int = 2
    text: str = "hello"


class RuledSite(CustomResource, **NAME, version="v1"):
    spec: RuledSpec
    status: Status | None = None


class NewSpec(Struct):
    picture: str = "nginx:1"
    replicas: int = 2
    text: str = "hello"


class OldSite(CustomResource, **NAME, version="v1", storage=False):
    spec: Spec
    status: Status | None = None


class NewSite(CustomResource, **NAME, version="v2"):
    spec: NewSpec
    status: Status | None = None


class NarrowSpec(Struct):
    image: str = "nginx:1"
    replicas: int = 2


class NarrowSite(CustomResource, **NAME, version="v1"):
    spec: NarrowSpec
    status: Status | None = None


@dataclass
class Version:
    """What one version of the operator wants of a Site. Hooks change the wanted children in place."""

    change: Callable[[dict[str, Any], Any], None] = lambda _children, _site: None
    kind: Any = Site
    finalizer: bool = False
    before: Callable[[Any, Any], Any] | None = None
    """Runs first; an Action ends the run."""
    extra: dict[str, Any] = field(default_factory=dict)
    webhooks: bool = False
    ensure: bool = False
    """Children are written by ctx.ensure with prune, not by applies and deletions."""
    steps: tuple[Callable[[dict[str, Any], Any], None], ...] = ()
    """Changes after `change`."""
    failing: set[str] = field(default_factory=set)
    """The Sites whose last run raised."""

    def build(self, client: Client) -> Any:
        controller = Controller(Api.all(client, self.kind), name="site").owns(Api.all(client, Deployment))
        controller = controller.owns(Api.all(client, ConfigMap)).owns(Api.all(client, Service))
        controller = controller.owns(Api.all(client, Secret))
        bound: BoundController[Any] = controller.bind(self.reconcile)
        if not self.webhooks:
            return bound
        app = application({"/convert": Conversion({(OldSite, NewSite): to_new, (NewSite, OldSite): to_old})})
        manager = Manager(client, serve=None)
        manager.add(bound)
        return manager.add_server(WebhookServer(app, "127.0.0.1:0", client=client, configuration="sites",
                                                certificates=SelfSigned(service="ops/sites")))

    def reconcile(self, site: Any, ctx: Any) -> Action:
        self.failing.add(site.name)
        answer = self._reconcile(site, ctx)
        self.failing.discard(site.name)
        return answer

    def _reconcile(self, site: Any, ctx: Any) -> Action:
        if site.deletion_timestamp:
            return Action.await_change()
        if self.before is not None and (answer := self.before(site, ctx)) is not None:
            return answer  # type: ignore[no-any-return]
        api = Api.namespaced(ctx.client, self.kind, site.namespace)
        if self.finalizer and "plan.example.com/clean" not in site.finalizers:
            api.patch(site.name, Patch.merge({"metadata": {"finalizers": ["plan.example.com/clean"]}}))
        children = wanted(site)
        for step in (self.change, *self.steps):
            step(children, site)
        if self.ensure:
            ctx.ensure(site, *(obj for key, obj in children.items() if not obj.get("absent") and key != "namespace"),
                       prune=True)
        for key, obj in children.items() if not self.ensure else ():
            kind: Any = {"Deployment": Deployment, "Service": Service, "ConfigMap": ConfigMap, "Secret": Secret,
                         "Namespace": Namespace}[obj["kind"]]
            if obj.get("absent"):
                Api.namespaced(ctx.client, kind, site.namespace).delete(obj["metadata"]["name"]) \
                    if Api.namespaced(ctx.client, kind, site.namespace).get_opt(obj["metadata"]["name"]) else None
            elif key == "namespace":
                Api.all(ctx.client, kind).apply(obj, field_manager="site", force=True)
            else:
                Api.namespaced(ctx.client, kind, site.namespace).apply(obj, field_manager="site", force=True)
        status = {"url": f"http://{site.name}.{site.namespace}", **self.extra}
        if any(getattr(site.status, key, None) != value for key, value in status.items()):
            api.patch_status(site.name, Patch.merge({"status": status}))
        return Action.await_change()


def to_new(old: Any) -> Any:
    return NewSite(metadata=old.metadata, spec=NewSpec(old.spec.image, old.spec.replicas, old.spec.text),
                   status=old.status)


def to_old(new: Any) -> Any:
    return OldSite(metadata=new.metadata, spec=Spec(new.spec.picture, new.spec.replicas, new.spec.text),
                   status=new.status)


def owner_of(obj: Any) -> list[dict[str, Any]]:
    return [{"apiVersion": obj.api_resource.api_version, "kind": obj.api_resource.kind, "name": obj.name,
             "uid": obj.uid, "controller": True, "blockOwnerDeletion": True}]


def wanted(site: Any) -> dict[str, Any]:
    image = getattr(site.spec, "image", None) or site.spec.picture
    labels = {"app": site.name}
    meta = {"name": site.name, "namespace": site.namespace, "labels": {**labels, "team": "web"},
            "ownerReferences": owner_of(site)}
    return {
        "config": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(meta),
                   "data": {"text": getattr(site.spec, "text", "none"), "mode": "plain"}},
        "secret": {"apiVersion": "v1", "kind": "Secret", "metadata": dict(meta), "data": {"token": "c2VjcmV0LXRva2Vu"}},
        "service": {"apiVersion": "v1", "kind": "Service", "metadata": dict(meta),
                    "spec": {"selector": dict(labels), "ports": [{"name": "web", "port": 80}]}},
        "deployment": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": dict(meta), "spec": {
            "replicas": site.spec.replicas, "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": {"containers": [
                {"name": "web", "image": image, "env": [{"name": "A", "value": "1"}]},
                {"name": "side", "image": "side:1"}]}}}}}


def template(children: dict[str, Any]) -> dict[str, Any]:
    return children["deployment"]["spec"]["template"]  # type: ignore[no-any-return]


def other_image(children: dict[str, Any], _site: Any) -> None:
    template(children)["spec"]["containers"][0]["image"] = "nginx:2"


def other_label(children: dict[str, Any], _site: Any) -> None:
    children["service"]["metadata"]["labels"]["team"] = "shop"


def label_gone(children: dict[str, Any], _site: Any) -> None:
    del children["config"]["metadata"]["labels"]["team"]


def annotation(children: dict[str, Any], _site: Any) -> None:
    children["service"]["metadata"]["annotations"] = {"example.com/a.b": "1"}


def other_selector(children: dict[str, Any], _site: Any) -> None:
    children["deployment"]["spec"]["selector"] = {"matchLabels": {"app.kubernetes.io/name": "x"}}
    template(children)["metadata"]["labels"] = {"app.kubernetes.io/name": "x"}


def service_selector(children: dict[str, Any], site: Any) -> None:
    children["service"]["spec"]["selector"] = {"application": site.name}


def removed_child(children: dict[str, Any], _site: Any) -> None:
    children["config"]["absent"] = True


def renamed_child(children: dict[str, Any], site: Any) -> None:
    old = children["config"]
    children["renamed"] = {**old, "metadata": {**old["metadata"], "name": f"{site.name}-settings"}}
    children["config"] = {**old, "absent": True}


def other_owner(children: dict[str, Any], site: Any) -> None:
    children["config"]["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Namespace", "name": site.namespace,
         "uid": "11111111-1111-1111-1111-111111111111"}]


def no_owner(children: dict[str, Any], _site: Any) -> None:
    del children["secret"]["metadata"]["ownerReferences"]


def replicas(children: dict[str, Any], _site: Any) -> None:
    children["deployment"]["spec"]["replicas"] = 4


def fewer_replicas(children: dict[str, Any], _site: Any) -> None:
    children["deployment"]["spec"]["replicas"] = 1


def new_child(children: dict[str, Any], site: Any) -> None:
    meta = {"name": f"{site.name}-new", "namespace": site.namespace, "ownerReferences": owner_of(site)}
    children["new"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}}


def new_namespace(children: dict[str, Any], site: Any) -> None:
    children["namespace"] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns-{site.name}"}}


def other_secret(children: dict[str, Any], _site: Any) -> None:
    children["secret"]["data"] = {"token": "b3RoZXItdG9rZW4=", "more": "bW9yZQ=="}


def container_gone(children: dict[str, Any], _site: Any) -> None:
    del template(children)["spec"]["containers"][1]


def env_added(children: dict[str, Any], _site: Any) -> None:
    template(children)["spec"]["containers"][0]["env"].append({"name": "B", "value": "2"})


def port_changed(children: dict[str, Any], _site: Any) -> None:
    children["service"]["spec"]["ports"] = [{"name": "web", "port": 8080}, {"name": "more", "port": 81}]


def data_gone(children: dict[str, Any], _site: Any) -> None:
    del children["config"]["data"]["mode"]


def strategy(children: dict[str, Any], _site: Any) -> None:
    children["deployment"]["spec"]["strategy"] = {"type": "Recreate", "rollingUpdate": None}
    other_image(children, _site)


def recreated(site: Any, ctx: Any) -> None:
    api = Api.namespaced(ctx.client, Secret, site.namespace)
    there = api.get_opt(site.name)
    if there is not None and "again" not in there.labels:
        api.delete(site.name)
        api.create(Secret(name=site.name, labels={"again": "yes"}))


def fails_for_one(site: Any, _ctx: Any) -> None:
    if site.name == "b":
        raise ValueError(f"cannot handle {site.name}")


def later(site: Any, ctx: Any) -> Any:
    api = Api.namespaced(ctx.client, ConfigMap, site.namespace)
    name = f"{site.name}-later"
    if api.get_opt(name) is None and ctx.client.clock.monotonic() < 400:
        return Action.requeue(120)
    api.apply({"metadata": {"name": name, "ownerReferences": owner_of(site)}, "data": {"x": "y"}}, field_manager="site")
    return None


def after_rollout(children: dict[str, Any], site: Any) -> None:
    other_image(children, site)


def rolled_out(site: Any, ctx: Any) -> Any:
    """An object that comes only when the rollout is over."""
    found = Api.namespaced(ctx.client, Deployment, site.namespace).get_opt(site.name)
    if found is None:
        return None
    whole = found.to_dict()
    image, status = whole["spec"]["template"]["spec"]["containers"][0]["image"], whole.get("status") or {}
    if image == "nginx:2" and status.get("updatedReplicas") == status.get("readyReplicas") == site.spec.replicas and (
            status.get("replicas") == site.spec.replicas):
        Api.namespaced(ctx.client, ConfigMap, site.namespace).apply(
            {"metadata": {"name": f"{site.name}-done", "ownerReferences": owner_of(site)}}, field_manager="site")
    return None


# --- building blocks of generated versions ---------------------------------------------------------------------------

CHILDREN = ("config", "secret", "service", "deployment")


def on_meta(key: str, part: str, name: str, value: str | None, children: dict[str, Any], _site: Any) -> None:
    """A label or annotation of a child that gets another value, or none."""
    if key in children:
        found = children[key]["metadata"] = {**children[key]["metadata"]}
        found[part] = {**(found.get(part) or {}), name: value}
        if value is None:
            del found[part][name]


def on_data(key: str, name: str, value: str | None, children: dict[str, Any], _site: Any) -> None:
    """A value of the ConfigMap or Secret; some names are refused by the server."""
    encoded = value if key == "config" or value is None else base64.b64encode(value.encode()).decode()
    found = children[key]["data"] = {**children[key]["data"], name: encoded}
    if value is None:
        del found[name]


def owner_is(key: str, owner: str, children: dict[str, Any], site: Any) -> None:
    """A child without an owner, with one that is no controller, or with one that is gone."""
    found = children[key]["metadata"] = {**children[key]["metadata"]}
    found["ownerReferences"] = [{"apiVersion": "v1", "kind": "Namespace", "name": "default",
                                 "uid": "11111111-1111-1111-1111-111111111111"}]
    if owner == "none":
        del found["ownerReferences"]
    elif owner == "no controller":
        found["ownerReferences"] = [{**owner_of(site)[0], "controller": False}]


def absent(key: str, children: dict[str, Any], _site: Any) -> None:
    children[key]["absent"] = True


def renamed(key: str, suffix: str, children: dict[str, Any], site: Any) -> None:
    old = children[key]
    children[f"{key}-{suffix}"] = {**old, "metadata": {**old["metadata"], "name": f"{site.name}-{suffix}"}}
    children[key] = {**old, "absent": True}


def added(kind: str, suffix: str, children: dict[str, Any], site: Any) -> None:
    meta = {"name": f"{site.name}-{suffix}", "namespace": site.namespace, "ownerReferences": owner_of(site)}
    content = {"Service": {"spec": {"ports": [{"port": 80}]}}}.get(kind, {"data": {}})
    children[f"{kind}-{suffix}"] = {"apiVersion": "v1", "kind": kind, "metadata": meta, **content}


def for_site(name: str, inner: Callable[[dict[str, Any], Any], None], children: dict[str, Any], site: Any) -> None:
    """A change for one Site alone."""
    if site.name == name:
        inner(children, site)


def first(key: str, children: dict[str, Any], _site: Any) -> None:
    """Another order of the writes, which matters when one is refused."""
    rest = {name: children.pop(name) for name in [*children] if name != key}
    children.update(rest)


def raises(name: str, site: Any, _ctx: Any) -> None:
    if site.name == name:
        raise ValueError(f"cannot handle {name}")


def deletes(name: str, policy: str, site: Any, ctx: Any) -> Any:
    """The new version deletes one of its Sites."""
    if site.name != name:
        return None
    ctx.api(type(site)).delete(name, propagation_policy=policy)
    return Action.await_change()


RUNNING = Version()
VERSIONS: dict[str, Version] = {
    "template": Version(other_image), "label": Version(other_label), "label-gone": Version(label_gone),
    "annotation": Version(annotation), "selector": Version(other_selector), "service-selector": Version(
        service_selector), "removed-child": Version(removed_child), "renamed-child": Version(renamed_child),
    "changed-owner": Version(other_owner), "no-owner": Version(no_owner), "more-replicas": Version(replicas),
    "fewer-replicas": Version(fewer_replicas), "new-child": Version(new_child), "new-namespace": Version(new_namespace),
    "secret": Version(other_secret), "container-gone": Version(container_gone), "env": Version(env_added),
    "ports": Version(port_changed), "data-gone": Version(data_gone), "recreate-strategy": Version(strategy),
    "finalizer": Version(finalizer=True), "rule": Version(kind=RuledSite), "status": Version(extra={"phase": "Up"}),
    "recreated": Version(before=recreated), "failing": Version(other_image, before=fails_for_one),
    "later": Version(before=later), "after-rollout": Version(after_rollout, before=rolled_out),
    "schema-loss": Version(kind=NarrowSite), "conversion": Version(kind=NewSite, webhooks=True)}
