"""Which requests a rule takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.transport.faults import Faults
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing.clock import SimClock

PODS = "/api/v1/namespaces/ns/pods"


def request(path: str = PODS, method: str = "GET", query: list[tuple[str, str]] | None = None,
            **headers: str) -> HttpRequest:
    return HttpRequest(method, path, query or [], headers)


@pytest.mark.parametrize(("given", "taken"), [
    ({"verb": "list"}, True), ({"verb": "watch"}, False), ({"verb": "get list"}, True),
    ({"verb": ("get", "list")}, True),
    ({"verb": "get|list"}, True), ({"method": "GET"}, True), ({"method": "POST"}, False),
    ({"path": PODS}, True), ({"path": "/api/v1/namespaces/*/pods"}, True), ({"path": "/api/*"}, False),
    ({"path": "/api/**"}, True), ({"path": "**/pods"}, True), ({"path": "/api/v?/**"}, True),
    ({"path": "/pods"}, False),
    ({"path": re.compile(r".*/(pods|nodes)")}, True), ({"path": re.compile("pods")}, False),
    ({"resource": "pods"}, True), ({"resource": "pods configmaps"}, True), ({"resource": "pods/status"}, False),
    ({"namespace": "ns"}, True), ({"namespace": "other"}, False), ({"name": ""}, True), ({"name": "a"}, False),
    ({"query": {"limit": "500"}}, True), ({"query": {"limit": "1"}}, False), ({"query": {"continue": ""}}, False),
    ({"headers": {"User-Agent": "me"}}, True), ({"headers": {"User-Agent": "you"}}, False),
    ({"where": lambda request: request.param("limit") == "500"}, True), ({"where": lambda request: False}, False),
    ({}, True), ({"verb": "list", "namespace": "other"}, False),
])
def test_a_rule_matches_all_that_it_names(given, taken) -> None:
    faults = Faults()
    faults.on(**given).answer(503)
    exchange = faults.begin(request(query=[("limit", "500")], **{"user-agent": "me"}))
    assert (exchange is not None) is taken


def test_a_group_and_a_subresource_are_part_of_the_resource() -> None:
    faults = Faults()
    rule = faults.on(resource="deployments.apps/scale deployments/scale.apps").answer(503)
    assert faults.begin(request("/apis/apps/v1/namespaces/ns/deployments/d/scale")) is not None
    assert faults.begin(request("/apis/apps/v1/namespaces/ns/deployments/d")) is None
    assert (rule.seen, rule.taken) == (1, 1)


def taken(rule_of, count: int = 8, clock: SimClock | None = None, seed: int = 0) -> list[int]:
    """The numbers of the requests that the rule takes, one request a second."""
    clock = clock or SimClock()
    faults = Faults(seed=seed)
    faults.bind(clock, lambda: None)
    rule_of(faults.on("list")).answer(503)
    numbers = []
    for number in range(1, count + 1):
        if faults.begin(request()) is not None:
            numbers.append(number)
        faults.begin(request(method="POST"))  # matches nothing and counts for nothing
        clock.advance(1)
    return numbers


@pytest.mark.parametrize(("rule_of", "expected"), [
    (lambda rule: rule, [1, 2, 3, 4, 5, 6, 7, 8]),
    (lambda rule: rule.first(), [1]),
    (lambda rule: rule.first(3), [1, 2, 3]),
    (lambda rule: rule.nth(2, 5), [2, 5]),
    (lambda rule: rule.every(3), [3, 6]),
    (lambda rule: rule.after(6), [7, 8]),
    (lambda rule: rule.after(2).first(3), [3, 4, 5]),
    (lambda rule: rule.first(5).after(3), [4, 5]),
    (lambda rule: rule.every(2).first(2), [2, 4]),
    (lambda rule: rule.lasting(3), [1, 2, 3]),
    (lambda rule: rule.after(1).lasting(2.5), [2, 3, 4]),
    (lambda rule: rule.chance(0), []),
    (lambda rule: rule.chance(1).first(2), [1, 2]),
])
def test_conditions_narrow_down_one_after_the_other(rule_of, expected) -> None:
    assert taken(rule_of) == expected


@given(seed=st.integers(0, 2**32), probability=st.floats(0.1, 0.9))
def test_the_same_seed_takes_the_same_requests(seed, probability) -> None:
    first, second = (taken(lambda rule: rule.chance(probability), 20, seed=seed) for _ in range(2))
    assert first == second


def test_another_seed_takes_others_and_about_as_many_as_it_should() -> None:
    runs = [taken(lambda rule: rule.chance(0.3), 200, seed=seed) for seed in range(5)]
    assert len({tuple(run) for run in runs}) == 5
    assert all(30 < len(run) < 90 for run in runs)


def test_rules_draw_independently_of_each_other() -> None:
    def draws(*, with_other: bool) -> list[bool]:
        faults = Faults(seed=3)
        faults.on("list").chance(0.5).answer(503)
        if with_other:
            faults.on("list").chance(0.5).run(lambda: None)
        return [(e := faults.begin(request())) is not None and e.instead is not None for _ in range(50)]

    assert draws(with_other=False) == draws(with_other=True)


@pytest.mark.parametrize("wrong", [lambda rule: rule.every(0), lambda rule: rule.chance(1.5), lambda rule: rule.split(),
                                   lambda rule: rule.split(0), lambda rule: rule.slow(0),
                                   lambda rule: rule.batch_events(0),
                                   lambda rule: rule.end_watch(how="softly"), lambda rule: rule.drop("softly"),
                                   lambda rule: rule.rechunk_events(-1)])
def test_impossible_rules_are_refused_when_they_are_written(wrong) -> None:
    with pytest.raises(ValueError, match=r"softly|above 0|between 0 and 1"):
        wrong(Faults().on())


def test_a_rule_is_in_force_from_its_first_action_until_it_is_removed() -> None:
    faults = Faults()
    rule = faults.on("list")
    assert faults.begin(request()) is None
    rule.delay(1).answer(503)
    exchange = faults.begin(request())
    assert exchange is not None
    assert exchange.instead is not None
    rule.remove()
    assert faults.begin(request()) is None
    faults.on().answer(500)
    faults.connections().drop()
    faults.clear()
    assert faults.begin(request()) is None
    assert faults.connect() == []


def test_expiring_history_needs_a_server() -> None:
    faults = Faults()
    with pytest.raises(RuntimeError, match="belongs to no server"):
        faults.expire_history()
    done = []
    faults.bind(SimClock(), lambda: done.append("compacted"))
    faults.on("watch").expire_history()
    exchange = faults.begin(request(query=[("watch", "1")]))
    assert exchange is not None
    for effect in exchange.effects:
        effect()
    assert done == ["compacted"]


@pytest.mark.parametrize("say", [
    lambda faults: faults.on("GET"),
    lambda faults: faults.on("get apply"),
    lambda faults: faults.on(method="get"),
    lambda faults: faults.on(resource="Service"),
    lambda faults: faults.on("get", "services"),
    lambda faults: faults.on("get").nth(0),
    lambda faults: faults.on("get").first(0),
    lambda faults: faults.on("get").first("2"),
    lambda faults: faults.on("get").every(-1),
    lambda faults: faults.on("get").status(99999),
    lambda faults: faults.on("get").answer("500"),
])
def test_a_rule_that_could_never_do_what_it_says_is_refused(say):
    with pytest.raises(ValueError, match=r"no request has|above 0|between 100 and 599"):
        say(Faults())


@pytest.mark.parametrize(("resource", "plural"), [
    ("pod", "pods"), ("po", "pods"), ("pod/status", "pods"), ("deployment.apps", "deployments"),
    ("pods configmap", "configmaps"), ("ingress", "ingresses"), ("gadget", "gadgets"), ("gd.example.com", "gadgets")])
def test_a_resource_by_its_singular_or_short_name_is_refused_with_its_plural(resource: str, plural: str) -> None:
    server = ApiServer()
    server.load({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                 "metadata": {"name": "gadgets.example.com"},
                 "spec": {"group": "example.com", "scope": "Namespaced",
                          "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "shortNames": ["gd"]},
                          "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
                              "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}})
    with pytest.raises(ValueError, match=f"no request has the resource .*: it must be the plural, '{plural}'"):
        server.faults.on(resource=resource)
    server.faults.on(resource="pods")
    server.faults.on(resource="of-a-crd-that-is-still-to-come")


def test_a_script_that_was_written_before_its_server_is_looked_through_when_it_is_given_to_it() -> None:
    faults = Faults()
    faults.on("list", resource="pod").drop()
    with pytest.raises(ValueError, match="'pods'"):
        ApiServer(faults=faults)
