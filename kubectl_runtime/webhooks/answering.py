"""From the bytes of a review to the bytes of its answer: no HTTP, no threads.

    admission_answer(handler, "validate", body, guard)
    conversion_answer(converter, body, guard)

    the handler returns                 allowed, with the patch that its change makes
    Denied(reason, code)                denied: reason and code
    DecodeError of the request's        denied, 400: the object is not what its class says; path and expectation
    own objects
    anything else, SystemExit too       denied, 500, without the exception's text, which is in the log: who sends a Pod
                                        need not see what the webhook knows
    what is not a review                   BadReview: there is no uid to answer to
    a review that is broken further in  denied, 400, to its uid

Warnings and audit annotations go with every answer. Each answer names the uid of its question and has its version.

From an object as it came and as it is to be, to the JSON patch between the two.

This is the only module that imports the package jsonpatch, at the first use; the extra ``kubectl_runtime[webhooks]``
brings it. What did not change is not in the patch, byte for byte: neither defaults of a class nor its forms of numbers
and dates, since the objects are compared as plain JSON values, in which 1 is neither true nor 1.0.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from kubectl_runtime.core.base.errors import KubeError, MissingExtra, StatusCause, StatusDetails, reason_of
from kubectl_runtime.core.base.guard import Guard, guarded_logger
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.sameness import MISSING, Path, differences, same_json
from kubectl_runtime.core.meta.gvk import split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects import admission, conversion
from kubectl_runtime.core.objects.admission import AdmissionResponse, AdmissionReview
from kubectl_runtime.core.objects.conversion import ConversionRequest, ConversionResponse, ConversionReview
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.body import pointer
from kubectl_runtime.webhooks.handler import WITH_CONTENT, Admission, AdmissionRequest, Denied, Verb

Object = dict[str, Any]


def require_jsonpatch() -> Any:
    """The package jsonpatch. Raises MissingExtra when it cannot be imported."""
    try:
        import jsonpatch
    except ImportError as error:
        raise MissingExtra("a webhook that changes objects needs", "webhooks", "jsonpatch", error) from error
    return jsonpatch


def patch_between(before: Object, after: Object) -> list[Object]:
    """The operations that make `after` of `before`, of which neither is changed; none if both are the same JSON.

    Each changed value is replaced where it stands; a list that became longer or shorter is compared by jsonpatch, which
    finds what was inserted, removed or moved. Raises MissingExtra if jsonpatch is not there, whatever has changed: a
    webhook that fails for some objects only would be found late.
    """
    require_jsonpatch()
    operations: list[Object] = []
    for key in (*before, *(key for key in after if key not in before)):
        if key not in before or key not in after or not same_json(before[key], after[key]):
            for difference in differences(before.get(key, MISSING), after.get(key, MISSING), (key,)):
                operations += _operations(*difference)
    return operations


def _operations(path: Path, old: Any, new: Any) -> list[Object]:
    """What makes `new` of `old`, which differ, at the place `path`."""
    place = pointer(*path)
    if new is MISSING:
        return [{"op": "remove", "path": place}]
    if isinstance(old, list) and isinstance(new, list):
        return _list_patch(old, new, place)
    return [{"op": "add" if old is MISSING else "replace", "path": place, "value": new}]


def _list_patch(old: list[Any], new: list[Any], path: str) -> list[Object]:
    jsonpatch = require_jsonpatch()
    found: list[Object] = jsonpatch.make_patch(old, new).patch
    # Its shortest patches have been wrong before; one that leads the server to something else must never leave.
    if not same_json(jsonpatch.apply_patch(old, found), new):
        return [{"op": "replace", "path": path, "value": new}]
    return [{**one, **{key: path + one[key] for key in ("path", "from") if key in one}} for one in found]


log = guarded_logger(__name__)

VERSIONS = ("v1", "v1beta1")


class Converts(Protocol):
    """Something that brings objects to another version of their kind, such as a `Conversion`."""

    def convert(self, obj: Any, version: Any, /) -> Any:
        """The object, a dict, in another version of its group."""


class BadReview(KubeError):
    """The body that came is not a review that could be answered; the text says why, to the API server's log."""


def admission_answer(handler: Admission[Any], verb: Verb, body: bytes, guard: Guard) -> bytes:
    """The answer of `handler`, whose failures are `guard`'s to tell. Blocks as the handler does. Raises BadReview."""
    try:
        review = AdmissionReview.decode(body)
    except DecodeError as error:
        return _broken(_envelope(body, admission.GROUP, admission.KIND), error).encode()
    _check_version(review.api_version, admission.GROUP, admission.KIND)
    assert review.request is not None  # else it would not have been decoded
    request: AdmissionRequest[Any] = AdmissionRequest(review.request, type(handler).kind())
    answer = _decided(handler, verb, request, guard)
    if warnings := request.warnings():
        answer = answer.with_warnings(*warnings)
    if request.audit_annotations:
        answer = answer.with_audit_annotations(request.audit_annotations)
    try:
        return answer.into_review(review).encode()
    except (KubeError, ValueError) as error:  # a text that is not Unicode, say
        said = _failed(guard, error, request)
        return _refused(AdmissionResponse.of(review.request), said, 500).into_review(review).encode()


def conversion_answer(converter: Converts, body: bytes, guard: Guard) -> bytes:
    """The answer of `converter`; all objects are converted or none. Blocks as it does. Raises BadReview."""
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
    except BaseException as error:  # noqa: BLE001 - a defect of the converter's must not end the server
        return response.failure(_failed(guard, error), code=500).into_review(review).encode()
    guard.succeeded()
    return answer


def _converted(converter: Converts, obj: dict[str, Any], request: ConversionRequest) -> Mapping[str, Any]:
    if obj.get("apiVersion") == request.desired_api_version:
        return obj
    wanted, version = split_api_version(request.desired_api_version)
    group, _ = split_api_version(str(obj.get("apiVersion") or ""))
    if group != wanted:
        raise DecodeError(None, "$.request", f"a {obj.get('kind')} of {obj.get('apiVersion')} cannot become one of "
                          f"{request.desired_api_version}: that is another group")
    found: Mapping[str, Any] = converter.convert(obj, version)
    return found


def _decided(handler: Admission[Any], verb: Verb, request: AdmissionRequest[Any], guard: Guard) -> AdmissionResponse:
    answer = AdmissionResponse.of(request.review)
    try:
        if verb == "validate":
            _check_passed(handler.validate(request))  # type: ignore[func-returns-value] # as users write it
        elif operations := _changes(handler.mutate(request), request, guard.name):
            answer = answer.with_patch(operations)
    except Denied as error:
        return _refused(answer, error.reason, error.code, error.causes)
    except BaseException as error:  # noqa: BLE001 - a defect of the handler's must not end the server
        if isinstance(error, DecodeError) and _is_own(error.ref, request.review):
            log.info("%s: %r: %s", guard.name, request, error)
            return _refused(answer, str(error), 400)
        return _refused(answer, _failed(guard, error, request), 500)
    guard.succeeded()
    return answer


def _is_own(ref: ObjectRef | None, review: admission.AdmissionRequest) -> bool:
    """Whether what cannot be decoded came with the request, and is none of the objects that a handler looks up."""
    return ref is None or (ref.resource.gvk == review.kind and ref.name == review.name)


def _refused(answer: AdmissionResponse, reason: str, code: int,
             causes: tuple[StatusCause, ...] = ()) -> AdmissionResponse:
    denied = answer.deny(reason, code=code)
    assert denied.status is not None
    details = StatusDetails(causes=list(causes)) if causes else None
    return msgspec.structs.replace(denied, status=msgspec.structs.replace(
        denied.status, reason=reason_of(code), details=details))


def _failed(guard: Guard, error: BaseException, request: AdmissionRequest[Any] | None = None) -> str:
    """Log what user code raised; what is said of it to whoever asked."""
    guard.failed(error, repr, request) if request is not None else guard.failed(error)
    return f"the webhook failed with {type(error).__name__}; its log says more"


def _check_passed(returned: Any) -> None:
    """Raise TypeError for anything returned: a False or a coroutine may be meant as a no, and would pass in silence."""
    if returned is not None:
        _wrong(f"validate returned {returned!r:.40}; it returns None to let the request pass, and raises Denied to "
               "refuse it")


def _changes(changed: Any, request: AdmissionRequest[Any], where: str) -> list[dict[str, Any]]:
    """The patch that makes what `mutate` returned of what came."""
    obj = request.read_object
    if changed is None:
        # Whether it was looked at can be told at once; whether that changed it, only by comparing.
        if (obj is not None and request.operation in WITH_CONTENT and obj.to_record(named=False) is not obj.record
                and patch_between(_received(request), obj.to_dict())):
            log.warning("%s: %r: mutate changed the object and returned None, so it stays as it was: return it", where,
                        request)
        return []
    if not isinstance(changed, Resource):
        _wrong(f"mutate returned {type(changed).__name__}; it returns the changed object, or None")
    if changed.record is None:
        _wrong("mutate returned an object that was made here, which lacks what the server knows of it: change "
               "request.object, and return that")
    if request.operation not in WITH_CONTENT:
        _wrong(f"mutate returned an object, and a {request.operation} has none that could be changed")
    return patch_between(_received(request), changed.to_dict())


def _received(request: AdmissionRequest[Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(request.review.raw_object)
    return found


def _unicode(text: str) -> str:
    """`text` as it can be sent, whatever is in it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _wrong(text: str) -> NoReturn:
    raise TypeError(text)


class _Envelope(NamedTuple):
    """What can be told of a review before its request is read."""

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
    """Raises BadReview for what has no uid to be answered, and for versions that nobody here answers in."""
    if not body.strip():
        raise BadReview(f"the body is empty; it has to be a {kind}")
    try:
        found = _decode_envelope(body)
    except DECODE_FAILURES as error:
        raise BadReview(f"the body is not a {kind}: {problem_of(error)[1]}") from None
    if found.kind != kind or found.api_version.rpartition("/")[0] != group:
        raise BadReview(f"this is {found.kind or 'something'} of {found.api_version or 'no version'}, and a {kind} of "
                        f"{group}/{VERSIONS[0]} is answered here")
    _check_version(found.api_version, group, kind)
    uid = found.request.uid if found.request is not None else ""
    if not isinstance(uid, str) or not uid:
        raise BadReview(f"this {kind} has no request with a uid")
    return _Envelope(found.api_version, uid)


def _check_version(api_version: str, group: str, kind: str) -> None:
    served = [f"{group}/{version}" for version in VERSIONS]
    if api_version not in served:
        raise BadReview(f"{kind} of {api_version}: {' and '.join(served)} are answered here")


def _broken(envelope: _Envelope, error: DecodeError) -> AdmissionReview:
    answer = _refused(AdmissionResponse(uid=envelope.uid), error.problem, 400)
    return answer.into_review(AdmissionReview(api_version=envelope.api_version))
