"""The `coordination.k8s.io` group: `coordination.k8s.io/v1`."""
from __future__ import annotations

from kubectl_runtime.core.meta.metav1 import Part
from kubectl_runtime.core.objects.resource import Resource


class LeaseSpec(Part):
    """The times are MicroTime, always with six digits of fraction: text, made by `core.metav1.format_micro_time`."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Resource, group="coordination.k8s.io", version="v1", kind="Lease"):
    spec: LeaseSpec
