"""The verbs of subresources, which every `Api` has: status, scale, and those that only take a POST.

All of them block and raise as the verbs of `Api` do. A status belongs to the object and comes back as one; a scale is
an object of its own; what another subresource answers is plain JSON.
"""
from __future__ import annotations

from typing import Any, TypeVar

from kubectl_runtime.client.api.api_base import ApiBase, dry
from kubectl_runtime.client.api.writes import Write
from kubectl_runtime.core.codec.views import plain_object
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.dynamic import DynamicObject, dynamic
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import PatchParams, PostParams
from kubectl_runtime.core.requests.patch import Patch
from kubectl_runtime.core.requests.request import Request

K = TypeVar("K")

_SCALE = ApiResource("autoscaling", "v1", "Scale", "scales")


class Subresources(ApiBase[K]):
    """The part of `Api` that reads and writes subresources."""

    __slots__ = ()

    def get_status(self, name: str) -> K:
        """The object, read through its status subresource."""
        return self._object(self._read(build.get(self.place, name, subresource="status")))

    def replace_status(self, body: Any, params: PostParams | None = None) -> K:
        """Replace the status; everything else in `body` is ignored by the server."""
        request = build.replace(self.place, body, params, subresource="status")
        return self._written("replace", request, dry(params), "status")

    def patch_status(self, name: str, patch: Patch, params: PatchParams | None = None) -> K:
        """Patch the status."""
        request = build.patch(self.place, name, patch, params, subresource="status")
        return self._written("patch", request, dry(params), "status")

    def apply_status(self, body: Any, *, field_manager: str, force: bool = False, dry_run: bool = False) -> K:
        """Server-side apply of the status in `body`."""
        request, params = self._apply(body, field_manager, force, dry_run, "status")
        return self._written("apply", request, dry(params), "status")

    def get_scale(self, name: str) -> DynamicObject:
        """The `Scale` of an object: `.spec["replicas"]`."""
        return self._scale(build.get(self.place, name, subresource="scale"), None, dry_run=True)

    def replace_scale(self, name: str, body: Any, params: PostParams | None = None) -> DynamicObject:
        """Replace the `Scale` of an object."""
        request = build.replace(self.place, body, params, subresource="scale", name=name)
        return self._scale(request, "replace", dry_run=dry(params))

    def patch_scale(self, name: str, patch: Patch, params: PatchParams | None = None) -> DynamicObject:
        """Patch the `Scale` of an object: `Patch.merge({"spec": {"replicas": 3}})`."""
        request = build.patch(self.place, name, patch, params, subresource="scale")
        return self._scale(request, "patch", dry_run=dry(params))

    def create_subresource(self, name: str, subresource: str, body: Any,
                           params: PostParams | None = None) -> dict[str, Any]:
        """POST to a subresource (`eviction`, `token`, `binding`); the answer as plain JSON values.

        Raises DecodeError when it is no JSON object.
        """
        request = build.create(self.place, body, params, name=name, subresource=subresource)
        answer = self.client.request(request)
        if not dry(params):
            self._tell("create", name, None, "", subresource)
        return plain_object(answer, False, ObjectRef(self.resource, name, self.namespace)) if answer else {}

    def _scale(self, request: Request, verb: str | None, *, dry_run: bool) -> DynamicObject:
        scale = dynamic(_SCALE).from_bytes(self.client.request(request))
        if verb is not None and not dry_run:
            ref = ObjectRef(self.resource, scale.name, self.namespace)
            self.client.writes.tell(Write(ref, verb, scale.resource_version, scale.uid, None, "scale"))
        return scale
