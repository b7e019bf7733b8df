"""The PriorityClasses that are always there."""

from __future__ import annotations

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
