"""`Api`, the verbs of one kind, and its companions: entries, lists, retries after a conflict, own writes."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
