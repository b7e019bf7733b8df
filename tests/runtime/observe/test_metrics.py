"""What `Metrics` counts and how it shows it: in simulation, where times are exact, and as real parsers read it."""
from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from kubectl_runtime.core.base.errors import RequestError, RequestTimeout
from kubectl_runtime.core.base.observer import METHODS, Observer, RunResult, callbacks
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.runtime.observe.families import RECONCILE_TIME, RUN, WORK_QUEUE, Histogram, Kind
from kubectl_runtime.runtime.observe.metrics import FAMILIES, Metrics
from kubectl_runtime.runtime.observe.series import MANY
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from tests.runtime.observe.scrapes import PARENTS, Rig, families, samples
from tests.runtime.scripted_cluster import Parent

KEY = ("default", "a")


def test_metrics_of_a_controller_exist_at_zero_before_its_first_reconcile() -> None:
    rig = Rig()
    rig.start(concurrency=7)
    found = samples(rig.text)
    of_controller = {name: value for (name, labels), value in found.items() if ("controller", "c") in labels}
    ones = {"controller_runtime_max_concurrent_reconciles": 7, "kubectl_runtime_controller_running": 1}
    assert {name: value for name, value in of_controller.items() if value} == ones
    # Every one that controller-runtime has of a controller and its queue, and every label that dashboards ask for.
    assert {"controller_runtime_reconcile_errors_total", "controller_runtime_terminal_reconcile_errors_total",
            "controller_runtime_reconcile_panics_total", "controller_runtime_reconcile_timeouts_total",
            "controller_runtime_active_workers", "controller_runtime_reconcile_time_seconds_count",
            "workqueue_adds_total", "workqueue_queue_duration_seconds_sum", "workqueue_work_duration_seconds_bucket",
            "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
            "workqueue_retries_total", "workqueue_depth"} <= set(of_controller)
    results = {dict(labels)["result"] for name, labels in found if name == "controller_runtime_reconcile_total"}
    assert results == {"success", "error", "requeue", "requeue_after"}
    assert (("controller", "c"), ("name", "c"), ("priority", "")) in {labels for name, labels in found
                                                                       if name == "workqueue_depth"}


def test_the_buckets_are_those_of_controller_runtime_and_of_the_work_queue_of_client_go() -> None:
    rig = Rig()
    rig.start()
    bounds: dict[str, list[float]] = {}
    for name, labels in samples(rig.text):
        if name.endswith("_bucket"):
            bounds.setdefault(name, []).append(float(dict(labels)["le"]))
    infinite = float("inf")
    assert sorted(bounds["controller_runtime_reconcile_time_seconds_bucket"]) == [*RECONCILE_TIME, infinite]
    assert len(RECONCILE_TIME) == 40
    for name in ("workqueue_queue_duration_seconds_bucket", "workqueue_work_duration_seconds_bucket"):
        assert sorted(bounds[name]) == [*WORK_QUEUE, infinite]
    assert [pytest.approx(1e-8 * 10 ** n) for n in range(12)] == list(WORK_QUEUE)


def test_depth_wait_work_time_unfinished_and_longest_running_follow_the_simulated_clock_exactly() -> None:
    rig = Rig()
    for name in "abc":
        rig.cluster.put(Parent, name)
    seen: list[tuple[float | None, ...]] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        rig.sim.clock.advance(3)
        seen.append((rig.of_queue("longest_running_processor_seconds"), rig.of_queue("unfinished_work_seconds"),
                     rig.value("workqueue_depth", name="c", controller="c", priority=""),
                     rig.value("controller_runtime_active_workers", controller="c")))
        return Action.requeue(100)

    rig.start(reconcile, concurrency=1)
    rig.sim.settle()
    assert seen == [(3, 3, 2, 1), (3, 3, 1, 1), (3, 3, 0, 1)]
    assert rig.of_queue("queue_duration_seconds_sum") == 0 + 3 + 6
    assert rig.of_queue("work_duration_seconds_sum") == 9
    assert rig.value("controller_runtime_reconcile_time_seconds_sum", controller="c") == 9
    bucket = "controller_runtime_reconcile_time_seconds_bucket"
    assert (rig.value(bucket, controller="c", le="2.5"), rig.value(bucket, controller="c", le="3.0")) == (0, 3)
    bucket = "workqueue_work_duration_seconds_bucket"
    assert [rig.value(bucket, name="c", controller="c", le=bound) for bound in ("1.0", "10.0", "+Inf")] == [0, 3, 3]
    assert rig.value("controller_runtime_reconcile_total", controller="c", result="requeue_after") == 3
    assert rig.of_queue("adds_total") == 3 + 3  # triggered, and requeued
    assert rig.value("controller_runtime_active_workers", controller="c") == 0


def test_unfinished_work_is_the_sum_of_the_runs_in_progress_and_longest_running_the_oldest_one() -> None:
    rig = Rig()
    rig.metrics.run_started("c", ("default", "a"), "r", 0.0, 0, 0.0)
    rig.sim.clock.advance(4)
    rig.metrics.run_started("c", ("default", "b"), "r", 0.0, 0, 4.0)
    rig.sim.clock.advance(1)
    assert rig.of_queue("unfinished_work_seconds") == 5 + 1
    assert rig.of_queue("longest_running_processor_seconds") == 5


def test_an_older_depth_does_not_take_the_place_of_a_newer_one() -> None:
    rig = Rig()
    rig.metrics.keys_triggered("c", 5, 5, 2.0)
    rig.metrics.run_started("c", KEY, "r", 0.0, 4, 3.0)
    rig.metrics.keys_triggered("c", 1, 9, 1.0)  # told late
    assert rig.value("workqueue_depth", name="c", controller="c", priority="") == 4


def test_failures_retries_terminal_errors_and_what_did_not_run_are_told_apart() -> None:
    rig = Rig()
    for name in ("fails", "broken", "well"):
        rig.cluster.put(Parent, name)
    outcomes: list[Exception | None] = [ValueError("one"), RequestTimeout("two"), None]

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name == "fails" and (error := outcomes.pop(0)) is not None:
            raise error
        if obj.name == "broken":
            raise DecodeError(obj.ref, "$.spec", "it is not what it should be")
        return Action.await_change()

    controller = rig.start(reconcile)
    rig.sim.settle(20)
    controller.trigger(ObjectRef(Parent.api_resource, "missing", "default"))
    controller.trigger(ObjectRef(Parent.api_resource, "broken", "default"))
    rig.sim.settle()

    def total(result: str) -> float | None:
        return rig.value("controller_runtime_reconcile_total", controller="c", result=result)

    assert total("success") == 3  # fails at last, well, and missing, of which nothing is left to do
    assert total("error") == 4
    assert rig.value("controller_runtime_reconcile_errors_total", controller="c") == 4
    assert rig.value("controller_runtime_terminal_reconcile_errors_total", controller="c") == 2  # a trigger is news
    assert rig.value("controller_runtime_reconcile_timeouts_total", controller="c") == 1
    assert rig.of_queue("retries_total") == 2
    assert rig.value("kubectl_runtime_retry_backoff_seconds_sum", controller="c") == 1 + 2
    assert rig.value("controller_runtime_reconcile_time_seconds_count", controller="c") == 7


def test_what_a_program_may_not_survive_counts_as_a_panic() -> None:
    rig = Rig()
    for error in (SystemExit(1), MemoryError(), ValueError()):
        rig.metrics.run_ended("c", KEY, RunResult.ERROR, 0.1, error)
    assert rig.value("controller_runtime_reconcile_panics_total", controller="c") == 2


def test_a_watch_shows_its_state_relists_failures_backoff_age_and_objects() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    rig.cluster.failing.add(Parent.api_resource)
    rig.start()
    rig.sim.settle(2.5)

    def of(name: str, **labels: str) -> float | None:
        return rig.value(f"kubectl_runtime_{name}", watch=PARENTS, **labels)

    assert (of("watch_failures_total"), of("watch_consecutive_failures"), of("watch_backoff_seconds")) == (2, 2, 5)
    assert [of("watch_state", state=state) for state in ("listing", "watching", "waiting", "stopped")] == [0, 0, 1, 0]
    assert of("watch_last_frame_age_seconds") == 2.5
    rig.cluster.failing.clear()
    rig.sim.settle(20)
    assert (of("watch_failures_total"), of("watch_consecutive_failures"), of("watch_backoff_seconds")) == (2, 0, 0)
    assert (of("watch_state", state="watching"), of("store_objects"), of("watch_relists_total")) == (1, 1, 0)
    rig.cluster.put(Parent, "b")
    rig.sim.settle()
    assert (of("watch_events_total"), of("store_objects"), of("watch_last_frame_age_seconds")) == (1, 2, 0)
    rig.sim.settle(7)
    assert of("watch_last_frame_age_seconds") == 7
    rig.cluster.put(Parent, "c")
    rig.cluster.compact(Parent)
    rig.sim.settle(20)
    assert of("watch_relists_total") == 1


def test_a_stop_leaves_the_series_and_takes_back_what_was_in_progress() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    controller = rig.start(lambda obj, ctx: Action.requeue(5))
    rig.sim.settle()
    controller.begin_stop()
    rig.sim.settle(1)
    rig.metrics.controller_stopped("c", 2)  # as `Running` tells at its end
    assert rig.value("kubectl_runtime_keys_dropped_total", controller="c") == 0  # a timer is no work that is lost
    assert rig.value("kubectl_runtime_stuck_runs_total", controller="c") == 2
    assert rig.value("kubectl_runtime_controller_running", controller="c") == 0
    assert rig.value("controller_runtime_reconcile_total", controller="c", result="requeue_after") == 1
    assert rig.value("kubectl_runtime_watch_state", watch=PARENTS, state="stopped") == 1
    rig.sim.clock.advance(100)
    assert rig.value("kubectl_runtime_watch_last_frame_age_seconds", watch=PARENTS) == 0


def test_a_watch_that_begins_anew_is_not_as_old_as_its_first_life() -> None:
    rig = Rig()
    rig.start().begin_stop()
    rig.sim.settle(100)
    rig.cluster.failing.add(Parent.api_resource)
    rig.start()
    rig.sim.settle(5)
    assert rig.value("kubectl_runtime_watch_last_frame_age_seconds", watch=PARENTS) == 5


def test_requests_are_counted_by_code_method_and_host_as_client_go_does() -> None:
    rig = Rig()
    rig.metrics.request_attempted("h:443", "PATCH", "apply", "configmaps", 201, 0.3)
    rig.metrics.request_attempted("h:443", "GET", "list", "configmaps", 0, 0.3)
    rig.metrics.request_retried("h:443", "list", "configmaps", 503, 1, 0.2)
    rig.metrics.object_written("configmaps", KEY, "apply", "7")
    rig.metrics.credentials_refreshed("h:443", 0.1, ValueError())
    assert rig.value("rest_client_requests_total", code="201", method="PATCH", host="h:443") == 1
    assert rig.value("rest_client_requests_total", code="<error>", method="GET", host="h:443") == 1
    duration = "rest_client_request_duration_seconds_bucket"
    assert rig.value(duration, verb="PATCH", host="h:443", le="0.25") == 0
    assert rig.value(duration, verb="PATCH", host="h:443", le="0.5") == 1
    assert rig.value("rest_client_request_retries_total", code="503", verb="GET", host="h:443") == 1
    assert rig.value("kubectl_runtime_objects_written_total", resource="configmaps", verb="apply") == 1
    assert rig.value("kubectl_runtime_credential_refreshes_total", host="h:443", result="error") == 1


def test_leadership_is_one_for_the_leader_and_zero_for_who_was() -> None:
    rig = Rig()
    for leading in (True, False):
        rig.metrics.leadership_changed("ns/lease", leading)
        assert rig.value("leader_election_master_status", name="ns/lease") == leading


def test_webhooks_exist_at_zero_before_their_first_request_and_are_counted_as_controller_runtime_does() -> None:
    rig = Rig()
    rig.metrics.webhooks_served(("/a", "/b"))
    named = {name: value for (name, labels), value in samples(rig.text).items() if ("webhook", "/b") in labels}
    assert set(named) == {f"controller_runtime_webhook_{name}" for name in (
        "requests_total", "requests_in_flight", "latency_seconds_bucket", "latency_seconds_count",
        "latency_seconds_sum")}
    assert not any(named.values())
    for code in ("200", "500"):
        assert rig.value("controller_runtime_webhook_requests_total", webhook="/b", code=code) == 0
    rig.metrics.webhook_began("/a")
    rig.metrics.webhook_began("/a")
    rig.metrics.webhook_answered("/a", 413, 0.3)
    assert rig.value("controller_runtime_webhook_requests_total", webhook="/a", code="413") == 1
    assert rig.value("controller_runtime_webhook_requests_in_flight", webhook="/a") == 1
    bounds = [float(dict(labels)["le"]) for name, labels in samples(rig.text)
              if name.endswith("latency_seconds_bucket") and ("webhook", "/a") in labels]
    assert sorted(bounds) == [.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, float("inf")]
    assert [rig.value("controller_runtime_webhook_latency_seconds_bucket", webhook="/a", le=le)
            for le in ("0.25", "0.5")] == [0, 1]


def test_nothing_that_an_observer_is_told_is_left_out() -> None:
    assert [name for name in METHODS if getattr(Metrics, name) is getattr(Observer, name)] == []


def busy() -> Rig:
    """Something in every family, with names that are hard to write."""
    rig = Rig()
    for name in "ab":
        rig.cluster.put(Parent, name)
    rig.start(name='my-ctrl/é "quoted"\\\n')
    rig.sim.settle(1)
    rig.metrics.request_attempted("[::1]:6443", "GET", "list", "pods", 0, 1.0)
    rig.metrics.request_retried("[::1]:6443", "list", "pods", 0, 1, 1.0)
    rig.metrics.object_written("pods", KEY, "apply", "7")
    rig.metrics.credentials_refreshed("[::1]:6443", 0.1, None)
    rig.metrics.leadership_changed("ns/lease", True)
    rig.metrics.webhooks_served(("/quota/validate",))
    return rig


def test_both_parsers_of_prometheus_client_read_every_family_back() -> None:
    rig = busy()
    plain = families(rig.text)
    opened = {family.name: family for family in openmetrics_families(
        openmetrics.generate_latest(rig.metrics.registry).decode())}
    for family in FAMILIES:
        name = family.name.removesuffix("_total")
        for read in (plain[name], opened[name]):
            assert read.type == family.kind.value, family.name
            assert read.samples, family.name
    controllers = {sample.labels["controller"] for sample in plain["controller_runtime_reconcile"].samples}
    assert controllers == {'my-ctrl/é "quoted"\\\n'}


def test_names_and_labels_keep_the_rules_of_prometheus() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", family.name)
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert not re.search(r"_(bucket|count|sum|created|info)$", family.name)
        assert not re.search(r"milli|micro|minutes|hours|kilo|_ms(_|$)", family.name)
        assert family.help.endswith(".")
        if family.kind is Kind.HISTOGRAM:
            assert family.name.endswith("_seconds")
            assert list(family.bounds) == sorted(set(family.bounds))
        for label in family.labels:
            assert re.fullmatch(r"[a-z]+", label)
            assert label not in ("le", "quantile")
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_the_number_of_series_does_not_depend_on_the_number_of_objects() -> None:
    sizes = []
    for objects in (1, 1000):
        rig = Rig()
        for number in range(objects):
            rig.cluster.put(Parent, f"object-{number}")
        rig.start()
        rig.sim.settle(1)
        assert rig.value("kubectl_runtime_store_objects", watch=PARENTS) == objects
        sizes.append(len(samples(rig.text)))
    assert sizes[0] == sizes[1]


def test_two_controllers_of_one_kind_have_series_of_their_own() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    rig.start(name="one")
    rig.start(name="two")
    rig.sim.settle()
    assert [rig.value("controller_runtime_reconcile_total", controller=name, result="success")
            for name in ("one", "two")] == [1, 1]


def test_a_controller_that_is_made_again_counts_on_and_nothing_twice() -> None:
    rig = Rig()
    rig.cluster.put(Parent, "a")
    for _ in range(2):
        controller = rig.start()
        rig.sim.settle()
        controller.begin_stop()
        rig.sim.settle(1)
        rig.metrics.controller_stopped("c", 0)
    assert rig.value("controller_runtime_reconcile_total", controller="c", result="success") == 2
    assert rig.value("kubectl_runtime_controller_running", controller="c") == 0


def test_second_metrics_on_a_registry_are_refused_with_the_remedy_and_possible_after_close() -> None:
    registry = CollectorRegistry()
    first = Metrics(registry)
    with pytest.raises(RequestError, match=r"share one Metrics.*close\(\).*CollectorRegistry\(\)"):
        Metrics(registry)
    first.close()
    Metrics(registry)


def test_the_default_registry_has_the_process_beside_the_controllers() -> None:
    for left in [known for known in REGISTRY._collector_to_names if isinstance(known, Metrics)]:
        left.close()  # of a program that another test ran in this process
    metrics = Metrics()
    try:
        metrics.controller_started("c", 1)
        text = generate_latest(REGISTRY).decode()
        assert 'controller_runtime_active_workers{controller="c"} 0.0' in text
        assert "python_info" in text
    finally:
        metrics.close()


def test_histograms_add_up_whatever_was_counted() -> None:
    rng, rig, total = random.Random(1), Rig(), 0.0
    values = [rng.choice((0.0, 5e-3, 1e-9, 60.0, 61.0, 1e9, rng.expovariate(1))) for _ in range(500)]
    for seconds in values:
        rig.metrics.run_ended("c", KEY, RunResult.SUCCESS, seconds, None)
        total += seconds
    found = samples(rig.text)
    for name in ("controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"):
        buckets = {dict(labels)["le"]: value for (series, labels), value in found.items() if series == f"{name}_bucket"}
        assert {bound: sum(seconds <= float(bound) for seconds in values) for bound in buckets} == buckets
        assert [value for (series, _), value in found.items() if series == f"{name}_sum"] == [pytest.approx(total)]


def test_a_scrape_while_runs_are_counted_shows_no_half_counted_run() -> None:
    """A histogram's count, the results and the work of the queue are of one moment."""
    rig, done = Rig(), threading.Event()
    rig.metrics.controller_started("c", 2)

    def work(name: str) -> None:
        while not done.is_set():
            rig.metrics.run_started("c", ("default", name), "r", 0.0, 0, 0.0)
            rig.metrics.run_ended("c", ("default", name), RunResult.SUCCESS, 0.0, None)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            found = samples(rig.text)
            queue = (("controller", "c"), ("name", "c"))
            begun = found["workqueue_queue_duration_seconds_count", queue]
            ended = found["workqueue_work_duration_seconds_count", queue]
            assert found["controller_runtime_reconcile_total", (("controller", "c"), ("result", "success"))] == ended
            assert found["controller_runtime_active_workers", (("controller", "c"),)] == begun - ended
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_values_that_are_added_together_count_as_those_that_are_added_one_by_one() -> None:
    rng = random.Random(2)
    one, many = Histogram(RUN), Histogram(RUN)
    for size in (0, 1, 2, 600):
        values = [rng.choice((*RUN, 1e9, 0.0, rng.expovariate(100))) for _ in range(size)]
        for value in values:
            one.add(value)
        many.add_all(values)
        copied = many.copy()
        assert one.counts == many.counts == copied.counts
        assert one.total == pytest.approx(many.total)
    many.add(1.0, "trace")
    assert copied.counts == one.counts
    assert not copied.examples


def test_what_ended_since_the_last_scrape_does_not_pile_up() -> None:
    rig = Rig()
    for _ in range(3 * MANY):
        rig.metrics.run_started("c", KEY, "r", 1.0, 0, 0.0)
        rig.metrics.run_ended("c", KEY, RunResult.SUCCESS, 2.0, None)
    series = rig.metrics._controllers["c"]
    assert len(series._ended) < MANY
    assert rig.of_queue("queue_duration_seconds_sum") == 3 * MANY
    assert rig.of_queue("work_duration_seconds_sum") == 6 * MANY


def test_a_dropped_queue_is_empty_whatever_is_told_late() -> None:
    rig = Rig()
    rig.metrics.keys_triggered("c", 5, 5, 2.0)
    rig.metrics.keys_dropped("c", 5)
    rig.metrics.run_started("c", KEY, "r", 0.0, 4, 1.0)
    assert rig.value("workqueue_depth", name="c", controller="c", priority="") == 0


def test_no_counter_goes_back_while_runs_begin_and_end() -> None:
    """One that does looks like a restart to Prometheus, and everything is counted anew."""
    rig, done = Rig(), threading.Event()
    rig.metrics.controller_started("c", 2)

    def work(name: str) -> None:
        hear = {method: callbacks(rig.metrics, method, "c")[0][0] for method in ("run_started", "run_ended")}
        while not done.is_set():
            hear["run_started"](("default", name), "r", 0.0, 0, 0.0)
            hear["run_ended"](("default", name), RunResult.SUCCESS, 0.0, None)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    try:
        before = 0.0
        for _ in range(40):
            begun = rig.of_queue("queue_duration_seconds_count") or 0.0
            assert begun >= before
            before = begun
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_counts_although_a_thread_of_the_parent_held_the_locks() -> None:
    program = """
import os, sys
from prometheus_client import CollectorRegistry, generate_latest
from kubectl_runtime import Metrics
metrics = Metrics(CollectorRegistry())
metrics.controller_started("c", 1)
metrics.run_started("c", ("ns", "a"), "r", 0.0, 0, 0.0)
metrics.request_attempted("h", "GET", "get", "pods", 200, 0.1)
metrics.webhook_began("/a")
locks = [metrics._change, metrics._clients.lock, metrics._controllers["c"].lock, metrics._webhooks.lock]
for lock in locks:
    lock.acquire()
child = os.fork()
if not child:
    metrics.request_attempted("h", "GET", "get", "pods", 200, 0.1)
    metrics.run_started("c", ("ns", "b"), "r", 0.0, 0, 0.0)
    text = generate_latest(metrics.registry).decode()
    os._exit(0 if 'controller_runtime_active_workers{controller="c"} 1.0' in text
             and 'controller_runtime_webhook_requests_in_flight{webhook="/a"} 0.0' in text else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_prometheus_client_is_imported_only_where_metrics_are_used() -> None:
    program = ("import sys, kubectl_runtime as k; k.Controller, k.Client, k.HealthServer; "
               "sys.exit('prometheus_client' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
