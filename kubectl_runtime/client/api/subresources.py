"""The verbs of subresources, which every `Api` has: status, scale, and any other by its name.

These verbs block and raise like the other verbs of `Api`. A status verb returns the object; a scale verb returns a
`Scale`; the verbs for any other subresource return plain JSON.
"""
from __future__ import annotations

from typing import Any, TypeVar

from kubectl_runtime.client.api.api_base import ApiBase
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import Duration
from kubectl_runtime.core.base.wire import Sent
from kubectl_runtime.core.codec.views import plain_object
from kubectl_runtime.core.meta.metav1 import Part
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import Body, FieldValidation, Patch, PatchParams, PostParams
from kubectl_runtime.core.requests.request import Named, Request

K = TypeVar("K")


class ScaleSpec(Part, kw_only=True):
    """The spec of a Scale: the desired number of replicas."""

    replicas: Sent[int] = 0


class ScaleStatus(Part, kw_only=True):
    """The status of a Scale: the current number of replicas, and the label selector of their Pods as a query."""

    replicas: Sent[int] = 0
    selector: str | None = None


class Scale(Resource, group="autoscaling", version="v1", kind="Scale", plural="scales"):
    """The subresource `scale` of a kind that has one.

    >>> scale = Api.namespaced(client, Deployment, "default").scale("web", 3)
    >>> scale.spec.replicas
    3
    """

    spec: ScaleSpec
    status: ScaleStatus


class Subresources(ApiBase[K]):
    """The verbs of `Api` for subresources: status, scale, and any other by its name."""

    __slots__ = ()

    def get_status(self, name: Named, *, timeout: Duration | None = None) -> K:
        """The object, read through its status subresource."""
        return self._ask(build.get(self.place, name, subresource="status"), timeout)

    def replace_status(self, body: Body[K], params: PostParams | None = None, *, field_manager: str | None = None,
                       field_validation: FieldValidation | None = None, dry_run: bool = False,
                       timeout: Duration | None = None) -> K:
        """Replace the status; the server ignores everything else in `body`."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        request = build.replace(self.place, body, params, subresource="status")
        return self._ask(request, timeout)

    def patch_status(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                     field_manager: str | None = None, field_validation: FieldValidation | None = None,
                     dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> K:
        """Patch the status."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        request = build.patch(self.place, name, patch, params, subresource="status")
        return self._ask(request, timeout)

    def apply_status(self, body: Body[K], *, field_manager: str | None = None, force: bool = False,
                     field_validation: FieldValidation | None = None, dry_run: bool = False, defaults: bool = False,
                     timeout: Duration | None = None) -> K:
        """Server-side apply of the status in `body`. `defaults` has the same meaning as in `apply`."""
        params = self._write_params(PatchParams(field_manager=field_manager, force=force, dry_run=dry_run,
                                                field_validation=field_validation), PatchParams)
        request = build.apply(self.place, body, params, subresource="status", defaults=defaults)
        return self._ask(request, timeout)

    def scale(self, name: Named, replicas: int, *, field_manager: str | None = None, dry_run: bool = False,
              timeout: Duration | None = None) -> Scale:
        """Set the number of replicas, as `kubectl scale` does; returns the `Scale` from the answer.

        The method does not wait for the Pods: to wait, use `await_condition` with `conditions.is_ready`. Raises
        RequestError for an invalid number of replicas.
        """
        if type(replicas) is not int or replicas < 0:
            raise RequestError(f"{self.place.words('scale', name)}: replicas must be a whole number of at least "
                               f"0, not {replicas!r}")
        return self.patch_scale(name, Patch.merge({"spec": {"replicas": replicas}}), field_manager=field_manager,
                                dry_run=dry_run, timeout=timeout)

    def get_scale(self, name: Named, *, timeout: Duration | None = None) -> Scale:
        """Read the `Scale` of an object: `.spec.replicas` is the desired number."""
        return self._scale(build.get(self.place, name, subresource="scale"), timeout)

    def replace_scale(self, name: Named, body: Any, params: PostParams | None = None, *,
                      field_manager: str | None = None, field_validation: FieldValidation | None = None,
                      dry_run: bool = False, timeout: Duration | None = None) -> Scale:
        """Replace the `Scale` of an object."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        request = build.replace(self.place, body, params, subresource="scale", name=name)
        return self._scale(request, timeout)

    def patch_scale(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                    field_manager: str | None = None, field_validation: FieldValidation | None = None,
                    dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> Scale:
        """Patch the `Scale` of an object: `Patch.merge({"spec": {"replicas": 3}})`."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        request = build.patch(self.place, name, patch, params, subresource="scale")
        return self._scale(request, timeout)

    def apply_scale(self, body: Any, *, field_manager: str | None = None, force: bool = False,
                    field_validation: FieldValidation | None = None, dry_run: bool = False, defaults: bool = False,
                    timeout: Duration | None = None) -> Scale:
        """Server-side apply of a `Scale`, which has the same name as the scaled object: `{"metadata": {"name":
        "web"}, "spec": {"replicas": 3}}`. `defaults` has the same meaning as in `apply`."""
        params = self._write_params(PatchParams(field_manager=field_manager, force=force, dry_run=dry_run,
                                                field_validation=field_validation), PatchParams)
        request = build.apply(self.place, body, params, subresource="scale", defaults=defaults, kind=Scale.api_resource)
        return self._scale(request, timeout)

    def create_subresource(self, name: Named, subresource: str, body: Any, params: PostParams | None = None, *,
                           field_manager: str | None = None, field_validation: FieldValidation | None = None,
                           dry_run: bool = False, timeout: Duration | None = None) -> dict[str, Any]:
        """POST to a subresource (`eviction`, `token`, `binding`); returns the answer as plain JSON values.

        Raises DecodeError when the answer is not a JSON object.
        """
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        request = build.create(self.place, body, params, name=name, subresource=subresource)
        return self._plain(request, timeout)

    def get_subresource(self, name: Named, subresource: str, *, timeout: Duration | None = None) -> dict[str, Any]:
        """Read any subresource as plain JSON values. Raises DecodeError when the answer is not a JSON object."""
        return self._plain(build.get(self.place, name, subresource=subresource), timeout)

    def replace_subresource(self, name: Named, subresource: str, body: Any, params: PostParams | None = None, *,
                            field_manager: str | None = None, field_validation: FieldValidation | None = None,
                            dry_run: bool = False, timeout: Duration | None = None) -> dict[str, Any]:
        """PUT to any subresource; returns the answer as plain JSON values."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        request = build.replace(self.place, body, params, subresource=subresource, name=name)
        return self._plain(request, timeout)

    def patch_subresource(self, name: Named, subresource: str, patch: Patch, params: PatchParams | None = None, *,
                          field_manager: str | None = None, field_validation: FieldValidation | None = None,
                          dry_run: bool = False, force: bool = False,
                          timeout: Duration | None = None) -> dict[str, Any]:
        """PATCH any subresource; returns the answer as plain JSON values."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        request = build.patch(self.place, name, patch, params, subresource=subresource)
        return self._plain(request, timeout)

    def _plain(self, request: Request, timeout: Duration | None) -> dict[str, Any]:
        ref = self._ref(request.name or "")
        return self._answered(request, lambda raw: plain_object(raw, False, ref) if raw else {}, timeout)

    def _scale(self, request: Request, timeout: Duration | None) -> Scale:
        return self._answered(request, Scale.from_bytes, timeout)
