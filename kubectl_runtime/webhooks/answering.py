"""Turns the bytes of a review into the bytes of its response, by functions or as a WSGI application.

The response of `admission_answer(handler, "validate", body, guard)` is:

- allowed, with the patch of the handler's change, when the handler returns
- denied with `reason` and `code` when the handler raises `Denied(reason, code)`
- denied with 400 when an object in the request cannot be decoded (DecodeError)
- denied with 500 for any other exception, SystemExit included; the exception's text is only logged, because it may
  contain data that the author of a Pod must not see
- missing for a body that is not a review: BadReview is raised, because a response must contain the review's uid

Warnings and audit annotations are part of every response. Patches are computed from plain JSON values, in which 1
differs from true and 1.0. So a class's defaults, and the way in which the class formats numbers and dates, never
appear as changes. The package jsonpatch (extra ``kubectl_runtime[webhooks]``) is imported when it is first used.

    app = application({"/quota": Quota(), "/convert": Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})})

    POST /quota/validate, /quota/mutate    AdmissionReview in, AdmissionReview out (only methods that the class defines)
    POST /convert                          ConversionReview in, ConversionReview out

The HTTP status is 200 for every review with a uid, 400 for a body that is not a supported review, 404 for another path,
405 for another method, 408 for a slow body, 411 without Content-Length, 413 for more than `limit` bytes, 415 for
another content type. The body of an error is a Status, whose message the API server passes on. Encryption and
authentication are the task of the WSGI server.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import msgspec

from kubectl_runtime.core.base.errors import (
    KubeError,
    MissingExtra,
    RequestError,
    StatusCause,
    StatusDetails,
    did_you_mean,
    reason_of,
)
from kubectl_runtime.core.base.guard import Guard, Home, guarded_logger
from kubectl_runtime.core.base.wire import decoder_of, signature_of
from kubectl_runtime.core.codec.jsonbytes import MISSING, Path, differences, encode_plain, same_json
from kubectl_runtime.core.meta.gvk import ObjectRef, split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.objects import admission, conversion
from kubectl_runtime.core.objects.admission import AdmissionResponse, AdmissionReview, failure_status, status_dict
from kubectl_runtime.core.objects.conversion import ConversionRequest, ConversionResponse, ConversionReview
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import pointer
from kubectl_runtime.webhooks.handler import WITH_CONTENT, Admission, AdmissionRequest, Denied, Verb

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Object = dict[str, Any]


def require_jsonpatch() -> Any:
    """Import jsonpatch. Raises MissingExtra when jsonpatch is not installed."""
    try:
        import jsonpatch
    except ImportError as error:
        raise MissingExtra("a webhook that changes objects needs", "webhooks", "jsonpatch", error) from error
    return jsonpatch


def patch_between(before: Object, after: Object) -> list[Object]:
    """Return the operations that turn `before` into `after`; empty if they are the same JSON. Changes neither argument.

    Each changed value is replaced in place. Lists of different lengths are compared by jsonpatch, which finds inserted,
    removed and moved items. Raises MissingExtra if jsonpatch is not installed, even if there are no such lists, so that
    the missing package is noticed at once.
    """
    require_jsonpatch()
    operations: list[Object] = []
    for key in (*before, *(key for key in after if key not in before)):
        if key not in before or key not in after or not same_json(before[key], after[key]):
            for difference in differences(before.get(key, MISSING), after.get(key, MISSING), (key,)):
                operations += _operations(*difference)
    return operations


def _operations(path: Path, old: Any, new: Any) -> list[Object]:
    """The operations for two different values at `path`."""
    place = pointer(*path)
    if new is MISSING:
        return [{"op": "remove", "path": place}]
    if isinstance(old, list) and isinstance(new, list):
        return _list_patch(old, new, place)
    return [{"op": "add" if old is MISSING else "replace", "path": place, "value": new}]


def _list_patch(old: list[Any], new: list[Any], path: str) -> list[Object]:
    jsonpatch = require_jsonpatch()
    found: list[Object] = jsonpatch.make_patch(old, new).patch
    # jsonpatch has produced wrong patches before; a patch with another result must never be sent.
    if not same_json(jsonpatch.apply_patch(old, found), new):
        return [{"op": "replace", "path": path, "value": new}]
    return [{**one, **{key: path + one[key] for key in ("path", "from") if key in one}} for one in found]


log = guarded_logger(__name__)

VERSIONS = ("v1", "v1beta1")


class Converts(Protocol):
    """Converts objects to another version of their kind, such as a `Conversion`."""

    def convert(self, obj: Any, version: Any, /) -> Any:
        """Return the object, a dict, in another version of its group."""


class BadReview(KubeError):
    """The body is not a review that can be answered. The API server logs the error's text."""


def admission_answer(handler: Admission[Any], verb: Verb, body: bytes, guard: Guard) -> bytes:
    """Answer a review by `handler`, whose failures `guard` reports. Blocks while the handler runs. Raises BadReview."""
    try:
        review = AdmissionReview.decode(body)
    except DecodeError as error:
        return _broken(_envelope(body, admission.GROUP, admission.KIND), error).encode()
    _check_version(review.api_version, admission.GROUP, admission.KIND)
    assert review.request is not None  # decoding has checked it
    request: AdmissionRequest[Any] = AdmissionRequest(review.request, type(handler).kind())
    answer = _decided(handler, verb, request, guard)
    if warnings := request.warnings():
        answer = answer.with_warnings(*warnings)
    if request.audit_annotations:
        answer = answer.with_audit_annotations(request.audit_annotations)
    try:
        return answer.into_review(review).encode()
    except (KubeError, ValueError) as error:  # ValueError: for example invalid Unicode
        said = _failed(guard, error, request)
        return _refused(AdmissionResponse.of(review.request), said, 500).into_review(review).encode()


def conversion_answer(converter: Converts, body: bytes, guard: Guard) -> bytes:
    """Answer a review with its objects converted, or a failure. Blocks while `converter` runs. Raises BadReview."""
    try:
        review = ConversionReview.decode(body)
    except DecodeError as error:
        envelope = _envelope(body, conversion.GROUP, conversion.KIND)
        return ConversionResponse(uid=envelope.uid).failure(error.problem).into_review(
            ConversionReview(api_version=envelope.api_version)).encode()
    _check_version(review.api_version, conversion.GROUP, conversion.KIND)
    assert review.request is not None
    response = ConversionResponse.of(review.request)
    try:
        converted = [_converted(converter, obj, review.request) for obj in review.request.objects]
        answer = response.success(converted).into_review(review).encode()
    except KubeError as error:
        log.warning("%s: %s", guard.name, error)
        return response.failure(_unicode(str(error))).into_review(review).encode()
    except BaseException as error:  # noqa: BLE001 - a bug in the converter must not end the server
        return response.failure(_failed(guard, error), code=500).into_review(review).encode()
    guard.succeeded()
    return answer


def _converted(converter: Converts, obj: dict[str, Any], request: ConversionRequest) -> Mapping[str, Any]:
    if obj.get("apiVersion") == request.desired_api_version:
        return obj
    wanted, version = split_api_version(request.desired_api_version)
    group, _ = split_api_version(str(obj.get("apiVersion") or ""))
    if group != wanted:
        raise DecodeError(None, "$.request", f"a {obj.get('kind')} of {obj.get('apiVersion')} cannot be converted to "
                          f"{request.desired_api_version}, which is in another API group")
    found: Mapping[str, Any] = converter.convert(obj, version)
    return found


def _decided(handler: Admission[Any], verb: Verb, request: AdmissionRequest[Any], guard: Guard) -> AdmissionResponse:
    answer, home = AdmissionResponse.of(request.review), Home()
    try:
        if verb == "validate":
            _check_passed(handler.validate(request))  # type: ignore[func-returns-value] # as users write it
        elif operations := _changes(handler.mutate(request), request, guard.name):
            answer = answer.with_patch(operations)
        home.check(f"webhook {guard.name}")
    except Denied as error:
        return _refused(answer, error.reason, error.code, error.causes)
    except BaseException as error:  # noqa: BLE001 - a bug in the handler must not end the server
        home.check(f"webhook {guard.name}", error)
        if isinstance(error, DecodeError) and _is_own(error.ref, request.review):
            log.info("%s: %r: %s", guard.name, request, error)
            return _refused(answer, str(error), 400)
        return _refused(answer, _failed(guard, error, request), 500)
    guard.succeeded()
    return answer


def _is_own(ref: ObjectRef | None, review: admission.AdmissionRequest) -> bool:
    """Whether the undecodable object came with the request. Otherwise it is an object that the handler has read."""
    return ref is None or (ref.resource.gvk == review.kind and ref.name == review.name)


def _refused(answer: AdmissionResponse, reason: str, code: int,
             causes: tuple[StatusCause, ...] = ()) -> AdmissionResponse:
    denied = answer.deny(reason, code=code)
    assert denied.status is not None
    details = StatusDetails(causes=list(causes)) if causes else None
    return msgspec.structs.replace(denied, status=msgspec.structs.replace(
        denied.status, reason=reason_of(code), details=details))


def _failed(guard: Guard, error: BaseException, request: AdmissionRequest[Any] | None = None) -> str:
    """Log what user code raised; returns the message for the client."""
    guard.failed(error, repr, request) if request is not None else guard.failed(error)
    return f"the webhook failed with {type(error).__name__}; see its log"


def _check_passed(returned: Any) -> None:
    """Raise TypeError for any returned value: a False or a coroutine may be meant as a refusal."""
    if returned is not None:
        _wrong(f"validate returned {returned!r:.40}; it must return None to let the request pass, or raise Denied to "
               "refuse it")


def _changes(changed: Any, request: AdmissionRequest[Any], where: str) -> list[dict[str, Any]]:
    """The patch from the received object to what `mutate` returned."""
    obj = request.read_object
    if changed is None:
        # The object was read, so it may have been changed; only a comparison shows that.
        if (obj is not None and request.operation in WITH_CONTENT and obj.to_record(named=False) is not obj.record
                and patch_between(_received(request), obj.to_dict())):
            log.warning("%s: %r: mutate changed the object but returned None, so the change is lost: return it", where,
                        request)
        return []
    if not isinstance(changed, Resource):
        _wrong(f"mutate returned {type(changed).__name__}; it must return the changed object, or None")
    if changed.record is None:
        _wrong("mutate returned a newly made object, which lacks the fields that the server has set: change "
               "request.object, and return that")
    if request.operation not in WITH_CONTENT:
        _wrong(f"mutate returned an object, and a {request.operation} has none that could be changed")
    return patch_between(_received(request), changed.to_dict())


def _received(request: AdmissionRequest[Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(request.review.raw_object)
    return found


def _unicode(text: str) -> str:
    """`text` without characters that cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def _wrong(text: str) -> NoReturn:
    raise TypeError(text)


class _Envelope(NamedTuple):
    """The part of a review that is decoded before its request."""

    api_version: str
    uid: str


class _Question(msgspec.Struct):
    uid: Any = ""


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Question | None = None


_decode_envelope = decoder_of(_Review)


def _envelope(body: bytes, group: str, kind: str) -> _Envelope:
    """Decode the envelope. Raises BadReview for a body without a uid, and for unsupported versions."""
    if not body.strip():
        raise BadReview(f"the body is empty; it must be a {kind}")
    try:
        found = _decode_envelope(body)
    except DECODE_FAILURES as error:
        raise BadReview(f"the body is not a {kind}: {problem_of(error)[1]}") from None
    if found.kind != kind or found.api_version.rpartition("/")[0] != group:
        raise BadReview(f"the body is {found.kind or 'something'} of {found.api_version or 'no version'}, not a "
                        f"{kind} of {group}/{VERSIONS[0]}")
    _check_version(found.api_version, group, kind)
    uid = found.request.uid if found.request is not None else ""
    if not isinstance(uid, str) or not uid:
        raise BadReview(f"this {kind} has no request with a uid")
    return _Envelope(found.api_version, uid)


def _check_version(api_version: str, group: str, kind: str) -> None:
    served = [f"{group}/{version}" for version in VERSIONS]
    if api_version not in served:
        raise BadReview(f"{kind} of {api_version} is not supported: it must be of {' or '.join(served)}")


def _broken(envelope: _Envelope, error: DecodeError) -> AdmissionReview:
    answer = _refused(AdmissionResponse(uid=envelope.uid), error.problem, 400)
    return answer.into_review(AdmissionReview(api_version=envelope.api_version))


LIMIT = 7 << 20
"""The maximum size of an AdmissionReview in bytes, as in controller-runtime. The review holds the object and the old
object, each at most 3 MiB, which is the API server's own limit."""
CONVERSION_LIMIT = 64 << 20
"""The maximum size of a ConversionReview in bytes. It holds all objects of a list that is read in another version."""

Answer = Callable[[bytes], bytes]


class Application:
    """A WSGI application that answers the reviews of API servers. Made by `application`.

    Immutable, and thread-safe if the handlers are thread-safe.

    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request: AdmissionRequest[Pod]) -> None:
    ...         request.warn("the quota is nearly used up")
    >>> application({"/quota": Quota()}).paths
    ('/quota/validate',)
    """

    def __init__(self, routes: Mapping[str, Admission[Any] | Converts], limit: int) -> None:
        if not isinstance(routes, Mapping):
            raise RequestError(f"an application needs a mapping from paths to webhooks, not {type(routes).__name__}")
        self.handlers = dict(routes)
        """The handlers by path, as given."""
        self._routes: dict[str, tuple[Answer, int]] = {}
        for mount, handler in routes.items():
            _check_mount(mount)
            if isinstance(handler, Admission):
                for path, answer in _admission_routes(mount, handler):
                    self._add(path, answer, limit)
            elif callable(getattr(handler, "convert", None)) and not isinstance(handler, type):
                self._add(mount, partial(conversion_answer, handler, guard=Guard(mount, log)), CONVERSION_LIMIT)
            else:
                given = f"the class {handler.__name__}: make an object" if isinstance(handler, type) else repr(handler)
                raise RequestError(f"{mount}: the handler must be an Admission or a Conversion, not {given}")

    def _add(self, path: str, answer: Answer, limit: int) -> None:
        if path in self._routes:
            raise RequestError(f"two webhooks would be served at {path}")
        self._routes[path] = (answer, limit)

    @property
    def paths(self) -> tuple[str, ...]:
        """The served paths."""
        return tuple(self._routes)

    @property
    def verbs(self) -> frozenset[str]:
        """`validate` and `mutate`, if an admission class defines them, and `convert` if there is a conversion."""
        admissions = [handler for handler in self.handlers.values() if isinstance(handler, Admission)]
        found = {verb for handler in admissions for verb in type(handler).verbs()}
        return frozenset({*found, "convert"} if len(admissions) < len(self.handlers) else found)

    @property
    def definitions(self) -> tuple[str, ...] | None:
        """The names of the CustomResourceDefinitions that the application converts; None if a conversion does not know
        its definition, because its versions are given as texts."""
        names = [getattr(handler, "crd_name", None) for handler in self.handlers.values()
                 if not isinstance(handler, Admission)]
        known = tuple(name for name in names if isinstance(name, str))
        return known if len(known) == len(names) else None

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the HTTP status and the response body for a review. For tests, and for servers without WSGI.

        Blocks while the handler runs. Raises nothing except KeyboardInterrupt in the main thread.
        """
        found = self._routes.get(path)
        if found is None:
            return _status(404, f"nothing is served at {path}{did_you_mean(path, self._routes)}; the paths are "
                                f"{', '.join(self._routes)}")
        answer, limit = found
        if len(body) > limit:
            return _too_large(limit)
        try:
            return HTTPStatus.OK, answer(body)
        except BadReview as error:
            log.warning("%s: %s", path, error)
            return _status(400, str(error))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a WSGI request (PEP 3333)."""
        code, body = self._handle(environ)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "POST"))
        start_response(f"{code} {HTTPStatus(code).phrase}", headers)
        return [body]

    def _handle(self, environ: WSGIEnvironment) -> tuple[int, bytes]:
        path = environ.get("PATH_INFO") or "/"
        found = self._routes.get(path)
        if found is None:
            return self.answer(path, b"")
        method, content_type = environ["REQUEST_METHOD"], environ.get("CONTENT_TYPE") or ""
        if method != "POST":
            return _status(405, f"a review must be sent to {path} by POST, not {method}")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            return _status(415, f"contentType={content_type}, expected application/json")
        said = environ.get("CONTENT_LENGTH") or ""
        if not (said.isascii() and said.isdigit()):
            return _status(411, "a review must have a Content-Length")
        length = int(said[:19])
        if length > found[1] or len(said) > 18:
            return _too_large(found[1])
        try:
            body = environ["wsgi.input"].read(length) if length > 0 else b""
        except TimeoutError:
            return _status(408, f"the body of {length} bytes did not come in time")
        except OSError as error:
            return _status(400, f"the body could not be read: {error}")
        if len(body) < length:
            return _status(400, f"the body ended after {len(body)} of {length} bytes")
        return self.answer(path, body)


def application(routes: Mapping[str, Admission[Any] | Converts], *, limit: int = LIMIT) -> Application:
    """Make a WSGI application of the webhooks in `routes`, which maps paths to webhooks.

    An Admission at `/quota` is served at `/quota/validate` and `/quota/mutate`, if its class defines these methods. A
    Conversion is served at its path. `limit` is the maximum size of an AdmissionReview in bytes.

    Raises RequestError for an invalid path and for an incomplete webhook. A webhook that changes objects needs
    the extra `webhooks`. Without this extra a WebhookServer does not start, and other servers answer each change with
    an error.

    >>> class Labelled(Admission[Pod]):
    ...     def mutate(self, request: AdmissionRequest[Pod]) -> Pod:
    ...         request.object.labels["checked"] = "yes"
    ...         return request.object
    >>> application({"/labelled": Labelled()}).paths
    ('/labelled/mutate',)
    """
    if not routes:
        raise RequestError('an application needs at least one webhook, as in application({"/quota": Quota()})')
    return Application(routes, limit)


def _admission_routes(mount: str, handler: Admission[Any]) -> Iterable[tuple[str, Answer]]:
    name = type(handler).__name__
    verbs = type(handler).verbs()
    if not verbs:
        raise RequestError(f"{mount}: {name} defines neither validate nor mutate")
    try:
        type(handler).kind()
    except TypeError as error:
        raise RequestError(f"{mount}: {error}") from None
    for verb in verbs:
        function = getattr(handler, verb)
        if inspect.iscoroutinefunction(function):
            raise RequestError(f"{mount}: {name}.{verb} is an async function: write def, not async def")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise RequestError(f"{mount}: {name}.{verb} is a generator, and nothing in it would run: remove its yield")
        try:
            signature_of(function).bind("request")
        except TypeError as error:
            raise RequestError(f"{mount}: {name}.{verb} must accept one argument, the request: {error}") from None
        path = f"{mount.rstrip('/')}/{verb}"
        yield path, partial(admission_answer, handler, verb, guard=Guard(path, log))


def _check_mount(mount: str) -> None:
    # Go's server and clients clean paths; a path that they would change is refused.
    parts = mount.split("/")[1:] if isinstance(mount, str) and mount.startswith("/") else [""]
    if mount != "/" and not all(part and part not in (".", "..") and part.isprintable() and part.isascii()
                                and not set(part) & set(" ?#%") for part in parts):
        raise RequestError(f"{mount!r} is not a path for a webhook, such as '/quota'")


def _status(code: int, message: str) -> tuple[int, bytes]:
    status = failure_status(message, code, reason_of(code))
    return code, encode_plain({"kind": "Status", "apiVersion": "v1", "metadata": {}, **status_dict(status)})


def _too_large(limit: int) -> tuple[int, bytes]:
    return _status(413, f"request entity is too large; limit is {limit} bytes")
