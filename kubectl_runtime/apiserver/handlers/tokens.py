"""POST on serviceaccounts/token: a bearer token for a service account, as ``kubectl create token`` asks for it.

The token is an opaque text, not a JWT: nobody but this server can tell whose it is. It expires on the server's clock.
What it is bound to (a Pod, a Secret, a Node) must exist when it is issued, and may go then.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kubectl_runtime.apiserver import errors, managedfields
from kubectl_runtime.apiserver.access.reviews import AUDIENCE
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding import body
from kubectl_runtime.apiserver.handlers.answers import answer_object, stored
from kubectl_runtime.apiserver.query import options
from kubectl_runtime.apiserver.schemas import builtin
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

GROUP = "authentication.k8s.io"
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 3600, 600, 1 << 32

_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_UNRECOGNIZED = "the object provided is unrecognized (must be of type TokenRequest)"
_NO_NUMBER = ('TokenRequest in version "v1" cannot be handled as a TokenRequest: json: cannot unmarshal the value of '
              "spec into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64")


def create_token(ctx: RequestContext) -> HttpResponse:
    """Issue a token: 201 with it in status."""
    ctx.options = options.write_options(ctx.request, "CreateOptions")
    asked = admit_unstored(ctx, {"kind": "TokenRequest", "apiVersion": f"{GROUP}/v1", **_read(ctx)})
    spec = _spec(asked)
    with ctx.cluster.locked():
        account = stored(ctx)
        if account is None:
            raise errors.not_found("", "serviceaccounts", ctx.info.name)
        _check_metadata(ctx, asked.get("metadata") or {})
        _check_bound(ctx, spec.get("boundObjectRef"))
    lifetime = spec.setdefault("expirationSeconds", DEFAULT_SECONDS)
    owned = {"kind": "TokenRequest", "apiVersion": f"{GROUP}/v1", "metadata": {}, "spec": spec}
    metadata = managedfields.update(None, owned, manager=ctx.options.manager, api_version=f"{GROUP}/v1", now=ctx.now,
                                    schema=builtin(GROUP, "v1", "TokenRequest"), subresource="token",
                                    blank={"spec": {}})["metadata"]
    token = ctx.access.issue_account_token(account.namespace, account.name, account.uid, lifetime)
    return answer_object(ctx, {
        "kind": "TokenRequest", "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": account.name, "namespace": account.namespace, "uid": account.uid,
                     "creationTimestamp": format_time(ctx.now), **metadata},
        "spec": {"audiences": spec.get("audiences") or [AUDIENCE], "expirationSeconds": lifetime,
                 "boundObjectRef": spec.get("boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": format_time(ctx.now + timedelta(seconds=lifetime))}}, 201)


def _check_metadata(ctx: RequestContext, metadata: Object) -> None:
    """Name and namespace may be left out, but must be the path's."""
    for key, wanted, what in (("name", ctx.info.name, "name"), ("namespace", ctx.namespace, "namespace")):
        if metadata.get(key) not in (None, "", wanted):
            why = f"must match the service account {what} if specified"
            raise errors.invalid(GROUP, "TokenRequest", ctx.info.name, [
                errors.invalid_value(f"metadata.{key}", metadata[key], why)])


def _check_bound(ctx: RequestContext, reference: Object | None) -> None:
    """What a token is bound to must exist; the cluster's lock is held."""
    if not reference:
        return
    api_version, kind, name = (reference.get(key) or "" for key in ("apiVersion", "kind", "name"))
    group, _, version = api_version.rpartition("/")
    if group or kind not in _BINDABLE:
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    plural, namespace = _BINDABLE[kind], "" if kind == "Node" else ctx.namespace
    found = ctx.cluster.storage.get(f"/{plural}", namespace, name)
    if found is None:
        raise errors.not_found("", plural, name)
    if kind == "Pod" and found.fields.get("spec.serviceAccountName") != ctx.info.name:
        account = errors.go_value(ctx.info.name)
        raise errors.bad_request(f"cannot bind token for serviceaccount {account} to pod running with different "
                                 "serviceaccount name.")
    if reference.get("uid") not in (None, "", found.uid):
        raise errors.conflict("", kind, name, f"the UID in the bound object reference ({reference['uid']}) does not "
                              "match the UID in record. The object might have been deleted and then recreated")


def _read(ctx: RequestContext) -> Object:
    """The request's body."""
    try:
        value, _ = body.parse(ctx.request)
    except ValueError as error:
        raise errors.bad_request(f"{_UNRECOGNIZED}: {error} "
                                 f"({body.summary(ctx.request.body)})") from None
    if not isinstance(value, dict) or value.get("kind") not in (None, "", "TokenRequest"):
        raise errors.bad_request(_UNRECOGNIZED)
    return value


def _spec(asked: Object) -> Object:
    """The request's spec, checked."""
    spec = asked.get("spec") or {}
    lifetime = spec.get("expirationSeconds") if isinstance(spec, dict) else ""
    if lifetime is not None and (not isinstance(lifetime, int) or isinstance(lifetime, bool)):
        raise errors.bad_request(_NO_NUMBER)
    if lifetime is not None and not MIN_SECONDS <= lifetime <= MAX_SECONDS:
        wrong = "less than 10 minutes" if lifetime < MIN_SECONDS else "larger than 2^32 seconds"
        raise errors.invalid(GROUP, "TokenRequest", "", [errors.invalid_value(
            "spec.expirationSeconds", lifetime, f"may not specify a duration {wrong}")])
    return dict(spec)
