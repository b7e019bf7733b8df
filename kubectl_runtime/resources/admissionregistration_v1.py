"""The `admissionregistration.k8s.io` group: `admissionregistration.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.objects.resource import Resource


class MutatingWebhookConfiguration(Resource, group="admissionregistration.k8s.io", version="v1",
                                   kind="MutatingWebhookConfiguration", scope=Scope.CLUSTER):
    webhooks: list[dict[str, Any]]


class ValidatingWebhookConfiguration(Resource, group="admissionregistration.k8s.io", version="v1",
                                     kind="ValidatingWebhookConfiguration", scope=Scope.CLUSTER):
    webhooks: list[dict[str, Any]]
