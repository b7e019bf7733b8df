"""The verbs of one kind, `Api`, and what works with it: entries, lists, retries after a conflict, own writes."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
