"""Waiting for one object, over the embedded server: what ends a wait, what does not, and what it tells."""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar, assert_type

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.requests.params import DeleteParams, Patch
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap, Job, Namespace, Pod
from kubectl_runtime.runtime import conditions
from kubectl_runtime.runtime.conditions import Described, NeverReady, job_failure
from kubectl_runtime.runtime.wait import (
    WaitFailed,
    WaitStopped,
    WaitTimeout,
    await_condition,
    delete_and_finalize,
    last_seen,
)
from kubectl_runtime.testing.clock import SimClock

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds that nothing here ever takes."""
HELD = ["example.com/held"]
RELEASE = Patch.merge({"metadata": {"finalizers": None}})


def has(value: str) -> Callable[[ConfigMap | None], bool]:
    return lambda obj: obj is not None and obj.data.get("k") == value


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def maps(server: ApiServer) -> Iterator[Api[ConfigMap]]:
    with server.client() as client:
        yield Api.namespaced(client, ConfigMap, "default")


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[Any]]]:
    """Has something done in another thread, and its result as a future."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if "wait" in thread.name] == []


class Simulated:
    """A server, a client and a clock in one thread."""

    def __init__(self) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(clock=self.clock)
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)
        self.maps = Api.namespaced(self.client, ConfigMap, "default")


@pytest.fixture
def simulated() -> Iterator[Simulated]:
    found = Simulated()
    with found.client:
        yield found


def test_what_is_so_already_is_returned_at_once(server: ApiServer, maps: Api[ConfigMap]) -> None:
    made = maps.create(ConfigMap(name="a", data={"k": "v"}))
    found = await_condition(maps, "a", has("v"), timeout=PATIENCE)
    assert found is not None
    assert (found.uid, found.resource_version) == (made.uid, made.resource_version)
    assert len(server.requests.select("watch")) == 0


def test_absence_is_asked_about_as_well(maps: Api[ConfigMap]) -> None:
    assert await_condition(maps, "a", lambda obj: obj is None, timeout=PATIENCE) is None


def test_a_change_that_makes_it_so_ends_the_wait(
    server: ApiServer, maps: Api[ConfigMap], aside: Callable[..., Future[Any]]
) -> None:
    waiting = aside(await_condition, maps, "a", has("2"), timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    maps.create(ConfigMap(name="other", data={"k": "2"}))
    maps.create(ConfigMap(name="a", data={"k": "1"}))
    maps.patch("a", Patch.merge({"data": {"k": "2"}}))
    assert waiting.result(PATIENCE).data == {"k": "2"}


def break_connections(server: ApiServer) -> None:
    server.drop_connections()


def restart(server: ApiServer) -> None:
    server.restart()


@pytest.mark.parametrize("trouble", [break_connections, restart])
def test_breaks_are_gone_through(
    server: ApiServer, maps: Api[ConfigMap], aside: Callable[..., Future[Any]], trouble: Callable[[ApiServer], None]
) -> None:
    waiting = aside(await_condition, maps, "a", has("2"), timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    maps.create(ConfigMap(name="a", data={"k": "1"}))
    trouble(server)
    if "KUBE_TEST_PROXY" in os.environ:
        maps.get("a")  # a proxy passes on a little later that a connection has ended; a write may be on its way by then
    maps.patch("a", Patch.merge({"data": {"k": "2"}}))
    assert waiting.result(PATIENCE).data == {"k": "2"}


FAULTS: dict[str, tuple[int, Callable[[Rule], object]]] = {
    "a watch that is reset in the middle of an event": (2, lambda rule: rule.first(1).cut_event(1, 40, then="reset")),
    "a version that has expired, as an event": (2, lambda rule: rule.first(1).expire_watch(0)),
    "a version that has expired, as an answer": (2, lambda rule: rule.first(1).status(410)),
    "refusals and errors": (4, lambda rule: rule.first(3).status(503)),
    "a watch that ends at once": (3, lambda rule: rule.first(2).end_watch(0)),
    "a connection that stalls": (2, lambda rule: rule.first(1).end_watch(0, how="stall")),
}
"""For how many watches until the world goes on, and what happens to those before."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_watch_are_gone_through(simulated: Simulated, fault: str) -> None:
    simulated.maps.create(ConfigMap(name="a", data={"k": "0"}))
    goes_on, harm = FAULTS[fault]
    watches = simulated.server.faults.on("watch")
    simulated.server.faults.on("watch").nth(1).run(
        lambda: simulated.maps.patch("a", Patch.merge({"data": {"k": "1"}})))
    simulated.server.faults.on("watch").nth(goes_on).run(
        lambda: simulated.maps.patch("a", Patch.merge({"data": {"k": "2"}})))
    harm(watches)
    found = await_condition(simulated.maps, "a", has("2"), timeout=1000)
    assert found is not None
    assert watches.taken == goes_on - 1


def test_a_namesake_that_is_made_again_is_asked_about(
    server: ApiServer, maps: Api[ConfigMap], aside: Callable[..., Future[Any]]
) -> None:
    first = maps.create(ConfigMap(name="a"))
    waiting = aside(await_condition, maps, "a", conditions.all_of(
        conditions.is_created, conditions.is_deleted(first.uid)), timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    maps.delete("a")
    second = maps.create(ConfigMap(name="a"))
    assert waiting.result(PATIENCE).uid == second.uid


def test_the_deadline_is_on_the_clients_clock_and_wakes_a_silent_read(
    server: ApiServer, aside: Callable[..., Future[Any]]
) -> None:
    clock = SimClock()
    with Client(server.config(), clock=clock) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        waiting = aside(await_condition, maps, "a", conditions.is_created, timeout=600)
        server.requests.wait_for(1, "watch")
        clock.settle(1)
        clock.advance(599)
        assert not waiting.done()
        clock.advance(1)
        with pytest.raises(WaitTimeout, match="is_created did not become true within 600 s; it does not exist"):
            waiting.result(PATIENCE)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_the_deadline_ends_a_request_that_nobody_answers(
    server: ApiServer, aside: Callable[..., Future[Any]], verb: str
) -> None:
    clock = SimClock()
    server.faults.on(verb).never_answer()
    with Client(server.config(), clock=clock) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        waiting = aside(await_condition, maps, "a", conditions.is_created, timeout=5)
        server.requests.wait_for(1, verb)
        clock.settle(1)
        clock.advance(5)
        with pytest.raises(WaitTimeout):
            waiting.result(PATIENCE)


def test_the_deadline_ends_the_pause_after_a_failure(simulated: Simulated) -> None:
    simulated.server.faults.on("list").throttle(200)
    with pytest.raises(WaitTimeout):
        await_condition(simulated.maps, "a", conditions.is_created, timeout=10)
    assert simulated.clock.monotonic() == 10


def test_in_a_simulation_time_passes_in_the_wait(simulated: Simulated) -> None:
    begun = simulated.clock.monotonic()
    with pytest.raises(WaitTimeout, match="within 100 s"):
        await_condition(simulated.maps, "a", conditions.is_created, timeout=100)
    assert 100 <= simulated.clock.monotonic() - begun < 101


@pytest.mark.parametrize(("limit", "told"), [(2.99841, "3"), (0.25, "0.25"), (0.001, "0.001"), (3600, "3600")])
def test_what_is_left_of_a_limit_is_told_in_hundredths(simulated: Simulated, limit: float, told: str) -> None:
    with pytest.raises(WaitTimeout, match=f"within {told} s"):
        await_condition(simulated.maps, "a", conditions.is_created, timeout=limit)


def test_in_a_simulation_what_the_server_does_itself_is_seen(simulated: Simulated) -> None:
    namespaces = Api.all(simulated.client, Namespace)
    namespaces.create(Namespace(name="n"))
    Api.namespaced(simulated.client, ConfigMap, "n").create(ConfigMap(name="a"))
    delete_and_finalize(namespaces, "n", timeout=60)
    assert namespaces.get_opt("n") is None


def test_a_stop_ends_the_wait_and_leaves_nothing_in_the_token(
    server: ApiServer, maps: Api[ConfigMap], aside: Callable[..., Future[Any]]
) -> None:
    stop = StopToken()
    maps.create(ConfigMap(name="b"))
    assert await_condition(maps, "b", conditions.is_created, timeout=PATIENCE, stop=stop) is not None
    assert stop._callbacks == {}
    waiting = aside(await_condition, maps, "a", conditions.is_created, timeout=PATIENCE, stop=stop)
    server.requests.wait_for(1, "watch")
    stop.set("SIGTERM")
    with pytest.raises(WaitStopped, match=r"when the wait was stopped \(SIGTERM\)"):
        waiting.result(PATIENCE)
    with pytest.raises(WaitStopped):
        await_condition(maps, "b", conditions.is_created, timeout=PATIENCE, stop=stop)


def test_what_the_condition_raises_comes_out_and_closes_the_watch(server: ApiServer, maps: Api[ConfigMap],
                                                                  aside: Callable[..., Future[Any]]) -> None:
    def careless(obj: ConfigMap | None) -> bool:
        return obj is not None and obj.data["missing"] == "x"

    waiting = aside(await_condition, maps, "a", careless, timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    maps.create(ConfigMap(name="a", data={"k": "v"}))
    with pytest.raises(KeyError):
        waiting.result(PATIENCE)


def test_a_condition_that_forgot_that_there_may_be_no_object_is_told_so(maps: Api[ConfigMap]) -> None:
    careless: Any = lambda obj: obj.data == {}  # noqa: E731
    with pytest.raises(AttributeError) as caught:
        await_condition(maps, "nobody", careless, timeout=PATIENCE)
    assert caught.value.__notes__ == [
        "await configmaps default/nobody: there is no such object, so the condition was called with None: "
        "write `obj is not None and ...`"]
    maps.create(ConfigMap(name="a"))
    with pytest.raises(ZeroDivisionError) as other:
        await_condition(maps, "a", lambda obj: 1 / 0 > 0, timeout=PATIENCE)
    assert not hasattr(other.value, "__notes__")


def test_a_timeout_tells_which_condition_which_object_and_what_was_last_seen(simulated: Simulated) -> None:
    pods = Api.namespaced(simulated.client, Pod, "default")
    pods.create({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    pods.patch_status("p", Patch.merge({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "psst"}]}}))
    with pytest.raises(WaitTimeout) as caught:
        await_condition(pods, "p", conditions.is_pod_running, timeout=3)
    text = str(caught.value)
    assert text.startswith("await pods default/p: is_pod_running did not become true within 3 s; last seen: uid ")
    assert text.endswith("phase Pending, Ready=False (ContainersNotReady: psst), unchanged for 3 s")
    assert caught.value.condition == "is_pod_running"
    assert caught.value.last_seen.name == "p"
    assert caught.value.last_error == ""


@pytest.mark.parametrize("late", [False, True])
def test_a_wait_for_what_failed_gives_up_with_the_reason(simulated: Simulated, late: bool) -> None:
    jobs = Api.namespaced(simulated.client, Job, "default")
    jobs.create({"metadata": {"name": "j"}, "spec": {"backoffLimit": 0, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    failed = {"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "psst"}
        for kind in ("FailureTarget", "Failed")]}}
    seen = []

    def created(obj: Any) -> bool:
        if not seen:
            seen.append(obj)
            jobs.patch_status("j", Patch.merge(failed))  # while it is waited for
        return False

    if not late:
        jobs.patch_status("j", Patch.merge(failed))
    wanted = Described("is done", created, job_failure) if late else conditions.all_of(
        conditions.is_created, conditions.is_job_completed)
    with pytest.raises(WaitFailed, match=r"await jobs.batch default/j: .*can never become true: the Job failed: "
                                         r"BackoffLimitExceeded: psst; last seen: uid ") as caught:
        await_condition(jobs, "j", wanted, timeout=500)
    assert simulated.client.clock.monotonic() < 400
    assert caught.value.last_seen.name == "j"
    assert isinstance(caught.value, NeverReady)
    assert not isinstance(caught.value, WaitTimeout)


def test_a_timeout_names_the_condition_that_lags(simulated: Simulated) -> None:
    pods = Api.namespaced(simulated.client, Pod, "default")
    pods.create({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    pods.patch_status("p", Patch.merge({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "Fine", "observedGeneration": 1}]}}))
    pods.patch("p", Patch.strategic({"spec": {"containers": [{"name": "c", "image": "j"}]}}))
    with pytest.raises(WaitTimeout, match=r"Ready=True \(Fine; of generation 1, not yet 2\)"):
        await_condition(pods, "p", conditions.has("Ready"), timeout=3)


@pytest.mark.parametrize(("status", "told"), [
    ({}, "phase Pending"),
    ({"conditions": [{"type": "Ready", "status": "False", "message": "a\n b"}]}, "Ready=False (a b)"),
    ({"conditions": [{"type": "Ready", "status": "False"}]}, "Ready=False"),
    ({"conditions": [{"type": "Ready", "status": "False", "reason": "Long", "message": "m" * 500}]},
     f"Ready=False (Long: {'m' * 119}…)")])
def test_the_conditions_are_told_with_their_messages_cut(simulated: Simulated, status: dict[str, Any], told: str
                                                         ) -> None:
    pods = Api.namespaced(simulated.client, Pod, "default")
    pods.create({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    pods.patch_status("p", Patch.merge({"status": status}))
    with pytest.raises(WaitTimeout) as caught:
        await_condition(pods, "p", conditions.has("Ready"), timeout=3)
    assert str(caught.value).endswith(f"{told}, unchanged for 3 s")


def test_a_status_that_nobody_has_written_is_told_where_the_kind_has_one() -> None:
    assert last_seen(Pod(name="p"), True).endswith(", no status yet")
    assert "no status" not in last_seen(ConfigMap(name="s"), True)


def test_how_long_the_object_has_not_changed_counts_from_its_last_change(simulated: Simulated) -> None:
    maps = simulated.maps
    maps.create(ConfigMap(name="a", data={"k": "1"}))
    began, changed = simulated.clock.monotonic(), list[float]()

    def never(obj: ConfigMap | None) -> bool:
        if not changed:
            changed.append(simulated.clock.monotonic())
            simulated.clock.advance(4)
            maps.patch("a", Patch.merge({"data": {"k": "2"}}))
        return False

    with pytest.raises(WaitTimeout) as caught:
        await_condition(maps, "a", never, timeout=10)
    assert simulated.clock.monotonic() - began == pytest.approx(10)
    assert str(caught.value).endswith(", unchanged for 6 s")


def test_type_checkers_know_which_conditions_are_of_an_object(simulated: Simulated) -> None:
    """mypy reads `assert_type`, when it checks the tests."""
    maps = simulated.maps
    uid = maps.create(ConfigMap(name="a")).uid
    created, ready = conditions.is_created, conditions.has("Ready")
    assert assert_type(await_condition(maps, "a", created, timeout=3), ConfigMap).name == "a"
    both = conditions.all_of(created, conditions.not_(ready))
    assert assert_type(await_condition(maps, "a", both, timeout=3), ConfigMap).uid == uid
    assert assert_type(await_condition(maps, "a", conditions.any_of(ready, created), timeout=3), ConfigMap).uid == uid
    gone = conditions.any_of(created, conditions.is_deleted(uid))
    assert assert_type(await_condition(maps, "a", gone, timeout=3), ConfigMap | None) is not None
    assert assert_type(await_condition(maps, "b", conditions.not_(created), timeout=3), ConfigMap | None) is None


def test_a_timeout_tells_what_the_watch_failed_with(simulated: Simulated) -> None:
    simulated.maps.create(ConfigMap(name="a", data={"k": "hidden"}))
    simulated.server.faults.on("watch").status(403)
    with pytest.raises(WaitTimeout) as caught:
        await_condition(simulated.maps, "a", has("2"), timeout=3)
    assert "the watch failed: cannot watch configmaps in namespace default" in str(caught.value)
    assert "grant the verb 'watch'" in caught.value.last_error
    assert "hidden" not in str(caught.value)


def test_a_failure_is_told_with_its_age_and_not_after_the_next_change(simulated: Simulated) -> None:
    simulated.server.faults.on("watch").first(1).status(500)
    with pytest.raises(WaitTimeout, match="; 30 s before, the watch failed: cannot watch configmaps"):
        await_condition(simulated.maps, "a", conditions.is_created, timeout=30)
    simulated.server.faults.on("list").first(1).status(500)
    with pytest.raises(WaitTimeout) as caught:
        await_condition(simulated.maps, "a", conditions.is_created, timeout=30)
    assert caught.value.last_error == ""


def test_a_wait_that_never_saw_anything_says_so(simulated: Simulated) -> None:
    simulated.server.faults.on("list").status(500)
    with pytest.raises(WaitTimeout, match=r"because no list was answered; \d+ s before, the watch failed: "):
        await_condition(simulated.maps, "a", conditions.is_created, timeout=3)


def test_an_object_that_does_not_decode_exists_and_is_told(simulated: Simulated) -> None:
    simulated.maps.create(ConfigMap(name="a"))
    simulated.server.faults.on("list").rewrite(
        lambda answer: answer.__class__(answer.status, answer.headers,
                                        answer.body.replace(b'"uid"', b'"labels":7,"uid"')))
    found = await_condition(simulated.maps, "a", conditions.is_created, timeout=3)
    assert isinstance(found, InvalidObject)
    with pytest.raises(WaitTimeout, match="last seen: "):
        await_condition(simulated.maps, "a", conditions.is_deleted(found.uid or "u"), timeout=3)


@pytest.mark.parametrize("name", ["", "a/b"])
def test_what_cannot_work_is_refused_before_anything_is_sent(
    server: ApiServer, maps: Api[ConfigMap], name: str
) -> None:
    with pytest.raises(RequestError):
        await_condition(maps, name, conditions.is_created, timeout=1)
    with pytest.raises(RequestError, match="a namespace is required"):
        await_condition(Api.all(maps.client, ConfigMap), "a", conditions.is_created, timeout=1)
    for no_time in (0, -1, float("nan"), timedelta(0), None, "1", True):
        for wait in (lambda time: await_condition(maps, "a", conditions.is_created, timeout=time),
                     lambda time: delete_and_finalize(maps, "a", timeout=time)):
            with pytest.raises(RequestError, match=r"timeout must be (more than 0 )?seconds"):
                wait(no_time)
    for no_condition in (None, True, ConfigMap(name="a")):
        with pytest.raises(RequestError, match="is not a condition"):
            await_condition(maps, "a", no_condition, timeout=1)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="dry run"):
        delete_and_finalize(maps, "a", DeleteParams(dry_run=True), timeout=1)
    assert len(server.requests) == 0


def test_an_object_stands_for_its_name(maps: Api[ConfigMap]) -> None:
    made = maps.create(ConfigMap(name="a"))
    found = await_condition(maps, made, conditions.is_created, timeout=PATIENCE)
    assert found is not None
    assert found.uid == made.uid
    delete_and_finalize(maps, made.ref, timeout=PATIENCE)
    assert maps.get_opt("a") is None


def test_an_object_of_another_kind_or_place_deletes_nothing(server: ApiServer, maps: Api[ConfigMap]) -> None:
    for elsewhere in (Pod(name="a", namespace="default"), ConfigMap(name="a", namespace="kube-system"), None, 5):
        with pytest.raises(RequestError):
            delete_and_finalize(maps, elsewhere, timeout=1)  # type: ignore[arg-type]
    assert len(server.requests) == 0


# delete_and_finalize


def test_deleting_ends_when_the_object_is_gone(maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a"))
    delete_and_finalize(maps, "a", timeout=PATIENCE)
    assert maps.get_opt("a") is None


def test_deleting_waits_for_finalizers(
    server: ApiServer, maps: Api[ConfigMap], aside: Callable[..., Future[Any]]
) -> None:
    maps.create(ConfigMap(name="a", finalizers=HELD))
    waiting = aside(delete_and_finalize, maps, "a", timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    assert not waiting.done()
    maps.patch("a", RELEASE)
    assert waiting.result(PATIENCE) is None
    assert maps.get_opt("a") is None


def test_a_namesake_that_only_a_list_shows_counts_as_gone(simulated: Simulated) -> None:
    maps = simulated.maps
    maps.create(ConfigMap(name="a", finalizers=HELD))

    def make_again() -> None:
        maps.patch("a", RELEASE)
        maps.create(ConfigMap(name="a"))

    simulated.server.faults.on("watch").first(1).run(make_again).expire_watch(0)
    delete_and_finalize(maps, "a", timeout=60)
    assert maps.get("a").deletion_timestamp is None


def test_what_does_not_exist_is_gone_already(server: ApiServer, maps: Api[ConfigMap]) -> None:
    delete_and_finalize(maps, "a", timeout=PATIENCE)
    assert [entry.verb for entry in server.requests] == ["list"]


def test_a_deletion_whose_answer_is_lost_succeeds(server: ApiServer, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a"))
    lost = server.faults.on("delete").first(1).lose_answer()
    delete_and_finalize(maps, "a", timeout=PATIENCE)
    assert lost.taken == 1


def test_a_new_object_of_the_name_stays_when_the_answer_is_lost(server: ApiServer, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a"))
    server.faults.on("delete").first(1).lose_answer()
    server.faults.on("delete").nth(2).run(lambda: maps.create(ConfigMap(name="a", data={"theirs": "yes"})))
    delete_and_finalize(maps, "a", timeout=PATIENCE)
    assert maps.get("a").data == {"theirs": "yes"}


def test_a_kind_that_is_not_served_and_a_refused_deletion_are_errors(server: ApiServer, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a"))
    server.faults.on("delete", name="a").status(403)
    with pytest.raises(ApiError) as caught:
        delete_and_finalize(maps, "a", timeout=PATIENCE)
    assert caught.value.is_forbidden
    maps.create(ConfigMap(name="b"))
    server.faults.on("delete", name="b").answer(404, "404 page not found")
    with pytest.raises(ApiError, match="does not serve"):
        delete_and_finalize(maps, "b", timeout=PATIENCE)


def test_a_server_that_does_not_say_what_it_deleted_is_asked(server: ApiServer, maps: Api[ConfigMap],
                                                             aside: Callable[..., Future[Any]]) -> None:
    silent = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    server.faults.on("delete").answer(200, silent, handled=True)
    maps.create(ConfigMap(name="a"))
    delete_and_finalize(maps, "a", timeout=PATIENCE)
    maps.create(ConfigMap(name="a", finalizers=HELD))
    waiting = aside(delete_and_finalize, maps, "a", timeout=PATIENCE)
    server.requests.wait_for(1, "watch")
    assert not waiting.done()
    maps.patch("a", RELEASE)
    waiting.result(PATIENCE)


def test_a_deletion_that_does_not_end_tells_which_finalizers_are_left(simulated: Simulated) -> None:
    simulated.maps.create(ConfigMap(name="a", finalizers=HELD))
    with pytest.raises(WaitTimeout, match=r"being deleted since 2026-01-01T00:00:00Z, waiting for example\.com/held"):
        delete_and_finalize(simulated.maps, "a", timeout=3)
