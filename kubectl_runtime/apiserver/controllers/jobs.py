"""Jobs make Pods, count those that end, and are Complete or Failed; ``ttl-after-finished`` deletes them then.

A Pod is counted once: it carries the finalizer ``batch.kubernetes.io/job-tracking`` until its end is in the Job's
status. What the real controller does and this one does not: podFailurePolicy, successPolicy and backoffLimitPerIndex
are passed over, a Job that names another controller (managedBy) is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kubectl_runtime.apiserver.controllers.claims import AGENT, claim, owner_reference
from kubectl_runtime.apiserver.controllers.event_recorder import tell
from kubectl_runtime.apiserver.controllers.job_arithmetic import (
    INDEX,
    TRACKING,
    Counted,
    finished,
    index_of,
    join_indexes,
    missing_indexes,
    retry_delay,
    split_indexes,
    wanted_pods,
)
from kubectl_runtime.apiserver.controllers.queue import PER_STEP, KeyQueue
from kubectl_runtime.apiserver.kinds.base import dig, true_conditions
from kubectl_runtime.apiserver.loopback import delete, patch, path_of, served_type, submit
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

JOBS, PODS = "batch/jobs", "/pods"
COMPONENT = "job-controller"
