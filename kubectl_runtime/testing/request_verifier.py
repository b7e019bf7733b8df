"""`RequestVerifier`: checks in a unit test that code makes exactly the expected API calls.

    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a", namespace="default").answer(ConfigMap(name="a", namespace="default"))
        server.expect("delete", ConfigMap, "a", namespace="default")
        code_under_test(server.client)

There is no server and no connection. An unexpected call raises `UnexpectedRequest` where it is made. The end of the
block raises AssertionError for unexpected calls, in case the code under test caught the exception, and for expected
calls that were not made. Time is simulated, so the client's retries and pauses take no real time.
"""
from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.transport.faults.rule import event_line, response, status_object
from kubectl_runtime.apiserver.transport.inprocess import read_request
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, RequestInfo, parse
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.requests.params import plain_body
from kubectl_runtime.kubectl.apply import difference
from kubectl_runtime.testing.clock import SimClock

Object = dict[str, Any]
Answer = Callable[[HttpRequest], HttpResponse]

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The description of an expected call. None in a field matches anything."""

    verb: str
    resource: ApiResource | None
    path: str = ""
    name: str | None = None
    namespace: str | None = None
    subresource: str = ""

    def matches(self, request: HttpRequest, info: RequestInfo) -> bool:
        """Whether `request` matches the description."""
        if self.resource is None:
            return request.method == self.verb and request.path == self.path
        kind = self.resource
        return (info.is_resource and (info.verb, info.group, info.version, info.resource, info.subresource) == (
            self.verb, kind.group, kind.version, kind.plural, self.subresource)
            and self.name in (None, info.name) and self.namespace in (None, info.namespace))

    def __str__(self) -> str:
        if self.resource is None:
            return f"{self.verb} {self.path}"
        what = self.resource.full_name + (f"/{self.subresource}" if self.subresource else "")
        where = "" if self.namespace is None else f"{self.namespace}/"
        return f"{self.verb} {what} {where}{'*' if self.name is None else self.name}".strip()


class ExpectedRequest:
    """A call that a test expects, and its responses. The methods that describe the call return `self`, for chaining."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.seen = 0
        """The number of calls matched so far."""
        self._times = 1
        self._query: dict[str, str] = {}
        self._bodies: list[Callable[[Any], str]] = []  # each function returns what is wrong with a body
        self._answers: list[Answer] = []
        self._error: BaseException | None = None

    # -- which calls

    def times(self, count: int) -> Self:
        """Expect `count` such calls instead of one."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"times({count!r}): the number of calls must be at least 1")
        self._times = count
        return self

    def query(self, **parameters: str) -> Self:
        """Expect these query parameters, under their names in the URL (``labelSelector``, ``fieldManager``)."""
        self._query.update(parameters)
        return self

    def body(self, expected: Any) -> Self:
        """Expect this body: an object, or plain JSON values. `expected` may also be a function that is called with the
        body as plain values. The function returns whether the body is right, or raises an AssertionError."""
        if callable(expected) and not isinstance(expected, type):
            self._bodies.append(partial(_asked, expected))
        else:
            self._bodies.append(partial(_compared, expected if isinstance(expected, list) else plain_body(expected)))
        return self

    # -- answers

    def answer(self, content: Any = None, status: int | None = None) -> Self:
        """Answer with this object: an instance of a resource class, a dict, or a model. A Python list of objects is
        sent as a list response of the kind.

        If `answer` is called several times, each object answers one call, in order, and the last object answers all
        further calls. Without `answer`, a create, an update or an apply is answered with the object that was sent, and
        a delete with success.
        """
        body = _plain(content, self.wanted)
        code = status if status is not None else 201 if self.wanted.verb == "create" else 200
        return self._answered(lambda _: response(code, body))

    def events(self, *events: tuple[str, Any]) -> Self:
        """Answer a watch with these events (type, object), then end it. Raises ValueError for anything but pairs of an
        event type and an object."""
        for event in events:
            if not (isinstance(event, tuple) and len(event) == 2 and isinstance(event[0], str)):
                raise ValueError(f'{event!r} is not an event: write ("ADDED", obj)')
        lines = b"".join(event_line({"type": kind, "object": plain_body(obj)}) for kind, obj in events)
        return self._answered(lambda _: HttpResponse(200, [("Content-Type", "application/json")], lines))

    def refuse(self, code: int, reason: str | None = None, message: str = "") -> Self:
        """Answer with a Status of this HTTP code; `reason` defaults to the usual reason for the code. The client
        retries after codes for temporary failures, such as 503. Raises ValueError for a code outside of 400 to 599."""
        if isinstance(code, bool) or not isinstance(code, int) or not 400 <= code <= 599:
            raise ValueError(f"refuse({code!r}): the code must be from 400 to 599; use answer() for a success")
        told = message or f"the test refuses to {self.wanted}"
        return self._answered(lambda _: response(code, status_object(code, reason, told)))

    def fail(self, error: BaseException) -> Self:
        """Raise `error` in place of a response, for example a `requests.ConnectionError`."""
        self._error = error
        return self._answered(lambda _: HttpResponse(0))

    def _answered(self, answer: Answer) -> Self:
        self._answers.append(answer)
        return self

    # -- for the verifier

    @property
    def missing(self) -> int:
        """The number of further calls that are expected."""
        return max(0, self._times - self.seen)

    def problem(self, request: HttpRequest) -> str:
        """What is wrong with the query or body of a matching call; empty if both are right. Raises what a function
        given to `body` raises."""
        for name, value in self._query.items():
            if value not in request.params(name):
                return f"{name}={value} was expected in its query, which has {dict(request.query)}"
        for compare in self._bodies:
            try:
                given = json.loads(request.body or b"null")
            except ValueError:
                return "its body is not JSON"
            if why := compare(given):
                return why
        return ""

    def reply(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a call. Raises the exception given to `fail`, and ValueError if no response is
        known."""
        answers = self._answers
        if self._error is not None:
            raise self._error
        if answers:
            return answers[min(self.seen, len(answers)) - 1](request)
        if self.wanted.verb == "delete":
            return response(200, SUCCESS)
        if self.wanted.verb in ("create", "update") or "apply-patch" in request.header("content-type"):
            return response(201 if self.wanted.verb == "create" else 200, _as_stored(request, self.wanted))
        raise ValueError(f"expect({self.wanted}) has no answer: add .answer(…)")

    def __str__(self) -> str:
        return f"{self.wanted}{f' ({self.seen} of {self._times} times)' if self._times > 1 else ''}"


def _asked(check: Callable[[Any], object], given: Any) -> str:
    try:
        right = check(given)
    except AssertionError as error:
        return f"its body is not as it should be: {error}"
    return "" if right is None or right else "the test's function does not accept its body"


def _compared(expected: Any, given: Any) -> str:
    """Describe the differences between two bodies; values of Secrets are not shown."""
    if given == expected:
        return ""
    if not isinstance(expected, dict) or not isinstance(given, dict):
        return f"its body is not the expected {type(expected).__name__}, but a {type(given).__name__}"
    lines = difference("body", expected, given).splitlines()[2:]  # without the two header lines
    return "\n    ".join(["its body differs (- expected, + sent):", *lines])


def _plain(content: Any, wanted: Wanted) -> Any:
    if content is None:
        return {}
    if not isinstance(content, list | tuple):
        return content if isinstance(content, bytes | str) else plain_body(content)
    if wanted.resource is None:
        return list(content)
    kind = wanted.resource
    return {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": {"resourceVersion": "1"},
            "items": [plain_body(each) for each in content]}


def _as_stored(request: HttpRequest, wanted: Wanted) -> Mapping[str, Any]:
    """The sent object with the fields that a server adds."""
    sent = json.loads(request.body)
    meta = sent.get("metadata") or {}
    name = meta.get("name") or wanted.name or f"{meta.get('generateName', '')}12345"
    return {**sent, "metadata": {"uid": "00000000-0000-4000-8000-000000000001",
                                 "creationTimestamp": "2026-01-01T00:00:00Z", **meta, "name": name,
                                 "resourceVersion": "1"}}


VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

MOST_SHOWN = 5
"""The maximum number of expected calls that the error for an unexpected call names."""


class UnexpectedRequest(AssertionError):
    """The code under test made a call that the test does not expect, no longer expects, or does not expect yet."""


class RequestVerifier(BaseAdapter):
    """Answers a client's calls as a test expects them, and reports unexpected and missing calls; a transport adapter
    for requests. Calls may be made in any thread."""

    def __init__(self, *, in_order: bool = False, default_namespace: str = "default") -> None:
        """`in_order`: whether calls must be made in the order of `expect`. `default_namespace`: the client's default
        namespace."""
        super().__init__()
        self._in_order = in_order
        self._lock = threading.Lock()
        self._expected: list[ExpectedRequest] = []
        self._wrong: list[str] = []
        self.calls: list[HttpRequest] = []
        """All calls so far, in order."""
        self.clock = SimClock(self_advancing=True)
        """The client's simulated clock."""
        session = requests.Session()
        session.mount("http://", self)
        self.client = Client(Config(cluster_url="http://verifier.invalid", default_namespace=default_namespace),
                             session=session, clock=self.clock)
        """The client for the code under test; the end of the block closes it."""

    def expect(self, verb: str, kind: HasApiResource | ApiResource, name: str | None = None, *,
               namespace: str | None = None, subresource: str = "") -> ExpectedRequest:
        """Expect one more call. `verb` is an RBAC verb: get, list, watch, create, update (for `replace`), patch (also
        for `apply`), delete or deletecollection. A `name` or `namespace` of None matches any value. `subresource`: for
        example "status" for `apply_status`. Raises ValueError for any other verb."""
        if verb not in VERBS:
            raise ValueError(f"{verb!r} is not a verb of a request; the verbs are {', '.join(VERBS)}")
        resource = api_resource_of(kind)
        by_name = None if verb in ("list", "watch", "create", "deletecollection") and not subresource else name
        if name is not None and by_name is None:
            raise ValueError(f"a {verb} has no name in its path: " + (
                "check the body with .body(…)" if verb == "create" else "omit name, or expect a get, patch or delete"))
        return self._add(Wanted(verb, resource, "", name, namespace, subresource))

    def expect_path(self, method: str, path: str) -> ExpectedRequest:
        """Expect one more call to a path without a kind, such as ``GET /version``."""
        return self._add(Wanted(method.upper(), None, path))

    def _add(self, wanted: Wanted) -> ExpectedRequest:
        expected = ExpectedRequest(wanted)
        with self._lock:
            self._expected.append(expected)
        return expected

    def verify(self) -> None:
        """Raise an AssertionError that lists unexpected and missing calls, if there are any."""
        with self._lock:
            missing = [f"expected, but never called: {each}" for each in self._expected if each.missing]
            told = [*self._wrong, *missing]
            made = "\n".join(f"  {request.method} {request.path}" for request in self.calls) or "  none"
        if told:
            raise AssertionError("\n".join([*told, f"the calls were:\n{made}"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.client.close()
        if error is None:  # otherwise only the block's own error is raised, which may be why calls are missing
            self.verify()

    # -- for requests

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer one call as expected. Raises UnexpectedRequest, and the exception given to `fail`."""
        wanted = read_request(request)
        return _response(request, self._take(wanted))

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _take(self, request: HttpRequest) -> HttpResponse:
        info, reasons = parse(request), []
        with self._lock:
            self.calls.append(request)
            open_ones = [expected for expected in self._expected if expected.missing]
        for expected in open_ones[:1] if self._in_order else open_ones:
            if not expected.wanted.matches(request, info):
                reasons += [f"{expected.wanted} was expected first"] if self._in_order else []
            elif why := expected.problem(request):  # called without the lock, since it may call the test's functions
                reasons.append(why)
            elif self._count(expected):
                return expected.reply(request)
        reasons = reasons or [f"still expected: {each.wanted}" for each in open_ones[:MOST_SHOWN]]
        verb = f"{info.verb} " if info.is_resource else ""
        told = f"not expected: {verb}{request.method} {request.path}" + "".join(f"\n  {each}" for each in reasons)
        with self._lock:
            self._wrong.append(told)
        raise UnexpectedRequest(told)

    def _count(self, expected: ExpectedRequest) -> bool:
        """Count a call. Returns False if another thread has made the last expected call in the meantime."""
        with self._lock:
            taken = expected.missing > 0
            expected.seen += taken
        return taken


def _response(request: requests.PreparedRequest, answer: HttpResponse) -> requests.Response:
    """Build a response as requests' own adapter does."""
    headers = urllib3.HTTPHeaderDict([*answer.headers, ("Content-Length", str(len(answer.body)))])
    raw = urllib3.HTTPResponse(io.BytesIO(answer.body), headers, answer.status, preload_content=False)
    response = requests.Response()
    response.status_code, response.request, response.url = answer.status, request, request.url or ""
    response.raw, response.encoding = raw, "utf-8"
    response.headers = requests.structures.CaseInsensitiveDict(headers)
    return response
