"""Owner references, the API's rules for them, and `child_name`, which names an object after its owner."""
from __future__ import annotations

from typing import Protocol

from kubectl_runtime.core.base.errors import RequestError, class_named
from kubectl_runtime.core.base.threads import unforked
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference


class Owner(Protocol):
    """An owner, with the attributes that this module reads."""

    @property
    def api_resource(self) -> ApiResource:
        """The kind of the owner."""

    @property
    def name(self) -> str:
        """The owner's name."""

    @property
    def namespace(self) -> str | None:
        """The owner's namespace; None if the owner is cluster-scoped."""

    @property
    def uid(self) -> str:
        """The owner's uid; empty for an object that was never on the server."""

    @property
    def ref(self) -> ObjectRef:
        """The owner's ref; for messages."""


class Owned(Protocol):
    """A child, with the attributes that this module reads; `set_owner` changes the child's `metadata`."""

    @property
    def api_resource(self) -> ApiResource:
        """The kind of the child."""

    @property
    def namespace(self) -> str | None:
        """The child's namespace; None if the child is cluster-scoped or has no namespace yet."""

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """The existing owners of the child."""

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata to which the owner is added."""

    @property
    def ref(self) -> ObjectRef:
        """The child's ref; for messages."""


def owner_reference(owner: Owner, *, controller: bool, block_owner_deletion: bool) -> OwnerReference:
    """A reference to `owner`. Raises RequestError if `owner` has no name or uid: it was never on the server."""
    for name, flag in (("controller", controller), ("block_owner_deletion", block_owner_deletion)):
        if not isinstance(flag, bool):
            raise RequestError(f"{name} must be True or False, not {flag!r}")
    if not owner.name or not owner.uid:
        raise RequestError(f"{owner.ref} has no uid yet: create it, and refer to the object that the server returns")
    resource = owner.api_resource
    return OwnerReference(api_version=resource.api_version, kind=resource.kind, name=owner.name, uid=owner.uid,
                          controller=controller or None, block_owner_deletion=block_owner_deletion or None)


def set_owner(child: Owned, owner: Owner, *, controller: bool, block_owner_deletion: bool) -> None:
    """Add or replace the reference to `owner` in `child`. A child without a namespace gets the owner's.

    Raises RequestError for a reference that the API's rules forbid.
    """
    if isinstance(owner, type) or not isinstance(getattr(owner, "api_resource", None), ApiResource):
        raise RequestError(f"the owner of {child.ref} must be an object that the server returned, not "
                           f"{class_named(owner)}")
    reference = owner_reference(owner, controller=controller, block_owner_deletion=block_owner_deletion)
    _check_places(child, owner)
    others = [held for held in child.owner_references if held.uid != reference.uid]
    rival = next((held for held in others if held.controller), None)
    if controller and rival is not None:
        raise RequestError(f"{child.ref} is already controlled by {rival.kind} {rival.name}: "
                           "an object can have only one controller")
    child.metadata.owner_references = [*others, reference]
    if child.namespace is None and child.api_resource.namespaced and owner.api_resource.namespaced:
        child.metadata.namespace = owner.namespace  # in another namespace the child would be garbage-collected


def _check_places(child: Owned, owner: Owner) -> None:
    if not owner.api_resource.namespaced:
        return
    if not child.api_resource.namespaced:
        raise RequestError(f"{owner.ref} cannot own {child.ref}: "
                           "a cluster-scoped object can have only cluster-scoped owners")
    if child.namespace and child.namespace != owner.namespace:
        raise RequestError(f"{owner.ref} cannot own {child.ref}: an owner must be in the namespace of the objects "
                           "that it owns")


LONGEST = 63
"""The maximum length of a DNS label (RFC 1123): the strictest limit, for example of Service names and label values."""
_DIGITS = 8
SHORTEST_LIMIT, LONGEST_LIMIT = 16, 253
"""A name needs room for its hash; a DNS subdomain has at most 253 characters."""


def child_name(owner: Owner, suffix: str, *, limit: int = LONGEST) -> str:
    """A name for a child of `owner`: `OWNER-SUFFIX`. A name longer than `limit` is cut and ends with a hash.

    The default limit, 63, is right for most kinds. Pass `limit=52` for a CronJob, because its Jobs get the name and 11
    further characters. The same arguments always give the same name. Long names with the same beginning differ in their
    hash, 32 bits of SHA-256. Raises RequestError for an owner without a name, for an empty suffix, and for a limit
    outside of 16 to 253. Pure.

    >>> child_name(ConfigMap(name="settings"), "copy")
    'settings-copy'
    >>> len(child_name(ConfigMap(name="a" * 60), "copy"))
    63
    >>> len(child_name(ConfigMap(name="a" * 60), "nightly", limit=52))
    52
    """
    if isinstance(owner, type) or not isinstance(getattr(owner, "api_resource", None), ApiResource):
        raise RequestError(f"child_name({owner!r}, ...): the owner must be an object, such as the reconciled object, "
                           f"not {class_named(owner)}")
    if not isinstance(suffix, str):
        raise RequestError(f"child_name(..., {suffix!r}): the suffix must be a string, not {class_named(suffix)}")
    if not owner.name:
        raise RequestError(f"{owner.ref} has no name yet: the names of its children begin with its name")
    if not suffix:
        raise RequestError(f"child_name: the suffix is empty: give the kind or the purpose of the child of {owner.ref}")
    if type(limit) is not int or not SHORTEST_LIMIT <= limit <= LONGEST_LIMIT:
        raise RequestError(f"child_name(..., limit={limit!r}): the limit must be a number of characters from "
                           f"{SHORTEST_LIMIT} to {LONGEST_LIMIT}, such as 52 for a CronJob")
    whole = f"{owner.name}-{suffix}"
    if len(whole) <= limit:
        return whole
    with unforked():  # imported late, because a program that only uses a client needs no hash
        from hashlib import sha256
    digest = sha256(f"{owner.name}/{suffix}".encode()).hexdigest()[:_DIGITS]
    return f"{whole[:limit - _DIGITS - 1].rstrip('-.')}-{digest}"
