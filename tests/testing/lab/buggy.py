"""Small controllers, each with one of the bugs that perturbation has to find, and the stories that lead them on.

Each pair of functions is a `build` and a `story` that a command line can name.
"""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    BoundController,
    Client,
    Context,
    Controller,
    CustomResource,
    ObjectRef,
    Patch,
    WatcherConfig,
    finalizer,
    predicates,
)
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.watch import ListSemantic

DONE = Action.await_change()
MINE = "example.com/mine"


class SiteSpec(msgspec.Struct):
    size: int = 1
    pages: list[str] = []


class SiteStatus(msgspec.Struct):
    phase: str = ""


class Site(CustomResource, group="example.com", version="v1", kind="Site"):
    spec: SiteSpec
    status: SiteStatus | None = None


def sites(client: Client) -> Api[Site]:
    return Api.namespaced(client, Site, "default")


def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def child(obj: Site, name: str | None = None, **data: str) -> ConfigMap:
    made = ConfigMap(name=name or obj.name, namespace="default", data=data or {"size": str(obj.spec.size)},
                     labels={MINE: obj.uid})
    made.set_owner(obj)
    return made


def generated(obj: Site) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"generateName": f"{obj.name}-", "namespace": "default",
                                             "labels": {MINE: obj.uid}}, "data": {"size": str(obj.spec.size)}})


def ready(obj: Site, client: Client, phase: str = "Ready") -> None:
    sites(client).patch_status(obj.name, Patch.merge({"status": {"phase": phase}}))


def bound(client: Client, reconcile: Any, **options: Any) -> BoundController[Site]:
    return Controller(Api.all(client, Site), **options).owns(Api.all(client, ConfigMap)).bind(reconcile)


# --- stories ---


def create(client: Client) -> None:
    sites(client).create(Site(name="a", spec=SiteSpec()))


def create_and_delete(client: Client) -> None:
    create(client)
    sites(client).delete("a")


def create_and_grow(client: Client) -> None:
    create(client)
    sites(client).patch("a", Patch.merge({"spec": {"size": 2}}))


def two_and_one_less(client: Client) -> None:
    create(client)
    sites(client).create(Site(name="b", spec=SiteSpec()))
    sites(client).delete("a")


def pages_come_and_go(client: Client) -> None:
    sites(client).create(Site(name="a", spec=SiteSpec(pages=["one", "two"])))
    sites(client).patch("a", Patch.merge({"spec": {"pages": ["two"]}}))


def there_and_back(client: Client) -> None:
    create(client)
    sites(client).patch("a", Patch.merge({"spec": {"size": 5}}))
    sites(client).patch("a", Patch.merge({"spec": {"size": 1}}))


# --- bugs ---


def create_that_fails_the_second_time(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if obj.status is None or obj.status.phase != "Ready":
            maps(ctx.client).create(child(obj))
            ready(obj, ctx.client)
        return DONE

    return bound(client, reconcile)


def status_before_child(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if obj.status is None or obj.status.phase != "Ready":
            ready(obj, ctx.client)
            maps(ctx.client).apply(child(obj), field_manager="sites")
        return DONE

    return bound(client, reconcile)


def trust_in_the_store_after_a_restart(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if not ctx.store(ConfigMap).filter(lambda one: one.labels.get(MINE) == obj.uid):
            maps(ctx.client).create(generated(obj))
        ready(obj, ctx.client)
        return DONE

    return Controller(Api.all(client, Site)).watches(
        Api.all(client, ConfigMap), lambda one: [], watch=WatcherConfig(list_semantic=ListSemantic.ANY)).bind(reconcile)


def acting_on_the_reason(client: Client) -> BoundController[Site]:
    """It restores a child whose deletion it hears of; one that goes while it is not there stays away."""
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if obj.status is None or "related object deleted" in ctx.reason:
            maps(ctx.client).apply(child(obj), field_manager="sites")
            ready(obj, ctx.client)
        return DONE

    return bound(client, reconcile)


def create_and_lose_the_child(client: Client) -> None:
    create(client)
    maps(client).delete("a")


ACCOUNTS: set[str] = set()
"""Something outside of the cluster."""


def open_accounts(client: Client) -> None:
    ACCOUNTS.clear()
    create_and_delete(client)


def cleanup_that_works_once(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        def apply(obj: Site) -> Action:
            ACCOUNTS.add(obj.name)
            return DONE

        def cleanup(obj: Site) -> Action:
            ACCOUNTS.remove(obj.name)
            return DONE

        return finalizer(sites(ctx.client), "example.com/account", obj, apply=apply, cleanup=cleanup)

    return bound(client, reconcile)


def generated_name_without_a_look(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if obj.status is None:
            maps(ctx.client).create(generated(obj))
            ready(obj, ctx.client)
        return DONE

    return bound(client, reconcile)


def adopting_by_memory(client: Client) -> BoundController[Site]:
    """It deletes what it remembers to have made."""
    made: dict[str, set[str]] = {}

    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        mine = made.setdefault(obj.uid, set())
        for page in mine - set(obj.spec.pages):
            maps(ctx.client).delete(f"{obj.name}-{page}")
            mine.remove(page)
        for page in obj.spec.pages:
            maps(ctx.client).apply(child(obj, f"{obj.name}-{page}", page=page), field_manager="sites")
            mine.add(page)
        return DONE

    return bound(client, reconcile)


def counting_in_memory(client: Client) -> BoundController[Site]:
    seen: set[str] = set()

    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        seen.add(obj.uid)
        total = ConfigMap(name="total", namespace="default", data={"sites": str(len(seen))})
        maps(ctx.client).apply(total, field_manager="sites")
        return DONE

    return bound(client, reconcile)


def finalizer_removed_before_cleanup(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        secrets = Api.namespaced(ctx.client, Secret, "kube-public")  # out of reach for an owner reference
        if obj.deletion_timestamp is None:
            sites(ctx.client).patch(obj.name, Patch.merge({"metadata": {"finalizers": ["example.com/secret"]}}))
            secrets.apply(Secret(name=obj.name), field_manager="sites")
            return DONE
        sites(ctx.client).patch(obj.name, Patch.merge({"metadata": {"finalizers": None}}))
        secrets.delete(obj.name)
        return DONE

    return bound(client, reconcile)


def ignoring_a_conflict(client: Client) -> BoundController[Site]:
    """What it did not write it will not be told of: only new generations lead to a run."""
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        try:
            obj["metadata"]["annotations"] = {"example.com/state": "begun"}
            sites(ctx.client).replace(obj)
            maps(ctx.client).apply(child(obj), field_manager="sites")
        except ApiError as error:
            if not error.is_conflict:
                raise
        return DONE

    return bound(client, reconcile, predicate=predicates.generation)


def deletions_heard_and_not_looked_for(client: Client) -> BoundController[Site]:
    """The child has no owner, and goes when the deletion of the site is heard of."""
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        maps(ctx.client).apply(ConfigMap(name=obj.name, namespace="default", data={"a": "b"}), field_manager="sites")
        return DONE

    def gone(ref: ObjectRef, ctx: Context[Any]) -> None:
        maps(ctx.client).delete(ref.name)

    return Controller(Api.all(client, Site)).on_gone(gone).bind(reconcile)


def high_water_mark_of_what_it_saw(client: Client) -> BoundController[Site]:
    """The most that was ever asked for, as far as it was seen."""
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        before = maps(ctx.client).get_opt(obj.name)
        most = max(obj.spec.size, int((before.data or {}).get("size", 0)) if before else 0)
        maps(ctx.client).apply(child(obj, size=str(most)), field_manager="sites")
        return DONE

    return bound(client, reconcile)


# --- and controllers without one ---


def right(client: Client) -> BoundController[Site]:
    """The child first, then the status; both may be done again."""
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        if obj.deletion_timestamp is None:
            wanted = {f"{obj.name}-{page}": page for page in obj.spec.pages} or {obj.name: str(obj.spec.size)}
            for name, text in wanted.items():
                maps(ctx.client).apply(child(obj, name, text=text), field_manager="sites")
            for one in maps(ctx.client).list().items:
                if one.labels.get(MINE) == obj.uid and one.name not in wanted:
                    maps(ctx.client).delete(one.name)
            if obj.status is None or obj.status.phase != "Ready":
                ready(obj, ctx.client)
        return DONE

    return bound(client, reconcile)


def right_with_an_account(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        def apply(obj: Site) -> Action:
            ACCOUNTS.add(obj.name)
            return DONE

        def cleanup(obj: Site) -> Action:
            ACCOUNTS.discard(obj.name)
            return DONE

        return finalizer(sites(ctx.client), "example.com/account", obj, apply=apply, cleanup=cleanup)

    return bound(client, reconcile)
