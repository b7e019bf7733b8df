"""POST on a collection."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors, writes
from kubectl_runtime.apiserver.access.reviews import REVIEWS
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding.body import read_object
from kubectl_runtime.apiserver.encoding.typed_shape import decode
from kubectl_runtime.apiserver.handlers.answers import answer_object, answer_one
from kubectl_runtime.apiserver.query.options import write_options
from kubectl_runtime.apiserver.webhooks.attempts import attempt
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.codec.jsonvalues import json_copy


def create(ctx: RequestContext) -> HttpResponse:
    """Create an object: 201."""
    if ctx.type.namespaced and not ctx.info.namespace:
        raise errors.method_not_allowed()
    ctx.options = write_options(ctx.request, "CreateOptions")
    obj, keys = read_object(ctx.request, ctx.type)
    decode(ctx, obj, keys)
    review = REVIEWS.get((ctx.type.group, ctx.type.plural))
    if review is not None:
        writes.check_namespace(ctx, obj)
        asked = writes.with_managers(ctx, None, obj, "")
        return answer_object(ctx, review(ctx, admit_unstored(ctx, asked)), 201)
    return answer_one(ctx, attempt(ctx, lambda: writes.create(ctx, json_copy(obj) if ctx.may_wait else obj)), 201)
