"""What leads to a run: predicates, events of objects, requests to reconcile."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
