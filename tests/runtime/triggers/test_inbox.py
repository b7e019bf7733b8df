"""What comes to a controller through its inbox, and of which urgency it is."""
from __future__ import annotations

import logging

from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.store.store_writer import StoreWriter
from kubectl_runtime.runtime.triggers.triggers import EVERYTHING_REF, FirstList, Inbox, ReconcileRequest
from kubectl_runtime.runtime.watch.driver import reader_of
from tests.runtime.fake_cluster import FakeCluster, Parent

A, B = (ObjectRef(Parent.api_resource, name, "default") for name in "ab")


def test_everything_is_bulk_and_what_stands_beside_it_is_not() -> None:
    scheduled: list[ReconcileRequest] = []
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    cluster = FakeCluster()
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
