"""The rules of a kind, one `Strategy` object per resource type: defaults, validation and deletion.

- Order of a create: ``decode``, ``default``, managedFields (compared with ``blank``), ``admit`` with mutating policies
  and webhooks (if there are any), ``to_storage``, ``prepare_create``, the core's metadata, ``validate_create``,
  ``canonicalize``, Pod security, validating policies and webhooks, quotas, ``stored_form``.
- Order of an update: ``decode``, ``default``, managedFields, mutating policies and webhooks, ``to_storage``,
  ``prepare_update``, ``generation``, ``validate_update``, ``canonicalize``, Pod security, validating policies and
  webhooks, quotas, ``stored_form``.
- Order of a delete: ``grace_period``, the core's finalizers, ``prepare_delete`` if the object stays.

Objects are plain dicts that belong to the request, and hooks change them in place. `old` is read-only. The core
validates ``metadata`` (names, labels, annotations, finalizers, owner references); hooks return the causes for the rest
of the object. Strategies keep no state; they read other objects through the `StrategyContext`.

The real server checks ``metadata`` for every kind, and most kinds repeat some of these checks, so that causes appear
twice (`MetadataChecks`). On a create the kind's own checks run first, and the generic checks run only if the
kind's own checks find nothing. On an update both run.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.managedfields.entries import ResetFields, reset_for
from kubectl_runtime.apiserver.names import dns_subdomain_errors
from kubectl_runtime.apiserver.wire import Object

WHOLE = "whole"  # the checks of a create: names, labels, annotations, owners, finalizers
CHANGE = "change"  # the checks of a change: immutable fields, and labels, annotations and owners


@dataclass(frozen=True, slots=True)
class MetadataChecks:
    """A kind's own metadata checks besides the generic ones: on create, on update and on status update."""

    on_create: bool = True
    on_update: tuple[str, ...] = (CHANGE,)
    on_status: tuple[str, ...] = (CHANGE,)
    qualified_finalizers: bool = True  # whether the kind's own checks refuse finalizers without a domain

    def of_update(self, subresource: str) -> tuple[str, ...]:
        """The kind's own checks for an update of the object or of a subresource."""
        return self.on_status if subresource == "status" else self.on_update


_NONE = MetadataChecks(on_create=False, on_update=(), on_status=())
_BOTH = MetadataChecks(on_update=(WHOLE, CHANGE))
_WHOLE = MetadataChecks(on_update=(WHOLE,))
_ANY_FINALIZER = MetadataChecks(qualified_finalizers=False)
USUAL = MetadataChecks()
CUSTOM = _ANY_FINALIZER

_CHECKS: dict[str, MetadataChecks] = {
    **dict.fromkeys((
        "ConfigMap", "ControllerRevision", "ClusterRole", "ClusterRoleBinding", "Endpoints", "Ingress", "IngressClass",
        "Job", "Namespace", "Node", "PersistentVolumeClaim", "Pod", "Role", "RoleBinding", "Secret",
        "ServiceAccount", "StorageClass"), _BOTH),
    **dict.fromkeys(("EndpointSlice", "LimitRange"), _WHOLE),
    **dict.fromkeys(("CustomResourceDefinition", "Lease"), _ANY_FINALIZER),
    **dict.fromkeys(("Event", "PodDisruptionBudget"), _NONE),
    **dict.fromkeys(("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
                    MetadataChecks(on_update=(WHOLE,), qualified_finalizers=False)),
    "PersistentVolume": MetadataChecks(on_update=(WHOLE, WHOLE)),
    "CronJob": MetadataChecks(on_status=()),
    "RuntimeClass": MetadataChecks(on_update=(WHOLE, CHANGE), qualified_finalizers=False),
}


def checks_of(group: str, kind: str) -> MetadataChecks:
    """The metadata checks of a built-in kind's own validation. Events have such checks only in events.k8s.io."""
    return USUAL if group == "events.k8s.io" else _CHECKS.get(kind, USUAL)


class StrategyContext(Protocol):
    """The parts of the request and of the server that a strategy may read."""

    @property
    def now(self) -> datetime: ...

    @property
    def user(self) -> str: ...

    @property
    def identity(self) -> Object:
        """The username, uid, groups and extra for the spec of a CertificateSigningRequest. Empty fields are omitted."""
        ...

    @property
    def dry_run(self) -> bool: ...

    @property
    def sent(self) -> bytes:
        """The body of a create or replace; empty for a patch."""
        ...

    @property
    def stored_bytes(self) -> bytes:
        """The stored JSON of the object that the path names; empty if there is no object."""
        ...

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterator[Object]:
        """The stored objects of a type in key order, from one namespace, or from all if `namespace` is "".

        The caller must not change the objects.
        """
        ...


class Strategy:
    """The default hooks, which suit a kind without generation, status or validation of its own, such as ConfigMap."""

    delete_returns_object = False  # whether a delete returns the object instead of a Status
    allow_create_on_update = False  # whether a PUT creates a missing object (Lease)
    allow_unconditional_update = True  # whether a PUT without resourceVersion overwrites the object
    has_generation = False  # whether metadata.generation starts at 1 and rises when `generation_part` changes
    has_status = False  # whether /status exists; then only updates of /status change the status
    supports_grace = False  # whether every deletion first sets deletionTimestamp and deletionGracePeriodSeconds (Pod)
    delete_warning = ""  # the Warning header of a delete without a propagation policy (Job)
    terminates = False  # whether a deletion first removes the contents (Namespace, CustomResourceDefinition)
    immortal: frozenset[str] = frozenset()  # the names of objects that cannot be deleted
    immortal_text = ""  # the message for a delete of such an object
    collects_dependents = True  # whether propagation policies apply (not for Events, which own nothing)
    metadata_checks: MetadataChecks = USUAL  # the metadata checks of the kind's own validation
    checks_namespace = True  # whether a create in a missing or terminating Namespace is refused

    def to_storage(self, obj: Object, version: str) -> Object:
        """Convert an object from an API version to its stored form (events.k8s.io/v1 is stored as a v1 Event)."""
        return obj

    def from_storage(self, obj: Object, version: str) -> Object:
        """The reverse of `to_storage`; called only if `converts` is true."""
        return obj

    @property
    def converts(self) -> bool:
        """Whether API versions differ from the stored form by more than apiVersion."""
        return False

    asks_webhook = False  # whether a webhook converts between the versions, which takes time and may fail

    def all_from_storage(self, stored: list[tuple[Object, str]], version: str) -> list[Object]:
        """Convert stored objects to an API version. `stored` pairs each object with the version it is stored in.

        Called only for objects whose stored version differs. Runs without the lock, or releases it. Raises StatusError.
        """
        return [self.from_storage(obj, version) for obj, _ in stored]

    def is_up_to_date(self, stored: Callable[[], Object], stored_as: str) -> bool:
        """Whether an object that is stored as version `stored_as` would be stored the same way today.

        If not, even an update without changes stores the object again. `stored` decodes and returns the object,
        for the few kinds that need it.
        """
        return True

    def stored_form(self, obj: Object) -> tuple[Object, str]:
        """Convert a finished object to the form to store. Returns the form and its version.

        The version is "" if all API versions have the same form. Locking and errors are as for `all_from_storage`.
        """
        return obj, ""

    def decode(self, obj: Object) -> list[str]:
        """Give a received (or patched) object the shape of the real server's typed object, in place.

        Removes empty optional fields, adds fields that are always written (``status: {}``, ``firstTimestamp: null``),
        canonicalizes times and quantities, and drops unknown fields. Returns the paths of the unknown fields in order
        of appearance (``metadata.wrong``, ``spec.containers[0].x``). Raises `BodyDecodeError` (errors.py) for a value
        of the wrong JSON type; its message is the part after ``ConfigMap in version "v1" cannot be handled as a
        ConfigMap: ``. The default does nothing.
        """
        return []

    def default(self, obj: Object) -> None:
        """Fill in the kind's own defaults, and a CRD schema's defaults. Runs on every write, in the request's version.

        In managedFields the values that this hook sets belong to the client; values that `prepare_create` sets have no
        owner.
        """

    def default_applied(self, obj: Object) -> None:
        """`default` for the result of a server-side apply, which did not pass a decoder."""
        self.default(obj)

    def blank(self) -> Object:
        """A new object without content, as `decode` shapes it, such as ``{"status": {"loadBalancer": {}}}``.

        The managedFields of a create list only the differences from this object: a container's ``resources: {}`` is
        listed, an empty ``spec: {}`` is not, and an object without content has no managedFields.
        """
        return {}

    def blank_shown(self) -> Object:
        """`blank` as a watch bookmark shows it."""
        return self.blank()

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """Apply the server's own mutating admission plugins to a new object, before mutating webhooks see the object.

        `prepare_create` applies them again to the webhooks' result, so this must be idempotent.
        """

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Drop the fields that a client may not set, and set the server's fields.

        The default drops status if the kind has a /status.
        """
        if self.has_status:
            obj.pop("status", None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore the fields that the request may not change: status on the object, everything else on /status."""
        if subresource == "status":
            self.keep_all_but_status(new, old)
        elif self.has_status:
            self.keep("status", new, old)

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Fill in values that validation does not see.

        Returns True if the real server would store a new object without these values and fill them in on each read. The
        next update then stores them, even if nothing else changes.
        """
        return False

    def reset(self, subresource: str) -> ResetFields:
        """The fields that a request cannot write and therefore does not own in managedFields."""
        return reset_for(subresource, has_status=self.has_status)

    def generation_part(self, obj: Object) -> Any:
        """The part of the object whose changes raise metadata.generation."""
        return obj.get("spec")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Return a cause for each error of a new object. The create is refused if there is any cause."""
        return []

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Return a cause for each error of an update, which is refused if there is any cause.

        `subresource` is "" or "status".
        """
        return []

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """The problems of a name; with `prefix` the text is a generateName. The default requires a DNS subdomain."""
        return dns_subdomain_errors(name, prefix=prefix)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The texts of Warning headers for a create (`old` is None) or an update."""
        return []

    def grace_period(self, obj: Object, requested: int | None) -> int:
        """Seconds from the delete request until the object is removed; 0 removes it at once."""
        return 0

    def holds_deletion(self, obj: Object) -> bool:
        """Whether something other than metadata.finalizers keeps a deleted object (a Namespace's spec.finalizers)."""
        return False

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """Mark the start of a deletion that `holds_deletion` delays (a Namespace's phase).

        `policy` is the propagation policy, "" if the client named none.
        """

    def default_orphans(self) -> bool:
        """Whether a delete without propagationPolicy orphans the dependents."""
        return False

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """The values for field selectors, without metadata.name and metadata.namespace."""
        return {}

    def selectable_field_names(self) -> frozenset[str]:
        """The keys of `selectable_fields`; a selector with any other field is refused."""
        return frozenset()

    @property
    def unsupported_field(self) -> str:
        """The message for a field that is not selectable, with ``{}`` for its name."""
        return "field label not supported: {}"

    def scale_paths(self) -> tuple[str, str, str] | None:
        """(spec replicas, status replicas, label selector) as dotted paths for /scale; None without /scale."""
        return None

    def scale_selector(self, obj: Object, path: str) -> str:
        """The label selector that /scale returns, read from `path`; a string is used as it is."""
        value: Any = obj
        for part in path.strip(".").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""

    @staticmethod
    def keep(key: str, new: Object, old: Object) -> None:
        """Copy the value of `key` from `old` to `new`; remove the key from `new` if `old` does not have it."""
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)

    @classmethod
    def keep_all_but_status(cls, new: Object, old: Object) -> None:
        """Restore everything except status (and managedFields) from the old object, for a write to /status."""
        status, managed = new.get("status"), new.get("metadata", {}).get("managedFields")
        new.update(old)
        for key in [key for key in new if key not in old and key != "status"]:
            del new[key]
        new["metadata"] = dict(old["metadata"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        if status is None:
            new.pop("status", None)
        else:
            new["status"] = status
