"""Admission reviews: decoding of the API server's requests to webhooks, and answers, in `v1` and `v1beta1`.

    review = AdmissionReview.decode(body)                     raises DecodeError for anything else
    request = review.request
    answer = AdmissionResponse.of(request).deny("no")         or .with_patch([...]), .with_warnings("...")
    answer.into_review(review).encode()                       in the version of the request
    AdmissionResponse.invalid("why").into_review().encode()   for a body that could not be decoded

These are plain, immutable values: they serve no requests and decide nothing, and each method returns a new value. The
objects of a request are decoded on access. Conversion reviews share `Request`, `Review` and the functions for Statuses.
"""
from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self, TypeVar

import msgspec
import msgspec.structs

from kubectl_runtime.core.base import wire
from kubectl_runtime.core.base.errors import RequestError, Status
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.gvk import GroupVersionKind, GroupVersionResource
from kubectl_runtime.core.meta.metav1 import FrozenPart
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.objects.resource import Resource


class Request(Protocol):
    """The request in a review. The answer to it must have the same uid."""

    @property
    def uid(self) -> str:
        """The uid that the answer must repeat."""


class Review(Protocol):
    """The envelope of a request or an answer."""

    @property
    def api_version(self) -> str:
        """The version that the server uses, such as `admission.k8s.io/v1`."""

    @property
    def kind(self) -> str:
        """The kind of the review."""

    @property
    def request(self) -> Request | None:
        """The request; None in an answer."""


V = TypeVar("V", bound=Review)


def decoded(body: bytes, review: type[V], group: str, kind: str) -> V:
    """A review with a request, decoded from the server's bytes. Raises DecodeError for anything else."""
    try:
        found = wire.decoded(body, review)
    except DECODE_FAILURES as error:
        raise DecodeError(None, *problem_of(error)) from None
    if found.kind != kind or found.api_version.partition("/")[0] != group:
        raise DecodeError(None, "$.kind", f"$.kind: {found.kind} of {found.api_version} is not a {kind}")
    if found.request is None or not found.request.uid:
        raise DecodeError(None, "$.request", "$.request: the review has no request, or the request has no uid")
    return found


def invalid_status(reason: str) -> Status:
    """The Status for a body that is not a review: 400, reason `InvalidRequest`."""
    return failure_status(reason, 400, "InvalidRequest")


def failure_status(message: str, code: int, reason: str = "") -> Status:
    """A failure Status with this message, HTTP code and reason."""
    return Status(status="Failure", message=message, reason=reason, code=code)


def status_dict(status: Status) -> dict[str, Any]:
    """The fields of a Status that are set."""
    plain: dict[str, Any] = msgspec.to_builtins(status)
    if plain.get("details"):
        plain["details"] = {key: value for key, value in plain["details"].items() if value}
    return {key: value for key, value in plain.items() if value}


R = TypeVar("R", bound=Resource)
GROUP = "admission.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "AdmissionReview"
_NULL = (b"", b"null")


class UserInfo(FrozenPart, frozen=True):
    """The sender of a request: user name, uid, groups, and extra data from the authenticator."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}  # noqa: RUF012 - msgspec copies it


class AdmissionRequest(FrozenPart, frozen=True):
    """A request that the API server submits to a webhook for admission. `kind`, `resource` and `sub_resource` are those
    that the webhook is registered for; `request_kind`, `request_resource` and `request_sub_resource` are those that the
    client requested."""

    uid: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    operation: str
    """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: str = ""
    """Empty for a create with a generateName."""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    raw_object: msgspec.Raw = msgspec.field(name="object", default_factory=msgspec.Raw)
    raw_old_object: msgspec.Raw = msgspec.field(name="oldObject", default_factory=msgspec.Raw)
    dry_run: bool | None = None
    raw_options: msgspec.Raw = msgspec.field(name="options", default_factory=msgspec.Raw)

    def object(self, kind: type[R]) -> R | None:
        """The new object; None for a delete. Raises DecodeError."""
        return _read(self.raw_object, kind)

    def old_object(self, kind: type[R]) -> R | None:
        """The existing object; None for a create. Raises DecodeError."""
        return _read(self.raw_old_object, kind)

    def cel_variables(self) -> dict[str, Any]:
        """The variables of a ValidatingAdmissionPolicy: `object`, `oldObject` and `request`, as plain values."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        found, old = plain.pop("object", None), plain.pop("oldObject", None)
        return {"object": found, "oldObject": old, "request": {"dryRun": False, **plain}}


class AdmissionResponse(FrozenPart, frozen=True):
    """The answer to an AdmissionRequest: allowed or not, with a patch, warnings and audit annotations. Its methods
    return a new answer."""

    uid: str = ""
    allowed: bool = True
    status: Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: tuple[str, ...] | None = None

    @classmethod
    def of(cls, request: AdmissionRequest) -> Self:
        """An answer that allows the request unchanged."""
        return cls(uid=request.uid)

    @classmethod
    def invalid(cls, reason: str) -> Self:
        """An answer to a body that is not a review: refused with 400, reason `InvalidRequest`."""
        return cls(allowed=False, status=invalid_status(reason))

    def deny(self, reason: str, *, code: int = 403) -> Self:
        """The answer as a denial. The user sees `reason` and the HTTP status `code`."""
        return msgspec.structs.replace(self, allowed=False, patch=None, patch_type=None,
                                       status=failure_status(reason, code))

    def with_patch(self, operations: Iterable[Mapping[str, Any]]) -> Self:
        """The answer with a JSON patch (RFC 6902) of the object. Raises RequestError if the answer is a denial, or for
        values that JSON cannot carry."""
        if not self.allowed:
            raise RequestError("a denied request cannot be patched")
        patch = encode_plain([dict(operation) for operation in operations])
        return msgspec.structs.replace(self, patch=patch, patch_type="JSONPatch")

    def with_warnings(self, *texts: str) -> Self:
        """The answer with further warnings, which kubectl shows. The server truncates them to 4 KiB in total."""
        return msgspec.structs.replace(self, warnings=(*(self.warnings or ()), *texts))

    def with_audit_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The answer with annotations for the audit log; the server prefixes each key with the webhook's name."""
        return msgspec.structs.replace(self, audit_annotations={**(self.audit_annotations or {}), **annotations})

    def into_review(self, question: AdmissionReview | None = None) -> AdmissionReview:
        """The review to send, in the API version of `question`; v1 without a `question`."""
        return AdmissionReview(api_version=API_VERSION if question is None else question.api_version, response=self)

    def patch_operations(self) -> list[dict[str, Any]]:
        """The operations of the JSON patch; empty without a patch."""
        found: list[dict[str, Any]] = msgspec.json.decode(self.patch) if self.patch else []
        return found


class _Question(FrozenPart, frozen=True):
    """The decoded parts of a review that carries a request."""

    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class AdmissionReview(FrozenPart, frozen=True):
    """The message between the API server and an admission webhook: an AdmissionRequest or AdmissionResponse in an
    envelope of admission.k8s.io/v1.

    >>> review = AdmissionReview.decode(b'''{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
    ...     "request": {"uid": "1", "name": "web-0",
    ...     "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1",
    ...     "resource": "pods"}, "userInfo": {"username": "jane"}, "operation": "CREATE"}}''')
    >>> review.request.operation
    'CREATE'
    """

    api_version: str = API_VERSION
    kind: str = KIND
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None

    @classmethod
    def decode(cls, body: bytes) -> AdmissionReview:
        """Decode the server's review. Raises DecodeError for anything but a review with a request."""
        found = decoded(body, _Question, GROUP, KIND)
        return cls(api_version=found.api_version, kind=found.kind, request=found.request)

    def encode(self) -> bytes:
        """The review as JSON, always with apiVersion, kind and `allowed`."""
        content: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        if self.request is not None:
            content["request"] = msgspec.json.decode(msgspec.json.encode(self.request))
        if self.response is not None:
            response = {key: value for key, value in msgspec.to_builtins(self.response).items() if value is not None}
            if self.response.status is not None:
                response["status"] = status_dict(self.response.status)
            if self.response.patch is not None:
                response["patch"] = base64.b64encode(self.response.patch).decode()
            content["response"] = {"uid": "", "allowed": True, **response}
        return encode_plain(content)


def _read(raw: msgspec.Raw, kind: type[R]) -> R | None:
    content = bytes(raw)
    return None if content in _NULL else kind.from_bytes(content)
