"""The options of a request, checked as by the real server: those of the query, DeleteOptions, continue tokens.

DeleteOptions come from the body of a deletion if it has one, else from the query; with a body, the query is ignored.
Continue tokens are opaque to clients: JSON in URL-safe base64, as the real server's, so that errors come out alike. A
token holds the resourceVersion of the first page and the first key of the next. A resourceVersion below 0 continues
with the present: it is in the token that comes with a 410.
"""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding import body
from kubectl_runtime.apiserver.encoding.gojson import syntax_error
from kubectl_runtime.apiserver.errors import Cause, StatusError, bad_request, expired
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.objectmeta.metadata import MAX_MANAGER, manager_causes
from kubectl_runtime.apiserver.query.selectors import parse_int
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.apiserver.wire import HttpRequest, is_true

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


_VERSION = "meta.k8s.io/v1"
_FIELDS: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
_GO_TYPES = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}

TOO_OLD = ("The provided continue parameter is too old to display a consistent list result. You can start a new list "
           "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
           "the results. Continuing with the provided token results in an inconsistent list - objects that were "
           "created, modified, or deleted between the time the first chunk was returned and now may "
           "show up in the list.")


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page starts, and which past it shows."""

    rv: int
    start: str  # the lowest key of the next page, within the namespace if the list is that of one

    def encode(self) -> str:
        """The token as text."""
        body = json.dumps({"v": _VERSION, "rv": self.rv, "start": self.start}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def after(rv: int, version: Version, namespace: str) -> ContinueToken:
    """The token of a page that ends with an object, in a list of one namespace or (``""``) of all."""
    key = version.name if namespace else version.key
    return ContinueToken(rv, key + "\0")


def _malformed(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def decode(text: str) -> ContinueToken:
    """Read a token; 400 if it is none."""
    data = _json(text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise _malformed(f"json: cannot unmarshal {_GO_TYPES[type(data)]} into Go value of type storage.continueToken")
    values = {key: data.get(key) or empty for key, empty in _FIELDS.items()}
    for key, value in values.items():
        if type(value) is not type(_FIELDS[key]):
            raise _malformed(f"json: cannot unmarshal {_shown(value)} into Go struct field continueToken.{key} of type "
                             f"{'int64' if key == 'rv' else 'string'}")
    if values["v"] != _VERSION:
        raise _malformed(f"server does not recognize this encoded version {values['v']}")
    if not values["rv"]:
        raise _malformed(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not values["start"]:
        raise _malformed(f"encoded start key empty (version {_VERSION})")
    key = "/" + values["start"].removeprefix("/")
    if posixpath.normpath(key) != key:
        raise _malformed(values["start"])  # it must not lead out of the collection
    return ContinueToken(values["rv"], key[1:])


def _json(text: str) -> Any:
    """What the token says, of any type; 400 if it is no JSON in base64."""
    for position, character in enumerate(text):
        if not (character.isascii() and (character.isalnum() or character in "-_")):
            raise _malformed(f"illegal base64 data at input byte {position}")
    if len(text) % 4 == 1:
        raise _malformed(f"illegal base64 data at input byte {len(text) - 1}")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(syntax_error(data) or str(error)) from None


def _shown(value: Any) -> str:
    """A value of the wrong type as the real decoder names it."""
    return f"number {value}" if isinstance(value, float) else _GO_TYPES[type(value)]


def too_old(token: ContinueToken) -> StatusError:
    """410 of a token whose past is forgotten; the new token goes on with the present."""
    return expired(TOO_OLD, ContinueToken(-1, token.start).encode())
