"""The WSGI application: what it serves, and what it says to everything else."""
from __future__ import annotations

import io
import json
import sys
from typing import Any
from wsgiref.validate import validator

import pytest

from kubectl_runtime import Conversion, RequestError
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.webhooks import Admission, AdmissionRequest, application
from tests.webhooks.hooks import Labels, Pod, Quota, Scales, everything, to_v2
from tests.webhooks.reviews import UID, conversion, pod, response, review

APP = everything()


def call(path: str, body: bytes = b"", *, app: Any = APP, method: str = "POST",
         content_type: str | None = "application/json", length: str | None = None,
         stream: Any = None) -> tuple[str, dict[str, str], bytes]:
    """One request, through wsgiref's validator, which is stricter than any server with what comes in, too."""
    environ = {"REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "timeout=10s",
               "SERVER_NAME": "quota.shop.svc", "SERVER_PORT": "443", "SERVER_PROTOCOL": "HTTP/1.1",
               "wsgi.version": (1, 0), "wsgi.url_scheme": "https", "wsgi.input": stream or io.BytesIO(body),
               "wsgi.errors": io.StringIO(), "wsgi.multithread": True, "wsgi.multiprocess": False,
               "wsgi.run_once": False, "CONTENT_LENGTH": str(len(body)) if length is None else length}
    if content_type is not None:
        environ["CONTENT_TYPE"] = content_type
    if not environ["CONTENT_LENGTH"]:
        del environ["CONTENT_LENGTH"]
    said: list[Any] = []
    lint = validator if length is None or (length.isdigit() and len(length) < 99) or not length else lambda app: app
    answer = lint(app)(environ, lambda status, headers, exc_info=None: said.extend((status, dict(headers))))
    found = b"".join(answer)
    getattr(answer, "close", list)()
    return said[0], said[1], found


def test_what_a_class_defines_is_served() -> None:
    app = application({"/quota": Quota(), "/scales": Scales(), "/deep/er": Labels(), "/": Quota(),
                       "/convert": Conversion({("v1", "v2"): to_v2})})
    assert app.paths == ("/quota/validate", "/quota/mutate", "/scales/validate", "/deep/er/validate", "/deep/er/mutate",
                         "/validate", "/mutate", "/convert")
    assert app.verbs == {"validate", "mutate", "convert"}
    assert application({"/scales": Scales()}).verbs == {"validate"}


def test_a_review_is_answered() -> None:
    status, headers, body = call("/quota/validate", review(pod()))
    assert status == "200 OK"
    assert headers == {"Content-Type": "application/json", "Content-Length": str(len(body))}
    assert response(body)["allowed"]
    assert call("/quota/validate", review(pod()), content_type="application/json; charset=utf-8")[0] == "200 OK"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no path": ({"path": "/quota/validat"}, "404 Not Found", "did you mean '/quota/validate'?"),
    "the mount": ({"path": "/quota"}, "404 Not Found", "/quota/validate"),
    "another method": ({"method": "GET"}, "405 Method Not Allowed", "by POST, not GET"),
    "no content type": ({"content_type": None}, "415 Unsupported Media Type", "expected application/json"),
    "another content type": ({"content_type": "text/plain"}, "415 Unsupported Media Type", "contentType=text/plain"),
    "protobuf": ({"content_type": "application/vnd.kubernetes.protobuf"}, "415 Unsupported Media Type", "protobuf"),
    "no length": ({"body": review(pod()), "length": ""}, "411 Length Required", "Content-Length"),
    "no number as a length": ({"body": b"x", "length": "ten"}, "411 Length Required", "Content-Length"),
    "oversize": ({"body": b"", "length": str((7 << 20) + 1)}, "413 Content Too Large", "limit is 7340032 bytes"),
    "an empty body": ({"body": b""}, "400 Bad Request", "the body is empty"),
    "blanks": ({"body": b" \n"}, "400 Bad Request", "the body is empty"),
    "no JSON": ({"body": b"{"}, "400 Bad Request", "truncated"),
    "YAML": ({"body": b"kind: AdmissionReview\n"}, "400 Bad Request", "malformed"),
    "no UTF-8": ({"body": b'{"kind": "\xff"}'}, "400 Bad Request", "UTF-8"),
    "a list": ({"body": b"[]"}, "400 Bad Request", "Expected `object`"),
    "nested for ever": ({"body": b"[" * 100_000}, "400 Bad Request", "Expected `object`"),
    "nested for ever inside": ({"body": b'{"request": {"uid": ' + b"[" * 100_000}, "400 Bad Request", "nested too"),
    "another kind": ({"body": b'{"kind":"Pod","apiVersion":"v1"}'}, "400 Bad Request", "the body is Pod of v1"),
    "an object": ({"body": b"{}"}, "400 Bad Request", "the body is something of no version"),
    "another group": ({"body": review(pod()).replace(b"admission.k8s.io/v1", b"admission.example.com/v1")},
                      "400 Bad Request", "admission.example.com/v1"),
    "another version": ({"body": review(pod(), version="v2")}, "400 Bad Request",
                        "it must be of admission.k8s.io/v1 or admission.k8s.io/v1beta1"),
    "no version": ({"body": review(pod()).replace(b"admission.k8s.io/v1", b"admission.k8s.io")}, "400 Bad Request",
                   "admission.k8s.io"),
    "no request": ({"body": b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}'}, "400 Bad Request",
                   "no request with a uid"),
    "no uid": ({"body": review(pod(), uid="")}, "400 Bad Request", "no request with a uid"),
    "a uid that is none": ({"body": review(pod(), uid=5)}, "400 Bad Request", "no request with a uid"),
    "a conversion": ({"body": conversion(to="example.com/v2")}, "400 Bad Request", "the body is ConversionReview"),
    "an admission to the converter": ({"path": "/convert", "body": review(pod())}, "400 Bad Request",
                                      "the body is AdmissionReview"),
    "a body that ends early": ({"body": b"{}", "length": "100"}, "400 Bad Request", "ended after 2 of 100 bytes"),
    "a length without end": ({"body": b"", "length": "9" * 5000}, "413 Content Too Large", "limit is"),
    "a negative length": ({"body": b"", "length": "-1"}, "411 Length Required", "Content-Length")}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_review_is_answered_with_a_status(case: str) -> None:
    """Behaviour 94 of controller-runtime, and more of its kind."""
    arguments, status, message = BAD[case]
    found, headers, body = call(**{"path": "/quota/validate", **arguments})
    said = json.loads(body)
    # Python 3.13 has the newer word for 413
    assert found.replace("Request Entity Too Large", "Content Too Large") == status
    assert (said["kind"], said["apiVersion"], said["status"], said["code"]) == (
        "Status", "v1", "Failure", int(status.partition(" ")[0]))
    assert message in said["message"]
    assert headers["Content-Type"] == "application/json"
    assert (headers.get("Allow") == "POST") is (said["code"] == 405)


def test_a_body_that_is_slow_or_breaks_off_is_answered() -> None:
    class Slow(io.RawIOBase):
        def __init__(self, error: OSError) -> None:
            self.error = error

        def read(self, size: int = -1) -> bytes:
            raise self.error

    found, _, body = call("/quota/validate", length="10", stream=Slow(TimeoutError()))
    assert found == "408 Request Timeout"
    assert "did not come in time" in json.loads(body)["message"]
    found, _, body = call("/quota/validate", length="10", stream=Slow(ConnectionResetError("reset")))
    assert found == "400 Bad Request"
    assert "could not be read" in json.loads(body)["message"]


@pytest.mark.parametrize(("more", "said"), [
    ({"kind": 5}, "$.request.kind"), ({"subResource": 7}, "$.request.subResource"), ({"name": {}}, "$.request.name"),
    ({"userInfo": []}, "$.request.userInfo"), ({"dryRun": "yes"}, "$.request.dryRun"),
    ({"object": 5}, "Expected `object`")])
def test_a_review_that_is_broken_within_is_answered_to_its_uid(more: dict[str, Any], said: str) -> None:
    code, body = APP.answer("/quota/validate", review(pod(), **more))
    found = response(body)
    assert (code, found["uid"], found["allowed"], found["status"]["code"]) == (200, UID, False, 400)
    assert said in found["status"]["message"]


def test_a_conversion_review_that_is_broken_within_is_answered_to_its_uid() -> None:
    body = conversion({"a": 1}, to="example.com/v2").replace(b'[{"a":1}]', b'[5]')
    found = response(APP.answer("/convert", body)[1])
    assert (found["uid"], found["result"]["status"], found["convertedObjects"]) == (UID, "Failure", [])
    assert "$.request.objects" in found["result"]["message"]


def test_the_bound_is_what_the_application_says() -> None:
    app = application({"/quota": Quota()}, limit=100)
    assert app.answer("/quota/validate", review(pod()))[0] == 413
    assert call("/quota/validate", review(pod()), app=app)[0].startswith("413")
    # a conversion brings a whole list
    assert APP.answer("/convert", conversion(*[{"apiVersion": "example.com/v2", "x": "a" * 1000}] * 9000,
                                             to="example.com/v2"))[0] == 200


class Neither(Admission[Pod]):
    pass


class Async(Admission[Pod]):
    async def validate(self, request: AdmissionRequest[Pod]) -> None:  # type: ignore[override]
        pass


class Yielding(Admission[Pod]):
    def validate(self, request: AdmissionRequest[Pod]) -> Any:
        yield


class TwoArguments(Admission[Pod]):
    def validate(self, request: AdmissionRequest[Pod], more: int) -> None:  # type: ignore[override]
        pass


class NoKind(Admission):  # type: ignore[type-arg]
    def validate(self, request: Any) -> None:
        pass


@pytest.mark.parametrize(("routes", "why"), [
    ({}, "at least one webhook"), ({"/quota": Quota}, "the class Quota: make an object"), ({"/quota": 5}, "not 5"),
    ({"/neither": Neither()}, "Neither defines neither validate nor mutate"),
    ({"/async": Async()}, "write def, not async def"), ({"/yield": Yielding()}, "is a generator"), (5, "mapping"),
    ({"/two": TwoArguments()}, "must accept one argument"),
    ({"/kind": NoKind()}, "which objects it reads"), ({"quota": Quota()}, "'quota' is not a path"),
    ({"/quota/": Quota()}, "is not a path"), ({"/a//b": Quota()}, "is not a path"),
    ({"/../b": Quota()}, "is not a path"),
    ({"/a b": Quota()}, "is not a path"), ({"/a?b": Quota()}, "is not a path"), ({"/ä": Quota()}, "is not a path"),
    ({5: Quota()}, "is not a path"),
    ({"/a": Quota(), "/a/validate": Conversion({("v1", "v2"): to_v2})}, "two webhooks")])
def test_what_is_no_webhook_is_refused_when_the_application_is_made(routes: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        application(routes)


def test_without_jsonpatch_an_application_can_be_made_and_a_change_says_what_is_missing(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "jsonpatch", None)
    app = application({"/quota": Quota()})  # a module that is only looked at, for its kinds say, has one
    [code, answer] = app.answer("/quota/mutate", review(pod("a")))
    assert (code, json.loads(answer)["response"]["allowed"]) == (200, False)
    assert str(MissingExtra("a webhook that changes objects needs", "webhooks")) in caplog.text
