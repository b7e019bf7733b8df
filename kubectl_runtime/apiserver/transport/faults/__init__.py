"""The fault script `Faults` (see script.py), its parts, and the recording of requests."""

from __future__ import annotations

from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.apiserver.transport.faults.script import Faults, RecordedRequest, Recording
from kubectl_runtime.apiserver.transport.faults.shapers import Close, Exchange, Plan, Reset, Send, Stall, Step, Wait

__all__ = ["Close", "Exchange", "Faults", "Plan", "RecordedRequest", "Recording", "Reset", "Rule", "Send", "Stall",
           "Step", "Wait"]
