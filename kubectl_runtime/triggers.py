"""What triggers a run: predicates, object events, reconcile requests."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
