"""The options in a request's query (and, for deletions, in its body), checked as the real server does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.testing.apiserver import body, errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.route import is_true
from kubectl_runtime.testing.apiserver.wire import HttpRequest

Object = dict[str, Any]
MAX_MANAGER = 128
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_POLICIES = ("Background", "Foreground", "Orphan")
_DELETE_OPTIONS_VERSIONS = ("v1", "meta.k8s.io/v1")
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


@dataclass(slots=True)
class WriteOptions:
    """Options of a create, update or patch."""

    dry_run: bool
    manager: str
    field_validation: str  # Ignore, Strict or Warn
    force: bool


def _invalid(kind: str, causes: Sequence[Cause]) -> errors.StatusError:
    return errors.invalid("meta.k8s.io", kind, "", causes)


def dry_run_causes(values: list[str]) -> list[Cause]:
    """What is wrong with the values of dryRun."""
    bad = [value for value in values if value != "All"]
    return [errors.not_supported("dryRun", bad, ["All"])] if bad else []


def manager_causes(manager: str) -> list[Cause]:
    """What is wrong with a fieldManager."""
    causes = []
    if len(manager.encode()) > MAX_MANAGER:
        causes.append(errors.too_long("fieldManager", MAX_MANAGER))
    for index, character in enumerate(manager):
        if not character.isprintable():
            causes.append(errors.invalid_value("fieldManager", manager,
                                               f"invalid character U+{ord(character):04X} (at position {index})"))
    return causes


def write_options(request: HttpRequest, kind: str, *, apply: bool = False) -> WriteOptions:
    """Read CreateOptions, UpdateOptions or PatchOptions (`kind` names them in errors)."""
    dry_run, manager = [value for value in request.params("dryRun") if value], request.param("fieldManager")
    validation = request.param("fieldValidation")
    causes = []
    if kind == "PatchOptions":
        if apply and not manager:
            causes.append(errors.required("fieldManager", "is required for apply patch"))
        if not apply and request.has_param("force"):
            causes.append(errors.forbidden_field("force", "may not be specified for non-apply patch"))
    causes += manager_causes(manager)
    causes += dry_run_causes(dry_run)
    if validation not in _VALIDATIONS:
        causes.append(errors.not_supported("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise _invalid(kind, causes)
    return WriteOptions(bool(dry_run), manager or default_manager(request), validation or "Warn",
                        is_true(request, "force"))


def default_manager(request: HttpRequest) -> str:
    """The manager of a request without fieldManager: its User-Agent up to the first slash."""
    agent = request.header("user-agent").partition("/")[0][:MAX_MANAGER]
    return "".join(character for character in agent if character.isprintable()) or "unknown"


@dataclass(slots=True)
class DeleteOptions:
    """Options of a delete; None where the client did not say."""

    dry_run: bool = False
    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def integer_param(request: HttpRequest, name: str) -> int | None:
    """An integer in the query; 400 if it is none."""
    text = request.param(name)
    return _integer(text) if text else None


def delete_options(request: HttpRequest) -> DeleteOptions:
    """Read DeleteOptions from the body if there is one, else from the query."""
    raw = _delete_body(request) if request.body else None
    if raw is None:
        raw = {"gracePeriodSeconds": integer_param(request, "gracePeriodSeconds"),
               "propagationPolicy": request.param("propagationPolicy") or None,
               "orphanDependents": (is_true(request, "orphanDependents")
                                    if request.has_param("orphanDependents") else None),
               "dryRun": [value for value in request.params("dryRun") if value]}
    else:
        raw.setdefault("dryRun", [value for value in request.params("dryRun") if value])
    return checked(raw)


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
        raise _invalid("DeleteOptions", causes)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = raw.get("preconditions") or {}
    return DeleteOptions(bool(dry_run), raw.get("gracePeriodSeconds"), policy or "", preconditions.get("uid") or "",
                         preconditions.get("resourceVersion") or "")


def _delete_body(request: HttpRequest) -> Object | None:
    try:
        value, _ = body.parse(request)
    except ValueError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if value is None:
        return None
    options = body.shape(value, "meta.v1.DeleteOptions")
    kind, api_version = options.get("kind") or "DeleteOptions", options.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise errors.bad_request(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
    return options
