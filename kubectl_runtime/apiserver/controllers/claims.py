"""Whose children are whose: controllers adopt orphans that their selector matches, and release children that it matches
no longer."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.kinds.base import label_selector
from kubectl_runtime.apiserver.loopback import patch, served_type
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version

Object = dict[str, Any]

AGENT = "kube-controller-manager"
_API_VERSIONS = {"Job": "batch/v1"}  # others are of apps/v1


def owner_reference(owner: Version, kind: str) -> Object:
    """The reference of a child to its controller."""
    return {"apiVersion": _API_VERSIONS.get(kind, "apps/v1"), "kind": kind, "name": owner.name, "uid": owner.uid,
            "controller": True, "blockOwnerDeletion": True}


def claim(cluster: Cluster, owner: Version, kind: str, selector: Object, children: str) -> list[Version]:
    """The objects of a type that an owner controls, after it has adopted and released what it should."""
    matches, claimed = label_selector(selector), []
    for child in list(cluster.storage.bucket(children).scan(owner.namespace)):
        controller = next((ref for ref in child.owners if ref.get("controller")), None)
        matching = matches is not None and matches.matches(child.labels)
        if controller is None:
            if not matching or owner.deleting or child.deleting:
                continue
            kept = [*child.owners, owner_reference(owner, kind)]
        elif controller.get("uid") != owner.uid:
            continue
        elif matching or owner.deleting:
            claimed.append(child)
            continue
        else:
            kept = [ref for ref in child.owners if ref.get("uid") != owner.uid]
        change = {"metadata": {"ownerReferences": kept or None}}
        patch(cluster, served_type(cluster, children), child, change, agent=AGENT)
        if controller is None and (adopted := cluster.storage.get(children, child.namespace, child.name)) is not None:
            claimed.append(adopted)
    return claimed
