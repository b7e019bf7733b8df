"""Events of events.k8s.io/v1: what `kubectl describe` shows below an object.

    recorder       `Recorder`: publish, flush, close; its thread
    sender         one request at a time, and what follows from its answer
    ledger         decides: what is counted, what is to be written next, and when
    spam_filter    how many new Events one object may get
    writing        requests, and what their answers mean
    references     which object an Event is about
    texts          names and texts as the server takes them
"""
from kubectl_runtime.runtime.events.ledger import Reference as Reference
from kubectl_runtime.runtime.events.recorder import Recorder as Recorder
