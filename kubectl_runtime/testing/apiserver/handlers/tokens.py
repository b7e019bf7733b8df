"""POST on serviceaccounts/token: a bearer token for a service account, as ``kubectl create token`` asks for it.

The token is an opaque text, not a JWT: nobody but this server can tell whose it is. It expires on the server's clock.
What it might be bound to (a Pod, a Secret) is not looked at.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kubectl_runtime.core.metav1 import format_time
from kubectl_runtime.testing.apiserver import body, errors, options
from kubectl_runtime.testing.apiserver.access.reviews import AUDIENCE
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.handlers.answers import answer_object, stored
from kubectl_runtime.testing.apiserver.wire import HttpResponse

Object = dict[str, Any]

GROUP = "authentication.k8s.io"
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 3600, 600, 1 << 32

_UNRECOGNIZED = "the object provided is unrecognized (must be of type TokenRequest)"
_NO_NUMBER = ('TokenRequest in version "v1" cannot be handled as a TokenRequest: json: cannot unmarshal the value of '
              "spec into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64")


def create_token(ctx: RequestContext) -> HttpResponse:
    """Issue a token: 201 with it in status."""
    ctx.options = options.write_options(ctx.request, "CreateOptions")
    spec = _spec(ctx)
    lifetime = spec.get("expirationSeconds") or DEFAULT_SECONDS
    with ctx.core.locked():
        account = stored(ctx)
    if account is None:
        raise errors.not_found("", "serviceaccounts", ctx.info.name)
    spec = {"audiences": spec.get("audiences") or [AUDIENCE], "expirationSeconds": lifetime,
            "boundObjectRef": spec.get("boundObjectRef")}
    token = ctx.core.access.issue_account_token(account.namespace, account.name, account.uid, lifetime)
    return answer_object(ctx, {
        "kind": "TokenRequest", "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": account.name, "namespace": account.namespace, "creationTimestamp": format_time(ctx.now)},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": format_time(ctx.now + timedelta(seconds=lifetime))}}, 201)


def _spec(ctx: RequestContext) -> Object:
    """The request's spec, checked."""
    try:
        value, _ = body.parse(ctx.request)
    except ValueError as error:
        raise errors.bad_request(f"{_UNRECOGNIZED}: {error} "
                                 f"({body.summary(ctx.request.body)})") from None
    if not isinstance(value, dict) or value.get("kind") not in (None, "", "TokenRequest"):
        raise errors.bad_request(_UNRECOGNIZED)
    spec = value.get("spec") or {}
    lifetime = spec.get("expirationSeconds") if isinstance(spec, dict) else ""
    if lifetime is not None and (not isinstance(lifetime, int) or isinstance(lifetime, bool)):
        raise errors.bad_request(_NO_NUMBER)
    if lifetime is not None and not MIN_SECONDS <= lifetime <= MAX_SECONDS:
        wrong = "less than 10 minutes" if lifetime < MIN_SECONDS else "larger than 2^32 seconds"
        raise errors.invalid(GROUP, "TokenRequest", "", [errors.invalid_value(
            "spec.expirationSeconds", lifetime, f"may not specify a duration {wrong}")])
    return dict(spec)
