"""Reading, changing and writing again when somebody else was faster."""
from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import (
    ApiError,
    RequestError,
    Status,
    StatusCause,
    StatusDetails,
    is_lost_race,
    is_lost_test,
)
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.requests.params import Patch, PostParams
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import ConfigMap, Deployment, LimitRange, PersistentVolumeClaim, ResourceQuota
from kubectl_runtime.runtime.retry import ConflictBackoff, create_or_update, retry_on_conflict
from kubectl_runtime.testing.clock import SimClock


def conflict(cause: str = "") -> ApiError:
    details = StatusDetails(causes=[StatusCause(reason=cause)] if cause else None)
    return ApiError(Status(code=409, reason="Conflict", details=details), "replace x")


class Attempts:
    """Raises the errors one after the other, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture
def clock() -> SimClock:
    return SimClock(self_advancing=True)


@pytest.mark.parametrize("attempt", [0, 3, 1022, 1024, 5000])
def test_no_wait_stays_no_wait_after_any_number_of_attempts(attempt: int) -> None:
    assert ConflictBackoff(initial=0, factor=2.0, steps=9000).delay(attempt, random.Random(1)) == 0


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": "x"}, {"initial": -1}, {"factor": 0.5}, {"jitter": -1}])
def test_a_number_out_of_range_is_named_as_the_field_is_called(wrong: dict[str, Any]) -> None:
    (name, value), = wrong.items()
    with pytest.raises(RequestError, match=f"steps >= 1, initial >= 0, .*, not .*{name} {value!r}"):
        ConflictBackoff(**wrong)


def test_conflicts_are_tried_again_after_ten_milliseconds(clock: SimClock) -> None:
    attempts = Attempts(*(conflict() for _ in range(4)))
    assert retry_on_conflict(attempts, clock=clock, rng=random.Random(1)) == "done"
    assert attempts.made == 5
    assert 0.04 <= clock.monotonic() <= 0.044


def test_the_fifth_conflict_comes_out(clock: SimClock) -> None:
    errors = [conflict() for _ in range(5)]
    with pytest.raises(ApiError) as caught:
        retry_on_conflict(Attempts(*errors), clock=clock)
    assert caught.value is errors[4]


def test_the_waits_grow_by_the_factor(clock: SimClock) -> None:
    retry_on_conflict(Attempts(*(conflict() for _ in range(3))), clock=clock,
                      backoff=ConflictBackoff(4, 0.01, 5.0, jitter=0))
    assert clock.monotonic() == pytest.approx(0.01 + 0.05 + 0.25)


@pytest.mark.parametrize("error", [
    conflict("FieldManagerConflict"), ApiError(Status(code=409, reason="AlreadyExists")), ApiError(Status(code=500)),
    ValueError("a bug"),
], ids=["field managers", "already exists", "500", "no ApiError"])
def test_what_another_attempt_would_not_change_comes_out_at_once(clock: SimClock, error: Exception) -> None:
    attempts = Attempts(error)
    with pytest.raises(type(error)):
        retry_on_conflict(attempts, clock=clock)
    assert attempts.made == 1


def test_a_stop_ends_the_attempts_with_the_conflict(clock: SimClock) -> None:
    stop = StopToken(clock=clock)
    stop.set()
    attempts = Attempts(conflict())
    with pytest.raises(ApiError):
        retry_on_conflict(attempts, stop=stop)
    assert attempts.made == 1


def test_numbers_that_make_no_sense_are_refused() -> None:
    for numbers in ({"steps": 0}, {"initial": -1}, {"factor": 0.5}, {"jitter": -1}):
        with pytest.raises(RequestError):
            ConflictBackoff(**numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "lost", "failed_test"), [
    (conflict(), True, True), (ApiError(Status(code=409)), True, True),
    (conflict("FieldManagerConflict"), False, False), (ApiError(Status(code=422, reason="Invalid")), False, True),
    (ApiError(Status(code=409, reason="AlreadyExists")), False, False),
    (ApiError(Status(code=403, reason="Forbidden")), False, False), (ApiError(Status(code=500)), False, False)])
def test_one_question_says_whether_somebody_else_was_faster(error: ApiError, lost: bool, failed_test: bool) -> None:
    assert (is_lost_race(error), is_lost_test(error)) == (lost, failed_test)


# create_or_update


@pytest.fixture
def server(clock: SimClock) -> ApiServer:
    return ApiServer(clock=clock)


@pytest.fixture
def maps(server: ApiServer, clock: SimClock) -> Iterator[Api[ConfigMap]]:
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=clock) as client:
        yield Api.namespaced(client, ConfigMap, "default")


def put(value: str, obj: ConfigMap) -> None:
    obj.data["k"] = value


def test_it_creates_updates_and_leaves_alone(server: ApiServer, maps: Api[ConfigMap]) -> None:
    made, outcome = create_or_update(maps, "a", lambda obj: put("1", obj))
    assert (made.data, outcome) == ({"k": "1"}, "created")
    changed, outcome = create_or_update(maps, "a", lambda obj: put("2", obj))
    assert (changed.data, changed.uid, outcome) == ({"k": "2"}, made.uid, "updated")
    server.requests.clear()
    same, outcome = create_or_update(maps, "a", lambda obj: put("2", obj))
    assert (same.resource_version, outcome) == (changed.resource_version, "unchanged")
    assert [entry.verb for entry in server.requests] == ["get"]


class Loose(CustomResource, group="example.com", version="v1", kind="Loose"):
    spec: dict[str, Any]


@pytest.mark.parametrize(("before", "after", "expected"), [
    (1, True, "updated"), (False, 0, "updated"), (1, 1.0, "unchanged")])
def test_true_is_another_value_than_1(server: ApiServer, maps: Api[ConfigMap], before: object, after: object,
                                      expected: str) -> None:
    server.load([Loose.crd()])
    api = Api.namespaced(maps.client, Loose, "default")
    api.create(Loose(name="a", spec={"x": before}))

    def change(obj: Loose) -> None:
        obj.spec = {"x": after}

    assert create_or_update(api, "a", change)[1] == expected


def verbs(server: ApiServer) -> list[str]:
    return [entry.verb for entry in server.requests if entry.verb != "watch"]


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def with_resources(kind: str, amount: Any) -> Callable[[Any], None]:
    def change(obj: Any) -> None:
        if kind == "typed":
            obj.spec.template.spec.containers[0].resources.requests["cpu"] = amount
        else:
            obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}}

    return change


@pytest.mark.parametrize(("amount", "outcome"), [("1000m", "unchanged"), ("1", "unchanged"), ("1.0", "unchanged"),
                                                 ("1001m", "updated"), ("2", "updated")])
@pytest.mark.parametrize("form", ["typed", "plain"])
def test_a_quantity_that_is_written_otherwise_is_no_change(server: ApiServer, maps: Api[ConfigMap], amount: str,
                                                           outcome: str, form: str) -> None:
    api = Api.namespaced(maps.client, Deployment, "default")
    api.create({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}})
    create_or_update(api, "d", with_resources(form, "1000m"))
    server.requests.clear()
    _, said = create_or_update(api, "d", with_resources(form, amount))
    assert said == outcome
    assert ("update" in verbs(server)) is (outcome == "updated")


@pytest.mark.parametrize(("kind", "content", "path", "value"), [
    (ResourceQuota, {"spec": {"hard": {"cpu": "1"}}}, ("spec", "hard", "cpu"), "1000m"),
    (PersistentVolumeClaim, {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
     ("spec", "resources", "requests", "storage"), "1024Mi"),
    (LimitRange, {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
     ("spec", "limits", 0, "max", "cpu"), "1000m")])
def test_so_is_one_in_any_built_in_kind(server: ApiServer, maps: Api[ConfigMap], kind: Any, content: Any,
                                        path: tuple[Any, ...], value: str) -> None:
    api = Api.namespaced(maps.client, kind, "default")
    api.create({"metadata": {"name": "x"}, **content})

    def change(obj: Any) -> None:
        part = obj
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value

    server.requests.clear()
    assert create_or_update(api, "x", change)[1] == "unchanged"
    assert verbs(server) == ["get"]


def test_what_only_looks_like_a_quantity_is_a_change(server: ApiServer, maps: Api[ConfigMap]) -> None:
    def change(obj: Any) -> None:
        obj["data"] = {"limits": "1000m", "sizeLimit": "1000m"}
        obj.metadata.labels = {"limits": "1000m"}

    maps.create({"metadata": {"name": "a", "labels": {"limits": "1"}}, "data": {"limits": "1", "sizeLimit": "1"}})
    assert create_or_update(maps, "a", change)[1] == "updated"
    assert maps.get("a").data["limits"] == "1000m"
    server.load([Loose.crd()])
    api = Api.namespaced(maps.client, Loose, "default")
    api.create(Loose(name="a", spec={"limits": {"cpu": "1"}}))

    def loose(obj: Loose) -> None:
        obj.spec["limits"] = {"cpu": "1000m"}

    assert create_or_update(api, "a", loose)[1] == "updated", "the server keeps what was written"
    assert create_or_update(api, "a", loose)[1] == "unchanged"


class Sized(CustomResource, group="example.com", version="v1", kind="Sized"):
    cpu: Quantity
    limits: dict[str, Quantity]


def test_typed_quantities_of_a_custom_resource_are_compared_by_value(server: ApiServer, maps: Api[ConfigMap]) -> None:
    server.load([Sized.crd()])
    api = Api.namespaced(maps.client, Sized, "default")
    api.create({"metadata": {"name": "a"}, "cpu": "1000m", "limits": {"memory": "1024Mi"}})

    def change(obj: Sized) -> None:
        obj.cpu, obj.limits = Quantity("1"), {"memory": Quantity("1Gi")}

    assert create_or_update(api, "a", change)[1] == "unchanged"


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_the_server_finds_unchanged_is_unchanged(server: ApiServer, maps: Api[ConfigMap], dry_run: bool) -> None:
    api = Api.namespaced(maps.client, Deployment, "default")

    def change(replicas: int) -> Callable[[Deployment], None]:
        def changed(obj: Deployment) -> None:
            obj["spec"] = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}

        return changed

    first, outcome = create_or_update(api, "d", change(2))
    assert outcome == "created"
    params = PostParams(dry_run=dry_run)
    again, outcome = create_or_update(api, "d", change(2), params=params)  # without the defaults that the server added
    assert outcome == "unchanged"
    assert again.uid == first.uid
    assert create_or_update(api, "d", change(3), params=params)[1] == "updated"
    assert api.get("d").spec.replicas == (2 if dry_run else 3)


def test_a_change_by_somebody_else_is_taken_in(server: ApiServer, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a", data={"k": "1"}))
    server.faults.on("update").first(2).run(
        lambda: maps.patch("a", Patch.merge({"data": {"n": str(len(server.requests))}})))
    changed, outcome = create_or_update(maps, "a", lambda obj: put("2", obj))
    assert outcome == "updated"
    assert changed.data["k"] == "2"
    assert set(changed.data) == {"k", "n"}


def test_an_object_that_somebody_creates_meanwhile_is_updated(server: ApiServer, maps: Api[ConfigMap]) -> None:
    meanwhile = iter([ConfigMap(name="a", data={"n": "1"})])
    rule = server.faults.on("create").first(1)
    rule.run(lambda: [maps.create(one) for one in meanwhile])
    changed, outcome = create_or_update(maps, "a", lambda obj: put("2", obj))
    assert (changed.data, outcome) == ({"n": "1", "k": "2"}, "updated")


def test_an_object_that_is_returned_instead_of_changed_is_told(maps: Api[ConfigMap]) -> None:
    with pytest.raises(RequestError, match="change the object that is passed to it"):
        create_or_update(maps, "a", lambda obj: ConfigMap(name="a", data={"k": "v"}))
    assert maps.get_opt("a") is None

    def change(obj: ConfigMap) -> ConfigMap:
        obj.data = {"k": "v"}
        return obj

    assert create_or_update(maps, "a", change)[1] == "created"


def test_name_and_namespace_stay_as_they_are(server: ApiServer, maps: Api[ConfigMap]) -> None:
    def rename(obj: ConfigMap) -> None:
        obj.metadata.name = "b"

    def move(obj: ConfigMap) -> None:
        obj.metadata.namespace = "kube-system"

    for change in (rename, move):
        with pytest.raises(RequestError, match="must keep its name and namespace"):
            create_or_update(maps, "a", change)
    maps.create(ConfigMap(name="a"))
    for change in (rename, move):
        with pytest.raises(RequestError, match="must keep its name and namespace"):
            create_or_update(maps, "a", change)


def test_an_error_of_the_first_get_ends_it(server: ApiServer, maps: Api[ConfigMap]) -> None:
    server.faults.on("get").status(403)
    with pytest.raises(ApiError):
        create_or_update(maps, "a", lambda obj: put("1", obj))
    assert server.requests.select("create") == []
