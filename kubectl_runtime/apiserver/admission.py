"""Admission: what may keep a write from being stored although it is well-formed and its user may write the type.

The functions raise the 403 or 404 that refuses it; the cluster's lock is held.
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.crds.controller import STORAGE, is_terminating

Object = dict[str, Any]

_RECREATED = "unable to create new content in namespace {} because it is being terminated"


def admit_create(ctx: RequestContext, meta: Object) -> None:
    """Whether the namespace takes new objects, and the CRD new instances."""
    crd = ctx.cluster.storage.get(STORAGE, "", ctx.type.qualified) if ctx.type.is_custom else None
    if crd is not None and is_terminating(crd):
        raise errors.forbidden(ctx.type.group, ctx.type.plural, meta.get("name") or "",
                               "create not allowed while custom resource definition is terminating")
    namespace = meta.get("namespace", "")
    if not namespace or not ctx.type.strategy.checks_namespace:
        return
    found = ctx.cluster.storage.get("/namespaces", "", namespace)
    if found is None:
        raise errors.not_found("", "namespaces", namespace)
    if found.deleting:
        name = meta.get("name") or ""
        raise errors.forbidden(ctx.type.group, ctx.type.plural, name, _RECREATED.format(namespace), [
            errors.Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")])


def admit_write(ctx: RequestContext, new: Object, old: Object | None) -> None:
    """A Role or binding must not grant more than its writer has; `old` is None for a create."""
    ctx.access.check_write(ctx.user_info, ctx.type.group, ctx.type.plural, new, old)
