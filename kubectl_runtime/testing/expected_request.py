"""`ExpectedRequest`: one call that a test expects, and what it is answered. Made by `RequestVerifier.expect`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from kubectl_runtime.apiserver.rim.faults.canned_answers import event_line, response, status_object
from kubectl_runtime.apiserver.route import RequestInfo
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.requests.body import plain_body
from kubectl_runtime.runtime.manifests.differences import difference

Object = dict[str, Any]
Answer = Callable[[HttpRequest], HttpResponse]

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call must look like; None is anything."""

    verb: str
    resource: ApiResource | None
    path: str = ""
    name: str | None = None
    namespace: str | None = None
    subresource: str = ""

    def matches(self, request: HttpRequest, info: RequestInfo) -> bool:
        """Whether the request is the call."""
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
    """A call that a test expects, and how it is answered. Every method returns it, so that they can be chained."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.seen = 0
        """How many calls it took so far."""
        self._times = 1
        self._query: dict[str, str] = {}
        self._bodies: list[Callable[[Any], str]] = []  # each says what is wrong with a body
        self._answers: list[Answer] = []
        self._error: BaseException | None = None

    # -- which calls

    def times(self, count: int) -> Self:
        """Expect so many calls like this instead of one."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"times({count!r}): a number of calls is expected, at least 1")
        self._times = count
        return self

    def query(self, **parameters: str) -> Self:
        """Expect that the query has these parameters, by their names on the wire (``labelSelector``,
        ``fieldManager``)."""
        self._query.update(parameters)
        return self

    def body(self, expected: Any) -> Self:
        """Expect this body (an object, or plain values), or, if it is a function, one of which it returns true: it gets
        the body as plain values, and may assert instead."""
        if callable(expected) and not isinstance(expected, type):
            self._bodies.append(partial(_asked, expected))
        else:
            self._bodies.append(partial(_compared, expected if isinstance(expected, list) else plain_body(expected)))
        return self

    # -- what it is answered

    def answer(self, content: Any = None, status: int | None = None) -> Self:
        """This object (of a resource class, a dict, a model); a list of them for a list, in a list of the kind.

        Several `answer` calls answer one call after the other, the last one all that follow. Without any, a create, an
        update and an apply are answered with what was sent, a delete with success.
        """
        body = _plain(content, self.wanted)
        code = status if status is not None else 201 if self.wanted.verb == "create" else 200
        return self._answered(lambda _: response(code, body))

    def events(self, *events: tuple[str, Any]) -> Self:
        """Answer a watch with these events (type, object); it ends after them. Raises ValueError for anything but pairs
        of a type of event and an object."""
        for event in events:
            if not (isinstance(event, tuple) and len(event) == 2 and isinstance(event[0], str)):
                raise ValueError(f'{event!r} is not an event: write ("ADDED", obj)')
        lines = b"".join(event_line({"type": kind, "object": plain_body(obj)}) for kind, obj in events)
        return self._answered(lambda _: HttpResponse(200, [("Content-Type", "application/json")], lines))

    def refuse(self, code: int, reason: str | None = None, message: str = "") -> Self:
        """Answer with a Status of this HTTP code; its usual reason unless it is given. The client tries again what may
        pass (503). Raises ValueError for a code outside of 400 to 599."""
        if isinstance(code, bool) or not isinstance(code, int) or not 400 <= code <= 599:
            raise ValueError(f"refuse({code!r}): a status from 400 to 599 is expected; others are answers")
        told = message or f"the test refuses to {self.wanted}"
        return self._answered(lambda _: response(code, status_object(code, reason, told)))

    def fail(self, error: BaseException) -> Self:
        """Do not answer: `error` is raised where the connection would be, a `requests.ConnectionError` for instance."""
        self._error = error
        return self._answered(lambda _: HttpResponse(0))

    def _answered(self, answer: Answer) -> Self:
        self._answers.append(answer)
        return self

    # -- for the verifier

    @property
    def missing(self) -> int:
        """How many calls are still to come."""
        return max(0, self._times - self.seen)

    def problem(self, request: HttpRequest) -> str:
        """What is wrong with a call that matches otherwise; empty if nothing is. Raises what a body's function raises.
        """
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
        """The answer to a call that was counted. Raises what `fail` was given, ValueError if no answer is known."""
        answers = self._answers
        if self._error is not None:
            raise self._error
        if answers:
            return answers[min(self.seen, len(answers)) - 1](request)
        if self.wanted.verb == "delete":
            return response(200, SUCCESS)
        if self.wanted.verb in ("create", "update") or "apply-patch" in request.header("content-type"):
            return response(201 if self.wanted.verb == "create" else 200, _as_stored(request, self.wanted))
        raise ValueError(f"expect({self.wanted}) says no answer: add .answer(…)")

    def __str__(self) -> str:
        return f"{self.wanted}{f' ({self.seen} of {self._times} times)' if self._times > 1 else ''}"


def _asked(check: Callable[[Any], object], given: Any) -> str:
    try:
        right = check(given)
    except AssertionError as error:
        return f"its body is not as it should be: {error}"
    return "" if right is None or right else "its body is not as the function of the test wants it"


def _compared(expected: Any, given: Any) -> str:
    """The lines that differ; values of Secrets are not shown."""
    if given == expected:
        return ""
    if not isinstance(expected, dict) or not isinstance(given, dict):
        return f"its body is another {type(given).__name__} than was expected"
    lines = difference("body", expected, given).splitlines()[2:]  # without the names of the two
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
    """What was sent, with what a server adds to every object."""
    sent = json.loads(request.body)
    meta = sent.get("metadata") or {}
    name = meta.get("name") or wanted.name or f"{meta.get('generateName', '')}12345"
    return {**sent, "metadata": {"uid": "00000000-0000-4000-8000-000000000001",
                                 "creationTimestamp": "2026-01-01T00:00:00Z", **meta, "name": name,
                                 "resourceVersion": "1"}}
