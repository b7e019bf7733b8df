"""Which checks of ``metadata`` the rules of a kind repeat: the real server makes them for every kind, and most kinds
make some of them again, so that a cause is there as often.

On a create the kind's own checks come first, and only if they find nothing those for every kind, which know names as
parts of paths alone. On an update both are made, whatever the other finds.
"""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = "whole"  # names, labels, annotations, owners, finalizers: as at creation
CHANGE = "change"  # what cannot change; labels, annotations and owners


@dataclass(frozen=True, slots=True)
class MetadataChecks:
    """The kind's own checks at creation, on updates and on updates of /status, besides those for every kind."""

    on_create: bool = True
    on_update: tuple[str, ...] = (CHANGE,)
    on_status: tuple[str, ...] = (CHANGE,)
    qualified_finalizers: bool = True  # its own checks refuse finalizers without a domain

    def of_update(self, subresource: str) -> tuple[str, ...]:
        """The kind's own checks of a write to the object or to a subresource."""
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
    """The checks that a built-in kind makes itself; Events do so only if they come through their new group."""
    return USUAL if group == "events.k8s.io" else _CHECKS.get(kind, USUAL)
