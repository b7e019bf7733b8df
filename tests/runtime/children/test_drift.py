"""Whatever others do to a child is seen by its metadata, and mended by one request; what does no harm is left alone."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime import Api, ApiError, Context, Patch
from kubectl_runtime.controller import Children
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, ServiceAccount
from tests.runtime.children.world import Land, Site, World

CONTENT = {"metadata": {"labels": {"app": "a", "tier": "web"}, "annotations": {"note": "ours"}}, "spec": {
    "replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "args": ["x"], "env": [{"name": "A", "value": "1"}],
                                 "resources": {"requests": {"cpu": "1000m"}}}]}}}}


def child(obj: Any, ctx: Context[Any]) -> Children:
    return ctx.ensure(obj, {"apiVersion": "apps/v1", "kind": "Deployment", **CONTENT,
                            "metadata": {**CONTENT["metadata"], "name": "d"}})  # type: ignore[dict-item]


def container(there: Any) -> Any:
    return there["spec"]["template"]["spec"]["containers"][0]


def updated(change: Callable[[Any], object]) -> Callable[[Api[Any]], object]:
    """A read and a replace, as `kubectl edit` and old clients do."""
    def update(api: Api[Any]) -> None:
        there = api.get("d")
        change(there)
        api.replace(there, field_manager="editor")
    return update


def merged(**patch: Any) -> Callable[[Api[Any]], object]:
    return lambda api: api.patch("d", Patch.merge(patch), field_manager="patcher")


def json_patched(*operations: Any) -> Callable[[Api[Any]], object]:
    return lambda api: api.patch("d", Patch.json(operations), field_manager="patcher")


def forced(content: Any) -> Callable[[Api[Any]], object]:
    return lambda api: api.apply({"metadata": {"name": "d"}, **content}, field_manager="rival", force=True)


HARM: dict[str, Callable[[Api[Any]], object]] = {
    "a field, by an edit": updated(lambda there: container(there).update(image="i:2")),
    "a field removed, by an edit": updated(lambda there: container(there).pop("args")),
    "a list item removed": updated(lambda there: container(there).update(env=[])),
    "a list item changed": updated(lambda there: container(there)["env"][0].update(value="2")),
    "a label, by an edit": updated(lambda there: there["metadata"]["labels"].update(tier="db")),
    "the owner reference removed": merged(metadata={"ownerReferences": None}),
    "the owner reference weakened": json_patched(
        {"op": "replace", "path": "/metadata/ownerReferences/0/controller", "value": False}),
    "a label of the selector removed": merged(metadata={"labels": {"app": None}}),
    "all labels removed": merged(metadata={"labels": None}),
    "an annotation": merged(metadata={"annotations": {"note": "theirs"}}),
    "scaled": lambda api: api.patch_scale("d", Patch.merge({"spec": {"replicas": 7}})),
    "scaled by an apply": lambda api: api.apply_scale({"metadata": {"name": "d"}, "spec": {"replicas": 7}},
                                                      field_manager="scaler", force=True),
    "a strategic patch": lambda api: api.patch("d", Patch.strategic({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i:3"}]}}}})),
    "another applier, by force": forced({"spec": {"replicas": 5}}),
    "deleted": lambda api: api.delete("d"),
    "an update under our own name": lambda api: api.patch(
        "d", Patch.merge({"spec": {"replicas": 9}}), field_manager="sites"),
}

NO_HARM: dict[str, Callable[[Api[Any]], object]] = {
    "a field that is not ours": updated(lambda there: there["spec"].update(minReadySeconds=5)),
    "a container beside ours": updated(
        lambda there: there["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s"})),
    "a label beside ours": merged(metadata={"labels": {"theirs": "1"}}),
    "the status": lambda api: api.patch_status("d", Patch.merge({"status": {"replicas": 1}})),
    "the same value, applied by another": forced({"spec": {"replicas": 2}}),
    "another applier's own field": forced({"metadata": {"name": "d", "annotations": {"theirs": "1"}}}),
    "written as it is": updated(lambda there: None),
    "the same, in other units": updated(
        lambda there: container(there)["resources"]["requests"].update(cpu="1")),
}


def holds(wanted: Any, there: Any) -> bool:
    if isinstance(wanted, dict):
        return all(holds(value, there.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return all(any(holds(one, item) for item in there) for one in wanted)
    return bool(wanted == there or {str(wanted), str(there)} == {"1000m", "1"})


def world(*, whole: bool = False) -> World:
    made = World(child, build=lambda made: made.owns(Api.all(made.plan().client, Deployment), whole=whole))
    made.make()
    return made


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("what", HARM)
def test_harm_is_seen_and_mended_by_one_request(what: str, whole: bool) -> None:
    played = world(whole=whole)
    deployments = played.api(Deployment)
    with played.sent() as sent:
        HARM[what](deployments)
        played.settle()
    assert sent == ["PATCH d"]
    there = deployments.get("d").to_dict()
    assert holds(CONTENT, there), there
    assert there["metadata"]["ownerReferences"][0]["controller"] is True


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", [ServiceAccount, ConfigMap, Namespace])
def test_a_child_without_content_gets_its_owner_back(kind: Any, whole: bool) -> None:
    """Nothing on the server shows whose it is, once its owner reference is removed: not even managedFields."""
    played = World(lambda obj, ctx: ctx.ensure(obj, kind(name="x", **({} if kind is Namespace else {
        "namespace": "default"}))), kind=Land,
        build=lambda made: made.owns(Api.all(made.plan().client, kind), whole=whole))
    Api.all(played.user, Land).create(Land(name="l", spec={}))
    played.settle()
    children = Api.all(played.user, kind) if kind is Namespace else played.api(kind)
    with played.sent() as sent:
        children.patch("x", Patch.merge({"metadata": {"ownerReferences": None}}))
        played.settle()
    assert sent == ["PATCH x"]
    assert children.get("x").owner_references[0].name == "l"
    assert not played.errors


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("what", NO_HARM)
def test_what_does_no_harm_is_left_alone(what: str, whole: bool) -> None:
    played = world(whole=whole)
    with played.sent() as sent:
        NO_HARM[what](played.api(Deployment))
        played.settle()
    assert sent == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from([*HARM, *NO_HARM]), st.booleans()), min_size=1, max_size=6),
       st.booleans(), st.booleans())
def test_after_any_of_these_in_any_order_the_child_is_as_wanted(steps: list[tuple[str, bool]], whole: bool,
                                                               slowly: bool) -> None:
    """`slowly`: each is seen by itself, in a second of its own; otherwise several may be seen at once."""
    played = world(whole=whole)
    deployments = played.api(Deployment)
    taken = 0
    for what, waits in steps:
        if deployments.get_opt("d") is None:
            played.settle()
        forced_by_a_rival = what in ("another applier, by force", "scaled by an apply")
        if forced_by_a_rival:
            if taken:  # again within ten minutes is a fight, which has tests of its own
                played.sim.settle(700)
            taken += 1
        with played.sent() as sent:
            try:
                {**HARM, **NO_HARM}[what](deployments)
                is_done = True
            except (ApiError, KeyError, IndexError):  # a second time in a row there is nothing to take away
                is_done = False
            if slowly or waits or forced_by_a_rival:
                played.settle(5)
        if slowly or forced_by_a_rival:
            assert len(sent) == (is_done and what in HARM), (what, sent)
    played.settle(5)
    there = deployments.get("d").to_dict()
    assert holds(CONTENT, there), there
    with played.sent() as sent:
        played.api(Site).patch("a", Patch.merge({"metadata": {"labels": {"x": "1"}}}))
        played.settle()
    assert sent == []
