"""Controllers: reconcilers, what a run gets and returns, finalizers, events, status."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
