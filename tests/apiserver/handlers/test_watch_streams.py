"""Watches on simulated time: bookmarks, timeouts, and the ways in which a watch ends."""

from __future__ import annotations

import json

import pytest

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing.clock import SimClock

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture
def core(clock):
    return ApiCore(clock, seed=1, compaction_interval=0)


def ask(core, method, path, body=None, **query):
    data = b"" if body is None else json.dumps(body).encode()
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return core.handle(HttpRequest(method, path, list(query.items()), {"content-type": content_type}, data))


def create(core, name, **metadata):
    return json.loads(ask(core, "POST", CONFIG_MAPS, {"metadata": {"name": name, **metadata}}).body)


def watch(core, **query):
    return ask(core, "GET", CONFIG_MAPS, watch="true", **query).stream


def events(stream):
    """Everything that is ready."""
    found = []
    while (chunk := stream.poll()) is not None:
        found += [json.loads(line) for line in chunk.splitlines()]
    return found


def kinds(stream):
    return [event["type"] for event in events(stream)]


def test_a_bookmark_comes_every_minute_and_two_seconds_before_the_end(core, clock):
    stream = watch(core, allowWatchBookmarks="true", timeoutSeconds="150", resourceVersion=str(core.cluster.storage.rv))
    times = []
    while not stream.closed:
        clock.advance(stream.deadline - clock.monotonic())
        times += [clock.monotonic()] * len(events(stream))
    assert times == [60, 120, 148]
    assert clock.monotonic() == 150


def test_a_bookmark_tells_a_version_up_to_which_the_watch_has_seen_everything(core, clock):
    stream = watch(core, allowWatchBookmarks="true", timeoutSeconds="100", resourceVersion=str(core.cluster.storage.rv))
    ask(core, "POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    create(core, "a")
    clock.advance(60)
    added, bookmark = events(stream)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"] == {"resourceVersion": str(core.cluster.storage.rv)}


def test_without_a_timeout_a_watch_ends_within_an_hour(core, clock):
    stream = watch(core)
    assert 1800 <= stream.deadline - clock.monotonic() <= 3600


def test_nobody_is_told_of_what_does_not_concern_the_watch(core):
    stream = watch(core, fieldSelector="metadata.name=a", resourceVersion=str(core.cluster.storage.rv))
    create(core, "b")
    ask(core, "POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    ask(core, "POST", "/api/v1/namespaces/elsewhere/configmaps", {"metadata": {"name": "a"}})
    assert events(stream) == []


def test_the_reader_is_called_back_after_each_write_without_the_lock(core):
    stream = watch(core, resourceVersion=str(core.cluster.storage.rv))
    free = []
    stream.on_ready(lambda: free.append(core.cluster._depth == 0))
    create(core, "a")
    create(core, "b")
    assert free == [True, True, True]


def test_a_watch_that_is_behind_a_compaction_ends_and_its_successor_hears_why(core):
    rv = core.cluster.storage.rv
    stream = watch(core, resourceVersion=str(rv))
    create(core, "a")
    create(core, "b")
    core.compact()
    create(core, "c")
    assert events(stream) == []
    assert stream.closed
    (error,) = events(watch(core, resourceVersion=str(rv)))
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_watch_that_has_seen_everything_survives_a_compaction(core):
    stream = watch(core, resourceVersion=str(core.cluster.storage.rv))
    create(core, "a")
    assert kinds(stream) == ["ADDED"]
    core.compact()
    create(core, "b")
    assert kinds(stream) == ["ADDED"]


def test_history_is_compacted_on_the_clock_one_interval_late(clock):
    core = ApiCore(clock, compaction_interval=15)
    rv = core.cluster.storage.rv
    create(core, "a")
    clock.advance(15)
    core.tick()
    assert kinds(watch(core, resourceVersion=str(rv))) == ["ADDED"]
    clock.advance(15)
    core.tick()
    assert kinds(watch(core, resourceVersion=str(rv))) == ["ERROR"]


def test_a_restored_state_ends_watches_and_is_told_to_the_next(core):
    create(core, "a")
    state = core.dump()
    stream = watch(core)
    assert kinds(stream) == ["ADDED"]
    ask(core, "DELETE", f"{CONFIG_MAPS}/a")
    rv = core.cluster.storage.rv
    core.restore(state)
    events(stream)
    assert stream.closed
    assert kinds(watch(core, resourceVersion=str(rv))) == ["ERROR"]
    assert kinds(watch(core)) == ["ADDED"]


def test_a_closed_watch_is_forgotten(core):
    stream = watch(core)
    bucket = core.cluster.storage.bucket("/configmaps")
    assert len(bucket.listeners) == 1
    stream.close()
    assert bucket.listeners == []
    assert stream.poll() is None


def test_a_table_watch_names_its_columns_once(core):
    create(core, "a")
    request = HttpRequest("GET", CONFIG_MAPS, [("watch", "1")],
                          {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    stream = core.handle(request).stream
    create(core, "b")
    first, second = events(stream)
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "b"


def test_a_wide_list_of_changes_comes_in_chunks_that_hold_whole_lines(core):
    stream = watch(core, resourceVersion=str(core.cluster.storage.rv))
    for number in range(300):
        create(core, f"a{number}", annotations={"x": "y" * 1000})
    chunks = []
    while (chunk := stream.poll()) is not None:
        assert chunk.endswith(b"\n")
        chunks.append(chunk)
    assert len(chunks) > 1
    assert sum(chunk.count(b"\n") for chunk in chunks) == 300


def test_watches_are_woken_by_what_a_request_wrote_before_it_was_refused(core):
    first, second = create(core, "a"), create(core, "b")
    stream = watch(core, resourceVersion=second["metadata"]["resourceVersion"])
    woken = []
    stream.on_ready(lambda: woken.append(kinds(stream)))
    refused = core.handle(HttpRequest(
        "DELETE", CONFIG_MAPS, [], {"content-type": "application/json"},
        json.dumps({"preconditions": {"uid": first["metadata"]["uid"]}}).encode()))
    assert refused.status == 409
    assert woken == [[], ["DELETED"]]
