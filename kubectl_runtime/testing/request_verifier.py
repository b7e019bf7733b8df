"""`RequestVerifier`: for a unit test of code that calls the client: each expected call is made, and no other.

    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a", namespace="default").answer(ConfigMap(name="a", namespace="default"))
        server.expect("delete", ConfigMap, "a", namespace="default")
        code_under_test(server.client)

There is no server and no connection. A call that nobody expects raises `UnexpectedRequest` where it is made, and once
more at the end of the block, in case the code under test caught it; so does the end for a call that was never made.
Time is simulated: the client's retries and pauses pass at once.
"""

from __future__ import annotations

import io
import threading
from types import TracebackType
from typing import Any, Self

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.rim.inprocess.transport import read_request
from kubectl_runtime.apiserver.route import parse
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.expected_request import ExpectedRequest, Wanted

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

TOLD = 5
"""Expected calls that the error of an unexpected one names."""


class UnexpectedRequest(AssertionError):
    """A call that the test does not expect, or not any more, or not now."""


class RequestVerifier(BaseAdapter):
    """Answers calls as a test expects them, and tells of those that came otherwise or not at all; a transport adapter
    for requests. Calls may come from any thread."""

    def __init__(self, *, in_order: bool = False, default_namespace: str = "default") -> None:
        """`in_order`: the calls come in the order in which they are expected. `default_namespace`: of the client."""
        super().__init__()
        self._in_order = in_order
        self._lock = threading.Lock()
        self._expected: list[ExpectedRequest] = []
        self._wrong: list[str] = []
        self.calls: list[HttpRequest] = []
        """All calls so far, in order."""
        self.clock = SimClock(self_advancing=True)
        """The client's."""
        session = requests.Session()
        session.mount("http://", self)
        self.client = Client(Config(cluster_url="http://verifier.invalid", default_namespace=default_namespace),
                             session=session, clock=self.clock)
        """For the code under test; the end of the block closes it."""

    def expect(self, verb: str, kind: HasApiResource | ApiResource, name: str | None = None, *,
               namespace: str | None = None, subresource: str = "") -> ExpectedRequest:
        """Expect one call more. `verb` is RBAC's: get list watch create update (a replace) patch (an apply, too) delete
        deletecollection. `name` and `namespace` None are any; `subresource`: as "status" for `apply_status`. Raises
        ValueError for another verb."""
        if verb not in VERBS:
            raise ValueError(f"no request has the verb {verb!r}: they are {', '.join(VERBS)}")
        resource = api_resource_of(kind)
        by_name = None if verb in ("list", "watch", "create", "deletecollection") and not subresource else name
        if name is not None and by_name is None:
            raise ValueError(f"a {verb} has no name in its path: look into its body with .body(…)")
        return self._add(Wanted(verb, resource, "", name, namespace, subresource))

    def expect_path(self, method: str, path: str) -> ExpectedRequest:
        """Expect one call more that is about no kind, such as ``GET /version``."""
        return self._add(Wanted(method.upper(), None, path))

    def _add(self, wanted: Wanted) -> ExpectedRequest:
        expected = ExpectedRequest(wanted)
        with self._lock:
            self._expected.append(expected)
        return expected

    def verify(self) -> None:
        """Raise an AssertionError that lists calls which were not expected, and expected ones which were not made."""
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
        if error is None:
            self.verify()  # an error of the block says more than what it kept from happening

    # -- for requests

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer one call as it was expected. Raises UnexpectedRequest, and what a test said that it raises."""
        wanted = read_request(request)
        return _response(request, self._take(wanted))

    def close(self) -> None:
        """Do nothing: nothing is kept open."""

    def _take(self, request: HttpRequest) -> HttpResponse:
        info, reasons = parse(request), []
        with self._lock:
            self.calls.append(request)
            open_ones = [expected for expected in self._expected if expected.missing]
        for expected in open_ones[:1] if self._in_order else open_ones:
            if not expected.wanted.matches(request, info):
                reasons += [f"{expected.wanted} was expected first"] if self._in_order else []
            elif why := expected.problem(request):  # may call the test's functions: no lock is held
                reasons.append(why)
            elif self._count(expected):
                return expected.reply(request)
        reasons = reasons or [f"still expected: {each.wanted}" for each in open_ones[:TOLD]]
        verb = f"{info.verb} " if info.is_resource else ""
        told = f"not expected: {verb}{request.method} {request.path}" + "".join(f"\n  {each}" for each in reasons)
        with self._lock:
            self._wrong.append(told)
        raise UnexpectedRequest(told)

    def _count(self, expected: ExpectedRequest) -> bool:
        """Count a call; False if another thread's was the last one."""
        with self._lock:
            taken = expected.missing > 0
            expected.seen += taken
        return taken


def _response(request: requests.PreparedRequest, answer: HttpResponse) -> requests.Response:
    """As requests' own adapter makes it."""
    headers = urllib3.HTTPHeaderDict([*answer.headers, ("Content-Length", str(len(answer.body)))])
    raw = urllib3.HTTPResponse(io.BytesIO(answer.body), headers, answer.status, preload_content=False)
    response = requests.Response()
    response.status_code, response.request, response.url = answer.status, request, request.url or ""
    response.raw, response.encoding = raw, "utf-8"
    response.headers = requests.structures.CaseInsensitiveDict(headers)
    return response
