"""`Access` authenticates and authorizes requests, including impersonation. This module also has the default RBAC roles.

Only commonly used default roles exist. The real server has about seventy default roles, most of them for
components (scheduler, kubelet, …) that do not exist here.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from kubectl_runtime.apiserver.access import rbac
from kubectl_runtime.apiserver.access.authn import CREDENTIAL_EXTRA, MASTERS, Authenticator, User, load_token_file
from kubectl_runtime.apiserver.access.impersonation import impersonate, service_account, service_account_groups
from kubectl_runtime.apiserver.access.rbac import (
    GROUP,
    SERVICE_ACCOUNT,
    Attributes,
    Decision,
    Rbac,
    StoredRoles,
    of_request,
    refusal,
)
from kubectl_runtime.apiserver.storage import Cluster, Storage
from kubectl_runtime.apiserver.wire import HttpRequest, Object, RequestInfo
from kubectl_runtime.core.meta.metav1 import format_time

READ = "get list watch"
CHANGE = "create delete deletecollection patch update"
ALL_VERBS = "create delete deletecollection get list patch update watch"

_WORKLOADS = "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale"

# (verbs, API groups, resources); the core group "" is written as "core"
_ADMIN = [
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (ALL_VERBS, GROUP, "rolebindings roles"),
]
_EDIT = [
    (READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "core", "serviceaccounts"),
    (CHANGE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "core", "pods/eviction"),
    (CHANGE, "core", "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
                     "secrets serviceaccounts services services/proxy"),
    ("create", "core", "serviceaccounts/token"),
    (CHANGE, "core events.k8s.io", "events"),
    (CHANGE, "apps", _WORKLOADS + " statefulsets statefulsets/scale"),
    (CHANGE, "autoscaling", "horizontalpodautoscalers"),
    (CHANGE, "batch", "cronjobs jobs"),
    (CHANGE, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "
                           "replicasets replicasets/scale replicationcontrollers/scale"),
    (CHANGE, "policy", "poddisruptionbudgets"),
    (CHANGE, "networking.k8s.io", "ingresses networkpolicies"),
    (ALL_VERBS, "coordination.k8s.io", "leases"),
    (CHANGE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
]
_VIEW = [
    (READ, "core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
                   "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
    (READ, "core", "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
                   "resourcequotas resourcequotas/status"),
    (READ, "core", "namespaces"),
    (READ, "core events.k8s.io", "events"),
    (READ, "discovery.k8s.io", "endpointslices"),
    (READ, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
                   "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale "
                   "statefulsets/status"),
    (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (READ, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
                         "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
                         "replicationcontrollers/scale"),
    (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
]
_BASIC_USER = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
]
_AUTH_DELEGATOR = [
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
]
_DISCOVERY = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
_PUBLIC_INFO = "/healthz /livez /readyz /version /version/"
_MONITORING = "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"


def _rules(table: Iterable[tuple[str, str, str]]) -> list[Object]:
    return [{"verbs": verbs.split(), "apiGroups": ["" if group == "core" else group for group in groups.split()],
             "resources": resources.split()} for verbs, groups, resources in table]


def _paths(paths: str) -> list[Object]:
    return [{"verbs": ["get"], "nonResourceURLs": paths.split()}]


def _metadata(name: str, aggregate_to: str = "") -> Object:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if aggregate_to:
        labels[f"{GROUP}/aggregate-to-{aggregate_to}"] = "true"
    return {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}


def _role(name: str, rules: list[Object] | None, aggregate_to: str = "", aggregates: str = "") -> Object:
    role: Object = {"metadata": _metadata(name, aggregate_to), "rules": rules}
    if aggregates:
        role["aggregationRule"] = {"clusterRoleSelectors": [
            {"matchLabels": {f"{GROUP}/aggregate-to-{aggregates}": "true"}}]}
    return role


def cluster_roles() -> list[Object]:
    """The default ClusterRoles, without kind and apiVersion."""
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    return [
        _role("cluster-admin", everything),
        _role("admin", None, aggregates="admin"),
        _role("edit", None, aggregate_to="admin", aggregates="edit"),
        _role("view", None, aggregate_to="edit", aggregates="view"),
        _role("system:aggregate-to-admin", _rules(_ADMIN), aggregate_to="admin"),
        _role("system:aggregate-to-edit", _rules(_EDIT), aggregate_to="edit"),
        _role("system:aggregate-to-view", _rules(_VIEW), aggregate_to="view"),
        _role("system:auth-delegator", _rules(_AUTH_DELEGATOR)),
        _role("system:basic-user", _rules(_BASIC_USER)),
        _role("system:discovery", _paths(_DISCOVERY)),
        _role("system:monitoring", _paths(_MONITORING) + _rules([("get", "core", "nodes/metrics")])),
        _role("system:public-info-viewer", _paths(_PUBLIC_INFO)),
    ]


def cluster_role_bindings() -> list[Object]:
    """The default ClusterRoleBindings, without kind and apiVersion."""
    bindings = {
        "cluster-admin": ("system:masters",),
        "system:basic-user": ("system:authenticated",),
        "system:discovery": ("system:authenticated",),
        "system:monitoring": ("system:monitoring",),
        "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    }
    return [{"metadata": _metadata(name),
             "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups],
             "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}}
            for name, groups in bindings.items()]


def install(storage: Storage, now: datetime, new_uid: Callable[[], str]) -> None:
    """Store the missing default roles and bindings. Callers hold the cluster's lock."""
    for plural, obj in _all():
        key = f"{GROUP}/{plural}"
        if storage.get(key, "", obj["metadata"]["name"]) is None:
            obj["metadata"].update(uid=new_uid(), creationTimestamp=format_time(now))
            storage.put(key, obj, {})


def _all() -> Iterator[tuple[str, Object]]:
    for role in cluster_roles():
        yield "clusterroles", role
    for binding in cluster_role_bindings():
        yield "clusterrolebindings", binding


_EVERYTHING = rbac.EVERYTHING


class AuthorizationMode(StrEnum):
    """How requests are authorized. The values are those of kube-apiserver's ``--authorization-mode``."""

    ALWAYS_ALLOW = "AlwaysAllow"
    RBAC = "RBAC"

    @classmethod
    def _missing_(cls, value: object) -> AuthorizationMode:
        raise ValueError(f"unknown authorization mode: {value}; must be one of {', '.join(cls)}")


class Access:
    """Authentication and authorization of one server. Safe to use from any thread after `attach`."""

    def __init__(self, *, tokens: Mapping[str, User] | None = None,
                 mode: AuthorizationMode | str = AuthorizationMode.ALWAYS_ALLOW, anonymous: bool | None = None) -> None:
        """`tokens` maps bearer tokens to users. If `tokens` is None and the mode is not RBAC, tokens are ignored.

        `anonymous` admits requests without credentials. By default, as in kube-apiserver, such requests are admitted
        unless `tokens` is set and the mode is AlwaysAllow. Raises ValueError for an unknown mode.
        """
        self.mode = AuthorizationMode(mode)
        if tokens is None and self.mode is AuthorizationMode.RBAC:
            tokens = {}
        if anonymous is None:
            anonymous = tokens is None or self.mode is AuthorizationMode.RBAC
        self._authenticator = Authenticator(tokens, anonymous=anonymous)
        self._cluster: Cluster | None = None
        self._rbac = Rbac(StoredRoles(self._storage)) if self.mode is AuthorizationMode.RBAC else None
        self._loaded = 0.0  # monotonic seconds

    def load_roles(self, seconds: float) -> None:
        """Behave for `seconds` like a kube-apiserver that has just started and has not yet loaded Roles and bindings.

        During this time, the mode RBAC refuses every user outside the group system:masters. Has no effect before
        `attach`.
        """
        if self._cluster is not None:
            self._loaded = self._cluster.clock.monotonic() + seconds

    def attach(self, cluster: Cluster) -> None:
        """Guard this cluster. In mode RBAC, also store the default roles while holding the cluster's lock."""
        self._cluster = cluster
        self._authenticator.clock = cluster.clock
        if self._rbac is not None:
            with cluster.locked():
                install(cluster.storage, cluster.clock.now(), cluster.new_uid)

    def _storage(self) -> Storage:
        assert self._cluster is not None, "attach() has not been called"
        return self._cluster.storage

    def admit(self, request: HttpRequest, info: RequestInfo) -> User:
        """Authenticate and authorize a request, and return its user. Raises a 401 or 403 if the request is refused.

        The core calls this before it resolves the path, so a user without permissions does not learn which types exist.
        """
        attributes = of_request(self._authenticator.authenticate(request), info, request)
        user = impersonate(request, attributes, self.authorize)
        self.require(attributes if user is attributes.user else replace(attributes, user=user))
        return user

    def authorize(self, attributes: Attributes) -> Decision:
        """Decide whether the user may do the action."""
        if self._rbac is None or self._cluster is None:
            return Decision(True)
        if self._cluster.clock.monotonic() < self._loaded and MASTERS not in attributes.user.groups:
            return Decision(False)
        with self._cluster.locked():
            return self._rbac.authorize(attributes)

    def require(self, attributes: Attributes) -> None:
        """Raise a 403 unless the user may do the action."""
        decision = self.authorize(attributes)
        if not decision.allowed:
            raise refusal(attributes, decision.reason)

    def require_create(self, user: User, info: RequestInfo) -> None:
        """Raise a 403 unless the user may create the object. Called if an update or patch would create the object."""
        self.require(Attributes(user, "create", info.group, info.resource, info.subresource, info.namespace, info.name))

    def check_write(self, user: User, group: str, plural: str, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        """Raise a 403 if a Role or binding would grant permissions that its writer lacks. Callers hold the cluster's
        lock."""
        if self._rbac is not None and group == GROUP:
            rbac.check_write(self._rbac, user, plural, new, old)

    def rules_for(self, user: User, namespace: str) -> tuple[list[dict[str, Any]], str]:
        """The rules of a user in a namespace, and an error text if some rules could not be read (else "")."""
        if self._rbac is None or self._cluster is None:
            return _EVERYTHING, ""
        with self._cluster.locked():
            return self._rbac.rules_for(user, namespace)

    def user_of_token(self, token: str) -> User | None:
        return self._authenticator.user_of_token(token)

    @property
    def knows_tokens(self) -> bool:
        """Whether bearer tokens are checked."""
        return self._authenticator.tokens is not None

    def issue_token(self, user: str | User) -> str:
        """Issue a new bearer token for a user (see `as_user`). Raises ValueError on a server that ignores tokens."""
        tokens = self._authenticator.tokens
        if tokens is None:
            raise ValueError("this server does not distinguish users: pass tokens=… or authorization_mode='RBAC'")
        token = secrets.token_urlsafe(24)
        tokens[token] = as_user(user)
        return token

    def issue_account_token(self, namespace: str, name: str, uid: str, lifetime: float) -> str:
        """Issue a bearer token for a service account. It expires after `lifetime` seconds on the server's clock.

        A server that ignores tokens accepts requests with or without the token.
        """
        assert self._cluster is not None, "attach() has not been called"
        user = as_user(f"{SERVICE_ACCOUNT}{namespace}:{name}")
        token = secrets.token_urlsafe(48)
        ends = self._cluster.clock.monotonic() + lifetime
        credential = ((CREDENTIAL_EXTRA, (f"JTI={uuid.uuid4()}",)),)
        self._authenticator.expiring[token] = (User(user.name, uid, user.groups, credential), ends)
        return token


Tokens = Mapping[str, str | User] | str | Path
"""Users by bearer token, or the path of a token file."""


def as_user(user: str | User) -> User:
    """Turn a user name into a `User`. The `User` of a service account also has the service account groups."""
    if isinstance(user, User):
        return user
    account = service_account(user)
    return User(user, groups=service_account_groups(account[0]) if account else ())


def users_by_token(tokens: Tokens | None) -> dict[str, User] | None:
    """Users by bearer token, from a mapping or a token file. Raises `TokenFileError` and OSError."""
    if tokens is None:
        return None
    if isinstance(tokens, Mapping):
        return {token: as_user(user) for token, user in tokens.items()}
    return load_token_file(tokens)
