"""Conversion reviews: requests of the API server to a webhook that converts custom resources to another version of
their kind.

    review = ConversionReview.decode(body)                            raises DecodeError for anything else
    request = review.request                                          .uid, .desired_api_version, .objects
    ConversionResponse.of(request).success(converted).into_review()   all objects of the request, in their order
    ConversionResponse.of(request).failure("why").into_review()

These are plain, immutable values: they serve no requests and convert nothing, and each method returns a new value.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import Status
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.metav1 import FrozenPart
from kubectl_runtime.core.objects.admission import decoded, failure_status, invalid_status, status_dict
from kubectl_runtime.core.objects.resource import Resource

GROUP = "apiextensions.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "ConversionReview"


class ConversionRequest(FrozenPart, frozen=True, kw_only=True):
    """Objects, and the version to which they must be converted."""

    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[dict[str, Any], ...] = ()
    """Plain values, each with its own apiVersion."""


class ConversionResponse(FrozenPart, frozen=True):
    """The answer to a ConversionRequest: the converted objects, or why the conversion failed. Its methods return a new
    answer."""

    uid: str = ""
    result: Status = failure_status("nothing was converted", 500)
    converted_objects: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, request: ConversionRequest) -> Self:
        """An answer to be completed by `success` or `failure`; until then it reports that nothing was converted."""
        return cls(uid=request.uid)

    @classmethod
    def invalid(cls, reason: str) -> Self:
        """An answer to a body that is not a review: 400, reason `InvalidRequest`."""
        return cls(result=invalid_status(reason))

    def success(self, objects: Iterable[Resource | Mapping[str, Any]]) -> Self:
        """The answer with all converted objects, in the order of the request."""
        converted = tuple(obj.to_dict() if isinstance(obj, Resource) else dict(obj) for obj in objects)
        return msgspec.structs.replace(self, result=Status(status="Success"), converted_objects=converted)

    def failure(self, reason: str, *, code: int = 400) -> Self:
        """The answer for a failed conversion; the client that requested the objects sees `reason`."""
        return msgspec.structs.replace(self, converted_objects=(),
                                       result=failure_status(reason, code))

    def into_review(self, question: ConversionReview | None = None) -> ConversionReview:
        """The review to send, in the API version of `question`; v1 without a `question`."""
        return ConversionReview(api_version=API_VERSION if question is None else question.api_version, response=self)


class _Question(FrozenPart, frozen=True):
    """The decoded parts of a review that carries a request. The API server also sends an empty response, whose list of
    objects is null; that response is not decoded."""

    api_version: str = ""
    kind: str = ""
    request: ConversionRequest | None = None


class ConversionReview(FrozenPart, frozen=True):
    """The message between the API server and a conversion webhook: objects of a custom kind, and the version to which
    they must be converted.

    >>> review = ConversionReview.decode(b'''{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
    ...     "request": {"uid": "1", "desiredAPIVersion": "example.com/v2", "objects": []}}''')
    >>> review.request.desired_api_version
    'example.com/v2'
    """

    api_version: str = API_VERSION
    kind: str = KIND
    request: ConversionRequest | None = None
    response: ConversionResponse | None = None

    @classmethod
    def decode(cls, body: bytes) -> ConversionReview:
        """Decode the server's review. Raises DecodeError for anything but a review with a request."""
        found = decoded(body, _Question, GROUP, KIND)
        return cls(api_version=found.api_version, kind=found.kind, request=found.request)

    def encode(self) -> bytes:
        """The review as JSON, always with apiVersion and kind."""
        content: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind}
        if self.request is not None:
            content["request"] = msgspec.to_builtins(self.request)
        if self.response is not None:
            content["response"] = {"uid": self.response.uid, "result": status_dict(self.response.result),
                                   "convertedObjects": list(self.response.converted_objects)}
        return encode_plain(content)
