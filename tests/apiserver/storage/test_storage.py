"""The storage against a model: the present, every past, and what a watch is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver import storage as storage_module
from kubectl_runtime.apiserver.storage import Storage, slice_of

KEY = "/configmaps"
WRITES = st.lists(st.tuples(st.sampled_from(("put", "put", "delete", "compact")), st.sampled_from(("a", "a-b", "b")),
                            st.sampled_from(("x", "x-1", "x.1", "y"))), max_size=40)


def put(storage, namespace, name, **fields):
    return storage.put(KEY, {"metadata": {"name": name, "namespace": namespace, **fields}}, {})


@given(WRITES)
def test_every_past_since_the_compaction_is_shown_as_it_was(writes):
    storage = Storage()
    pasts = {storage.rv: {}}
    for what, namespace, name in writes:
        current = storage.get(KEY, namespace, name)
        if what == "put":
            put(storage, namespace, name)
        elif what == "delete" and current is not None:
            storage.delete(KEY, current)
        elif what == "compact":
            storage.compact(storage.rv - 3)
        pasts[storage.rv] = dict(storage.bucket(KEY).objects)
    for rv, objects in pasts.items():
        if rv >= storage.compacted:
            found, keys = storage.snapshot(KEY, rv)
            assert found == objects
            assert keys == sorted(objects)


@given(WRITES)
def test_history_replayed_over_a_past_gives_the_present(writes):
    storage = Storage()
    bucket = storage.bucket(KEY)
    since, shown = storage.rv, {}
    cursor = storage.cursor(bucket, since)
    for what, namespace, name in writes:
        current = storage.get(KEY, namespace, name)
        if what == "put":
            put(storage, namespace, name)
        elif current is not None:
            storage.delete(KEY, current)
    for change in bucket.history[cursor - bucket.base:]:
        assert change.rv == change.new.rv
        if change.deleted:
            del shown[change.new.key]
        else:
            shown[change.new.key] = change.new
    assert shown == bucket.objects


def test_lists_are_in_the_order_of_etcds_keys():
    storage = Storage()
    for namespace, name in (("b", "x"), ("a", "x"), ("a-b", "x"), ("a", "x.1"), ("a", "x-1")):
        put(storage, namespace, name)
    bucket = storage.bucket(KEY)
    keys = [version.key for version in slice_of(bucket.objects, bucket.keys, "")]
    assert keys == ["a-b/x", "a/x", "a/x-1", "a/x.1", "b/x"]
    assert [version.key for version in bucket.scan("a")] == ["a/x", "a/x-1", "a/x.1"]
    assert [version.key for version in slice_of(bucket.objects, bucket.keys, "a", "x-1\0")] == ["a/x.1"]


def test_a_deletion_shows_the_last_state_with_the_version_of_the_deletion():
    storage = Storage()
    version = put(storage, "a", "x", labels={"l": "1"})
    gone = storage.delete(KEY, version)
    assert gone.rv == version.rv + 1
    assert gone.labels == {"l": "1"}
    assert gone.decode()["metadata"]["resourceVersion"] == str(gone.rv)
    assert version.decode()["metadata"]["resourceVersion"] == str(version.rv)


def test_a_reader_that_changes_what_it_read_changes_nothing_stored():
    storage = Storage()
    put(storage, "a", "x")
    storage.get(KEY, "a", "x").decode()["metadata"]["name"] = "changed"
    assert storage.get(KEY, "a", "x").decode()["metadata"]["name"] == "x"


@pytest.mark.parametrize("limit", ["MAX_HISTORY", "MAX_HISTORY_BYTES"])
def test_history_without_compaction_is_bounded(monkeypatch, limit):
    monkeypatch.setattr(storage_module, limit, 100 if limit == "MAX_HISTORY" else 10_000)
    storage = Storage()
    for _ in range(1000):
        put(storage, "a", "x")
    assert len(storage.bucket(KEY).history) <= 150
    assert storage.compacted > 0


def test_a_dump_put_back_expires_what_was_before():
    storage = Storage()
    put(storage, "a", "x")
    state = storage.dump()
    put(storage, "a", "y")
    storage.load(state, rv=storage.rv + 1)
    assert [version.name for version in storage.bucket(KEY).scan("")] == ["x"]
    assert storage.compacted == storage.rv
    storage.load(state)
    assert storage.rv == state[0]
