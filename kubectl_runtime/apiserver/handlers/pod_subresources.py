"""Subresources of Pods that are requests rather than parts: binding here, eviction in eviction.py, logs and
streams in pod_streams.py."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding import body
from kubectl_runtime.apiserver.encoding.typed_shape import refuse_fields
from kubectl_runtime.apiserver.handlers.answers import answer_success, stored
from kubectl_runtime.apiserver.query import options
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]


def read_request(ctx: RequestContext, type_name: str) -> Object:
    """The body of a request for the Pod that the path names."""
    value, unknown, keys = body.read_shape(ctx.request, type_name)
    kind = type_name.rpartition(".")[2]
    refuse_fields(ctx, type_name, keys.problems(unknown, mixed=True))
    if value.get("kind") not in (None, "", kind):
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind})")
    if value["metadata"].get("name") not in (None, "", ctx.info.name):
        raise errors.bad_request(f"name in URL does not match name in {kind} object")
    return value


def bind(ctx: RequestContext) -> HttpResponse:
    """Assign a Pod to a Node, once."""
    ctx.options = options.write_options(ctx.request, "CreateOptions")
    binding = read_request(ctx, "core.v1.Binding")
    if binding["metadata"].get("name") != ctx.info.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    binding = admit_unstored(ctx, {"kind": "Binding", "apiVersion": "v1", **binding})
    target, kind = binding["target"].get("name"), binding["target"].get("kind") or ""
    # Surprising: what is wrong with a Binding is told as an error of the server.
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
