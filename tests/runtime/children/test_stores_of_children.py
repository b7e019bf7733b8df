"""Which stores a reconciler has of what its controller owns: whole objects, or metadata that is typed as such."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import (
    Api,
    Context,
    Controller,
    PartialObjectMeta,
    Patch,
    RequestError,
    WatcherConfig,
    owner_of,
    strip_managed_fields,
)
from kubectl_runtime.controller import Children
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap, Deployment, Job, Secret
from kubectl_runtime.testing import context_for
from tests.runtime.children.world import Land, Site, World

SPEC: Any = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}


def job(obj: Any, ctx: Context[Any]) -> Children:
    return ctx.ensure(obj, Job(name=f"{obj.name}-job", spec=SPEC))


def owning(*, whole: bool) -> Callable[[Controller[Any]], Controller[Any]]:
    return lambda made: made.owns(Api.all(made.plan().client, Job), whole=whole)


def looked(look: Callable[[Any, Context[Any]], Any], *, whole: bool) -> list[Any]:
    """What `look` finds in runs after the child was made."""
    found: list[Any] = []

    def run(obj: Any, ctx: Context[Any]) -> Children:
        made = job(obj, ctx)
        if made.unchanged:
            found.append(look(obj, ctx))
        return made

    played = World(run, build=owning(whole=whole))
    played.make("a")
    played.make("b")
    assert not played.errors
    return found


def test_whole_objects_are_kept_where_they_are_asked_for() -> None:
    found = looked(lambda obj, ctx: ctx.store(Job).get(f"{obj.name}-job", "default"), whole=True)
    assert isinstance(found[0], Job)
    assert found[0].spec.template.spec.containers[0].image == "i"
    assert found[0].status is not None


def test_metadata_has_a_store_of_its_own_in_either_case() -> None:
    for whole in (False, True):
        found = looked(lambda obj, ctx: ctx.metadata_store(Job).get(f"{obj.name}-job", "default"), whole=whole)
        assert isinstance(found[0], PartialObjectMeta)
        assert found[0].owner_references[0].name == "a"
        with pytest.raises(AttributeError, match="metadata"):
            _ = found[0].status  # type: ignore[attr-defined]


def test_a_store_of_whole_objects_that_is_none_is_refused_with_the_remedy_first() -> None:
    played = World(lambda obj, ctx: (job(obj, ctx), ctx.store(Job))[0], build=owning(whole=False))
    played.make()
    error = played.errors["a"][0]
    assert isinstance(error, RequestError)
    sentence = str(error).partition(". ")[0]
    assert "owns(api, whole=True)" in sentence
    assert "ctx.metadata_store(Job)" in sentence


def test_asking_for_metadata_by_its_class_is_asking_for_metadata() -> None:
    found = looked(lambda _, ctx: len(ctx.store(PartialObjectMeta.of(Job.api_resource))), whole=False)
    assert found[-1] == 2


@pytest.mark.parametrize("whole", [False, True])
def test_children_are_those_of_the_owner_by_the_index(whole: bool) -> None:
    found = looked(lambda obj, ctx: (obj.name, [(type(one), one.name) for one in ctx.children(Job)]), whole=whole)
    kind = Job if whole else PartialObjectMeta
    for name, children in found:
        assert [one for _, one in children] == [f"{name}-job"]
        assert issubclass(children[0][0], kind)


def test_children_of_any_owner_reference_count_and_of_another_life_do_not() -> None:
    found: list[list[str]] = []

    def run(obj: Any, ctx: Context[Any]) -> Children:
        found.append(sorted(one.name for one in ctx.children(ConfigMap)))
        return Children()

    played = World(run, ConfigMap)
    site = played.make()
    for name, owner in (("x", site), ("y", site)):
        one = ConfigMap(name=name)
        one.set_owner(owner, controller=name == "x")
        played.api(ConfigMap).create(one)
    played.settle()
    assert found[-1] == ["x", "y"]
    played.api(Site).delete("a", propagation_policy="Orphan")
    played.make()
    assert found[-1] == []


def test_what_is_not_watched_has_no_children() -> None:
    played = World(lambda obj, ctx: (ctx.children(Secret), Children())[1], ConfigMap)
    played.make()
    assert "does not watch secrets" in str(played.errors["a"][0])


@pytest.mark.parametrize("api", [
    lambda client: Api.all(client, Job).with_metadata_only(),
    lambda client: Api.all(client, Job).with_fields(type("View", (PartialView,), {}, frozen=True))])
def test_whole_of_a_part_is_refused(api: Callable[[Any], Any]) -> None:
    with pytest.raises(RequestError, match="selects only parts of objects"):
        World(job, build=lambda made: made.owns(api(made.plan().client), whole=True))


def test_whole_and_a_view_in_the_configuration_are_refused_and_so_is_a_text_for_a_flag() -> None:
    view = type("View", (PartialView,), {}, frozen=True)
    with pytest.raises(RequestError, match="selects only parts of objects"):
        World(job, build=lambda made: made.owns(Api.all(made.plan().client, Job), whole=True,
                                                watch=WatcherConfig(fields=view)))
    with pytest.raises(RequestError, match="whole must be True or False, not 'no'"):
        World(job, build=lambda made: made.owns(Api.all(made.plan().client, Job), whole="no"))  # type: ignore[arg-type]


def test_managed_fields_cannot_be_stripped_off_what_is_owned() -> None:
    with pytest.raises(TypeError):
        World(job, build=lambda made: made.owns(
            Api.all(made.plan().client, Job), modify=strip_managed_fields))  # type: ignore[call-arg]


def test_where_another_watch_strips_them_the_server_is_asked() -> None:
    """The owners are of the children's own kind, and kept without managedFields."""
    def copy(obj: Any, ctx: Context[Any]) -> Children:
        if obj.owner_references:
            return Children()
        return ctx.ensure(obj, Site(name=f"{obj.name}-copy", spec={"a": "1"}))

    played = World(copy, modify=strip_managed_fields)
    played.make()
    with played.sent() as sent:
        played.api(Site).patch("a", Patch.merge({"spec": {"x": "1"}}))
        played.settle()
    assert sent == ["GET a-copy"]
    owned = World(copy, Site, modify=strip_managed_fields)
    owned.make()
    with owned.sent() as sent:
        owned.api(Site).patch("a", Patch.merge({"spec": {"x": "1"}}))
        owned.settle()
    assert sent == []


def test_owner_of_is_a_ready_mapper() -> None:
    mapper = owner_of(Site)
    child = ConfigMap(name="x", namespace="default")
    assert mapper(child) == []
    child.metadata.owner_references = [
        reference(kind, name)
        for kind, name in (("Site", "a"), ("Land", "l"), ("Site", "b"), ("Site", "a"))]
    assert [str(ref) for ref in mapper(child)] == [
        "Site.v1.children.example.com/a.default", "Site.v1.children.example.com/b.default"]
    assert [ref.namespace for ref in owner_of(Land)(child)] == [None]
    with pytest.raises(RequestError):
        owner_of("Site")  # type: ignore[arg-type]


def reference(kind: str, name: str) -> Any:
    from kubectl_runtime import OwnerReference

    return OwnerReference(api_version="children.example.com/v2", kind=kind, name=name, uid=f"uid-{name}")


def test_a_unit_test_sees_what_ensure_does() -> None:
    played = World(lambda obj, ctx: Children(), ConfigMap)
    site = played.make()
    ctx = context_for(site, client=played.user, kinds=[ConfigMap])
    assert len(ctx.ensure(site, ConfigMap(name="x", data={"a": "1"}), prune=True).created) == 1
    there = played.api(ConfigMap).get("x")
    ctx = context_for(site, client=played.user, stored=[there])
    assert [one.name for one in ctx.children(ConfigMap)] == ["x"]
    assert [one.name for one in ctx.metadata_store(ConfigMap)] == ["x"]
    assert [ref.name for ref in ctx.ensure(site, prune=True).pruned] == ["x"]
    assert played.api(ConfigMap).get_opt("x") is None


def test_deployments_of_two_owners_in_one_store() -> None:
    played = World(lambda obj, ctx: ctx.ensure(obj, Deployment(name=obj.name, spec={  # type: ignore[arg-type]
        "selector": {"matchLabels": {"app": obj.name}}, "template": {
            "metadata": {"labels": {"app": obj.name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}})),
        Deployment)
    played.make("a")
    played.make("b")
    assert {one.name for one in played.api(Deployment).list()} == {"a", "b"}
