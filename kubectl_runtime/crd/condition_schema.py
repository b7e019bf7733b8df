"""The schema of one entry of `status.conditions`: metav1.Condition's limits, as Kubernetes' API conventions give them.

Only `type` and `status` are required, since an apply leaves out what is empty; Go's own classes send empty texts.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.meta.metav1 import STATUSES

_NAME = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"

CONDITION: dict[str, Any] = {
    "type": "object",
    "description": "What a controller found out about the object.",
    "properties": {
        "type": {"type": "string", "maxLength": 316, "pattern": f"^{_NAME}$",
                 "description": "What it is about, such as Ready, or example.com/Synced."},
        "status": {"type": "string", "enum": [*STATUSES]},
        "reason": {"type": "string", "maxLength": 1024, "pattern": "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$",
                   "description": "Why, in one word, for programs."},
        "message": {"type": "string", "maxLength": 32768, "description": "Why, for people."},
        "lastTransitionTime": {"type": "string", "format": "date-time", "nullable": True,
                               "description": "When status changed last."},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0, "nullable": True,
                               "description": "The metadata.generation that it is about."},
    },
    "required": ["type", "status"],
}
