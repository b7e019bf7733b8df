"""Events of events.k8s.io/v1: what `kubectl describe` shows below an object.

`recorder` defines `Recorder`, and `Sender`, which makes the requests. `ledger` counts observations, and decides what to
send when.
"""
from kubectl_runtime.runtime.events.ledger import Reference as Reference
from kubectl_runtime.runtime.events.recorder import Recorder as Recorder
