"""Events of events.k8s.io/v1: what `kubectl describe` shows below an object.

`recorder` has `Recorder` and its `Sender`, which makes requests; `ledger` decides what is counted and sent, and when.
"""
from kubectl_runtime.runtime.events.ledger import Reference as Reference
from kubectl_runtime.runtime.events.recorder import Recorder as Recorder
