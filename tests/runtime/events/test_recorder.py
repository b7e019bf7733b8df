"""What a Recorder tells the server, against the embedded one: Events, series, limits, refusals."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Api, ObjectRef, Patch, Recorder, RequestError
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.resources import ConfigMap, Namespace, Node
from kubectl_runtime.runtime.events import Reference
from tests.runtime.events.events_cluster import EVENT, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_event_says_what_happened_to_which_object(cluster: Cluster) -> None:
    cluster.recorder.publish(cluster.obj, "BackupFailed", "the bucket is full", warning=True, action="Backup",
                             related=ObjectRef.of(Node, "n"))
    assert cluster.recorder.flush(1)
    (event,) = cluster.events
    assert event["regarding"] == {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a",
                                  "uid": cluster.obj.uid}
    assert event["related"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}
    told = {key: event[key] for key in ("type", "reason", "action", "note", "reportingController", "reportingInstance",
                                        "eventTime")}
    assert told == {"type": "Warning", "reason": "BackupFailed", "action": "Backup", "note": "the bucket is full",
                    "reportingController": "example.com/op", "reportingInstance": "op-1",
                    "eventTime": "2026-01-01T00:00:00.000000Z"}
    name, _, digits = event["metadata"]["name"].rpartition(".")
    assert (name, len(digits)) == ("a", 24)
    assert "series" not in event


def test_publishing_sends_nothing_itself(cluster: Cluster) -> None:
    cluster.publish()
    assert (cluster.sent, cluster.recorder.waiting) == ([], 1)


def test_what_repeats_is_one_event_with_a_rising_count(cluster: Cluster) -> None:
    cluster.publish()
    assert cluster.recorder.flush(1)
    cluster.clock.advance(30)
    cluster.publish()
    assert cluster.recorder.flush(1)
    (event,) = cluster.events
    assert event["series"] == {"count": 2, "lastObservedTime": "2026-01-01T00:00:30.000000Z"}
    cluster.publish(3)
    assert cluster.recorder.flush(1)
    (event,) = cluster.events
    assert (event["series"]["count"], event["note"]) == (5, "note 0")
    assert cluster.sent == ["POST", "PATCH", "PATCH"]


def test_what_repeats_before_it_is_sent_is_told_by_one_request(cluster: Cluster) -> None:
    cluster.publish(500)
    cluster.drive(10)
    assert (cluster.counts, cluster.sent) == ([500], ["POST"])


def test_what_repeats_all_the_time_is_told_less_and_less_often_but_never_wrongly(cluster: Cluster) -> None:
    for _ in range(3600):
        cluster.publish()
        cluster.drive(1)
    assert len(cluster.sent) <= 22
    cluster.drive(300)
    assert cluster.counts == [3600]


def test_after_six_minutes_of_silence_a_new_event_begins(cluster: Cluster) -> None:
    for silence, counts in ((0, [1]), (359, [2]), (361, [1, 2]), (600, [1, 1, 2])):
        cluster.clock.advance(silence)
        cluster.publish()
        assert cluster.recorder.flush(1)
        assert cluster.counts == counts


@pytest.mark.parametrize("other", [{"reason": "Other"}, {"warning": True}, {"action": "Else"},
                                   {"related": ObjectRef.of(Node, "n")}, {"regarding": ObjectRef.of(Node, "n")}])
def test_events_that_differ_in_more_than_the_note_are_told_apart(cluster: Cluster, other: dict[str, Any]) -> None:
    cluster.publish(2)
    cluster.publish(1, **other)
    assert cluster.recorder.flush(1)
    assert cluster.counts == [1, 2]


def test_versions_of_one_object_are_one_object(cluster: Cluster) -> None:
    cluster.publish()
    maps = Api.namespaced(cluster.client, ConfigMap, "default")
    cluster.obj.metadata.labels = {"v": "2"}
    newer = maps.replace(cluster.obj)
    cluster.publish(regarding=newer)
    cluster.publish(regarding=newer.to_dict())
    cluster.publish(regarding=Api.namespaced(cluster.client, ConfigMap, "default").with_metadata_only().get("a"))
    assert cluster.recorder.flush(1)
    assert cluster.counts == [4]


def test_events_of_cluster_scoped_objects_are_in_default(cluster: Cluster) -> None:
    namespaces = Api.all(cluster.client, Namespace)
    cluster.publish(regarding=namespaces.create(Namespace(name="shop")))
    assert cluster.recorder.flush(1)
    (event,) = cluster.events
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


def test_a_long_note_is_cut_on_a_character_and_marked(cluster: Cluster) -> None:
    cluster.recorder.publish(cluster.obj, "Long", "x" * 5000)
    cluster.recorder.publish(cluster.obj, "Wide", "😀" * 1000)
    cluster.recorder.publish(cluster.obj, "R" * 200, "é", action="ä" * 100)
    cluster.recorder.publish(cluster.obj, "", "\ud800 is not text")
    assert cluster.recorder.flush(1)
    notes = {event["reason"]: event["note"] for event in cluster.events}
    assert (len(notes["Long"].encode()), notes["Long"][-1]) == (1024, "…")
    assert notes["Wide"] == "😀" * 255 + "…"
    assert notes["R" * 128] == "é"
    assert notes["Unspecified"] == "? is not text"
    assert cluster.sent == ["POST"] * 4


def test_a_part_of_an_object_is_named(cluster: Cluster) -> None:
    part = Reference.of(cluster.obj)._replace(field_path="data{x}")
    cluster.publish(regarding=part)
    assert cluster.recorder.flush(1)
    assert cluster.events[0]["regarding"]["fieldPath"] == "data{x}"


# Limits


def test_one_object_gets_25_new_events_at_once_and_then_one_every_five_minutes(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        cluster.publish(2, reason=f"R{number}")
    assert cluster.recorder.flush(60)
    assert cluster.counts == [2] * 25
    assert cluster.recorder.lost == {"spam": 10}
    assert len(warnings(caplog)) == 1
    cluster.publish(regarding=ObjectRef.of(Node, "another"))
    cluster.clock.advance(300)
    cluster.publish(1, reason="S1")
    cluster.publish(1, reason="S2")
    assert cluster.recorder.flush(60)
    assert cluster.recorder.lost == {"spam": 11}
    assert len(cluster.counts) == 27


def test_a_thousand_events_of_one_object_are_few_requests_and_none_is_forgotten(cluster: Cluster) -> None:
    """A loop that fails hot: half of what it says is alike but for the note, half is each time something else."""
    for number in range(500):
        cluster.publish(1, reason="Failed")
        cluster.publish(1, reason=f"Failed{number}")
        cluster.drive(0.02)
    assert cluster.recorder.flush(60)
    assert cluster.counts == [1] * 24 + [500]
    assert cluster.recorder.lost == {"spam": 476}
    assert len(cluster.sent) <= 25 + 6  # the creates, and the count after 1, 3, 7, ... s


def test_an_object_with_no_more_new_events_still_counts_what_repeats() -> None:
    cluster = Cluster(burst=1)
    cluster.publish()
    cluster.publish(1, reason="Other")
    cluster.publish(5)
    assert cluster.recorder.flush(60)
    assert (cluster.counts, cluster.recorder.lost) == ([6], {"spam": 1})


def test_a_full_queue_drops_new_events_counts_them_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(queue=3)
    for number in range(10):
        cluster.publish(2, regarding=ObjectRef.of(ConfigMap, f"m{number}", "default"))
    assert cluster.recorder.lost == {"full": 14}
    assert [text for text in warnings(caplog) if "too many were waiting" in text] == warnings(caplog)
    assert len(warnings(caplog)) == 1
    assert cluster.recorder.flush(10)
    assert cluster.counts == [2, 2, 2]
    cluster.publish(regarding=ObjectRef.of(ConfigMap, "m9", "default"))
    assert cluster.recorder.flush(10)
    assert cluster.counts == [1, 2, 2, 2]


@pytest.mark.parametrize("numbers", [{"queue": 0}, {"burst": 0}, {"refill": 0}, {"queue": 1.5}])
def test_numbers_that_make_no_sense_are_refused(cluster: Cluster, numbers: Any) -> None:
    with pytest.raises(RequestError, match="queue >= 1"):
        Recorder(cluster.client, "op", **numbers)
    with pytest.raises(RequestError, match="cannot name a controller"):
        Recorder(cluster.client, "é")


# Refusals and failures


def test_an_event_that_is_gone_is_followed_by_a_new_one_for_the_rest(cluster: Cluster) -> None:
    cluster.publish(3)
    assert cluster.recorder.flush(1)
    (event,) = cluster.events
    Api.namespaced(cluster.others, EVENT, "default").delete(event["metadata"]["name"])
    cluster.clock.advance(60)
    cluster.publish(2)
    assert cluster.recorder.flush(1)
    (new,) = cluster.events
    assert (new["series"]["count"], new["eventTime"]) == (2, "2026-01-01T00:01:00.000000Z")
    assert new["metadata"]["name"] != event["metadata"]["name"]


def test_an_event_that_somebody_changed_is_left_alone(cluster: Cluster) -> None:
    cluster.publish(2)
    assert cluster.recorder.flush(1)
    theirs = {"series": {"count": 40, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}}
    Api.namespaced(cluster.others, EVENT, "default").patch(cluster.events[0]["metadata"]["name"],
                                                              Patch.merge(theirs))
    cluster.publish()
    assert cluster.recorder.flush(1)
    assert cluster.counts == [1, 40]


def test_a_missing_right_is_warned_of_once_and_disturbs_nobody(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.server.faults.on("create").status(403)
    for number in range(20):
        cluster.publish(reason=f"R{number}")
        assert cluster.recorder.flush(1)
    (warning,) = warnings(caplog)
    assert "create and patch events in the group events.k8s.io" in warning
    assert cluster.recorder.lost == {"refused": 20}
    assert cluster.sent == ["POST"] * 20


def test_counts_that_may_not_be_patched_are_kept_for_the_day_they_may(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.publish()
    assert cluster.recorder.flush(1)
    forbidden = cluster.server.faults.on("patch").status(403)
    for _ in range(100):
        cluster.publish()
        cluster.drive(3)
    assert len(warnings(caplog)) == 1
    assert forbidden.taken < 12
    assert cluster.recorder.lost["refused"] + cluster.recorder.waiting == 100
    cluster.server.faults.clear()
    cluster.publish()
    assert cluster.recorder.flush(1)
    assert (cluster.counts, cluster.recorder.lost) == ([102], {})


def test_a_namespace_that_goes_is_no_reason_for_a_warning(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    namespaces = Api.all(cluster.client, Namespace)
    namespaces.create(Namespace(name="shop"))
    held = Api.namespaced(cluster.client, ConfigMap, "shop").create(ConfigMap(name="x", finalizers=["a.b/c"]))
    namespaces.delete("shop")
    cluster.server.requests.clear()
    cluster.publish(regarding=held)
    cluster.publish(regarding=ObjectRef.of(ConfigMap, "x", "never-there"))
    assert cluster.recorder.flush(1)
    assert [entry.status for entry in cluster.server.requests] == [403, 404]
    assert (caplog.records, cluster.recorder.lost) == ([], {"refused": 2})


def test_a_server_that_cannot_be_reached_delays_events_and_loses_none(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    down = cluster.server.faults.on("create").drop()
    cluster.publish(3)
    cluster.publish(1, reason="Other")
    cluster.drive(1800)
    assert cluster.recorder.waiting == 4
    assert 60 < down.taken < 130
    cluster.server.faults.clear()
    cluster.drive(31)
    assert (cluster.counts, cluster.recorder.lost, warnings(caplog)) == ([1, 3], {}, [])


def test_an_error_that_does_not_pass_is_given_up_after_twelve_tries(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    broken = cluster.server.faults.on("create").status(500)
    cluster.publish()
    cluster.drive(3600)
    assert (broken.taken, cluster.recorder.lost) == (12, {"refused": 1})
    assert len(warnings(caplog)) == 1


def test_what_the_server_asks_to_wait_is_waited(cluster: Cluster) -> None:
    cluster.server.faults.on("create").first(1).throttle(77)
    cluster.publish()
    cluster.drive(76)
    assert cluster.counts == []
    cluster.drive(2)
    assert cluster.counts == [1]


def test_publishing_never_raises_and_says_what_is_wrong(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise SystemExit

    for nothing in (None, "a", ConfigMap, {"kind": "X"}, object()):
        cluster.recorder.publish(nothing, "Failed", "x")
    cluster.recorder.publish(cluster.obj, "Failed", Hostile())  # type: ignore[arg-type] # that is the point
    cluster.recorder.publish(cluster.obj, "Failed", "x", warning="no")  # type: ignore[arg-type] # no text is a boolean
    assert cluster.recorder.lost == {"invalid": 7}
    assert any("Reference(api_version, kind, name" in text for text in warnings(caplog))
    assert cluster.recorder.waiting == 0


# The end


def test_closing_sends_what_waits_and_takes_nothing_more(cluster: Cluster) -> None:
    cluster.publish()
    assert cluster.recorder.flush(1)
    cluster.publish(4)
    assert cluster.recorder.close(5)
    assert cluster.counts == [5]
    cluster.publish()
    assert (cluster.recorder.lost, cluster.recorder.close(5)) == ({"closed": 1}, True)
    assert cluster.counts == [5]


def test_closing_gives_up_in_time_and_says_how_much_is_lost(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.server.faults.on("create").status(500)
    cluster.publish(3)
    assert not cluster.recorder.close(5)
    assert cluster.clock.monotonic() == pytest.approx(5)
    assert cluster.recorder.lost == {"closed": 3}
    assert any("3 because the recorder was closed" in text for text in warnings(caplog))


def test_a_recorder_closed_before_its_first_event_takes_none(cluster: Cluster) -> None:
    with cluster.recorder:
        pass
    cluster.publish()
    assert (cluster.recorder.lost, cluster.sent) == ({"closed": 1}, [])


LOSSES: dict[str, Callable[[Rule], Rule]] = {
    "lost": lambda rule: rule.lose_answer(),
    "504": lambda rule: rule.status(504, handled=True),
    "etcd's 500": lambda rule: rule.status(500, message="etcdserver: request timed out", handled=True),
    "503": lambda rule: rule.status(503),
    "503 with Retry-After": lambda rule: rule.status(503, headers={"Retry-After": "7"}),
    "refused": lambda rule: rule.drop()}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("verb", ["create", "patch"])
def test_what_becomes_of_a_request_is_counted_once_however_its_answer_is_lost(cluster: Cluster, verb: str, how: str
                                                                              ) -> None:
    lost = LOSSES[how](cluster.server.faults.on(verb).first(2))
    cluster.publish(3)
    cluster.drive(60)
    cluster.publish(4)
    assert cluster.recorder.flush(60)
    assert lost.taken == 2
    assert cluster.counts == [7]


@pytest.mark.parametrize("code", [502, 503, 504])
def test_an_outcome_that_stays_unknown_is_given_up_after_twelve_tries(cluster: Cluster, code: int) -> None:
    broken = cluster.server.faults.on("create").status(code)
    cluster.publish()
    cluster.drive(3600)
    assert (broken.taken, cluster.recorder.lost) == (12, {"refused": 1})
