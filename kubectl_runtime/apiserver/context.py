"""`RequestContext`: a resource request as handlers and strategies see it, and the functions that answer the request."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from kubectl_runtime.apiserver.access import Access, User
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.output.negotiation import Form, Media, as_transformed, encode, render
from kubectl_runtime.apiserver.query import WriteOptions
from kubectl_runtime.apiserver.storage import Cluster, ServedResource, Version
from kubectl_runtime.apiserver.webhooks.hooks import Hooks
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object, RequestInfo


@dataclass(slots=True)
class RequestContext:
    """A request, its target, and the options and warnings collected on the way. Implements `StrategyContext`."""

    cluster: Cluster
    access: Access
    request: HttpRequest
    info: RequestInfo
    type: ServedResource
    media: Media
    user_info: User
    now: datetime
    kubelet: Kubelet
    hooks: Hooks
    options: WriteOptions | None = None
    warnings: list[str] = field(default_factory=list)
    asks: bool = False  # whether admission webhooks or policies exist; set at the start of each attempt to write
    deadline: float | None = None  # monotonic seconds; a write's time limit, set when admission first needs it

    @property
    def user(self) -> str:
        return self.user_info.name

    @property
    def identity(self) -> Object:
        """The username, uid, groups and extra for the spec of a CertificateSigningRequest. Empty fields are omitted."""
        user = self.user_info
        shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups),
                 "extra": {key: list(values) for key, values in user.extra}}
        return {key: value for key, value in shown.items() if value}

    @property
    def may_wait(self) -> bool:
        """Whether a write may call a webhook. If the object changes during the call, the write starts again."""
        return self.asks or self.type.strategy.asks_webhook

    @property
    def dry_run(self) -> bool:
        return self.options is not None and self.options.dry_run

    @property
    def sent(self) -> bytes:
        """The body of a create or replace; empty for a patch."""
        return b"" if self.request.method == "PATCH" else self.request.body

    @property
    def stored_bytes(self) -> bytes:
        """The stored JSON of the object that the path names; empty if there is no object. Needs the cluster's lock."""
        version = stored(self)
        return b"" if version is None else b"{" + version.tail

    @property
    def namespace(self) -> str:
        """The object's namespace; "" for a cluster-scoped object, including a Namespace."""
        return self.info.namespace if self.type.namespaced else ""

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterator[Object]:
        """The stored objects of a type in key order, from one namespace, or from all namespaces if `namespace` is "".

        The caller must hold the cluster's lock and must not change the objects.
        """
        bucket = self.cluster.storage.buckets.get(f"{group}/{plural}")
        if bucket is not None and bucket.objects:
            yield from [version.read() for version in bucket.scan(namespace)]


def answer_bytes(ctx: RequestContext, body: bytes, status: int = 200) -> HttpResponse:
    """Answer with an encoded JSON object, rendered in the media type that the client accepts."""
    return HttpResponse(status, [("Content-Type", ctx.media.content_type)], render(body, ctx.media))


def answer_object(ctx: RequestContext, obj: Object, status: int = 200) -> HttpResponse:
    """Answer with an object that is not stored (Scale, reviews), or with a Status."""
    if ctx.media.transform and obj.get("kind") != "Status":
        obj = as_transformed(ctx.media, ctx.request, obj, ctx.now)
    return answer_bytes(ctx, encode(obj), status)


def answer_one(ctx: RequestContext, version: Version, status: int = 200) -> HttpResponse:
    form = Form(ctx.type, ctx.media, ctx.request, ctx.cluster.clock.now, is_list=False)
    return answer_bytes(ctx, form.one(version), status)


def answer_deleted(ctx: RequestContext, version: Version) -> HttpResponse:
    """Answer with the Status of a completed deletion."""
    details: Object = {"name": version.name}
    if ctx.type.group:
        details["group"] = ctx.type.group
    details |= {"kind": ctx.type.plural, "uid": version.uid}
    return answer_object(ctx, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                               "details": details})


def page_not_found() -> HttpResponse:
    """The plain-text 404 for an unknown path."""
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
    return HttpResponse(404, headers, b"404 page not found\n")


def answer_success(ctx: RequestContext) -> HttpResponse:
    """Answer with a success Status, for a subresource that returns no object (binding, eviction)."""
    return answer_object(ctx, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                               "code": 201}, 201)


def stored(ctx: RequestContext) -> Version | None:
    """The stored object that the path names; None if there is no object. Needs the cluster's lock."""
    return ctx.cluster.storage.get(ctx.type.storage, ctx.namespace, ctx.info.name)
