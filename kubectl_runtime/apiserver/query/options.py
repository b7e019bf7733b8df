"""The options in a request's query, checked as the real server does; those of deletions are in delete_options.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.objectmeta.metadata import MAX_MANAGER, manager_causes
from kubectl_runtime.apiserver.query.gonumbers import parse_int
from kubectl_runtime.apiserver.route import is_true
from kubectl_runtime.apiserver.wire import HttpRequest

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


@dataclass(slots=True)
class WriteOptions:
    """Options of a create, update or patch."""

    dry_run: bool
    manager: str
    field_validation: str  # Ignore, Strict or Warn
    force: bool


def refused(kind: str, causes: Sequence[Cause]) -> errors.StatusError:
    """The 422 of options of a kind."""
    return errors.invalid("meta.k8s.io", kind, "", causes)


def dry_run_causes(values: list[str]) -> list[Cause]:
    """What is wrong with the values of dryRun."""
    return [errors.not_supported("dryRun", values, ["All"])] if set(values) - {"All"} else []


def write_options(request: HttpRequest, kind: str, *, apply: bool = False) -> WriteOptions:
    """Read CreateOptions, UpdateOptions or PatchOptions (`kind` names them in errors)."""
    dry_run, manager = request.params("dryRun"), request.param("fieldManager")
    validation = request.param("fieldValidation")
    causes = []
    if kind == "PatchOptions":
        if apply and not manager:
            causes.append(errors.required("fieldManager", "is required for apply patch"))
        if not apply and request.has_param("force"):
            causes.append(errors.forbidden_field("force", "may not be specified for non-apply patch"))
    causes += manager_causes(manager, "fieldManager")
    causes += dry_run_causes(dry_run)
    if validation not in _VALIDATIONS:
        causes.append(errors.not_supported("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise refused(kind, causes)
    return WriteOptions(bool(dry_run), manager or default_manager(request), validation or "Warn",
                        is_true(request, "force"))


def default_manager(request: HttpRequest) -> str:
    """The manager of a request without fieldManager: its User-Agent up to the first slash."""
    agent = request.header("user-agent").partition("/")[0][:MAX_MANAGER]
    return "".join(character for character in agent if character.isprintable()) or "unknown"


def integer_param(request: HttpRequest, name: str) -> int | None:
    """An integer in the query, None if it is not there; 400 if it is none, be it empty, or has more than 64 bits."""
    if not request.has_param(name):
        return None
    try:
        return parse_int(request.param(name))
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
