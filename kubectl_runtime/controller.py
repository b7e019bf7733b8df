"""Controllers: reconcilers, the input and the result of a run, finalizers, events, status."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
