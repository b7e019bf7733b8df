"""The controller of CustomResourceDefinitions: it names and establishes them and serves what they define.

The life of a CRD, each arrow one step of the controller:

==============  ============================================  =========================================================
state           conditions                                    what is served
==============  ============================================  =========================================================
created         none                                          nothing
named           NamesAccepted                                 nothing, if its names are another CRD's
established     NamesAccepted, Established                    its served versions
terminating     and Terminating, its finalizer is set         its instances are deleted; creating is refused
gone            (its finalizer is removed)                    nothing; watches of its instances end
==============  ============================================  =========================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.metav1 import format_time
from kubectl_runtime.testing.apiserver import errors, managedfields
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.crd_strategy import CLEANUP, is_true, set_condition
from kubectl_runtime.testing.apiserver.custom import CustomStrategy
from kubectl_runtime.testing.apiserver.kinds.catalog import storage_version_hash
from kubectl_runtime.testing.apiserver.registry import ResourceType, Subresource, version_priority
from kubectl_runtime.testing.apiserver.schemas import ANY, Schema, from_openapi
from kubectl_runtime.testing.apiserver.storage import Bucket, Change, Version
from kubectl_runtime.testing.apiserver.table import custom_columns

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

Object = dict[str, Any]

STORAGE = "apiextensions.k8s.io/customresourcedefinitions"
AGENT = "kube-apiserver"


def resource_types(crd: Object) -> list[ResourceType]:
    """The types that a CRD serves, one for each served version."""
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    stored = next((version for version in spec["versions"] if version.get("storage")), spec["versions"][0])
    storage_schema = (stored.get("schema") or {}).get("openAPIV3Schema")
    digest = storage_version_hash(spec["group"], stored["name"], names["kind"])
    changed = crd["metadata"].get("generation", 1) > 1
    return [_resource_type(spec, names, version,
                           CustomStrategy(names["kind"], version, storage_schema, changed=changed), digest)
            for version in spec["versions"] if version.get("served")]


def _resource_type(spec: Object, names: Object, version: Object, strategy: CustomStrategy, digest: str) -> ResourceType:
    subresources = []
    if strategy.has_status:
        subresources.append(Subresource("status", names["kind"]))
    if strategy.scale_paths():
        subresources.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))

    def schema() -> Schema:
        return from_openapi(strategy.node)

    return ResourceType(
        group=spec["group"], version=version["name"], kind=names["kind"], plural=names["plural"],
        singular=names.get("singular", ""), namespaced=spec["scope"] == "Namespaced",
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()), categories=tuple(names.get("categories") or ()),
        subresources=tuple(subresources), strategy=strategy, schema_loader=schema,
        columns=custom_columns(version.get("additionalPrinterColumns") or ()), is_custom=True,
        storage_version_hash=digest, deprecation=_deprecation(spec, names, version))


def _deprecation(spec: Object, names: Object, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    own = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
    better = sorted((other["name"] for other in spec["versions"]
                     if other.get("served") and not other.get("deprecated")),
                    key=version_priority)
    default = f"{own}; use {spec['group']}/{better[0]} {names['kind']}" if better else own
    return str(version.get("deprecationWarning") or default)


class CrdController:
    """Names, establishes, serves and cleans up; runs as a part of the core, in the step after each change of a CRD."""

    name = "customresourcedefinitions"

    def __init__(self) -> None:
        self._served: dict[str, tuple[int, list[ResourceType]]] = {}  # CRD name -> (its generation, its types)
        self._terminating: dict[str, str] = {}  # storage key of a type -> name of its CRD, which is going
        self._dirty: set[str] = set()
        self._observed: ApiCore | None = None

    def start(self, core: ApiCore) -> None:
        """Serve what is stored, and observe."""
        for name in list(self._served):
            self._unserve(core, name)
        self._terminating.clear()
        if self._observed is None:
            self._observed = core
            core.storage.observers.append(self._observe)
        self._dirty = {version.name for version in core.storage.bucket(STORAGE).scan("")}
        while self._dirty:
            self.step(core)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == STORAGE:
            self._dirty.add(change.new.name)
        elif bucket.key in self._terminating and change.deleted:
            self._dirty.add(self._terminating[bucket.key])

    def due(self) -> float | None:
        """At once after a change."""
        return 0.0 if self._dirty else None

    def step(self, core: ApiCore) -> None:
        """Bring one CRD a step on."""
        if not self._dirty:
            return
        name = self._dirty.pop()
        version = core.storage.get(STORAGE, "", name)
        if version is None:
            self._unserve(core, name, gone=True)
            return
        crd = version.decode()
        if version.deleting:
            self._terminate(core, version, crd)
        elif not is_true(crd, "Established"):
            self._establish(core, crd)
        elif self._served.get(name, (0, []))[0] != crd["metadata"].get("generation", 1):
            self._accept_names(core, crd)
            self._serve(core, name, crd)

    # --- establishing -------------------------------------------------------------------------------------------------

    def _establish(self, core: ApiCore, crd: Object) -> None:
        now = format_time(core.clock.now())
        clash = self._clash(core, crd)
        if clash:
            set_condition(crd, "NamesAccepted", "False", clash[0], clash[1], now)
            set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now)
        else:
            set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            set_condition(crd, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted",
                          now)
            crd["status"]["acceptedNames"] = dict(crd["spec"]["names"])
        self._write(core, crd)

    def _accept_names(self, core: ApiCore, crd: Object) -> None:
        if crd["status"].get("acceptedNames") != crd["spec"]["names"] and not self._clash(core, crd):
            crd["status"]["acceptedNames"] = dict(crd["spec"]["names"])
            self._write(core, crd)

    def _clash(self, core: ApiCore, crd: Object) -> tuple[str, str] | None:
        """(reason, message) of a name that another CRD of the group has taken."""
        names, group = crd["spec"]["names"], crd["spec"]["group"]
        for other in core.registry:
            if other.group != group or f"{other.plural}.{group}" == crd["metadata"]["name"]:
                continue
            if other.kind in (names["kind"], names.get("listKind")) or other.list_kind == names.get("listKind"):
                return "KindConflict", f'"{names["kind"]}" is already in use'
            taken = {other.plural, other.singular, *other.short_names}
            for name in (names["plural"], names.get("singular", ""), *(names.get("shortNames") or ())):
                if name and name in taken:
                    reason = "ShortNamesConflict" if name in other.short_names else "PluralConflict"
                    return reason, f'"{name}" is already in use'
        return None

    def _write(self, core: ApiCore, crd: Object) -> None:
        """Store a changed status, as a client of the server's own name would."""
        current = core.storage.get(STORAGE, "", crd["metadata"]["name"])
        if current is None or (old := current.decode()) == crd:
            return
        served = core.registry.of_storage(STORAGE)[0]
        core.storage.put(STORAGE, managedfields.update(
            old, crd, manager=AGENT, subresource="status", api_version=served.api_version,
            schema=served.schema or ANY, now=core.clock.now(), blank=served.strategy.blank(),
            reset=served.strategy.reset("status")), current.fields)

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self, core: ApiCore, name: str, crd: Object) -> None:
        self._unserve(core, name)
        types = resource_types(crd)
        for resource_type in types:
            core.storage.bucket(resource_type.storage, core.storage.rv)
            core.registry.add(resource_type)
        self._served[name] = (crd["metadata"].get("generation", 1), types)

    def _unserve(self, core: ApiCore, name: str, *, gone: bool = False) -> None:
        _, types = self._served.pop(name, (0, []))
        for resource_type in types:
            core.registry.remove(resource_type)
            if gone:
                core.storage.drop(resource_type.storage)
                self._terminating.pop(resource_type.storage, None)

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _terminate(self, core: ApiCore, version: Version, crd: Object) -> None:
        from kubectl_runtime.testing.apiserver.controllers.client import delete

        storage = f"{crd['spec']['group']}/{crd['spec']['names']['plural']}"
        _, types = self._served.get(version.name, (0, []))
        if CLEANUP not in version.finalizers:
            return
        self._terminating[storage] = version.name
        bucket = core.storage.buckets.get(storage)
        if types and bucket is not None:
            for instance in list(bucket.objects.values()):
                if not instance.deleting:
                    delete(core, types[0], instance, agent=AGENT)
        now = format_time(core.clock.now())
        if bucket is not None and bucket.objects:
            set_condition(crd, "Terminating", "True", "InstanceDeletionInProgress",
                          "CustomResource deletion is in progress", now)
            self._write(core, crd)
            return
        finalizers = [finalizer for finalizer in version.finalizers if finalizer != CLEANUP]
        if finalizers:
            set_condition(crd, "Terminating", "False", "InstanceDeletionCompleted", "removed all instances", now)
            crd["metadata"]["finalizers"] = finalizers
            self._write(core, crd)
        else:
            core.storage.delete(STORAGE, version)

    def admit_create(self, ctx: RequestContext, meta: Object) -> None:
        """Refuse new instances of a CRD that is going."""
        if ctx.type.storage in self._terminating:
            raise errors.forbidden(ctx.type.group, ctx.type.plural, meta.get("name") or "",
                                   "create not allowed while custom resource definition is terminating")
