"""Which versions a run made: what it sent is compared with what was stored."""
from __future__ import annotations

import json
from typing import Any

import pytest

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.queue.own_writes import RunWrites, stood_there
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")


def stored(version: str, uid: str = "u", **content: Any) -> Record:
    metadata = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": version, "labels": {"x": "y"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
    return decode_object(json.dumps(body).encode(), KIND)


BEFORE = stored("5", spec={"replicas": 3, "list": [{"name": "a", "port": 1}], "on": True}, status={"phase": "Failed"})


@pytest.mark.parametrize(("sent", "same"), [
    ({"status": {"phase": "Failed"}}, True),
    ({"status": {"phase": "Ready"}}, False),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "4"},
      "spec": {"replicas": 3}}, True),
    ({"spec": {"list": [{"name": "a"}]}}, True),
    ({"spec": {"list": [{"name": "b"}]}}, False),
    ({"spec": {"gone": None}}, True),
    ({"spec": {"replicas": None}}, False),
    ({"spec": {"on": 1}}, False),
    ({"metadata": {"labels": {"x": "y"}}}, True),
    ({"metadata": {"labels": {"x": "z"}}}, False),
    ([{"op": "test", "path": "/spec", "value": 7}, {"op": "replace", "path": "/spec/replicas", "value": 3}], True),
    ([{"op": "add", "path": "/spec/list/-", "value": 3}], False),
    ([{"op": "replace", "path": "/spec/list/0/port", "value": 1}], True),
    ([{"op": "remove", "path": "/metadata/labels/x"}], False),
    ([{"op": "remove", "path": "/metadata/labels/q"}], True),
    ([{"op": "move", "path": "/spec", "from": "/status"}], False),
])
def test_what_would_change_nothing_is_told_from_what_does(sent: Any, same: bool) -> None:
    assert stood_there(BEFORE, json.dumps(sent).encode()) is same


def test_a_replace_that_is_answered_with_the_version_it_was_read_at_changed_nothing() -> None:
    for version, ours in (("6", True), ("7", False)):  # read at 7, where somebody else had already changed it
        writes = RunWrites()
        body = {"metadata": {"name": "a", "resourceVersion": version}, "spec": {"replicas": 9}}
        writes.add(write("7", sent=body, verb="replace"), BEFORE)
        assert (("u", "7") in writes.changes()) is ours


def test_what_cannot_be_compared_counts_as_a_change() -> None:
    assert not stood_there(BEFORE, b"spec: {}\n")
    assert not stood_there(Record(BEFORE.head, KIND, b"", view=object()), b"{}")


def write(version: str, *, uid: str = "u", sent: Any = None, verb: str = "patch", record: bool = True) -> Write:
    return Write(ObjectRef(KIND, "a", "default"), verb, version, uid, stored(version, uid) if record else None,
                 sent=None if sent is None else json.dumps(sent).encode())


def test_a_write_that_is_answered_with_the_stored_version_changed_nothing() -> None:
    writes = RunWrites()
    writes.add(write("5", sent={"status": {"phase": "Failed"}}), BEFORE)
    assert writes.changes() == {}
    assert writes.last == []


def test_a_write_without_effect_that_is_answered_with_a_newer_version_met_somebody_elses() -> None:
    writes = RunWrites()
    writes.add(write("6", sent={"status": {"phase": "Failed"}}), BEFORE)
    assert writes.changes() == {}
    writes.add(write("7", sent={"status": {"phase": "Ready"}}), BEFORE)
    assert writes.changes() == {("u", "7"): None}


def test_creations_recreations_and_what_is_not_watched_are_ours() -> None:
    writes = RunWrites()
    writes.add(write("1", sent={"spec": {}}, verb="create"), None)
    writes.add(write("9", uid="other", sent={"status": {"phase": "Failed"}}), BEFORE)
    assert writes.changes() == {("u", "1"): None, ("other", "9"): None}


def test_the_end_of_an_object_that_was_deleted_is_ours_whatever_its_version() -> None:
    writes = RunWrites()
    writes.add(write("", verb="delete", record=False), BEFORE)
    assert writes.changes() == {("u", ""): None}


def test_a_write_whose_answer_names_no_object_is_nobodys() -> None:
    writes = RunWrites()
    writes.add(write("", uid="", record=False, verb="create"), None)
    writes.add(write("", record=False, verb="create"), None)
    assert len(writes) == 0


def run_that(known: dict[str, Record]) -> Run:
    run = Run(("", "ConfigMap", "default", "a"), ReconcileRequest(ObjectRef(KIND, "a", "default")), None, 0.0)
    run.known = lambda ref: known.get(ref.name)
    return run


@pytest.mark.parametrize("new", [False, True])
def test_a_change_that_the_watch_shows_before_it_is_answered_is_ones_own_all_the_same(new: bool) -> None:
    known = {} if new else {"a": stored("5")}
    run = run_that(known)
    run.begins_write(None if new else ObjectRef(KIND, "a", "default"))
    known["a"] = stored("6")  # its watch was faster than the answer
    run.wrote(write("6"))
    assert list(run.own_changes()) == [("u", "6")]


def test_a_write_that_changed_nothing_is_nobodys_also_when_it_was_announced() -> None:
    run = run_that({"a": stored("5")})
    run.begins_write(ObjectRef(KIND, "a", "default"))
    run.wrote(write("5"))
    assert not len(run.writes)


def test_what_was_stored_before_one_write_says_nothing_of_the_next() -> None:
    known = {"a": stored("5")}
    run = run_that(known)
    run.begins_write(ObjectRef(KIND, "a", "default"))
    run.wrote(write("6"))
    known["a"] = stored("6")
    run.wrote(write("6"))  # of somebody who announces nothing
    assert list(run.own_changes()) == [("u", "6")]
