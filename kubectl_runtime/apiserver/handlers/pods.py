"""The actions on Pods that are subresources: binding, logs, exec, attach, port-forward.

`server.kubelet` decides all answers except those to binding.
"""

from __future__ import annotations

from datetime import timedelta

from kubectl_runtime.apiserver import encoding, errors, query
from kubectl_runtime.apiserver.context import RequestContext, answer_success, stored
from kubectl_runtime.apiserver.kubelet.pod_machine import ENDED
from kubectl_runtime.apiserver.kubelet.sessions import (
    V4,
    V5,
    ContainerLog,
    ExecRequest,
    ExecSession,
    ForwardSession,
    Selection,
)
from kubectl_runtime.apiserver.query import integer_param
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.webhooks.review import CONNECT
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object, is_true
from kubectl_runtime.apiserver.writes import refuse_fields
from kubectl_runtime.core.meta.metav1 import format_time, parse_time

_PLAIN = [("Content-Type", "text/plain")]
_CHANNELS = ("stdin", "stdout", "stderr", "tty")


def read_log(ctx: RequestContext) -> HttpResponse:
    """Answer with the container's log: a test's log, or an empty log for a running Pod. 204 if the Pod has no node."""
    request = ctx.request
    selection = _selection(ctx)
    pod = _pod(ctx)
    container = _container(ctx, pod, request.param("container"))
    previous = is_true(request, "previous")
    log = ctx.kubelet.find_log(ctx.namespace, ctx.info.name, container, previous=previous)
    if log is None:
        if not pod["spec"].get("nodeName"):
            return HttpResponse(204)
        if previous:
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{ctx.info.name}" not found')
        log = _log_of_running(ctx, pod, container)
    if is_true(request, "follow"):
        return HttpResponse(200, list(_PLAIN), stream=log.follow(selection))
    return HttpResponse(200, list(_PLAIN), log.read(selection))


def connect(ctx: RequestContext) -> HttpResponse:
    """Answer exec or attach over a websocket."""
    request, what = ctx.request, ctx.info.subresource
    options = _admitted(ctx, f"Pod{what.capitalize()}Options", {
        **{name: is_true(request, name) for name in _CHANNELS}, "container": request.param("container"),
        **({"command": request.params("command")} if what == "exec" else {})})
    stdin, stdout, stderr, tty = (bool(options.get(name)) for name in _CHANNELS)
    command = tuple(options.get("command") or ())
    if not (stdin or stdout or stderr):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if what == "exec" and not command:
        raise errors.bad_request("you must specify at least one command for the container")
    pod = _pod(ctx)
    container = _container(ctx, pod, options.get("container") or "")
    handler = ctx.kubelet.find_handler(what, ctx.namespace, ctx.info.name, container)
    if handler is None:
        raise not_given(ctx, what, f"server.kubelet.{what}(pod, function)", container)
    protocol = _protocol(request)
    asked = ExecRequest(ctx.namespace, ctx.info.name, container, command, stdin, stdout, stderr and not tty, tty)
    return HttpResponse(101, [("Sec-WebSocket-Protocol", protocol)], session=ExecSession(asked, handler))


def port_forward(ctx: RequestContext) -> HttpResponse:
    """Forward connections to ports over a websocket."""
    asked = [int(port) for text in ctx.request.params("ports") for port in text.split(",") if port.isdecimal()]
    options = _admitted(ctx, "PodPortForwardOptions", {"ports": asked})
    _pod(ctx)
    ports = options.get("ports") or []
    if not ports and ctx.request.header("upgrade").lower() == "websocket":
        raise errors.bad_request('query parameter "ports" is required')
    handlers = []
    for port in ports:
        handler = ctx.kubelet.find_forward(ctx.namespace, ctx.info.name, port)
        if handler is None:
            raise not_given(ctx, "portforward", "server.kubelet.portforward(pod, port, function)", f"port {port}")
        handlers.append((port, handler))
    if not handlers:  # kubectl sends the ports only inside its SPDY connection
        raise not_given(ctx, "portforward", "server.kubelet.portforward(pod, port, function)", "no port")
    protocol = _protocol(ctx.request, (V4,))
    session = ForwardSession(f"{ctx.namespace}/{ctx.info.name}", handlers)
    return HttpResponse(101, [("Sec-WebSocket-Protocol", protocol)], session=session)


def _log_of_running(ctx: RequestContext, pod: Object, container: str) -> ContainerLog:
    """The log of a container for which no test set a log: empty if Pods run and the container has started."""
    if not ctx.kubelet.rules.in_use:
        raise not_given(ctx, "log", "server.kubelet.logs(pod, text)", container)
    status = pod.get("status") or {}
    statuses = (each for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
                for each in status.get(key) or ())
    state: Object = next((each.get("state") or {} for each in statuses if each["name"] == container), {})
    if waiting := state.get("waiting") or ({} if state else {"reason": "ContainerCreating"}):
        reason = waiting.get("reason", "")
        why = "trying and failing to pull image" if reason in ("ErrImagePull", "ImagePullBackOff") else reason
        if reason != "CrashLoopBackOff":
            raise errors.bad_request(f'container "{container}" in pod "{ctx.info.name}" is waiting to start: {why}')
    log = ctx.kubelet.open_log(ctx.namespace, ctx.info.name)
    if status.get("phase") in ENDED:
        log.end()
    return log


def not_given(ctx: RequestContext, what: str, how: str, part: str) -> errors.StatusError:
    """The 501 for a request without a handler. Its message names the request and the handlers that a test has set."""
    given = ctx.kubelet.given(what)
    known = f"there is one for {given}" if given else "there is none"
    return errors.StatusError(501, "NotImplemented", f"no container runs behind the Pods of the embedded API server: "
                              f"pods/{what} needs a handler, {how}; the request is for "
                              f"{ctx.namespace}/{ctx.info.name} ({part}), and {known}", details={})


def _protocol(request: HttpRequest, known_protocols: tuple[str, ...] = (V5, V4)) -> str:
    if request.header("upgrade").lower() != "websocket":
        if request.header("upgrade"):
            raise errors.StatusError(501, "NotImplemented", "the embedded API server supports only WebSocket "
                                     f"upgrades, not {request.header('upgrade')}", details={})
        raise errors.bad_request("Upgrade request required")
    offered = [name.strip() for name in request.header("sec-websocket-protocol").split(",")]
    for known in known_protocols:
        if known in offered:
            return known
    raise errors.bad_request(f"unable to upgrade: the client offers none of the supported subprotocols: "
                             f"{', '.join(known_protocols)}")


def _pod(ctx: RequestContext) -> Object:
    with ctx.cluster.locked():
        current = stored(ctx)
    if current is None:
        raise errors.not_found("", "pods", ctx.info.name)
    return current.decode()


def _admitted(ctx: RequestContext, kind: str, options: Object) -> Object:
    """The options of a connection after the webhooks, which may change the options or refuse the connection."""
    if not ctx.hooks:
        return options
    shaped, _ = encoding.shape({**options, "kind": kind, "apiVersion": "v1"}, f"core.v1.{kind}")
    return admit_unstored(ctx, shaped, CONNECT)


def _container(ctx: RequestContext, pod: Object, asked: str) -> str:
    spec, name = pod["spec"], ctx.info.name
    groups = [[entry["name"] for entry in spec.get(field) or ()]
              for field in ("containers", "initContainers", "ephemeralContainers")]
    if asked:
        if not any(asked in names for names in groups):
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    usual, initial, _ = groups
    if len(usual) == 1:
        return str(usual[0])
    choices = f"a container name must be specified for pod {name}, choose one of: [{' '.join(usual)}]"
    if initial:
        choices += f" or one of the init containers: [{' '.join(initial)}]"
    raise errors.bad_request(choices)


def _selection(ctx: RequestContext) -> Selection:
    request = ctx.request
    tail, limit, since_seconds = (integer_param(request, name) for name in ("tailLines", "limitBytes", "sinceSeconds"))
    causes = []
    if tail is not None and tail < 0:
        causes.append(errors.invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        causes.append(errors.invalid_value("limitBytes", limit, "must be greater than 0"))
    since_time = request.param("sinceTime")
    if since_time and since_seconds is not None:
        causes.append(errors.forbidden_field("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif since_seconds is not None and since_seconds < 1:
        causes.append(errors.invalid_value("sinceSeconds", since_seconds, "must be greater than 0"))
    if causes:
        raise errors.invalid("", "PodLogOptions", ctx.info.name, causes)
    since = None if since_seconds is None else ctx.now - timedelta(seconds=since_seconds)
    if since_time:
        try:
            since = parse_time(since_time)
        except ValueError as error:
            raise errors.bad_request(f"sinceTime: {error}") from None
    return Selection(tail, since, limit, is_true(request, "timestamps"))


def read_request(ctx: RequestContext, type_name: str) -> Object:
    """Read and check the body of a request for the Pod that the path names."""
    value, unknown, keys = encoding.read_shape(ctx.request, type_name)
    kind = type_name.rpartition(".")[2]
    refuse_fields(ctx, type_name, keys.problems(unknown, mixed=True))
    if value.get("kind") not in (None, "", kind):
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind})")
    if value["metadata"].get("name") not in (None, "", ctx.info.name):
        raise errors.bad_request(f"name in URL does not match name in {kind} object")
    return value


def bind(ctx: RequestContext) -> HttpResponse:
    """Assign a Pod to a Node. Refused if the Pod already has a node."""
    ctx.options = query.write_options(ctx.request, "CreateOptions")
    binding = read_request(ctx, "core.v1.Binding")
    if binding["metadata"].get("name") != ctx.info.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    binding = admit_unstored(ctx, {"kind": "Binding", "apiVersion": "v1", **binding})
    target, kind = binding["target"].get("name"), binding["target"].get("kind") or ""
    # Surprising: the answer to an invalid Binding is a 500.
    if kind not in ("", "Node"):
        raise errors.bare_500(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target:
        raise errors.bare_500("target.name: Required value")
    with ctx.cluster.locked():
        current = stored(ctx)
        if current is None:
            raise errors.not_found("", "pods", ctx.info.name)
        pod = current.decode()
        node = pod.get("spec", {}).get("nodeName")
        if node or current.deleting:
            why = (f'pod {current.name} is already assigned to node "{node}"' if node
                   else f"pod {current.name} is being deleted, cannot be assigned to a host")
            raise errors.conflict("", "pods/binding", current.name, why)
        if pod["spec"].get("schedulingGates"):
            raise errors.conflict("", "pods/binding", current.name,
                                  f"pod {current.name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = target
        for key in ("annotations", "labels"):
            if given := binding["metadata"].get(key):
                pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **given}
        conditions = [condition for condition in pod.setdefault("status", {}).get("conditions") or ()
                      if condition.get("type") != "PodScheduled"]
        conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None,
                           "lastTransitionTime": format_time(ctx.now)})
        pod["status"]["conditions"] = conditions
        if not ctx.dry_run:
            ctx.cluster.storage.put(ctx.type.storage, pod, ctx.type.strategy.selectable_fields(pod))
    return answer_success(ctx)
