"""Triggers: from events to refs."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.triggers import streams
from kubectl_runtime.runtime.triggers.triggers import (
    Reason,
    ReconcileRequest,
    Subscription,
    trigger_others,
    trigger_owners,
    trigger_self,
)
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, InitApply
from tests.runtime.watch.scripted_watch import THING, Foo, Thing, broken, thing

FOO = Foo.api_resource


def owner(kind: str, name: str, api_version: str = "test.example/v1", uid: str = "u") -> dict[str, object]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def child(*owners: dict[str, object], name: str = "child") -> Thing:
    return Thing.from_record(thing(name, 7, ownerReferences=list(owners)))


def refs(subscription: Subscription, event: Event[Thing]) -> list[ObjectRef]:
    return [request.ref for request in subscription(event)]


def test_an_object_asks_for_itself_with_the_version_that_caused_it() -> None:
    obj = Thing.from_record(thing("a", 7))
    ref = ObjectRef(THING, "a", "default")
    assert list(trigger_self(Thing)(Apply(obj))) == [ReconcileRequest(ref, Reason.OBJECT_UPDATED, ("uid-a", "7"))]
    assert list(trigger_self(THING)(Delete(obj))) == [ReconcileRequest(ref, Reason.OBJECT_DELETED, ("uid-a", "7"))]


@pytest.mark.parametrize(
    "subscription", [trigger_self(Thing), trigger_owners(Foo), trigger_others(lambda obj: obj.ref)]
)
@pytest.mark.parametrize("event", [INIT, INIT_DONE])
def test_events_without_an_object_trigger_nothing(subscription: Subscription, event: Event[Thing]) -> None:
    assert list(subscription(event)) == []


def test_a_request_has_the_version_and_scope_of_the_controllers_own_kind() -> None:
    own = ApiResource("test.example", "v2", "Thing", "things")
    (request,) = trigger_self(own)(Apply(Thing.from_record(thing("a"))))
    assert request.ref.resource is own


def test_an_undecodable_object_still_asks_for_itself() -> None:
    obj = reader_of(Thing)(broken("bad", 3))
    assert refs(trigger_self(Thing), Apply(obj)) == [ObjectRef(THING, "bad", "default")]
    assert refs(trigger_owners(Foo), Apply(obj)) == []
    assert refs(trigger_others(lambda obj: obj.spec["boom"]), Apply(obj)) == []


def test_a_cluster_scoped_owner_gets_no_namespace() -> None:
    assert refs(trigger_owners(Foo), Apply(child(owner("Foo", "f")))) == [ObjectRef(FOO, "f", None)]


def test_a_namespaced_owner_lives_in_the_childs_namespace() -> None:
    assert refs(trigger_owners(Thing), Apply(child(owner("Thing", "t")))) == [ObjectRef(THING, "t", "default")]


def test_group_and_kind_of_an_owner_decide_and_its_version_does_not() -> None:
    obj = child(owner("Thing", "older", "test.example/v1beta1"), owner("Thing", "other-group", "other.example/v1"),
                owner("Other", "other-kind"), owner("Thing", "core", "v1"))
    (request,) = trigger_owners(Thing)(Apply(obj))
    assert request.ref == ObjectRef(THING, "older", "default")
    assert request.ref.resource.version == "v1"
    assert request.reason == Reason.RELATED_OBJECT_UPDATED


def test_a_deleted_child_asks_for_its_owners_too() -> None:
    (request,) = trigger_owners(Thing)(Delete(child(owner("Thing", "t"))))
    assert request.reason == Reason.RELATED_OBJECT_DELETED


@pytest.mark.parametrize(("found", "expected"), [(None, 0), ((), 0), (ObjectRef(FOO, "f"), 1),
                                                 ([ObjectRef(FOO, "f"), ObjectRef(FOO, "g")], 2), (child(), 1),
                                                 ([child(), ObjectRef(FOO, "f")], 2), (child().ref, 1)])
def test_a_mapper_names_none_one_or_many(found: Any, expected: int) -> None:
    assert len(refs(trigger_others(lambda obj: found), InitApply(child()))) == expected


@pytest.mark.parametrize("found", ["f", ["f"], 5, [FOO], ObjectRef(Foo, "f"), type(child())])  # type: ignore[arg-type]
def test_a_mapper_that_returns_something_else_is_told_what_to_return(found: Any) -> None:
    with pytest.raises(TypeError, match=r"a mapper must return ObjectRefs \(ObjectRef\.of\(Kind, name, namespace\)\)"):
        refs(trigger_others(lambda obj: found), InitApply(child()))


def test_an_object_that_a_mapper_returns_stands_for_itself() -> None:
    assert refs(trigger_others(lambda obj: child()), InitApply(child())) == [child().ref]


def test_the_stream_form_lives_on_when_a_mapper_raises(caplog: pytest.LogCaptureFixture) -> None:
    def mapper(obj: Thing) -> list[ObjectRef]:
        if obj.name == "bad":
            raise SystemExit(1)
        return [obj.ref]

    events = [Apply(child(name=name)) for name in ("bad", "good")]
    assert [request.ref.name for request in streams.trigger_others(iter(events), mapper)] == ["good"]
    assert "mapper raised SystemExit" in caplog.text


def test_the_stream_forms_do_what_the_subscriptions_do() -> None:
    events = [INIT, InitApply(child(owner("Foo", "f"))), INIT_DONE]
    assert [r.ref for r in streams.trigger_self(events, Thing)] == [ObjectRef(THING, "child", "default")]
    assert [r.ref for r in streams.trigger_owners(events, Foo)] == [ObjectRef(FOO, "f")]


def test_an_owner_that_lost_its_child_hears_of_it() -> None:
    before = child(owner("Thing", "old"), owner("Thing", "both"))
    now = child(owner("Thing", "both"), owner("Thing", "new"))
    assert [ref.name for ref in refs(trigger_owners(Thing), Apply(now, before))] == ["both", "new", "old"]


def test_a_mapper_sees_the_previous_state_too_and_nothing_is_asked_for_twice() -> None:
    before, now = child(owner("Foo", "f"), owner("Foo", "g")), child(owner("Foo", "g"))

    def mapper(obj: Thing) -> list[ObjectRef]:
        return [ObjectRef(FOO, reference.name) for reference in obj.owner_references]

    assert [ref.name for ref in refs(trigger_others(mapper), Apply(now, before))] == ["g", "f"]


def test_an_undecodable_previous_state_is_not_looked_at() -> None:
    before = reader_of(Thing)(broken("child", 3))
    assert refs(trigger_owners(Foo), Apply(child(owner("Foo", "f")), before)) == [ObjectRef(FOO, "f")]
