"""What comes to a controller through its inbox, and of which urgency it is."""
from __future__ import annotations

import logging
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.store.reflector import StoreWriter
from kubectl_runtime.runtime.triggers.triggers import EVERYTHING_REF, FirstList, Inbox, ReconcileRequest
from kubectl_runtime.runtime.watch.driver import reader_of
from tests.runtime.scripted_cluster import Cluster, Parent

A, B = (ObjectRef(Parent.api_resource, name, "default") for name in "ab")


def test_everything_is_bulk_and_what_stands_beside_it_is_not() -> None:
    scheduled: list[ReconcileRequest] = []
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    cluster = Cluster()
    records = [cluster.put(Parent, name) for name in "ab"]
    writer.replace({record.ref.key: record for record in records}, {})
    inbox = Inbox(Parent.api_resource, writer.store, scheduled.extend, logger=guarded_logger(__name__),
                  on_bug=lambda what, error: logging.error("%s", what, exc_info=error))
    inbox.sink([ReconcileRequest(A, "changed"), ReconcileRequest(EVERYTHING_REF)])
    inbox.trigger_everything()
    inbox.trigger(B)
    assert [(request.ref.name, request.bulk) for request in scheduled] == [
        ("a", False), ("a", True), ("b", True), ("a", True), ("b", True), ("b", False)]


def test_the_first_list_of_a_watch_that_comes_later_is_bulk_and_its_changes_are_not() -> None:
    passed: list[ReconcileRequest] = []
    complete: list[str] = []
    first = FirstList(passed.extend, lambda: complete.append("complete"))
    first.sink([ReconcileRequest(A, "listed", ("uid", "1")), ReconcileRequest(B)])
    first.completed()
    first.sink([ReconcileRequest(A, "changed")])
    assert passed == [ReconcileRequest(A, "listed", ("uid", "1"), bulk=True), ReconcileRequest(B, bulk=True),
                      ReconcileRequest(A, "changed")]
    assert complete == ["complete"]


POD = ApiResource("", "v1", "Pod", "pods")


def inbox_of(scheduled: list[ReconcileRequest], **scope: Any) -> Inbox:
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    return Inbox(Parent.api_resource, writer.store, scheduled.extend, logger=guarded_logger(__name__),
                 on_bug=lambda what, error: logging.error("%s", what, exc_info=error), **scope)


@pytest.mark.parametrize("ref", [ObjectRef(POD, "a", "default"), ObjectRef(Parent.api_resource, "a", None),
                                 ObjectRef(ApiResource("other.io", "v1", "Parent", "parents"), "a", "default")])
def test_a_ref_that_can_never_be_the_controllers_is_logged_once(
        ref: ObjectRef, caplog: pytest.LogCaptureFixture) -> None:
    scheduled: list[ReconcileRequest] = []
    inbox = inbox_of(scheduled)
    for number in range(50):
        inbox.sink([ReconcileRequest(ObjectRef(ref.resource, f"n{number}", ref.namespace), "related"),
                    ReconcileRequest(A, "changed")])
    assert len(caplog.records) == 1
    assert "ignoring a trigger (related) and all others like it" in caplog.records[0].message
    assert len(scheduled) == 50  # those beside it go through


def test_a_ref_outside_of_a_pattern_is_logged_once_for_each_namespace(caplog: pytest.LogCaptureFixture) -> None:
    scheduled: list[ReconcileRequest] = []
    inbox = inbox_of(scheduled, pattern="team-*")
    sink = inbox.sink_of("the mapper")
    for namespace in ("team-a", "other", "team", "other", "xteam-a"):
        sink([ReconcileRequest(ObjectRef(Parent.api_resource, "a", namespace), "related")])
    assert [request.ref.namespace for request in scheduled] == ["team-a"]
    assert [record.message.split("; ignoring its triggers in ")[-1] for record in caplog.records] == [
        "other", "team", "xteam-a"]
    with pytest.raises(RequestError, match=r"in none of the controller's namespaces, team-\*"):
        inbox.trigger(ObjectRef(Parent.api_resource, "a", "other"))
