"""The AdmissionReview that a webhook is sent, and what of its answer counts; `v1` and `v1beta1`.

`verified` raises `InvalidAnswer` with the text that follows ``received invalid webhook response: ``; of a v1beta1
answer neither version nor uid are looked at, as the real server does.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.errors import go_quoted
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.webhooks.admission_attributes import Attributes, Kind
from kubectl_runtime.core.objects import admission

Object = dict[str, Any]

JSON_PATCH = "JSONPatch"
_API_VERSION = admission.API_VERSION


class InvalidAnswer(Exception):
    """An answer that no webhook may give."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a webhook answered. (Its audit annotations are dropped: there is no audit log.)"""

    allowed: bool
    status: Object | None
    patch: bytes
    patch_type: str
    warnings: tuple[str, ...]


def request_of(ctx: RequestContext, kind: Kind, resource: ServedResource, asked: Attributes) -> Object:
    """The request without uid and objects, in the order of the real one; as conditions see it too."""
    user, own = ctx.user_info, asked.resource
    request: Object = {
        "kind": kind._asdict(), "resource": _resource(resource), "subResource": asked.subresource,
        "requestKind": asked.kind._asdict(), "requestResource": _resource(own), "requestSubResource": asked.subresource,
        "name": asked.name, "namespace": asked.namespace, "operation": asked.operation,
        "userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups),
                     "extra": {key: list(values) for key, values in user.extra}}}
    request["userInfo"] = {key: value for key, value in request["userInfo"].items() if value}
    request = {key: value for key, value in request.items() if value != ""}
    return {**request, "dryRun": asked.dry_run, "options": asked.options}


def _resource(resource: ServedResource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def review_of(uid: str, request: Object, shown: Object | None, old: Object | None, version: str) -> Object:
    """The review that asks."""
    before = {key: value for key, value in request.items() if key not in ("dryRun", "options")}
    return {"kind": admission.KIND, "apiVersion": f"{admission.GROUP}/{version}",
            "request": {"uid": uid, **before, "object": shown, "oldObject": old, "dryRun": request["dryRun"],
                        "options": request["options"]}}


def verified(uid: str, content: Object, version: str, *, mutating: bool) -> Verdict:
    """What the answer to a review says. Raises InvalidAnswer."""
    response = content.get("response")
    if response is None:
        raise InvalidAnswer("webhook response was absent")
    patch, patch_type = base64.b64decode(response.get("patch") or ""), response.get("patchType")
    if version == "v1":
        if response.get("uid") != uid:
            raise InvalidAnswer(f"expected response.uid={go_quoted(uid)}, got {go_quoted(response.get('uid') or '')}")
        if (content["apiVersion"], content["kind"]) != (_API_VERSION, admission.KIND):
            group, _, found = content["apiVersion"].rpartition("/")
            raise InvalidAnswer(f"expected webhook response of {_API_VERSION}, Kind={admission.KIND}, got "
                                f"{group}/{found}, Kind={content['kind']}")
        _check_patch(patch, patch_type, mutating=mutating)
    elif patch:
        patch_type = JSON_PATCH
    return Verdict(bool(response.get("allowed")), response.get("status"), patch if mutating else b"", patch_type or "",
                   tuple(response.get("warnings") or ()))


def _check_patch(patch: bytes, patch_type: str | None, *, mutating: bool) -> None:
    if not mutating and patch:
        raise InvalidAnswer("validating webhook may not return response.patch")
    if not mutating and patch_type is not None:
        raise InvalidAnswer("validating webhook may not return response.patchType")
    if patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidAnswer('webhook returned invalid response.patchType of ""')
