"""The fault script, `Faults` (see script.py), and what it is made of; and the recording of requests."""

from __future__ import annotations

from kubectl_runtime.apiserver.rim.faults.exchange import Exchange
from kubectl_runtime.apiserver.rim.faults.plan import Close, Plan, Reset, Send, Stall, Step, Wait
from kubectl_runtime.apiserver.rim.faults.recording import RecordedRequest, Recording
from kubectl_runtime.apiserver.rim.faults.rule import Rule
from kubectl_runtime.apiserver.rim.faults.script import Faults

__all__ = ["Close", "Exchange", "Faults", "Plan", "RecordedRequest", "Recording", "Reset", "Rule", "Send", "Stall",
           "Step", "Wait"]
