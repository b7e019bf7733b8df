"""`AdmissionRequest[Kind]`: what a webhook is asked, with its objects as the class that the webhook reads."""
from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, cast

import msgspec

from kubectl_runtime.core.base.building import decoder_of
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, Scope
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.objects import admission
from kubectl_runtime.core.objects.admission import UserInfo
from kubectl_runtime.core.objects.resource import Resource

K = TypeVar("K", bound=Resource)
R = TypeVar("R", bound=Resource)

TOTAL, EACH = 4096, 256
"""Characters of all warnings together; of each, where they are more: kube-apiserver's `truncateAtTotalRunes` and
`truncateItemRunes`. It asks for 120 at most."""
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class AdmissionRequest(Generic[K]):
    """What an admission webhook is asked: `object` (None for a deletion) and `old`, typed, `operation`, `user`,
    `dry_run`.

    `warn(text)` adds a warning that kubectl shows. It belongs to the thread that answers it; its objects are this
    reader's own and may be changed.

    >>> class Labels(Admission[ConfigMap]):
    ...     def mutate(self, request: AdmissionRequest[ConfigMap]) -> ConfigMap | None:
    ...         if request.operation != "CREATE":
    ...             return None
    ...         request.object.metadata.labels["made-by"] = request.user.username
    ...         return request.object
    """

    __slots__ = ("_audit", "_kind", "_object", "_old", "_warnings", "review")

    def __init__(self, review: admission.AdmissionRequest, kind: type[K]) -> None:
        """`kind` reads the objects; a class without a kind of its own (DynamicObject, say) takes that of the review."""
        self.review = review
        """The request as it came, with what has no name here: options, the kind and resource before a conversion."""
        self._kind = kind
        self._object: K | None = None
        self._old: K | None = None
        self._warnings: list[str] = []
        self._audit: dict[str, str] = {}

    @classmethod
    def of(cls, obj: K | None = None, *, old: K | None = None, user: str | UserInfo = "kubernetes-admin",
           dry_run: bool = False, sub_resource: str = "") -> AdmissionRequest[K]:
        """A request as the API server would ask it, for tests: `obj` alone is created, `old` alone deleted, both are an
        update. Raises RequestError without an object."""
        shown = obj if obj is not None else old
        if shown is None:
            raise RequestError("a request is about an object: AdmissionRequest.of(obj), of(obj, old=...), of(old=...)")
        resource = shown.api_resource
        operation = "CREATE" if old is None else "DELETE" if obj is None else "UPDATE"
        review = admission.AdmissionRequest(
            uid="705ab4f5-6393-11e8-b7cc-42010a800002", kind=resource.gvk, resource=resource.gvr, operation=operation,
            sub_resource=sub_resource, request_kind=resource.gvk, request_resource=resource.gvr, name=shown.name,
            request_sub_resource=sub_resource, namespace=shown.namespace or "",
            user_info=UserInfo(username=user) if isinstance(user, str) else user, dry_run=dry_run,
            raw_object=_raw(obj), raw_old_object=_raw(old))
        return cls(review, type(shown))

    @property
    def object(self) -> K:
        """The object as it will be; for a DELETE, the one that goes. What is changed in it is sent when `mutate`
        returns it. Raises DecodeError for what is not an object, RequestError where it is of another kind, as below
        subresources such as `scale`: `request.review.object(Kind)` reads that.
        """
        if self._object is None:
            deleted = self.review.operation == "DELETE"
            found = self._read(self.review.raw_old_object if deleted else self.review.raw_object, "object")
            if found is None:
                raise RequestError(f"the {self.review.operation} brings no object")
            self._object = found
        return self._object

    @property
    def old(self) -> K | None:
        """The object as it is; None for a CREATE. Raises as `object`."""
        if self._old is None:
            self._old = self._read(self.review.raw_old_object, "old object")
        return self._old

    @property
    def operation(self) -> str:
        """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
        return self.review.operation

    @property
    def user(self) -> UserInfo:
        """Who sent the request: user name, uid, groups and extra data."""
        return self.review.user_info

    @property
    def dry_run(self) -> bool:
        """Whether nothing will be stored: what the webhook does besides answering must not happen then."""
        return bool(self.review.dry_run)

    @property
    def name(self) -> str:
        """The object's name; empty for a CREATE with a generateName."""
        return self.review.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for one of a cluster-scoped kind."""
        return self.review.namespace or None

    @property
    def sub_resource(self) -> str:
        """The subresource that is written, such as `status` or `scale`; empty for the object itself."""
        return self.review.sub_resource

    def warn(self, text: str) -> None:
        """Show `text` to the person who sent the request, beside the answer. Keep it below 120 characters; the server
        shows 4096 of all warnings together. Line breaks become blanks, because the server would drop the text for them.
        Raises RequestError for anything but a text.
        """
        said = _BREAKS.sub(" ", _text("a warning", text)).strip()
        if said and said not in self._warnings:
            self._warnings.append(said)

    def audit(self, key: str, value: str) -> None:
        """Write `key` and `value` into the audit log. The server puts the webhook's name before the key."""
        self._audit[_text("the key of an audit annotation", key)] = _text("an audit annotation", value)

    def warnings(self) -> tuple[str, ...]:
        """The warnings that `warn` was told, cut as the server would cut them."""
        if sum(map(len, self._warnings)) <= TOTAL:
            return tuple(self._warnings)
        kept, left = [], TOTAL
        for text in self._warnings:
            shown = text[:min(EACH, left)]
            if shown:
                kept.append(shown)
                left -= len(shown)
        return tuple(kept)

    @property
    def audit_annotations(self) -> dict[str, str]:
        """The annotations that `audit` was told."""
        return self._audit

    @property
    def read_object(self) -> K | None:
        """The object that `object` gave; None if it was not asked for."""
        return self._object

    def __repr__(self) -> str:
        review = self.review
        below = f"/{review.sub_resource}" if review.sub_resource else ""
        place = "/".join(part for part in (review.namespace, review.name) if part)
        return f"<{review.operation} {review.resource.resource}{below} {place or '(generated name)'}>"

    def _read(self, raw: msgspec.Raw, what: str) -> K | None:
        content = bytes(raw)
        if content in (b"", b"null"):
            return None
        return reader_of(self._kind, self.review, _kind_in(content), what).from_bytes(content)


class _Identity(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_identity = decoder_of(_Identity)


def _kind_in(content: bytes) -> GroupVersionKind | None:
    """What the object says it is; None if it does not, or cannot be read, of which its class then complains."""
    try:
        found = _identity(content)
    except DECODE_FAILURES:
        return None
    return GroupVersionKind.parse(found.api_version, found.kind) if found.api_version and found.kind else None


def reader_of(kind: type[R], review: admission.AdmissionRequest, said: GroupVersionKind | None, what: str) -> type[R]:
    """The class that reads an object which says that it is `said`. Raises RequestError when it is of another kind."""
    found = said or review.kind
    own: ApiResource | None = getattr(kind, "api_resource", None)
    if own is None:
        scope = Scope.NAMESPACED if review.namespace else Scope.CLUSTER
        plural = review.resource.resource if found == review.kind and not review.sub_resource else ""
        resource = ApiResource.from_gvk(found, plural=plural or None, scope=scope)
        return cast("type[R]", cast("Any", kind).of(resource))
    if own.gvk != found:
        raise RequestError(f"the {what} is a {found.kind} of {found.api_version}, and {kind.__name__} is {own.kind} of "
                           f"{own.api_version}: request.review reads it as another class")
    return kind


def _text(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise RequestError(f"{what} is a text, not {type(given).__name__}")
    return given


def _raw(obj: Resource | None) -> msgspec.Raw:
    return msgspec.Raw() if obj is None else msgspec.Raw(obj.to_bytes())
