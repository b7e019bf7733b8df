"""The controller of CustomResourceDefinitions: it accepts names, establishes CRDs and serves their types.

The life of a CRD. Each row is one step of the controller:

==============  ============================================  =========================================================
state           conditions                                    what is served
==============  ============================================  =========================================================
created         none                                          nothing
named           NamesAccepted                                 nothing; some of its names may belong to another CRD
established     NamesAccepted, Established                    its served versions
changed         as before                                     its new versions; running watches of its instances end
terminating     as before, and Terminating; finalizer is set  its versions; creates are refused, instances deleted
gone            (its finalizer is removed)                    nothing; running watches of its instances end
==============  ============================================  =========================================================

A CRD gets a name only if no other CRD of its group has the name.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kubectl_runtime.apiserver.controllers.loop import under_lock
from kubectl_runtime.apiserver.crds.definitions import CLEANUP, approval, condition, is_true, set_condition
from kubectl_runtime.apiserver.crds.instances import CustomStrategy, WebhookConverter
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.kinds.catalog import storage_version_hash
from kubectl_runtime.apiserver.loopback import delete, submit
from kubectl_runtime.apiserver.output.negotiation import own_versions
from kubectl_runtime.apiserver.output.table import custom_columns
from kubectl_runtime.apiserver.schemas import Schema, from_openapi
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, ServedResource, Subresource, Version
from kubectl_runtime.apiserver.webhooks.hooks import WebhookCaller, target_of
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.gvk import version_priority
from kubectl_runtime.core.meta.metav1 import format_time

_RESOURCES, _KINDS = ("plural", "singular"), ("kind", "listKind")
_REASONS = {"plural": "PluralConflict", "singular": "SingularConflict", "kind": "KindConflict",
            "listKind": "ListKindConflict"}
ACCEPTED = ("True", "NoConflicts", "no conflicts found")


def accept(crd: Object, group: Iterable[Object]) -> tuple[Object, tuple[str, str, str]]:
    """Returns the accepted names, and (status, reason, message) of the condition NamesAccepted.

    `group` contains the CRDs of the same group, including this one. If a wanted name is taken, the previously accepted
    value stays. If several names are taken, the message names the last one.
    """
    wanted, before = crd["spec"]["names"], (crd.get("status") or {}).get("acceptedNames") or {}
    taken = [(other.get("status") or {}).get("acceptedNames") or {} for other in group]
    resources = {name for names in taken for name in (*(names.get(key) for key in _RESOURCES),
                                                      *(names.get("shortNames") or ()))}
    kinds = {names.get(key) for names in taken for key in _KINDS}
    names, told = dict(before), ACCEPTED
    for key in _RESOURCES:
        told = _take(names, wanted, key, resources) or told
    told = _take_short_names(names, wanted, resources) or told
    for key in _KINDS:
        told = _take(names, wanted, key, kinds) or told
    _put(names, "categories", wanted.get("categories"))
    return names, told


def _take(names: Object, wanted: Object, key: str, used: set[Any]) -> tuple[str, str, str] | None:
    name = wanted.get(key) or ""
    if name != (names.get(key) or "") and name in used:
        return "False", _REASONS[key], f'"{name}" is already in use'
    _put(names, key, name)
    return None


def _take_short_names(names: Object, wanted: Object, used: set[Any]) -> tuple[str, str, str] | None:
    own, asked = names.get("shortNames") or [], wanted.get("shortNames") or []
    clashes = list(dict.fromkeys(f'"{name}" is already in use' for name in asked if name not in own and name in used))
    if clashes:
        return "False", "ShortNamesConflict", clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
    _put(names, "shortNames", asked)
    return None


def _put(names: Object, key: str, value: Any) -> None:
    if value:
        names[key] = value
    else:
        names.pop(key, None)


STORAGE = "apiextensions.k8s.io/customresourcedefinitions"
AGENT = "kube-apiserver"
APPROVED = "KubernetesAPIApprovalPolicyConformant"


@dataclass(slots=True)
class _Served:
    """The types served for a CRD. They are replaced when `shape` changes (uid, generation, accepted names)."""

    shape: tuple[str, int, Object]
    terminating: bool
    types: list[ServedResource]


def resource_types(crd: Object, converter: WebhookConverter | None = None) -> list[ServedResource]:
    """The types of a CRD, one for each served version. `converter` converts objects between versions."""
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    stored = next((version for version in spec["versions"] if version.get("storage")), spec["versions"][0])
    schemas = {version["name"]: (version.get("schema") or {}).get("openAPIV3Schema") for version in spec["versions"]}
    digest = storage_version_hash(spec["group"], stored["name"], names["kind"])
    changed = crd["metadata"].get("generation", 1) > 1
    types = [_resource_type(spec, names, version,
                            CustomStrategy(spec["group"], names["kind"], version, schemas, stored["name"],
                                           changed=changed, converter=converter), digest)
             for version in spec["versions"] if version.get("served")]
    return [replace(found, terminating=True) for found in types] if is_true(crd, "Terminating") else types


def _resource_type(spec: Object, names: Object, version: Object, strategy: CustomStrategy,
                   digest: str) -> ServedResource:
    subresources = []
    if strategy.has_status:
        subresources.append(Subresource("status", names["kind"]))
    if strategy.scale_paths():
        subresources.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))

    def schema() -> Schema:
        return from_openapi(strategy.node)

    return ServedResource(
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


def is_terminating(crd: Version) -> bool:
    """Whether a stored CRD is terminating, so that no instances may be created."""
    return crd.deleting and is_true(crd.decode(), "Terminating")


class CrdController:
    """Accepts, establishes, serves and cleans up CRDs. The core calls `step` after a CRD has changed."""

    name = "customresourcedefinitions"

    def __init__(self, caller: WebhookCaller) -> None:
        """`caller` calls conversion webhooks."""
        self._caller = caller
        self._served: dict[str, _Served] = {}  # by the CRD's name
        self._terminating: dict[str, str] = {}  # storage key of a type -> name of its terminating CRD
        self._dirty: dict[str, None] = {}
        self._observed: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        """Serve the stored CRDs, and observe changes of the storage."""
        for name in list(self._served):
            self._unserve(cluster, name)
        self._terminating.clear()
        if self._observed is None:
            self._observed = cluster
            cluster.storage.observers.append(self._observe)
        for version in cluster.storage.bucket(STORAGE).scan(""):
            self._note(version)
        while self._dirty:
            self.step(cluster)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == STORAGE:
            self._note(change.new, gone=change.deleted)
        elif bucket.key in self._terminating and change.deleted:
            self._dirty[self._terminating[bucket.key]] = None

    def _note(self, version: Version, *, gone: bool = False) -> None:
        self._dirty[version.name] = None
        plural, _, group = version.name.partition(".")
        if not gone and is_terminating(version):
            self._terminating[f"{group}/{plural}"] = version.name
        else:
            self._terminating.pop(f"{group}/{plural}", None)

    def look_again(self, cluster: Cluster) -> None:
        for version in cluster.storage.bucket(STORAGE).scan(""):
            self._note(version)

    def due(self) -> float | None:
        """0 (due now) if a CRD has changed since the last step, else None."""
        return 0.0 if self._dirty else None

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Take one CRD one step forward. A step that writes the CRD's status leaves the rest to the next step."""
        if not self._dirty:
            return
        name = next(iter(self._dirty))
        del self._dirty[name]
        version = cluster.storage.get(STORAGE, "", name)
        if version is None:
            self._unserve(cluster, name, gone=True)
            self._look_at_group(cluster, name.partition(".")[2])
            return
        crd = version.decode()
        if self._accept_names(cluster, crd) or self._judge_approval(cluster, crd) or self._establish(cluster, crd):
            return
        if is_true(crd, "Established"):
            self._serve(cluster, name, crd)
        if version.deleting and CLEANUP in version.finalizers:
            self._terminate(cluster, version, crd)

    # --- the status ---------------------------------------------------------------------------------------------------

    def _accept_names(self, cluster: Cluster, crd: Object) -> bool:
        if crd["spec"]["names"] == crd["status"].get("acceptedNames"):
            return False
        group = crd["spec"]["group"]
        definitions = [version.decode() for version in cluster.storage.bucket(STORAGE).scan("")]
        names, told = accept(crd, [other for other in definitions if other["spec"]["group"] == group])
        known = condition(crd, "NamesAccepted") or {}
        if names == crd["status"].get("acceptedNames") and told == tuple(
                known.get(key) for key in ("status", "reason", "message")):
            return False
        now = format_time(cluster.clock.now())
        crd["status"]["acceptedNames"] = names
        set_condition(crd, "NamesAccepted", *told, now)
        if not is_true(crd, "Established"):
            why = (("Installing", "the initial names have been accepted") if told == ACCEPTED else
                   ("NotAccepted", "not all names are accepted"))
            set_condition(crd, "Established", "False", *why, now)
        if _store(cluster, crd):
            self._look_at_group(cluster, group)
        return True

    @staticmethod
    def _establish(cluster: Cluster, crd: Object) -> bool:
        if not is_true(crd, "NamesAccepted") or is_true(crd, "Established"):
            return False
        set_condition(crd, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted",
                      format_time(cluster.clock.now()))
        return _write(cluster, crd)

    @staticmethod
    def _judge_approval(cluster: Cluster, crd: Object) -> bool:
        state, message = approval(crd)
        if not state:
            return False
        before = condition(crd, APPROVED)
        set_condition(crd, APPROVED, str(state == "Approved"), f"{state}Annotation", message,
                      format_time(cluster.clock.now()))
        return condition(crd, APPROVED) != before and _write(cluster, crd)

    def _look_at_group(self, cluster: Cluster, group: str) -> None:
        """Check the CRDs of a group again, because a name may have become free."""
        self._dirty |= dict.fromkeys(version.name for version in cluster.storage.bucket(STORAGE).scan("")
                                     if version.name.partition(".")[2] == group)

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self, cluster: Cluster, name: str, crd: Object) -> None:
        shape = (crd["metadata"]["uid"], crd["metadata"].get("generation", 1), crd["status"]["acceptedNames"])
        terminating, before = is_true(crd, "Terminating"), self._served.get(name)
        if before is not None and (before.shape, before.terminating) == (shape, terminating):
            return
        types = resource_types(crd, self._converter(cluster, crd))
        for resource_type in types:
            cluster.storage.bucket(resource_type.storage, cluster.storage.rv)
            cluster.registry.add(resource_type)  # replaces the type's previous form
        self._unserve(cluster, name)  # removes the previous types that were not replaced
        if before is not None and before.shape != shape:
            for key in {resource_type.storage for resource_type in types}:
                cluster.storage.renew(key)
        self._served[name] = _Served(shape, terminating, types)

    def _converter(self, cluster: Cluster, crd: Object) -> WebhookConverter | None:
        conversion = crd["spec"].get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return None
        webhook = conversion["webhook"]
        return WebhookConverter(
            crd["spec"]["group"], crd["status"]["acceptedNames"]["kind"], target_of(webhook["clientConfig"]),
            tuple(webhook["conversionReviewVersions"]), self._caller, cluster)

    def _unserve(self, cluster: Cluster, name: str, *, gone: bool = False) -> None:
        served = self._served.pop(name, None)
        for resource_type in served.types if served else ():
            cluster.registry.remove(resource_type)
            if gone:
                cluster.storage.drop(resource_type.storage)
                self._terminating.pop(resource_type.storage, None)

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _terminate(self, cluster: Cluster, version: Version, crd: Object) -> None:
        now = format_time(cluster.clock.now())
        if (condition(crd, "Terminating") or {}).get("reason") == "InstanceDeletionPending":
            set_condition(crd, "Terminating", "True", "InstanceDeletionInProgress",
                          "CustomResource deletion is in progress", now)
            _write(cluster, crd)
            return
        why = ("NeverEstablished", "resource was never established")
        if is_true(crd, "Established"):
            served = self._served.get(version.name)
            bucket = cluster.storage.buckets.get(f"{crd['spec']['group']}/{crd['spec']['names']['plural']}")
            types = served.types if served else []
            for instance in list(bucket.objects.values()) if bucket and types else ():
                if not instance.deleting:
                    # Deleting in the stored version needs no conversion webhook.
                    own = next((found for found in types if found.version == instance.stored_as), types[0])
                    delete(cluster, own, instance, agent=AGENT)
            if bucket is not None and bucket.objects:
                return
            why = ("InstanceDeletionCompleted", "removed all instances")
        set_condition(crd, "Terminating", "False", *why, now)
        crd["metadata"]["finalizers"] = [finalizer for finalizer in version.finalizers if finalizer != CLEANUP]
        _write(cluster, crd)


class ConversionCache:
    """Converts each written object to the other served versions, by the conversion webhook, one object at a time.

    While the webhook fails, lists return these converted objects (`output.negotiation`). Objects that the webhook
    cannot convert after the write are left out.
    """

    name = "conversions"

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], None] = {}  # storage key of a type, key of an object
        self._cluster: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        if self._cluster is None:
            self._cluster = cluster
            cluster.storage.observers.append(self._observe)
        self._written.clear()

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if not change.deleted and self._cluster is not None and any(
                found.strategy.asks_webhook for found in self._cluster.registry.of_storage(bucket.key)):
            self._written[bucket.key, change.new.key] = None

    def look_again(self, cluster: Cluster) -> None:
        """Do nothing: a failed conversion is not tried again."""

    def due(self) -> float | None:
        """0 (due now) if written objects wait for their conversion, else None."""
        return 0.0 if self._written else None

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Convert one object. If that fails, drop the type's other waiting objects: each failure may take long."""
        if not self._written:
            return
        storage, key = next(iter(self._written))
        del self._written[storage, key]
        version = cluster.storage.bucket(storage).objects.get(key)
        if version is None:
            return
        try:
            for resource_type in cluster.registry.of_storage(storage):
                own_versions(resource_type, [version])
        except StatusError:
            self._written = {known: None for known in self._written if known[0] != storage}


def _write(cluster: Cluster, crd: Object) -> bool:
    """Store the CRD with `_store`. Always returns True, so that the controller's step ends here."""
    _store(cluster, crd)
    return True


def _store(cluster: Cluster, crd: Object) -> bool:
    """Store a changed status (and finalizers), as a component of the cluster. Returns whether the write succeeded."""
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **crd}
    path = f"/apis/{STORAGE.replace('/', '/v1/')}/{crd['metadata']['name']}/status"
    return submit(cluster, "PUT", path, body, agent=AGENT) is not None
