"""How handlers answer: an object, a Status, or bytes."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.output.forms import Form, as_transformed
from kubectl_runtime.apiserver.output.negotiation import encode, render
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.apiserver.wire import HttpResponse

Object = dict[str, Any]


def answer_bytes(ctx: RequestContext, body: bytes, status: int = 200) -> HttpResponse:
    """Encoded JSON in the form that the client accepts."""
    return HttpResponse(status, [("Content-Type", ctx.media.content_type)], render(body, ctx.media))


def answer_object(ctx: RequestContext, obj: Object, status: int = 200) -> HttpResponse:
    """An object that is not stored (Scale, reviews), or a Status."""
    if ctx.media.transform and obj.get("kind") != "Status":
        obj = as_transformed(ctx.media, ctx.request, obj, ctx.now)
    return answer_bytes(ctx, encode(obj), status)


def answer_one(ctx: RequestContext, version: Version, status: int = 200) -> HttpResponse:
    """A stored object."""
    form = Form(ctx.type, ctx.media, ctx.request, ctx.cluster.clock.now, is_list=False)
    return answer_bytes(ctx, form.one(version), status)


def answer_deleted(ctx: RequestContext, version: Version) -> HttpResponse:
    """The Status of a deletion that is done."""
    details: Object = {"name": version.name}
    if ctx.type.group:
        details["group"] = ctx.type.group
    details |= {"kind": ctx.type.plural, "uid": version.uid}
    return answer_object(ctx, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                               "details": details})


def page_not_found() -> HttpResponse:
    """The plain-text 404 of a path that leads nowhere."""
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
    return HttpResponse(404, headers, b"404 page not found\n")


def answer_success(ctx: RequestContext, status: int = 201) -> HttpResponse:
    """The Status of a subresource that has no object to show (binding, eviction)."""
    return answer_object(ctx, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                               "code": status}, status)


def stored(ctx: RequestContext) -> Version | None:
    """The object that the path names; the cluster's lock is held."""
    return ctx.cluster.storage.get(ctx.type.storage, ctx.namespace, ctx.info.name)
