"""What a Lease says, and how it is written."""
from __future__ import annotations

import json
from datetime import timedelta

import pytest

from kubectl_runtime.manager.lease_machine import LeaseState, Rules, step
from kubectl_runtime.manager.leases import Create, LeaseRecord, Now, Read, Tick
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.testing.clock import EPOCH

ME = Rules("me", 15, 10, 2)


@pytest.mark.parametrize(("microseconds", "written"), [
    (0, "2026-01-01T00:00:00.000000Z"), (120_000, "2026-01-01T00:00:00.120000Z"),
    (999_999, "2026-01-01T00:00:00.999999Z")])
def test_times_always_have_six_digits_of_fraction(microseconds: int, written: str) -> None:
    """A server refuses any other number of them."""
    now = Now(0.0, EPOCH + timedelta(microseconds=microseconds), 0.0)
    state, _ = step(ME, LeaseState(), Tick(), now)
    _, action = step(ME, state, Read(None), now)
    assert isinstance(action, Create)
    lease = Lease(name="a", namespace="default")
    action.record.write_to(lease)
    assert (lease.spec.acquire_time, lease.spec.renew_time) == (written, written)


@pytest.mark.parametrize("time", [
    "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00+00:00",
    "no time at all", None])
def test_times_of_others_are_not_read_at_all(time: str | None) -> None:
    lease = Lease.from_bytes(json.dumps({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "other", "renewTime": time, "leaseDurationSeconds": 15}}).encode())
    assert LeaseRecord.of(lease) == LeaseRecord("other", 15, None, time, 0)
