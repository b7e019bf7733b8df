"""A context for a unit test of a reconciler."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Context, RequestError
from kubectl_runtime.resources import ConfigMap, Deployment, Secret
from kubectl_runtime.testing import RequestVerifier, context_for
from kubectl_runtime.testing.request_verifier import UnexpectedRequest
from kubectl_runtime.testing.unit_context import Recorded


def a_map(name="a", **data):
    return ConfigMap.from_dict({"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "data": data})


def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
    twin = ctx.store(ConfigMap).get("b", "default")
    ctx.record("Looked", f"found {twin.data}", warning=twin is None)
    ctx.logger.info("looking")
    Api.namespaced(ctx.client, ConfigMap, obj.namespace).delete("b")
    return Action.requeue(ctx.data["pause"])


def test_a_reconciler_is_called_like_any_function():
    with RequestVerifier() as server:
        server.expect("delete", ConfigMap, "b", namespace="default")
        ctx = context_for(a_map(), client=server.client, data={"pause": 300}, stored=[a_map("b", key="value")])
        assert reconcile(a_map(), ctx) == Action.requeue(300)
    assert ctx.events == [Recorded("Looked", "found {'key': 'value'}")]
    assert ctx.events[0].regarding.uid == "uid-a"


def test_stores_hold_what_was_given_and_others_are_refused():
    ctx = context_for(a_map(), stored=[a_map("b")], kinds=[Deployment])
    assert sorted(each.name for each in ctx.store(ConfigMap).list()) == ["a", "b"]
    assert ctx.store(Deployment).list() == []
    with pytest.raises(RequestError, match="Secret is not watched in this test"):
        ctx.store(Secret)


def test_without_a_client_every_call_is_refused():
    ctx = context_for(a_map())
    with pytest.raises(UnexpectedRequest):
        Api.namespaced(ctx.client, ConfigMap, "default").get("a")


def test_attempts_and_the_backoff():
    assert context_for(a_map()).attempt == 1
    third = context_for(a_map(), attempt=3)
    assert third.attempt == 3
    assert 0.01 <= third.backoff_delay <= 0.02
    assert third.backoff_delay == context_for(a_map(), attempt=3).backoff_delay
    assert third.ref.name == "a"
    assert third.reason == "unit test"


def test_the_time_is_that_of_the_client_s_clock():
    with RequestVerifier() as server:
        ctx = context_for(a_map(), client=server.client)
        before = ctx.now()
        server.clock.advance(3600)
        assert ctx.now() - before == timedelta(hours=1)
        assert before.utcoffset() == timedelta(0)


def test_a_test_can_stop_the_run():
    ctx = context_for(a_map(), run_timeout=5)
    assert ctx.deadline == 5
    assert not ctx.stop.is_set()
    ctx.begin_stop()
    assert ctx.stop.is_set()


@pytest.mark.parametrize(("obj", "more"), [
    (ConfigMap(), {}), (a_map(), {"attempt": 0}), ({"metadata": {"name": "a"}}, {}), (a_map(), {"stored": [None]})])
def test_what_makes_no_context_is_refused(obj, more):
    with pytest.raises(RequestError, match="context_for needs"):
        context_for(obj, **more)
