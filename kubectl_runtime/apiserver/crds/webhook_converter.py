"""`WebhookConverter`: custom resources in another version of their kind, as a conversion webhook makes them.

All objects of a page go in one review. What comes back must be as many, in their order, of the version that was asked
for, and the same objects: kind, name, namespace and uid are compared, all other metadata but labels and annotations is
put back. Anything else is the 500 that the real server answers, ``conversion webhook for …``.

Blocks for at most `TIMEOUT`; the cluster's lock is free in that time. Nothing is cached: each read calls the webhook.
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.managedfields.typed_merge import go_type
from kubectl_runtime.apiserver.objectmeta.metadata import annotation_causes, label_causes
from kubectl_runtime.apiserver.storage.storage import Cluster
from kubectl_runtime.apiserver.webhooks.outgoing import REVIEW_VERSIONS, PostError, Target, WebhookCaller, send
from kubectl_runtime.core.codec.sameness import json_copy
from kubectl_runtime.core.objects import conversion

Object = dict[str, Any]

TIMEOUT = 30.0  # seconds


class _Wrong(Exception):
    """Why an object that came back is not the one that was sent; `what` is wrong (object, metadata), and whether the
    real server says where (`placed`) even if there is only one."""

    def __init__(self, why: str, *, what: str = "object", placed: bool = False) -> None:
        super().__init__(why)
        self.what, self.placed = what, placed

    def told(self, index: int, *, alone: bool) -> str:
        """With the place of the object in the review."""
        if alone:
            return f"returned invalid {self.what}{' at index 0' if self.placed else ''}: {self}"
        where = "metadata in object" if self.what == "metadata" else "converted object"
        return f"returned invalid {where} at index {index}: {self}"


class WebhookConverter:
    """See the module. Safe to use from any thread."""

    def __init__(self, group: str, kind: str, target: Target, review_versions: tuple[str, ...], caller: WebhookCaller,
                 cluster: Cluster) -> None:
        self._group, self._kind, self._target = group, kind, target
        self._review_version = next((version for version in review_versions if version in REVIEW_VERSIONS), "")
        self._caller, self._cluster = caller, cluster

    def convert(self, objects: list[tuple[Object, str]], version: str) -> list[Object]:
        """The objects, each given with its version, in another one. They have no kind and apiVersion, neither here nor
        in the answer, and are not changed. Raises StatusError."""
        sent = [(obj, before) for obj, before in objects if before != version]
        if not sent:
            return [obj for obj, _ in objects]
        converted = iter(self._ask(sent, version))
        return [obj if before == version else next(converted) for obj, before in objects]

    def _ask(self, sent: list[tuple[Object, str]], version: str) -> list[Object]:
        if not self._review_version:
            raise errors.bare_500("no supported conversion review versions")
        title = f"conversion webhook for {self._title(sent[0][1])}"
        with self._cluster.locked():
            uid = self._cluster.new_uid()
        review = self._review(uid, sent, version)
        try:
            with self._cluster.released():
                content = send(self._caller, self._target, review, "apiextensions.v1.ConversionReview",
                               timeout=TIMEOUT)
            received = self._received(uid, content)
        except (PostError, _Wrong) as error:
            raise failed(f"{title} failed: {error}") from None
        if len(received) != len(sent):
            raise failed(f"{title} returned {len(received)} objects, expected {len(sent)}")
        found = []
        for index, ((before, was), after) in enumerate(zip(sent, received, strict=True)):
            try:
                found.append(self._checked(before, after, version))
            except _Wrong as error:
                told = error.told(index, alone=len(sent) == 1)
                raise failed(f"conversion webhook for {self._title(was)} {told}") from None
        return found

    def _title(self, version: str) -> str:
        return f"{self._group}/{version}, Kind={self._kind}"

    def _review(self, uid: str, sent: list[tuple[Object, str]], version: str) -> Object:
        objects = []
        for obj, before in sent:
            meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
            objects.append({"apiVersion": f"{self._group}/{before}", "kind": self._kind, **obj, "metadata": meta})
        return {"kind": conversion.KIND, "apiVersion": f"{conversion.GROUP}/{self._review_version}",
                "request": {"uid": uid, "desiredAPIVersion": f"{self._group}/{version}", "objects": objects},
                "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}}

    def _received(self, uid: str, content: Object) -> list[Any]:
        response, is_v1 = content.get("response"), self._review_version == "v1"
        if is_v1 and (content["apiVersion"], content["kind"]) != (conversion.API_VERSION, conversion.KIND):
            group, _, found = content["apiVersion"].rpartition("/")
            raise _Wrong(f"expected webhook response of {conversion.API_VERSION}, Kind={conversion.KIND}, got "
                         f"{group}/{found}, Kind={content['kind']}")
        if response is None:
            raise _Wrong("no response provided")
        if is_v1 and response.get("uid") != uid:
            told = errors.go_quoted(response.get("uid") or "")
            raise _Wrong(f"expected response.uid={errors.go_quoted(uid)}, got {told}")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise _Wrong(result.get("message")
                         or f"response.result.status was '{result.get('status') or ''}', not 'Success'")
        return list(response.get("convertedObjects") or ())

    def _checked(self, before: Object, after: Any, version: str) -> Object:
        """What came back for an object, if it is the same one, with the object's own metadata."""
        if not isinstance(after, dict) or not isinstance(after.get("kind"), str) or not after["kind"]:
            raise _Wrong("Object 'Kind' is missing", placed=True)
        wanted, found = f"{self._group}/{version}", after.get("apiVersion")
        if found != wanted:
            raise _Wrong(f"invalid groupVersion (expected {wanted}, received {found or ''})", placed=True)
        if after["kind"] != self._kind:
            raise _Wrong(f"invalid kind (expected {self._kind}, received {after['kind']})", placed=True)
        meta, own = after.get("metadata"), before["metadata"]
        for key, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
            shown = (meta.get(key) or "") if isinstance(meta, dict) else ""
            if shown != (own.get(key) or ""):
                raise _Wrong(f"must have the same {name}: {own.get(key) or ''} != {shown}")
        assert isinstance(meta, dict)  # it has the object's name
        content = {key: value for key, value in after.items() if key not in ("kind", "apiVersion", "metadata")}
        return {"metadata": _restored(own, meta), **content}


def failed(message: str) -> errors.StatusError:
    """The 500 of a conversion that failed; another try may do better."""
    error = errors.bare_500(message)
    error.from_webhook = True
    return error


def _restored(own: Object, received: Object) -> Object:
    """The object's own metadata with the labels and annotations that were received."""
    restored: Object = json_copy(own)
    for key, causes in (("labels", label_causes), ("annotations", annotation_causes)):
        values = received.get(key)
        restored.pop(key, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise _Wrong(f"invalid metadata.{key} of type {go_type(values)} in converted object", what="metadata")
        for name, value in values.items():
            if not isinstance(value, str):
                told = "<nil>" if value is None else go_type(value)
                raise _Wrong(f"metadata.{key}[{name}] must be a string, but is {told} in converted object",
                             what="metadata")
        if values != own.get(key) and (found := [cause.text() for cause in causes(values)]):
            raise _Wrong(found[0] if len(found) == 1 else f"[{', '.join(found)}]", what="metadata")
        restored[key] = values
    return restored
