"""`Attributes`: one operation as admission sees it; the same for an object, a subresource of its own kind, and exec.

=======================  ========================  ===========================  ==============================
operation                `object`                  `old`                        `options`
=======================  ========================  ===========================  ==============================
CREATE                   the new object            None                         CreateOptions
UPDATE                   the new object            the object as it is          UpdateOptions
DELETE                   None                      the object as it is          DeleteOptions
CONNECT                  PodExecOptions, …         None                         None
=======================  ========================  ===========================  ==============================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.query.delete_options import raw_delete_options
from kubectl_runtime.apiserver.storage.registry import ServedResource

Object = dict[str, Any]

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


class Kind(NamedTuple):
    """A group, version and kind."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(slots=True)
class Attributes:
    """See the module. Objects have kind and apiVersion; `old` is read-only."""

    operation: str
    resource: ServedResource
    subresource: str
    kind: Kind
    namespace: str
    name: str
    object: Object | None
    old: Object | None
    options: Object | None
    dry_run: bool

    @property
    def is_own_kind(self) -> bool:
        """Whether the objects are of the resource's kind, and not of its subresource's (Scale, Binding)."""
        return self.kind == (self.resource.group, self.resource.version, self.resource.kind)


def attributes(ctx: RequestContext, operation: str, new: Object | None, old: Object | None, *,
               name: str | None = None) -> Attributes:
    """The attributes of what a request does with an object, or with the object of its subresource."""
    shown = new or old or {}
    resource, group_version = ctx.type, (shown.get("apiVersion") or ctx.type.api_version)
    group, _, version = group_version.rpartition("/")
    if name is None:
        name = ctx.info.name or (shown.get("metadata") or {}).get("name") or ""
    namespace = ctx.namespace
    if (resource.group, resource.plural) == ("", "namespaces"):
        namespace = name  # a Namespace lies in itself
    kind = Kind(group, version, shown.get("kind") or ctx.type.kind)
    return Attributes(operation, resource, ctx.info.subresource, kind, namespace, name, new, old,
                      _options(ctx, operation), _is_dry_run(ctx, operation))


def _is_dry_run(ctx: RequestContext, operation: str) -> bool:
    if operation == DELETE:
        return bool(raw_delete_options(ctx.request, custom=ctx.type.is_custom).get("dryRun"))
    return operation != CONNECT and ctx.dry_run


def _options(ctx: RequestContext, operation: str) -> Object | None:
    """The options of the request, as far as it gave any."""
    if operation == CONNECT:
        return None
    kind = f"{operation.capitalize()}Options"
    if operation == DELETE:
        given = raw_delete_options(ctx.request, custom=ctx.type.is_custom)
    else:
        given = {"dryRun": ctx.request.params("dryRun"), "fieldManager": ctx.request.param("fieldManager"),
                 "fieldValidation": ctx.request.param("fieldValidation")}
    options = {**{key: value for key, value in given.items() if key != "preconditions" or any(value.values())},
               "kind": kind, "apiVersion": "meta.k8s.io/v1"}
    typed.decode(f"meta.v1.{kind}", options)
    return options
