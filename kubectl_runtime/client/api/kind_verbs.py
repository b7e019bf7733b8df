"""Verbs that single kinds have: restart of workloads, cordon of Nodes, tokens of ServiceAccounts, approval of signing
requests.

All of them block and raise as the verbs of `Api` do, and RequestError for a kind that has no such verb.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from kubectl_runtime.client.api.pods import PodVerbs
from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import format_time, parse_time
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.body import Patch
from kubectl_runtime.core.requests.params import FieldValidation, PatchParams, PostParams, chosen
from kubectl_runtime.core.requests.request import Named

K = TypeVar("K")

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of the Pod template whose change makes the workload replace its Pods: `kubectl rollout restart`'s."""

_RESTARTABLE = frozenset((("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet")))
_NODE = frozenset((("", "Node"),))
_ACCOUNT = frozenset((("", "ServiceAccount"),))
_SIGNING = frozenset((("certificates.k8s.io", "CertificateSigningRequest"),))
_SHORTEST = 600


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """A token of a service account; `expiration` is when it ends. The token is in no repr.

    >>> from kubectl_runtime.resources import ServiceAccount
    >>> Api.namespaced(client, ServiceAccount, "default").create(ServiceAccount(name="robot")).name
    'robot'
    >>> Api.namespaced(client, ServiceAccount, "default").create_token("robot").expiration > datetime.now(UTC)
    True
    """

    token: str = field(repr=False)
    expiration: datetime


class KindVerbs(PodVerbs[K]):
    """The verbs of `Api` that only some kinds have: of Deployments, Nodes, ServiceAccounts, CertificateSigningRequests.
    Each blocks for its calls, and raises as `Api.get` and `Api.patch` do."""

    __slots__ = ()

    def restart(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
                timeout: Duration | None = None) -> K:
        """Have a Deployment, StatefulSet or DaemonSet replace its Pods one after the other, as `kubectl rollout
        restart` does: by an annotation of its Pod template."""
        self._only("restart", _RESTARTABLE)
        now = format_time(self.client.clock.now())
        return self._patched(name, {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}},
                             field_manager, dry_run, timeout)

    def cordon(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
               timeout: Duration | None = None) -> K:
        """Have no new Pod scheduled on a Node. `kubectl.drain` also empties it."""
        self._only("cordon", _NODE)
        return self._patched(name, {"spec": {"unschedulable": True}}, field_manager, dry_run, timeout)

    def uncordon(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
                 timeout: Duration | None = None) -> K:
        """Let Pods be scheduled on a Node again, after `cordon`."""
        self._only("uncordon", _NODE)
        return self._patched(name, {"spec": {"unschedulable": None}}, field_manager, dry_run, timeout)

    def create_token(self, name: Named, *, audiences: Sequence[str] = (), expiration: Duration | None = None,
                     bound_object: ObjectRef | None = None, bound_uid: str = "",
                     timeout: Duration | None = None) -> ServiceAccountToken:
        """Ask for a token of a ServiceAccount (a TokenRequest).

        `audiences`: whom it is for, by default the API server. `expiration`: seconds, at least 600, by default the
        server's choice. `bound_object`: a Pod, Secret or Node with which it ends, `bound_uid` that object's.
        """
        self._only("create_token", _ACCOUNT)
        operation = self.place.words("create", name, "token")
        if isinstance(audiences, str):
            raise RequestError(f"{operation}: audiences={audiences!r}: a list is expected")
        spec: dict[str, Any] = {"audiences": list(audiences)}
        if expiration is not None:
            if seconds(expiration) < _SHORTEST:
                raise RequestError(f"{operation}: expiration={expiration}: tokens last {_SHORTEST} s at least")
            spec["expirationSeconds"] = int(seconds(expiration))
        if bound_object is not None:
            spec["boundObjectRef"] = {"apiVersion": bound_object.resource.api_version, "kind": bound_object.kind,
                                      "name": bound_object.name, **({"uid": bound_uid} if bound_uid else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status = self.create_subresource(name, "token", body, timeout=timeout).get("status") or {}
        try:
            return ServiceAccountToken(status["token"], parse_time(status["expirationTimestamp"]))
        except (KeyError, ValueError, TypeError):
            raise DecodeError(None, "$.status", f"{operation}: the answer holds no token") from None

    def get_approval(self, name: Named, *, timeout: Duration | None = None) -> K:
        """A CertificateSigningRequest, read through its approval subresource."""
        return self._ask(build.get(self.place, name, subresource="approval"), timeout)

    def replace_approval(self, body: Any, params: PostParams | None = None, *, field_manager: str | None = None,
                         field_validation: FieldValidation | None = None, dry_run: bool = False,
                         timeout: Duration | None = None) -> K:
        """Replace the conditions of a CertificateSigningRequest that approve or deny it."""
        params = chosen(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                        dry_run=dry_run)
        request = build.replace(self.place, body, params, subresource="approval")
        return self._ask(request, timeout)

    def patch_approval(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                       field_manager: str | None = None, field_validation: FieldValidation | None = None,
                       dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> K:
        """Patch the conditions of a CertificateSigningRequest."""
        params = chosen(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                        dry_run=dry_run, force=force)
        request = build.patch(self.place, name, patch, params, subresource="approval")
        return self._ask(request, timeout)

    def approve(self, name: Named, reason: str, message: str = "", *, field_manager: str | None = None,
                dry_run: bool = False, timeout: Duration | None = None) -> K:
        """Approve a CertificateSigningRequest, so that its signer signs it. `reason` is one word, `message` for people.

        Two calls; `timeout` is for each. Raises ApiError when it is denied already (`is_invalid`), and when somebody
        else changed it in between (`is_conflict`).
        """
        return self._judged(name, "Approved", reason, message, PostParams(field_manager=field_manager, dry_run=dry_run),
                            timeout)

    def deny(self, name: Named, reason: str, message: str = "", *, field_manager: str | None = None,
             dry_run: bool = False, timeout: Duration | None = None) -> K:
        """Deny a CertificateSigningRequest, so that it is never signed. Arguments and errors as for `approve`."""
        return self._judged(name, "Denied", reason, message, PostParams(field_manager=field_manager, dry_run=dry_run),
                            timeout)

    def _judged(self, name: Named, verdict: str, reason: str, message: str, params: PostParams,
                timeout: Duration | None) -> K:
        self._only("approve" if verdict == "Approved" else "deny", _SIGNING)
        found: Any = self.get_approval(name, timeout=timeout)
        body = found.to_dict()
        status = body.setdefault("status", {})
        conditions = [entry for entry in status.get("conditions") or () if entry.get("type") != verdict]
        status["conditions"] = [*conditions, {
            "type": verdict, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": format_time(self.client.clock.now())}]
        return self.replace_approval(body, params, timeout=timeout)

    def _patched(self, name: Named, change: dict[str, Any], field_manager: str | None, dry_run: bool,
                 timeout: Duration | None) -> K:
        params = PatchParams(field_manager=field_manager, dry_run=dry_run)
        return self._ask(build.patch(self.place, name, Patch.merge(change), params), timeout)

    def _only(self, verb: str, kinds: frozenset[tuple[str, str]]) -> None:
        if (self.resource.group, self.resource.kind) not in kinds:
            known = ", ".join(sorted(kind for _, kind in kinds))
            raise RequestError(f"{verb} is a verb of {known}, not of {self.resource.full_name}")
