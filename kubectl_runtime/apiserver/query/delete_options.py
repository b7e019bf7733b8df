"""DeleteOptions: from the body of a deletion if it has one, else from the query, checked as the real server does.

The body stands alone: with one, the query is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding import body
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.query.options import dry_run_causes, integer_param, refused
from kubectl_runtime.apiserver.route import is_true
from kubectl_runtime.apiserver.wire import HttpRequest

Object = dict[str, Any]

_POLICIES = ("Foreground", "Background", "Orphan")
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


@dataclass(slots=True)
class DeleteOptions:
    """Options of a delete; None where the client did not say."""

    dry_run: bool = False
    grace: int | None = None
    propagation: str = ""
    uid: str | None = None
    resource_version: str | None = None
    cascades: bool = False  # the old option orphanDependents is false: its answer to a deletion that goes on is 202


def delete_options(request: HttpRequest, *, custom: bool = False) -> DeleteOptions:
    """Read DeleteOptions for a built-in or a custom kind; raises the 400 and 422 of wrong ones."""
    return checked(raw_delete_options(request, custom=custom))


def raw_delete_options(request: HttpRequest, *, custom: bool = False) -> Object:
    """The same by their fields, unchecked; a fresh copy."""
    default_version = "meta.k8s.io/v1" if custom else "v1"
    return _from_body(request, default_version) if request.body else _from_query(request)


def checked(raw: Object) -> DeleteOptions:
    """DeleteOptions from their fields, of the right types; raises the 422 of what does not go together."""
    causes = []
    policy, orphan, dry_run = raw.get("propagationPolicy"), raw.get("orphanDependents"), raw.get("dryRun") or []
    if policy is not None and orphan is not None:
        causes.append(errors.invalid_value("propagationPolicy", policy,
                                           "orphanDependents and deletionPropagation cannot be both set"))
    if policy is not None and policy not in _POLICIES:
        causes.append(errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    causes += dry_run_causes(dry_run)
    if causes:
        raise refused("DeleteOptions", causes)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    grace, preconditions = raw.get("gracePeriodSeconds"), raw.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(dry_run), grace=1 if grace is not None and grace < 0 else grace, propagation=policy or "",
        uid=preconditions.get("uid"), resource_version=preconditions.get("resourceVersion"), cascades=orphan is False)


def _from_query(request: HttpRequest) -> Object:
    def text(name: str) -> str | None:
        return request.param(name) if request.has_param(name) else None

    return {"gracePeriodSeconds": integer_param(request, "gracePeriodSeconds"),
            "propagationPolicy": text("propagationPolicy"),
            "orphanDependents": is_true(request, "orphanDependents") if request.has_param("orphanDependents") else None,
            "preconditions": {"uid": text("uid"), "resourceVersion": text("resourceVersion")},
            "dryRun": request.params("dryRun")}


def _from_body(request: HttpRequest, default_version: str) -> Object:
    try:
        value, _ = body.parse(request)
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
    value = {} if value is None else value  # null is an empty object to the real decoder
    if problem := body.type_meta_problem(value):
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {problem}")
    kind, api_version = value.get("kind") or "DeleteOptions", value.get("apiVersion") or default_version
    if api_version.count("/") > 1:
        raise errors.bad_request(f"unexpected GroupVersion string: {api_version}")
    if kind != "DeleteOptions":
        raise errors.bad_request(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
    try:
        typed.decode("meta.v1.DeleteOptions", value)
    except errors.BodyDecodeError as error:
        raise errors.bad_request(str(error)) from None
    options: Object = value
    return options
