"""From a request to a resource to its handler: by verb and subresource; 405 and 404 for what a type does not serve."""

from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.handlers.create import create
from kubectl_runtime.testing.apiserver.handlers.delete import delete, delete_collection
from kubectl_runtime.testing.apiserver.handlers.eviction import evict
from kubectl_runtime.testing.apiserver.handlers.patch import patch
from kubectl_runtime.testing.apiserver.handlers.pods import bind
from kubectl_runtime.testing.apiserver.handlers.read import get, list_
from kubectl_runtime.testing.apiserver.handlers.scale import get_scale, patch_scale, update_scale
from kubectl_runtime.testing.apiserver.handlers.tokens import create_token
from kubectl_runtime.testing.apiserver.handlers.update import update
from kubectl_runtime.testing.apiserver.handlers.watch import watch
from kubectl_runtime.testing.apiserver.names import path_segment_errors
from kubectl_runtime.testing.apiserver.wire import HttpResponse

Handler = Callable[[RequestContext], HttpResponse]

CREATE_ONLY = ("create",)  # reviews and bindings: there is no path to one of them, nor to all of them
MAIN: dict[str, Handler] = {"create": create, "get": get, "list": list_, "watch": watch, "update": update,
                            "patch": patch, "delete": delete, "deletecollection": delete_collection}
PART: dict[str, Handler] = {"get": get, "update": update, "patch": patch}
SCALE: dict[str, Handler] = {"get": get_scale, "update": update_scale, "patch": patch_scale}
SUBRESOURCES: dict[str, dict[str, Handler]] = {
    "status": PART, "finalize": PART, "approval": PART, "resize": PART, "ephemeralcontainers": PART, "scale": SCALE,
    "binding": {"create": bind}, "eviction": {"create": evict}, "token": {"create": create_token}}


def handle_resource(ctx: RequestContext) -> HttpResponse:
    """Answer a request to a resource; raises StatusError for what is refused."""
    info = ctx.info
    if ctx.request.method == "HEAD" and not ctx.type.is_custom:
        raise errors.method_not_allowed()
    if wrong := path_segment_errors(info.name):
        raise errors.bad_request(f"Name parameter invalid: {errors.go_value(info.name)}: {', '.join(wrong)}")
    if info.subresource:
        return _subresource(ctx)
    on_object = bool(info.name)
    misplaced = ctx.type.namespaced and not info.namespace and info.verb == "create"
    if ctx.type.verbs == CREATE_ONLY and (on_object or misplaced):
        raise errors.no_such_resource()
    named_create = info.verb == "create" and on_object and not ctx.type.is_custom  # custom ones ignore the name
    if (info.verb in ("update", "patch") and not on_object) or named_create:
        raise errors.method_not_allowed()
    handler = MAIN.get(info.verb)
    if info.verb == "watch" and info.verb not in ctx.type.verbs and "list" in ctx.type.verbs:
        raise _verb_refused(ctx)
    if handler is None or info.verb not in ctx.type.verbs:
        raise errors.method_not_allowed()
    return handler(ctx)


def _subresource(ctx: RequestContext) -> HttpResponse:
    info, declared = ctx.info, ctx.type.subresource(ctx.info.subresource)
    if declared is None or (info.rest and "proxy" not in info.subresource):
        # A custom resource without that subresource answers as if the object were missing.
        if ctx.type.is_custom and info.subresource in ("status", "scale"):
            raise errors.not_found(ctx.type.group, ctx.type.plural, info.name)
        raise errors.no_such_resource()
    if info.verb not in declared.verbs:
        raise _verb_refused(ctx) if ctx.type.is_custom else errors.method_not_allowed()
    handler = SUBRESOURCES.get(info.subresource, {}).get(info.verb)
    if handler is None:
        raise errors.StatusError(501, "NotImplemented",
                                 f"the embedded API server does not implement {ctx.type.qualified}/"
                                 f"{info.subresource}", details={})
    return handler(ctx)


def _verb_refused(ctx: RequestContext) -> errors.StatusError:
    details = {"group": ctx.type.group} if ctx.type.group else {}
    details["kind"] = ctx.type.plural
    return errors.StatusError(405, "MethodNotAllowed", f'{ctx.info.verb} is not supported on resources of kind '
                              f'"{ctx.type.qualified}"', details=details)
