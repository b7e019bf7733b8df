"""Aggregated ClusterRoles: their rules are those of the ClusterRoles that they select.

What a request may do does not wait for this: access reads the selected roles itself (access/rbac.py). But clients see
the rules in the role.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.controllers.loop import KeyQueue
from kubectl_runtime.apiserver.kinds.base import dig, label_selector
from kubectl_runtime.apiserver.loopback import patch, served_type
from kubectl_runtime.apiserver.storage.storage import Bucket, Change, Cluster, Version

Object = dict[str, Any]

ROLES = "rbac.authorization.k8s.io/clusterroles"
AGENT = "clusterrole-aggregation-controller"


class RoleAggregation(KeyQueue):
    """See the module."""

    name = "clusterrole-aggregation"
    storage = ROLES

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == ROLES:  # each may be selected by any other
            self._keys |= dict.fromkeys(bucket.keys)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Write the rules of an aggregated role, if they changed."""
        role = version.decode()
        selectors = [label_selector(each) for each in dig(role, "aggregationRule.clusterRoleSelectors") or ()]
        if not selectors or version.deleting:
            return
        rules: list[Object] = []
        for other in cluster.storage.bucket(ROLES).scan(""):
            selected = any(each is not None and each.matches(other.labels) for each in selectors)
            if selected and other.name != version.name:
                rules += [rule for rule in other.decode().get("rules") or () if rule not in rules]
        if rules != (role.get("rules") or []):
            patch(cluster, served_type(cluster, ROLES), version, {"rules": rules}, agent=AGENT)
