"""Finds a resource request's handler by verb and subresource. Raises a 405 or 404 if the type does not serve them."""

from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext, page_not_found
from kubectl_runtime.apiserver.handlers.change import create, patch, update
from kubectl_runtime.apiserver.handlers.delete import delete, delete_collection, evict
from kubectl_runtime.apiserver.handlers.pods import bind, connect, port_forward, read_log
from kubectl_runtime.apiserver.handlers.read import get, list_
from kubectl_runtime.apiserver.handlers.subresources import create_token, get_scale, patch_scale, update_scale
from kubectl_runtime.apiserver.handlers.watch import watch
from kubectl_runtime.apiserver.names import path_segment_errors
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.apiserver.writes import admit_create

Handler = Callable[[RequestContext], HttpResponse]

CREATE_ONLY = ("create",)  # reviews and bindings, which cannot be read or listed
MAIN: dict[str, Handler] = {"create": create, "get": get, "list": list_, "watch": watch, "update": update,
                            "patch": patch, "delete": delete, "deletecollection": delete_collection}
PART: dict[str, Handler] = {"get": get, "update": update, "patch": patch}
SCALE: dict[str, Handler] = {"get": get_scale, "update": update_scale, "patch": patch_scale}
SUBRESOURCES: dict[str, dict[str, Handler]] = {
    "status": PART, "finalize": PART, "approval": PART, "resize": PART, "ephemeralcontainers": PART, "scale": SCALE,
    "binding": {"create": bind}, "eviction": {"create": evict}, "token": {"create": create_token},
    "log": {"get": read_log}, "exec": {"get": connect, "create": connect},
    "attach": {"get": connect, "create": connect}, "portforward": {"get": port_forward, "create": port_forward}}


def handle_resource(ctx: RequestContext) -> HttpResponse:
    """Answer a request to a resource. Raises StatusError if the request is refused."""
    info = ctx.info
    if info.subresource:
        return _subresource(ctx)
    if ctx.type.is_custom:
        if ctx.type.namespaced and not info.namespace and info.verb not in ("list", "watch"):
            return page_not_found()
        _check_custom(ctx)
    else:
        _check_builtin(ctx)
    if wrong := path_segment_errors(info.name):
        raise errors.bad_request(f"Name parameter invalid: {errors.go_value(info.name)}: {', '.join(wrong)}")
    if info.verb == "watch" and info.verb not in ctx.type.verbs and "list" in ctx.type.verbs:
        raise _verb_refused(ctx)
    handler = MAIN.get(info.verb)
    if handler is None or info.verb not in ctx.type.verbs:
        raise errors.method_not_allowed()
    return handler(ctx)


def _check_builtin(ctx: RequestContext) -> None:
    """Check that the built-in type has a route for the method; HEAD has no route."""
    info, on_object = ctx.info, bool(ctx.info.name)
    misplaced = ctx.type.namespaced and not info.namespace
    if ctx.type.verbs == CREATE_ONLY and (on_object or misplaced):
        raise errors.no_such_resource()
    unfit = (info.verb in ("update", "patch") and not on_object) or (info.verb == "create" and on_object)
    if unfit or ctx.request.method == "HEAD":
        raise errors.method_not_allowed()


def _check_custom(ctx: RequestContext) -> None:
    """Check a request to a custom resource. Such requests are dispatched by verb; a create ignores a name in the path.
    """
    if not ctx.info.verb:
        raise _verb_refused(ctx)
    if ctx.info.verb in ("update", "patch") and not ctx.info.name:
        raise errors.bad_request("name must be provided")


def _subresource(ctx: RequestContext) -> HttpResponse:
    info, declared = ctx.info, ctx.type.subresource(ctx.info.subresource)
    further = info.rest and "proxy" not in info.subresource and not ctx.type.is_custom
    if declared is None or further:
        if ctx.type.is_custom:  # the real server answers as if the object were missing
            raise errors.not_found(ctx.type.group, ctx.type.plural, info.name)
        raise errors.no_such_resource()
    if ctx.request.method == "HEAD" and not ctx.type.is_custom:
        raise errors.method_not_allowed()
    if info.verb not in declared.verbs:
        raise _verb_refused(ctx) if ctx.type.is_custom else errors.method_not_allowed()
    if info.verb == "create":
        with ctx.cluster.locked():
            admit_create(ctx, {"namespace": info.namespace, "name": info.name})
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
