"""What an exporter of OpenTelemetry sees of runs and requests, and that nobody pays for it who does not trace."""
from __future__ import annotations

import contextvars
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK comes with the extra 'test'")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes, url_attributes
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    Client,
    Config,
    Context,
    Controller,
    ListParams,
    RequestError,
    RetryPolicy,
    TransportError,
)
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.base.observer import Observer, together
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.requests.request import Place, Request
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime import logs
from kubectl_runtime.runtime.observe.metrics import Metrics
from kubectl_runtime.runtime.observe.tracing import Tracing, template_of
from kubectl_runtime.testing.simulation import Simulation
from tests.inherited_contexts import inherit
from tests.runtime.scripted_cluster import Cluster, Parent

LIMIT = 20
SECRET = "the password is tiger"
MAPS = ApiResource("", "v1", "ConfigMap", "configmaps")
NAMESPACES = ApiResource("", "v1", "Namespace", "namespaces")


class Traced:
    """A provider whose spans are kept."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, part: str) -> list[ReadableSpan]:
        return [span for span in self.spans if part in span.name]


@pytest.fixture
def traced() -> Traced:
    return Traced()


def simulated(observer: Observer, reconcile: Callable[[Parent, Context[Any]], Action], *names: str) -> Simulation:
    sim = Simulation()
    cluster = Cluster(sim.clock)
    for name in names or ("a",):
        cluster.put(Parent, name)
    sim.start(Controller(cluster.api(Parent), name="shops", observer=observer), reconcile)
    sim.settle(0.001)
    return sim


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# Runs


def test_a_run_is_a_span_of_its_own_trace(traced: Traced) -> None:
    simulated(Tracing(traced.provider), lambda obj, ctx: Action.requeue(300), "a", "b")
    assert [span.name for span in traced.spans] == ["reconcile shops"] * 2
    assert len({span.context.trace_id for span in traced.spans if span.context}) == 2
    span = next(span for span in traced.spans if attributes(span)["kubectl_runtime.object.name"] == "a")
    assert (span.kind, span.parent, span.status.status_code) == (SpanKind.INTERNAL, None, StatusCode.UNSET)
    told = attributes(span)
    assert told.pop("kubectl_runtime.waited") >= 0
    assert told == {"kubectl_runtime.controller": "shops", "kubectl_runtime.object.name": "a",
                    "k8s.namespace.name": "default", "kubectl_runtime.reason": "object updated",
                    "kubectl_runtime.result": "requeue_after"}


def test_a_run_that_fails_is_a_failed_span_with_the_class_and_code_of_its_error_and_no_text(traced: Traced) -> None:
    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        raise {"a": ValueError(SECRET), "b": TransportError(SECRET)}[obj.name]

    simulated(Tracing(traced.provider), reconcile, "a", "b")
    found = {attributes(span)["kubectl_runtime.object.name"]: span for span in traced.spans}
    assert found["a"].status.status_code is StatusCode.ERROR
    assert attributes(found["a"])[error_attributes.ERROR_TYPE] == "ValueError"
    assert attributes(found["b"])[error_attributes.ERROR_TYPE].endswith(".TransportError")
    assert attributes(found["a"])["kubectl_runtime.result"] == "error"
    assert SECRET not in "".join(span.to_json() for span in traced.spans)


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(RequestError, match="must be an OpenTelemetry TracerProvider, not 'console'"):
        Tracing("console")  # type: ignore[arg-type]


def test_texts_and_tracebacks_come_where_details_are_switched_on(traced: Traced) -> None:
    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        raise ValueError(SECRET)

    simulated(Tracing(traced.provider, details=True), reconcile)
    (event,) = traced.spans[0].events
    assert event.name == "exception"
    assert dict(event.attributes or {})["exception.message"] == SECRET


def test_spans_that_a_reconciler_makes_itself_are_children_of_its_run(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("shop")

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        with tracer.start_as_current_span("look at the shop"):
            return Action.await_change()

    simulated(Tracing(traced.provider), reconcile)
    (own,), (run,) = traced.named("look"), traced.named("reconcile")
    assert own.parent is not None
    assert run.context is not None
    assert own.parent.span_id == run.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


# Requests


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """With one ConfigMap, `one`."""
    with ApiServer() as running, running.client() as client:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="one"))
        yield running


def traced_client(server: ApiServer, tracing: Tracing, *more: Observer, layers: Any = None, **options: Any) -> Client:
    with server.client() as plain:
        return Client(plain.config, observer=together(*more, tracing), layers=layers or tracing.layers, **options)


def refusing(times: int) -> Callable[[Send], Send]:
    """A layer next to the adapter, that answers 503 so often before it lets a request through."""
    left = [times]

    def layer(send: Send) -> Send:
        def answered(call: Call) -> Answer:
            if call.request.verb == "apply" and left[0]:
                left[0] -= 1
                return Answer(503, {"Retry-After": "0"}, b"{}")
            return send(call)

        return answered

    return layer


def run_once(client: Client, reconcile: Callable[[ConfigMap, Context[Any]], Action], *, name: str = "maps") -> None:
    """Start a controller of ConfigMaps, and end it when it has reconciled one."""
    ran = threading.Event()

    def observed(obj: ConfigMap, ctx: Context[Any]) -> Action:
        if obj.name != "one":
            return Action.await_change()
        try:
            return reconcile(obj, ctx)
        finally:
            ran.set()

    with Controller(Api.namespaced(client, ConfigMap, "default"), name=name).start(observed):
        assert ran.wait(LIMIT)


def test_a_request_is_one_child_span_of_its_run_across_its_retries(server: ApiServer, traced: Traced) -> None:
    tracing = Tracing(traced.provider)

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        Api.namespaced(ctx.client, ConfigMap, "default").apply({"metadata": {"name": "child"}}, field_manager="test")
        return Action.await_change()

    with traced_client(server, tracing, layers=lambda stack: tracing.layers(stack).innermost(refusing(2)),
                       retry=RetryPolicy(base=0.001)) as client:
        run_once(client, reconcile)
    (run,) = [span for span in traced.named("reconcile")
              if attributes(span)["kubectl_runtime.object.name"] == "one"]
    (request,) = traced.named("PATCH")
    assert run.context is not None
    assert request.context is not None
    assert request.parent is not None
    assert (request.parent.span_id, request.context.trace_id) == (run.context.span_id, run.context.trace_id)
    assert request.kind is SpanKind.CLIENT
    assert attributes(request)[http_attributes.HTTP_REQUEST_RESEND_COUNT] == 2
    assert [event.name for event in request.events] == ["retry", "retry"]
    assert (run.start_time or 0) <= (request.start_time or 0) <= (request.end_time or 0) <= (run.end_time or 0)


def test_the_attributes_of_a_request_are_those_of_the_conventions(server: ApiServer, traced: Traced) -> None:
    tracing = Tracing(traced.provider)
    with traced_client(server, tracing, layers=lambda stack: tracing.layers(stack).innermost(refusing(2)),
                       retry=RetryPolicy(base=0.001)) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        with traced.provider.get_tracer("test").start_as_current_span("outside"):
            maps.apply({"metadata": {"name": "described"}}, field_manager="test")
    span, outside = traced.spans
    template = "/api/v1/namespaces/{namespace}/configmaps/{name}"
    assert span.name == f"PATCH {template}"
    assert span.parent is not None
    assert outside.context is not None
    assert span.parent.span_id == outside.context.span_id
    host, _, port = server.url.partition("://")[2].partition(":")
    assert attributes(span) == {
        http_attributes.HTTP_REQUEST_METHOD: "PATCH", http_attributes.HTTP_RESPONSE_STATUS_CODE: 201,
        http_attributes.HTTP_REQUEST_RESEND_COUNT: 2, server_attributes.SERVER_ADDRESS: host,
        server_attributes.SERVER_PORT: int(port), "url.template": template,
        url_attributes.URL_FULL: f"{server.url}/api/v1/namespaces/default/configmaps/described",
        "k8s.namespace.name": "default", "kubectl_runtime.verb": "apply", "kubectl_runtime.resource": "configmaps",
        "kubectl_runtime.object.name": "described"}
    assert [(event.name, dict(event.attributes or {})["kubectl_runtime.attempt"],
             dict(event.attributes or {})["http.response.status_code"]) for event in span.events] == [
        ("retry", 1, 503), ("retry", 2, 503)]


def test_a_request_that_fails_is_a_failed_span(server: ApiServer, traced: Traced) -> None:
    tracing = Tracing(traced.provider)
    with traced_client(server, tracing) as client, traced.provider.get_tracer("test").start_as_current_span("outside"):
        with pytest.raises(ApiError):
            Api.namespaced(client, ConfigMap, "default").get("not-there")
        with Client(Config(cluster_url="http://127.0.0.1:1"), layers=tracing.layers, observer=tracing,
                    retry=RetryPolicy.never()) as nowhere, pytest.raises(TransportError):
            Api.namespaced(nowhere, ConfigMap, "default").get("a")
    answered, lost = traced.named("GET")
    assert (answered.status.status_code, lost.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert attributes(answered)[error_attributes.ERROR_TYPE] == "404"
    assert attributes(answered)[http_attributes.HTTP_RESPONSE_STATUS_CODE] == 404
    assert attributes(lost)[error_attributes.ERROR_TYPE].endswith(".ConnectionFailed")
    assert attributes(lost)[server_attributes.SERVER_PORT] == 1


def test_without_a_span_around_it_a_request_makes_none_and_watches_make_none(server: ApiServer, traced: Traced) -> None:
    tracing = Tracing(traced.provider)
    with traced_client(server, tracing) as client:
        Api.namespaced(client, ConfigMap, "default").list()
        run_once(client, lambda obj, ctx: Action.await_change())
    assert {span.name for span in traced.spans} == {"reconcile maps"}


def test_the_server_is_told_of_the_trace_and_of_nothing_else(server: ApiServer, traced: Traced) -> None:
    tracing, seen = Tracing(traced.provider), list[dict[str, Any]]()

    def keeping(send: Send) -> Send:
        def kept(call: Call) -> Answer:
            seen.append(dict(call.headers))
            return send(call)

        return kept

    with traced_client(server, tracing, layers=lambda stack: tracing.layers(stack).innermost(keeping)) as client:
        with traced.provider.get_tracer("test").start_as_current_span("outside"):
            Api.namespaced(client, ConfigMap, "default").list()
        Api.namespaced(client, ConfigMap, "default").list()
    (request,) = traced.named("GET")
    assert request.context is not None
    told = seen[0]["traceparent"]
    assert told.startswith(f"00-{request.context.trace_id:032x}-{request.context.span_id:016x}-")
    assert "baggage" not in seen[0]
    assert "traceparent" not in seen[1]


def test_the_query_of_a_request_is_told_only_with_details(server: ApiServer, traced: Traced) -> None:
    for details in (False, True):
        tracing = Tracing(traced.provider, details=details)
        with traced_client(server, tracing) as client, \
                traced.provider.get_tracer("test").start_as_current_span("outside"):
            Api.namespaced(client, ConfigMap, "default").list(ListParams(label_selector="app=tiger"))
    plain, detailed = (attributes(span)[url_attributes.URL_FULL] for span in traced.named("GET"))
    assert "?" not in plain
    assert "tiger" in detailed


@pytest.mark.parametrize(("namespace", "name", "subresource", "template"), [
    ("a", "b", None, "/api/v1/namespaces/{namespace}/configmaps/{name}"),
    ("a", "status", "status", "/api/v1/namespaces/{namespace}/configmaps/{name}/status"),
    ("configmaps", "configmaps", None, "/api/v1/namespaces/{namespace}/configmaps/{name}"),
    ("a", "system:b", None, "/api/v1/namespaces/{namespace}/configmaps/{name}"),
    ("a", "b c", None, "/api/v1/namespaces/{namespace}/configmaps/{name}"),
    ("a", None, None, "/api/v1/namespaces/{namespace}/configmaps"),
    (None, None, None, "/api/v1/configmaps")])
def test_a_path_is_told_without_what_differs_from_object_to_object(
        namespace: str | None, name: str | None, subresource: str | None, template: str) -> None:
    path = Place(MAPS, namespace).path(name, subresource)
    request = Request("GET", path, "get", MAPS, namespace=namespace, name=name, subresource=subresource)
    assert template_of(request) == template


def test_a_path_that_is_about_no_kind_is_told_as_it_is() -> None:
    assert template_of(Request("GET", "/version", "get", None)) == "/version"
    assert template_of(Request("GET", "/api/v1/namespaces/team-a", "get", NAMESPACES, name="team-a")) == \
        "/api/v1/namespaces/{name}"


# Logs and exemplars


def test_what_a_run_logs_carries_its_trace_and_what_comes_later_does_not(traced: Traced) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    handler.addFilter(logs.RunFilter())
    log = logging.getLogger("shop")
    log.addHandler(handler)
    try:
        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            log.error("from inside")
            return Action.await_change()

        simulated(Tracing(traced.provider), reconcile)
        log.error("from outside")
    finally:
        log.removeHandler(handler)
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    (run,) = traced.spans
    assert run.context is not None
    assert (inside["trace_id"], inside["span_id"]) == (f"{run.context.trace_id:032x}", f"{run.context.span_id:016x}")
    assert inside["name"] == "a"
    assert "trace_id" not in outside


def exemplars(metrics: Metrics, family: str) -> list[str]:
    text = generate_latest(metrics.registry).decode()
    return [line.partition(' # {trace_id="')[2][:32] for line in text.splitlines()
            if line.startswith(f"{family}_bucket") and " # {" in line]


@pytest.mark.parametrize("order", ["metrics first", "tracing first"])
def test_durations_of_runs_have_their_traces_as_exemplars(traced: Traced, order: str) -> None:
    metrics, tracing = Metrics(CollectorRegistry()), Tracing(traced.provider)
    simulated(together(metrics, tracing) if order == "metrics first" else together(tracing, metrics),
              lambda obj, ctx: Action.await_change())
    (run,) = traced.spans
    assert run.context is not None
    for family in ("controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"):
        assert exemplars(metrics, family) == [f"{run.context.trace_id:032x}"]
    assert exemplars(metrics, "workqueue_queue_duration_seconds") == []


def test_durations_of_requests_have_the_traces_of_their_runs(server: ApiServer, traced: Traced) -> None:
    metrics, tracing = Metrics(CollectorRegistry()), Tracing(traced.provider)

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        Api.namespaced(ctx.client, ConfigMap, "default").get("one")
        return Action.await_change()

    with traced_client(server, tracing, metrics) as client:
        run_once(client, reconcile)
    runs = {f"{span.context.trace_id:032x}" for span in traced.named("reconcile") if span.context}
    found = exemplars(metrics, "rest_client_request_duration_seconds")
    assert found
    assert set(found) <= runs


def test_what_is_not_sampled_is_no_exemplar_and_untraced_metrics_have_none() -> None:
    unsampled = Traced(sampler=ALWAYS_OFF)
    for observers in ([Tracing(unsampled.provider)], [Tracing()], []):
        metrics = Metrics(CollectorRegistry())
        simulated(together(metrics, *observers), lambda obj, ctx: Action.await_change())
        assert exemplars(metrics, "controller_runtime_reconcile_time_seconds") == []


def test_a_run_that_nobody_traces_gets_no_trace_of_one_before_it_in_the_same_thread(traced: Traced) -> None:
    simulated(Tracing(traced.provider), lambda obj, ctx: Action.await_change(), "traced")
    metrics = Metrics(CollectorRegistry())
    simulated(metrics, lambda obj, ctx: Action.await_change(), "untraced")
    assert exemplars(metrics, "controller_runtime_reconcile_time_seconds") == []


# Those who do not trace


def test_opentelemetry_is_not_imported_by_those_who_do_not_trace() -> None:
    code = """
import sys
import kubectl_runtime
from kubectl_runtime import Action, Api, Controller, HealthServer, Manager, Metrics
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.resources import ConfigMap
import kubectl_runtime.cli.operator
with ApiServer() as server, server.client() as client:
    manager = Manager(client, serve="127.0.0.1:0").add(Controller(Api.all(client, ConfigMap)),
                                                         lambda obj, ctx: Action.await_change())
    with manager.start() as running:
        while not running.is_ready:
            pass
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_without_opentelemetry_the_remedy_is_told() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
try:
    from kubectl_runtime.runtime.observe.tracing import Tracing
except ImportError as error:
    print(error)
from kubectl_runtime.cli.operator import client_of
from kubectl_runtime.cli.places import CommandError, Place
from kubectl_runtime.cli.run_options import RunOptions
import kubectl_runtime.cli.operator as operator
from kubectl_runtime import Config
operator.config_of = lambda options: Config(cluster_url="http://127.0.0.1:1")
try:
    client_of(RunOptions(Place("a", "b"), tracing=True))
except CommandError as error:
    print(error)
client_of(RunOptions(Place("a", "b"), metrics=False))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    first, second = done.stdout.splitlines()
    assert first == str(MissingExtra("tracing needs", "tracing"))
    assert second == f"--tracing: {first}"


def test_the_command_line_traces_where_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from kubectl_runtime.cli import operator
    from kubectl_runtime.cli.places import Place
    from kubectl_runtime.cli.run_options import RunOptions
    from kubectl_runtime.core.base.observer import parts_of

    monkeypatch.setattr(operator, "config_of", lambda options: Config(cluster_url="http://127.0.0.1:1"))
    with operator.client_of(RunOptions(Place("a", "b"), metrics=False, tracing=True)) as client:
        assert [type(part) for part in parts_of(client.observer)] == [Tracing]
        assert client._layers.entries[1][1] is not None
        assert client._layers.entries[1][0] == ""  # around retry


@pytest.mark.parametrize("inherited", [False, True], ids=["threads begin empty", "threads have a copy of the context"])
def test_a_request_of_a_thread_is_the_runs_where_the_context_was_copied(
        server: ApiServer, traced: Traced, monkeypatch: pytest.MonkeyPatch, inherited: bool) -> None:
    if inherited:
        inherit(monkeypatch)
    tracing, ended = Tracing(traced.provider), threading.Event()
    kept: list[contextvars.Context] = []

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        maps = Api.namespaced(ctx.client, ConfigMap, "default")
        kept.append(contextvars.copy_context())
        copied = partial(contextvars.copy_context().run, maps.get_opt)
        for name, target in (("started", maps.get_opt), ("copied", copied)):
            thread = threading.Thread(target=target, args=(name,))
            thread.start()
            thread.join(LIMIT)
        ended.set()
        return Action.await_change()

    with traced_client(server, tracing) as client:
        run_once(client, reconcile)
        assert ended.wait(LIMIT)
        kept[0].run(Api.namespaced(client, ConfigMap, "default").get_opt, "too late")
    assert [attributes(span)["kubectl_runtime.object.name"] for span in traced.spans
            if span.kind is SpanKind.CLIENT] == ["copied"]
