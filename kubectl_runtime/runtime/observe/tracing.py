"""`Tracing`: a span for each run, with a child span for each request of the run. Needs the extra `tracing`.

    tracing = Tracing()                      # spans go to the program's OpenTelemetry provider
    client = Client(config, observer=together(metrics, tracing), layers=tracing.layers)

    span                             kind      from                             until
    reconcile CONTROLLER             internal  a run's start                    its end
    PATCH /api/v1/…/{name}           client    the call's first attempt         its answer, after all retries;
                                                                                for a stream, the head of the answer

Each retry is an event of the request's span. A request gets a span only inside a run's span or a span of the program;
requests of watches get none. The header `traceparent` passes the trace to the server; no baggage is sent. If a run
starts a thread and copies the context for it (`contextvars.copy_context`), the thread's requests belong to the run as
long as the run lasts.

Attributes have OpenTelemetry's names where OpenTelemetry defines them
(https://opentelemetry.io/docs/specs/semconv/http/http-spans/ and `k8s.namespace.name`); the other names begin with
`kubectl_runtime.`. A span contains the names of objects, and the class and code of errors. With `details` it also
contains the text and traceback of errors, which may quote an object, and the query of requests. Log records of a run
get `trace_id` and `span_id` (see `runtime.logs`), and `Metrics` adds sampled traces as exemplars.
"""
from __future__ import annotations

from contextvars import Token
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.client.http.layers import RETRY, Stack
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.base.errors import MissingExtra, RequestError
from kubectl_runtime.core.base.observer import Observer, RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.requests.request import Request, segment
from kubectl_runtime.core.scope import RunScope, Trace, current_scope, stray_trace

try:
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("tracing needs", "tracing", "opentelemetry", error) from error

_PROPAGATOR = TraceContextTextMapPropagator()
_FIRST_FAILURE = 400


class Tracing(Observer):
    """OpenTelemetry spans for runs and their requests: an Observer. Pass it to a client as `observer=`.

    `provider`: receives the spans; by default the program's global provider. `details`: include queries and texts of
    errors. Needs opentelemetry-api (the extra `tracing`); no other module imports it. Safe to use from any thread; one
    object serves any number of clients and controllers.

    >>> with Client(Config(cluster_url=server.url), observer=Tracing()) as traced:
    ...     _ = Api.all(traced, ConfigMap).list()
    """

    __slots__ = ("_details", "_runs", "_tracer")

    def __init__(self, provider: trace.TracerProvider | None = None, *, details: bool = False) -> None:
        """`provider`: None means the provider that the program has set when the first span begins. Raises RequestError
        if `provider` is not a TracerProvider."""
        if provider is not None and not isinstance(provider, trace.TracerProvider):
            raise RequestError(f"provider must be an OpenTelemetry TracerProvider, not {provider!r}")
        self._tracer = trace.get_tracer("kubectl_runtime", VERSION, provider)
        self._details = details
        self._runs: dict[RunScope, tuple[trace.Span, Token[Any]]] = {}

    # Runs. A run begins and ends in one thread, within one scope

    def run_started(self, controller: str, key: Key, reason: str, waited: float, depth: int,  # noqa: ARG002
                    now: float) -> None:  # noqa: ARG002
        scope = current_scope()
        if scope is None:
            return
        namespace, name = key
        span = self._tracer.start_span(f"reconcile {controller}", context=context.Context(), attributes={
            "kubectl_runtime.controller": controller, "kubectl_runtime.object.name": name,
            "kubectl_runtime.reason": str(reason), "kubectl_runtime.waited": waited,
            **({"k8s.namespace.name": namespace} if namespace else {})})
        self._runs[scope] = span, context.attach(trace.set_span_in_context(span))
        found = span.get_span_context()
        scope.trace = Trace(f"{found.trace_id:032x}", f"{found.span_id:016x}", (controller, key),
                            sampled=found.trace_flags.sampled) if found.is_valid else None

    def run_ended(self, controller: str, key: Key, result: RunResult, seconds: float,  # noqa: ARG002
                  error: BaseException | None) -> None:
        scope = current_scope()
        begun = None if scope is None else self._runs.pop(scope, None)
        if scope is None or begun is None:
            return
        span, token = begun
        context.detach(token)
        if scope.trace is not None:  # other observers may look it up later, and must see that it is over
            scope.trace.over = True
        span.set_attribute("kubectl_runtime.result", str(result))
        if error is not None:
            self._fail(span, error)
        span.end()

    # Requests

    def request_retried(self, host: str, verb: str, resource: str, code: int, attempt: int,  # noqa: ARG002
                        delay: float) -> None:
        trace.get_current_span().add_event("retry", {
            "kubectl_runtime.attempt": attempt, "kubectl_runtime.delay": delay,
            **({"http.response.status_code": code} if code else {})})

    def layers(self, stack: Stack) -> Stack:
        """Returns `stack` with the tracing layer outside its retries, for `Client(layers=...)`. Raises ConfigError for
        a stack without retries."""
        return stack.outside(RETRY, self.layer)

    def layer(self, send: Send) -> Send:
        """The tracing layer, for any position in a stack. The request's span covers the work of all layers inside the
        tracing layer."""
        def traced(call: Call) -> Answer:
            current = trace.get_current_span().get_span_context()
            if not current.is_valid:
                return send(call)
            stray = stray_trace()
            if stray is not None and stray.span_id == f"{current.span_id:016x}":
                return send(call)
            request = call.request
            with self._tracer.start_as_current_span(
                    f"{request.method} {template_of(request)}", kind=trace.SpanKind.CLIENT,
                    attributes=self._asked(request), record_exception=False, set_status_on_exception=False) as span:
                _PROPAGATOR.inject(call.headers)
                try:
                    answer = send(call)
                except BaseException as error:
                    self._fail(span, error)
                    raise
                finally:
                    self._sent(span, call)
                span.set_attribute("http.response.status_code", answer.status)
                if answer.status >= _FIRST_FAILURE:
                    span.set_attribute("error.type", str(answer.status))
                    span.set_status(trace.StatusCode.ERROR)
                return answer

        return traced

    def _asked(self, request: Request) -> dict[str, str]:
        found = {"http.request.method": request.method, "url.template": template_of(request),
                 "kubectl_runtime.verb": request.verb}
        if request.resource is not None:
            found["kubectl_runtime.resource"] = request.resource_name
        if request.namespace:
            found["k8s.namespace.name"] = request.namespace
        if request.name:
            found["kubectl_runtime.object.name"] = request.name
        return found

    def _sent(self, span: trace.Span, call: Call) -> None:
        if call.attempt:
            span.set_attribute("http.request.resend_count", call.attempt)
        if not call.url:  # the call failed before it had a URL
            return
        parts = urlsplit(call.url)
        span.set_attributes({"server.address": parts.hostname or "",
                             "server.port": parts.port or (443 if parts.scheme == "https" else 80),
                             "url.full": call.url if self._details else parts._replace(query="").geturl()})

    def _fail(self, span: trace.Span, error: BaseException) -> None:
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        span.set_attribute("error.type", name)
        code = getattr(error, "code", None)
        if isinstance(code, int) and code:
            span.set_attribute("kubectl_runtime.error.code", code)
        if self._details:
            span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR)


def template_of(request: Request) -> str:
    """The request's path with placeholders for namespace and name, so that there are few different span names."""
    path, resource = request.path, request.resource
    if request.namespace:
        path = path.replace(f"/namespaces/{segment(request.namespace, 'namespace')}/", "/namespaces/{namespace}/", 1)
    if request.name and resource is not None:
        kind = f"/{resource.plural}/"
        path = path.replace(f"{kind}{segment(request.name, 'name')}", f"{kind}{{name}}", 1)
    return path
